"""Around the pages: navigation, style, scripts, and local copies of files from other hosts"""

import ast
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from .path import place

HERE = Path(__file__).parent
STAGES = (
    "Foundation",
    "Corpora",
    "Backbone",
    "Methods",
    "Training",
    "Evaluation",
    "Search",
    "Apps",
)
START = ("pages/install", "pages/five_minutes", "pages/choose_a_model", "guides/add_a_language", "pages/papers")
ORDER = dict(
    guides=(
        "workbench",
        "first_search",
        "photographs",
        "ask_in_any_language",
        "inside_one_caption",
        "inside_the_adapters",
        "clusters_of_expression",
        "semantic_slots",
        "shared_words",
        "compare_runs",
        "where_the_time_goes",
    ),
    studies=(
        "claims",
        "ablations",
        "disentangling",
        "real_captions",
        "photographs",
        "real_pictures",
        "semantic_slots",
        "three_methods",
        "many_languages",
        "parity",
    ),
)
EXPLAINED = {
    "How it works": (
        "shipped_models",
        "glossary",
        "architecture",
        "equations",
        "paper_and_code",
        "how_fast_how_big_how_sure",
        "decisions",
    ),
    "Make it yours": (
        "your_photographs",
        "clip_from_text",
        "command_line",
        "which_data",
        "bring_your_own_pictures",
        "a_million_pictures",
        "on_several_machines",
        "adding_a_corpus",
        "translating_captions",
        "describing_pictures",
        "features_on_a_cluster",
        "never_losing_a_run",
        "adding_a_method",
        "publishing",
    ),
}


def in_order(
    folder: Path,  # of companions
) -> list[str]:  # their stems: those named above first, others after them
    stems = sorted(path.stem for path in folder.glob("*.ipynb"))
    first = [stem for stem in ORDER.get(folder.name, ()) if stem in stems]
    return first + [stem for stem in stems if stem not in first]


def grouped(
    names: list[str],  # modules of one stage
    address,  # module → page
) -> list:
    "Pages of a stage; the modules of a subpackage under its name"
    pages = []
    groups = {}
    for name in names:
        parts = name.split(".")
        if len(parts) < 3:
            pages.append(address(name))
            continue
        package = parts[1]
        if package not in groups:
            groups[package] = dict(section=package.replace("_", " ").capitalize(), contents=[])
            pages.append(groups[package])
        groups[package]["contents"].append(dict(text=parts[-1], href=address(name)))
    return pages


def sections(parts: Iterable[tuple[str, list]]) -> list[dict]:
    "Sections of a side bar, without empty ones"
    return [dict(section=title, contents=contents) for title, contents in parts if contents]


def first_page(contents: list) -> str:
    "The first page of a side bar"
    first = contents[0]
    return first if isinstance(first, str) else first_page(first["contents"])


def side_bars(
    nbs: Path,  # the notebooks
    exporting: dict[str, Path],  # module → its notebook below nbs/, in order of the path
    more: dict[str, str],  # further pages of 'Make it yours': page → title
) -> dict[str, list]:  # name of a side bar → its pages
    "Pages of each side bar; a page has the first bar that it stands in"
    explained = {}
    for title, stems in EXPLAINED.items():
        explained[title] = [f"pages/{stem}.ipynb" for stem in stems if (nbs / "pages" / f"{stem}.ipynb").exists()]
    explained["Make it yours"] += more
    notebooks = []
    api = []
    for number, title in enumerate(STAGES):
        modules = [module for module, path in exporting.items() if place(path)[0] == number]
        notebooks.append((title, grouped(modules, lambda module: f"{module}.ipynb")))
        api.append((title, grouped(modules, lambda module: f"api/{module}.qmd")))
    start = [f"{page}.ipynb" for page in START if (nbs / f"{page}.ipynb").exists()]
    guides = [f"guides/{stem}.ipynb" for stem in in_order(nbs / "guides")]
    return dict(
        start=start,
        guides=[
            *(page for page in guides if page not in start),
            *sections([("Make it yours", explained["Make it yours"])]),
        ],
        studies=[f"studies/{stem}.ipynb" for stem in in_order(nbs / "studies")],
        reference=["api/index.qmd", *sections([("How it works", explained["How it works"])]), *sections(api)],
        notebooks=["api/index.qmd", *sections(notebooks)],
    )


TITLES = dict(start="Start", guides="Guides", studies="Studies", reference="Reference")  # of the bar at the top


def bars(
    nbs: Path,  # the notebooks
    exporting: dict[str, Path],  # module → its notebook below nbs/, in order of the path
    more: dict[str, str],  # further pages of 'Make it yours': page → title
) -> tuple[dict, list]:  # bar at the top, bars at the side
    "Navigation"
    sides = side_bars(nbs, exporting, more)
    top = [dict(text=title, href=first_page(sides[name])) for name, title in TITLES.items() if sides[name]]
    bars = [dict(id="none", contents=[])]
    bars += [{"id": name, "contents": pages, "collapse-level": 2} for name, pages in sides.items() if pages]
    return dict(left=top, search=True), bars


def settings(title: str, description: str, navbar: dict, sidebars: list, footer: str) -> dict:
    "Settings of the generator"
    html = {
        "theme": dict(light="default", dark="darkly"),
        "css": "styles.css",
        "toc": True,
        "toc-depth": 3,
        "toc-title": "On this page",
        "code-copy": True,
        "link-external-newwindow": True,
    }
    website = {
        "title": title,
        "description": description,
        "favicon": "favicon.svg",
        "navbar": navbar,
        "sidebar": sidebars,
        "search": True,
        "page-navigation": True,
        "bread-crumbs": False,
        "page-footer": dict(left=footer),
    }
    return dict(
        project={"type": "website", "resources": ["images/*", "favicon.svg"], "output-dir": "_site"},
        website=website,
        format=dict(html=html),
        smalldocs=dict(linkify=False),
    )


def panel_style(
    package: Path,  # folder of the package
) -> str:
    "Style sheet of the panels, read from `explore.theme`, so that their snapshots look the same here"
    theme = package / "explore/theme.py"
    if not theme.exists():
        return ""
    for node in ast.parse(theme.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CSS":
            return ast.literal_eval(node.value)
    return ""


def pages_of(contents: list) -> Iterable[str]:
    "The pages of a side bar, or of a part of it"
    for entry in contents:
        if isinstance(entry, dict) and "contents" in entry:
            yield from pages_of(entry["contents"])
        else:
            yield entry["href"] if isinstance(entry, dict) else entry


def name_kinds(
    out: Path,  # the built site
    sidebars: list[dict],  # of the settings
) -> None:
    "Say for each entry of the search index what kind of page it is on, for `search.js`"
    kinds = {"index.html": "start"}
    for bar in sidebars:
        for page in pages_of(bar["contents"]):
            kinds.setdefault(str(Path(page).with_suffix(".html")), bar["id"])
    index = out / "search.json"
    entries = []
    for entry in json.loads(index.read_text(encoding="utf-8")):
        page = entry["href"].split("#")[0]
        kind = "symbols" if page.startswith("api/") else kinds.get(page, "notebooks")
        kind = "explained" if kind == "reference" else kind
        entries.append({name: entry[name] for name in ("href", "title", "section", "text")} | dict(kind=kind))
    index.write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")


EMPTY_BAR = re.compile(r'(?s)<nav id="quarto-sidebar"(?:(?!</nav>).)*?<ul class="list-unstyled mt-1"></ul>')
BAR_PARTS = re.compile(
    r'(?s)<nav id="quarto-sidebar".*?</nav>'
    r'|<div id="quarto-sidebar-glass"[^>]*></div>'
    r'|<nav class="quarto-secondary-nav">.*?</nav>'
)


def without_empty_bar(
    page: str,  # HTML
) -> str:
    "A page without its side bar and the bar's button, if the bar is empty"
    if not EMPTY_BAR.search(page):
        return page
    page = BAR_PARTS.sub("", page)
    return page.replace(" has-sidebar", "", 1).replace("nav-sidebar floating ", "", 1)


def copy_katex(
    katex: Path,  # folder `dist` of KaTeX
    libs: Path,  # scripts of the site
) -> None:
    "Copy style, scripts and fonts of KaTeX"
    for name in ("katex.min.css", "katex.min.js", "contrib/auto-render.min.js"):
        target = libs / "katex" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(katex / name, target)
    (libs / "katex/fonts").mkdir()
    for font in (katex / "fonts").glob("*.woff2"):
        shutil.copy(font, libs / "katex/fonts")


def bring_home(
    out: Path,  # the built site
    katex: Path | None,  # folder `dist` of KaTeX (default: formulas are not rendered)
    style: str = "",  # added to the site's style sheet
) -> None:
    "Replace or drop every address of another host; add the scripts that draw figures"
    import plotly

    libs = out / "site_libs"
    shutil.copy(Path(plotly.__file__).parent / "package_data/plotly.min.js", libs)
    for script in ("site.js", "search.js"):
        shutil.copy(HERE / script, libs)
    (out / "styles.css").write_text(style + (out / "styles.css").read_text(encoding="utf-8"), encoding="utf-8")
    if katex:
        copy_katex(katex, libs)
    for css in libs.rglob("*.css"):
        text = css.read_text(encoding="utf-8")
        css.write_text(re.sub(r'@import\s*(url\()?["\']?https?://[^;]*;', "", text), encoding="utf-8")
    for page in out.rglob("*.html"):
        lib = "../" * (len(page.relative_to(out).parts) - 1) + "site_libs"
        text = without_empty_bar(page.read_text(encoding="utf-8"))
        if katex:
            text = re.sub(r'https://[^"]*/katex@[^/"]+/dist', f"{lib}/katex", text)
        else:
            text = re.sub(r"<(script|link)[^>]*katex@[^>]*>(</script>)?", "", text)
        scripts = "".join(f'<script src="{lib}/{name}.js" defer></script>' for name in ("site", "search"))
        if "data-plotly=" in text:
            scripts = f'<script src="{lib}/plotly.min.js" defer></script>' + scripts
        page.write_text(text.replace("</body>", f"{scripts}</body>"), encoding="utf-8")
