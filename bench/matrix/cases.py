"""The cases of the matrix: plain RoPE in both layouts, and the golden cases of one-dimensional RoPE.

Exact frequencies are those of the golden cases (50 digits, rounded to float64). For plain RoPE and for lengths that a
golden case does not have, they are Phasor's, which the golden cases hold to 1e-13.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import numpy as np

import phasor
from case import Case, Floats, Positions
from exact import Window

# The last positions of 4 Ki, 128 Ki, 1 Mi and 16 Mi tokens, after a short sequence.
LAST_POSITIONS = (7, 4095, 131071, 1048575, 16777215)
Exact = Callable[[Optional[int]], tuple[list[float], float]]  # context -> frequencies and amplitude


@dataclass
class Question:
    """A case, its exact frequencies, and the windows in which engines are asked."""

    case: Case
    exact: Exact
    kind: str  # plain, frequencies or vectors
    windows: dict[str, Window] = field(default_factory=dict)
    older: Optional[dict[str, Any]] = None  # the older form of the config


def window_positions(last: int) -> Positions:
    """Position 1, from which frequencies are read; the last position, and others not far before it."""
    near = (1, 2, 3, 5, 7) if last < 1100 else (1, last - 1000, last - 37, last - 1, last)
    return np.array(near, np.int64)


def with_windows(question: Question) -> Question:
    for last in LAST_POSITIONS:
        question.windows[str(last)] = Window.at(question.case.head_dim, window_positions(last))
    return question


def of_spec(spec: phasor.RopeSpec) -> Exact:
    def exact(context: Optional[int]) -> tuple[list[float], float]:
        frequencies, amplitude = spec.frequencies(context)
        return [float(f) for f in np.asarray(frequencies)], float(amplitude)

    return exact


def model_config(layout: str, head_dim: int, base: float) -> dict[str, Any]:
    """A config of a model with this layout: Llama's is half, Cohere's is interleaved."""
    return {
        "model_type": "llama" if layout == "half" else "cohere",
        "hidden_size": 2 * head_dim,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 131072,
        "rope_parameters": {"rope_type": "default", "rope_theta": base},
    }


def older_form(config: dict[str, Any]) -> dict[str, Any]:
    """The keys of before transformers 5 of a config without scaling."""
    rest = {key: value for key, value in config.items() if key != "rope_parameters"}
    return rest | {"rope_theta": config["rope_parameters"]["rope_theta"]}


def plain_cases() -> list[Question]:
    found = []
    for layout in ("half", "interleaved"):
        for base in (10000.0, 500000.0):
            config = model_config(layout, 128, base)
            name = f"plain_{layout}_base{base:.0f}"
            case = Case(name, 128, 128, layout, config["rope_parameters"], config)
            spec = phasor.RopeSpec(128, base=base, layout=layout)
            found.append(with_windows(Question(case, of_spec(spec), "plain", older=older_form(config))))
    return found


def rope_of(config: dict[str, Any], layer_type: Optional[str]) -> dict[str, Any]:
    """rope_parameters of a layer type, with the lengths that live outside of it."""
    rope: dict[str, Any] = config["rope_parameters"]
    if layer_type in rope:
        rope = rope[layer_type]
    outer = config.get("original_max_position_embeddings")
    return ({"original_max_position_embeddings": outer} if outer else {}) | rope


def frequency_cases(folder: Path) -> list[Question]:
    """golden/rope_freqs: a case per layer type that rotates. The frequencies of images (axial) have two positions."""
    found = []
    for path in sorted(folder.glob("*/case.json")):
        golden = json.loads(path.read_text())
        forms = {form: json.loads((path.parent / file).read_text()) for form, file in golden["configs"].items()}
        for one in golden["sets"]:
            if one["inv_freq"] is None or one["rope_type"] == "axial":
                continue
            found.append(with_windows(frequency_case(path.parent, golden, one, forms)))
    return found


def frequency_case(path: Path, golden: dict[str, Any], one: dict[str, Any], forms: dict[str, Any]) -> Question:
    config, layer_type = forms["new"], one["layer_type"]
    layers = phasor.explain(config)["layers"]
    # A number is the index of a layer, a name its type.
    of_set = [
        layer
        for layer in layers
        if layer["encoding"] == "rope"
        and (layer_type is None or layer_type in (layer["layer_type"], *map(str, layer["layers"])))
    ] or [layer for layer in layers if layer["encoding"] == "rope"]
    layer = of_set[0]
    truth = np.load(path / golden["truth"][one["inv_freq"] + "_f64"]["file"])
    amplitude = golden["scalars"][one["attention_scaling"]]["value"]
    by_phasor = of_spec(phasor.RopeSpec.from_hf(config, layer["layer_type"] or None))
    rows = {length: row for length, row in zip(golden["seq_lens"], truth)}

    def exact(context: Optional[int]) -> tuple[list[float], float]:
        if len(rows) > 1 and context not in rows:
            return by_phasor(context)
        row = rows[context] if context in rows else truth[0]
        return [float(f) for f in row], float(amplitude)

    rope = rope_of(config, layer_type)
    if layer_type is not None and layer_type.isdigit():
        rope = rope | {"rope_theta": layer["base"]}
    case = Case(
        golden["name"] if len(golden["sets"]) == 1 else f"{golden['name']}/{layer_type}",
        layer["head_dim"],
        layer["rotary_dim"],
        layer["layout"],
        rope,
        config,
        layer_type=layer["layer_type"] or None,
        max_position_embeddings=config.get("max_position_embeddings", 131072),
    )
    return Question(case, exact, "frequencies", older=forms.get("old"))


def vector_cases(folder: Path) -> list[Question]:
    """golden/rope_apply: float32 vectors with one position a token, as other implementations rotated them."""
    found = []
    for path in sorted(folder.glob("*/case.json")):
        golden = json.loads(path.read_text())
        narrow = any(v.get("logical_dtype") or v["dtype"] == "float16" for v in golden["inputs"].values())
        inner = "rotary_offset" in golden.get("config", {})  # the rotated features do not come first
        if golden["kind"] in ("rope_apply", "rope_apply_roformer", "rope_accuracy") and not narrow and not inner:
            found.append(vector_case(path.parent, golden))
    return found


def heads(path: Path, golden: dict[str, Any], name: str) -> Floats:
    """An array of a golden case as [tokens, heads, head_dim]; batches follow each other."""
    entry = golden["inputs"][name]
    x = np.load(path / entry["file"])
    if entry.get("dims", ["batch", "head", "seq", "dim"]).index("head") == 1:
        x = x.swapaxes(1, 2)
    return np.ascontiguousarray(x.reshape(-1, *x.shape[2:]).astype(np.float32))


def vector_case(path: Path, golden: dict[str, Any]) -> Question:
    q = heads(path, golden, "q")
    k = heads(path, golden, "k") if "k" in golden["inputs"] else q
    positions = np.load(path / golden["inputs"]["position_ids"]["file"]).astype(np.int64)
    positions = np.resize(positions, len(q))
    config = golden["config"]
    frequencies = [float(f) for f in np.load(path / "inv_freq_f64.npy")]
    amplitude = float(golden.get("scalars", {}).get("attention_scaling", {"value": 1.0})["value"])
    rope = rope_parameters(config)
    if "model_type" not in config:
        config = model_config(golden["layout"], golden["head_dim"], rope.get("rope_theta", 10000.0))
    case = Case(
        golden["name"],
        golden["head_dim"],
        golden["rotary_dim"],
        golden["layout"],
        rope,
        config,
        frequencies,
        amplitude,
        max_position_embeddings=config.get("max_position_embeddings", 131072),
    )
    question = Question(case, lambda _: (frequencies, amplitude), "vectors")
    question.windows["golden"] = Window.of(golden["head_dim"], positions, q, k)
    return question


def rope_parameters(config: dict[str, Any]) -> dict[str, Any]:
    """rope_parameters of the configs of golden/rope_apply, some of which are plain specs."""
    if "rope_parameters" in config:
        return dict(config["rope_parameters"])
    if "frequencies" in config:
        return {"rope_type": "listed frequencies"}
    return {"rope_type": "default", "rope_theta": config.get("base", config.get("theta", 10000.0))}


# Parameters that engines are known to read or to ignore: what the rules of `phasor diff` say is measured by them.
YARN = {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 64.0, "original_max_position_embeddings": 4096}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 32, "long_factor": [4.0] * 32}
RULES: dict[str, dict[str, Any]] = {
    "yarn_attention_factor": YARN | {"attention_factor": 1.0},
    "yarn_mscale": YARN | {"mscale": 1.0, "mscale_all_dim": 0.5},
    "yarn_extrapolation_factor": YARN | {"extrapolation_factor": 0.5},
    "yarn_mrope": YARN | {"attention_factor": 1.0, "mrope_section": [8, 12, 12]},
    "yarn_truncate": YARN | {"truncate": False},
    "longrope_attention_factor": LONG | {"original_max_position_embeddings": 4096, "attention_factor": 1.5},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
    "ntk": {"rope_type": "ntk", "rope_theta": 10000.0, "factor": 4.0},
    "ntk_by_parts": {"rope_type": "ntk_by_parts", "factor": 4.0, "original_max_position_embeddings": 4096},
}


def rule_cases() -> list[Question]:
    found = []
    for name, rope in RULES.items():
        config = model_config("half", 64, 10000.0) | {"max_position_embeddings": 262144, "rope_parameters": rope}
        if "mrope_section" in rope:
            config["model_type"] = "qwen2_vl_text"
        case = Case(f"rule_{name}", 64, 64, "half", rope, config, max_position_embeddings=262144)
        found.append(with_windows(Question(case, of_spec(phasor.RopeSpec.from_hf(config)), "rules")))
    return found


def all_cases(golden: Path) -> list[Question]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of keys that a type does not read: engines are asked with them, too
        golden_cases = frequency_cases(golden / "rope_freqs") + vector_cases(golden / "rope_apply")
        return plain_cases() + rule_cases() + golden_cases
