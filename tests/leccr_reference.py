"LECCR's stages and losses written out in float64, without the package, and cases of any size made from them"

import json
import math
import zlib

import numpy as np
import torch
import torch.nn.functional as F

BLOCK = {
    "attn.in.weight": (3, 1),
    "attn.in.bias": (3,),
    "attn.out.weight": (1, 1),
    "attn.out.bias": (1,),
    "mlp.fc1.weight": (1, 1),
    "mlp.fc1.bias": (1,),
    "mlp.fc2.weight": (1, 1),
    "mlp.fc2.bias": (1,),
    "norm.weight": (1,),
    "norm.bias": (1,),
}  # name → shape in widths


def unit(x):
    return F.normalize(x, dim=-1)


class Reference:
    "One case: its parameters `p` by their neutral names, its inputs `a` and its settings `c`"

    def __init__(self, c, p, a):
        self.c = c
        self.p = {k: torch.as_tensor(v).double() for k, v in p.items()}
        self.a = {k: torch.as_tensor(v) for k, v in a.items()}
        self.a |= {k: v.double() for k, v in self.a.items() if v.is_floating_point()}

    def linear(self, name, x):
        return x @ self.p[f"{name}.weight"].T + self.p[f"{name}.bias"]

    def attention(self, name, x, y, mask):
        "Multi-head attention, and its weights averaged over the heads"
        d = x.shape[-1]
        weight, bias = self.p[f"{name}.attn.in.weight"], self.p[f"{name}.attn.in.bias"]
        q, k, v = (t @ weight[i * d : (i + 1) * d].T + bias[i * d : (i + 1) * d] for i, t in enumerate((x, y, y)))
        q, k, v = (t.unflatten(-1, (self.c["heads"], -1)).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask.bool()[:, None, None], -math.inf)
        weights = scores.softmax(-1)
        return self.linear(f"{name}.attn.out", (weights @ v).transpose(1, 2).flatten(2)), weights.mean(1)

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self.p[f"{name}.norm.weight"], self.p[f"{name}.norm.bias"])

    def stack(self, name, x, y, mask=None, itself=False):
        "The blocks of a name, each with its output and its attention"
        out = []
        while f"{name}.layer{len(out)}.norm.bias" in self.p:
            layer = f"{name}.layer{len(out)}"
            met, weights = self.attention(layer, x, x if itself else y, mask)
            x = self.norm(layer, x + self.linear(f"{layer}.mlp.fc2", F.gelu(self.linear(f"{layer}.mlp.fc1", met))))
            out.append((x, weights))
        return out

    def literal(self, name, x, y, mask=None):
        "Eq. 6-7 as printed, one block"
        met, _ = self.attention(f"{name}.layer0", x, y, mask)
        return self.norm(f"{name}.layer0", self.linear(f"{name}.layer0.mlp.fc1", met)) + met

    @property
    def queries(self):
        return self.p["slots.queries"].expand(self.c["B"], -1, -1)

    def stages(self, video=False):
        "Everything before the losses"
        a = self.a
        mask = a["in/video_mask"] if video else None
        seen = a["in/Z_v"]
        if video:
            seen = self.stack("video", a["in/video_frames"], None, mask, itself=True)[-1][0]
        described = self.linear("slots.desc_proj", a["in/Z_c"])
        slots = self.stack("slots", self.queries, described, a["in/desc_mask"])
        M = slots[-1][0]
        c2v, v2c = self.stack("c2v", seen, M), self.stack("v2c", M, seen, mask)
        enhanced = c2v[-1][0]
        weight = mask.double()[..., None] if video else None
        pooled = (enhanced * weight).sum(1) / weight.sum(1) if video else enhanced[:, 0]
        h = dict(v=unit(self.linear("head.vision", pooled)))
        for k in ("s", "t"):
            h[k] = unit(self.linear("head.text", a[f"in/Z_{k}"][:, 0]))
        met = self.linear("head.slot", v2c[-1][0])
        return dict(Z_v=seen, desc=described, slots=slots, M=M, c2v=c2v, v2c=v2c, h=h, m=met)

    def cross(self, scores, target):
        "Cross-entropy of rows with target shares"
        return -(target * scores.log_softmax(1)).sum(1).mean()

    def official(self, s, idx, temp):
        "The losses of the released code: unweighted, and the five weighted terms with their sum"
        c, h = self.c, s["h"]
        same = (idx[:, None] == idx[None]).double()
        same = same / same.sum(1, keepdim=True)
        one = torch.eye(c["B"]).double()

        def both(scores, target):
            return (self.cross(scores, target) + self.cross(scores.T, target)) / 2

        loss = {f"L_{n}": both(h[x] @ h[y].T / temp, same) for n, x, y in (("vs", "v", "s"), ("vt", "v", "t"))}
        loss["L_ts_raw"] = both(h["t"] @ h["s"].T / temp, same)
        rows = {k: torch.einsum("jkd,id->jki", s["m"], h[k]).amax(1) for k in ("s", "t")}
        loss |= {f"L_{k}c": both(rows[k] / temp, one) for k in ("s", "t")}
        u = F.normalize(self.linear("cv.slot", s["M"]), dim=1)
        w = F.normalize(self.linear("cv.vision", s["Z_v"]), dim=1)
        cv = torch.einsum("ikd,jnd->ij", u, w) / (u.shape[1] * w.shape[1])
        loss["L_cv"] = self.cross(cv, same)
        soft = dict(S_sv_raw=h["s"] @ h["v"].T, S_sc_raw=rows["s"], S_tv=h["t"] @ h["v"].T)
        for k in ("sv", "sc"):
            raw = soft[f"S_{k}_raw"]
            soft[f"S_{k}_minmax"] = (raw - raw.min()) / (raw.max() - raw.min())
        soft["label_logits"] = c["alpha"] * soft["S_sv_minmax"] + (1 - c["alpha"]) * soft["S_sc_minmax"]
        soft["labels"] = soft["label_logits"].softmax(1).detach()
        soft["logprob_tv"] = soft["S_tv"].log_softmax(1)
        loss["L_rkt"] = (soft["labels"] * (soft["labels"].log() - soft["logprob_tv"])).sum(1).mean()
        slots = unit(s["M"])
        n = c["N_q"]
        loss["L_reg"] = ((slots @ slots.mT).sum((1, 2)) - n).sum() / (c["B"] * n * n)
        terms = dict(
            L_vs_plus_cv=loss["L_vs"] + c["w_cv"] * loss["L_cv"],
            L_vt_soft=(1 - c["w_dstl"]) * loss["L_vt"] + c["w_dstl"] * loss["L_rkt"],
            L_ts=loss["L_ts_raw"],
            L_c_weighted=c["w_c"] * (loss["L_sc"] + loss["L_tc"]),
            L_reg_weighted=c["w_reg"] * loss["L_reg"],
        )
        return loss, terms | dict(total=sum(terms.values())), soft, rows, cv

    def gradients(self, idx):
        "Gradients of the official total"
        temp = torch.tensor(self.c["temp"]).double().requires_grad_()
        own = ("slots.queries", "head.slot.weight", "head.vision.weight", "head.text.weight", "slots.desc_proj.weight")
        leaves = {k: self.p[k] for k in (*own, "cv.slot.weight")} | {
            k: self.a[f"in/{k}"] for k in ("Z_v", "Z_s", "Z_t")
        }
        for leaf in leaves.values():
            leaf.requires_grad_()
        total = self.official(self.stages(), idx, temp)[1]["total"]
        found = dict(zip((*leaves, "temp"), torch.autograd.grad(total, [*leaves.values(), temp])))
        for leaf in leaves.values():
            leaf.requires_grad_(False)
        return {k: v for k, v in found.items() if k not in ("Z_s", "Z_t")} | {
            f"{k}_cls": found[k][:, 0] for k in ("Z_s", "Z_t")
        }

    def paper(self, s):
        "Eq. 3, 8, 13-25 with one-hot targets"
        c, h, M, temp = self.c, s["h"], s["M"], self.c["temp"]
        one = torch.eye(c["B"]).double()

        def both(x, y):
            scores = h[x] @ h[y].T / temp
            return (self.cross(scores, one) + self.cross(scores.T, one)) / 2

        def apart(slots):
            p = (slots @ slots.mT).softmax(-1).diagonal(dim1=1, dim2=2)
            return -p.log().mean()

        f = {f"S_l_{k}": torch.einsum("jkd,id->ijk", unit(s["m"]), h[k]).amax(-1) for k in ("s", "t")}
        f["S_soft"] = c["alpha"] * h["s"] @ h["v"].T + (1 - c["alpha"]) * f["S_l_s"]
        f["y"] = (f["S_soft"] / temp).softmax(1)
        f["y_bar"] = (h["t"] @ h["v"].T / temp).softmax(1)
        f |= {f"L_{k}c": self.cross(f[f"S_l_{k}"] / temp, one) for k in ("s", "t")}
        f["L_c"] = (f["L_sc"] + f["L_tc"]) / 2
        f |= dict(L_vs=both("v", "s"), L_vt=both("v", "t"), L_ts=both("t", "s"))
        f["L_rkt"] = (f["y"] * (f["y"].log() - f["y_bar"].log())).sum(1).mean()
        f["L_vt_hat"] = c["lam"] * f["L_vt"] + (1 - c["lam"]) * f["L_rkt"]
        f["L_v"] = (f["L_vs"] + f["L_vt_hat"]) / 2
        f |= dict(L_reg_raw=apart(M), L_reg_raw_scaled=apart(M / c["d_v"] ** 0.5), L_reg_cosine=apart(unit(M)))
        f["total"] = f["L_ts"] + f["L_v"] + c["mu1"] * f["L_c"] + c["mu2"] * f["L_reg_raw"]
        f["S_final"] = c["beta_paper"] * h["t"] @ h["v"].T + (1 - c["beta_paper"]) * f["S_l_t"]
        h = h | dict(v=unit(self.linear("head.vision", s["Z_v"][:, 0])))
        f["L_base"] = both("v", "s") + both("t", "s") + both("v", "t")
        return f

    def arrays(self):
        "All arrays of a case but its inputs and metrics"
        a, c = self.a, self.c
        s = self.stages()
        out = dict(desc_proj=s["desc"], M=s["M"], Z_v_hat=s["c2v"][-1][0], M_hat=s["v2c"][-1][0], m_hat_proj=s["m"]) | {
            f"h_{k}": v for k, v in dict(s["h"], v_hat=s["h"]["v"]).items() if k != "v"
        }
        out["h_v_plain"] = unit(self.linear("head.vision", s["Z_v"][:, 0]))
        for layer, (x, weights) in enumerate(s["slots"]):
            out |= {f"slots_layer{layer}_out": x, f"slots_layer{layer}_attn": weights}
        for way in ("c2v", "v2c"):
            out |= {f"{way}_layer{layer}_attn": weights for layer, (_, weights) in enumerate(s[way])}
        out |= {f"S_g_{x}{y}": s["h"][x] @ s["h"][y].T for x, y in ("sv", "tv", "ts")}
        out = {f"stage/{k}": v for k, v in out.items()}
        for name, idx in (("unique", a["in/idx"]), ("dup", a["in/idx_dup"])):
            loss, terms, soft, rows, cv = self.official(s, idx, c["temp"])
            of_pairs = {k: loss[k] for k in ("L_vs", "L_vt", "L_ts_raw", "L_cv")}
            grads = {f"grad/{k}": v for k, v in self.gradients(idx).items()}
            out |= {f"code/{name}/{k}": v for k, v in (terms | of_pairs | grads).items()}
        out |= {f"code/{k}": loss[k] for k in ("L_reg", "L_sc", "L_tc", "L_rkt")} | {"code/cv_sim": cv}
        out |= {f"code/S_l_{k}_rows_are_slots": v for k, v in rows.items()}
        out |= {f"code/soft/{k}": v for k, v in soft.items()}
        joined = self.stack("coattn", torch.cat([s["Z_v"], s["M"]], 1), None, itself=True)[-1][0]
        out |= {"coattn/Z_v_hat": joined[:, : c["N_v"]], "coattn/M_hat": joined[:, c["N_v"] :]}
        slots = self.literal("slots", self.queries, s["desc"], a["in/desc_mask"])
        of_paper = self.paper(s) | {
            "literal/M": slots,
            "literal/Z_v_hat": self.literal("c2v", s["Z_v"], slots),
            "literal/M_hat": self.literal("v2c", slots, s["Z_v"]),
        }
        return out | {f"paper/{k}": v for k, v in of_paper.items()} | self.clips()

    def clips(self):
        "The arrays of the path of clips"
        s = self.stages(video=True)
        _, terms, _, rows, _ = self.official(s, self.a["in/idx"], self.c["temp"])
        out = dict(Z_v=s["Z_v"], M=s["M"], Z_v_hat=s["c2v"][-1][0], M_hat=s["v2c"][-1][0], h_v_hat=s["h"]["v"])

        def scaled(x):  # to [-1, 0]
            return (x - x.max()) / (x.max() - x.min())

        beta = self.c["beta_video_code"]
        scores = beta * scaled(s["h"]["t"] @ s["h"]["v"].T) + (1 - beta) * scaled(rows["t"].T)
        out |= dict(m_hat_proj=s["m"], score_t2v=scores, score_v2t=scores.T) | terms
        return {f"video/{k}": v for k, v in out.items()}


def parameter_shapes(c):
    "Name → shape of every parameter of a case"
    d, t, e = c["d_v"], c["d_t"], c["d_e"]
    shapes = {"slots.queries": (c["N_q"], d)}
    maps = {"slots.desc_proj": (d, t), "head.vision": (e, d), "head.text": (e, t), "head.slot": (e, d)}
    for name, (n_out, n_in) in (maps | {"cv.slot": (d, d), "cv.vision": (d, d)}).items():
        shapes |= {f"{name}.weight": (n_out, n_in), f"{name}.bias": (n_out,)}
    depths = dict(slots=c["slot_layers"], c2v=c["inter_layers"], v2c=c["inter_layers"], coattn=1, video=1)
    for name, depth in depths.items():
        for layer in range(depth):
            shapes |= {f"{name}.layer{layer}.{k}": tuple(n * d for n in shape) for k, shape in BLOCK.items()}
    return shapes


def drawn(name, shape):
    "An entry of a case's `state_dict`, and its values"
    scale = 1.0 if name == "slots.queries" else 0.05 if len(shape) == 1 else 1.2 * shape[-1] ** -0.5
    offset = 1.0 if name.endswith("norm.weight") else 0.0
    value = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape).astype(np.float32)
    value = value * np.float32(scale)
    value = value + np.float32(offset) if offset else value
    crc32 = zlib.crc32(np.ascontiguousarray(value, "<f4").tobytes())
    return dict(name=name, shape=list(shape), scale=scale, offset=offset, crc32=crc32), value


def recalls(scores, owner):
    "Recall arrays of images [N] against captions [C], where `owner` is the image of each caption"
    own = scores[owner, np.arange(len(owner))]
    text = np.array([(scores[:, k] >= own[k]).sum() - 1 for k in range(len(owner))])
    best = [max(scores[i, owner == i]) for i in range(len(scores))]
    image = np.array([(scores[i, owner != i] >= best[i]).sum() for i in range(len(scores))])
    found = {f"{k}_r{at}": 100 * (r < at).mean() for k, r in (("txt", image), ("img", text)) for at in (1, 5, 10)}
    return {f"metrics/{k}": np.float64(v) for k, v in (found | dict(sumr_sum=sum(found.values()))).items()}


def write_case(folder, c, pictures, captions_each):
    "A case of some sizes and weights as `case_<name>.json` and `.npz`"
    rng = np.random.RandomState(7)
    prefix = f"leccr_{c['case']}/"
    entries, p = [], {}
    for name, shape in parameter_shapes(c).items():
        entry, p[name] = drawn(prefix + name, shape)
        entries.append(entry)
    B = c["B"]
    shapes = dict(
        Z_v=(c["N_v"], c["d_v"]), Z_c=(c["N_c"], c["d_t"]), Z_s=(c["N_s"], c["d_t"]), Z_t=(c["N_t"], c["d_t"])
    )
    shapes["video_frames"] = shapes["Z_v"]
    a = {f"in/{k}": rng.standard_normal((B, *shape)).astype(np.float32) for k, shape in shapes.items()}
    for k, n in (("desc_mask", c["N_c"]), ("video_mask", c["N_v"])):
        a[f"in/{k}"] = (np.arange(n) < rng.randint(2, n + 1, B)[:, None]).astype(np.int64)
    a["in/idx"] = np.arange(B)
    a["in/idx_dup"] = np.array([0, *range(B - 1)])
    owner = rng.permutation(np.repeat(np.arange(pictures), captions_each))
    scores = rng.standard_normal((pictures, len(owner))).astype(np.float32)
    computed = {k: v.detach().float().numpy() for k, v in Reference(c, p, a).arrays().items()}
    metrics = {"metrics/scores_i2t": scores, "metrics/txt2img": owner} | recalls(scores, owner)
    path = folder / f"case_{c['case']}.json"
    path.write_text(json.dumps(dict(prefix=prefix, config=c, state_dict=entries)), encoding="utf-8")
    np.savez(path.with_suffix(".npz"), **a, **computed, **metrics)
    return path
