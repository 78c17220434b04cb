"""The generator with its two most repeated answers kept: the class of a token of code, and a link of a side bar"""

from functools import cache

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


def keep() -> None:
    "Keep them from now on; without this the site is the same and takes longer"
    highlight.css_class = cache(highlight.css_class)
    layout.Layout.href = kept_links(layout.Layout.href)
