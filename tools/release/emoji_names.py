"""Write dasd_lab/corpora/emoji_names.zip: CLDR's names of emoji in the languages that the multilingual companion reads

    npm pack cldr-annotations-full@48.2.0 && tar xzf cldr-annotations-full-48.2.0.tgz
    python tools/release/emoji_names.py package

One text file a language, with a name a line in the same order of emoji; keycaps, flags and skin tones are left out."""

import sys
import zipfile
from pathlib import Path

import regex

from dasd_lab.base.presets import read_json
from dasd_lab.base.storage import whole_file
from dasd_lab.corpora import emoji_names
from dasd_lab.runs.loading import load_run

FOLDERS = dict(nb="no", tl="fil")  # languages that CLDR has under another code


def names_of(folder: Path) -> dict[str, str]:
    "Emoji → name, as CLDR has them"
    found = read_json(folder / "annotations.json", dict)["annotations"]["annotations"]
    return {character: names["tts"][0] for character, names in found.items() if names.get("tts")}


def main(annotations: Path) -> None:
    "All languages that CLDR has"
    english = names_of(annotations / "en")
    emoji = [c for c, name in english.items() if regex.match(r"\p{Extended_Pictographic}", c) and ":" not in name]
    languages = load_run("photographs/multilingual").readable
    with whole_file(emoji_names.FILE) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("emoji.txt", "\n".join(emoji))
        for language in sorted({*languages, "en"}):
            folder = annotations / FOLDERS.get(language, language)
            if folder.is_dir():
                names = names_of(folder)
                out.writestr(f"{language}.txt", "\n".join(names.get(character, "") for character in emoji))


if __name__ == "__main__":
    main(Path(sys.argv[1]) / "annotations")
