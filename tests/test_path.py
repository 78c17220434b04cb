"The layout is the data's path: names, numbers, and imports that only look back"
import json,re,statistics
from pathlib import Path
import pytest

ROOT = Path(__file__).resolve().parents[1]
NBS = ROOT/'nbs'
EXPORTING = sorted(p for p in NBS.glob('*.ipynb') if p.name!='index.ipynb')
COMPANIONS = sorted(p for folder in ('guides','studies') for p in (NBS/folder).rglob('*.ipynb'))
OWN = re.compile(r'^\s*(?:from\s+dasd_lab((?:\.\w+)*)\s+import\s+([\w ,()]+)|import\s+dasd_lab((?:\.\w+)+))', re.M)
name = lambda p: str(p.relative_to(NBS))

def sources(path:Path)->list[str]:
    "Code cells of a notebook"
    return [''.join(c['source']) for c in json.loads(path.read_text(encoding='utf-8'))['cells'] if c['cell_type']=='code']

def imported(source:str)->set[str]:
    "Own modules that a cell imports, without the package's name; `from dasd_lab.a import b` may mean a.b"
    found = set()
    for package,names,module in OWN.findall(source):
        if module: found.add(module[1:])
        else:
            found.add(package[1:])
            found |= {f'{package[1:]}.{n}'.strip('.') for n in re.findall(r'\w+', names)}
    return found

def number(path:Path)->int: return int(path.name[:2])

MODULES = {p.stem[3:]:number(p) for p in EXPORTING}

@pytest.mark.parametrize('path', EXPORTING, ids=name)
def test_stem_is_number_and_module(path):
    assert re.fullmatch(r'\d\d_[a-z_]+(\.[a-z_]+)*', path.stem), 'two digits, then the module'
    exps = re.findall(r'(?m)^#\|\s*default_exp\s+(\S+)', '\n'.join(sources(path)))
    assert exps==[path.stem[3:]]

def test_no_number_is_used_twice():
    numbers = [number(p) for p in EXPORTING]
    assert len(set(numbers))==len(numbers), numbers

@pytest.mark.parametrize('path', EXPORTING, ids=name)
def test_imports_only_look_back(path):
    for source in sources(path):
        for module in imported(source) & set(MODULES):
            assert MODULES[module]<number(path), f'{path.name} imports {module}, which comes later on the path'

def test_the_reading_of_imports():
    assert imported('from dasd_lab.a.b import c, d') >= {'a.b','a.b.c','a.b.d'}
    assert imported('def f():\n    import dasd_lab.late\n')=={'late'}
    assert imported('from dasd_lab import late')>={'late'}
    assert not imported('from dasd_labs.a import b\nprint("from dasd_lab")') - {''}

@pytest.mark.parametrize('path', COMPANIONS, ids=name)
def test_companions_export_nothing(path):
    for source in sources(path): assert not re.search(r'(?m)^#\|\s*(default_exp|export)', source)

@pytest.mark.parametrize('path', EXPORTING, ids=name)
def test_names_say_something(path):
    assert not set(re.split(r'[._]', path.stem[3:])) & {'utils','util','helpers','helper','common','misc','core','tools'}

def module_path(module:str)->Path: return ROOT/'dasd_lab'/f'{module.replace(".","/")}.py'

def test_modules_stay_small():
    lines = {m:len(module_path(m).read_text(encoding='utf-8').splitlines()) for m in MODULES}
    assert not {m:n for m,n in lines.items() if n>400}
    assert statistics.median(lines.values())<=200
