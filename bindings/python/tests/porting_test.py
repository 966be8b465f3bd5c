"""explain, diagnose, audit, diff and plan on configs and arrays that the golden data and Phasor itself provide."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import phasor
from golden_cases import GOLDEN

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}


class Settings:
    """What a transformers config looks like from outside."""

    def to_dict(self) -> dict[str, Any]:
        return LLAMA


def numbers(*shape: int, dtype: str = "float32") -> npt.NDArray[Any]:
    return np.random.default_rng(3).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("name", ["default_llama2_7b", "yarn_qwen2_5_7b", "partial_gpt_neox_20b", "nested_gemma3_4b"])
def test_explain_gives_the_frequencies_of_the_reference(name: str) -> None:
    folder = GOLDEN / "rope_freqs" / name
    case = json.loads((folder / "case.json").read_text())
    for file in case["configs"].values():
        page = phasor.explain(json.loads((folder / file).read_text()))
        assert page == phasor.explain(folder / file)
        layers = {layer["layer_type"]: layer for layer in page["layers"]}
        for wanted in case["sets"]:
            layer = layers[wanted["layer_type"] or ""]
            exact = np.load(folder / f"{wanted['inv_freq']}_f64.npy")[0]
            np.testing.assert_allclose(layer["frequencies"], exact, rtol=1e-13)
            assert layer["amplitude"] == pytest.approx(case["scalars"][wanted["attention_scaling"]]["value"])


def test_explain_takes_dictionaries_paths_and_objects(tmp_path: pathlib.Path) -> None:
    page = phasor.explain(LLAMA)
    assert page["layers"][0]["layout"] == "half"
    assert page["layers"][0]["head_dim"] == 64
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert phasor.explain(Settings()) == page
    assert phasor.explain(tmp_path) == page
    assert phasor.explain(str(tmp_path / "config.json")) == page
    longer = phasor.explain(LLAMA, context=8192)
    assert any("8192" in warning for warning in longer["warnings"])
    assert "weights" not in page
    weights = phasor.explain(GOLDEN / "models" / "llama_gqa_llama3" / "model")["weights"]
    assert weights["runs_as"] == "decoder"


def test_diff_and_plan() -> None:
    yarn = LLAMA | {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}}
    report = phasor.diff(yarn, between=["hf", "llama.cpp"], context=16384)
    assert [dialect["name"] for dialect in report["dialects"]] == ["hf", "llama.cpp"]
    assert report["context"] == 16384
    assert len(phasor.diff(LLAMA)["dialects"]) == 3
    assert phasor.diff(LLAMA, shifts=2, max_length=2048)["max_length"] == 2048

    page = phasor.plan(LLAMA, to=16384)
    assert page["factor"] == 4.0
    assert {"linear", "ntk", "yarn"} <= {method["method"] for method in page["methods"]}
    assert phasor.plan(LLAMA, to=16384, trained=2048)["factor"] == 8.0
    nested = json.loads((GOLDEN / "models" / "gemma3_local_global" / "model" / "config.json").read_text())
    with pytest.raises(phasor.Error, match="no_such_layer"):
        phasor.plan(nested, to=1 << 20, layer="no_such_layer")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_diagnose_finds_what_rotate_did(dtype: str, layout: str) -> None:
    spec = phasor.RopeSpec(32, rotary_dim=24, base=500000.0, layout=layout)  # type: ignore[arg-type]
    x = numbers(2, 24, 4, 32, dtype=dtype)
    page = phasor.diagnose(x, phasor.rotate(x, spec, 7), config=spec)
    assert page["answer"] == "rope"
    assert page["layout"] == layout
    assert page["rotary_dim"] == 24
    assert page["offset"] == 7
    assert page["inverse"] is False
    assert page["base"] == pytest.approx(500000.0, rel=1e-2)
    assert page["tensor_dtype"] == dtype
    assert page["differences"] == []


def test_diagnose_tells_a_wrong_base_layout_and_direction() -> None:
    right = phasor.RopeSpec(32, base=10000.0, layout="half")
    x = numbers(40, 2, 32)
    fields = {
        "base": (phasor.rotate(x, right.replace(base=500000.0)), right),
        "layout": (phasor.rotate(x, right.replace(layout="interleaved")), right),
    }
    for field, (rotated, spec) in fields.items():
        page = phasor.diagnose(x, rotated, positions=np.arange(40), config=spec)
        assert field in [difference["field"] for difference in page["differences"]]
    back = phasor.diagnose(x, phasor.rotate(x, right, inverse=True), positions=range(40))
    assert back["inverse"] is True
    assert "differences" not in back


def test_diagnose_reads_strided_views_and_configs() -> None:
    wide = numbers(30, 4, 64)
    view = wide[:, ::2, :]
    spec = phasor.RopeSpec.from_hf(LLAMA)
    rotated = phasor.rotate(view, spec)
    page = phasor.diagnose(view, rotated, config=LLAMA, axes=["tokens", "heads", "dim"])
    assert page["differences"] == []
    assert page == phasor.diagnose(view.copy(), rotated.copy(), config=Settings(), axes=["tokens", "heads", "dim"])
    heads_first = phasor.diagnose(view.transpose(1, 0, 2), rotated.transpose(1, 0, 2))
    assert heads_first["axes"] == ["heads", "tokens", "dim"]
    assert phasor.diagnose(view, view + 1)["answer"] == "none"


def test_diagnose_takes_the_context_from_the_positions() -> None:
    spec = phasor.RopeSpec(
        64, layout="half", max_position_embeddings=16, scaling={"type": "dynamic", "factor": 2.0}
    )
    x = numbers(48, 2, 64)
    page = phasor.diagnose(x, phasor.rotate(x, spec, context=48), positions=np.arange(48), config=spec)
    assert page["differences"] == []
    other = phasor.diagnose(x, phasor.rotate(x, spec, context=48), positions=np.arange(48), config=spec, context=16)
    assert other["differences"] != []


def float32_table(spec: phasor.RopeSpec, positions: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Exact frequencies, rounded to float32 and multiplied there."""
    angles = positions.astype(np.float32)[:, None] * spec.frequencies()[0].astype(np.float32)
    return np.cos(angles), np.sin(angles)


def test_audit_names_the_cause() -> None:
    spec = phasor.RopeSpec(64, layout="half")
    exact = phasor.audit(*phasor.cos_sin(spec, 512), spec)
    assert exact["as_good_as_its_type"] is True
    assert exact["within_threshold"] is True
    assert exact["cause"] is None

    positions = np.arange(100000, 100256)
    engine = phasor.cos_sin(spec, positions, angles="float32")
    assert phasor.audit(*engine, spec, positions)["cause"]["name"] == "float32_product"
    page = phasor.audit(*float32_table(spec, positions), spec, positions)
    assert page["cause"]["name"] == "rounded_product"
    assert page["within_threshold"] is False
    assert page["first_position_past_threshold"] >= 100000
    assert page["ulp_of"] == "float32"

    cos, sin = phasor.cos_sin(spec, 512)
    half = phasor.audit(cos.astype(np.float16), sin.astype(np.float16), spec)
    assert half["ulp_of"] == "float16"
    assert half["as_good_as_its_type"] is True
    wrong = phasor.audit(*phasor.cos_sin(spec.replace(base=20000.0), 512), LLAMA)
    assert wrong["max_angle_error"] > 1.0


def test_audit_of_several_axes_and_of_a_context() -> None:
    mrope = phasor.RopeSpec(32, layout="half", mrope={"sections": [4, 6, 6], "order": "chunked"})
    positions = np.random.default_rng(1).integers(0, 50, (3, 20))
    cos, sin = phasor.cos_sin(mrope, positions)
    page = phasor.audit(cos, sin, mrope, positions)
    assert page["as_good_as_its_type"] is True
    assert len(page["worst_ulp"]["position"]) == 3
    text = phasor.cos_sin(mrope, np.tile(np.arange(20), (3, 1)))
    assert phasor.audit(*text, mrope)["as_good_as_its_type"] is True

    dynamic = phasor.RopeSpec(32, layout="half", max_position_embeddings=16, scaling={"type": "dynamic", "factor": 2.0})
    table = phasor.cos_sin(dynamic, 64, context=64)
    page = phasor.audit(*table, dynamic)
    assert page["context"] == 64
    assert page["as_good_as_its_type"] is True
    assert phasor.audit(*table, dynamic, context=16)["within_threshold"] is False


def refusals() -> list[tuple[Any, str | tuple[str, ...]]]:
    x = numbers(8, 2, 16)
    y = phasor.rotate(x, phasor.RopeSpec(16, layout="half"))
    spec = phasor.RopeSpec(16, layout="half")
    cos, sin = phasor.cos_sin(spec, 8)
    axial = phasor.RopeSpec(16, layout="half", axial="concatenated")
    return [
        (
            lambda: phasor.explain(3),  # type: ignore[arg-type]
            ("explain: config", "int"),
        ),
        (lambda: phasor.explain("no/such/folder"), "no/such/folder"),
        (lambda: phasor.explain({"head_dim": 8, "bas": 3}), "bas"),
        (lambda: phasor.explain(LLAMA, context=-1), "-1"),
        (lambda: phasor.diff(LLAMA, between=["hf"]), "got 1"),
        (lambda: phasor.diff(LLAMA, between=["hf", "nobody"]), "nobody"),
        (lambda: phasor.diff(LLAMA, layer=7), "7"),
        (lambda: phasor.plan(LLAMA, to=4096), "4096"),
        (lambda: phasor.diagnose(x, x[:4]), "shape"),
        (lambda: phasor.diagnose(x.astype(np.int64), x.astype(np.int64)), "int64"),
        (lambda: phasor.diagnose(x, y, axes=["tokens", "heads"]), "axes"),
        (lambda: phasor.diagnose(x, y, positions=np.arange(3)), "positions"),
        (lambda: phasor.diagnose("x", x), "diagnose: before"),
        (lambda: phasor.audit(cos, sin[:4], spec), ("audit: cos and sin", "[8, 8]", "[4, 8]")),
        (lambda: phasor.audit(cos[0], sin[0], spec), ("audit: cos and sin", "[8]")),
        (lambda: phasor.audit(cos, sin.astype(np.float64), spec), ("float32", "float64")),
        (lambda: phasor.audit(cos.astype(np.int32), sin.astype(np.int32), spec), "int32"),
        (lambda: phasor.audit(cos[:, :4], sin[:, :4], spec), "8"),
        (lambda: phasor.audit(cos, sin, spec, np.arange(3)), ("[8]", "[3]")),
        (lambda: phasor.audit(cos, sin, axial), ("[2, 8]", "[8]")),
        (lambda: phasor.audit(cos, sin, spec, threshold=-1.0), ("threshold", "-1")),
        (lambda: phasor.audit(cos, sin, 5), "audit: spec"),  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize("case", range(len(refusals())))
def test_refuses(case: int) -> None:
    call, words = refusals()[case]
    with pytest.raises(phasor.Error) as refusal:
        call()
    values = (words,) if isinstance(words, str) else words
    assert all(value in str(refusal.value) for value in values), refusal.value
    assert "\n" not in str(refusal.value)
