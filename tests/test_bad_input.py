"""Bad input gets a clear error or a documented result, and nothing is lost: search."""
import warnings

import numpy as np,pytest,torch
from PIL import Image

from dasd_lab.contracts import Caption,LabError
from dasd_lab.search.gallery import QUERY_LIMIT,Gallery,clean_query,read_query

from test_gallery import Colours,plain


@pytest.fixture
def gallery():
    method = Colours()
    method.encode_captions = lambda captions, language: torch.tensor([[float(len(c)),1.,2.] for c in captions])
    return Gallery(method).add([plain((i*40,100,50)) for i in range(5)])


@pytest.mark.parametrize('text', ['',' ','\n\t\r','\x00\x01\x1b','\u200b\ufeff','\u202e\u202c','\u200d\u200d','\u3000','\ud83d'])
def test_an_empty_query_is_an_error_that_says_what_to_do(gallery, text):
    with pytest.raises(LabError, match='an empty query') as e: gallery.search(text)
    assert e.value.next_step


@pytest.mark.parametrize('text', [None,3,b'rot',['rot']])
def test_a_query_that_is_no_text(gallery, text):
    with pytest.raises(LabError, match='a query of type'): gallery.search(text)


@pytest.mark.parametrize('unit', ['a','ein roter Hund ','狗','🐕','كلب '])
def test_ten_thousand_characters_are_cut_with_a_warning(gallery, unit):
    text = (unit*10_000)[:10_000]
    with pytest.warns(UserWarning, match=f'only the first {QUERY_LIMIT:,}'): hits = gallery.search(text, 'de')
    assert len(hits) == 5 and len(hits.query.text) <= QUERY_LIMIT
    with warnings.catch_warnings(): warnings.simplefilter('error'); assert len(clean_query('x'*QUERY_LIMIT)) == QUERY_LIMIT


def test_an_unsupported_language_lists_the_supported_ones(gallery):
    for language in ('fi','','xx','DE '):
        with pytest.raises(LabError, match='one of de, ar, en'): gallery.search('kissa', language)


@pytest.mark.parametrize('text', ['ein 狗 am Strand','собака und Hund','كلب dog 犬','ﬁn','Ａｂｃ','Z̸̡a̶l̵g̷o','a\u0301\u0301\u0301'])
def test_mixed_scripts_are_searched_like_any_other(gallery, text):
    hits = gallery.search(text)
    assert hits.query.language in ('de','ar','en') and 0 <= hits.query.confidence <= 1 and len(hits) == 5


def test_control_characters_and_two_encodings_make_no_difference(gallery):
    assert gallery.search('ca\x07fe\u0301\r\n am\u202e Strand', 'de').query.text == 'café am Strand'


@pytest.mark.parametrize('text', ['🐕','🐕🏖️','👩‍🚒','🇫🇷','🏴󠁧󠁢󠁳󠁣󠁴󠁿','1️⃣','12','?!'])
def test_queries_without_letters_are_read_as_english(gallery, text):
    hits = gallery.search(text)
    assert (hits.query.language, hits.query.confidence) == ('en',0.) and hits.query.encoded.strip() and len(hits) == 5
    assert gallery.search(text, 'de').query.language == 'de'


@pytest.mark.parametrize('k', [0,-3,1.5,'6',None,True])
def test_a_count_that_makes_no_sense(gallery, k):
    with pytest.raises(LabError, match='a whole number from 1'): gallery.search('rot', 'de', k=k)


def test_more_than_there_are_gives_all(gallery): assert len(gallery.search('rot', 'de', k=10**9)) == 5


def test_an_empty_gallery(gallery):
    for ask in (lambda g: g.search('rot', 'de'), lambda g: g.similar(plain((0,0,0))), lambda g: g.save('nowhere')):
        with pytest.raises(LabError, match='an empty gallery'): ask(Gallery(gallery.method))


def bad_pictures(folder):
    Image.new('RGB', (64,64), 'red').save(folder/'good.png'); whole = (folder/'good.png').read_bytes()
    (folder/'cut.png').write_bytes(whole[:len(whole)//2]); (folder/'text.jpg').write_text('no picture'); (folder/'empty.webp').touch()
    torch.save([1], folder/'pickle.png')
    return ['cut.png','empty.webp','pickle.png','text.jpg']


def test_pictures_that_are_none_are_named_and_nothing_is_added(gallery, tmp_path):
    for name in bad_pictures(tmp_path):
        with pytest.raises(LabError, match=name.replace('.', r'\.')): gallery.add([tmp_path/'good.png',tmp_path/name])
    with pytest.raises(LabError, match=r'gone\.png'): gallery.add([tmp_path/'gone.png'])
    with pytest.raises(LabError): gallery.add([tmp_path])
    for array in (np.zeros((4,4,7), 'uint8'), np.zeros(3, 'uint8'), np.full((4,4,3), np.nan), np.zeros((0,4,3), 'uint8')):
        with pytest.raises(LabError): gallery.add([array])
    with pytest.raises(LabError): gallery.add([object()])
    assert len(gallery) == 5 and len(gallery.thumbnails) == 5 and len(gallery.image_features) == 5


def test_bad_pictures_can_be_skipped_and_are_listed(gallery, tmp_path):
    bad = bad_pictures(tmp_path)
    with pytest.warns(UserWarning, match='4 of 5 pictures could not be read'): gallery.add(tmp_path, skip_bad=True)
    assert gallery.ids[5:] == ['good.png'] and [name for name,_ in gallery.skipped] == bad and all(why for _,why in gallery.skipped)
    assert len(gallery.image_features) == 6


def test_a_folder_without_pictures(gallery, tmp_path):
    (tmp_path/'notes.txt').write_text('x')
    with pytest.raises(LabError, match='no picture files'): gallery.add(tmp_path)
    with pytest.raises(LabError, match='nothing there'): gallery.add(tmp_path/'gone')


def test_the_same_id_twice(gallery):
    with pytest.raises(LabError, match='twice'): gallery.add([plain((0,0,0))], ids=[gallery.ids[0]])
    with pytest.raises(LabError, match='twice'): gallery.add([plain((0,0,0))]*2, ids=['a','a'])
    with pytest.raises(LabError, match='2 ids for 1'): gallery.add([plain((0,0,0))], ids=['a','b'])
    with pytest.raises(LabError, match='a caption of'): gallery.add([plain((0,0,0))], ids=['a'], captions=[Caption('1 0 0','de','z')])
    assert len(gallery) == 5 and not gallery.captions


def test_scores_that_are_not_numbers_are_refused(gallery):
    gallery.method.encode_captions = lambda captions, language: torch.full((len(captions),3), torch.nan)
    with pytest.raises(LabError, match='NaN'): gallery.search('rot', 'de')


def test_recognised_language_is_among_the_supported(gallery):
    for text in ('kissa istuu matolla','Hund','the dog','собака','犬','x'): assert read_query(text, gallery.method).language in ('de','ar','en')
