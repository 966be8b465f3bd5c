"""python -m phasor.lab_bleu: scores of translations, and refusals in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from phasor import lab_bleu


def put(folder: Path, hypotheses: str, references: str) -> str:
    folder.mkdir()
    (folder / "hypotheses.txt").write_text(hypotheses, encoding="utf-8")
    (folder / "references.txt").write_text(references, encoding="utf-8")
    return str(folder)


def test_equal_sentences_score_one_hundred(tmp_path: Path) -> None:
    pytest.importorskip("sacrebleu")
    same = "Die Sonne scheint über den Hügeln.\nWir gehen heute nach Hause zurück.\n"
    other = "Die Sonne scheint über den Wäldern.\nWir bleiben heute noch hier.\n"
    folders = [put(tmp_path / "a", same, same), put(tmp_path / "b", other, same)]
    assert lab_bleu.main(folders) == 0
    scores = [json.loads((tmp_path / name / "bleu.json").read_text()) for name in ("a", "b")]
    assert scores[0]["bleu"] == pytest.approx(100.0) and scores[0]["chrf"] == pytest.approx(100.0)
    assert 0.0 < scores[1]["bleu"] < 100.0 and "nrefs:1" in scores[1]["bleu_signature"]


def test_refuses_what_cannot_be_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab_bleu.main([]) == 2
    assert lab_bleu.main([str(tmp_path / "none")]) == 2
    pytest.importorskip("sacrebleu")
    capsys.readouterr()
    assert lab_bleu.main([put(tmp_path / "a", "ein Satz\n", "ein Satz\nnoch einer\n")]) == 2
    error = capsys.readouterr().err
    assert "1 hypotheses" in error and "2 references" in error and error.count("\n") == 1
    assert not (tmp_path / "a" / "bleu.json").exists()
