"The option --golden: a folder with cases `case_*.json`, each with its `.npz`"
from pathlib import Path
import pytest

ROOT = Path(__file__).resolve().parents[1]

def pytest_addoption(parser):
    parser.addoption('--golden', metavar='DIR', type=Path, default=ROOT.parent/'shared/golden/dasd',
                     help='folder with golden cases of the official code (default: %(default)s)')

def pytest_generate_tests(metafunc):
    "Every test that asks for `case_path` runs once a case, or is skipped with the reason"
    if 'case_path' not in metafunc.fixturenames: return
    folder = metafunc.config.getoption('golden')
    paths = [p for p in sorted(folder.glob('case_*.json')) if p.with_suffix('.npz').is_file()]
    cases = [pytest.param(p, id=p.stem) for p in paths] or [pytest.param(None, id='none', marks=pytest.mark.skip(reason=f'no golden case in {folder}; give --golden DIR'))]
    metafunc.parametrize('case_path', cases, scope='module')
