"""RopeSpec: a frozen value that prints, hashes, pickles and resolves."""

from __future__ import annotations

import copy
import json
import math
import pathlib
import pickle
import re

import numpy as np
import pytest

import phasor
from phasor import RopeSpec

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"
LLAMA3 = {
    "type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SPECS = [
    RopeSpec(128),
    RopeSpec(64, base=500000.0, layout="interleaved"),
    RopeSpec(96, layout="half", rotary_dim=32, rotary_offset=64),
    RopeSpec(128, layout="half", scaling=LLAMA3),
    RopeSpec(8, layout="half", scaling={"type": "linear", "factor": 4}),
    RopeSpec(8, layout="half", scaling={"type": "dynamic", "factor": 2.0}, max_position_embeddings=2048),
    RopeSpec(8, layout="half", scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768,
                                        "beta_fast": 16.0, "truncate": False}),
    RopeSpec(8, layout="half", scaling={"type": "longrope", "factor": 32.0, "short_factor": [1.0, 1.1, 1.2, 1.3],
                                        "long_factor": [2.0, 3.0, 4.0, 5.0],
                                        "original_max_position_embeddings": 4096}),
    RopeSpec(8, layout="half", scaling={"type": "telechat3-yarn", "factor": 4.0,
                                        "original_max_position_embeddings": 8192}),
    RopeSpec(16, layout="half", mrope={"sections": [4, 2, 2], "order": "interleaved"}),
    RopeSpec(16, layout="half", mrope={"sections": [5, 3, 0, 0], "order": "chunked"}),
    RopeSpec(16, layout="half", axial="concatenated"),
    RopeSpec(16, layout="half", axial="concatenated", scaling={"type": "linear", "factor": 4}),
    RopeSpec(8, layout="half", scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768,
                                        "extrapolation_factor": 0.7465}),
    RopeSpec(frequencies=[1.0, 0.1 + 0.2, 1 / 3, -1e-300], layout="half", amplitude=1 / 7),
    RopeSpec(8, frequencies=[1.0, 0.5], rotary_dim=4, layout="half", scaling={"type": "linear", "factor": 3}),
    RopeSpec(8, layout="half", frequency_factors=[1.0, 1 / 3, 2.0, 4.0], amplitude=2.0),
    RopeSpec(16, layout="interleaved", xpos={"scale_base": 256.0, "centre": "middle_floor"}),
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_spec_prints_hashes_copies_and_pickles_as_itself(spec):
    again = [eval(repr(spec)), RopeSpec(**spec.to_dict()), pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec)]
    for other in again:
        assert other == spec and hash(other) == hash(spec) and repr(other) == repr(spec)
    assert len({spec, *again}) == 1
    json.dumps(spec.to_dict())


def test_specs_that_differ_are_not_equal():
    assert len(set(SPECS)) == len(SPECS)
    assert RopeSpec(8) != RopeSpec(8, layout="half")
    assert RopeSpec(8) != "RopeSpec(head_dim=8, base=10000.0)"


def test_a_spec_without_a_layout_says_so():
    assert repr(RopeSpec(8)).endswith("layout=None)")
    assert "layout=None" not in repr(RopeSpec(8, layout="half"))
    with pytest.raises(phasor.Error, match="layout"):
        phasor.rotate(np.ones((1, 1, 8), np.float32), RopeSpec(8))


def test_help_and_documents_list_every_key_of_every_scaling():
    page = (DOCS / "rope_spec.md").read_text()
    table = (DOCS / "python.md").read_text()
    parts = page.split("\n## ")
    assert len(parts) > 10
    for part in parts:
        keys = re.findall(r"^\| `(\w+)`", part, re.M)
        name = part.partition("\n")[0].removeprefix("scaling: ")
        told = RopeSpec.__doc__
        if part.startswith("scaling: "):
            told = told.partition(f'scaling={{"type": "{name}", ...}}')[2].partition("\nscaling=")[0]
            (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", table, re.M)
            assert re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", row)) == keys
        assert all(f"\n    {key}: " in told for key in keys), name


def test_a_spec_is_frozen():
    spec = RopeSpec(8)
    for name in ("head_dim", "base", "layout", "scaling"):
        with pytest.raises(AttributeError):
            setattr(spec, name, 1)
    spec.scaling["factor"] = 3.0  # a copy
    assert spec.scaling == {"type": "default"}


def test_replace_changes_one_member_and_none_takes_it_away():
    spec = RopeSpec(128, layout="half", scaling=LLAMA3)
    assert spec.replace(base=1e6) == RopeSpec(128, base=1e6, layout="half", scaling=LLAMA3)
    assert spec.replace(scaling=None) == RopeSpec(128, layout="half")
    with pytest.raises(phasor.Error, match="rotary_dim"):
        spec.replace(rotary_dim=7)


def test_frequencies_are_those_of_the_paper():
    frequencies, amplitude = RopeSpec(128, base=10000.0).frequencies()
    assert frequencies.dtype == np.float64 and amplitude == 1.0
    expected = [math.pow(10000.0, -2 * i / 128) for i in range(64)]
    np.testing.assert_allclose(frequencies, expected, rtol=4e-16)


def test_llama3_frequencies_by_wavelength():
    spec = RopeSpec(128, base=500000.0, layout="half", scaling=LLAMA3)
    unscaled, _ = spec.replace(scaling=None).frequencies()
    scaled, _ = spec.frequencies()
    wavelengths = 2 * np.pi / unscaled
    np.testing.assert_array_equal(scaled[wavelengths < 8192 / 4], unscaled[wavelengths < 8192 / 4])
    np.testing.assert_allclose(scaled[wavelengths > 8192], unscaled[wavelengths > 8192] / 8, rtol=1e-15)


def test_dynamic_frequencies_follow_the_context():
    spec = RopeSpec(8, layout="half", scaling={"type": "dynamic", "factor": 2.0}, max_position_embeddings=2048)
    assert spec.depends_on_context
    short, long = spec.frequencies(2048)[0], spec.frequencies(8192)[0]
    np.testing.assert_array_equal(short, RopeSpec(8).frequencies()[0])
    base = 10000.0 * (2.0 * 8192 / 2048 - 1.0) ** (8 / 6)
    np.testing.assert_allclose(long, [base ** (-2 * i / 8) for i in range(4)], rtol=1e-15)


def test_from_hf_reads_dictionaries_paths_and_objects(tmp_path):
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "rope_theta": 50000.0}
    spec = RopeSpec.from_hf(config)
    assert (spec.head_dim, spec.base, spec.layout, spec.axes) == (16, 50000.0, "half", 1)
    (tmp_path / "config.json").write_text(json.dumps(config))

    class Config:
        def to_dict(self):
            return {**config, "torch_dtype": np.dtype("float32")}  # a value that JSON does not know

    for form in (tmp_path, str(tmp_path / "config.json"), Config()):
        assert RopeSpec.from_hf(form) == spec


def test_from_hf_of_a_model_whose_layers_differ():
    config = {
        "model_type": "gemma3_text", "hidden_size": 64, "num_attention_heads": 4, "head_dim": 16,
        "num_hidden_layers": 6, "rope_theta": 1e6, "rope_local_base_freq": 10000.0, "sliding_window": 512,
        "sliding_window_pattern": 6,
    }
    with pytest.raises(phasor.Error, match="sliding_attention"):
        RopeSpec.from_hf(config)
    assert RopeSpec.from_hf(config, layer=5).base == 1e6
    assert RopeSpec.from_hf(config, layer="sliding_attention").base == 10000.0


def test_keys_of_another_scaling_are_a_warning():
    rope = {"rope_type": "default", "rope_theta": 10000.0, "original_max_position_embeddings": 16384}
    config = {"model_type": "llama", "head_dim": 16, "rope_parameters": rope}
    with pytest.warns(UserWarning, match="original_max_position_embeddings"):
        spec = RopeSpec.from_hf(config)
    assert spec == RopeSpec(16, layout="half")
    with pytest.raises(phasor.Error, match="spiral"):
        RopeSpec.from_hf({**config, "rope_parameters": {**rope, "spiral": 1}})


def test_query_scale():
    rope = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6, "llama_4_scaling_beta": 0.1}
    config = {
        "model_type": "ministral3", "head_dim": 16, "max_position_embeddings": 65536,
        "rope_parameters": {**rope, "original_max_position_embeddings": 16384},
    }
    positions = np.array([[0, 16383], [16384, 70000]])
    got = phasor.query_scale(config, positions)
    np.testing.assert_allclose(got, 1 + 0.1 * np.log(1 + positions // 16384), rtol=1e-15)
    assert got.dtype == np.float64 and got.shape == positions.shape
    assert (phasor.query_scale({"model_type": "llama", "head_dim": 16}, 3) == 1).all()
    llama4 = {"model_type": "llama4_text", "head_dim": 16, "num_hidden_layers": 4}
    assert phasor.query_scale(llama4, [8190, 8191], layer=3)[0] == 1.0
    assert phasor.query_scale(llama4, [8190, 8191], layer=3)[1] > 1.0
    assert (phasor.query_scale(llama4, [8190, 8191], layer=0) == 1).all()
    with pytest.raises(phasor.Error, match="-1"):
        phasor.query_scale(config, [-1])
    # Attention with such a config would leave the factor out.
    with pytest.raises(phasor.Error, match="query"):
        phasor.Encoding("rope", config=config)
    with pytest.raises(phasor.Error, match="bloom"):
        phasor.Encoding("rope", config={"model_type": "bloom", "hidden_size": 64, "n_head": 4})


def test_frequencies_of_images_are_in_the_order_of_the_pairs():
    spec = RopeSpec.from_hf({"model_type": "pixtral", "head_dim": 8, "rope_theta": 10000.0})
    np.testing.assert_allclose(spec.frequencies()[0], [1.0, 0.01, 0.1, 0.001], rtol=1e-15)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_config_of_the_golden_cases_survives_the_plain_form(golden):
    seen = 0
    for path in sorted([*golden.glob("rope_freqs/*/config.*.json"), *golden.glob("models/*/model/config.json")]):
        try:
            spec = RopeSpec.from_hf(path)
        except phasor.Error as refusal:
            # Layers that differ: one must be named. BLOOM, GPT-2 and T5 do not rotate.
            assert "layer" in str(refusal) or path.parts[-3].startswith(("bloom", "gpt2", "t5", "mt5", "umt5")), path
            continue
        seen += 1
        again = RopeSpec(**spec.to_dict())
        assert again == spec, path
        np.testing.assert_array_equal(again.frequencies(5000)[0], spec.frequencies(5000)[0])
        assert again.frequencies(5000)[1] == spec.frequencies(5000)[1]
    assert seen >= 30


@pytest.mark.parametrize(
    "members, message",
    [
        ({"head_dim": 7}, "7"),
        ({"head_dim": 8, "layout": "diagonal"}, "layout"),
        ({"head_dim": 8, "base": -1.0}, "base"),
        ({"head_dim": 8, "scaling": {"type": "linear"}}, "factor"),
        ({"head_dim": 8, "scaling": {"type": "yarn", "factor": 2}}, "original_max_position_embeddings"),
        ({"head_dim": 8, "scaling": {"type": "magic", "factor": 2}}, "magic"),
        ({"head_dim": 8, "scaling": {"type": "linear", "factor": 2, "facter": 3}}, "facter"),
        ({"head_dim": 8, "mrope": {"sections": [1, 1, 1]}}, "section"),
        ({"head_dim": 2**40}, "rotary_dim"),
        ({}, "head_dim"),
        ({"frequencies": []}, "frequencies"),
        ({"head_dim": 8, "frequencies": [1.0, 2.0, 3.0]}, "frequencies.*3"),
        ({"head_dim": 7, "rotary_dim": 7, "frequencies": [1.0, 2.0, 3.0]}, "7"),
        ({"frequencies": [1.0, math.inf]}, "."),
        ({"frequencies": [1.0, math.nan]}, "."),
        ({"frequencies": np.array([[1.0, 2.0]])}, "frequencies"),
        ({"frequencies": [1.0, 0.1], "base": 500000.0}, "base.*500000"),
        ({"frequencies": [1.0, 0.1], "scaling": {"type": "ntk", "factor": 2}}, "ntk"),
        ({"head_dim": 4, "frequency_factors": [1.0, 0.0]}, "frequency_factors"),
        ({"head_dim": 8, "amplitude": 0.0}, "amplitude"),
        ({"head_dim": 8, "amplitude": -2.0}, "amplitude.*-2"),
        ({"head_dim": 8, "scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 64,
                                     "extrapolation_factor": 2}}, "extrapolation_factor"),
        ({"head_dim": "eight"}, "head_dim"),
        ({"head_dim": 8, "base": math.nan}, "."),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(members, message):
    with pytest.raises(phasor.Error, match=message) as refusal:
        RopeSpec(**members)
    assert isinstance(refusal.value, ValueError)
    assert refusal.value.code in ("invalid_argument", "shape_mismatch", "out_of_range", "unsupported")
    assert "\n" not in str(refusal.value)


def test_a_list_of_frequencies_replaces_the_base():
    listed = np.array([1.0, 0.3, 0.1], np.float32)
    spec = RopeSpec(frequencies=listed, amplitude=1.25, layout="half")
    assert (spec.head_dim, spec.rotary_dim, spec.base) == (6, 6, None)
    frequencies, amplitude = spec.frequencies()
    np.testing.assert_array_equal(frequencies, listed.astype(np.float64))
    assert amplitude == 1.25
    assert spec == RopeSpec(6, frequencies=tuple(listed.tolist()), amplitude=1.25, layout="half")
    assert spec != spec.replace(frequencies=listed[::-1])
    assert spec.replace(frequencies=None, head_dim=8).base == 10000.0
    powers = RopeSpec(64, layout="half")
    same = RopeSpec(64, layout="half", frequencies=powers.frequencies()[0])
    x = np.random.default_rng(2).standard_normal((5, 3, 64)).astype(np.float32)
    np.testing.assert_array_equal(phasor.rotate(x, same, 1000), phasor.rotate(x, powers, 1000))


def test_factors_divide_and_mlx_gives_reciprocals():
    factors = np.linspace(0.9, 1.1, 4)
    spec = RopeSpec(8, base=500.0, layout="half", frequency_factors=factors)
    np.testing.assert_array_equal(spec.frequencies()[0], RopeSpec(8, base=500.0).frequencies()[0] / factors)
    freqs = np.array([1.0, 7.0, 49.0, 343.0])  # mlx.core.fast.rope(freqs=): position / freqs
    by_list = RopeSpec(frequencies=1 / freqs).frequencies()[0]
    np.testing.assert_array_equal(by_list, RopeSpec(8, base=1.0, frequency_factors=freqs).frequencies()[0])


def test_extrapolation_factor_is_the_weight_of_the_unscaled_frequencies():
    def spec(weight):
        return RopeSpec(64, layout="half", scaling={"type": "yarn", "factor": 8.0, "extrapolation_factor": weight,
                                                    "original_max_position_embeddings": 4096})

    none, half, whole = (spec(weight).frequencies()[0] for weight in (0.0, 0.5, 1.0))
    np.testing.assert_allclose(none, RopeSpec(64).frequencies()[0] / 8, rtol=4e-16)
    np.testing.assert_allclose(half, (none + whole) / 2, rtol=4e-16)
    assert [spec(weight).frequencies()[1] for weight in (0.0, 0.5, 1.0)] == [1.0, *[1 + 0.1 * math.log(8)] * 2]


@pytest.mark.parametrize(
    "sections", [[42, 22, 0], [64, 0, 0], [0, 32, 32], [16, 24, 24], [42, 22, 0, 0], [16, 16, 16, 16]]
)
def test_every_section_has_a_row_of_positions(sections):
    spec = RopeSpec(128, layout="half", mrope={"sections": sections})
    rows = len(sections)
    assert spec.axes == rows
    positions = np.random.default_rng(3).integers(0, 900, (rows, 7))
    cos, sin = phasor.cos_sin(spec, positions, dtype="float64")
    row_of = np.repeat(np.arange(rows), sections)
    angles = positions[row_of].T * spec.frequencies()[0]
    np.testing.assert_allclose(cos, np.cos(angles), atol=1e-12)
    np.testing.assert_allclose(sin, np.sin(angles), atol=1e-12)
    x = np.random.default_rng(4).standard_normal((7, 2, 128))
    pairs = x[..., :64] + 1j * x[..., 64:]
    rotated = pairs * np.exp(1j * angles)[:, None]
    expected = np.concatenate([rotated.real, rotated.imag], axis=-1)
    np.testing.assert_allclose(phasor.rotate(x, spec, positions[:, None]), expected, atol=1e-11)
    assert phasor.audit(cos, sin, spec, positions)["as_good_as_its_type"] is True
    cache = phasor.KVCache(key_heads=2, head_dim=128, capacity=7, spec=spec)
    keys = x.astype(np.float32)
    cache.append(keys, keys, positions[:, None])
    np.testing.assert_allclose(cache.keys[0], expected, atol=1e-5)
    for wrong in (rows - 1, rows + 1):
        other = np.zeros((wrong, 7), np.int64)
        with pytest.raises(phasor.Error):
            phasor.rotate(x, spec, other[:, None])
        with pytest.raises(phasor.Error):
            phasor.cos_sin(spec, other)


def test_choices_are_keywords():
    with pytest.raises(TypeError):
        RopeSpec(8, 10000.0)
    with pytest.raises(TypeError):
        RopeSpec(8, theta=10000.0)


def test_default_context_of_attention_is_the_largest_key_position_plus_one() -> None:
    spec = RopeSpec(8, layout="half", scaling={"type": "dynamic", "factor": 2.0}, max_position_embeddings=16)
    q, k, v = np.random.default_rng(1).standard_normal((3, 1, 4, 2, 8)).astype(np.float32)
    at = np.arange(4) + 60

    def attend(**given):
        return phasor.attention(q, k, v, encoding=spec, query_positions=at, key_positions=at, **given)

    np.testing.assert_array_equal(attend(), attend(context=64))
    assert np.abs(attend() - attend(context=4)).max() > 1e-5
