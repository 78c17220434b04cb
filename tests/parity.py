"Comparison with tensors that the authors' code or the paper's equations gave, and a record of how far apart they were: `--record FILE`"

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
here = {"test": "", "of": ""}  # the test that runs: its name in words, the values it is run with


def close(
    found,  # ours
    wanted,  # theirs
    what="",  # its name
    atol: float = 2e-6,  # what a deviation may be
    rtol: float = 2e-5,  # and this share of the largest value of `wanted`
    each: bool = False,  # the share is of each value instead
    group: str | None = None,  # None: the test
):
    "Within the tolerance, which the stored cases state"
    found, wanted = (torch.as_tensor(x).detach().double() for x in (found, wanted))
    assert found.shape == wanted.shape, (what, found.shape, wanted.shape)
    off = (found - wanted).abs()
    size = wanted.abs()
    limit = atol + rtol * (size if each else size.max()) if wanted.numel() else torch.zeros(())
    share = float((off / limit.clamp_min(1e-30)).max())
    assert share <= 1, (what, float(off.max()), float(limit.max()))
    name = group or here["test"]
    g = GROUPS.setdefault(
        name,
        dict(what=name, tensors=0, values=0, absolute=0.0, relative=0.0, of_tolerance=-1.0, farthest="", tolerance=""),
    )
    told = f"{atol:g}" + (f" + {rtol:g} of " + ("each value" if each else "the largest") if rtol else "")
    g.update(
        tensors=g["tensors"] + 1,
        values=g["values"] + wanted.numel(),
        absolute=max(g["absolute"], float(off.max())),
        relative=max(g["relative"], float(off.max() / size.max().clamp_min(1e-30))),
        tolerance=told if told in g["tolerance"] else "; ".join(filter(None, [g["tolerance"], told])),
    )
    if share > g["of_tolerance"]:
        g.update(
            of_tolerance=share,
            farthest=" ".join(filter(None, [here["of"], *map(str, what if isinstance(what, tuple) else [what])])),
        )


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
