"""Tokenizers that `phasor lab tokenizer` makes, against the package `tokenizers`: merges of its trainer, ids of its readers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

COMMAND = os.environ.get("PHASOR_COMMAND", "")
TEXTS = Path(__file__).parents[4] / "src" / "lab" / "texts"
SPECIALS = ["<pad>", "<s>", "</s>", "<mask>"]

pytestmark = pytest.mark.skipif(not COMMAND, reason="PHASOR_COMMAND names no command")


def phasor(*arguments: object) -> str:
    return subprocess.run([COMMAND, *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def made(folder: Path, kind: str, language: str, vocabulary: int) -> Tokenizer:
    phasor("lab", "tokenizer", TEXTS / f"{language}.txt", "--kind", kind, "--vocabulary", vocabulary, "--out", folder)
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.mark.parametrize("kind", ["bytes", "bpe", "wordpiece"])
@pytest.mark.parametrize("language", ["english", "chinese"])
def test_both_readers_give_the_same_ids(tmp_path: Path, kind: str, language: str) -> None:
    theirs = made(tmp_path, kind, language, 6000)
    for other in ("english", "chinese"):
        text = (TEXTS / f"{other}.txt").read_text(encoding="utf-8")[:40000]
        (tmp_path / "text").write_text(text, encoding="utf-8")
        ours = json.loads(phasor("tokenize", tmp_path, "--text-file", tmp_path / "text", "--raw", "--json"))["ids"]
        assert ours == theirs.encode(text, add_special_tokens=False).ids
        if kind != "wordpiece":
            assert theirs.decode(ours) == text


@pytest.mark.parametrize("language", ["english", "chinese"])
def test_bpe_learns_the_same_merges(tmp_path: Path, language: str) -> None:
    ours = json.loads(made(tmp_path, "bpe", language, 4000).to_str())["model"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=4000, min_frequency=2, special_tokens=SPECIALS, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([(TEXTS / f"{language}.txt").read_text(encoding="utf-8")], trainer)
    theirs = json.loads(tokenizer.to_str())["model"]
    assert ours["vocab"] == theirs["vocab"]
    assert ours["merges"] == theirs["merges"]
