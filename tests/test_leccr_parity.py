"""LECCR reproduces the tensors of the authors' code (form `official`) and of the paper's equations (form `paper`)"""

import json
import zlib
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from parity import close

from dasd_lab.base.presets import load_preset, settings, vary
from dasd_lab.evaluation.retrieval import rank
from dasd_lab.evaluation.tables import tables_of
from dasd_lab.methods.leccr.interaction import (
    Interaction,
    InteractionConfig,
    VisionConfig,
    VisualSide,
    fused_scores,
    slot_scores,
)
from dasd_lab.methods.leccr.slots import BlockConfig, SlotsConfig
from dasd_lab.training.losses import LOSSES
from dasd_lab.training.matching import cosines, min_max, softened
from dasd_lab.training.stages import Stage, stage_loss

METHOD = "leccr"  # method of the cases
# modules that compute the compared tensors
COMPUTES = ("methods.leccr.slots", "methods.leccr.interaction", "training.matching")
BLOCK = {
    "attn.in.weight": "attention.in_proj_weight",
    "attn.in.bias": "attention.in_proj_bias",
    "attn.out.weight": "attention.out_proj.weight",
    "attn.out.bias": "attention.out_proj.bias",
    "mlp.fc1": "first",
    "mlp.fc2": "second",
    "norm": "norm",
}
PLACES = {
    "slots.queries": "slots.queries",
    "slots.desc_proj": "projection",
    "slots": "slots.stack",
    "c2v": "interaction.c2v",
    "v2c": "interaction.v2c",
    "coattn": "interaction.both",
    "video": "vision",
    "head.vision": "head",
    "head.slot": "slot_head",
    "cv.slot": "slot_map",
    "cv.vision": "token_map",
}


def ours(name):
    "Our name of a parameter of the case"
    first, *rest = name.split(".layer")
    if rest:
        i, _, part = rest[0].partition(".")
        return f"{PLACES[first]}.{i}." + (
            BLOCK[part] if part in BLOCK else BLOCK[part.rsplit(".", 1)[0]] + "." + part.rsplit(".", 1)[1]
        )
    return PLACES[name] if name in PLACES else f"{PLACES[name.rsplit('.', 1)[0]]}.{name.rsplit('.', 1)[1]}"


def drawn(entries, prefix):
    "The parameters of a case, made from their names"
    found = {}
    for e in entries:
        value = np.random.RandomState(zlib.crc32(e["name"].encode())).standard_normal(e["shape"]).astype(
            np.float32
        ) * np.float32(e["scale"])
        if e["offset"]:
            value = value + np.float32(e["offset"])
        assert zlib.crc32(np.ascontiguousarray(value, "<f4").tobytes()) == e["crc32"], e["name"]
        found[e["name"].removeprefix(prefix)] = torch.from_numpy(value)
    return found


@pytest.fixture(scope="module")
def golden(case_path):
    case = json.loads(case_path.read_text(encoding="utf-8"))
    with np.load(case_path.with_suffix(".npz")) as z:
        arrays = {k: torch.from_numpy(z[k]) for k in z.files}
    return SimpleNamespace(
        case=case, c=SimpleNamespace(**case["config"]), a=arrays, state=drawn(case["state_dict"], case["prefix"])
    )


def depth(g, name):
    "Number of blocks of a part in the case"
    return len({k.split(".")[1] for k in g.state if k.startswith(f"{name}.layer")})


def side(g, direction="dual", form="official", video=False, layers=None):
    "The visual side with the weights of the case"
    c = g.c
    found = VisualSide(
        c.d_v,
        c.d_t,
        c.d_e,
        vision=VisionConfig("frames", depth(g, "video"), "mean") if video else VisionConfig(),
        slots=SlotsConfig(c.N_q, layers or c.slot_layers),
        interaction=InteractionConfig(direction, layers or c.inter_layers),
        block=BlockConfig(c.heads, form=form),
        maps=True,
    ).eval()
    wanted = set(found.state_dict())
    state = {ours(k): v for k, v in g.state.items() if k != "head.text.weight" and k != "head.text.bias"}
    assert wanted <= set(state), wanted - set(state)
    found.load_state_dict({k: state[k] for k in wanted})
    return found


def features(g, video=False, duplicates=False, leaves=(), **options):
    "The named features that losses are computed from, as LECCR returns them; `leaves` get gradients"
    visual = side(g, video=video, **options)
    a = {k: v.clone().requires_grad_(k in leaves) for k, v in g.a.items() if k.startswith("in/Z")}
    text = torch.nn.Linear(g.c.d_t, g.c.d_e)
    text.load_state_dict(dict(weight=g.state["head.text.weight"], bias=g.state["head.text.bias"]))
    heat = torch.nn.Parameter(torch.tensor(g.c.temp))
    trace = []
    seen = (g.a["in/video_frames"], g.a["in/video_mask"].bool()) if video else (a["in/Z_v"], None)
    found = visual(*seen, a["in/Z_c"], g.a["in/desc_mask"].bool(), trace)
    found |= dict(
        source_features=text(a["in/Z_s"][:, 0]),
        target_features=text(a["in/Z_t"][:, 0]),
        temperature=heat.expand(g.c.B),
        visual_index=g.a["in/idx_dup" if duplicates else "in/idx"],
    )
    return found, SimpleNamespace(visual=visual, text=text, heat=heat, inputs=a, trace=trace)


def weights_of(g, form):
    "Term → weight in the case, in a form's own scale"
    c = g.c
    if form == "official":
        matching = dict(source_visual=1.0, target_visual=1 - c.w_dstl, softened=c.w_dstl, slots_visual=c.w_cv)
        return matching | dict(target_source=1.0, source_slots=c.w_c, target_slots=c.w_c, slots_differ=c.w_reg)
    matching = dict(source_visual=0.5, target_visual=c.lam / 2, softened=(1 - c.lam) / 2)
    return matching | dict(target_source=1.0, source_slots=c.mu1 / 2, target_slots=c.mu1 / 2, slots_differ=c.mu2)


def stage(g, form):
    "The joint stage of a preset with the weights and α of the case"
    preset = load_preset(f"leccr.{form}")["stages"][0]
    weights = weights_of(g, form)
    assert {t["name"] for t in preset["terms"]} == set(weights)
    terms = [t | dict(weight=weights[t["name"]]) for t in preset["terms"]]
    for t in terms:
        if t["name"] == "softened":
            t["options"] = t["options"] | dict(alpha=g.c.alpha)
    return settings(Stage, preset | dict(terms=terms))


@pytest.mark.parametrize("form", ["official", "paper"])
def test_weights_of_the_presets(golden, form):
    "Case a has the weights of the released configuration and of the paper"
    if golden.c.case != "a":
        pytest.skip("the weights of other cases are their own")
    preset = settings(Stage, load_preset(f"leccr.{form}")["stages"][0])
    assert {t.called: t.weight for t in preset.terms} == pytest.approx(weights_of(golden, form))
    assert stage(golden, form).terms == preset.terms


def test_stages_of_the_model(golden):
    a, (f, m) = golden.a, features(golden)
    desc = m.visual.projection(a["in/Z_c"])
    mask = a["in/desc_mask"].bool()
    trace = []
    close(desc, a["stage/desc_proj"], "projected description")
    m.visual.slots(desc, mask, trace)
    for layer, (out, weights) in enumerate(trace):
        close(out, a[f"stage/slots_layer{layer}_out"], ("slots", layer))
        close(weights, a[f"stage/slots_layer{layer}_attn"], ("attention", layer))
    assert (trace[-1][1][~mask[:, None].expand_as(trace[-1][1])] == 0).all()
    close(f["semantic_slots"], a["stage/M"], "M")
    for way, args in (("c2v", (a["in/Z_v"], a["stage/M"])), ("v2c", (a["stage/M"], a["in/Z_v"]))):
        steps = []
        found = getattr(m.visual.interaction, way)(*args, trace=steps)
        close(found, a[dict(c2v="stage/Z_v_hat", v2c="stage/M_hat")[way]], way)
        for layer, (_, weights) in enumerate(steps):
            close(weights, a[f"stage/{way}_layer{layer}_attn"], (way, layer))
    close(m.trace[-1][1], a[f"stage/v2c_layer{golden.c.inter_layers - 1}_attn"], "attention")

    def unit(x):
        return F.normalize(x, dim=-1)

    for k, ours in dict(
        h_v_hat=unit(f["visual_features"]),
        h_s=unit(f["source_features"]),
        h_t=unit(f["target_features"]),
        m_hat_proj=f["slot_features"],
        h_v_plain=unit(m.visual.head(a["in/Z_v"][:, 0])),
    ).items():
        close(ours, a[f"stage/{k}"], k)
    for k, (x, y) in dict(sv=("source", "visual"), tv=("target", "visual"), ts=("target", "source")).items():
        close(cosines(f, f"{x}_features", f"{y}_features"), a[f"stage/S_g_{k}"], k)


def test_co_attention(golden):
    c = golden.c
    block = Interaction(c.d_v, InteractionConfig("coattention", depth(golden, "coattn")), BlockConfig(c.heads)).eval()
    block.load_state_dict(
        {ours(k).removeprefix("interaction."): v for k, v in golden.state.items() if k.startswith("coattn")}
    )
    for found, k in zip(block(golden.a["in/Z_v"], golden.a["stage/M"]), ("Z_v_hat", "M_hat")):
        close(found, golden.a[f"coattn/{k}"], k)


def test_the_printed_block(golden):
    "Eq. 5-7 and 9-10 to the letter, one block each"
    visual = side(golden, form="literal", layers=1).double()
    a = {k: v.double() for k, v in golden.a.items()}
    slots = visual.slots(visual.projection(a["in/Z_c"]), a["in/desc_mask"].bool())
    close(slots, a["paper/literal/M"], "M")
    for found, k in zip(visual.interaction(a["in/Z_v"], slots), ("Z_v_hat", "M_hat")):
        close(found, a[f"paper/literal/{k}"], k)


def test_similarities_and_soft_targets_of_the_code(golden):
    a, (f, _) = golden.a, features(golden)

    def raw(text):
        return slot_scores(f[text], f["slot_features"], None, "raw").T

    for k, text in (("s", "source_features"), ("t", "target_features")):
        close(raw(text), a[f"code/S_l_{k}_rows_are_slots"], k)
    seen = cosines(f, "source_features", "visual_features")
    student = cosines(f, "target_features", "visual_features")
    for k, ours in dict(
        S_sv_raw=seen,
        S_sc_raw=raw("source_features"),
        S_sv_minmax=min_max(seen),
        S_sc_minmax=min_max(raw("source_features")),
        S_tv=student,
        logprob_tv=student.log_softmax(-1),
        label_logits=golden.c.alpha * min_max(seen) + (1 - golden.c.alpha) * min_max(raw("source_features")),
        labels=softened(f, golden.c.alpha, "official", 1.0),
    ).items():
        close(ours, a[f"code/soft/{k}"], k)
    u, w = (F.normalize(f[k], dim=1).mean(1) for k in ("slot_map", "token_map"))
    close(u @ w.T, a["code/cv_sim"], "cv_sim")


@pytest.mark.parametrize("given", ["unique", "dup", "video"])
def test_losses_of_the_code(golden, given):
    "The terms of `leccr.official` on the features of the case: each one, their weighted sum and its gradients"
    a = golden.a
    f, m = features(golden, given == "video", given == "dup", leaves=("in/Z_v", "in/Z_s", "in/Z_t"))
    s = stage(golden, "official")
    total, report = stage_loss(s, f)
    weight = {t.called: t.weight for t in s.terms}
    for k, name in dict(L_reg="slots_differ", L_sc="source_slots", L_tc="target_slots", L_rkt="softened").items():
        if given != "video":
            close(report[name], a[f"code/{k}"], k)
    at = f"code/{given}" if given != "video" else "video"
    if given != "video":
        for k, name in dict(
            L_vs="source_visual", L_vt="target_visual", L_ts_raw="target_source", L_cv="slots_visual"
        ).items():
            close(report[name], a[f"{at}/{k}"], k)

    def together(*names):
        return sum(weight[n] * report[n] for n in names)

    for k, names in dict(
        L_vs_plus_cv=("source_visual", "slots_visual"),
        L_vt_soft=("target_visual", "softened"),
        L_ts=("target_source",),
        L_c_weighted=("source_slots", "target_slots"),
        L_reg_weighted=("slots_differ",),
    ).items():
        close(together(*names), a[f"{at}/{k}"], k)
    close(total, a[f"{at}/total"], "total")
    if given == "video":
        return
    total.backward()
    v = m.visual
    found = {
        "slots.queries": v.slots.queries,
        "head.slot.weight": v.slot_head.weight,
        "head.vision.weight": v.head.weight,
        "head.text.weight": m.text.weight,
        "slots.desc_proj.weight": v.projection.weight,
        "cv.slot.weight": v.slot_map.weight,
        "temp": m.heat,
        "Z_v": m.inputs["in/Z_v"],
    }
    stored = {k.removeprefix(f"{at}/grad/") for k in a if k.startswith(f"{at}/grad/")}
    assert stored == set(found) | {"Z_s_cls", "Z_t_cls"}
    for k, p in found.items():
        close(p.grad, a[f"{at}/grad/{k}"], k, group="gradients of the code")
    for k in ("s", "t"):
        close(m.inputs[f"in/Z_{k}"].grad[:, 0], a[f"{at}/grad/Z_{k}_cls"], k, group="gradients of the code")


def test_the_path_of_clips(golden):
    a, (f, m) = golden.a, features(golden, video=True)
    mask = a["in/video_mask"].bool()
    seen = m.visual.vision(a["in/video_frames"], None, mask)
    close(seen, a["video/Z_v"], "Z_v")
    enhanced, met = m.visual.interaction(seen, f["semantic_slots"], mask)
    for k, ours in dict(
        M=f["semantic_slots"],
        Z_v_hat=enhanced,
        M_hat=met,
        h_v_hat=F.normalize(f["visual_features"], dim=-1),
        m_hat_proj=f["slot_features"],
    ).items():
        close(ours, a[f"video/{k}"], k)
    scores = fused_scores(
        cosines(f, "target_features", "visual_features"),
        slot_scores(f["target_features"], f["slot_features"], None, "raw"),
        golden.c.beta_video_code,
        scaled=True,
    )
    close(scores, a["video/score_t2v"], "t2v")
    close(scores.T, a["video/score_v2t"], "v2t")


def test_losses_of_the_paper(golden):
    "The terms of `leccr.paper` on the stage outputs of the code, with Eq. 8 as printed and one picture a caption"
    f, _ = features(golden)
    f = {k: v.detach().double() for k, v in f.items()}
    compare_similarities(golden, f)
    compare_terms(golden, f)


def compare_similarities(golden, f):
    "Similarities, soft targets and slot diversity of the paper"
    a = golden.a
    g = golden.c
    for k in ("source", "target"):
        close(slot_scores(f[f"{k}_features"], f["slot_features"]), a[f"paper/S_l_{k[0]}"], f"S_l {k}")
    close(softened(f, g.alpha, "paper", g.temp), a["paper/y"], "y")
    close((cosines(f, "target_features", "visual_features") / g.temp).softmax(-1), a["paper/y_bar"], "y_bar")
    close(
        g.alpha * cosines(f, "source_features", "visual_features")
        + (1 - g.alpha) * slot_scores(f["source_features"], f["slot_features"]),
        a["paper/S_soft"],
        "S_soft",
    )
    for form, k in (("paper", "raw"), ("unit", "cosine")):
        close(LOSSES["slot_diversity"](f, form), a[f"paper/L_reg_{k}"], k)
    close(
        LOSSES["slot_diversity"](f | dict(semantic_slots=f["semantic_slots"] / g.d_v**0.5), "paper"),
        a["paper/L_reg_raw_scaled"],
        "L_reg_raw_scaled",
    )


def compare_terms(golden, f):
    "Loss terms, their weighted sum and the final score of the paper"
    a = golden.a
    g = golden.c
    s = stage(golden, "paper")
    total, report = stage_loss(s, f)
    weight = {t.called: t.weight for t in s.terms}
    for k, name in dict(
        L_sc="source_slots",
        L_tc="target_slots",
        L_vs="source_visual",
        L_vt="target_visual",
        L_ts="target_source",
        L_rkt="softened",
    ).items():
        close(report[name], a[f"paper/{k}"], k)

    def part(*names):
        return sum(weight[n] * report[n] for n in names)

    close(part("source_slots", "target_slots"), g.mu1 * a["paper/L_c"], "L_c")
    close(2 * part("target_visual", "softened"), a["paper/L_vt_hat"], "L_vt_hat")
    close(part("source_visual", "target_visual", "softened"), a["paper/L_v"], "L_v")
    close(total - part("slots_differ") + g.mu2 * LOSSES["slot_diversity"](f, "paper"), a["paper/total"], "total")
    close(
        fused_scores(
            cosines(f, "target_features", "visual_features"),
            slot_scores(f["target_features"], f["slot_features"]),
            g.beta_paper,
        ),
        a["paper/S_final"],
        "S_final",
    )


def test_the_baseline_of_the_paper(golden):
    "Table 4, first row: no description, no slots (Eq. 3)"
    c = golden.c
    f, m = features(golden)
    f = {k: v.detach() for k, v in f.items()}
    plain = VisualSide(c.d_v, c.d_t, c.d_e, "none").eval()
    plain.head.load_state_dict(m.visual.head.state_dict())
    f |= plain(golden.a["in/Z_v"])
    preset = load_preset("leccr.paper")
    changes = {row.name: row.changes for row in tables_of(preset)["4"].rows(preset, None)}
    total, _ = stage_loss(settings(Stage, vary(preset, changes["baseline"])["stages"][0]), f)
    close(total, golden.a["paper/L_base"], "L_base")


def test_recall(golden):
    "Several captions a picture: it is found at the best of them, ties apart"
    a = golden.a
    scores = a["metrics/scores_i2t"].T
    found = rank(
        lambda text, visuals: text @ visuals["features"].T,
        scores,
        dict(features=torch.eye(scores.shape[1])),
        a["metrics/txt2img"].long().tolist(),
    )
    sums = 0.0
    for way, k in (("image_to_text", "txt"), ("text_to_image", "img")):
        for at in (1, 5, 10):
            value = 100 * (getattr(found, way) < at).double().mean()
            sums += value
            close(value, a[f"metrics/{k}_r{at}"], (way, at))
    close(sums, a["metrics/sumr_sum"], "SumR")
