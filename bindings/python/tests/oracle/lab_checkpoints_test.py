"""Networks that `phasor lab run` trains, opened by transformers: the same logits as `phasor logits`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

COMMAND = os.environ.get("PHASOR_COMMAND", "")
# Sums of a few dozen float32 products in another order, some layers deep.
TOLERANCE = 2e-5

pytestmark = pytest.mark.skipif(not COMMAND, reason="PHASOR_COMMAND names no command")


def phasor(*arguments: object) -> str:
    return subprocess.run([COMMAND, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def trained(folder: Path, task: str, model: dict[str, object], data: dict[str, object]) -> Path:
    """The model's folder after a few steps on a small text."""
    experiment = {
        "name": "oracle",
        "task": task,
        "data": data,
        "tokenizer": {"kind": "wordpiece" if model["architecture"] == "encoder" else "bytes", "vocabulary": 80},
        "model": {"hidden": 48, "layers": 2, "heads": 3, "intermediate": 80, **model},
        "training": {"steps": 20, "batch": 4, "context": 32, "learning_rate": 0.01},
        "evaluation": {"batches": 1, "test_batches": 1},
    }
    (folder / "experiment.json").write_text(json.dumps(experiment))
    phasor("lab", "run", folder / "experiment.json", "--out", folder / "runs")
    return folder / "runs" / "run-s1" / "model"


def book(folder: Path) -> dict[str, object]:
    path = folder / "book.txt"
    path.write_text("".join(f"the line {number} of a small book\n" for number in range(300)), encoding="utf-8")
    return {"corpus": str(path)}


def reviews(folder: Path) -> dict[str, object]:
    rows = "".join(json.dumps({"text": f"a review {number}", "label": number % 3}) + "\n" for number in range(60))
    for part in ("train", "valid", "test"):
        (folder / f"{part}.jsonl").write_text(rows, encoding="utf-8")
    return {"labelled": str(folder)}


def compare(folder: Path, model: Path, opened: torch.nn.Module, vocabulary: int) -> None:
    ids = np.random.default_rng(3).integers(0, vocabulary, (2, 17))
    np.save(folder / "ids.npy", ids)
    phasor("logits", model, "--ids", folder / "ids.npy", "-o", folder / "logits.npy")
    ours = np.load(folder / "logits.npy")
    with torch.no_grad():
        theirs = opened.eval()(torch.from_numpy(ids)).logits.numpy()
    assert np.abs(ours - theirs).max() <= TOLERANCE * np.abs(theirs).max()


@pytest.mark.parametrize("output", ["tied", "own"])
def test_a_decoder_opens_as_llama(tmp_path: Path, output: str) -> None:
    model = trained(
        tmp_path,
        "causal_lm",
        {"architecture": "decoder", "output": output, "encoding": {"name": "rope", "base": 2000.0}},
        book(tmp_path),
    )
    opened = transformers.LlamaForCausalLM.from_pretrained(model)
    compare(tmp_path, model, opened, opened.config.vocab_size)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    assert tokenizer.decode(tokenizer("small book", add_special_tokens=False)["input_ids"]) == "small book"


def test_an_encoder_opens_as_roformer(tmp_path: Path) -> None:
    model = trained(tmp_path, "masked_lm", {"architecture": "encoder"}, book(tmp_path))
    opened = transformers.RoFormerForMaskedLM.from_pretrained(model)
    compare(tmp_path, model, opened, opened.config.vocab_size)


def test_a_classifier_opens_as_roformer(tmp_path: Path) -> None:
    model = trained(tmp_path, "classification", {"architecture": "encoder"}, reviews(tmp_path))
    opened = transformers.RoFormerForSequenceClassification.from_pretrained(model)
    assert opened.config.num_labels == 3
    compare(tmp_path, model, opened, opened.config.vocab_size)
