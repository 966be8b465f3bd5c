"""attention and attention_backward: golden values, plain formulas, views, types and refusals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import phasor
import pytest
from attention_formula import Array, causal_mask, hidden, normal, plain
from golden_cases import Case, case, cases


def encoding_of(golden: Case, tables: dict[str, Any]) -> phasor.Encoding | None:
    name = golden.json["encoding"]
    if name == "rope":
        config = {key: value for key, value in golden.json["config"].items() if value is not None}
        return phasor.Encoding("rope", layout=golden.json["layout"], config=config)
    if name == "xpos":
        return phasor.Encoding("xpos", layout=golden.json["layout"], **golden.members())
    return None if name == "none" else phasor.Encoding(name, **golden.members(), **tables)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("golden", cases("gradients/grad_*"), ids=lambda golden: golden.name)
def test_golden_forward_and_backward(golden: Case, dtype: type[np.floating[Any]]) -> None:
    q, k, v, d_out = (golden.input(name).astype(dtype) for name in ("q", "k", "v", "d_output"))
    tables = {name: table.astype(dtype) for name, table in golden.tables().items()}
    options: dict[str, Any] = {
        "encoding": encoding_of(golden, tables),
        "causal": golden.json["causal"] or "window" in golden.json,
        "window": golden.json.get("window"),
        "order": "heads_first",
    }
    if "position_ids" in golden.json["inputs"]:
        options["query_positions"] = options["key_positions"] = golden.input("position_ids")
    sums = np.empty(q.shape[:3], dtype)
    out = phasor.attention(q, k, v, log_sum_exp=sums, **options)
    assert out.dtype == dtype
    d_q, d_k, d_v = np.empty_like(q), np.empty_like(k), np.empty_like(v)
    d_tables = {name: np.zeros_like(table) for name, table in tables.items()}
    phasor.attention_backward(q, k, v, out, sums, d_out, d_q=d_q, d_k=d_k, d_v=d_v, d_tables=d_tables, **options)
    results = {"output": out, "d_q": d_q, "d_k": d_k, "d_v": d_v, **{"d_" + name: d for name, d in d_tables.items()}}
    assert set(results) == set(golden.json["outputs"])
    for name, got in results.items():
        if dtype is np.float64:
            np.testing.assert_allclose(got, golden.truth(name), atol=1e-11, rtol=1e-11, err_msg=name)
        else:
            golden.check(name, got)


def test_golden_bert_relative_key_query() -> None:
    golden = case("encodings/bert_relative_key_query")
    encoding = phasor.Encoding("bert_relative", **golden.members(), **golden.tables())
    out = phasor.attention(*(golden.input(name) for name in "qkv"), encoding=encoding, order="heads_first")
    golden.check("context", out.transpose(0, 2, 1, 3).reshape(golden.output("context").shape))


def test_golden_deberta_v1_with_a_mask() -> None:
    golden = case("encodings/deberta_v1_c2p_p2c")
    encoding = phasor.Encoding("deberta_v1", **golden.members(), **golden.tables())
    mask = golden.input("mask").astype(bool)
    out = phasor.attention(*(golden.input(name) for name in "qkv"), encoding=encoding, mask=mask, order="heads_first")
    # The reference fills rows that see no key with a mean; Phasor gives zeros there.
    seen = mask[:, 0].any(axis=-1)
    got = out.transpose(0, 2, 1, 3).reshape(golden.output("context").shape)
    stated = golden.json["outputs"]["context"]
    np.testing.assert_allclose(got[seen], golden.output("context")[seen], atol=stated["atol"], rtol=stated["rtol"])
    assert not got[~seen].any()


def test_golden_xlnet() -> None:
    golden = case("encodings/xlnet_mems_masked")
    q, k, v = (golden.input(name).swapaxes(0, 1) for name in ("q_head", "k_head", "v_head"))  # views, not copies
    encoding = phasor.Encoding(
        "xlnet",
        k_head_r=golden.input("k_head_r")[:, 0],  # every batch row has the same: a strided view of the first
        r_w_bias=golden.input("r_w_bias"),
        r_r_bias=golden.input("r_r_bias"),
    )
    mask = golden.input("attn_mask")[..., 0].transpose(2, 0, 1)[:, None] == 0
    out = phasor.attention(q, k, v, encoding=encoding, mask=mask)
    golden.check("attn_vec", out.swapaxes(0, 1))


def test_xlnet_segments() -> None:
    q, k, v, d_out = (normal(2, 5, 2, 4, seed=i, dtype=np.float64) for i in range(4))
    rows, embed = normal(10, 2, 4, dtype=np.float64), normal(2, 2, 4, dtype=np.float64)
    segments = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])
    encoding = phasor.Encoding("xlnet", k_head_r=rows, seg_embed=embed)
    distance = np.arange(5)[:, None] - np.arange(5)
    differ = (segments[:, :, None] != segments[:, None, :]).astype(int)
    bias = np.einsum("bmhd,mnhd->bhmn", q, rows[5 - distance]) + np.einsum("bmhd,bmnhd->bhmn", q, embed[differ])
    options: dict[str, Any] = {"encoding": encoding, "query_segments": segments, "key_segments": segments}
    np.testing.assert_allclose(phasor.attention(q, k, v, **options), plain(q, k, v, bias / 2.0), atol=1e-13)
    gradient = {"seg_embed": np.zeros_like(embed)}
    backward(q, k, v, d_out, gradient, **options)
    assert np.abs(gradient["seg_embed"]).min() > 0.0


@pytest.mark.parametrize("causal", [False, True])
def test_plain_attention_with_grouped_heads_and_another_value_dim(causal: bool) -> None:
    q, k, v = normal(2, 5, 4, 8), normal(2, 7, 2, 8), normal(2, 7, 2, 6)
    expected = plain(q, k, v, hidden(causal_mask(5, 7)) if causal else 0.0)
    out = phasor.attention(q, k, v, causal=causal)
    assert out.shape == (2, 5, 4, 6)
    np.testing.assert_allclose(out, expected, atol=2e-6)
    # Without a batch; heads before tokens; strided views; into a strided view.
    np.testing.assert_array_equal(phasor.attention(q[1], k[1], v[1], causal=causal), out[1])
    swapped = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v))
    rotated = phasor.attention(*swapped, causal=causal, order="heads_first")
    np.testing.assert_allclose(rotated.swapaxes(1, 2), out, atol=1e-6)
    wide = np.full((2, 5, 4, 9), 7.0, np.float32)
    views = (np.repeat(x, 2, axis=1)[:, ::2] for x in (q, k, v))
    returned = phasor.attention(*views, causal=causal, out=wide[..., 1:7])
    np.testing.assert_array_equal(wide[..., 1:7], out)
    assert (wide[..., 0] == 7.0).all() and (wide[..., 7:] == 7.0).all()
    assert np.shares_memory(returned, wide)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 2e-3), (np.float64, 1e-13)])
def test_other_types_keep_their_type(dtype: npt.DTypeLike, tolerance: float) -> None:
    q, k, v = (normal(1, 9, 2, 16, seed=i, dtype=dtype) for i in range(3))
    out = phasor.attention(q, k, v)
    assert out.dtype == dtype
    np.testing.assert_allclose(out, plain(q, k, v), atol=tolerance)


def test_bfloat16() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    q, k, v = (normal(1, 9, 2, 16, seed=i).astype(bfloat16) for i in range(3))
    out = phasor.attention(q, k, v)
    assert out.dtype == bfloat16
    np.testing.assert_allclose(out.astype(np.float64), plain(q, k, v), atol=1e-2)


def test_rope_is_rotation_before_attention() -> None:
    q, k, v = (normal(1, 7, 2, 8, seed=i) for i in range(3))
    spec = phasor.RopeSpec(8, base=500.0, layout="interleaved")
    for positions in (None, 3, np.arange(7) * 2.5):
        rotated_q, rotated_k = phasor.rotate_qk(q, k, spec, positions)
        expected = phasor.attention(rotated_q, rotated_k, v, causal=True)
        given: dict[str, Any] = {} if positions is None else {"query_positions": positions, "key_positions": positions}
        out = phasor.attention(q, k, v, encoding=spec, causal=True, **given)
        np.testing.assert_allclose(out, expected, atol=2e-6)
        as_dict = phasor.attention(q, k, v, encoding={"encoding": "rope", **spec.to_dict()}, causal=True, **given)
        np.testing.assert_array_equal(as_dict, out)


def test_context_of_a_rotation_that_reads_it() -> None:
    q, k, v = (normal(1, 12, 1, 8, seed=i) for i in range(3))
    spec = phasor.RopeSpec(
        8, layout="half", max_position_embeddings=4, scaling={"rope_type": "dynamic", "factor": 2.0}
    )
    default = phasor.attention(q, k, v, encoding=spec)
    np.testing.assert_array_equal(phasor.attention(q, k, v, encoding=spec, context=12), default)
    assert np.abs(phasor.attention(q, k, v, encoding=spec, context=400) - default).max() > 1e-4


def backward(
    q: Array, k: Array, v: Array, d_out: Array, tables: dict[str, Array] | None = None, **options: Any
) -> tuple[Array, ...]:
    """The gradients of q, k and v; those of the tables are added to `tables`."""
    sums = np.empty((q.shape[0], q.shape[2], q.shape[1]), q.dtype)
    out = phasor.attention(q, k, v, log_sum_exp=sums, **options)
    grads = tuple(np.empty_like(x) for x in (q, k, v))
    phasor.attention_backward(
        q, k, v, out, sums, d_out, d_q=grads[0], d_k=grads[1], d_v=grads[2], d_tables=tables, **options
    )
    return grads


TRAINED: dict[str, tuple[dict[str, tuple[int, ...]], dict[str, Any]]] = {
    # Tables by shape, and the other members; one array of bert_relative serves queries and keys.
    "shaw": ({"rel_k": (2, 5, 4), "rel_v": (5, 4)}, {"clip": 2}),
    "t5": ({"relative_attention_bias": (8, 2)}, {"max_distance": 20}),
    "kerple": ({"r1": (2,), "r2": (1,)}, {}),
    "bert_relative": ({"distance_embedding": (11, 4)}, {"position_embedding_type": "relative_key_query"}),
    "xlnet": (
        {"k_head_r": (12, 2, 4), "r_w_bias": (2, 4), "r_r_bias": (2, 4), "seg_embed": (2, 2, 4), "r_s_bias": (2, 4)}, {}
    ),
    "deberta_v1": ({"pos_k": (2, 12, 4), "pos_q": (12, 4)}, {"max_relative_positions": 6}),
}  # fmt: skip


@pytest.mark.parametrize("together", ["alone", "with alibi"])
@pytest.mark.parametrize("name", TRAINED)
def test_gradients_of_tables_against_finite_differences(name: str, together: str) -> None:
    q, k, v, d_out = (normal(1, 6, 2, 4, seed=i, dtype=np.float64) for i in range(4))
    shapes, members = TRAINED[name]
    tables: dict[str, Any] = {member: normal(*shape, seed=7, dtype=np.float64) for member, shape in shapes.items()}
    if name == "kerple":
        tables = {member: np.abs(table) + 0.1 for member, table in tables.items()}
    one = phasor.Encoding(name, **members, **tables)
    options: dict[str, Any] = {"encoding": one if together == "alone" else [{"encoding": "alibi"}, one], "soft_cap": 3.0}
    if name == "xlnet":
        options |= {"query_segments": [0, 0, 1, 1, 1, 2], "key_segments": [0, 1, 1, 1, 2, 2]}
    prefix = "" if together == "alone" else "1."
    gradients = {prefix + member: np.ones_like(table) for member, table in tables.items()}  # added to
    backward(q, k, v, d_out, gradients, **options)
    rng, step = np.random.default_rng(3), 1e-6

    def loss() -> float:
        return float((phasor.attention(q, k, v, **options) * d_out).sum())

    for member, table in tables.items():
        gradient = gradients[prefix + member] - 1.0
        assert np.abs(gradient).max() > 1e-3, member
        for _ in range(4):
            at = tuple(int(rng.integers(length)) for length in table.shape)
            kept = table[at]
            table[at] = kept + step
            above = loss()
            table[at] = kept - step
            below = loss()
            table[at] = kept
            assert gradient[at] == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-8), (member, at)


def test_kerple_in_float32() -> None:
    q, k, v, d_out = (normal(1, 6, 2, 4, seed=i) for i in range(4))
    r1, r2 = np.array([1.2, 0.4], np.float32), np.array([0.5, 2.0], np.float32)
    encoding = {"encoding": [{"encoding": "alibi"}, {"encoding": "kerple", "r1": r1, "r2": r2}]}
    distances = np.abs(np.arange(6)[:, None] - np.arange(6)[None, :])
    slopes, a, b = (np.asarray(x, np.float64)[:, None, None] for x in ([0.0625, 0.00390625], r1, r2))
    bias = -a * np.log(1 + b * distances) - slopes * distances
    np.testing.assert_allclose(phasor.attention(q, k, v, encoding=encoding), plain(q, k, v, bias), atol=2e-6)
    narrow = {"1.r1": np.zeros(2, np.float32), "1.r2": np.zeros(2, np.float32)}
    backward(q, k, v, d_out, narrow, encoding=encoding)
    wide = {"1.r1": np.zeros(2), "1.r2": np.zeros(2)}
    backward(*(x.astype(np.float64) for x in (q, k, v, d_out)), wide, encoding=encoding)
    for name, gradient in wide.items():
        np.testing.assert_allclose(narrow[name], gradient, atol=1e-5)
    with pytest.raises(phasor.Error, match="r2 .* 0 .*head 1"):
        phasor.attention(q, k, v, encoding=phasor.Encoding("kerple", r1=r1, r2=np.array([1.0, 0.0], np.float32)))


def test_encodings_of_two_scales_are_refused() -> None:
    x = normal(1, 6, 2, 4)
    scaled = phasor.Encoding("alibi", scale=0.5)
    other = {"encoding": "none", "scale": 0.25}
    with pytest.raises(phasor.Error, match="0.5 .*0.25"):
        phasor.attention(x, x, x, encoding=[scaled, other])
    with pytest.raises(phasor.Error, match="0.5 .*rope.* 1 .*t5"):
        table = phasor.Encoding("t5", relative_attention_bias=normal(8, 2))
        phasor.attention(x, x, x, encoding=[phasor.RopeSpec(4, layout="half"), table])


def test_a_scale_in_one_of_two_encodings_is_that_of_both() -> None:
    x, bias, spec = normal(1, 6, 2, 4), normal(8, 2), phasor.RopeSpec(4, layout="half")
    both = [spec, phasor.Encoding("t5", relative_attention_bias=bias, scale=0.25)]
    rotated = phasor.rotate(x, spec)
    alone = phasor.Encoding("t5", relative_attention_bias=bias, scale=0.25)
    expected = phasor.attention(rotated, rotated, x, encoding=alone)
    np.testing.assert_allclose(phasor.attention(x, x, x, encoding=both), expected, atol=1e-6)


def test_gradients_of_tables_in_every_type_and_layout() -> None:
    q, k, v, d_out = (normal(2, 6, 2, 4, seed=i) for i in range(4))
    table = normal(8, 2, seed=9)
    expected = np.zeros_like(table)
    backward(q, k, v, d_out, {"relative_attention_bias": expected},
             encoding=phasor.Encoding("t5", relative_attention_bias=table))  # fmt: skip
    assert np.abs(expected).max() > 1e-2
    for given in (table.astype(np.float64), np.asfortranarray(table), np.repeat(table, 2, axis=0)[::2]):
        encoding = phasor.Encoding("t5", relative_attention_bias=given)
        for target in (
            np.zeros((8, 2), np.float64), np.zeros((8, 2), np.float32, order="F"), np.zeros((8, 4), np.float32)[:, ::2]
        ):  # fmt: skip
            backward(q, k, v, d_out, {"relative_attention_bias": target}, encoding=encoding)
            np.testing.assert_allclose(target, expected, atol=1e-6)
    # Tables in float32 with float64 tensors, and float64 gradients of float32 tables.
    q, k, v, d_out = (x.astype(np.float64) for x in (q, k, v, d_out))
    target32 = np.zeros((8, 2), np.float32)
    narrow = phasor.Encoding("t5", relative_attention_bias=table)
    backward(q, k, v, d_out, {"relative_attention_bias": target32}, encoding=narrow)
    np.testing.assert_allclose(target32, expected, atol=1e-6)
    target64 = np.zeros((8, 2), np.float64)
    backward(q, k, v, d_out, {"relative_attention_bias": target64}, encoding=narrow)
    np.testing.assert_allclose(target64, expected, atol=1e-6)
    assert (target64 != target64.astype(np.float32)).any()


def test_one_array_in_two_places_has_two_gradients() -> None:
    q, k, v, d_out = (normal(1, 6, 2, 4, seed=i, dtype=np.float64) for i in range(4))
    table = normal(2, 8, 4, seed=9, dtype=np.float64)
    shared = phasor.Encoding("deberta_v2", pos_k=table, pos_q=table, max_relative_positions=4)
    apart = phasor.Encoding("deberta_v2", pos_k=table, pos_q=table.copy(), max_relative_positions=4)
    both, one = ({name: np.zeros_like(table) for name in names} for names in (["pos_k", "pos_q"], ["pos_q"]))
    expected = {name: np.zeros_like(table) for name in both}
    backward(q, k, v, d_out, both, encoding=shared)
    backward(q, k, v, d_out, one, encoding=shared)
    backward(q, k, v, d_out, expected, encoding=apart)
    for name in both:
        np.testing.assert_array_equal(both[name], expected[name])
    np.testing.assert_array_equal(one["pos_q"], expected["pos_q"])
    assert np.abs(expected["pos_k"] - expected["pos_q"]).max() > 1e-3


@pytest.mark.parametrize(
    ("changes", "match", "code"),
    [
        ({"q": normal(5, 8)}, r"attention: q .*\[5, 8\]", "shape_mismatch"),
        ({"q": [[1.0]]}, "attention: q .*list", "invalid_argument"),
        ({"k": normal(1, 6, 3, 8)}, "4 .*3", "invalid_argument"),
        ({"k": normal(1, 6, 2, 7)}, "8.* 7", "shape_mismatch"),
        ({"v": normal(1, 5, 2, 8)}, "6 .*5", "shape_mismatch"),
        ({"q": np.zeros((1, 6, 4, 8), np.int64)}, "attention: q .*int64", "unsupported"),
        ({"v": normal(1, 6, 2, 8, dtype=np.float64)}, "f64", "unsupported"),
        ({"q": normal(1, 6, 8, 4).swapaxes(2, 3)}, "attention: q .*stride of 4", "unsupported"),
        ({"encoding": 3}, "encoding: .*int", "invalid_argument"),
        ({"encoding": []}, "encoding: .*empty", "invalid_argument"),
        ({"encoding": phasor.RopeSpec(16, layout="half")}, "head_dim .*8, got 16", "shape_mismatch"),
        ({"encoding": phasor.RopeSpec(8)}, "layout", "invalid_argument"),
        ({"encoding": {"encoding": "shaw", "clip": 1, "rel_k": normal(3, 9)}}, "8.* 9", "shape_mismatch"),
        ({"window": 0}, "window .*0", "invalid_argument"),
        ({"scale": float("nan")}, "scale .*nan", "invalid_argument"),
        ({"soft_cap": -1.0}, "soft_cap .*-1", "invalid_argument"),
        ({"mask": np.ones((5, 6), bool)}, "mask.* 5", "shape_mismatch"),
        ({"mask": np.ones((6, 6), np.int64)}, "attention: mask .*int64", "unsupported"),
        ({"mask": np.ones(6, bool)}, "mask.* 1", "shape_mismatch"),
        ({"key_lengths": [7]}, "key_lengths .*7", "out_of_range"),
        ({"key_padding": np.ones((6, 1), bool)}, r"key_padding .*\[1, 6\].*\[6, 1\]", "shape_mismatch"),
        ({"query_positions": np.zeros((1, 1, 1, 6))}, r"query_positions .*\[1, 1, 1, 6\]", "shape_mismatch"),
        ({"query_segments": np.zeros((2, 6), np.int32)}, r"attention: query_segments .*\[2, 6\]", "shape_mismatch"),
        ({"order": "heads"}, "order .*heads$", "invalid_argument"),
        ({"angles": "double"}, "attention: angles .*double", "invalid_argument"),
        ({"threads": -1}, "threads .*-1", "invalid_argument"),
        ({"log_sum_exp": np.zeros((1, 6, 4), np.float32)}, r"log_sum_exp .*\[1, 4, 6\] float32.*\[1, 6, 4\]", "shape_mismatch"),
        ({"log_sum_exp": np.zeros((1, 4, 6))}, r"log_sum_exp .*\[1, 4, 6\] float32.*float64", "shape_mismatch"),
        ({"out": np.zeros((1, 6, 4, 9), np.float32)}, r"out .*\[1, 6, 4, 8\] float32.*\[1, 6, 4, 9\]", "shape_mismatch"),
        ({"out": np.zeros((1, 6, 4, 8))}, r"out .*\[1, 6, 4, 8\] float32.* float64", "shape_mismatch"),
    ],
)  # fmt: skip
def test_refusals_write_nothing(changes: dict[str, Any], match: str, code: str) -> None:
    arguments: dict[str, Any] = {"q": normal(1, 6, 4, 8), "k": normal(1, 6, 2, 8), "v": normal(1, 6, 2, 8)}
    arguments["out"] = np.full((1, 6, 4, 8), 3.0, np.float32)
    arguments["log_sum_exp"] = np.full((1, 4, 6), 3.0, np.float32)
    arguments |= changes
    kept = {name: arguments[name].copy() for name in ("out", "log_sum_exp")}
    with pytest.raises(phasor.Error, match=match) as refused:
        phasor.attention(**arguments)
    assert refused.value.code == code
    for name, before in kept.items():
        np.testing.assert_array_equal(arguments[name], before)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"d_q": np.zeros((1, 6, 2, 7), np.float32)}, r"attention_backward: d_q .*\[1, 6, 2, 7\]"),
        ({"d_k": np.zeros((1, 6, 2, 8), np.int32)}, "attention_backward: d_k .*int32"),
        ({"log_sum_exp": None}, "log_sum_exp"),
        ({"d_tables": {"rel_v": np.zeros((3, 8), np.float32)}}, r"d_tables.*\"rel_v\".*\"rel_k\""),
        ({"d_tables": {"rel_k": np.zeros((2, 8), np.float32)}}, r"\[\"rel_k\"\] .*\[3, 8\].*\[2, 8\]"),
        ({"d_tables": {"rel_k": np.zeros((3, 8), np.float16)}}, "rel_k.*float16"),
        ({"d_tables": [1]}, "d_tables .*list"),
    ],
)  # fmt: skip
def test_backward_refusals_write_nothing(changes: dict[str, Any], match: str) -> None:
    x = normal(1, 6, 2, 8)
    table = normal(3, 8)
    sums = np.empty((1, 2, 6), np.float32)
    encoding = phasor.Encoding("shaw", clip=1, rel_k=table)
    out = phasor.attention(x, x, x, encoding=encoding, log_sum_exp=sums)
    grads: dict[str, Any] = {name: np.full_like(x, 3.0) for name in ("d_q", "d_k", "d_v")}
    arguments: dict[str, Any] = {"log_sum_exp": sums, **grads, **changes}
    with pytest.raises(phasor.Error, match=match):
        phasor.attention_backward(x, x, x, out, d_out=x, encoding=encoding, **arguments)
    with pytest.raises(phasor.Error, match="d_tables.* got rel_k"):
        phasor.attention_backward(x, x, x, out, sums, x, encoding=encoding, **grads, d_tables={"rel_k": table})
    for gradient in grads.values():
        assert (gradient == 3.0).all()


def test_other_threads_run_while_attention_does() -> None:
    # Half-written output can be seen only by a thread that runs between its first and its last element.
    q = normal(16, 256, 2, 64)
    marks = np.full(16, np.nan, np.float32)  # then a view of each output: one element of each batch row
    finished = threading.Event()
    half_written = False

    def watch() -> None:
        nonlocal half_written
        while not half_written and not finished.is_set():
            half_written = 0 < int(np.isnan(marks).sum()) < len(marks)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for _ in range(100):
            if half_written:
                break
            out = np.full_like(q, np.nan)
            marks = out[:, 0, 0, 0]
            phasor.attention(q, q, q, threads=1, out=out)
    finally:
        finished.set()
        watcher.join()
    assert half_written


def test_no_hidden_copy_of_queries_or_output(peak_rise: Callable[[Callable[[], object]], int]) -> None:
    # Many queries, few keys: keys are packed anew (softmax.hpp, memory), queries must not be.
    q, k = np.ones((1, 20_000, 8, 64), np.float32), normal(1, 16, 8, 64)
    out = np.zeros_like(q)
    phasor.attention(q[:, :64], k, k, out=out[:, :64])
    grown = peak_rise(lambda: phasor.attention(q, k, k, out=out))
    assert grown < q.nbytes // 4, f"{grown} bytes, q has {q.nbytes}"
