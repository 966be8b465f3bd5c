"""phasor.torch.parallel on 2 and 3 processes of gloo: runs ranks/torch_parallel.py on each of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import phasor.torch.parallel
import pytest

CASES = Path(__file__).resolve().parent / "ranks" / "torch_parallel.py"


@pytest.mark.parametrize("ranks", [2, 3])
def test_on_ranks(ranks: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--rootdir", CASES.parent, CASES]
    shared = os.environ | {"WORLD_SIZE": str(ranks), "PHASOR_RANKS_FILE": str(tmp_path / "ranks")}
    running = [
        subprocess.Popen(
            command, env=shared | {"RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for rank in range(ranks)
    ]
    told = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * ranks, "\n".join(told)


def test_without_a_group() -> None:
    with pytest.raises(phasor.Error, match="init_process_group") as raised:
        phasor.torch.parallel.shard(phasor.torch.parallel.torch.zeros(4, 1, 2))
    assert raised.value.code == "invalid_argument"
