"The built-in corpus: complete grammars, separate splits, reproducible and atomic builds"

import errno
import re
from itertools import combinations, product

import numpy as np
import pytest

from dasd_lab.base.contracts import LabError
from dasd_lab.corpora.catalog import caption_pairs, load_corpus
from dasd_lab.pictograms import building
from dasd_lab.pictograms.building import build_pictograms
from dasd_lab.pictograms.corpus import Pictograms
from dasd_lab.pictograms.grammar import (
    MODIFIERS,
    PLACES,
    RELATIONS,
    STYLES,
    Scene,
    SentencePlan,
    Thing,
    finish,
    languages,
    load_language,
    noun_phrase,
    segments,
)
from dasd_lab.pictograms.scenes import (
    ScenesSpec,
    composition_splits,
    compositions,
    content_key,
    drawn_scenes,
)

SMALL = ScenesSpec(train=120, validation=30, test=30)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("a folder with spaces")
    build_pictograms(root, spec=SMALL, progress=False)
    return root


@pytest.mark.parametrize("code", languages(all=True))
def test_a_language_has_every_word(code):
    language, english = load_language(code), load_language("en")
    ids = dict(nouns=english.nouns, modifiers=MODIFIERS, places=PLACES, relations=RELATIONS, styles=STYLES)
    for section, names in ids.items():
        assert set(language.data[section]) == set(names), section
    names = {(next(iter(n.forms.values())), key) for key, synonyms in language.nouns.items() for n in synonyms}
    assert len({name for name, _ in names}) == len(names), "a name belongs to one noun"
    for section, names in (("places", PLACES), ("relations", RELATIONS)):
        for key in names if code != "en" else ():
            assert len(language.data["mt"][section][key]) == len(english.data[section][key]), (section, key)


def templates(language, register):
    "Style, number of things, index, and a draw that selects the wording, of every template of a register"
    book = language.data["mt"] if register == "mt" else language.data
    for style, n in product(STYLES, (1, 2, 3)):
        for i, entry in enumerate(book["styles"][style][str(n)]):
            wordings = [entry] if isinstance(entry, str) else entry
            for k in range(len(wordings)):
                yield style, n, i, (k + 0.5) / len(wordings)


@pytest.mark.parametrize("code,register", [("en", "human"), *product(languages(all=True)[1:], ("human", "mt"))])
def test_every_template_makes_a_clean_sentence(code, register):
    "With every place and relation: nothing unfilled, no double blank, a full stop"
    language = load_language(code)
    things = [Thing(noun, 1 + i % 4, ("", *MODIFIERS)[i % 11]) for i, noun in enumerate(language.nouns)]
    book = language.data["mt"] if register == "mt" else language.data
    for at, (style, n, template, draw) in enumerate(templates(language, register)):
        for place, relation in product(PLACES, RELATIONS):
            scene = Scene(tuple(things[at % 150 :][:n]), place, relation if n > 1 else "")
            for k in range(len(book["places"][place])):
                number = k % len(book["relations"][relation])
                plan = SentencePlan(style, template, number, k, (0,) * n, (0,) * n, (draw, at % 4 / 4, at % 3 / 3))
                text = finish(segments(scene, language, plan, register), language)
                assert not re.search(r"[{}\[\]|+]|None|\s\s", text) and text[-1] in ".。", text


def test_italian_has_a_grammar_but_no_captions_in_the_corpus(root):
    "it.yaml does not change the corpus that the weights were trained on"
    in_corpus = ["en", "ar", "cs", "de", "es", "fr", "ja", "zh"]
    assert languages() == in_corpus
    assert languages(all=True) == ["en", *sorted([*in_corpus[1:], "it"])]
    corpus = load_corpus("pictograms", root=root)
    visual_id = corpus.visuals("test").ids[0]
    assert "it" not in corpus.languages
    assert not list(root.rglob("*.it.jsonl"))
    for origin in ("human", "mt"):
        caption = corpus.describe(visual_id, "it", STYLES[1], origin)
        assert (caption.language, caption.origin, caption.style) == ("it", origin, STYLES[1])
        assert caption == corpus.describe(visual_id, "it", STYLES[1], origin)


ITALIAN = {  # noun and modifier → phrases with one and two, written by hand
    "cat red": ("un gatto rosso", "due gatti rossi"),
    "bee red": ("un'ape rossa", "due api rosse"),
    "squirrel gray": ("uno scoiattolo grigio", "due scoiattoli grigi"),
    "egg red": ("un uovo rosso", "due uova rosse"),
    "egg small": ("un piccolo uovo", "due piccole uova"),
    "backpack blue": ("uno zaino blu", "due zaini blu"),
    "rose pink": ("una rosa di colore rosa", "due rose rosa"),
    "snake green": ("un serpente verde", "due serpenti verdi"),
    "duck purple": ("un'anatra viola", "due anatre viola"),
    "key orange": ("una chiave arancione", "due chiavi arancione"),
    "ghost big": ("un grande fantasma", "due grandi fantasmi"),
    "ambulance big": ("una grande ambulanza", "due grandi ambulanze"),
    "scissors red": ("un paio di forbici rosse", "due paia di forbici rosse"),
    "glasses yellow": ("un paio di occhiali gialli", "due paia di occhiali gialli"),
    "grapes red": ("un grappolo d'uva rossa", "due grappoli d'uva rossa"),
    "grapes small": ("un piccolo grappolo d'uva", "due piccoli grappoli d'uva"),
    "octopus gray": ("un polpo grigio", "due polpi grigi"),
    "anchor gray": ("un'ancora grigia", "due ancore grigie"),
    "taxi yellow": ("un taxi giallo", "due taxi gialli"),
    "squirrel big": ("un grande scoiattolo", "due grandi scoiattoli"),
    "shark ": ("uno squalo", "due squali"),
    "socks red": ("un paio di calzini rossi", "due paia di calzini rossi"),
    "pineapple yellow": ("un ananas giallo", "due ananas gialli"),
}


@pytest.mark.parametrize("phrase", ITALIAN)
def test_italian_agreement_by_hand(phrase):
    italian = load_language("it")
    noun, _, modifier = phrase.partition(" ")
    for count, expected in zip((1, 2), ITALIAN[phrase]):
        assert finish(list(noun_phrase(italian, Thing(noun, count, modifier))), italian).lower() == expected


def test_full_size_splits_share_no_composition():
    spec = ScenesSpec()
    drawn = list(drawn_scenes(spec))
    scenes = {split: [scene for of, scene in drawn if of == split] for split in spec.splits}
    pairs, places = compositions(spec)
    assert {split: len(items) for split, items in scenes.items()} == dict(train=24_000, validation=1_000, test=1_000)
    keys = [content_key(scene) for items in scenes.values() for scene in items]
    assert len(set(keys)) == len(keys)
    pairs_of, places_of = {}, {}
    for split, items in scenes.items():
        for scene in items:
            assert composition_splits(scene, pairs, places) == {split} - {"train"}
        names = [[thing.noun for thing in scene.things] for scene in items]
        pairs_of[split] = {frozenset(pair) for of_scene in names for pair in combinations(of_scene, 2)}
        places_of[split] = {(of[0], scene.place) for of, scene in zip(names, items) if len(of) == 1}
    for split in ("validation", "test"):
        held_out = {frozenset(thing.noun for thing in scene.things[:2]) for scene in scenes[split]} & set(pairs)
        assert held_out and not held_out & pairs_of["train"] and not places_of[split] & places_of["train"]


def test_images_and_pairs_are_aligned(root):
    corpus = load_corpus("pictograms", root=root)
    pairs = caption_pairs(corpus, "validation", "de")
    assert len(pairs) == 30
    assert list(pairs.visual_index) == list(range(30))
    for i in (0, 13):
        visual = corpus.visuals("validation")[i]
        large = np.asarray(corpus.picture(visual.id, 256).resize((64, 64)), float)
        assert np.abs(large - visual.frames[0]).mean() < 12  # the large image shows the same scene


@pytest.mark.parametrize("fault", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_build_keeps_the_previous_corpus(root, monkeypatch, fault):
    checksum = Pictograms(root / "scenes").verify()
    render = building.render
    n_calls = 0

    def failing_render(*args, **options):
        nonlocal n_calls
        n_calls += 1
        if n_calls > 40:
            raise fault
        return render(*args, **options)

    monkeypatch.setattr(building, "render", failing_render)
    other = ScenesSpec(seed=3, train=100, validation=10, test=10)
    if isinstance(fault, OSError):
        with pytest.raises(LabError, match="No space left.*Nothing that was there is lost"):
            build_pictograms(root, spec=other, progress=False)
    else:
        with pytest.raises(KeyboardInterrupt):
            build_pictograms(root, spec=other, progress=False)
    assert Pictograms(root / "scenes").verify() == checksum
    assert [path.name for path in root.iterdir()] == ["scenes"]
