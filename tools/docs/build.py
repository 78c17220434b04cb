"""Build the documentation site offline: notebooks as pages, an API read from the code, drawn by smalldocs

    python tools/docs/build.py [--katex node_modules/katex/dist] [--out _docs]

The build runs in a temporary copy; the output folder is replaced only after all checks pass.
The package is read, not imported, so the site builds in seconds."""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import smalldocs.site as smalldocs
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from docs import faster, reading, reference, site
from docs import links as checks
from docs.pages import Links, Pages, convert, front_matter
from docs.path import COMPANIONS, exporting, place

FRESH = ("pages/architecture.ipynb", "pages/equations.ipynb")  # executed at every build, because they show the code
LANDING = {"page-layout": "custom", "title-block-style": "none", "toc": False}


def executed(
    notebook: dict,  # as stored
    folder: Path,  # working folder
) -> dict:  # with new outputs
    "Execute a notebook"
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


def is_specific(name: str) -> bool:
    "Whether a name is recognisable as code: it has a capital, a dot or an underscore"
    return bool(re.search(r"[A-Z._]", name))


def symbol_targets(
    modules: dict[str, reading.Module],
) -> dict[str, str]:  # name → address from the site's root
    "Addresses of symbols: with their module always, alone where only one module defines them"
    targets = {}
    addresses = defaultdict(list)
    for module in modules.values():
        short = module.name.split(".")[-1]
        for entry in module.entries:
            address = f"api/{module.name}.html#{entry.name}"
            addresses[entry.name].append(address)
            targets[f"{short}.{entry.name}"] = address
            targets[f"{module.name}.{entry.name}"] = address
    for name, found in addresses.items():
        if len(found) == 1 and is_specific(name):
            targets[name] = found[0]
    # a method of the interface leads to the interface, whichever classes implement it
    for name, found in addresses.items():
        if name.startswith("RetrievalMethod."):
            method = name.split(".")[1]
            if is_specific(method):
                targets[method] = found[0]
    return targets


def page_targets(
    modules: Iterable[str],  # names of modules with a notebook
    nbs: Path,  # the notebooks
) -> dict[str, str]:  # name → address from the site's root
    "Addresses of modules and companions"
    targets = {module: f"{module}.html" for module in modules if "." in module}
    for path in companion_notebooks(nbs):
        address = f"{path.parent.name}/{path.stem}.html"
        targets[f"{path.parent.name}/{path.stem}"] = address
        targets[f"nbs/{path.parent.name}/{path.name}"] = address
    return targets | {"CONTRIBUTING.md": "contributing.html"}


def companion_notebooks(
    nbs: Path,  # the notebooks
) -> list[Path]:
    "Guides, studies and pages"
    return [path for folder in COMPANIONS for path in sorted((nbs / folder).glob("*.ipynb"))]


def yaml_of(source: str) -> dict:
    "Front matter as a dictionary"
    return yaml.safe_load(source.strip().strip("-"))


def markdown_cell(source: str) -> dict:
    return dict(cell_type="markdown", metadata={}, source=source)


def landing(
    page: dict,  # the converted index
) -> dict:
    "The index as a page without side bars: a hero, then a band per section"
    front, first, *rest = page["cells"]
    title = yaml_of(front["source"])["description"]
    hero = f"::: {{.band .hero}}\n# {title}\n\n{first['source']}\n"
    cells = [front, dict(first, source=hero)]
    for cell in rest:
        starts_band = cell["cell_type"] == "markdown" and cell["source"].startswith("## ")
        source = f":::\n\n::: {{.band}}\n{cell['source']}" if starts_band else cell["source"]
        cells.append(dict(cell, source=source))
    cells.append(markdown_cell(":::"))
    return page | dict(cells=cells)


@dataclass
class Source:
    "What the site is made from"

    root: Path  # the repository
    nbs: Path  # the notebooks
    notebooks: dict[str, Path]  # module → its notebook
    modules: dict[str, reading.Module]  # exported modules
    links: Links
    stored: dict[Path, dict]  # notebook below nbs/ → as stored
    titles: dict[Path, str]  # notebook below nbs/ → its title

    @property
    def places(self) -> dict[str, Path]:  # module → its notebook below nbs/
        return {module: path.relative_to(self.nbs) for module, path in self.notebooks.items()}


def read_source(
    root: Path,  # the repository
) -> Source:
    "Read notebooks and package"
    nbs = root / "nbs"
    notebooks = exporting(nbs)
    modules = {name: m for name, m in reading.read_package(root / "dasd_lab").items() if name in notebooks}
    pages = Pages({path.relative_to(nbs): module for module, path in notebooks.items()})
    links = Links(symbol_targets(modules) | page_targets(notebooks, nbs), pages)
    paths = [*notebooks.values(), nbs / "index.ipynb", *companion_notebooks(nbs)]
    stored = {path.relative_to(nbs): json.loads(path.read_text(encoding="utf-8")) for path in paths}
    titles = {where: front_matter(nb["cells"][0])[0].get("title", where.stem) for where, nb in stored.items()}
    return Source(root, nbs, notebooks, modules, links, stored, titles)


def write_notebooks(
    source: Source,
    to: Path,  # folder for the generator
) -> None:
    "Write every notebook as a page"
    pages = source.links.pages
    for where, stored in source.stored.items():
        fresh = where.as_posix() in FRESH
        notebook = executed(stored, source.nbs / where.parent) if fresh else stored
        module = pages.modules.get(where)
        head = ""
        if module in source.modules:
            addresses = f"[API](api/{module}.html) · [source](source/{module}.html)"
            head = f"::: {{.told}}\n{addresses} · `from dasd_lab.{module} import …`\n:::"
        if where.name == "index.ipynb":
            page = landing(convert(notebook, where, source.links, LANDING, head))
        else:
            page = convert(notebook, where, source.links, head=head)
        path = to / pages.page(where)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(page), encoding="utf-8")


def write_reference(
    source: Source,
    to: Path,  # folder for the generator
) -> None:
    "Write the API pages, the sources and the overview"
    for folder in ("api", "source"):
        (to / folder).mkdir()
    for name, module in source.modules.items():
        title = source.titles[source.places[name]]
        api = reference.api_page(module, f"{name}.html", title, source.links)
        (to / f"api/{name}.qmd").write_text(api, encoding="utf-8")
        (to / f"source/{name}.qmd").write_text(reference.source_page(module), encoding="utf-8")
    stages = []
    for number, title in enumerate(site.STAGES):
        names = [name for name, where in source.places.items() if place(where)[0] == number and name in source.modules]
        if names:
            stages.append((title, [source.modules[name] for name in names]))
    (to / "api/index.qmd").write_text(reference.overview(stages, source.links), encoding="utf-8")


def write_contributing(
    source: Source,
    to: Path,  # folder for the generator
) -> None:
    "Write CONTRIBUTING.md as a page"
    text = (source.root / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n", 1)[1]
    text = text.replace("](nbs/", "](")  # links of the site start at nbs/
    text = source.links.markdown(text, Path("contributing.ipynb"))
    (to / "contributing.qmd").write_text(f"---\ntitle: Contributing\n---\n{text}", encoding="utf-8")


def stage(
    root: Path,  # the repository
    to: Path,  # folder for the generator
) -> dict:  # settings, as written there
    "Write all files for the generator"
    source = read_source(root)
    write_notebooks(source, to)
    write_reference(source, to)
    write_contributing(source, to)
    shutil.copy(source.nbs / "styles.css", to)
    shutil.copy(site.HERE / "favicon.svg", to)
    if (source.nbs / "images").is_dir():
        shutil.copytree(source.nbs / "images", to / "images")
    index = front_matter(source.stored[Path("index.ipynb")]["cells"][0])[0]
    navbar, sidebars = site.bars(source.nbs, source.places, {"contributing.qmd": "Contributing"})
    footer = "Built from the notebooks; no page loads anything from another host."
    settings = site.settings("dasd_lab", index["description"], navbar, sidebars, footer)
    (to / "_quarto.yml").write_text(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True), encoding="utf-8")
    return settings


def without_missing(
    out: Path,  # the built site
) -> None:
    "Drop screenshots and links of the first page whose files do not exist yet"
    page = out / "index.html"

    def image(m):
        return m[0] if (out / m[1]).is_file() else ""

    def step(m):
        return m[0] if (out / m[1]).is_file() else f'<div class="step">{m[2]}</div>'

    text = page.read_text(encoding="utf-8")
    text = re.sub(r'<img[^>]*src="(images/[^"]+)"[^>]*>', image, text)
    text = re.sub(r'(?s)<a class="step" href="([^"]+)">(.*?)</a>', step, text)
    page.write_text(text, encoding="utf-8")


def check(
    built: Path,  # the built site
    warnings: list[str],  # of the generator
) -> dict[str, checks.Page]:  # the pages
    "Exit with a list of errors, if there are any"
    pages = checks.read_site(built)
    for title, errors in (
        ("warnings of the generator", warnings),
        ("broken links", checks.broken(built, pages)),
        ("loads from other hosts", checks.outside(built, pages)),
        ("images without alternative text", checks.without_words(pages)),
    ):
        if errors:
            shown = "\n  ".join(errors[:30])
            sys.exit(f"{len(errors)} {title}:\n  {shown}\nExpected none. Correct the notebooks of these pages.")
    return pages


def build(
    root: Path,  # the repository
    out: Path,  # output folder
    katex: Path | None,  # folder `dist` of KaTeX (default: formulas are not rendered)
) -> dict:  # counts
    "Build and check the site"
    with tempfile.TemporaryDirectory() as tmp:
        to = Path(tmp) / "site"
        to.mkdir()
        settings = stage(root, to)
        warnings = smalldocs.build(to, quiet=True).warnings
        built = to / "_site"
        site.bring_home(built, katex, site.panel_style(root / "dasd_lab"))
        site.name_kinds(built, settings["website"]["sidebar"])
        without_missing(built)
        pages = check(built, warnings)
        shutil.rmtree(out, ignore_errors=True)
        shutil.move(built, out)
        return dict(pages=len(pages), links=sum(len(page.links) for page in pages.values()))


def main() -> None:
    "The command line of the builder"
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    katex = "folder `dist` of the npm package katex; without it formulas are not rendered"
    parser.add_argument("--katex", type=Path, help=katex)
    parser.add_argument("--out", type=Path, default=root / "_docs")
    parser.add_argument("--root", type=Path, default=root, help="the repository")
    args = parser.parse_args()
    start = time.process_time()
    faster.keep()
    out = args.out.resolve()
    counts = build(args.root.resolve(), out, args.katex.resolve() if args.katex else None)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 1e6
    seconds = time.process_time() - start
    rate = counts["pages"] / seconds
    print(f"{counts['pages']} pages, {counts['links']} links, {size:.1f} MB: {out}/index.html")
    print(f"{seconds:.0f} s of processor time, {rate:.0f} pages a second")


if __name__ == "__main__":
    main()
