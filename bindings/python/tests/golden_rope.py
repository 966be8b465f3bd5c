"""The golden cases of rotation as specs and NumPy arrays, all in one form: golden/README.md says what each file holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import phasor
from golden_cases import Case, cases

Array = npt.NDArray[Any]
# core/rotate.hpp: kRotateErrorF32, in epsilons of float32 and lengths of the pair.
ROTATE_ERROR_F32 = 2.0


@dataclass
class Turn:
    """One tensor of a case: x [batch, heads, tokens, dim], rotated by spec at positions, gives `exact` (float64)."""

    name: str
    spec: phasor.RopeSpec
    x: Array
    dtype: str
    positions: Array  # [tokens], [batch, tokens] or [axes, batch, tokens]
    role: str
    transpose: bool
    exact: Array

    def check(self, got: npt.ArrayLike) -> None:
        """The bound of core/rotate.hpp: 2 epsilon of the pair, then one rounding to the type of x."""
        found = np.asarray(got, np.float64)
        longest = np.hypot(*(np.abs(self.exact).max(axis=-1, keepdims=True),) * 2)
        bound = ROTATE_ERROR_F32 * np.finfo(np.float32).eps * longest
        step = {"float32": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}[self.dtype]
        assert (np.abs(found - self.exact) <= bound + step * (np.abs(self.exact) + bound)).all(), self.name


def _spec(case: Case) -> phasor.RopeSpec:
    json = case.json
    config = {key: value for key, value in json.get("config", {}).items() if value is not None}
    layout = json["layout"]
    if "scale_base" in json:
        xpos = {key: json[key] for key in ("scale_base", "gamma", "centre")}
        return phasor.RopeSpec(json["head_dim"], layout=layout, xpos=xpos)
    if "layout" in config:
        return phasor.RopeSpec(**config)
    if "axial" in json:
        # Frequencies are those of the case, height and width; how they share the head is in `layout`.
        axial = "per_half_head" if layout == "axis_per_half_head" else "concatenated"
        axial = "alternating" if json["axial"] == "alternating" else axial
        return phasor.RopeSpec(json["head_dim"], base=config["rope_parameters"]["rope_theta"], layout="half", axial=axial)
    listed = {"frequencies": case.input("inv_freq_f64"), "amplitude": json.get("scalars", {}).get("attention_scaling", {}).get("value", 1.0)}
    sections = {"mrope": {"sections": json["mrope_section"], "order": _order(json)}} if "mrope_section" in json else {}
    return phasor.RopeSpec(json["head_dim"], layout=layout, rotary_dim=json["rotary_dim"], **listed, **sections)


def _order(json: dict[str, Any]) -> str:
    return "interleaved" if json.get("mrope_order") == "interleaved" else "chunked"


def _heads_first(x: Array, dims: list[str]) -> Array:
    tokens = next(i for i, name in enumerate(dims) if name in ("seq", "patch"))
    x = np.moveaxis(x, tokens, -2)
    return x if x.ndim == 4 else x[None]


def _numbers(case: Case, name: str) -> tuple[Array, str]:
    stated = case.json["inputs"][name]
    x = case.input(name)
    if stated.get("logical_dtype") == "bfloat16":
        return (x.astype(np.uint32) << 16).view(np.float32), "bfloat16"
    return x, str(x.dtype)


def _turns(case: Case) -> list[Turn]:
    json, spec = case.json, _spec(case)
    positions = case.input("position_ids")
    if json["kind"] == "rope_apply_vision2d":
        positions = np.moveaxis(positions, -1, 0)
    if spec.axes > 1 and positions.ndim == 2:
        positions = positions[:, None]
    transpose = json["kind"] == "rope_backward"
    named = {"d_q_out": "d_q", "d_k_out": "d_k"} if transpose else {"q": "q_out", "k": "k_out", "v": "v_out"}
    turns = []
    for given, result in named.items():
        if given not in json["inputs"]:
            continue
        x, dtype = _numbers(case, given)
        dims = json["inputs"][given]["dims"]
        truth = json["truth"].get(result + "_f64") or json["truth"][result + "_exact"]
        exact = _heads_first(np.load(case.folder / truth["file"]), dims)
        role = "key" if given in ("k", "d_k_out") else "query"
        name = f"{case.name}-{given}"
        turns.append(Turn(name, spec, _heads_first(x, dims), dtype, positions, role, transpose, exact))
    return turns


TURNS = [turn for pattern in ("rope_apply/*", "gradients/rope_backward*") for case in cases(pattern) for turn in _turns(case)]
