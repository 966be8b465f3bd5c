"""Encoding: every name and member, arrays as tables, files, and errors."""

from __future__ import annotations

import gc
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import phasor
import pytest
from golden_cases import GOLDEN

Array = npt.NDArray[Any]


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def attend(encoding: Any, dtype: npt.DTypeLike = np.float32, tokens: int = 3) -> Array:
    q, k, v = (normal(tokens, 2, 4, seed=i).astype(dtype) for i in range(3))
    return phasor.attention(q, k, v, encoding=encoding)


def test_name_tables_and_repr() -> None:
    table = normal(7, 4)
    encoding = phasor.Encoding("shaw", clip=3, rel_k=table, scale=0.25)
    assert encoding.name == "shaw"
    assert list(encoding.tables) == ["rel_k"] and encoding.tables["rel_k"] is table
    assert repr(encoding) == 'Encoding("shaw", clip=3, rel_k=<[7, 4] float32>, scale=0.25)'
    assert repr(phasor.Encoding("none")) == 'Encoding("none")'
    assert phasor.Encoding("none").tables == {}
    with pytest.raises(AttributeError):
        encoding.name = "t5"  # type: ignore[misc]


def test_tables_are_read_where_they_lie() -> None:
    table = normal(7, 4)
    encoding = phasor.Encoding("shaw", clip=3, rel_k=table)
    before = attend(encoding)
    table *= -1.0
    after = attend(encoding)
    assert np.abs(before - after).max() > 1e-3
    np.testing.assert_array_equal(after, attend(phasor.Encoding("shaw", clip=3, rel_k=table.copy())))


def test_tables_outlive_their_names() -> None:
    encoding = phasor.Encoding("shaw", clip=3, rel_k=normal(7, 4))
    expected = attend(encoding)
    gc.collect()
    np.testing.assert_array_equal(attend(encoding), expected)


def test_every_type_and_layout_of_a_table() -> None:
    table = normal(2, 7, 4).astype(np.float16).astype(np.float32)
    expected = attend({"encoding": "shaw", "clip": 3, "rel_k": table.tolist()})
    for given in (
        table, table.astype(np.float16), table.astype(np.float64), np.asfortranarray(table),
        np.repeat(table, 2, axis=1)[:, ::2], np.asfortranarray(table).astype(np.float64), table[::-1].copy()[::-1],
    ):  # fmt: skip
        np.testing.assert_array_equal(attend(phasor.Encoding("shaw", clip=3, rel_k=given)), expected)


def test_float64_attention_reads_float64_tables() -> None:
    exact = np.random.default_rng(1).standard_normal((7, 4))
    out = attend(phasor.Encoding("shaw", clip=3, rel_k=exact), np.float64)
    rounded = attend(phasor.Encoding("shaw", clip=3, rel_k=exact.astype(np.float32)), np.float64)
    assert 1e-10 < np.abs(out - rounded).max() < 1e-6
    for given in (np.asfortranarray(exact), exact.tolist()):
        np.testing.assert_array_equal(out, attend(phasor.Encoding("shaw", clip=3, rel_k=given), np.float64))


def test_scalars_of_numpy_and_slopes_are_plain() -> None:
    table = normal(7, 4)
    encoding = phasor.Encoding("shaw", clip=np.int64(3), rel_k=table)
    np.testing.assert_array_equal(attend(encoding), attend(phasor.Encoding("shaw", clip=3, rel_k=table)))
    slopes = np.array([0.5, 0.25])
    assert phasor.Encoding("alibi", slopes=slopes).tables == {}
    np.testing.assert_array_equal(
        attend(phasor.Encoding("alibi", slopes=slopes)), attend({"encoding": "alibi", "slopes": [0.5, 0.25]})
    )


def test_several_at_once() -> None:
    spec = phasor.RopeSpec(4, layout="half")
    table = normal(7, 4)
    shaw = phasor.Encoding("shaw", clip=3, rel_v=table)
    listed = attend([spec, shaw, {"encoding": "alibi"}])
    in_json = {"encoding": [spec, {"encoding": "shaw", "clip": 3, "rel_v": table}, {"encoding": "alibi"}]}
    np.testing.assert_array_equal(attend(in_json), listed)
    assert np.abs(attend([spec, shaw]) - listed).max() > 1e-4
    with pytest.raises(phasor.Error, match="rope"):
        attend([spec, spec])


def test_with_tables_replaces_arrays() -> None:
    table = normal(7, 4)
    encoding = phasor.Encoding("shaw", clip=3, rel_k=table, rel_v=table)
    other = encoding.with_tables({"rel_k": 2.0 * table})
    assert other.tables["rel_v"] is table
    fresh = phasor.Encoding("shaw", clip=3, rel_k=2.0 * table, rel_v=table)
    np.testing.assert_array_equal(attend(other), attend(fresh))
    with pytest.raises(phasor.Error, match='"rel_q".*"rel_k"'):
        encoding.with_tables({"rel_q": table})
    with pytest.raises(phasor.Error, match=r"rel_k.*\[28\]"):
        encoding.with_tables({"rel_k": table.reshape(-1)})


def test_from_file(tmp_path: Path) -> None:
    table = normal(7, 4)
    np.save(tmp_path / "rows.npy", table)
    file = tmp_path / "shaw.json"
    file.write_text(json.dumps({"encoding": "shaw", "clip": 3, "rel_k": "rows.npy"}))
    encoding = phasor.Encoding.from_file(file)
    assert encoding.name == "shaw"
    expected = attend(phasor.Encoding("shaw", clip=3, rel_k=table))
    np.testing.assert_array_equal(attend(encoding), expected)
    np.testing.assert_array_equal(attend(phasor.Encoding.from_file(str(file))), expected)
    (tmp_path / "config.json").write_text(json.dumps({"head_dim": 4, "layout": "half", "base": 500.0}))
    rope = phasor.Encoding.from_file(tmp_path)
    assert rope.name == "rope"
    np.testing.assert_array_equal(attend(rope), attend(phasor.RopeSpec(4, base=500.0, layout="half")))
    (tmp_path / "both.json").write_text(json.dumps({"encoding": [{"encoding": "alibi"}, {"encoding": "rope"}]}))
    assert phasor.Encoding.from_file(tmp_path / "both.json").name == "alibi+rope"
    for name in ("missing.json", "broken.json"):
        (tmp_path / "broken.json").write_text("{")
        with pytest.raises(phasor.Error, match=name):
            phasor.Encoding.from_file(tmp_path / name)


def test_every_example_fits_three_tokens() -> None:
    files = sorted((GOLDEN.parent / "examples" / "encodings").glob("*.json"))
    assert len(files) >= 13
    for file in files:
        encoding = phasor.Encoding.from_file(file)
        q = normal(3, 2, 4)
        out = phasor.attention(
            q, q, q, encoding=encoding, causal=True, query_segments=np.zeros(3, np.int32), key_segments=[0, 0, 1]
        )
        assert np.isfinite(out).all(), file.name


def test_rows_that_follow_the_tokens_are_read_anew() -> None:
    waves: dict[str, Any] = {"sinusoidal": {"variant": "concat"}}
    encoding = phasor.Encoding("transformer_xl", r_head=waves)
    for tokens in (3, 5, 4):
        fresh = phasor.Encoding("transformer_xl", r_head=waves)
        np.testing.assert_array_equal(attend(encoding, tokens=tokens), attend(fresh, tokens=tokens))


@pytest.mark.parametrize(
    ("name", "members", "match", "code"),
    [
        ("shaws", {}, '"shaws"', "invalid_argument"),
        ("sinusoidal", {}, "sinusoidal", "unsupported"),
        ("shaw", {"clip": 3}, "rel_k.*rel_v", "invalid_argument"),
        ("shaw", {"clip": 3, "rel_k": normal(7, 4), "rel_q": 1}, "rel_q", "invalid_argument"),
        ("shaw", {"clip": 3, "rel_k": normal(7)}, r"rel_k.*\[7\]", "shape_mismatch"),
        ("shaw", {"clip": 3, "rel_k": np.ones((7, 4), np.int64)}, "rel_k .*int64", "unsupported"),
        ("shaw", {"clip": 3, "rel_k": np.ones((0, 4), np.float32)}, r"rel_k.*\[0, 4\]", "shape_mismatch"),
        ("shaw", {"clip": 3, "rel_k": object()}, "rel_k .*object", "invalid_argument"),
        ("shaw", {"clip": 3, "rel_k": {"array": "other"}}, "rel_k.*other", "invalid_argument"),
        ("t5", {"relative_attention_bias": normal(8, 2), "num_buckets": 9}, "num_buckets", "invalid_argument"),
        ("rope", {"head_dim": 4, "basis": 1}, "basis", "invalid_argument"),
        ("shaw", {"clip": 1, "rel_k": "missing.npy"}, "missing.npy", "io"),
        ("none", {"scale": float("inf")}, "column 31|scale", "invalid_argument"),
    ],
)  # fmt: skip
def test_refusals_at_construction(name: str, members: dict[str, Any], match: str, code: str) -> None:
    with pytest.raises(phasor.Error, match=match) as refused:
        phasor.Encoding(name, **members)
    assert refused.value.code == code
    with pytest.raises(phasor.Error):
        attend({"encoding": name, **members})


def test_the_name_comes_once() -> None:
    with pytest.raises(phasor.Error, match='"encoding"'):
        phasor.Encoding("none", encoding="alibi")


def test_what_only_attention_can_tell() -> None:
    # Without a head width a rope waits for one.
    rope = phasor.Encoding("rope", layout="half", rotary_dim=8)
    with pytest.raises(phasor.Error, match="rotary_dim"):
        attend(rope)
    heads = phasor.Encoding("shaw", clip=3, rel_k=normal(3, 7, 4))
    with pytest.raises(phasor.Error, match="3"):
        attend(heads)


def test_a_path_is_an_encoding(tmp_path: Path) -> None:
    path = tmp_path / "alibi.json"
    path.write_text('{"encoding": "alibi"}')
    q = np.random.default_rng(1).standard_normal((5, 4, 8)).astype(np.float32)
    expected = phasor.attention(q, q, q, encoding=phasor.Encoding("alibi"))
    for form in (path, str(path)):
        np.testing.assert_array_equal(phasor.attention(q, q, q, encoding=form), expected)
    with pytest.raises(phasor.Error, match="no-such"):
        phasor.attention(q, q, q, encoding=str(tmp_path / "no-such.json"))


def test_help_and_document_list_every_name_with_its_members() -> None:
    root = Path(__file__).resolve().parents[3]
    told = dict(re.findall(r"^    (\w+): (.*)$", phasor.Encoding.__doc__ or "", re.M))
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", (root / "docs/python.md").read_text(), re.M))
    assert {name: rows.get(name) for name in told} == told
    for example in (root / "examples/encodings").glob("*.json"):
        members = json.loads(example.read_text())
        name = members.pop("encoding", "rope")
        if isinstance(name, str) and name != "rope":
            assert all(re.search(rf"\b{key}\b", told[name]) for key in members if key != "scale"), example.name
