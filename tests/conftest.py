"The option --golden: a folder with cases `case_*.json`, each with its `.npz`"
import json
from pathlib import Path
import pytest

ROOT = Path(__file__).resolve().parents[1]

def pytest_addoption(parser):
    parser.addoption('--golden', metavar='DIR', type=Path, help=f'folder with golden cases of a method (default: those in {ROOT.parent}/shared/golden, by method)')

def method_of(path):
    "Which method a case is of: its names begin with it"
    return json.loads(path.read_text(encoding='utf-8')).get('prefix', 'dasd').split('_')[0]

def pytest_generate_tests(metafunc):
    "Every test that asks for `case_path` runs once a case of its module's METHOD, or is skipped with the reason"
    if 'case_path' not in metafunc.fixturenames: return
    method = getattr(metafunc.module, 'METHOD', 'dasd'); folder = metafunc.config.getoption('golden') or ROOT.parent/'shared/golden'/method
    paths = [p for p in sorted(folder.glob('case_*.json')) if p.with_suffix('.npz').is_file() and method_of(p)==method]
    cases = [pytest.param(p, id=p.stem) for p in paths] or [pytest.param(None, id='none', marks=pytest.mark.skip(reason=f'no golden case of {method} in {folder}; give --golden DIR'))]
    metafunc.parametrize('case_path', cases, scope='module')
