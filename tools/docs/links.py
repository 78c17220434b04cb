"""Does every link of the built site lead somewhere, and does no page load anything from another host?"""

import html
import posixpath
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = dict(script="src", img="src", link="href", iframe="src", source="src", video="src", object="data", use="href")
TAG = re.compile(r"<(a|" + "|".join(LOADS) + r")\b([^>]*)>")
ATTRIBUTE = re.compile(r'([\w:-]+)\s*=\s*"([^"]*)"')


class Page:
    "What a page is called by, points to and loads (the generator writes every attribute in double quotes)"

    def __init__(self, text: str):
        text = re.sub(r'(?s)<script type="application/json".*?</script>|<!--.*?-->', "", text)
        self.ids = {html.unescape(i) for i in re.findall(r'\sid="([^"]+)"', text)}
        self.links = []
        self.loads = []
        self.images = []
        for tag, inside in TAG.findall(text):
            found = {k: html.unescape(v) for k, v in ATTRIBUTE.findall(inside)}
            if tag == "a" and "href" in found:
                self.links.append(found["href"])
            if tag == "img":
                self.images.append(found)
            if tag in LOADS and found.get(LOADS[tag]):
                self.loads.append(found[LOADS[tag]])


def read_site(
    out: Path,  # the built site
) -> dict[str, Page]:  # by its address from the site's root
    return {p.relative_to(out).as_posix(): Page(p.read_text(encoding="utf-8")) for p in sorted(out.rglob("*.html"))}


def broken(
    out: Path,  # the built site
    site: dict[str, Page],  # its pages
) -> list[str]:  # 'page: address', each once
    "Links and pictures inside the site that lead nowhere: no such file, or no such place on the page"
    files = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    wrong = []
    for path, page in site.items():
        for address in dict.fromkeys(page.links + page.loads):
            u = urlsplit(address)
            if u.scheme or u.netloc or address in ("", "#"):
                continue
            to = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(u.path))) if u.path else path
            if to not in files:
                to = posixpath.normpath(f"{to}/index.html")
            if to not in files or (u.fragment and to in site and unquote(u.fragment) not in site[to].ids):
                wrong.append(f"{path}: {address}")
    return wrong


def outside(out: Path, site: dict[str, Page]) -> list[str]:
    "Addresses of other hosts that a page or a style sheet would load"
    found = {a for page in site.values() for a in page.loads if re.match(r"(https?:)?//", a)}
    for css in out.rglob("*.css"):
        found |= set(
            re.findall(r'(?:@import\s+(?:url\()?|url\()["\']?((?:https?:)?//[^"\')]+)', css.read_text(encoding="utf-8"))
        )
    return sorted(found)


def without_words(site: dict[str, Page]) -> list[str]:
    "Pictures without alternative text"
    return sorted({f"{p}: {i.get('src', '')[:60]}" for p, page in site.items() for i in page.images if "alt" not in i})
