"""`python -m phasor.lab_bleu RUN...`: BLEU and chrF of the translations of `phasor lab run translation`, by sacrebleu.

A run is a folder with hypotheses.txt and references.txt, one sentence a line; bleu.json is written next to them:
{"bleu", "chrf", "bleu_signature", "chrf_signature", "sentences"}.

exit  0 written, 2 invalid arguments or input (one line on stderr)
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


class ScoreError(Exception):
    """One line for the user."""


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")[:-1]
    except OSError as error:
        raise ScoreError(f"cannot open {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ScoreError(f"{path} is not UTF-8: {error}") from error


def score(folder: Path) -> dict[str, object]:
    """The scores of one run."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ModuleNotFoundError as missing:
        raise ScoreError(f"missing module {missing.name}; run: pip install sacrebleu") from missing
    hypotheses, references = _lines(folder / "hypotheses.txt"), _lines(folder / "references.txt")
    if not hypotheses or len(hypotheses) != len(references):
        raise ScoreError(f"{folder}: {len(hypotheses)} hypotheses and {len(references)} references; must be as many")
    bleu, chrf = BLEU(), CHRF()
    return {
        "bleu": bleu.corpus_score(hypotheses, [references]).score,
        "chrf": chrf.corpus_score(hypotheses, [references]).score,
        "bleu_signature": str(bleu.get_signature()),
        "chrf_signature": str(chrf.get_signature()),
        "sentences": len(hypotheses),
    }


def _write(path: Path, text: str) -> None:
    """Atomic: a temporary file in the same folder, renamed."""
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    except OSError as error:
        raise ScoreError(f"cannot write {path}: {error.strerror or error}") from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    folders = list(sys.argv[1:] if arguments is None else arguments)
    if not folders or any(name in ("-h", "--help") for name in folders):
        print(__doc__, file=sys.stdout if folders else sys.stderr)
        return 0 if folders else 2
    try:
        for name in folders:
            folder = Path(name)
            scores = score(folder)
            _write(folder / "bleu.json", json.dumps(scores, indent=2) + "\n")
            print(f"{folder}: BLEU {scores['bleu']:.2f}, chrF {scores['chrf']:.2f}")
    except ScoreError as error:
        print(f"lab_bleu: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
