"""rotate, rotate_qk, rotate_by and cos_sin against the complex form of the paper in float64."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

import phasor
from phasor import RopeSpec

# Of the length of a pair: kRotateErrorF32 epsilons, then one rounding to the type.
TOLERANCE = {"float64": 1e-14, "float32": 2.5e-7, "float16": 1.2e-3, "bfloat16": 1e-2}


def random(shape, dtype="float32", seed=1):
    x = np.random.default_rng(seed).standard_normal(shape)
    if dtype == "bfloat16":
        return x.astype(pytest.importorskip("ml_dtypes").bfloat16)
    return x.astype(dtype)


def assert_close(got, expected, dtype):
    scale = np.abs(expected).max() if np.size(expected) else 1.0
    np.testing.assert_allclose(np.asarray(got, np.float64), expected, rtol=0, atol=TOLERANCE[dtype] * max(scale, 1.0))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("shape, rotary_dim", [((2, 5, 3, 64), 64), ((7, 2, 80), 48), ((1, 1, 1, 2), 2)])
def test_rotate_is_the_complex_form(dtype, layout, shape, rotary_dim, rotated):
    spec = RopeSpec(shape[-1], layout=layout, rotary_dim=rotary_dim)
    x = random(shape, dtype)
    y = phasor.rotate(x, spec, 1000)
    assert type(y) is np.ndarray and y.dtype == x.dtype and y.shape == x.shape
    tokens = shape[-3]
    expected = rotated(x, np.arange(1000, 1000 + tokens), spec.frequencies()[0], layout)
    assert_close(y, expected, dtype)
    np.testing.assert_array_equal(y[..., rotary_dim:], x[..., rotary_dim:])


@pytest.mark.parametrize("positions", [
    [3, 1, 4, 1, 5],
    (3, 1, 4, 1, 5),
    range(10, 15),
    np.array([3, 1, 4, 1, 5], np.int32),
    np.array([0.5, 1.25, -3.0, 1e6, 2.0]),
    np.array([0.5, 1.25, -3.0, 4.0, 2.0], np.float32),
    np.arange(10)[::2],
    np.array([[0, 1, 2, 3, 4], [90, 91, 92, 93, 94]]),
    np.array([[0, 90], [1, 91], [2, 92], [3, 93], [4, 94]]).T,
], ids=lambda p: f"{type(p).__name__}-{np.asarray(p).dtype}-{np.asarray(p).shape}")
def test_positions_in_every_form(positions, rotated):
    spec = RopeSpec(32, layout="half")
    x = random((2, 5, 3, 32))
    assert_close(phasor.rotate(x, spec, positions), rotated(x, np.asarray(positions), spec.frequencies()[0], "half"),
                 "float32")


def test_without_positions_tokens_count_from_zero():
    spec = RopeSpec(32, layout="half")
    x = random((2, 5, 3, 32))
    np.testing.assert_array_equal(phasor.rotate(x, spec), phasor.rotate(x, spec, np.arange(5)))
    np.testing.assert_array_equal(phasor.rotate(x, spec, 7), phasor.rotate(x, spec, np.arange(7, 12)))


def test_three_rows_of_positions_turn_by_section(rotated):
    spec = RopeSpec(16, layout="half", mrope={"sections": [2, 3, 3], "order": "chunked"})
    assert spec.axes == 3
    x = random((1, 4, 2, 16))
    positions = np.array([[[0, 1, 2, 3]], [[5, 5, 6, 6]], [[9, 8, 9, 8]]])
    frequencies = spec.frequencies()[0]
    row = np.repeat([0, 1, 2], [2, 3, 3])
    angles = positions[row, 0].T[:, None, :] * frequencies  # [tokens, 1, pairs]
    z = (x[..., :8] + 1j * x[..., 8:]) * np.exp(1j * angles)
    assert_close(phasor.rotate(x, spec, positions), np.concatenate([z.real, z.imag], -1), "float32")


def test_at_a_far_position_angles_are_exact(rotated):
    spec = RopeSpec(128, layout="half", base=10000.0)
    x = random((1, 1, 4, 128))
    got = phasor.rotate(x, spec, 131071)
    # The product in extended precision, reduced by the period in extended precision: another way to the angle.
    angle = np.longdouble(131071) * spec.frequencies()[0].astype(np.longdouble)
    z = (x[..., :64] + 1j * x[..., 64:]) * (np.cos(angle) + 1j * np.sin(angle)).astype(np.complex128)
    assert_close(got, np.concatenate([z.real, z.imag], -1), "float32")
    other = phasor.rotate(x, spec, 131071, angles="float32")
    assert np.abs(got - other).max() > 1e-3


def test_inverse_undoes_and_transpose_is_the_adjoint():
    spec = RopeSpec(64, layout="half", scaling={"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 4096})
    assert spec.frequencies()[1] > 1.1
    x, g = random((3, 6, 2, 64), "float64"), random((3, 6, 2, 64), "float64", 2)
    y = phasor.rotate(x, spec, 40)
    np.testing.assert_allclose(phasor.rotate(y, spec, 40, inverse=True), x, atol=1e-14)
    np.testing.assert_allclose((y * g).sum(), (x * phasor.rotate(g, spec, 40, transpose=True)).sum(), rtol=1e-12)
    assert np.abs(phasor.rotate(y, spec, 40, transpose=True) - x).max() > 0.1
    with pytest.raises(phasor.Error, match="inverse.*transpose"):
        phasor.rotate(x, spec, inverse=True, transpose=True)


def test_out_is_written_and_returned():
    spec = RopeSpec(64, layout="interleaved")
    x = random((2, 5, 3, 64))
    expected = phasor.rotate(x, spec, 9)
    out = np.full_like(x, np.nan)
    assert phasor.rotate(x, spec, 9, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert phasor.rotate(x, spec, 9, out=x) is x
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("view", [
    lambda x: x[::2, :, 1:3],
    lambda x: x[:, ::-1],
    lambda x: x[:, 3:9, ::2, :64],
    lambda x: x[-1],
    lambda x: np.broadcast_to(x[:1], x.shape),
], ids=["slices", "backwards", "features", "no-batch", "broadcast"])
def test_strided_views_are_read_where_they_lie(view):
    x = random((4, 10, 6, 128))
    part = view(x)
    spec = RopeSpec(part.shape[-1], layout="half")
    np.testing.assert_array_equal(phasor.rotate(part, spec, 3), phasor.rotate(np.ascontiguousarray(part), spec, 3))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("layout", ["half", "interleaved", "interleaved_to_half"])
@pytest.mark.parametrize("view", [
    lambda x: x.transpose(0, 1, 3, 2),
    lambda x: x[..., ::2],
    lambda x: x[..., ::-1],
    lambda x: np.broadcast_to(x[..., :1], x.shape),
    lambda x: x.transpose(2, 1, 3, 0)[0],
], ids=["transposed", "every-other", "backwards", "one-value", "no-batch"])
def test_features_that_lie_apart_come_together_in_a_new_result(view, layout, dtype):
    part = view(random((4, 10, 6, 8), dtype))
    together = np.ascontiguousarray(part)
    spec = RopeSpec(part.shape[-1], layout=layout, rotary_dim=2)
    got = phasor.rotate(part, spec, 3)
    np.testing.assert_array_equal(got, phasor.rotate(together, spec, 3))
    assert got.strides[-1] == got.itemsize
    cos, sin = phasor.cos_sin(spec, part.shape[-3])
    np.testing.assert_array_equal(phasor.rotate_by(part, cos, sin, layout=layout),
                                  phasor.rotate_by(together, cos, sin, layout=layout))
    for one, other in zip(phasor.rotate_qk(part, together, spec), phasor.rotate_qk(together, part, spec)):
        np.testing.assert_array_equal(one, other)


def test_a_strided_view_is_written_and_nothing_else():
    x = random((2, 6, 9, 96))
    before = x.copy()
    window = x[:, ::2, 3:6, 32:]
    spec = RopeSpec(64, layout="half")
    expected = phasor.rotate(np.ascontiguousarray(window), spec, 5)
    phasor.rotate(window, spec, 5, out=window)
    np.testing.assert_array_equal(window, expected)
    window[...] = before[:, ::2, 3:6, 32:]
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_heads_before_tokens(dtype):
    spec = RopeSpec(64, layout="half")
    x = random((2, 7, 3, 64), dtype)
    by_head = np.ascontiguousarray(x.transpose(0, 2, 1, 3))
    expected = phasor.rotate(x, spec, 11)
    got = phasor.rotate(by_head, spec, 11, order="heads_first")
    np.testing.assert_array_equal(got.transpose(0, 2, 1, 3), expected)
    same = phasor.rotate(by_head.transpose(0, 2, 1, 3), spec, 11)
    np.testing.assert_array_equal(same, expected)
    assert same.strides == by_head.transpose(0, 2, 1, 3).strides  # the order in memory is kept
    np.testing.assert_array_equal(phasor.rotate(by_head[0], spec, 11, order="heads_first").transpose(1, 0, 2), expected[0])


def test_queries_and_keys_in_one_call():
    spec = RopeSpec(64, layout="half")
    q, k = random((2, 5, 8, 64)), random((2, 5, 2, 64), seed=2)
    got_q, got_k = phasor.rotate_qk(q, k, spec, 30)
    np.testing.assert_array_equal(got_q, phasor.rotate(q, spec, 30))
    np.testing.assert_array_equal(got_k, phasor.rotate(k, spec, 30))
    phasor.rotate_qk(q, k, spec, 30, out=(q, k))
    np.testing.assert_array_equal(q, got_q)
    np.testing.assert_array_equal(k, got_k)
    with pytest.raises(phasor.Error, match="out .*ndarray"):
        phasor.rotate_qk(q, k, spec, out=q)


def test_xpos_tells_queries_from_keys():
    spec = RopeSpec(64, layout="interleaved", xpos={"scale_base": 512.0})
    q, k = random((1, 9, 1, 64), "float64"), random((1, 9, 1, 64), "float64", 2)
    for shift in (0, 1000):
        a, b = phasor.rotate_qk(q, k, spec, shift)
        scores = np.einsum("bqhd,bkhd->bhqk", a, b)
        if shift == 0:
            first = scores
    np.testing.assert_allclose(scores, first, atol=1e-10)
    np.testing.assert_array_equal(b, phasor.rotate(k, spec, 1000, role="key"))
    assert np.abs(b - phasor.rotate(k, spec, 1000)).max() > 0.1


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("rows", ["float64", "float32", "float16", "bfloat16"])
def test_rotation_by_given_rows(layout, dtype, rows, rotated):
    spec = RopeSpec(64, layout=layout, rotary_dim=48)
    x = random((2, 6, 3, 64), dtype)
    cos, sin = phasor.cos_sin(spec, np.arange(20, 26), dtype="float64")
    cos, sin = (random((1,), rows).dtype.type(table) if rows != "bfloat16" else table.astype(random((1,), rows).dtype)
                for table in (cos, sin))
    got = phasor.rotate_by(x, cos, sin, layout=layout)
    z = np.asarray(cos, np.float64) + 1j * np.asarray(sin, np.float64)
    x64 = np.asarray(x, np.float64)
    a, b = (x64[..., :24], x64[..., 24:48]) if layout == "half" else (x64[..., 0:48:2], x64[..., 1:48:2])
    product = (a + 1j * b) * z[:, None, :]
    expected = x64.copy()
    if layout == "half":
        expected[..., :24], expected[..., 24:48] = product.real, product.imag
    else:
        expected[..., 0:48:2], expected[..., 1:48:2] = product.real, product.imag
    assert_close(got, expected, dtype)
    back = phasor.rotate_by(got, cos, sin, layout=layout, transpose=True)
    if dtype == "float64" and rows == "float64":
        np.testing.assert_allclose(back, x64, atol=1e-14)


def test_rows_may_be_strided_and_per_batch_row():
    spec = RopeSpec(32, layout="half")
    x = random((2, 6, 3, 32))
    positions = np.array([np.arange(6), np.arange(50, 56)])
    cos, sin = phasor.cos_sin(spec, positions)
    expected = phasor.rotate(x, spec, positions)
    np.testing.assert_array_equal(phasor.rotate_by(x, cos, sin, layout="half"), expected)
    # Each entry twice, as Hugging Face keeps them for interleaved pairs: every other one is read.
    wide_cos, wide_sin = np.repeat(cos, 2, -1), np.repeat(sin, 2, -1)
    np.testing.assert_array_equal(
        phasor.rotate_by(x, wide_cos[..., ::2], wide_sin[..., ::2], layout="half"), expected)
    by_head = x.transpose(0, 2, 1, 3)
    np.testing.assert_array_equal(
        phasor.rotate_by(by_head, cos, sin, layout="half", order="heads_first").transpose(0, 2, 1, 3), expected)
    one = phasor.rotate_by(x, cos[:1], sin[:1], layout="half")
    np.testing.assert_array_equal(one, phasor.rotate(x, spec, positions[0]))
    with pytest.raises(phasor.Error, match="tokens|6"):
        phasor.rotate_by(x, cos[:, :5], sin[:, :5], layout="half")
    with pytest.raises(phasor.Error, match=r"cos and sin .*\[1, "):
        phasor.rotate_by(x, cos, sin[:1], layout="half")
    with pytest.raises(phasor.Error, match="layout"):
        phasor.rotate_by(x, cos, sin, layout="diagonal")
    with pytest.raises(phasor.Error):
        phasor.rotate_by(x, np.repeat(cos, 2, -1), np.repeat(sin, 2, -1), layout="half")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cos_sin_rows(dtype):
    spec = RopeSpec(128, scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096})
    frequencies, amplitude = spec.frequencies()
    positions = np.array([0, 1, 77, 131071])
    cos, sin = phasor.cos_sin(spec, positions, dtype=dtype)
    assert cos.shape == sin.shape == (4, 64) and cos.dtype == sin.dtype == np.dtype(dtype)
    angles = positions[:, None].astype(np.longdouble) * frequencies
    tolerance = 1.3e-7 if dtype == "float32" else 8e-15  # extended precision keeps 64 bits of the angle
    np.testing.assert_allclose(cos, np.float64(amplitude * np.cos(angles)), rtol=0, atol=tolerance * amplitude)
    np.testing.assert_allclose(sin, np.float64(amplitude * np.sin(angles)), rtol=0, atol=tolerance * amplitude)
    np.testing.assert_array_equal(phasor.cos_sin(spec, 5)[0], phasor.cos_sin(spec, np.arange(5))[0])
    assert phasor.cos_sin(spec, np.zeros((3, 2)))[0].shape == (3, 2, 64)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_a_table_rotates_as_the_angles_do(dtype, layout):
    spec = RopeSpec(64, layout=layout)
    table = phasor.CosSinTable(spec, 32, first=10)
    assert (table.first, len(table), table.nbytes) == (10, 32, 2 * 32 * 32 * 4)
    assert repr(table) == "CosSinTable(positions 10 to 41, 32 pairs)"
    x, k = random((2, 5, 3, 64), dtype), random((2, 5, 1, 64), dtype, 2)
    np.testing.assert_array_equal(phasor.rotate(x, spec, 20, table=table), phasor.rotate(x, spec, 20))
    positions = [41, 10, 12, 12, 30]
    for got, plain in zip(phasor.rotate_qk(x, k, spec, positions, table=table, inverse=True),
                          phasor.rotate_qk(x, k, spec, positions, inverse=True)):
        np.testing.assert_array_equal(got, plain)
    for refused, message in (
        (lambda: phasor.rotate(x, spec, 40, table=table), "44"),
        (lambda: phasor.rotate(x, spec.replace(base=5.0), 20, table=table), "frequenc"),
        (lambda: phasor.rotate(x.astype(np.float64), spec, 20, table=table), "float64"),
        (lambda: phasor.rotate(x, spec, [10.5, 11, 12, 13, 14], table=table), "integer"),
        (lambda: phasor.CosSinTable(spec, -1), "-1"),
        (lambda: phasor.CosSinTable(spec, 4, angles="rough"), "angles"),
    ):
        with pytest.raises(phasor.Error, match=message):
            refused()


def test_golden_rotations_of_other_implementations(golden):
    """Golden q and k, heads before tokens, within the tolerance of each case."""
    seen = 0
    for path in sorted(golden.glob("rope_apply/*/case.json")):
        case = json.loads(path.read_text())
        inputs = case["inputs"]
        dims = inputs.get("q", {}).get("dims")
        if "model_type" not in case.get("config", {}) or dims != ["batch", "head", "seq", "dim"] or "position_ids" not in inputs:
            continue  # images and packed rows have tests of their own in C++
        if inputs["q"]["dtype"] not in ("float32", "float64", "float16") or "q_out_f64" not in case.get("truth", {}):
            continue
        load = {name: np.load(path.parent / entry["file"]) for part in ("inputs", "outputs", "truth")
                for name, entry in case[part].items()}
        spec = RopeSpec.from_hf(case["config"])
        if spec.layout is None or spec.axes != 1:
            continue
        seen += 1
        got_q, got_k = phasor.rotate_qk(load["q"], load["k"], spec, load["position_ids"], order="heads_first")
        for got, name in ((got_q, "q_out_f64"), (got_k, "k_out_f64")):
            tolerance = case["truth"][name]
            np.testing.assert_allclose(got, load[name], atol=tolerance["atol"], rtol=tolerance["rtol"], err_msg=str(path))
    assert seen >= 8


SPEC = RopeSpec(64, layout="half")


@pytest.mark.parametrize("call, message", [
    (lambda x: phasor.rotate(x, RopeSpec(64)), "layout"),
    (lambda x: phasor.rotate(x, RopeSpec(32, layout="half")), "head_dim|32"),
    (lambda x: phasor.rotate(x[0, 0], SPEC), "tokens"),
    (lambda x: phasor.rotate(x.astype(np.int64), SPEC), "float16"),
    (lambda x: phasor.rotate(x.astype(">f4"), SPEC), "byte order"),
    (lambda x: phasor.rotate(x.astype(np.complex64), SPEC), "float16"),
    (lambda x: phasor.rotate(x, SPEC, np.arange(4)), "positions|tokens"),
    (lambda x: phasor.rotate(x, SPEC, np.array([0, 1, 2, 3, np.nan])), "finite"),
    (lambda x: phasor.rotate(x, SPEC, 2**60), "2\\^53|9007199254740992|range|9.0"),
    (lambda x: phasor.rotate(x, SPEC, 2**80), str(2**80)),
    (lambda x: phasor.rotate(x, SPEC, np.zeros(5, bool)), "positions .*bool"),
    (lambda x: phasor.rotate(x, SPEC, np.zeros((1, 1, 1, 5))), "tokens"),
    (lambda x: phasor.rotate(x, SPEC, out=x[:1]), "out"),
    (lambda x: phasor.rotate(x, SPEC, out=x.astype(np.float64)), "out"),
    (lambda x: phasor.rotate(x[:, :4], SPEC, out=x[:, 1:]), "overlap"),
    (lambda x: phasor.rotate(x, SPEC, order="sideways"), "order"),
    (lambda x: phasor.rotate(x, SPEC, role="value"), "role"),
    (lambda x: phasor.rotate(x, SPEC, angles="rough"), "angles"),
    (lambda x: phasor.rotate(x, SPEC, threads=-1), "threads"),
    (lambda x: phasor.rotate(x.transpose(0, 1, 3, 2), RopeSpec(3, rotary_dim=2, layout="half"),
                             out=np.empty((2, 5, 64, 3), np.float32)), "stride of 64"),
    (lambda x: phasor.rotate("x", SPEC), "rotate: x .*str"),
    (lambda x: phasor.cos_sin(SPEC, None), "positions"),
    (lambda x: phasor.rotate(x, SPEC, [[1], [2, 3]]), "positions"),
    (lambda x: phasor.rotate(x, SPEC, np.zeros((0, 5))), r"\[0, 5\]"),
    (lambda x: phasor.rotate(x, SPEC, np.zeros((2, 0, 5))), "positions"),
    (lambda x: phasor.cos_sin(SPEC, -1), "positions"),
    (lambda x: phasor.cos_sin(SPEC, 2**70), "2\\^32"),
    (lambda x: phasor.cos_sin(SPEC, [np.inf]), "finite|range"),
    (lambda x: phasor.cos_sin(SPEC, 4, dtype="float16"), "dtype"),
])
def test_refusals_name_what_is_wrong_and_touch_nothing(call, message):
    x = random((2, 5, 3, 64))
    before = x.copy()
    with pytest.raises(phasor.Error, match=message) as refusal:
        call(x)
    assert "\n" not in str(refusal.value)
    np.testing.assert_array_equal(x, before)


def test_an_empty_batch_gives_an_empty_result():
    for shape in ((0, 5, 3, 64), (2, 0, 3, 64), (2, 5, 0, 64)):
        assert phasor.rotate(np.zeros(shape, np.float32), SPEC).shape == shape


def test_nan_stays_in_its_pair():
    x = random((1, 2, 1, 64))
    x[0, 1, 0, 3] = np.nan
    y = phasor.rotate(x, SPEC, 5)
    assert np.isnan(y).sum() == 2 and np.isnan(y[0, 1, 0, [3, 35]]).all()


def test_another_thread_runs_while_a_kernel_does():
    """The GIL is free: a Python thread counts on while this one is inside a long call."""
    x = random((1, 4096, 8, 128))
    count, stop = [0], threading.Event()

    def work():
        while not stop.is_set():
            count[0] += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        moved = False
        for _ in range(200):
            before = count[0]
            phasor.rotate(x, RopeSpec(128, layout="half"), angles="float32", threads=1, out=x)
            # A call holds the interpreter for a few microseconds on its way in and out; a thread that could only run
            # there would count a handful.
            if count[0] - before > 1000:
                moved = True
                break
        assert moved
    finally:
        stop.set()
        thread.join()


def test_many_threads_share_one_spec():
    spec = RopeSpec(64, layout="half", scaling={"type": "dynamic", "factor": 2.0}, max_position_embeddings=16)
    x = random((1, 64, 2, 64))
    expected = {context: phasor.rotate(x, spec, context=context) for context in (64, 128, 256)}
    failures = []

    def work(context):
        for _ in range(50):
            if not np.array_equal(phasor.rotate(x, spec, context=context), expected[context]):
                failures.append(context)

    threads = [threading.Thread(target=work, args=(context,)) for context in expected for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
