"""The generator with its most repeated answers kept: the class of a token of code, links and entries of side bars"""

from functools import cache

from fastcore.xml import Safe, to_xml
from smalldocs import highlight, layout


def kept_links(href):
    "The links of `Layout.href`, which depend on the page's folder alone, computed once a folder"

    def kept(self, item_href: str) -> str:
        links = self.site.__dict__.setdefault("kept_links", {})
        key = (item_href, self.page.out.parent)
        if key not in links:
            links[key] = href(self, item_href)
        return links[key]

    return kept


def kept_entries(side_item):
    "The entries of `Layout.side_item` that lead to another page, which depend on the page's folder alone"

    def kept(self, item, depth):
        if item.sep or item.section or item.page is self.page:
            return side_item(self, item, depth)
        entries = self.site.__dict__.setdefault("kept_entries", {})
        key = (id(item), self.page.out.parent)
        if key not in entries:
            entries[key] = Safe(to_xml(side_item(self, item, depth), indent=False))
        return entries[key]

    return kept


def keep() -> None:
    "Keep them from now on; without this the site is the same and takes longer"
    highlight.css_class = cache(highlight.css_class)
    layout.Layout.href = kept_links(layout.Layout.href)
    layout.Layout.side_item = kept_entries(layout.Layout.side_item)
