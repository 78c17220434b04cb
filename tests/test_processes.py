"Two processes that train together, started as `accelerate launch` does, give what one process gives"
import json,os,subprocess,sys
from pathlib import Path
import pytest,torch
from dasd_lab.storage import read_tensors

HERE = Path(__file__).parent
SCRIPT = '''
import json,sys
from dasd_lab.training.machine import Machine
from dasd_lab.training.recipes import train
from dasd_lab.training.runs import Keeping
sys.path.insert(0, {here!r})
from squares import TINY,Squares
options = json.loads(sys.argv[2])
train(TINY, Squares(), out=sys.argv[1], backbone=options['backbone'], seed=3, progress=False, machine=Machine(**options.get('machine', {{}})), keeping=Keeping(8, log_every=5))
'''

def launch(out:Path, processes:int, timeout:float=240, **options)->subprocess.CompletedProcess:
    "A training in so many processes on this machine's processor"
    script = out.parent/'launched.py'; script.write_text(SCRIPT.format(here=str(HERE)))
    together = ['-m','accelerate.commands.launch','--multi_gpu','--num_processes',str(processes),'--num_machines','1','--mixed_precision','no','--dynamo_backend','no','--main_process_port','0']
    words = [sys.executable,*(together if processes>1 else []),str(script)]
    return subprocess.run([*words, str(out), json.dumps(options)], capture_output=True, text=True, timeout=timeout, env=os.environ|dict(OMP_NUM_THREADS='1', CUDA_VISIBLE_DEVICES=''))

@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    "The same run by one process and by two"
    from dasd_lab.backbone.towers import save_backbone
    from dasd_lab.training.source import train_source
    sys.path.insert(0, str(HERE))
    from squares import SOURCE,Squares
    root = tmp_path_factory.mktemp('processes'); save_backbone(train_source(SOURCE, Squares(), progress=False), root/'backbone')
    for name,n in (('one',1),('two',2)):
        done = launch(root/name, n, backbone=str(root/'backbone')); assert done.returncode==0, done.stderr[-2000:]
    return root

def rows(folder): return [json.loads(l) for l in (folder/'log.jsonl').read_text().splitlines()]

def test_two_processes_see_the_losses_of_one(trained):
    one,two = rows(trained/'one'),rows(trained/'two')
    assert [(r['stage'],r['step'],r['language']) for r in one]==[(r['stage'],r['step'],r['language']) for r in two] and len(one)>10
    for a,b in zip(one, two):
        assert a.keys()==b.keys()
        for k in a:
            if isinstance(a[k], float) and k!='learning_rate': assert b[k]==pytest.approx(a[k], rel=2e-3, abs=1e-4), (a['stage'], a['step'], k)
    assert one[0]['loss']==pytest.approx(two[0]['loss'], rel=1e-6)

def test_and_learn_what_one_learns(trained):
    a,b = (read_tensors(trained/n/'method/model.safetensors') for n in ('one','two'))
    for k in a: torch.testing.assert_close(a[k], b[k], rtol=5e-3, atol=2e-4, msg=lambda m: f'{k}: {m}')

def test_one_of_them_writes(trained):
    assert {p.name for p in (trained/'two').iterdir()}=={p.name for p in (trained/'one').iterdir()} and len(list((trained/'two/tensorboard').iterdir()))==1

def test_each_over_its_own_rows_is_another_training(trained, tmp_path):
    "Without gathering each process has fewer negatives: the option does what it says"
    done = launch(tmp_path/'own', 2, backbone=str(trained/'backbone'), machine=dict(gather=False)); assert done.returncode==0, done.stderr[-2000:]
    contrast = lambda folder: [r['contrastive'] for r in rows(folder) if 'contrastive' in r]
    assert contrast(tmp_path/'own')[0]<.9*contrast(trained/'two')[0] # ln of half as many
