"""The rules of `phasor diff` against what `./dev matrix` measured: where an engine was run, they say what it did."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import phasor
import pytest

MEASURED = Path(__file__).resolve().parents[3] / "bench/results/amd-epyc-avx2-2threads/2026-11-18-matrix.json"
SAME_FREQUENCY = 2e-4  # the matrix lists frequencies that are off by more than 1e-4
SAME_AMPLITUDE = 1e-5
# Engines compute the last bit of a frequency in different ways, and an angle error is a multiple of that bit.
ANGLE_FACTOR = 3.0
ANGLES = (1e-5, 0.5)  # rad; a smaller error is that of cos and sin, a larger one may have gone round
DIALECTS = {"mlx-lm": "mlx-lm", "sglang": "sglang", "vllm": "vllm-main", "xllamacpp": "llama.cpp"}
SERVERS = ("sglang", "vllm")
OLDER = ", older form"
EARLY = ("default", "linear", "dynamic")  # the types of transformers 4.40; the others came before 4.57


@cache
def measured() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(MEASURED.read_text(encoding="utf-8"))
    return found


def dialect_of(engine: dict[str, Any]) -> str | None:
    """The dialect that describes an engine. Variants in 16 bits have no rules."""
    if "bfloat16" in engine["variant"]:
        return None
    if engine["package"] == "transformers":
        if engine["version"].startswith("4.30"):
            return None  # before rope_theta and rope_scaling
        return "hf" if engine["version"].startswith("5") else "hf-4"
    return DIALECTS.get(engine["package"])


@dataclass
class Asked:
    """One engine, one case."""

    engine: dict[str, Any]
    dialect: str
    name: str
    case: dict[str, Any]
    cell: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.case["older_config" if self.name.endswith(OLDER) else "config"]
        return config

    def context(self, last: int) -> int:
        # One call a position: frequencies were read at position 1, the last of two.
        return 2 if self.engine["by_step"] else last + 1

    def view(self, last: int) -> dict[str, Any]:
        """What the rules say."""
        # ggml was given the factors of the sequence's own length.
        served = last + 1 if self.engine["package"] == "xllamacpp" else None
        if self.engine["package"] in SERVERS:
            served = self.config.get("max_position_embeddings", 131072)
        report = phasor.diff(
            self.config,
            between=[self.dialect, "hf" if self.dialect != "hf" else "vllm"],
            context=self.context(last),
            layer=self.case["layer_type"],
            max_length=served,
        )
        found: dict[str, Any] = report["groups"][0]["views"][0]
        assert found["dialect"] == self.dialect
        return found

    def exact(self, last: int) -> list[float]:
        spec = phasor.RopeSpec.from_hf(self.case["config"], self.case["layer_type"])
        return [float(f) for f in spec.frequencies(self.context(last))[0]]

    def frequencies(self, last: int) -> list[float]:
        """Those of the engine; where the matrix lists none, they are the exact ones."""
        found = self.cell[str(last)].get("frequencies")
        if isinstance(found, str):  # the window that has the same
            found = self.cell[found]["frequencies"]
        return found or self.exact(last)

    def windows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Last position and errors. Servers are asked within the length that they are started with."""
        served = self.config.get("max_position_embeddings", 131072) if self.engine["package"] in SERVERS else 1 << 30
        for last, window in self.cell.items():
            if isinstance(window, dict) and "frequency" in window and int(last) < served:
                yield int(last), window


def asked() -> Iterator[Asked]:
    for engine in measured()["engines"]:
        dialect = dialect_of(engine)
        for name, cell in engine["cells"].items():
            case = measured()["cases"][name.removesuffix(OLDER)]
            if engine["version"].startswith("4.40") and case["rope_type"] not in EARLY:
                continue
            if dialect is not None and case["kind"] != "vectors":
                yield Asked(engine, dialect, name, case, cell)


def problems(one: Asked, last: int, window: dict[str, Any]) -> Iterator[str]:
    where = f"{one.engine['name']}, {one.name}, {last}"
    view = one.view(last)
    if not view["readable"]:
        yield f"{where}: the rules say that it is refused; the engine rotates"
        return
    for pair, (got, want) in enumerate(zip(one.frequencies(last), view["frequencies"], strict=True)):
        if not math.isclose(got, want, rel_tol=SAME_FREQUENCY, abs_tol=1e-12):
            yield f"{where}: pair {pair} has the frequency {got:.7g}, the rules say {want:.7g}"
            break
    if one.engine["package"] == "xllamacpp" and one.case["rope_type"] == "longrope":
        return  # ggml was given the amplitude
    if not math.isclose(window["amplitude"], view["amplitude"], rel_tol=SAME_AMPLITUDE):
        yield f"{where}: the amplitude is {window['amplitude']:.6f}, the rules say {view['amplitude']:.6f}"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of keys that a type does not read
        yield


def test_frequencies_and_amplitudes_are_those_of_the_rules() -> None:
    found: list[str] = []
    compared = 0
    for one in asked():
        for last, window in one.windows():
            found += problems(one, last, window)
            compared += 1
    assert found == []
    assert compared >= 1000


def test_types_are_refused_where_the_rules_say_so() -> None:
    refused = []
    for one in asked():
        # Adapters of ggml and MLX are called below the code that reads configs.
        if one.case["kind"] != "rules" or one.engine["package"] not in ("transformers", "vllm", "sglang"):
            continue
        if one.cell.get("refused", "").startswith("no model type"):
            continue
        rotates = "layout" in one.cell
        assert one.view(7)["readable"] == rotates, f"{one.engine['name']}, {one.name}: {one.cell}"
        if not rotates:
            refused.append(one)
    assert len(refused) >= 4


def test_angle_errors_have_the_size_that_the_rules_say() -> None:
    compared = 0
    for one in asked():
        if one.case["kind"] != "plain":
            continue
        for last, window in one.windows():
            pair = [one.dialect, "hf" if one.dialect != "hf" else "vllm"]
            report = phasor.diff(one.config, between=pair, context=last + 1)
            said = report["groups"][0]["views"][0]["float32_angle_error"]
            if not ANGLES[0] < max(said, window["angle"]) < ANGLES[1]:
                continue
            message = f"{one.engine['name']}, {one.name}, {last}: {window['angle']}, said {said}"
            assert said / ANGLE_FACTOR <= window["angle"] <= said * ANGLE_FACTOR, message
            compared += 1
    assert compared >= 50
