"""Checks of the built site: broken links, loads from other hosts, images without alternative text"""

import html
import posixpath
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = dict(script="src", img="src", link="href", iframe="src", source="src", video="src", object="data", use="href")
TAG = re.compile(r"<(a|" + "|".join(LOADS) + r")\b([^>]*)>")
ATTRIBUTE = re.compile(r'([\w:-]+)\s*=\s*"([^"]*)"')
LOADED_BY_STYLE = re.compile(r'(?:@import\s+(?:url\()?|url\()["\']?((?:https?:)?//[^"\')]+)')


class Page:
    "Anchors, links, loaded files and images of a page (the generator writes attributes in double quotes)"

    def __init__(self, text: str):
        text = re.sub(r'(?s)<script type="application/json".*?</script>|<!--.*?-->', "", text)
        self.ids = {html.unescape(i) for i in re.findall(r'\sid="([^"]+)"', text)}
        self.links = []
        self.loads = []
        self.images = []
        for tag, inside in TAG.findall(text):
            attributes = {name: html.unescape(value) for name, value in ATTRIBUTE.findall(inside)}
            if tag == "a" and "href" in attributes:
                self.links.append(attributes["href"])
            if tag == "img":
                self.images.append(attributes)
            if tag in LOADS and attributes.get(LOADS[tag]):
                self.loads.append(attributes[LOADS[tag]])


def read_site(
    out: Path,  # the built site
) -> dict[str, Page]:  # by its address from the site's root
    "Read all pages"
    paths = sorted(out.rglob("*.html"))
    return {path.relative_to(out).as_posix(): Page(path.read_text(encoding="utf-8")) for path in paths}


def file_of(
    address: str,  # on a page
    page: str,  # the page
    files: set[str],  # of the site
) -> str:  # file that the address leads to
    path = unquote(urlsplit(address).path)
    if not path:
        return page
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    return target if target in files else posixpath.normpath(f"{target}/index.html")


def broken(
    out: Path,  # the built site
    site: dict[str, Page],  # its pages
) -> list[str]:  # 'page: address', each once
    "Links and images within the site without a file or an anchor"
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    errors = []
    for name, page in site.items():
        for address in dict.fromkeys(page.links + page.loads):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc or address in ("", "#"):
                continue
            target = file_of(address, name, files)
            anchor = unquote(parts.fragment)
            if target not in files or (anchor and target in site and anchor not in site[target].ids):
                errors.append(f"{name}: {address}")
    return errors


def outside(out: Path, site: dict[str, Page]) -> list[str]:
    "Addresses of other hosts that a page or style sheet loads"
    found = {address for page in site.values() for address in page.loads if re.match(r"(https?:)?//", address)}
    for css in out.rglob("*.css"):
        found.update(LOADED_BY_STYLE.findall(css.read_text(encoding="utf-8")))
    return sorted(found)


def without_words(site: dict[str, Page]) -> list[str]:
    "Images without alternative text"
    found = set()
    for name, page in site.items():
        found |= {f"{name}: {image.get('src', '')[:60]}" for image in page.images if "alt" not in image}
    return sorted(found)
