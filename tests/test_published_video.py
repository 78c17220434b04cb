"MSR-VTT in its published form, from file to retrieval: clips in two codecs, of various lengths, some of them broken"

import json

import av
import numpy as np
import pytest
import torch

from dasd_lab.base.presets import load_preset, vary
from dasd_lab.corpora.catalog import load_corpus
from dasd_lab.corpora.clips import even_places, read_clip
from dasd_lab.evaluation.retrieval import evaluate
from dasd_lab.runs.loading import load_run
from dasd_lab.runs.shipped import shipped_run
from dasd_lab.search.gallery.in_memory import Gallery
from dasd_lab.training.recipes import train, training_data

CODECS = {".mp4": "libx264", ".webm": "libvpx-vp9"}
# name → frames
CLIPS = {
    "video0.mp4": 37,
    "video1.webm": 5,
    "video2.mp4": 1,
    "video3.webm": 61,
    "video4.mp4": 13,
    "video5.webm": 12,
    "video6.mp4": 40,
    "video7.webm": 3,
    "video8.mp4": 25,
    "video9.webm": 24,
}


def write_clip(path, n):
    "n frames that change from blue to red"
    with av.open(str(path), "w") as c:
        s = c.add_stream(CODECS[path.suffix], rate=25)
        s.width = 64
        s.height = 48
        s.pix_fmt = "yuv420p"
        for i in range(n):
            pixels = np.zeros((48, 64, 3), np.uint8)
            pixels[..., 0] = 255 * i // max(1, n - 1)
            pixels[..., 2] = 255 - pixels[..., 0]
            for p in s.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                c.mux(p)
        for p in s.encode():
            c.mux(p)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    "MSR-VTT in its published form, ten clips long"
    root = tmp_path_factory.mktemp("msrvtt")
    (root / "videos").mkdir()
    (root / "multilingual_train").mkdir()
    (root / "multilingual_test").mkdir()
    for name, n in CLIPS.items():
        write_clip(root / "videos" / name, n)
    names = [f"video{i}" for i in range(12)]  # video10 is broken, video11 is missing
    (root / "videos/video10.mp4").write_bytes((root / "videos/video0.mp4").read_bytes()[:200])
    videos = [dict(video_id=v, split="train") for v in names]
    sentences = [dict(video_id=v, sen_id=i, caption=f"a clip that turns red, number {i}") for i, v in enumerate(names)]
    (root / "MSRVTT_data.json").write_text(json.dumps(dict(videos=videos, sentences=sentences)))
    (root / "MSRVTT_train.9k.csv").write_text("\n".join(["video_id", *names[:10]]) + "\n")
    (root / "MSRVTT_JSFUSION_test.csv").write_text(
        "key,vid_key,video_id,sentence\n" + "".join(f'ret{i},msr{i},{v},"red, then {i}"\n' for i, v in enumerate(names))
    )
    (root / "multilingual_train/ref_captions_de.json").write_text(
        json.dumps({v: [f"ein Clip, der rot wird, Nummer {i}"] for i, v in enumerate(names)})
    )
    (root / "multilingual_test/test_de.json").write_text(
        json.dumps({v: [f"rot, dann {i}"] for i, v in enumerate(names)})
    )
    return root


@pytest.fixture(scope="module")
def method():
    return load_run(shipped_run())


@pytest.mark.parametrize("name", CLIPS)
def test_frames_are_evenly_spaced(root, name):
    frames = read_clip(root / "videos" / name)
    n = CLIPS[name]
    places = even_places(range(n))
    assert len(frames) == min(n, 12)
    red = [255 * i // max(1, n - 1) for i in places]
    assert np.abs(frames[..., 0].mean((1, 2)) - red).max() < 16, "the expected frames, up to compression"


def test_a_clip_is_the_mean_of_its_frames(root, method):
    visuals = load_corpus("msrvtt", root=root).visuals("train")
    features, frame_mask = method.backbone.encode_frames([visuals[i] for i in range(4)], batch_size=7)
    assert frame_mask.sum(1).tolist() == [12, 5, 1, 12]
    for i in range(4):
        torch.testing.assert_close(
            method.backbone.encode_pictures([visuals[i]])[0], features[i][frame_mask[i]].mean(0), atol=1e-5, rtol=1e-4
        )


def test_clips_are_searched_trained_on_and_evaluated(root, method):
    corpus = load_corpus("msrvtt", root=root)
    gallery = Gallery(method).add(root / "videos", skip_bad=True)
    assert len(gallery) == 10
    assert [name for name, _ in gallery.skipped] == ["video10.mp4"]
    assert len(gallery.search("ein rotes Feld", "de", k=3)) == 3
    preset = vary(
        load_preset("dasd.pictograms"),
        {
            "languages": ["de"],
            "vocab_size": 60,
            "stages.0.steps": 2,
            "stages.0.batch_size": 8,
            "stages.1.steps": 2,
            "stages.1.batch_size": 8,
        },
    )
    run = train(
        preset,
        corpus,
        ["de"],
        backbone=method.backbone,
        data=training_data(corpus, ["de"], method.backbone),
        progress=False,
    )
    assert run.card["stages"] == {"cross_lingual_alignment": 2, "cross_modal_alignment": 2}
    results = evaluate(run.method, corpus, "train", ["de"], origin="mt")
    assert results.about["n_visuals"] == 10 and 0 <= results.mean_recall <= 1
