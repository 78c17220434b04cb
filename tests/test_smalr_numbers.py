"Numbers of SMALR's losses, recalls and consistency, worked by hand from the equations"

import pytest
import torch

from dasd_lab.evaluation.retrieval import rank
from dasd_lab.methods.smalr.objectives import nearest_wrong, ranking, violation
from dasd_lab.training.triplets import image_sentence, masked_language, neighbourhood

# rows pictures, columns captions, one each
SIMILARITIES = torch.tensor([[0.90, 0.20, 0.88], [0.10, 0.80, 0.30], [0.50, 0.79, 0.60]])


def close(a, b):
    return torch.testing.assert_close(torch.as_tensor(a).float(), torch.tensor(b), atol=1e-6, rtol=0)


@pytest.mark.parametrize("n,pictures,captions,both", [(10, 0.045, 0.061667, 0.1375), (1, 0.09, 0.123333, 0.275)])
def test_eq_3(n, pictures, captions, both):
    d = 1 - SIMILARITIES
    own = torch.arange(3)
    right = torch.eye(3, dtype=torch.bool)
    close(violation(d.diagonal(), nearest_wrong(d, right, n), 0.05), pictures)
    close(violation(d.diagonal(), nearest_wrong(d.T, right, n), 0.05), captions)
    close(ranking(d, own, hardest=n), both)


def test_the_terms_above_zero():
    d = 1 - SIMILARITIES
    pictures, captions = (
        (0.05 + d.diagonal()[:, None] - x).masked_fill(torch.eye(3, dtype=torch.bool), 0).clamp(min=0) for x in (d, d.T)
    )
    assert sorted(round(v, 2) for v in pictures.flatten().tolist() if v > 1e-6) == [0.03, 0.24]
    assert sorted(round(v, 2) for v in captions.flatten().tolist() if v > 1e-6) == [0.04, 0.33]


def test_eq_2():
    close(
        masked_language(
            dict(
                final_features=torch.tensor([[[3.0, 4.0]], [[0.0, 2.0]]]),
                masked_final_features=torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]),
                restored_final_features=torch.tensor([[[[0.0, 1.0]], [[0.0, 0.0]]]]),
            ),
            ["final"],
        ),
        0.141778,
    )


def test_recall_of_pictures_with_several_captions():
    scores = torch.tensor([[0.1, 0.7, 0.2, 0.9, 0.3], [0.6, 0.2, 0.3, 0.1, 0.5]])
    own = torch.tensor([0, 0, 0, 1, 1])
    r = rank(lambda t, v: v["s"].T, torch.zeros(5, 1), dict(features=torch.zeros(2, 1), s=scores), own)
    assert [[float((x < k).float().mean()) for x in (r.image_to_text, r.text_to_image)] for k in (1, 2)] == [
        [0, pytest.approx(0.4)],
        [1, 1],
    ]


def test_gradients_reach_all_that_learns():
    torch.manual_seed(0)
    f = dict(
        visual_features=torch.randn(4, 6),
        final_features=torch.randn(3, 8, 6),
        universal_features=torch.randn(3, 8, 6),
        masked_final_features=torch.randn(3, 8, 6),
    )
    f = {k: v.requires_grad_() for k, v in f.items()}
    (
        image_sentence(f | dict(visual_index=torch.arange(8) // 2))
        + neighbourhood(f | dict(visual_index=torch.arange(8) // 2))
    ).backward()
    assert all(v.grad.isfinite().all() and v.grad.abs().max() > 0 for v in f.values())
