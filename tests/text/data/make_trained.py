#!/usr/bin/env python3
"""Writes trained.json: what the package `tokenizers` learns from train.txt, and its ids for a text.

    python make_trained.py WORDPIECE_FOLDER

BPE is trained by the package. WordPiece is trained by Phasor, since the package numbers equally frequent pieces at random:
WORDPIECE_FOLDER is what `save_tokenizer` wrote for train.txt, a vocabulary of 1200 and lower case.
"""

import json
import pathlib
import sys

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

TEXT = ("However little known the feelings of Mr. Bennet's 2nd daughter, it's  12,345 miles\n\tto Meryton -- \"naïve\" café. "
        "话说天下大势，分久必合 in 1813！ Zürich 🙂 _end_")
SPECIALS = ["<pad>", "<s>", "</s>", "<mask>"]


def main() -> None:
    folder = pathlib.Path(__file__).parent
    bpe = tokenizers.Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.train_from_iterator([(folder / "train.txt").read_text(encoding="utf-8")],
                            trainers.BpeTrainer(vocab_size=700, min_frequency=2, special_tokens=SPECIALS, show_progress=False,
                                                initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    words = tokenizers.Tokenizer.from_file(str(pathlib.Path(sys.argv[1]) / "tokenizer.json"))
    made = {"made_by": f"make_trained.py, tokenizers {tokenizers.__version__}", "text": TEXT,
            "merges": json.loads(bpe.to_str())["model"]["merges"], "bpe_ids": bpe.encode(TEXT).ids,
            "wordpiece_ids": words.encode(TEXT, add_special_tokens=False).ids,
            "wordpiece_pair_ids": words.encode("The end", "of 天下").ids}
    (folder / "trained.json").write_text(json.dumps(made, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
