"""A plain training step: the loop of the authors' released code, as the reference for the savings of the lab's step

Read off the released code (commit of 4 January 2025) and the stored gradients of its reference run:
- every caption is padded to 77 tokens, and every position passes through every block;
- the source captions are encoded in every step by the whole frozen tower, without gradients;
- the two branches of the disentangler are two passes, although their first block reads the same input;
- the frozen tower is only left out of the optimizer: its gradients are computed in every step and never cleared;
- torch's Adam with its defaults, dense, over every row of mBERT's token vectors, whether a batch has read it or not.

Left out, all in favour of this step: tokenizing each batch (twice in the released code), the scaling of half precision
(here float32), and parameters that no forward pass reads. The model, its losses and its critic are in the paper's form,
as in the lab's step, so both learn the same numbers. Nothing of `dasd_lab.training` runs here except the losses."""

import torch
import torch.nn.functional as F
from torch.autograd.profiler import record_function

from dasd_lab.backbone.text_towers import at_end, real_tokens
from dasd_lab.training.losses import alignment, consistency, critic_loss

CONTEXT = 77  # tokens, CLIP's


class PlainStep:
    "A DASD method (paper's form, one block before the split) trained like the authors' loop"

    def __init__(self, method, rate: float):
        self.method = method
        self.open()
        own = [p for n, p in method.named_parameters() if not n.startswith(("backbone.", "critic."))]
        self.optimizer = torch.optim.Adam(own, lr=rate)
        self.critic_optimizer = torch.optim.Adam(method.critic.parameters(), lr=rate)

    def open(self) -> None:
        "Everything requires gradients; frozen parameters are only left out of the optimizer"
        self.method.requires_grad_(True).train()

    def ids(self, batch: dict):
        return F.pad(batch["ids"], (0, CONTEXT - batch["ids"].shape[1]))  # [B, 77]

    def source(self, batch: dict):  # r^S
        with torch.no_grad():
            return self.method.backbone.source_from_ids(batch["source_ids"], batch["source_end"])

    def split(self, apart, end, language: str) -> tuple:  # f^sr, f^sa
        "The two branches of the disentangler, one pass each"
        b = self.method.backbone
        d = self.method.disentangler
        related, agnostic = (
            adapters[language](b.block(0, b.start(apart, end), end))
            for adapters in (d.related_adapters, d.agnostic_adapters)
        )
        real = real_tokens(apart, end)[..., None]
        pooled = (d.agnostic_norm(agnostic) * real).sum(1) / real.sum(1)
        return d.related_projection(d.related_norm(at_end(related, end))), pooled

    def encoded(self, ids, end, language: str) -> tuple:  # r^T, f^sr, f^sa
        "Encode target captions, every position through every block"
        m = self.method
        b = self.method.backbone
        # `training.profiling` reads the names of the parts
        with record_function("part: token vectors"):
            vectors = m.token_vectors.embedding(ids)
            apart = m.token_vectors.disentangling(vectors)
            x = m.token_vectors.target(vectors)
        with record_function("part: disentangler"):
            f_sr, f_sa = self.split(apart, end, language)
        _, generated = m.generator(torch.cat([f_sr, f_sa], -1))
        x = b.start(x, end)
        for i in range(b.n_blocks):
            x = m.adapters[language][i](b.block(i, x, end), generated[:, i])
        return b.read_out(x, end), f_sr, f_sa

    def features(self, batch: dict) -> dict:  # name → features
        "Source captions, and target captions in three readings"
        target, related, agnostic = self.encoded(self.ids(batch), batch["end_index"], batch["language"])
        found = dict(target_features=target, semantic_related=related, semantic_agnostic=agnostic)
        return found | dict(source_features=self.source(batch))

    def __call__(self, batch: dict, step: int) -> torch.Tensor:  # the loss
        "One step; a batch has language, ids, end_index, source_ids, source_end"
        features = self.features(batch)
        source, agnostic = features["source_features"], features["semantic_agnostic"]
        generator = torch.Generator().manual_seed(step)
        other = source.roll(1 + int(torch.randint(len(source) - 1, (1,), generator=generator)), 0)

        def of_critic(f_sa):
            verdicts = [self.method.critic(f_sa, captions) for captions in (source, other)]
            return critic_loss(dict(zip(("matched_logits", "mismatched_logits"), verdicts)))

        of_critic(agnostic.detach()).backward()
        self.critic_optimizer.step()
        self.critic_optimizer.zero_grad()
        loss = alignment(features, "l2") + 0.1 * consistency(features) - of_critic(agnostic)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.critic_optimizer.zero_grad()
        return loss.detach()
