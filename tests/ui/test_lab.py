"A person opens the guides in JupyterLab and runs them from top to bottom"
import json,re,urllib.error,urllib.request
from pathlib import Path
import pytest

GUIDES = sorted((Path(__file__).resolve().parents[2]/'nbs/guides').glob('*.ipynb'))
IDLE = """() => { const w = window.jupyterapp?.shell.currentWidget;
  return w?.sessionContext?.isReady && w.sessionContext.session?.kernel?.status === 'idle' }"""
# run all and wait for it; the command resolves to false where a cell failed
RUN = "() => window.jupyterapp.commands.execute('notebook:run-all-cells')"
STATE = """() => { const cells = window.jupyterapp.shell.currentWidget.content.widgets.filter(c => c.model.type === 'code');
  return { counts: cells.map(c => c.model.executionCount),
           errors: cells.flatMap(c => { const o = c.outputArea.model; return [...Array(o.length).keys()].map(i => o.get(i)).filter(x => x.type === 'error').map(x => x.toJSON().evalue) }),
           stderr: cells.flatMap(c => { const o = c.outputArea.model; return [...Array(o.length).keys()].map(i => o.get(i).toJSON()).filter(x => x.name === 'stderr').map(x => [].concat(x.text).join('')) }) } }"""
# pictures have arrived: those of outputs, not a widget's own icons
DRAWN = """() => [...document.querySelectorAll('.jp-RenderedImage img, .jp-RenderedHTMLCommon img')].every(i => i.complete && i.naturalWidth > 0)"""

def test_the_server_asks_for_its_token(lab):
    with pytest.raises(urllib.error.HTTPError) as refused: urllib.request.urlopen(f'{lab.url}api/contents')
    assert refused.value.code==403
    with urllib.request.urlopen(f'{lab.url}api/contents?token={lab.token}') as answer:
        assert 'guides' in [x['name'] for x in json.load(answer)['content']]

@pytest.mark.parametrize('path', GUIDES, ids=lambda p: p.stem)
def test_guide(lab, page, path):
    page.goto(f'{lab.url}lab/tree/guides/{path.name}?reset&token={lab.token}')
    page.wait_for_function(IDLE)
    page.evaluate("() => window.jupyterapp.commands.execute('editmenu:clear-all')")
    page.set_default_timeout(300_000)
    page.evaluate(RUN)
    page.wait_for_function(IDLE)
    state = page.evaluate(STATE)
    assert not state['errors'], state['errors']
    assert state['counts'] and all(state['counts']), state['counts']
    assert not [t for t in state['stderr'] if not re.search(r'\d+%\||it/s', t)], state['stderr']  # progress bars are welcome
    page.wait_for_function(DRAWN, timeout=30_000)
    assert not page.outside, page.outside
