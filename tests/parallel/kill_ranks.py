"""Ends ranks of `phasor` at random moments and checks that the others stop: in time, with one line that names the
rank, and without half of a file.

    kill_ranks.py PHASOR TIMES [SEED]

A rank is killed (SIGKILL), crashes (SIGSEGV), or is stopped, as if its machine hung (SIGSTOP): the others then give up
after PHASOR_MPI_PATIENCE.
"""

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RANKS = Path(__file__).parents[2] / "scripts" / "ranks.sh"
PATIENCE = 4  # seconds
# Open MPI gives ranks some seconds between SIGTERM and SIGKILL, and several ranks share a core here.
LIMIT = PATIENCE + 20
STARTING = 1.0  # seconds, of MPI

MODEL = Path(__file__).parents[2] / "tools" / "phasor" / "embedded"
TOKENS, VOCABULARY = 250, 260
# Training that would take hours, a checkpoint every second.
TRAINING = ["lab", "run", "worked-model", "--size", "quick", "--threads", "1"]
for setting in ["model.hidden=32", "model.layers=2", "model.heads=2", "model.intermediate=64", "training.context=32",
                "training.batch=8", "training.steps=1000000", "training.checkpoint_every=200",
                "training.log_every=1000", "training.evaluate_every=100000"]:
    TRAINING += ["--set", setting]


def rank_processes(mpirun: int) -> dict[int, int]:
    """The process of each rank that mpirun has started so far."""
    ranks = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if int(re.search(r"^PPid:\s+(\d+)", (folder / "status").read_text(), re.M)[1]) != mpirun:
                continue
            rank = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", (folder / "environ").read_bytes())
        except (OSError, TypeError):
            continue
        if rank:
            ranks[int(rank[1])] = int(folder.name)
    return ranks


def attempt(phasor: str, chance: random.Random, folder: Path) -> str | None:
    """Runs one job and ends one of its ranks. Returns what is wrong, "" for nothing; None if the job was faster."""
    ranks = chance.randint(2, 4)
    how = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP])
    writes = chance.random() < 0.5
    output = folder / "logits.npy"
    if writes:
        ids = ",".join(str(3 + i % 200) for i in range(TOKENS))
        command = ["logits", str(MODEL), "--ids", ids, "-o", str(output), "--threads", "1"]
    else:
        command = [*TRAINING, "--out", str(folder / "runs")]
    environment = {**os.environ, "PHASOR_MPI_PATIENCE": str(PATIENCE)}
    job = subprocess.Popen([str(RANKS), str(ranks), phasor, *command], env=environment, stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    start = time.monotonic()
    started = {}
    while len(started) < ranks and job.poll() is None:
        started = rank_processes(job.pid)
        time.sleep(0.01)
    time.sleep(chance.uniform(0.0, 1.5))
    victim = chance.randrange(ranks)
    name = f"{command[0]}, rank {victim} of {ranks}, {how.name}"
    try:
        os.kill(started[victim], how)
    except (KeyError, ProcessLookupError):
        job.communicate(timeout=LIMIT)
        return None
    begin = time.monotonic()
    try:
        _, errors = job.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        left = [rank for rank, process in started.items() if rank_processes(job.pid).get(rank) == process]
        for rank in left:
            os.kill(started[rank], signal.SIGKILL)
        job.communicate()
        # Stopped after its work was done: the others have finished, and mpirun waits for its process.
        return None if left == [victim] else f"{name}: ranks {left} HANG after {LIMIT} s"
    seconds = time.monotonic() - begin
    lines = [line for line in errors.splitlines() if line.startswith("phasor: ")]
    print(f"{name}: exit {job.returncode} after {seconds:.1f} s: {'; '.join(lines) or '(no line)'}", flush=True)
    problems = []
    if job.returncode == 0 and not (writes and output.exists()):
        problems.append("exit code 0")
    # While MPI starts or ends, mpirun alone knows which rank it is.
    is_early = (begin - start < STARTING and not lines) or (
        len(set(lines)) == 1 and "MPI starts or ends" in lines[0])
    if job.returncode != 0 and not is_early and (len(lines) != 1 or f"rank {victim}" not in lines[0]):
        problems.append(f"expected one line that names rank {victim}, got {errors!r}")
    for process in started.values():
        if Path(f"/proc/{process}/cmdline").exists() and Path(f"/proc/{process}/cmdline").read_bytes():
            problems.append(f"process {process} still runs")
    if output.exists() and output.stat().st_size != 128 + TOKENS * VOCABULARY * 4:
        problems.append(f"{output.name} has {output.stat().st_size} bytes")
    return f"{name}: {'; '.join(problems)}" if problems else ""


def main() -> int:
    phasor, times = sys.argv[1], int(sys.argv[2])
    chance = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    failures = []
    ended = 0
    while ended < times:
        with tempfile.TemporaryDirectory() as folder:
            problem = attempt(phasor, chance, Path(folder))
        ended += problem is not None
        if problem:
            failures.append(problem)
            print(f"FAIL {problem}", flush=True)
    hangs = sum(" HANG " in failure for failure in failures)
    print(f"{times} runs with a rank that ended: {hangs} hangs, {len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
