"""phasor.build_info tells the truth: a part that it names is there, and a missing one is refused by name."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sysconfig

import pytest

import phasor

CLONE = pathlib.Path(__file__).resolve().parents[3]
INFO = phasor.build_info()


def test_keys() -> None:
    assert INFO["version"] == phasor.__version__
    assert INFO["compiler"]
    flags = {key for key, value in INFO.items() if value is True or value is False}
    assert flags == {"limited_api", "command", "mpi", "onednn", "sentencepiece", "zlib"}


def test_limited_api() -> None:
    suffix = "".join(pathlib.Path(phasor._core.__file__).suffixes)
    assert suffix == (".abi3.so" if INFO["limited_api"] else sysconfig.get_config_var("EXT_SUFFIX"))


def test_a_missing_command_says_why() -> None:
    script = CLONE / "bindings/python/no_command.sh"
    told = subprocess.run(["sh", script], capture_output=True, text=True, check=False)
    assert told.returncode == 2 and not told.stdout
    assert "CLI11" in told.stderr and "fmt" in told.stderr


@pytest.mark.skipif(not INFO["command"] or "PHASOR_COMMAND" not in os.environ, reason="the command is not in this build")
def test_the_command_has_the_version() -> None:
    told = subprocess.run([os.environ["PHASOR_COMMAND"], "--version"], capture_output=True, text=True, check=True)
    assert INFO["version"] in told.stdout


def test_sentencepiece(tmp_path: pathlib.Path) -> None:
    shutil.copytree(CLONE / "golden/models/llama_gqa_llama3/model", tmp_path / "model")
    for file in (tmp_path / "model").glob("tokenizer*"):
        file.unlink()
    shutil.copy(CLONE / "tests/text/data/bpe.model", tmp_path / "model/tokenizer.model")
    if INFO["sentencepiece"]:
        assert phasor.Model.load(tmp_path / "model").encode("a")
        return
    with pytest.raises(phasor.Error, match="SentencePiece") as error:
        phasor.Model.load(tmp_path / "model").encode("a")
    assert error.value.code == "unsupported"
