"""patch_on_load(): models of transformers get exact angles when they are loaded, as patch(model) gives them."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import phasor
import phasor.torch as pt
import pytest
import torch
import transformers
from torch import Tensor, nn
from torch_patch_test import LLAMA3, LONGROPE, SIZES, YARN
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, LlamaForCausalLM, PreTrainedModel

TOKENS = 24
FAR = 131071
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama with llama3 scaling": {"rope": LLAMA3},
    "qwen2": {},
    "qwen2 with yarn": {"rope": YARN},
    "gemma": {"head_dim": 16},
    "phi3": {"rope": LONGROPE, "original_max_position_embeddings": 32},
    "gpt_neox": {"rotary_pct": 0.25},
}
IDS = torch.randint(3, 96, (2, TOKENS), generator=torch.Generator().manual_seed(1))


def config_of(family: str) -> Any:
    settings = {**SIZES, **FAMILIES.get(family, {})}
    rope = settings.pop("rope", None)
    if rope is not None and int(transformers.__version__.split(".")[0]) >= 5:
        settings["rope_parameters"] = rope
    elif rope is not None:
        scaling = {**rope, "type": rope["rope_type"]}
        del scaling["rope_type"]
        settings |= {"rope_theta": scaling.pop("rope_theta"), "rope_scaling": scaling}
    return AutoConfig.for_model(family.split(" ")[0], **settings)


def from_config(family: str) -> Any:
    torch.manual_seed(7)
    return AutoModelForCausalLM.from_config(config_of(family), attn_implementation="eager").eval()


def from_folder(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


@torch.no_grad()
def logits(model: nn.Module, first: int = 0) -> Tensor:
    positions = torch.arange(first, first + TOKENS).expand(2, -1)
    result: Tensor = model(IDS, position_ids=positions, use_cache=False).logits
    return result


def check_angles(model: nn.Module) -> None:
    """cos and sin at far positions against float64, in NumPy."""
    rotary = [part for part in model.modules() if "Rotary" in type(part).__name__]
    assert rotary
    positions = np.arange(FAR, FAR + 8)
    for part in rotary:
        frequencies, amplitude = phasor.RopeSpec.from_hf(model.config).frequencies(FAR + 8)
        angles = np.tile(positions[:, None] * frequencies, 2)
        rows = part(torch.zeros(1), torch.from_numpy(positions)[None])
        for got, exact in zip(rows, (np.cos(angles), np.sin(angles)), strict=True):
            np.testing.assert_allclose(got[0].numpy(), amplitude * exact, rtol=0, atol=1e-7 * amplitude)


@pytest.fixture(autouse=True)
def _loaders_are_restored() -> Iterator[None]:
    before = [vars(PreTrainedModel)[name] for name in ("from_pretrained", "_from_config")]
    yield
    assert [vars(PreTrainedModel)[name] for name in ("from_pretrained", "_from_config")] == before


@pytest.mark.parametrize("family", FAMILIES)
def test_models_from_a_config_and_from_a_folder_get_exact_angles(family: str, tmp_path: Path) -> None:
    plain = from_config(family)
    plain.save_pretrained(tmp_path)
    with pytest.raises(AssertionError):  # float32 angles are not exact there
        check_angles(plain)
    before = logits(plain)
    with pt.patch_on_load():
        loaded = [from_config(family), from_folder(tmp_path)]
    pt.patch(plain)
    for model in loaded:
        record = pt.patched(model)
        assert record is not None and record.rotary and len(record.attention) == 2
        check_angles(model)
        for first in (0, FAR):
            assert torch.equal(logits(model, first), logits(plain, first))
        assert torch.equal(logits(pt.unpatch(model)), before)
    # Switched off again.
    assert pt.patched(from_config(family)) is None and pt.patched(from_folder(tmp_path)) is None


def test_tables_of_gptj_are_exact_after_the_load(tmp_path: Path) -> None:
    settings = {**SIZES, "rotary_dim": 8, "n_positions": 2048}
    AutoModelForCausalLM.from_config(AutoConfig.for_model("gptj", **settings)).save_pretrained(tmp_path)
    with pt.patch_on_load():
        model = from_folder(tmp_path)
    record = pt.patched(model)
    assert record is not None and record.rotary == ["transformer.h.0.attn", "transformer.h.1.attn"]
    table = model.transformer.h[0].attn.embed_positions
    angles = 2047 * 10000.0 ** (-np.arange(4) / 4)
    np.testing.assert_allclose(table[2047].numpy(), np.concatenate((np.sin(angles), np.cos(angles))), rtol=0, atol=1e-7)


def test_the_usual_arguments_of_a_load_work(tmp_path: Path) -> None:
    from_config("llama").save_pretrained(tmp_path)
    with pt.patch_on_load():
        assert "config" in inspect.signature(PreTrainedModel.from_pretrained).parameters
        model, info = LlamaForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
        assert pt.patched(model) is not None and not info["missing_keys"]
        narrow = LlamaForCausalLM.from_pretrained(tmp_path, torch_dtype=torch.bfloat16)
        assert pt.patched(narrow) is not None and narrow.dtype == torch.bfloat16
        inner = AutoModel.from_pretrained(tmp_path)
        assert pt.patched(inner) is not None
        built = LlamaForCausalLM(config_of("llama"))
        assert pt.patched(built) is None  # not loaded
        with torch.device("meta"):
            empty = AutoModelForCausalLM.from_config(config_of("llama"))
        assert pt.patched(empty) is not None


def test_a_model_that_loads_its_parts_is_patched_once() -> None:
    class Pair(PreTrainedModel):  # type: ignore[misc]
        config_class = type(config_of("llama"))

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.left = AutoModelForCausalLM.from_config(config)
            self.right = AutoModelForCausalLM.from_config(config)
            self.post_init()

    with pt.patch_on_load():
        whole = Pair._from_config(config_of("llama"))
        parts = Pair(config_of("llama"))
    record = pt.patched(whole)
    assert record is not None and len(record.rotary) == 2 and len(record.attention) == 4
    assert pt.patched(whole.left) is None
    assert pt.patched(parts) is None and pt.patched(parts.left) is not None


def test_several_handles_threads_and_removal() -> None:
    first, second = pt.patch_on_load(), pt.patch_on_load()
    wrapped = vars(PreTrainedModel)["_from_config"]
    first.remove()
    first.remove()
    assert vars(PreTrainedModel)["_from_config"] is wrapped
    models: list[Any] = []
    threads = [threading.Thread(target=lambda: models.append(from_config("llama"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(models) == 3 and all(pt.patched(model) is not None for model in models)
    second.remove()
    assert pt.patched(from_config("llama")) is None


def test_a_failing_load_leaves_the_switch_as_it_was(tmp_path: Path) -> None:
    with pt.patch_on_load():
        with pytest.raises(Exception, match=str(tmp_path)):  # ValueError or OSError, by version
            LlamaForCausalLM.from_pretrained(tmp_path)
        assert pt.patched(from_config("llama")) is not None


def test_under_the_wrapper_of_another_it_is_switched_off_too() -> None:
    original = vars(PreTrainedModel)["_from_config"]
    handle = pt.patch_on_load()
    ours = vars(PreTrainedModel)["_from_config"]
    other = classmethod(lambda cls, *arguments, **choices: ours.__func__(cls, *arguments, **choices))
    try:
        PreTrainedModel._from_config = other
        assert pt.patched(from_config("llama")) is not None
        handle.remove()
        assert vars(PreTrainedModel)["_from_config"] is other
        assert pt.patched(from_config("llama")) is None
    finally:
        PreTrainedModel._from_config = original


def test_models_without_rotation_pass_and_others_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class OddRotary(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    gpt2 = AutoConfig.for_model("gpt2", n_embd=32, n_layer=1, n_head=2, vocab_size=96)
    with pt.patch_on_load():
        assert pt.patched(AutoModelForCausalLM.from_config(gpt2)) is None
    made = type(AutoModelForCausalLM.from_config(gpt2))
    build = made.__init__

    def with_rotary(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        self.turn = OddRotary()

    monkeypatch.setattr(made, "__init__", with_rotary)
    with pt.patch_on_load(), pytest.raises(phasor.Error, match="GPT2LMHeadModel .*OddRotary"):
        AutoModelForCausalLM.from_config(gpt2)
    with pt.patch_on_load(unsupported="warn"), pytest.warns(UserWarning, match="OddRotary"):
        assert pt.patched(AutoModelForCausalLM.from_config(gpt2)) is None
    with pytest.raises(phasor.Error, match="'quiet'"):
        pt.patch_on_load(unsupported="quiet")  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AutoModelForCausalLM.from_config(gpt2)


def test_a_version_with_other_loaders_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patches:
        patches.setattr(PreTrainedModel, "_from_config", lambda *args, **kwargs: None)
        with pytest.raises(phasor.Error, match=r"_from_config of transformers .* got function"):
            pt.patch_on_load()
