"""convert_layout: one permutation between the layouts, and the law that ties it to rotation."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

import phasor


def numbers(*shape: int, dtype: str = "float32", seed: int = 7) -> npt.NDArray[Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def head_order(to: str, head_dim: int, rotary_dim: int, offset: int) -> list[int]:
    """For each feature of a head in layout `to`, the feature that it takes: by the definition of the layouts."""
    order = list(range(head_dim))
    for i in range(rotary_dim // 2):
        for member in range(2):
            half, interleaved = offset + i + member * rotary_dim // 2, offset + 2 * i + member
            if to == "half":
                order[half] = interleaved
            else:
                order[interleaved] = half
    return order


@pytest.mark.parametrize("to", ["half", "interleaved"])
@pytest.mark.parametrize(("rotary_dim", "offset"), [(None, 0), (8, 0), (6, 4), (None, 2), (0, 3)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "uint8"])
def test_is_the_permutation_of_the_definition(to: str, rotary_dim: int | None, offset: int, dtype: str) -> None:
    heads, head_dim = 3, 12
    weight = (100 * numbers(heads * head_dim, 5)).astype(dtype)
    wide = head_dim - offset if rotary_dim is None else rotary_dim
    order = head_order(to, head_dim, wide, offset)
    expected = weight.reshape(heads, head_dim, 5)[:, order].reshape(weight.shape)
    choice: Literal["half", "interleaved"] = "half" if to == "half" else "interleaved"
    got = phasor.convert_layout(weight, to=choice, heads=heads, rotary_dim=rotary_dim, rotary_offset=offset)
    assert got.dtype == weight.dtype
    np.testing.assert_array_equal(got, expected)


def test_there_and_back_is_the_same() -> None:
    weight = numbers(4 * 16, 24)
    there = phasor.convert_layout(weight, to="half", heads=4)
    assert not np.array_equal(there, weight)
    np.testing.assert_array_equal(phasor.convert_layout(there, to="interleaved", heads=4), weight)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
def test_any_axis_of_strided_views(axis: int) -> None:
    whole = numbers(8, 32, 16)
    for view in (whole, whole[::-1, ::2, ::-2], whole.transpose(2, 0, 1), np.broadcast_to(whole[0], (8, 32, 16))):
        length = view.shape[axis]
        head = np.array(head_order("half", length // 2, length // 2, 0))
        order = np.concatenate([head, head + length // 2])
        got = phasor.convert_layout(view, to="half", heads=2, axis=axis)
        np.testing.assert_array_equal(got, np.take(view, order, axis=axis))


def test_out_is_written_where_it_lies() -> None:
    weight = numbers(2 * 8, 6)
    room = np.zeros((16, 12), np.float32)
    out = room[:, ::2]
    assert phasor.convert_layout(weight, to="interleaved", heads=2, out=out) is out
    np.testing.assert_array_equal(out, phasor.convert_layout(weight, to="interleaved", heads=2))
    assert not room[:, 1::2].any()


@pytest.mark.parametrize(("rotary_dim", "offset"), [(16, 0), (8, 4)])
def test_rotation_and_conversion_commute(rotary_dim: int, offset: int) -> None:
    x = numbers(1, 9, 3, 16)
    half = phasor.RopeSpec(16, rotary_dim=rotary_dim, rotary_offset=offset, layout="half")
    interleaved = half.replace(layout="interleaved")

    def converted(tensor: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return phasor.convert_layout(
            tensor, to="interleaved", heads=1, axis=-1, rotary_dim=rotary_dim, rotary_offset=offset
        )

    np.testing.assert_allclose(
        phasor.rotate(converted(x), interleaved, 5), converted(phasor.rotate(x, half, 5)), rtol=0, atol=1e-6
    )
    assert not np.allclose(phasor.rotate(x, interleaved, 5), phasor.rotate(x, half, 5), atol=1e-2)


def test_scores_of_a_converted_projection_are_those_of_the_original() -> None:
    heads, head_dim, hidden, tokens = 2, 8, 10, 6
    states = numbers(tokens, hidden, dtype="float64")
    weights = [numbers(heads * head_dim, hidden, dtype="float64", seed=s) for s in (1, 2)]

    def scores(weights: list[npt.NDArray[Any]], spec: phasor.RopeSpec) -> npt.NDArray[Any]:
        q, k = (phasor.rotate((states @ w.T).reshape(tokens, heads, head_dim), spec) for w in weights)
        products: npt.NDArray[Any] = np.einsum("mhd,nhd->hmn", q, k)
        return products

    spec = phasor.RopeSpec(head_dim, layout="interleaved")
    moved = [phasor.convert_layout(w, to="half", heads=heads) for w in weights]
    after = scores(moved, spec.replace(layout="half"))
    np.testing.assert_allclose(after, scores(weights, spec), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        ({"to": "interleaved_to_half"}, ("interleaved_to_half",)),
        ({"heads": 3}, ("16", "3")),
        ({"heads": 0}, ("heads", "0")),
        ({"rotary_dim": 3}, ("rotary_dim", "3")),
        ({"rotary_dim": 8, "rotary_offset": 2}, ("rotary_dim", "6", "8")),
        ({"rotary_offset": -1}, ("rotary_offset", "-1")),
        ({"rotary_offset": 3}, ("rotary_dim", "5")),
        ({"axis": 2}, ("axis", "got 2")),
        ({"axis": -3}, ("axis", "-3")),
    ],
)
def test_refuses(changes: dict[str, Any], values: tuple[str, ...]) -> None:
    arguments: dict[str, Any] = {"to": "half", "heads": 2} | changes
    with pytest.raises(phasor.Error) as refusal:
        phasor.convert_layout(numbers(16, 4), **arguments)
    assert all(value in str(refusal.value) for value in values), refusal.value


def test_refuses_outputs_that_do_not_fit_or_share_memory() -> None:
    weight = numbers(16, 4)
    before = weight.copy()
    for out in (weight, weight[::-1], np.zeros((16, 5), np.float32), np.zeros((16, 4), np.float64)):
        with pytest.raises(phasor.Error, match="out"):
            phasor.convert_layout(weight, to="half", heads=2, out=out)
    np.testing.assert_array_equal(weight, before)
    with pytest.raises(phasor.Error):
        phasor.convert_layout("weight", to="half", heads=2)
