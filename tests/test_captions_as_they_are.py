"Files of captions as people and published data sets write them are read as what they are, or refused"

import csv
import io
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dasd_lab.corpora.own.corpus import understand
from dasd_lab.corpora.own.parallel import decode, read_parallel


def table(captions, header=("image", "caption"), **form):
    "Rows of a table with a header, as Python's csv writes them"
    text = io.StringIO()
    csv.writer(text, **form).writerows([header, *captions])
    return text.getvalue()


def by_image(captions):
    "Captions by image"
    found = {}
    for image, text in captions:
        found.setdefault(image, []).append(text)
    return found


def karpathy(captions):
    "Karpathy's division"
    rows = [
        dict(
            filename=image, split="restval", imgid=i, sentences=[dict(raw=t, tokens=t.split(), imgid=i) for t in texts]
        )
        for i, (image, texts) in enumerate(by_image(captions).items())
    ]
    return json.dumps(dict(dataset="mini", images=rows))


def coco(captions):
    "COCO's format"
    ids = {image: i for i, image in enumerate(by_image(captions))}
    images = [dict(id=i, file_name=image) for image, i in ids.items()]
    return json.dumps(
        dict(images=images, annotations=[dict(id=k, image_id=ids[i], caption=t) for k, (i, t) in enumerate(captions)])
    )


def numbered(captions, form):
    "One caption a line behind its image and number"
    return "".join(form.format(image, i, text) + "\n" for i, (image, text) in enumerate(captions))


WRITERS = {
    "karpathy.json": karpathy,
    "coco.json": coco,
    "by_name.json": lambda captions: json.dumps(by_image(captions)),
    "objects.json": lambda captions: json.dumps([dict(image=i, caption=t) for i, t in captions]),
    "tokens.txt": lambda captions: numbered(captions, "{}#{}\t{}"),
    "flickr8k.token": lambda captions: numbered(captions, "{}#{}\t{}"),
    "flickr8kenc.txt": lambda captions: numbered(captions, "{}#enc#{} {}"),
    "kaggle.csv": lambda captions: table(
        [(image, f" {i}", f" {text}") for i, (image, text) in enumerate(captions)],
        ("image_name", " comment_number", " comment"),
        delimiter="|",
    ),
    "excel.csv": lambda captions: "sep=;\r\n" + table(captions, delimiter=";"),
    "quoted.csv": lambda captions: table([(i, t.replace(" ", "\n")) for i, t in captions]),
    "quoted.tsv": lambda captions: table([(i, t.replace(" ", "\n")) for i, t in captions], delimiter="\t"),
    "lists.csv": lambda captions: table(
        [(i, repr(t)) for i, t in by_image(captions).items()], ("filename", "captions")
    ),
    "numpy.csv": lambda captions: table(
        [(i, f"[{' '.join(map(repr, t))}]") for i, t in by_image(captions).items()], ("filename", "captions")
    ),
    "raw.csv": lambda captions: table([(json.dumps(t), i) for i, t in by_image(captions).items()], ("raw", "filename")),
    "named.csv": lambda captions: table(captions, ("image", "Caption (en-US)")),
}


def read(name, content, language="en"):
    "Image and text of each caption in a file"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "in" / name
        path.parent.mkdir()
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        found = understand(path.parent, language=language)
    assert not [fault for _, fault in found.faults if not fault.kept], found.faults
    return [(Path(c.visual_id).stem, c.text) for captions in found.captions.values() for c in captions]


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a.jpg", "1001_b2.jpg", "c d.png"]),
            st.from_regex(r"[A-Z][a-z]{0,5}( [a-z,.'\"|;éß]{1,7}){1,5} end", fullmatch=True),
        ),
        min_size=1,
        max_size=6,
        unique=True,
    )
)
def test_what_is_written_in_a_published_form_is_read_back(name, captions):
    if name == "kaggle.csv":  # which has no quotes
        captions = [(image, text.replace("|", "/").replace('"', "x")) for image, text in captions]
        captions = [*dict.fromkeys(captions)]
    expected = [(Path(image).stem, text) for image, text in captions]
    assert sorted(read(name, WRITERS[name](captions))) == sorted(expected)


@pytest.mark.parametrize(
    ("column", "language"),
    [("caption_no", "no"), ("jp", "ja"), ("caption_zho_Hans", "zh"), ("Brazilian Portuguese", "pt"), ("npi", "ne")]
    + [("bokmål", "nb"), ("text (fil)", "tl"), ("Farsi", "fa"), ("captionDe", "de"), ("id", "id"), ("mo", "ro")],
)
def test_columns_are_named_by_languages_in_any_form(tmp_path, column, language):
    rows = [("a.jpg", "A dog runs", "ha ho hu"), ("b.jpg", "Two cats", "hi hu")]
    (tmp_path / "c.csv").write_text(table(rows, ("image", "en", column)))
    found = understand(tmp_path)
    assert found.languages == ("en", language)
    assert found.notes == understand(tmp_path).notes and not found.faults


SENTENCES = {
    "cs": "Dvě kočky spí v košíku a pes běží sněhem",
    "uk": "Двоє собак біжать по снігу і хлопчик сміється",
    "ar": "كلب يركض على الثلج",
    "zh": "一只狗在雪地里奔跑",
    "ja": "二匹の犬が雪の中を走っています",
    "vi": "Hai con chó chạy trên tuyết",
    "el": "Δύο σκυλιά τρέχουν στο χιόνι",
}
PAGES = [("cs", "cp1250"), ("uk", "cp1251"), ("ar", "cp1256"), ("zh", "gbk"), ("zh", "big5")]
PAGES += [("ja", "cp932"), ("ja", "euc_jp"), ("el", "cp1253")]


@pytest.mark.parametrize(("language", "page"), PAGES)
def test_code_pages_are_those_of_the_language(language, page):
    text = SENTENCES[language].replace("只", "隻").replace("里", "裡") if page == "big5" else SENTENCES[language]
    assert read("c.csv", f"image,caption\na.jpg,{text}\n".encode(page), language) == [("a", text)]
    header = f"en\t{language}\na dog\t{text}\n".encode(page)
    assert decode(header, language)[0][1] == f"a dog\t{text}"


@pytest.mark.parametrize("language", [code for code in SENTENCES if code != "ja"])
@pytest.mark.parametrize("page", ["latin-1", "cp437"])
def test_wrongly_decoded_text_is_repaired(language, page):
    broken = SENTENCES[language].encode().decode(page)
    found = read_parallel(f"en\t{language}\na dog runs\t{broken}\n", language)
    assert found.pairs[0].target == SENTENCES[language]
    assert found.counts()["encoding"] == 1


def test_images_are_found_by_similar_names_and_it_is_said(tmp_path):
    for name in ("IMG_1.JPG", "00042.jpg"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "c.csv").write_text("image,caption\nimg_1.jpg,a dog runs\n42.0,two cats sleep\n")
    found = understand(tmp_path, language="en")
    assert [*found.places["train"]] == ["00042", "IMG_1"]
    assert "2 names differ" in " ".join(found.notes)
