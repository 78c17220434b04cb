"What `tools/docs/build.py` is made of: reading the package, notebooks as pages, the API's pages, the site around them, its links"
