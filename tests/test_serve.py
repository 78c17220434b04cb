"A service over a gallery, against what anybody may send: fuzzed by its own OpenAPI document, and asked by hand what a fuzzer does not think of"
import http.client,io,json,re,socket,threading,warnings,zipfile,zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from PIL import Image

from dasd_lab.search.stored import StoredGallery
from dasd_lab.serve.guard import COOKIE,ServiceSettings
from dasd_lab.serve.service import gallery_app
from served import COLOURS,Named,draw,make,picture,serving

schemathesis = pytest.importorskip('schemathesis')
from hypothesis import HealthCheck,given,settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS

OFTEN = dict(requests_per_minute=10**6, uploads_per_minute=10**6)
WRITER = ServiceSettings(may_write=True, hosts=('127.0.0.1','localhost','testserver'), **OFTEN)

def encoded(picture:Image.Image, kind:str='PNG', **more)->bytes: to = io.BytesIO(); picture.save(to, kind, **more); return to.getvalue()
def sent(data:bytes, name='x.png', kind='image/png')->dict: return dict(picture=(name, data, kind))
def client(gallery, settings=WRITER, **more): return TestClient(gallery_app(gallery, settings), base_url='http://localhost', raise_server_exceptions=False, **more)
def ids(answer)->list[str]: assert answer.status_code==200, answer.text; return [h['id'] for h in answer.json()['hits']]

@pytest.fixture(scope='module')
def drawn(tmp_path_factory): return draw(tmp_path_factory.mktemp('served')/'drawn', 3)

@pytest.fixture
def gallery(tmp_path, drawn):
    made = make(tmp_path/'gallery', drawn); yield made; made.close()

# ---- the document

@pytest.fixture(scope='module')
def document(drawn, tmp_path_factory):
    gallery = make(tmp_path_factory.mktemp('fuzzed')/'gallery', drawn); config = schemathesis.Config.from_dict({'generation': {'mode': 'all'}})
    yield schemathesis.openapi.from_asgi('/api/openapi.json', gallery_app(gallery, replace(WRITER, originals=str(drawn))), config=config)
    gallery.close()

OPERATIONS = [('/api/gallery','GET'),('/api/search','GET'),('/api/search','POST'),('/api/picture','GET'),('/api/picture','PATCH'),('/api/picture','DELETE'),('/api/thumbnail','GET'),('/api/original','GET'),('/api/pictures','POST')]

def holds(case): case.call_and_validate(excluded_checks=[CHECKS.get_one('positive_data_acceptance')]) # a text is allowed that asks for nothing

@pytest.mark.parametrize('path,method', OPERATIONS, ids=lambda p: p.strip('/').replace('/','-'))
def test_whatever_the_document_allows_or_forbids_is_answered_as_it_says(document, path, method):
    "No 5xx; statuses, kinds and bodies as documented; what the document forbids is refused"
    operation = document[path][method]
    for mode in GenerationMode:
        try: strategy = operation.as_strategy(generation_mode=mode)
        except Unsatisfiable: continue
        settings(max_examples=20, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))(given(strategy)(holds))()

@pytest.mark.parametrize('path,method', OPERATIONS, ids=lambda p: p.strip('/').replace('/','-'))
def test_the_edges_of_the_document(document, path, method):
    "Shortest, longest, just too long, of another kind, twice, missing"
    operation = document[path][method]; cases = list(document.iter_coverage_cases(operation, generation_modes=list(GenerationMode), generation_config=document.config.generation))
    assert cases
    for case in cases: holds(case)

def test_the_document_lists_every_route(document, gallery):
    app = gallery_app(gallery, WRITER).app; document.validate()
    routes = {(r.path,m) for r in app.routes if isinstance(r, APIRoute) for m in r.methods}; raw = app.openapi()
    assert routes=={(p,m.upper()) for p,ops in raw['paths'].items() for m in ops} and len(routes)>=9
    said = {o['operationId']:set(o['responses']) for ops in raw['paths'].values() for o in ops.values()}
    assert all({'400','401','403','413','421','422','429','504'}<=s for s in said.values()), said
    assert raw['info']['title']=='Gallery' and not re.search(re.escape(str(gallery.folder)), json.dumps(raw))
