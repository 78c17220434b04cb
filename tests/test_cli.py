"The command as a shell sees it: what goes to which stream, exit codes, interruptions"
import json,os,signal,subprocess,sys,time
from pathlib import Path
import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
COMMAND = str(Path(sys.executable).parent/'dasd-lab')

def lab(*words, **options)->subprocess.CompletedProcess:
    return subprocess.run([COMMAND,*map(str, words)], capture_output=True, text=True, cwd=ROOT, stdin=subprocess.DEVNULL, **options)

@pytest.fixture(scope='session')
def own(tmp_path_factory):
    "A corpus of two pictures in a folder with spaces"
    folder = tmp_path_factory.mktemp('my pictures')
    (folder/'test').mkdir()
    rows = []
    for name,en,de in (('red','a red field','ein rotes Feld'),('blue','a blue field','ein blaues Feld')):
        Image.new('RGB', (64,64), name).save(folder/f'test/{name}.png')
        rows += [dict(text=en, language='en', visual_id=f'{name}.png'), dict(text=de, language='de', visual_id=f'{name}.png')]
    from dasd_lab.corpora.visuals import visuals_from_folder
    ids = {i.split('.')[0]:i for i in visuals_from_folder(folder/'test').ids}
    for r in rows: r['visual_id'] = ids[r['visual_id'].split('.')[0]]
    (folder/'test.jsonl').write_text(''.join(json.dumps(r)+'\n' for r in rows))
    return folder

def test_help_does_not_wait_for_torch():
    lab('--help')
    began = time.monotonic()
    shown = lab('--help')
    assert shown.returncode==0 and time.monotonic()-began<3
    for command in ('corpus','train','evaluate','search','lab','demo'): assert command in shown.stdout

@pytest.mark.parametrize('words', [['corpus','build'],['corpus','info'],['train'],['evaluate'],['search'],['lab'],['demo']], ids=' '.join)
def test_every_command_has_help(words):
    shown = lab(*words, '--help')
    assert shown.returncode==0 and shown.stdout.startswith(f'usage: dasd-lab {" ".join(words)}')

@pytest.mark.parametrize('words', [[],['fly'],['corpus'],['search'],['search','-k','many','a dog'],['corpus','info','--colour']], ids=' '.join)
def test_words_that_cannot_be_read(words):
    told = lab(*words)
    assert told.returncode==2 and told.stdout=='' and 'usage: dasd-lab' in told.stderr and 'Traceback' not in told.stderr

@pytest.mark.parametrize('words', [['corpus','info','--corpus','no such folder'],['evaluate','no such run','--corpus'],['train','no-such-preset','--corpus'],
                                   ['search','a dog','--run','no such run','--pictures']], ids=lambda w: w[0])
def test_an_error_is_one_line(words, own):
    told = lab(*words, *([own/'test' if words[-1]=='--pictures' else own] if words[-1].startswith('--') else []))
    assert told.returncode==1 and told.stdout=='', told.stderr
    assert told.stderr.startswith('dasd-lab: ') and told.stderr.count('\n')==1 and 'Expected' in told.stderr

def test_a_table_for_people_and_for_programs(own):
    table,data = lab('corpus','info','--corpus',own),lab('corpus','info','--corpus',own,'--json')
    assert table.returncode==data.returncode==0, table.stderr+data.stderr
    assert table.stdout.splitlines()[0].split()==['split','pictures','language','origin','captions']
    rows = json.loads(data.stdout)['rows']
    assert [(r['language'],r['captions'],r['pictures']) for r in rows]==[('en',2,2),('de',2,2)]

def test_a_closed_pipe_is_no_error(own):
    done = subprocess.run(['bash','-c','set -o pipefail; "$0" corpus info --corpus "$1" --json | true', COMMAND, own], capture_output=True, text=True)
    assert done.returncode==0 and done.stderr=='', done.stderr

@pytest.mark.skipif(os.name!='posix', reason='signals')
def test_an_interrupted_build_leaves_nothing(tmp_path):
    "Progress goes to standard error; Ctrl-C ends with 130 and no half-written folder"
    child = subprocess.Popen([COMMAND,'corpus','build','--folder',tmp_path/'corpus'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, start_new_session=True)
    seen = b''
    os.set_blocking(child.stderr.fileno(), False)
    until = time.monotonic()+120
    while b'train scenes' not in seen and time.monotonic()<until and child.poll() is None:
        seen += child.stderr.read() or b''
        time.sleep(.1)
    child.send_signal(signal.SIGINT)
    out,err = child.communicate(timeout=60)
    assert child.returncode==130 and out==b'' and b'Traceback' not in err, err[-2000:]
    assert b'train scenes' in seen and err.rstrip().endswith(b'interrupted')
    assert [p for p in tmp_path.rglob('*') if p.is_file()]==[]
