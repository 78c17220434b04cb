"""Build the documentation site offline: nbdev processes the notebooks, smalldocs draws them

    python tools/build_docs.py [node_modules/katex/dist]

Everything happens in a copy, so that no tracked file changes; `_docs` is replaced when all went well.
What smalldocs leaves to us: number prefixes of pages, plotly figures, and a site that asks no other host for anything."""
import json,os,re,shutil,subprocess,sys,tempfile
from pathlib import Path

STAGES = ('What is promised','Captions and pictures','The frozen backbone','Methods','Training','Evaluation','Search','Exploring','The shell')
PLOTLY,NUMBER = 'application/vnd.plotly.v1+json',r'\d+[a-zA-Z0-9]*_'
DRAW = """document.querySelectorAll('script[data-plotly]').forEach(s => {
  const f = JSON.parse(s.textContent);
  Plotly.newPlot(s.dataset.plotly, f.data, f.layout, Object.assign({responsive: true}, f.config));
});"""
STYLE = """:root { --sd-body-width: 62rem; --sd-sidebar-width: 220px; --sd-margin-width: 210px; }
pre code { font-size: .82rem; }
.cell-output-markdown pre { padding: .75rem 1rem; }
.navbar .smalldocs-search { --sd-muted: #ced4da; }
table { display: block; max-width: 100%; overflow-x: auto; }
table.dataframe { border: 0; margin: 1rem 0; font-size: .9rem; }
table.dataframe th, table.dataframe td { padding: .25rem .75rem; border: 0; border-bottom: 1px solid #dee2e6; text-align: right; }
img { max-width: 100%; height: auto; }
"""

def figure_html(
    figure:dict, # a stored plotly figure
    name:str     # of its place on the page
)->str:
    "A place on the page and the figure's data"
    body = json.dumps({k:figure[k] for k in ('data','layout','config') if figure.get(k)}).replace('</', '<\\/')
    height = figure.get('layout', {}).get('height', 450)
    return f'<div id="{name}" style="min-height:{height}px"></div><script type="application/json" data-plotly="{name}">{body}</script>'

def prepare(
    nbs:Path # the copied notebooks
):
    """Keep two things that nbdev would do otherwise

    It runs every cell that imports something, without the cells before it: only exported cells and `show_doc` shall run.
    It drops the prose of a title cell: that becomes a cell of its own."""
    for path in sorted(nbs.rglob('*.ipynb')):
        nb = json.loads(path.read_text(encoding='utf-8'))
        title = nb['cells'][0]
        if m := re.match(r'(# [^\n]+\n+(?:> [^\n]+\n*)?(?:- \w+:[^\n]*\n*)*)(.+)', ''.join(title['source']), re.S):
            title['source'] = m[1]
            nb['cells'].insert(1, dict(cell_type='markdown', id='title-prose', metadata={}, source=m[2]))
        for c in nb['cells']:
            source = ''.join(c['source'])
            if c['cell_type']=='code' and not re.search(r'(?m)^\s*#\s*\|\s*export|^show_doc\(', source): c['source'] = '#| eval: false\n'+source
        path.write_text(json.dumps(nb), encoding='utf-8')

def plain_code(
    text:str # Markdown
)->str:
    "Code blocks without links: nbdev links names in the comments of a signature, where a link is only noise"
    return re.sub(r'(?ms)^```.*?^```', lambda m: re.sub(r'\[`([^`\]]+)`\]\([^)\s]*\)', r'`\1`', m[0]), text)

def restage(
    proc:Path, # folder of processed notebooks
    base:str   # address of the published site, ends in /
):
    "Drop number prefixes, give figures HTML, make links to our own pages relative to the site's root"
    for path in sorted(proc.rglob('*.ipynb')):
        nb,n = json.loads(path.read_text(encoding='utf-8')),0
        for c in nb['cells']:
            source = ''.join(c['source'])
            if c['cell_type']=='markdown': c['source'] = source.replace(base, '/')
            if c['cell_type']=='raw': c['source'] = re.sub(r'(?m)^output-file:.*\n', '', source)
            for o in c.get('outputs', []):
                d = o.get('data', {})
                if PLOTLY in d and 'text/html' not in d:
                    n += 1
                    d['text/html'] = figure_html(d[PLOTLY], f'fig-{n}')
                if 'text/markdown' in d: d['text/markdown'] = plain_code(''.join(d['text/markdown']).replace(base, '/'))
        path.unlink()
        path.with_name(re.sub('^'+NUMBER, '', path.name)).write_text(json.dumps(nb), encoding='utf-8')

def sidebar(
    proc:Path # folder of processed notebooks, number prefixes still there
)->list:      # contents of the site's sidebar
    "Guides first, then the data's path stage by stage, then the studies"
    section = lambda name,pages: [dict(section=name, contents=pages)] if pages else []
    folder = lambda name: sorted(f'{name}/{p.name}' for p in (proc/name).glob('*.ipynb'))
    stages = [section(name, [re.sub('^'+NUMBER, '', p.name) for p in sorted(proc.glob(f'{digit}?_*.ipynb'))]) for digit,name in enumerate(STAGES)]
    return ['index.ipynb', *section('Guides', folder('guides')), *sum(stages, []), *section('Studies', folder('studies'))]

def add_api(
    proc:Path,    # folder of processed notebooks
    cfg,          # nbdev's settings
    contents:list # of the sidebar
):
    "A page per module from signatures and docments, listed in the sidebar"
    import yaml
    quarto = yaml.safe_load((proc/'_quarto.yml').read_text())
    quarto['format'] = dict(html={k:v for k,v in quarto['format']['html'].items() if k!='keep-md'})
    quarto['smalldocs'] = dict(api=dict(packages=[cfg.lib_path.name], out='api', root='..', source=f'{cfg.git_url}/blob/{cfg.branch}'))
    (proc/'_quarto.yml').write_text(yaml.safe_dump(quarto, sort_keys=False))
    subprocess.run(['smalldocs','api','build','--dir',str(proc)], check=True)
    order = [name.removesuffix('.ipynb').split('.')[-1] for part in contents if isinstance(part, dict) for name in part['contents']]
    place = lambda p: (order.index(m) if (m := p.stem.split('.')[-1]) in order else len(order), p.name)
    pages = [f'api/{p.name}' for p in sorted((proc/'api').glob('*.qmd'), key=place)]
    contents = contents + [dict(section='API reference', contents=pages)]
    (proc/'sidebar.yml').write_text(yaml.safe_dump(dict(website=dict(sidebar=dict(contents=contents))), sort_keys=False))

def bring_home(
    out:Path,       # the built site
    katex:Path|None # KaTeX's `dist` folder, None: formulas stay as written
):
    "Replace every outside address in the built pages by a file of the site, or drop it"
    import plotly
    libs = out/'site_libs'
    shutil.copy(Path(plotly.__file__).parent/'package_data/plotly.min.js', libs)
    (libs/'figures.js').write_text(DRAW)
    if katex:
        for n in ('katex.min.css','katex.min.js','contrib/auto-render.min.js'):
            (libs/'katex'/n).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(katex/n, libs/'katex'/n)
        (libs/'katex/fonts').mkdir()
        for font in (katex/'fonts').glob('*.woff2'): shutil.copy(font, libs/'katex/fonts')
    for css in libs.rglob('*.css'):
        css.write_text(re.sub(r'@import url\(https?://[^)]*\);?', '', css.read_text(encoding='utf-8')), encoding='utf-8')
    for page in out.rglob('*.html'):
        lib = '../'*(len(page.relative_to(out).parts)-1) + 'site_libs'
        text = page.read_text(encoding='utf-8')
        if katex: text = re.sub(r'https://[^"]*/katex@[^/"]+/dist', f'{lib}/katex', text)
        else: text = re.sub(r'<(script|link)[^>]*katex@[^>]*>(</script>)?', '', text)
        if 'data-plotly=' in text:
            text = text.replace('</body>', f'<script src="{lib}/plotly.min.js"></script><script src="{lib}/figures.js"></script></body>')
        page.write_text(text, encoding='utf-8')

def outside(
    out:Path # the built site
)->set[str]: # addresses that a page would load from elsewhere
    return {u for p in out.rglob('*.html')
            for u in re.findall(r'(?:<(?:script|img)[^>]*src|rel="stylesheet" href)="(https?://[^"]+)"', p.read_text(encoding='utf-8'))}

def build(
    root:Path,      # the repository
    katex:Path|None # KaTeX's `dist` folder
)->Path:            # `_docs`
    with tempfile.TemporaryDirectory() as tmp:
        copy = Path(tmp)/'site'
        copy.mkdir()
        for n in ('settings.ini','pyproject.toml'): shutil.copy(root/n, copy)
        for n in ('nbs','dasd_lab'): shutil.copytree(root/n, copy/n, ignore=shutil.ignore_patterns('__pycache__','.*','_drafts'))
        (copy/'nbs/styles.css').write_text(STYLE)
        prepare(copy/'nbs')
        os.chdir(copy)
        from nbdev.config import get_config
        from nbdev.doclinks import _build_modidx
        from nbdev.quarto import nbdev_sidebar,refresh_quarto_yml
        from nbdev.serve import proc_nbs
        cfg = get_config()
        refresh_quarto_yml(); _build_modidx(); nbdev_sidebar.__wrapped__()
        proc = proc_nbs(force=True)
        contents = sidebar(proc)
        restage(proc, f'{cfg.doc_host}{cfg.doc_baseurl}/')
        add_api(proc, cfg, contents)
        subprocess.run(['smalldocs','check',str(proc)], check=True)
        subprocess.run(['smalldocs','render',str(proc)], check=True)
        out = Path(proc)/cfg.doc_path.name
        bring_home(out, katex)
        if left := outside(out): sys.exit(f'pages load from other hosts: {sorted(left)}. Expected none. See `bring_home` in tools/build_docs.py.')
        home = root/'_docs'
        shutil.rmtree(home, ignore_errors=True)
        shutil.move(out, home)
        os.chdir(root)
    return home

if __name__=='__main__':
    root = Path(__file__).resolve().parents[1]
    home = build(root, Path(sys.argv[1]).resolve() if sys.argv[1:] else None)
    pages = list(home.rglob('*.html'))
    print(f'{len(pages)} pages, {sum(p.stat().st_size for p in home.rglob("*") if p.is_file())/1e6:.1f} MB: {home.relative_to(root)}/index.html')
