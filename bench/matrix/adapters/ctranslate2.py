"""CTranslate2 rotates inside of whole models only, so it is asked by one: a decoder of one layer in its own format.

The first token's key is a unit vector and its position is 0, so that it is not turned; the keys of the others are zero.
A query at position m that is a unit vector, too, has the score R_m[g, f] with that key, and 0 with the m others. The
weight of the first key over that of the others is exp(score) / m, and both weights are logits. A head reads one entry.
"""

from __future__ import annotations

import tempfile
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerDecoderModelSpec, attention_spec, common_spec

from case import Case, Floats, Positions, Refused, Rotate
from exact import pair_features

PACKAGE = "ctranslate2"
SHARPNESS = 8.0  # the largest score: weights of such scores are far from 0 and 1
LONGEST = 4096  # tokens; attention needs their square
MOST_SCORES = 1 << 27  # of a run, all heads together: half a GB
TOKENS = ("<unk>", "first", "later")
Entry = tuple[int, int, float]  # the feature of the query, that of the key, what their score is multiplied by


def rotary(case: Case) -> dict[str, Any]:
    """The arguments that its converters of Llama and Phi-3 give."""
    rope = case.rope
    types = attention_spec.RotaryScalingType
    scaling = {"default": None, "linear": types.Linear, "llama3": types.Llama3, "longrope": types.Su}[case.rope_type]
    lengths = {
        "original_max_position_embeddings": int(rope.get("original_max_position_embeddings", 0)),
        "max_position_embeddings": case.max_position_embeddings,
    }
    return {
        "rotary_dim": case.rotary_dim,
        "rotary_interleave": case.layout != "half",
        "rotary_base": case.base,
        "rotary_scaling_type": scaling,
        "rotary_scaling_factor": rope.get("factor", 1),
    } | (lengths if case.rope_type == "longrope" else {})


def model(case: Case, entries: list[Entry]) -> TransformerDecoderModelSpec:
    """A head for each entry. A logit for the weight of the first key, and one for that of the others."""
    heads, size = len(entries), case.head_dim
    words = [*TOKENS, *(f"{kind} {head}" for head in range(heads) for kind in ("first", "later"))]
    width = len(words)
    spec = TransformerDecoderModelSpec.from_config(
        1,
        heads,
        activation=common_spec.Activation.SWISH,
        ffn_glu=True,
        rms_norm=True,
        no_final_norm=True,
        head_dim=size,
        **rotary(case),
    )
    decoder, layer = spec.decoder, spec.decoder.layer[0]
    decoder.scale_embeddings = False
    decoder.embeddings.weight = np.zeros((width, width), np.float32)
    decoder.embeddings.weight[1, 1] = decoder.embeddings.weight[2, 2] = 1000.0  # the epsilon of the norm is nothing then
    decoder.projection.weight = np.eye(width, dtype=np.float32) * (np.arange(width) >= len(TOKENS))
    attention = layer.self_attention
    attention.layer_norm.gamma = np.full(width, width**-0.5, np.float32)
    q, k, v = (np.zeros((heads, size, width), np.float32) for _ in range(3))
    out = np.zeros((width, heads, size), np.float32)
    for head, (f, g, gain) in enumerate(entries):
        q[head, f, 2] = gain * size**0.5
        k[head, g, 1] = 1.0
        for feature, row in enumerate((len(TOKENS) + 2 * head, len(TOKENS) + 2 * head + 1)):
            v[head, feature, 1 + feature] = 1.0
            out[row, head, feature] = 1.0
    attention.linear[0].weight = np.concatenate([part.reshape(-1, width) for part in (q, k, v)])
    attention.linear[1].weight = out.reshape(width, -1)
    if case.rope_type == "llama3":
        attention.rotary_low_freq_factor = case.rope["low_freq_factor"]
        attention.rotary_high_freq_factor = case.rope["high_freq_factor"]
    if case.rope_type == "longrope":
        attention.rotary_scaling_long_factor = np.array(case.rope["long_factor"], np.float32)
        attention.rotary_scaling_short_factor = np.array(case.rope["short_factor"], np.float32)
    layer.ffn.layer_norm.gamma = np.ones(width, np.float32)
    layer.ffn.linear_0.weight = layer.ffn.linear_0_noact.weight = np.zeros((1, width), np.float32)
    layer.ffn.linear_1.weight = np.zeros((width, 1), np.float32)
    spec.register_vocabulary(words)
    spec.config.unk_token = spec.config.eos_token = spec.config.bos_token = TOKENS[0]
    return spec


def measured(case: Case, entries: list[Entry], positions: Positions) -> np.ndarray:
    """R_m[g, f] as [positions, entries]."""
    length = int(positions.max()) + 1
    at_once = max(1, min(64, MOST_SCORES // length**2))
    found = []
    for start in range(0, len(entries), at_once):
        with tempfile.TemporaryDirectory() as folder:
            spec = model(case, entries[start : start + at_once])
            spec.validate()
            spec.save(folder)
            generator = ctranslate2.Generator(folder, compute_type="float32", intra_threads=1)
            logits = generator.forward_batch([["first"] + ["later"] * (length - 1)])
        weights = np.array(logits)[0, positions, len(TOKENS) :].astype(np.float64)
        found.append(np.log(weights[:, 0::2] / weights[:, 1::2] * positions[:, None]))
    return np.concatenate(found, axis=1) / np.array([gain for _, _, gain in entries])


def layout(case: Case) -> str:
    """From where the first features of both layouts go at position 1."""
    size, pairs = case.head_dim, case.rotary_dim // 2
    entries = [(0, g, SHARPNESS) for g in range(size)]
    image = measured(case, entries, np.array([1]))[0]
    moved = [g for g in range(1, size) if abs(image[g]) > 1e-4]
    for name in ("half", "interleaved"):
        if moved == [int(pair_features(name, pairs)[3][0])]:
            return name
    raise RuntimeError(f"feature 0 goes to features {moved}")


def make(case: Case) -> Rotate:
    case.needs("default", "linear", "llama3", "longrope")

    def rotate(x: Floats, positions: Positions) -> Floats:
        longest = LONGEST if case.name.endswith("base500000") else 1024  # a long text takes a minute
        if positions.min() < 0:
            raise Refused("positions are counted from 0")
        if positions.max() >= longest:
            raise Refused(f"a position is reached by a text of that length only; {longest} tokens were run")
        pairs = case.rotary_dim // 2
        a, b, to_a, to_b = pair_features(layout(case), pairs)
        # The sine of a slow pair is small; a larger factor keeps its digits.
        largest = np.minimum(1.0, np.maximum(1e-12, positions.max() * np.array(case.frequencies)))
        entries = [(int(f), int(g), SHARPNESS) for f, g in zip(a, to_a)]
        entries += [(int(f), int(g), SHARPNESS / float(most)) for f, g, most in zip(a, to_b, largest)]
        cos, sin = np.ones((len(positions), pairs)), np.zeros((len(positions), pairs))
        later = positions > 0  # position 0 is that of the key: what is measured is the rotation from there
        cos[later], sin[later] = np.split(measured(case, entries, positions[later]), 2, axis=1)
        # Query and key both have the amplitude (LongRoPE).
        amplitude = float(np.median(np.hypot(cos[later], sin[later]))) ** 0.5
        cos, sin = cos / amplitude, sin / amplitude
        cos[~later] = amplitude
        y = x.astype(np.float64)
        first, second = y[..., a].copy(), y[..., b].copy()
        y[..., to_a] = first * cos[:, None] - second * sin[:, None]
        y[..., to_b] = first * sin[:, None] + second * cos[:, None]
        return y.astype(np.float32)

    return rotate


VARIANTS = {"a decoder of one layer": make}
