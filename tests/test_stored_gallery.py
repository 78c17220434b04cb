"A gallery on disk keeps its promises: real methods, recall, kills, imports that go on, several ways of comparing"
import json,os,signal,subprocess,sys,time
from pathlib import Path
import numpy as np,pytest,torch
from PIL import Image
from dasd_lab.backbone.towers import load_backbone
from dasd_lab.contracts import LabError
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.evaluation.retrieval import split_columns
from dasd_lab.search import importing
from dasd_lab.search.importing import failures,import_folder
from dasd_lab.search.consistent import Consistent,GlossTranslator
from dasd_lab.search.gallery import Gallery,caption_features
from dasd_lab.search.lance import LanceEngine
from dasd_lab.search.stored import StoredGallery,seen_as
from dasd_lab.training.recipes import load_run,shipped_run
from dasd_lab.training.runs import load_method

LANGUAGES = 'de','fr','cs','zh','ja','ar'

@pytest.fixture(scope='module')
def corpus(): return load_corpus('pictograms')
@pytest.fixture(scope='module')
def dasd(): return load_run(shipped_run()).eval()
@pytest.fixture(scope='module')
def visuals(corpus, dasd): return dasd.encode_visuals(split_columns(dasd, corpus, 'test'))
@pytest.fixture(scope='module')
def queries(corpus): return [c for l in LANGUAGES for c in corpus.captions('test', l, 'human')[:30]]

@pytest.fixture(scope='module')
def filled(tmp_path_factory, corpus, dasd, visuals):
    gallery = StoredGallery(tmp_path_factory.mktemp('g')/'g', dasd, dict(half='integer')); gallery.put(corpus.visuals('test').ids, visuals, dict(half=[i%2 for i in range(1000)])); yield gallery; gallery.close()

# the same answers as in memory

def test_all_languages_find_what_a_gallery_in_memory_finds(filled, corpus, dasd, queries):
    memory = Gallery(dasd); memory._extend(corpus.visuals('test').ids, split_columns(dasd, corpus, 'test'), {}, [])
    for c in queries[::5]:
        a,b = memory.search(c.text, c.language, k=10),filled.search(c.text, c.language, k=10)
        assert np.allclose([h.score for h in a], [h.score for h in b], atol=2e-3) and len({*a.ids}&{*b.ids})>=9 # what is a tie in 16 bits may change places

def test_a_filter_finds_what_is_left_when_the_others_are_taken_away(filled, queries):
    for c in queries[::20]:
        every = [i for i in filled.search(c.text, c.language, k=1000).ids if int(i.split('-')[-1])%2]; found = filled.search(c.text, c.language, k=20, where=dict(half=1)).ids
        assert len({*found}&{*every[:20]})>=19

def test_slots_are_compared_where_the_cosine_has_chosen(tmp_path, corpus, queries):
    "LECCR's own score on a head that is all pictures is its score in memory; a short head loses little"
    method = load_method(shipped_run()/'leccr', load_backbone(shipped_run()/'backbone')).eval(); seen = method.encode_visuals(split_columns(method, corpus, 'test')); ids = corpus.visuals('test').ids
    gallery = StoredGallery(tmp_path/'g', method, head=1000); gallery.put(ids, seen); kept = []
    for c in queries[::9]:
        scores = method.score(method.encode_captions([c.text], c.language), seen)[0]; best = [ids[i] for i in scores.argsort(descending=True)[:10]]; gallery.head = 1000; full = gallery.search(c.text, c.language, k=10)
        assert len({*full.ids}&{*best})>=9 and np.allclose([h.score for h in full], scores.sort(descending=True).values[:10], atol=3e-3)
        gallery.head = 100; kept.append(len({*gallery.search(c.text, c.language, k=10).ids}&{*full.ids})/10)
    assert np.mean(kept)>.97

def test_several_languages_at_once_are_compared_where_the_cosine_has_chosen(tmp_path, corpus, dasd, queries):
    "SMALR's consistency: a head that is all pictures gives its own score, and the gallery's vectors are those of SMALR alone"
    smalr = load_method(shipped_run()/'smalr', dasd.backbone).eval(); both = Consistent(smalr, GlossTranslator()).eval(); ids = corpus.visuals('test').ids; seen = smalr.encode_visuals(split_columns(smalr, corpus, 'test'))
    assert seen_as(both)==seen_as(smalr); gallery = StoredGallery(tmp_path/'g', both, head=1000); gallery.put(ids, seen); alone = gallery.with_method(smalr); moved = 0
    for c in queries[::9]:
        scores = both.score(both.encode_captions([c.text], c.language), seen)[0]; full = gallery.search(c.text, c.language, k=10)
        assert np.allclose([h.score for h in full], scores.sort(descending=True).values[:10], atol=3e-3) and len({*full.ids}&{ids[i] for i in scores.argsort(descending=True)[:10]})>=9
        moved += full.ids!=alone.search(c.text, c.language, k=10).ids
    assert moved>3

def test_an_index_finds_what_all_cosines_find(tmp_path, dasd, visuals, queries):
    "Captions and pictures, among 24,000 pictures of which many are alike"
    rng = np.random.default_rng(0); base = torch.nn.functional.normalize(visuals['features'], dim=-1).numpy(); noisy = lambda x: (x+.5/np.sqrt(x.shape[1])*rng.standard_normal(x.shape)).astype(np.float32)
    rows = noisy(base[rng.integers(0, len(base), 24_000)]); gallery = StoredGallery(tmp_path/'g', dasd, dict(twelfth='integer'), engine=LanceEngine(tmp_path/'i', exact_below=5000)); names = [str(i) for i in range(len(rows))]
    for a in range(0, len(rows), 8000): gallery.put(names[a:a+8000], dict(features=torch.from_numpy(rows[a:a+8000])), dict(twelfth=[i%12 for i in range(a, a+8000)]))
    gallery.tidy(); assert gallery.engine.indexed(f'vector_{gallery.way}')==len(rows); unit = rows/np.linalg.norm(rows, axis=1, keepdims=True); asked = np.concatenate([caption_features(dasd, queries[:60]).numpy(),noisy(base[:60])]); recall = []
    for q in asked: best = {str(i) for i in np.argsort(-(unit@q))[:10]}; recall.append(len(best&{*gallery.best(torch.from_numpy(q[None]), 10)[0]})/10)
    assert np.mean(recall[:60])>=.99 and np.mean(recall[60:])>=.99, (np.mean(recall[:60]),np.mean(recall[60:]))
    cosines = asked[::3]@unit.T; there = np.arange(len(rows))%12==5 # later pages and what a filter leaves are found as well
    for k,skip,where,may in ((100,0,None,there|True),(20,400,None,there|True),(10,0,dict(twelfth=5),there),(50,0,dict(twelfth=5),there)):
        shares = [len({*gallery.best(torch.from_numpy(q[None]), k, skip, where)[0]}&{str(i) for i in np.flatnonzero(may)[np.argsort(-c[may])[skip:skip+k]]})/k for q,c in zip(asked[::3], cosines)]; assert np.mean(shares)>=(.98 if not skip else .93), (k,skip,where,np.mean(shares))
    assert [len(gallery.best(torch.from_numpy(asked[:1]), 100, skip, dict(twelfth=5))[0]) for skip in (1900,1950,2000)]==[100,50,0] # nothing that fits is left out

# several ways of comparing

def test_runs_on_one_frozen_tower_share_the_vectors(filled, dasd, queries):
    static = load_method(shipped_run()/'static_adapter', dasd.backbone).eval(); smalr = load_method(shipped_run()/'smalr', dasd.backbone).eval()
    assert seen_as(static)==seen_as(dasd)!=seen_as(smalr); other = filled.with_method(static); c = queries[0]
    assert c.visual_id in other.search(c.text, c.language, k=20).ids and len(filled.ways)==1
    with pytest.raises(LabError, match='embed'): filled.with_method(smalr).search('Hund', 'de')

def test_another_method_looks_at_the_files_again_and_goes_on_where_it_was(tmp_path, corpus, dasd):
    folder = tmp_path/'p'; folder.mkdir(); visuals = corpus.visuals('test'); [Image.fromarray(visuals[i].frames[0]).save(folder/f'{i:02d}.png') for i in range(40)]
    gallery = StoredGallery(tmp_path/'g', dasd); import_folder(gallery, folder); smalr = gallery.with_method(load_method(shipped_run()/'smalr', dasd.backbone))
    class Stop(Exception): pass
    def twice(batches):
        for n,b in enumerate(batches):
            if n==2: raise Stop
            yield b
    with pytest.raises(Stop): smalr.embed(batch_size=10, progress=twice)
    assert len(smalr.visuals([f'{i:02d}.png' for i in range(40)])['id'])==20 and smalr.embed()==20 and smalr.embed()==0
    told = smalr.method.encode_visuals(smalr.method.visual_columns([visuals[i] for i in range(40)]))['features']; kept = smalr.visuals([f'{i:02d}.png' for i in range(40)])['features']
    torch.testing.assert_close(kept, told, atol=2e-3, rtol=2e-3)

# kills

ADD = '''import sys,torch; from dasd_lab.search.stored import StoredGallery; from dasd_lab.training.recipes import load_run,shipped_run
g = StoredGallery(sys.argv[1], load_run(shipped_run())); step = int(sys.argv[2])
while True:
    ids = [f'{step}-{i}' for i in range(1+7*(step%5))]; g.put(ids, dict(features=torch.randn(len(ids), 128)), dict(width=[step]*len(ids)), {i:b'webp' for i in ids}); print(step, flush=True); step += 1
    if step%10==0: g.engine._compact()
'''
def test_what_was_acknowledged_before_a_kill_is_there_and_every_batch_is_whole(tmp_path, dasd):
    rng,last = np.random.default_rng(0),0
    for _ in range(2):
        p = subprocess.Popen([sys.executable,'-c',ADD,str(tmp_path/'g'),str(last)], stdout=subprocess.PIPE, text=True); p.stdout.readline(); time.sleep(rng.uniform(.05, .8)); p.send_signal(signal.SIGKILL); said = [last,*map(int, p.stdout.read().split())]; p.wait(); last = max(said)+2
    gallery = StoredGallery(tmp_path/'g', dasd); there = {}
    for rows in gallery.engine.walk(['width']):
        for i,w in zip(rows['id'], rows['width']): there.setdefault(int(i.split('-')[0]), []).append(i); assert w==int(i.split('-')[0]) and gallery.thumbnails[i]==b'webp'
    missing = set(range(last-1))-set(there); assert len(missing)<=2, missing # the step that a kill fell into, and which nobody was told of
    assert all(len(v)==1+7*(s%5)==len(set(v)) for s,v in there.items()); gallery.put(['new'], dict(features=torch.randn(1, 128))); assert 'new' in gallery

IMPORT = '''import sys; from dasd_lab.search.importing import import_folder; from dasd_lab.search.stored import StoredGallery; from dasd_lab.training.recipes import load_run,shipped_run
def told(batches):
    for b in batches: yield b; print('.', flush=True)
import_folder(StoredGallery(sys.argv[1], load_run(shipped_run())), sys.argv[2], batch_size=16, progress=told)
'''
def test_an_import_that_was_killed_goes_on_and_reads_nothing_twice(tmp_path, corpus, dasd, monkeypatch):
    folder = tmp_path/'p'; visuals = corpus.visuals('test')
    for i in range(400): (folder/f'{i%4}').mkdir(parents=True, exist_ok=True); Image.fromarray(visuals[i].frames[0]).resize((128,128)).save(folder/f'{i%4}/{i:03d}.jpg')
    for i in (5,205,305): (folder/f'{i%4}/{i:03d}.jpg').write_bytes(b'\xff\xd8\xff\xe0 cut')
    p = subprocess.Popen([sys.executable,'-c',IMPORT,str(tmp_path/'g'),str(folder)], stdout=subprocess.PIPE, text=True); [p.stdout.readline() for _ in range(5)]; p.kill(); p.wait(); gallery = StoredGallery(tmp_path/'g', dasd); before = {i for rows in gallery.engine.walk([]) for i in rows['id']}
    assert len(before)>=5*16-3; read = []; opened = importing.ReadAhead
    monkeypatch.setattr(importing, 'ReadAhead', lambda sources, n: read.extend(map(str, sources)) or opened(sources, n)); report = import_folder(gallery, folder)
    assert len(gallery)==397==report.added+report.unchanged and report.unchanged==len(before) and {*report.failed}=={'1/005.jpg','1/205.jpg','1/305.jpg'} and not {str((folder/i).resolve()) for i in before}&{*read}
    read.clear(); assert import_folder(gallery, folder).unchanged==397 and not read and len(failures(gallery))==3
    import_folder(gallery, folder, retry=True); assert len(read)==3

def test_a_second_writer_waits_and_is_told(tmp_path):
    a,b = LanceEngine(tmp_path/'i'),LanceEngine(tmp_path/'i', patience_s=.2)
    with a._writing():
        with pytest.raises(LabError, match='another process'): b.remove(['x'])
    b.remove(['x'])

# what is not a gallery

def test_folders_that_are_something_else_are_left_alone(tmp_path, dasd, filled):
    (tmp_path/'mine').mkdir(); (tmp_path/'mine/notes.txt').write_text('x')
    with pytest.raises(LabError, match='something else'): StoredGallery(tmp_path/'mine', dasd)
    assert [p.name for p in (tmp_path/'mine').iterdir()]==['notes.txt']
    for text in ('{', '[]', '{"kind":"other","version":1,"ways":{},"columns":{}}', '{"kind":"stored gallery","version":2,"ways":{},"columns":{}}'):
        (tmp_path/'b').mkdir(exist_ok=True); (tmp_path/'b/gallery.json').write_text(text)
        with pytest.raises(LabError, match='gallery'): StoredGallery(tmp_path/'b', dasd)
    with pytest.raises(LabError, match='the same'): StoredGallery(filled.folder, dasd, engine=type('Other', (LanceEngine,), {})(tmp_path/'o'))
