"Parts of `tools/docs/build.py`: reading the package, pages, API reference, site, links"
