"""Other ways to take the meaning away from f_sa, for the study of disentangling

Trained designs are a method `dasd_design`, a DASD with `config.design`; what is applied after training is a class with
`fit` and a call. None of them ships: `studies/disentangling` says how near each comes to the form of expression.

    linear          f_sa minus its ridge regression on f_sr, from running covariances of the training
    whitened        the same, every direction of the rest scaled to variance 1
    kernel          the regression reads random Fourier features of f_sr (Rahimi and Recht 2007)
    reconstruction  16 components of the linear rest that, with f_sr, must tell the caption's own pooled state
    codes           one of 16 learnt vectors for each caption, by the same loss: that of the largest of 16 scores, with
                    the gradient of their softmax
    info_nce        the branch of the paper; a critic that finds the caption's meaning in its batch (van den Oord 2018),
                    against which the branch aims at equal scores"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from dasd_lab.contracts import register_method
from dasd_lab.dasd.disentangling import Disentangler
from dasd_lab.dasd.encoder import DASD, DASDConfig
from dasd_lab.training.losses import loss, named

BOTTLENECK = 16  # components, or codes
FOURIER = 512  # random features
RIDGE = 1e-3  # of the mean variance of what is regressed on
MEMORY = 0.99  # share of the running moments that a batch keeps


class Moments(nn.Module):
    "Running means and covariances of pairs (x, y), without the bias of their start"

    weight: Tensor
    first: Tensor
    second: Tensor

    def __init__(self, width: int):
        super().__init__()
        self.register_buffer("weight", torch.zeros(()))
        self.register_buffer("first", torch.zeros(width))
        self.register_buffer("second", torch.zeros(width, width))

    @torch.no_grad()
    def update(self, rows: Tensor, memory: float = MEMORY) -> None:
        "Take a batch in; `memory` 1 sums instead of forgetting"
        new = 1.0 if memory == 1 else 1 - memory
        self.weight.mul_(memory).add_(new * len(rows))
        self.first.mul_(memory).add_(rows.sum(0), alpha=new)
        self.second.mul_(memory).add_(rows.T @ rows, alpha=new)

    @property
    def mean(self) -> Tensor:
        return self.first / self.weight

    @property
    def covariance(self) -> Tensor:
        return self.second / self.weight - torch.outer(self.mean, self.mean)


class Fourier(nn.Module):
    "Random Fourier features of unit vectors, for a Gaussian kernel of width 1"

    def __init__(self, width: int):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.register_buffer("frequencies", torch.randn(width, FOURIER, generator=generator))
        self.register_buffer("phases", 2 * torch.pi * torch.rand(FOURIER, generator=generator))

    def forward(self, x: Tensor) -> Tensor:
        return (F.normalize(x, dim=-1) @ self.frequencies + self.phases).cos()


class Complement(nn.Module):
    "What a ridge regression on the meaning leaves of a feature, scaled to a mean variance of 1"

    def __init__(self, related: int, agnostic: int, kernel: bool = False, whiten: bool = False):
        super().__init__()
        self.lift = Fourier(related) if kernel else nn.Identity()
        self.lifted = FOURIER if kernel else related
        self.whiten = whiten
        self.moments = Moments(self.lifted + agnostic)

    @property
    def parameters_at_use(self) -> int:
        "Numbers of the regression, of the mean and of the scale; the moments are not needed"
        width = len(self.moments.first) - self.lifted
        return self.lifted * width + width + (width**2 if self.whiten else 1)

    def update(self, related: Tensor, agnostic: Tensor, memory: float = MEMORY) -> None:
        self.moments.update(torch.cat([self.lift(related), agnostic], -1).detach(), memory)

    def forward(self, related: Tensor, agnostic: Tensor) -> Tensor:
        with torch.autocast(agnostic.device.type, enabled=False):  # covariances need float32
            related, agnostic = related.float(), agnostic.float()
            if self.training:
                self.update(related, agnostic)
            return self.rest(related, agnostic)

    def rest(self, related: Tensor, agnostic: Tensor) -> Tensor:
        "What the regression leaves, scaled"
        mean, covariance = self.moments.mean, self.moments.covariance
        n = self.lifted
        ridge = RIDGE * covariance[:n, :n].diagonal().mean().clamp(min=1e-8)
        gram = covariance[:n, :n] + ridge * torch.eye(n)
        map_ = torch.linalg.solve(gram, covariance[:n, n:])
        # the regression sends no gradient into f_sr
        predicted = (self.lift(related.detach()) - mean[:n]) @ map_
        rest = covariance[n:, n:] - covariance[n:, :n] @ map_
        return (agnostic - mean[n:] - predicted) @ self.scale(rest)

    def scale(self, rest: Tensor) -> Tensor:  # [D, D]
        "The matrix that scales the rest, of about this covariance"
        level = rest.diagonal().mean().clamp(min=1e-12)
        if not self.whiten:
            return torch.eye(len(rest)) * level.rsqrt()
        variance, directions = torch.linalg.eigh((rest + rest.T) / 2 + 1e-3 * level * torch.eye(len(rest)))
        # the first batches have fewer captions than directions, and rounding may make a variance negative
        return directions * variance.clamp(min=1e-4 * level).rsqrt() @ directions.T


class Bottleneck(nn.Module):
    "A few components, or one of a few codes, that tell the pooled state together with f_sr"

    def __init__(self, related: int, agnostic: int, state: int, discrete: bool):
        super().__init__()
        self.down = nn.Linear(agnostic, BOTTLENECK)
        self.codes = nn.Parameter(torch.randn(BOTTLENECK, BOTTLENECK)) if discrete else None
        self.decoder = nn.Sequential(nn.Linear(related + BOTTLENECK, 256), nn.ReLU(), nn.Linear(256, state))

    def forward(self, agnostic: Tensor) -> Tensor:
        code = self.down(agnostic)
        if self.codes is None:
            return code
        share = code.softmax(-1)
        chosen = F.one_hot(share.argmax(-1), BOTTLENECK).to(share.dtype)
        return (chosen + share - share.detach()) @ self.codes


class PairCritic(nn.Module):
    "Scores of every feature of a batch with every meaning"

    def __init__(self, agnostic: int, reference: int):
        super().__init__()
        self.of_agnostic = nn.Sequential(nn.Linear(agnostic, 256), nn.Tanh(), nn.Linear(256, 128))
        self.of_reference = nn.Sequential(nn.Linear(reference, 256), nn.Tanh(), nn.Linear(256, 128))

    def forward(self, agnostic: Tensor, reference: Tensor) -> Tensor:  # [B, B]
        agnostic = F.layer_norm(agnostic, agnostic.shape[-1:])
        return self.of_agnostic(agnostic) @ self.of_reference(F.normalize(reference, dim=-1)).T / 128**0.5


Design = Literal["linear", "whitened", "kernel", "reconstruction", "codes", "info_nce"]


@dataclass(frozen=True)
class DesignConfig(DASDConfig):
    "Settings of DASD with another f_sa"

    design: Design = "linear"


class DesignedDisentangler(Disentangler):
    "The paper's disentangler, with the meaning taken away from f_sa in another way"

    def __init__(self, design: Design, backbone, config, languages, n_tokens=0):
        super().__init__(backbone, config, languages, n_tokens)
        related, width = backbone.embed_dim, backbone.width
        self.squeeze = None
        if design in ("reconstruction", "codes"):
            self.squeeze = Bottleneck(related, width, width, design == "codes")
            self.agnostic_width = BOTTLENECK
        self.pair_critic = PairCritic(width, related) if design == "info_nce" else None
        self.complements = nn.ModuleDict()
        if design != "info_nce":
            options = dict(kernel=design == "kernel", whiten=design == "whitened")
            self.complements.update({code: Complement(related, width, **options) for code in languages})
        self.state: Tensor | None = None  # [B, D] pooled state of the last batch

    def forward(self, backbone, tokens, end_index, language, first=None, ids=None):
        related, agnostic = super().forward(backbone, tokens, end_index, language, first, ids)
        if language in self.complements:
            agnostic = self.complements[language](related, agnostic)
        if self.squeeze is not None:
            agnostic = self.squeeze(agnostic)
            self.state = self.pool(tokens if first is None else first, end_index).detach()
        return related, agnostic


@register_method
class DesignedDASD(DASD):
    "DASD with another f_sa"

    name = "dasd_design"
    config_class = DesignConfig
    config: DesignConfig

    def _disentangler(self) -> Disentangler:
        config = self.config
        return DesignedDisentangler(config.design, self.backbone, config.disentangler, self.languages, self.n_tokens)

    def training_features(self, batch: Mapping) -> dict[str, Tensor]:
        features = super().training_features(batch)
        own = self.disentangler
        agnostic = features["semantic_agnostic"]
        if own.squeeze is not None:
            both = torch.cat([features["semantic_related"].detach(), agnostic], -1)
            features |= dict(reconstructed=own.squeeze.decoder(both), pooled_state=own.state)
        if own.pair_critic is not None:
            meaning = features["source_features"]
            fixed = {name: value.detach() for name, value in own.pair_critic.named_parameters()}
            features["critic_scores"] = own.pair_critic(agnostic.detach(), meaning)
            features["judged_scores"] = functional_call(own.pair_critic, fixed, (agnostic, meaning))
        return features

    @torch.inference_mode()
    def refit(self, captions: list[str], language: str) -> None:
        "The regression of a language once more, over all of these captions at once"
        complements = self.disentangler.complements
        if language not in complements:
            return
        complement = complements[language]
        complement.moments = Moments(len(complement.moments.first))
        del complements[language]  # the features before it
        squeeze, self.disentangler.squeeze = self.disentangler.squeeze, None
        generator, self.generator = self.generator, None
        for start in range(0, len(captions), 500):
            ids, end_index = self.tokens(captions[start : start + 500])
            features = self.features(ids, end_index, language)
            complement.update(features["semantic_related"], features["semantic_agnostic"], memory=1)
        complements[language] = complement
        self.disentangler.squeeze, self.generator = squeeze, generator


@loss(reads=("reconstructed", "pooled_state"))
def reconstruction(features: Mapping[str, Tensor]) -> Tensor:
    "Share of the variance of the pooled state that is not told"
    told, state = named(features, "reconstructed", "pooled_state")
    return (told - state).square().sum() / (state - state.mean(0)).square().sum().clamp(min=1e-8)


@loss(reads=("critic_scores",))
def pair_critic(features: Mapping[str, Tensor]) -> Tensor:
    "The critic finds each caption's meaning in its batch (InfoNCE)"
    (scores,) = named(features, "critic_scores")
    return F.cross_entropy(scores, torch.arange(len(scores)))


@loss(reads=("judged_scores",))
def uniform_scores(features: Mapping[str, Tensor]) -> Tensor:
    "The branch aims at equal scores: the divergence of equal shares from the critic's"
    (scores,) = named(features, "judged_scores")
    return -scores.log_softmax(-1).mean() - torch.tensor(float(len(scores))).log()
