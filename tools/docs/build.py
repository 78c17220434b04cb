"""Build the documentation site offline: notebooks as pages, an API read from the code, drawn by smalldocs

    python tools/docs/build.py [--katex node_modules/katex/dist] [--out _docs]

Everything happens in a copy, so that no tracked file changes; the output folder is replaced when all went well.
The package is read, not imported: the site builds in seconds. See tools/docs/ for the parts."""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

import smalldocs.site as smalldocs

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from docs import links as checks
from docs import reading, reference, site
from docs.pages import Links, Pages, convert, front_matter
from docs.path import COMPANIONS, exporting, place

FRESH = ("pages/architecture.ipynb", "pages/equations.ipynb")  # drawn from the code as it stands, at every build
LANDING = {"page-layout": "custom", "title-block-style": "none", "toc": False}


def executed(
    notebook: dict,  # as stored
    folder: Path,  # where it stands
) -> dict:  # with new outputs
    "Run a light notebook here and now"
    from execnb.nbio import dict2nb
    from execnb.shell import CaptureShell

    nb = dict2nb(notebook)
    here = os.getcwd()
    os.chdir(folder)
    try:
        CaptureShell().run_all(nb, exc_stop=True)
    finally:
        os.chdir(here)
    return json.loads(json.dumps(nb))


def targets(
    modules: dict[str, reading.Module],
    notebooks: dict[str, Path],  # module → its notebook
    nbs: Path,
) -> dict[str, str]:  # name → address from the site's root
    "What a name in backticks leads to: symbols where they are unmistakable, modules, companions"
    found = {}
    seen = {}
    for m in modules.values():
        for e in m.entries:
            seen.setdefault(e.name, []).append(f"api/{m.name}.html#{e.name}")
        for e in m.entries:
            found[f"{m.name.split('.')[-1]}.{e.name}"] = found[f"{m.name}.{e.name}"] = f"api/{m.name}.html#{e.name}"

    def unmistakable(name):
        return re.search(r"[A-Z._]", name)

    found |= {name: where[0] for name, where in seen.items() if len(where) == 1 and unmistakable(name)}
    # what every method promises is explained where it is promised, whichever method defines a function of that name
    for name, where in seen.items():
        if name.startswith("RetrievalMethod.") and unmistakable(bare := name.split(".")[1]):
            found[bare] = where[0]
    found |= {m: f"{m}.html" for m in notebooks if "." in m}
    for p in (p for folder in COMPANIONS for p in (nbs / folder).glob("*.ipynb")):
        found[f"{p.parent.name}/{p.stem}"] = found[f"nbs/{p.parent.name}/{p.name}"] = f"{p.parent.name}/{p.stem}.html"
    return found | {"CONTRIBUTING.md": "contributing.html"}


def landing(
    page: dict,  # the converted index
) -> dict:
    "The index as a page without bars: its first words as a hero, a band for each part"
    front = yaml_of(page["cells"][0]["source"])
    first = page["cells"][1]
    hero = f"::: {{.band .hero}}\n# {front['description']}\n\n{first['source']}\n"
    cells = [page["cells"][0], dict(first, source=hero)]
    open_ = True
    for c in page["cells"][2:]:
        if c["cell_type"] == "markdown" and c["source"].startswith("## "):
            cells.append(dict(c, source=f":::\n\n::: {{.band}}\n{c['source']}"))
        else:
            cells.append(c)
    cells.append(dict(cell_type="markdown", metadata={}, source=":::"))
    return page | dict(cells=cells)


def yaml_of(source: str) -> dict:
    import yaml

    return yaml.safe_load(source.strip().strip("-"))


def stage(
    root: Path,  # the repository
    to: Path,  # a folder for the generator
) -> dict:  # settings, as written there
    "Write every page as the generator takes it"
    import yaml

    nbs = root / "nbs"
    notebooks = exporting(nbs)
    pages = Pages({p.relative_to(nbs): m for m, p in notebooks.items()})
    modules = {m: x for m, x in reading.read_package(root / "dasd_lab").items() if m in notebooks}
    links = Links(targets(modules, notebooks, nbs), pages)
    stored = {
        p.relative_to(nbs): json.loads(p.read_text(encoding="utf-8"))
        for p in [
            *notebooks.values(),
            nbs / "index.ipynb",
            *(p for f in COMPANIONS for p in sorted((nbs / f).glob("*.ipynb"))),
        ]
    }
    titles = {w: front_matter(nb["cells"][0])[0].get("title", w.stem) for w, nb in stored.items()}
    for where, nb in stored.items():
        if where.as_posix() in FRESH:
            nb = executed(nb, nbs / where.parent)
        module = pages.modules.get(where)
        head = (
            f"::: {{.told}}\n[API](api/{module}.html) · [source](source/{module}.html) · `from dasd_lab.{module} import …`\n:::"
            if module in modules
            else ""
        )
        page = convert(nb, where, links, LANDING if where.name == "index.ipynb" else {}, head)
        if where.name == "index.ipynb":
            page = landing(page)
        path = to / pages.page(where)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(page), encoding="utf-8")
    for folder in ("api", "source"):
        (to / folder).mkdir()
    for name, m in modules.items():
        where = notebooks[name].relative_to(nbs)
        (to / f"api/{name}.qmd").write_text(
            reference.api_page(m, f"{name}.html", titles[where], links),
            encoding="utf-8",
        )
        (to / f"source/{name}.qmd").write_text(reference.source_page(m), encoding="utf-8")
    by_stage = [
        (t, [modules[m] for m in modules if place(notebooks[m].relative_to(nbs))[0] == i])
        for i, t in enumerate(site.STAGES)
    ]
    order = list(notebooks)
    (to / "api/index.qmd").write_text(
        reference.overview([(t, sorted(ms, key=lambda m: order.index(m.name))) for t, ms in by_stage if ms], links),
        encoding="utf-8",
    )
    contributing = (root / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n", 1)[1]
    contributing = links.markdown(contributing, Path("contributing.ipynb"))
    (to / "contributing.qmd").write_text(f"---\ntitle: Contributing\n---\n{contributing}", encoding="utf-8")
    navbar, sidebars = site.bars(
        nbs, {m: p.relative_to(nbs) for m, p in notebooks.items()}, {"contributing.qmd": "Contributing"}
    )
    shutil.copy(nbs / "styles.css", to)
    shutil.copy(site.HERE / "favicon.svg", to)
    if (nbs / "images").is_dir():
        shutil.copytree(nbs / "images", to / "images")
    index = front_matter(stored[Path("index.ipynb")]["cells"][0])[0]
    asked = site.settings(
        "dasd_lab",
        index["description"],
        navbar,
        sidebars,
        "Built from the notebooks; no page asks another host for anything.",
    )
    (to / "_quarto.yml").write_text(yaml.safe_dump(asked, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return asked


def without_missing(
    out: Path,  # the built site
):
    "Screenshots that nobody has taken yet, and guides that nobody has written yet, are left out of the first page"
    page = out / "index.html"
    text = re.sub(
        r'<img[^>]*src="(images/[^"]+)"[^>]*>',
        lambda m: m[0] if (out / m[1]).is_file() else "",
        page.read_text(encoding="utf-8"),
    )
    text = re.sub(
        r'(?s)<a class="step" href="([^"]+)">(.*?)</a>',
        lambda m: m[0] if (out / m[1]).is_file() else f'<div class="step">{m[2]}</div>',
        text,
    )
    page.write_text(text, encoding="utf-8")


def build(
    root: Path,  # the repository
    out: Path,  # where the site goes
    katex: Path | None,  # KaTeX's `dist` folder; None: formulas stay as they are written
) -> dict:  # counts
    "The whole site, or an exit with what is wrong"
    with tempfile.TemporaryDirectory() as tmp:
        to = Path(tmp) / "site"
        to.mkdir()
        stage(root, to)
        warnings = smalldocs.build(to, quiet=True).warnings
        built = to / "_site"
        site.bring_home(built, katex, site.panel_style(root / "dasd_lab"))
        without_missing(built)
        pages = checks.read_site(built)
        for what, wrong in (
            ("warnings of the generator", warnings),
            ("links that lead nowhere", checks.broken(built, pages)),
            ("loads from other hosts", checks.outside(built, pages)),
            ("pictures without alternative text", checks.without_words(pages)),
        ):
            if wrong:
                sys.exit(
                    f"{len(wrong)} {what}:\n  "
                    + "\n  ".join(wrong[:30])
                    + "\nExpected none. Mend the notebook that the page is made from."
                )
        shutil.rmtree(out, ignore_errors=True)
        shutil.move(built, out)
        return dict(pages=len(pages), links=sum(len(p.links) for p in pages.values()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--katex",
        type=Path,
        help="folder `dist` of the npm package katex; without it formulas stay as they are written",
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "_docs")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="the repository")
    a = parser.parse_args()
    began = time.monotonic()
    counts = build(a.root.resolve(), a.out.resolve(), a.katex and a.katex.resolve())
    size = sum(p.stat().st_size for p in a.out.rglob("*") if p.is_file()) / 1e6
    print(
        f"{counts['pages']} pages, {counts['links']} links, {size:.1f} MB in {time.monotonic() - began:.0f} s: {a.out}/index.html"
    )
