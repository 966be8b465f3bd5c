"""phasor.torch.rotary_embedding_torch against the original from PyPI."""

from __future__ import annotations

from typing import Any

import einops
import phasor
import pytest
import rotary_embedding_torch as original_ret
import torch
from compared import near, randn, same_gradients
from phasor.torch import rotary_embedding_torch as our_ret

MODULES: list[dict[str, Any]] = [
    {},
    {"theta": 500.0, "theta_rescale_factor": 3.0},
    {"interpolate_factor": 2.0},
    {"freqs_for": "pixel", "max_freq": 4},
    {"freqs_for": "constant", "num_freqs": 4},
    {"custom_freqs": torch.linspace(0.1, 1.0, 4)},
    {"cache_if_possible": False},
    {"learned_freq": True},
]


@pytest.mark.parametrize("settings", MODULES, ids=lambda settings: ", ".join(settings) or "default")
def test_ret_queries_and_keys(settings: dict[str, Any]) -> None:
    ours, theirs = our_ret.RotaryEmbedding(8, **settings), original_ret.RotaryEmbedding(8, **settings)
    near(ours.freqs.detach(), theirs.freqs.detach(), 4)
    for shape, seq_dim in (((2, 3, 9, 8), None), ((3, 9, 8), None), ((2, 9, 3, 12), -3), ((2, 3, 9, 12), 2)):
        if seq_dim == 2:
            seq_dim = -2  # the original counts from the back
        t = randn(*shape)
        for offset in (0, 5):
            near(
                ours.rotate_queries_or_keys(t, seq_dim, offset).detach(),
                theirs.rotate_queries_or_keys(t, seq_dim, offset).detach(),
                256,
            )
    q, k = randn(1, 2, 3, 8), randn(1, 2, 7, 8, seed=1)
    pairs = zip(ours.rotate_queries_with_cached_keys(q, k), theirs.rotate_queries_with_cached_keys(q, k), strict=True)
    for a, b in pairs:
        near(a.detach(), b.detach(), 256)


def test_ret_loads_a_checkpoint_and_what_it_trained() -> None:
    theirs = original_ret.RotaryEmbedding(8, learned_freq=True)
    with torch.no_grad():
        theirs.freqs.mul_(1.25)
    ours = our_ret.RotaryEmbedding(8)
    t = randn(1, 2, 6, 8)
    before = ours.rotate_queries_or_keys(t)
    ours.load_state_dict(theirs.state_dict())
    near(ours.rotate_queries_or_keys(t), theirs.rotate_queries_or_keys(t).detach(), 64)
    assert not torch.allclose(before, ours.rotate_queries_or_keys(t))


def test_ret_learned_frequencies_get_their_gradient() -> None:
    ours, theirs = (lib.RotaryEmbedding(8, learned_freq=True) for lib in (our_ret, original_ret))
    t = randn(2, 3, 9, 8)
    for module in (ours, theirs):
        (module.rotate_queries_or_keys(t) * randn(2, 3, 9, 8, seed=1)).sum().backward()
    assert ours.freqs.grad is not None
    torch.testing.assert_close(ours.freqs.grad, theirs.freqs.grad, rtol=1e-4, atol=1e-4)


def test_ret_xpos() -> None:
    for before in (False, True):
        settings = {"use_xpos": True, "xpos_scale_base": 8, "seq_before_head_dim": before}
        ours, theirs = our_ret.RotaryEmbedding(8, **settings), original_ret.RotaryEmbedding(8, **settings)
        q, k = randn(2, 5, 5, 8), randn(2, 5, 5, 8, seed=1)
        for a, b in zip(ours.rotate_queries_and_keys(q, k), theirs.rotate_queries_and_keys(q, k), strict=True):
            near(a, b, 64)
        positions = ours.get_seq_pos(5)
        near(ours.get_scale(positions), theirs.get_scale(positions.float()), 16)
    settings = {"use_xpos": True}
    ours, theirs = our_ret.RotaryEmbedding(8, **settings), original_ret.RotaryEmbedding(8, **settings)
    q, k = randn(1, 2, 3, 8), randn(1, 2, 7, 8, seed=1)
    pairs = zip(ours.rotate_queries_with_cached_keys(q, k), theirs.rotate_queries_with_cached_keys(q, k), strict=True)
    for a, b in pairs:
        near(a, b, 64)
    with pytest.raises(phasor.Error, match="scale .*rotate_queries_and_keys"):
        ours.rotate_queries_or_keys(q)


@pytest.mark.parametrize("freqs_for", ["pixel", "lang"])
def test_ret_axial(freqs_for: Any) -> None:
    settings = {"freqs_for": freqs_for, "max_freq": 10, "cache_if_possible": False}
    ours, theirs = our_ret.RotaryEmbedding(8, **settings), original_ret.RotaryEmbedding(8, **settings)
    for offsets in (None, (2.0, 3.0)):
        near(
            ours.get_axial_freqs(4, 6, offsets=offsets).detach(),
            theirs.get_axial_freqs(4, 6, offsets=offsets).detach(),
            64,
        )
    freqs = theirs.get_axial_freqs(4, 6).detach()
    for shape in ((2, 4, 6, 16), (2, 3, 4, 6, 20)):
        t = randn(*shape)
        near(our_ret.apply_rotary_emb(freqs, t), original_ret.apply_rotary_emb(freqs, t), 64)


def test_ret_free_functions() -> None:
    module = original_ret.RotaryEmbedding(8)
    freqs = module(torch.arange(20).float())
    t = randn(2, 3, 9, 14)
    cases: list[dict[str, Any]] = [{}, {"start_index": 3}, {"scale": 0.5}]
    for choices in cases:
        near(our_ret.apply_rotary_emb(freqs, t, **choices), original_ret.apply_rotary_emb(freqs, t, **choices), 64)
    grow = randn(9, 4).abs().repeat_interleave(2, -1)
    near(our_ret.apply_rotary_emb(freqs, t, scale=grow), original_ret.apply_rotary_emb(freqs, t, scale=grow), 64)
    per_batch = randn(2, 1, 9, 4).repeat_interleave(2, -1)
    near(our_ret.apply_rotary_emb(per_batch, t), original_ret.apply_rotary_emb(per_batch, t), 64)
    middle = randn(3, 1, 4).repeat_interleave(2, -1)
    near(our_ret.apply_rotary_emb(middle, t), original_ret.apply_rotary_emb(middle, t), 64)
    same_gradients(
        lambda f, t: our_ret.apply_rotary_emb(f.repeat_interleave(2, -1), t),
        lambda f, t: original_ret.apply_rotary_emb(f.repeat_interleave(2, -1), t),
        randn(9, 4),
        t,
    )
    rotations = randn(2, 3, 9, 2)
    near(
        our_ret.apply_learned_rotations(rotations, t, freq_ranges=torch.tensor([1.0, 2.0])),
        original_ret.rotary_embedding_torch.apply_learned_rotations(rotations, t, freq_ranges=torch.tensor([1.0, 2.0])),
        64,
    )


def test_ret_reads_every_feature_of_freqs_and_scale() -> None:
    t, freqs, scale = randn(2, 3, 9, 8), randn(9, 6, seed=1), randn(9, 6, seed=2)
    alike = freqs[:, ::2].repeat_interleave(2, -1)
    for angles in (freqs, alike):
        for grow in (1.0, scale, scale[:1], scale[0], scale[:, :1], scale[:, ::2].repeat_interleave(2, -1)):
            for start in (0, 1, -7):
                given = {"scale": grow, "start_index": start}
                near(our_ret.apply_rotary_emb(angles, t, **given), original_ret.apply_rotary_emb(angles, t, **given))
    same_gradients(our_ret.apply_rotary_emb, original_ret.apply_rotary_emb, alike, t)
    settings = [lib.RotaryEmbedding(8, use_xpos=True) for lib in (our_ret, original_ret)]
    near(*(module.rotate_queries_or_keys(t, scale=randn(9, 8)) for module in settings), 64)
    for wrong in ({"freqs": freqs[:, :5]}, {"scale": scale[:, :3]}, {"start_index": 3}, {"freqs": randn(4, 9, 6)}):
        given = {"freqs": freqs, "t": t, **wrong}
        with pytest.raises(phasor.Error) as refused:
            our_ret.apply_rotary_emb(**given)
        assert refused.value.code == "shape_mismatch"
        with pytest.raises((RuntimeError, einops.EinopsError)):
            original_ret.apply_rotary_emb(**given)


def test_ret_counts_positions_exactly_in_bfloat16() -> None:
    """After position 256 the original's bfloat16 positions repeat; ours equal those of float32 queries."""
    ours, theirs = our_ret.RotaryEmbedding(8), original_ret.RotaryEmbedding(8, cache_if_possible=False)
    t = randn(1, 1, 400, 8, dtype=torch.bfloat16)
    expected = ours.rotate_queries_or_keys(t.float())
    assert float((ours.rotate_queries_or_keys(t).float() - expected).abs().max()) < 0.05
    assert float((theirs.rotate_queries_or_keys(t).float() - expected).abs().max()) > 0.5
