"""Every query that README, pages, guides, explorers and `serve` show: the first row of images is right

Those about photographs are asked in `test_shipped_photographs`, where the photographs are encoded, and those about the
photographs that ship in `test_everyday`."""

import ast
import json
import re
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.explore.workbench import EVERYDAY_QUERIES, WORLDS
from dasd_lab.runs.loading import load_run
from dasd_lab.search.gallery.views import corpus_gallery

ROOT = Path(__file__).resolve().parents[1]
NBS = ROOT / "nbs"
ROW = 4  # images of the first row on a narrow screen

COMMAND = re.compile(r"""\bsearch[ \t]+(["'])(.+?)\1(.*)""")
ITALIC = re.compile(r"(?<![*\w])\*([^*\n]{2,80})\*(?![*\w])")
EXAMPLE = re.compile(r"(?m)^\s*(\w\w): \{ask: .*?\bexample: '([^']*)'")
SAYING = re.compile(r"^(e\.g\.|z\. B\.|p\. ex\.|p\. ej\.,|např\.|例如：|例：|مثلًا:)\s*")  # "for example"
CALLS = {"ask", "search", "listen"}
INVITED = re.compile(r"(?i)\b(for example|try|type|ask)\b")
OWN = "guides/photographs.ipynb"  # searches the photographs that come with the lab, and holds its own queries


Shown = namedtuple("Shown", "text world where")  # a query, the name of its world, and the file where a reader meets it


def texts_in(node: ast.AST) -> list[str]:
    "All texts in some code"
    return [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def constants(tree: ast.AST) -> dict[str, list[str]]:
    "Names that stand for texts: assigned, or running through a list of texts"
    found: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            found |= {target.id: texts_in(node.value) for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple | ast.List):
            found[ast.unparse(node.target)] = [text for item in node.iter.elts for text in texts_in(item)[:1]]
    return found


def texts_of(node: ast.expr, names: dict[str, list[str]]) -> list[str]:
    "Texts that an argument stands for; of a pair (text, language) the text"
    if isinstance(node, ast.Tuple) and node.elts:
        return texts_of(node.elts[0], names)
    if isinstance(node, ast.Name):
        return names.get(node.id, [])
    return texts_in(node) if isinstance(node, ast.Constant) else []


def called(code: str) -> Iterator[str]:
    "Queries of calls such as `gallery.search(…)`, `state.ask(…)` and `dasd_lab('search', …)`"
    tree = ast.parse(code)
    names = constants(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in CALLS and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) != "re":
            for argument in node.args if isinstance(node.args[0], ast.Tuple) else node.args[:1]:
                yield from texts_of(argument, names)
        elif name == "dasd_lab" and texts_of(node.args[0], {}) == ["search"]:
            yield from texts_of(node.args[1], names)


def told(prose: str) -> Iterator[str]:
    "Queries in prose: in italics, in a paragraph that invites to try them"
    for paragraph in prose.split("\n"):
        if INVITED.search(paragraph):
            yield from ITALIC.findall(paragraph)


def commanded(text: str) -> Iterator[tuple[str, str]]:
    "Queries of `dasd-lab search` and their worlds: a run without images of one's own searches scenes"
    for _, query, options in COMMAND.findall(text):
        scenes = "--run" in options and "--gallery" not in options and "--pictures" not in options
        yield query, "pictograms" if scenes else "photographs"


def of_notebook(path: Path) -> Iterator[Shown]:
    "Queries of a guide or page"
    where = path.relative_to(NBS).with_suffix("").as_posix()
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        for text, searched in commanded(source):
            yield Shown(text, searched, where)
        for text in called(source) if cell["cell_type"] == "code" else told(source):
            yield Shown(text, "pictograms", where)


def page_script() -> str:
    "The script of `serve`'s page"
    return (ROOT / "dasd_lab/serve/page/app.js").read_text(encoding="utf-8")


def of_page() -> Iterator[Shown]:
    "The examples of the search box of `serve`, which shows either kind of images, where its model reads the language"
    for language, text in EXAMPLE.findall(page_script()):
        for world in WORLDS.values():
            if language in {code for _, code in world.examples}:
                yield Shown(SAYING.sub("", text), world.name, "serve")


def shown() -> list[Shown]:
    "Every query, once in each world"
    found = []
    for folder in ("guides", "pages"):
        for path in sorted({*(NBS / folder).glob("*.ipynb")} - {NBS / OWN}):
            found += of_notebook(path)
    found += of_notebook(NBS / "index.ipynb")
    found += of_page()
    for world in WORLDS.values():
        found += [Shown(text, world.name, "explorers") for text, _ in world.examples]
    for path in sorted((ROOT / "dasd_lab").rglob("*.py")):
        for text, world in commanded(path.read_text(encoding="utf-8")):
            found.append(Shown(text, world, path.relative_to(ROOT).as_posix()))
    once: dict[tuple[str, str], Shown] = {}
    for query in found:
        once.setdefault((query.text, query.world), query)
    return list(once.values())


# What each query asks for. Scenes: number and noun of each thing, with its colour if one is asked for, and the place.
SCENES = {
    "Drei Katzen vor Hochhäusern": "3 cat @ city",
    "drei Katzen in der Stadt": "3 cat @ city",
    "tři kočky ve městě": "3 cat @ city",
    "三只猫在城市里": "3 cat @ city",
    "街の中の三匹の猫": "3 cat @ city",
    "three cats in the city": "3 cat @ city",
    "drei rote Katzen": "3 red cat",
    "三只红色的猫": "3 red cat",
    "ثلاث قطط حمراء": "3 red cat",
    "Ein Pinguin auf dem Mond": "1 penguin @ moon",
    "un manchot sur la lune": "1 penguin @ moon",
    "tučňák na Měsíci": "1 penguin @ moon",
    "月球上的一只企鹅": "1 penguin @ moon",
    "月の上のペンギン": "penguin @ moon",
    "بطريق على القمر": "1 penguin @ moon",
    "un pingüino en la luna": "1 penguin @ moon",
    "deux chiens sur la plage": "2 dog @ beach",
    "zwei Hunde": "2 dog",
    "čtyři psi": "4 dog",
    "Vier Hunde am Ufer.": "4 dog @ beach",
    "dogs on the beach": "dog @ beach",
    "Hunde am Strand": "dog @ beach",
    "des chiens sur la plage": "dog @ beach",
    "psi na pláži": "dog @ beach",
    "海滩上的两只狗": "2 dog @ beach",
    "浜辺の犬": "dog @ beach",
    "perros en la playa": "dog @ beach",
    "كلاب على الشاطئ": "dog @ beach",
    "في المطبخ": "@ kitchen",
    "eine Eule auf einer Bühne": "1 owl @ stage",
    "三羽の紫のフクロウが舞台の上にいる。": "3 purple owl @ stage",
    "أربع حبات بندورة إلى يمين بومة، وذلك في المطبخ.": "4 tomato, 1 owl @ kitchen",
}
# Photographs: words that the English captions of people say, one of each group
DOGS_IN_SNOW = ["dog", "snow"]
DOGS_ON_BEACH = ["dog", "beach|sand|shore|ocean"]
ON_A_SWING = ["boy|girl|child|kid", "swing"]
ON_A_WAVE = ["surf", "wave"]
IMAGES = {
    "zwei Hunde rennen durch den Schnee": DOGS_IN_SNOW,
    "zwei Hunde im Schnee": DOGS_IN_SNOW,
    "двоє собак біжать по снігу": DOGS_IN_SNOW,
    "zwei Hunde am Strand": DOGS_ON_BEACH,
    "dogs on the beach": DOGS_ON_BEACH,
    "Hunde am Strand": DOGS_ON_BEACH,
    "des chiens sur la plage": DOGS_ON_BEACH,
    "psi na pláži": DOGS_ON_BEACH,
    "海滩上的两只狗": DOGS_ON_BEACH,
    "perros en la playa": DOGS_ON_BEACH,
    "كلاب على الشاطئ": DOGS_ON_BEACH,
    "un enfant sur une balançoire": ON_A_SWING,
    "一个孩子在荡秋千": ON_A_SWING,
    "un niño en un columpio": ON_A_SWING,
    "surfař na velké vlně": ON_A_WAVE,
    "a surfer on a big wave": ON_A_WAVE,
    "ولد يلعب كرة القدم": ["boy", "soccer|football"],
}
# A language that a guide teaches, so that no shipped model reads it; guides/add_a_language holds its own queries
TAUGHT = {
    "un gatto rosso",
    "tre gatti rossi in città",
    "cani sulla spiaggia",
    "due cani corrono nella neve",
}
QUERIES = [query for query in shown() if query.text not in TAUGHT | {text for text, _ in EVERYDAY_QUERIES}]


def of_world(name: str) -> list:
    "The queries of a world, as parameters"
    return [pytest.param(query, id=f"{query.where}: {query.text}") for query in QUERIES if query.world == name]


class Wanted:
    "What a query about scenes asks for, such as '3 red cat, owl @ city'"

    def __init__(self, text: str):
        named, _, place = text.partition("@")
        self.place = place.strip() or None
        parts = [re.fullmatch(r"(\d+ )?(.+ )?(\w+)", part.strip()) for part in named.split(",") if part.strip()]
        self.things = [[group and group.strip() for group in part.groups()] for part in parts]  # number, colour, noun

    def fits(self, scene) -> bool:
        "Whether a scene shows all of it"
        shown = [
            any(
                thing.noun == noun and number in (None, str(thing.count)) and modifier in (None, thing.modifier)
                for thing in scene.things
            )
            for number, modifier, noun in self.things
        ]
        return all(shown) and self.place in (None, scene.place)

    def touches(self, scene) -> bool:
        "Whether a scene shows some of it"
        nouns = {noun for *_, noun in self.things}
        return scene.place == self.place or any(thing.noun in nouns for thing in scene.things)


@pytest.fixture(scope="module")
def scenes():
    "The test scenes, and a gallery of them"
    corpus = load_corpus("pictograms", progress=False)
    return corpus, corpus_gallery(load_run("pictograms"), corpus, "test")


@pytest.mark.parametrize("query", of_world("pictograms"))
def test_the_first_row_of_scenes_is_right(scenes, query):
    "The first image shows all that is asked for, and half of the row or more some of it"
    assert query.text in SCENES, f"say in SCENES what {query.text!r} ({query.where}) asks for"
    corpus, gallery = scenes
    wanted = Wanted(SCENES[query.text])
    row = [corpus.scene(visual_id) for visual_id in gallery.search(query.text, k=ROW).ids]
    assert wanted.fits(row[0]), (query.text, row[0])
    assert sum(map(wanted.touches, row)) >= ROW / 2, (query.text, row)


def test_queries_are_found_where_they_stand():
    "The sources still show queries in the forms that are looked for"
    places = {query.where for query in shown()}
    assert {*SCENES, *IMAGES, *TAUGHT} <= {query.text for query in shown()}, "a judgement of a query that is gone"
    assert {"serve", "explorers", "guides/ask_in_any_language", "guides/first_search", "pages/five_minutes"} <= places
    assert len(EXAMPLE.findall(page_script())) == 8
    workbench = {query.text for query in of_notebook(NBS / "guides/workbench.ipynb")}
    assert len(workbench) == 3
    assert [*told("Press one, for example *drei Katzen* or *三只猫*.\nThe *first* term")] == ["drei Katzen", "三只猫"]
    assert {*called("for q in ('a', 'b'):\n    gallery.search(q)\nstate.ask(('c', 'de'), ('d', 'fr'))")} == {*"abcd"}
