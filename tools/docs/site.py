"""Around the pages: bars at the top and the side, style, scripts, and files that other sites would lend"""

import ast
import re
import shutil
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
ORDER = dict(
    guides=(
        "workbench",
        "first_search",
        "ask_in_any_language",
        "inside_one_caption",
        "inside_the_adapters",
        "clusters_of_expression",
        "semantic_slots",
        "shared_words",
        "add_a_language",
        "compare_runs",
        "where_the_time_goes",
    ),
    studies=(
        "ablations",
        "disentangling",
        "real_captions",
        "real_pictures",
        "semantic_slots",
        "three_methods",
        "many_languages",
        "parity",
    ),
)
EXPLAINED = {
    "How it works": (
        "glossary",
        "architecture",
        "equations",
        "paper_and_code",
        "shipped_models",
        "how_fast_how_big_how_sure",
        "decisions",
    ),
    "Make it yours": (
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
    there = sorted(p.stem for p in folder.glob("*.ipynb"))
    first = ORDER.get(folder.name, ())
    return [*(s for s in first if s in there), *(s for s in there if s not in first)]


def grouped(
    names: list[str],  # modules of one stage
    address,  # module → page
) -> list:
    "Pages of a stage; the three modules of one explorer under its name"
    found = []
    groups = {}
    for n in names:
        parts = n.split(".")
        if len(parts) < 3:
            found.append(address(n))
            continue
        if parts[1] not in groups:
            found.append(
                groups.setdefault(parts[1], dict(section=parts[1].replace("_", " ").capitalize(), contents=[]))
            )
        groups[parts[1]]["contents"].append(dict(text=parts[-1], href=address(n)))
    return found


def bars(
    nbs: Path,  # the notebooks
    exporting: dict[str, Path],  # module → its notebook below nbs/, in order of the path
    more: dict[str, str],  # further pages of 'Make it yours': page → title
) -> tuple[dict, list]:  # bar at the top, bars at the side
    "Where one can go from each page"
    by_stage = [[m for m, p in exporting.items() if place(p)[0] == i] for i in range(len(STAGES))]

    def page(m):
        return f"{m}.ipynb"

    def section(title, contents):
        return [dict(section=title, contents=contents)] if contents else []

    def companions(folder):
        return [f"{folder}/{s}.ipynb" for s in in_order(nbs / folder)]

    explained = {
        title: [f"pages/{s}.ipynb" for s in stems if (nbs / "pages" / f"{s}.ipynb").exists()]
        for title, stems in EXPLAINED.items()
    }
    explained["Make it yours"] += list(more)
    sides = dict(
        guides=companions("guides"),
        explained=sum((section(t, c) for t, c in explained.items()), []),
        notebooks=sum((section(t, grouped(ms, page)) for t, ms in zip(STAGES, by_stage)), []),
        studies=companions("studies"),
        api=[
            "api/index.qmd",
            *sum((section(t, grouped(ms, lambda m: f"api/{m}.qmd")) for t, ms in zip(STAGES, by_stage)), []),
        ],
    )

    def first(contents):
        return contents[0] if isinstance(contents[0], str) else first(contents[0]["contents"])

    top = [
        dict(text=t, href=first(sides[k]))
        for t, k in (
            ("Guides", "guides"),
            ("Explained", "explained"),
            ("Notebooks", "notebooks"),
            ("Studies", "studies"),
            ("API", "api"),
        )
        if sides[k]
    ]
    return dict(left=top, search=True), [
        dict(id="none", contents=[]),
        *(dict(id=k, contents=v, **{"collapse-level": 2}) for k, v in sides.items() if v),
    ]


def settings(title: str, description: str, navbar: dict, sidebars: list, footer: str) -> dict:
    "What the generator is told"
    html = dict(
        theme=dict(light="default", dark="darkly"),
        css="styles.css",
        toc=True,
        **{"toc-depth": 3, "toc-title": "On this page", "code-copy": True, "link-external-newwindow": True},
    )
    website = dict(
        title=title,
        description=description,
        favicon="favicon.svg",
        navbar=navbar,
        sidebar=sidebars,
        search=True,
        **{"page-navigation": True, "bread-crumbs": False, "page-footer": dict(left=footer)},
    )
    return dict(
        project=dict(type="website", resources=["images/*", "favicon.svg"], **{"output-dir": "_site"}),
        website=website,
        format=dict(html=html),
        smalldocs=dict(linkify=False),
    )


def panel_style(
    package: Path,  # folder of the package
) -> str:
    "The lab's own style sheet of panels, read from its theme, so that snapshots of panels look alike here"
    theme = package / "explore/theme.py"
    if not theme.exists():
        return ""
    values = [
        n.value
        for n in ast.parse(theme.read_text(encoding="utf-8")).body
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "CSS"
    ]
    return ast.literal_eval(values[0]) if values else ""


def without_empty_bar(
    page: str,  # HTML
) -> str:
    "A page that stands in no bar has none, and no button that would open it"
    if not re.search(r'(?s)<nav id="quarto-sidebar"(?:(?!</nav>).)*?<ul class="list-unstyled mt-1"></ul>', page):
        return page
    page = re.sub(
        r'(?s)<nav id="quarto-sidebar".*?</nav>|<div id="quarto-sidebar-glass"[^>]*></div>|<nav class="quarto-secondary-nav">.*?</nav>',
        "",
        page,
    )
    return page.replace(" has-sidebar", "", 1).replace("nav-sidebar floating ", "", 1)


def bring_home(
    out: Path,  # the built site
    katex: Path | None,  # KaTeX's `dist` folder; None: formulas stay as they are written
    style: str = "",  # added to the site's own style sheet
):
    "Replace every outside address by a file of the site, or drop it; add what draws figures"
    import plotly

    libs = out / "site_libs"
    shutil.copy(Path(plotly.__file__).parent / "package_data/plotly.min.js", libs)
    shutil.copy(HERE / "site.js", libs)
    (out / "styles.css").write_text(style + (out / "styles.css").read_text(encoding="utf-8"), encoding="utf-8")
    if katex:
        for n in ("katex.min.css", "katex.min.js", "contrib/auto-render.min.js"):
            (libs / "katex" / n).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(katex / n, libs / "katex" / n)
        (libs / "katex/fonts").mkdir()
        for font in (katex / "fonts").glob("*.woff2"):
            shutil.copy(font, libs / "katex/fonts")
    for css in libs.rglob("*.css"):
        css.write_text(
            re.sub(r'@import\s*(url\()?["\']?https?://[^;]*;', "", css.read_text(encoding="utf-8")), encoding="utf-8"
        )
    for page in out.rglob("*.html"):
        lib = "../" * (len(page.relative_to(out).parts) - 1) + "site_libs"
        text = without_empty_bar(page.read_text(encoding="utf-8"))
        if katex:
            text = re.sub(r'https://[^"]*/katex@[^/"]+/dist', f"{lib}/katex", text)
        else:
            text = re.sub(r"<(script|link)[^>]*katex@[^>]*>(</script>)?", "", text)
        plots = f'<script src="{lib}/plotly.min.js" defer></script>' if "data-plotly=" in text else ""
        page.write_text(
            text.replace("</body>", f'{plots}<script src="{lib}/site.js" defer></script></body>'), encoding="utf-8"
        )
