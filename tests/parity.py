"Compare tensors with those of the authors' code or the paper's equations, and record the deviations: `--record FILE`"

import hashlib
import io
import json
import platform
import tokenize
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
# group → what `close` noted; file of a case → checksum
GROUPS = {}
CASES = {}
here = {"test": "", "of": ""}  # current test: its name in words, and its parameters


def close(
    actual,  # ours
    expected,  # theirs
    name="",  # name of the tensor, or a tuple
    atol: float = 2e-6,  # absolute tolerance
    rtol: float = 2e-5,  # tolerance relative to the largest value of `expected`
    each: bool = False,  # relative to each value instead
    group: str | None = None,  # group of the record; None: the test
):
    "Assert that a tensor is within the tolerance that the stored cases state, and record its deviation"
    actual = torch.as_tensor(actual).detach().double()
    expected = torch.as_tensor(expected).detach().double()
    assert actual.shape == expected.shape, (name, actual.shape, expected.shape)
    deviation = (actual - expected).abs()
    size = expected.abs()
    limit = atol + rtol * (size if each else size.max()) if expected.numel() else torch.zeros(())
    share = float((deviation / limit.clamp_min(1e-30)).max())
    assert share <= 1, (name, float(deviation.max()), float(limit.max()))
    tolerance = f"{atol:g}"
    if rtol:
        tolerance += f" + {rtol:g} of {'each value' if each else 'the largest'}"
    note(group or here["test"], name, deviation, size, share, tolerance)


def note(group, name, deviation, size, share, tolerance):
    "Add a comparison to the record"
    entry = GROUPS.setdefault(
        group,
        dict(what=group, tensors=0, values=0, absolute=0.0, relative=0.0, of_tolerance=-1.0, farthest="", tolerance=""),
    )
    entry["tensors"] += 1
    entry["values"] += deviation.numel()
    entry["absolute"] = max(entry["absolute"], float(deviation.max()))
    entry["relative"] = max(entry["relative"], float(deviation.max() / size.max().clamp_min(1e-30)))
    if not entry["tolerance"]:
        entry["tolerance"] = tolerance
    elif tolerance not in entry["tolerance"]:
        entry["tolerance"] += f"; {tolerance}"
    if share > entry["of_tolerance"]:
        parts = name if isinstance(name, tuple) else (name,)
        entry["of_tolerance"] = share
        entry["farthest"] = " ".join(str(part) for part in (here["of"], *parts) if part not in ("", None))


def checksum(
    module: str,  # of the package
) -> str:  # the same for the same code, whatever its comments and spaces
    "What is computed, in twelve letters"
    text = (ROOT / "dasd_lab" / (module.replace(".", "/") + ".py")).read_text(encoding="utf-8")
    lines = text.splitlines()
    for t in tokenize.generate_tokens(io.StringIO(text).readline):
        if t.type == tokenize.COMMENT:
            lines[t.start[0] - 1] = lines[t.start[0] - 1][: t.start[1]]
    return hashlib.sha256("".join("".join(lines).split()).encode()).hexdigest()[:12]


def write(
    path: Path,  # a JSON file
    method: str,  # that was compared
    test: Path,  # its test module
    modules: tuple[str, ...],  # of the package, that compute it
):
    "Everything that was compared, with the code that it was"
    groups = [g | {k: float(f"{g[k]:.3g}") for k in ("absolute", "relative", "of_tolerance")} for g in GROUPS.values()]
    record = dict(
        method=method,
        test=test.relative_to(ROOT).as_posix(),
        cases=CASES,
        code={m: checksum(m) for m in modules},
        python=platform.python_version(),
        torch=torch.__version__.split("+")[0],
        groups=groups,
    )
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
