"""Training compared with torch: steps of a small causal language model, in one run, alternating.

    python bench/peers/training_peers.py [--command build/release/bin/phasor] [--rounds 5] [--steps 3] [--threads 1 2]
                                         [--only CASE ...] [--json]

4 layers, 256 wide, 4 heads, SwiGLU of 672, 512 tokens, 8 rows, float32. A step sets the gradients to zero, runs forward
and backward, clips to norm 1 and takes a step of AdamW (torch: fused). `rope` is torch's scaled_dot_product_attention,
eager and compiled; `t5` passes its bias to it as attn_mask, `composed` adds it to the scores as transformers' T5 does; `deberta` adds both gathered terms as transformers does.
Every engine is a process of its own, which sleeps while the others run. A round runs `--steps` steps of each, starting
with another engine; a figure is the median over the rounds of their medians, a ratio the median of the rounds' ratios.
`memory` is the peak resident size of the process (VmHWM).

`cpu` is CPU time: on a machine that others use too, it says more than `step` for one thread.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

LAYERS, HIDDEN, HEADS, INNER, TOKENS, ROWS = 4, 256, 4, 672, 512, 8
DIM, BUCKETS, MAX_DISTANCE = HIDDEN // HEADS, 32, 128
# name: (encoding, vocabulary, torch's modes)
CASES = {
    "rope/vocabulary 256": ("rope", 256, ("eager", "compile")),
    "rope/vocabulary 8192": ("rope", 8192, ("eager", "compile")),
    "t5/vocabulary 256": ("t5", 256, ("eager", "composed")),
    "deberta/vocabulary 256": ("deberta", 256, ("eager",)),
}


def make_torch_step(encoding, vocabulary, mode, threads):
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.set_num_threads(threads)
    torch.manual_seed(1)
    index = torch.arange(TOKENS)
    distance = index[:, None] - index[None, :]  # m - n
    hidden_keys = distance < 0

    angles = torch.outer(index.double(), 10000.0 ** (-torch.arange(0, DIM, 2).double() / DIM))
    cos, sin = (torch.cat((function(angles),) * 2, -1).float() for function in (torch.cos, torch.sin))

    def rotated(x):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    exact = BUCKETS // 2
    past = distance.clamp(min=0)
    far = exact + (torch.log(past.clamp(min=1) / exact) / math.log(MAX_DISTANCE / exact) * (BUCKETS - exact)).long()
    buckets = torch.where(past < exact, past, far.clamp(max=BUCKETS - 1))
    rows = (distance + MAX_DISTANCE).clamp(0, 2 * MAX_DISTANCE - 1)
    to_position, from_position = (x.contiguous().expand(ROWS, HEADS, -1, -1) for x in (rows, rows.T))

    def linear(width, out):
        layer = nn.Linear(width, out, bias=False)
        nn.init.normal_(layer.weight, std=0.02)
        return layer

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.feed_norm = nn.RMSNorm(HIDDEN, 1e-5), nn.RMSNorm(HIDDEN, 1e-5)
            self.qkv, self.out = linear(HIDDEN, 3 * HIDDEN), linear(HIDDEN, HIDDEN)
            self.gate_up, self.down = linear(HIDDEN, 2 * INNER), linear(INNER, HIDDEN)
            if encoding == "deberta":
                self.position_keys, self.position_queries = linear(HIDDEN, HIDDEN), linear(HIDDEN, HIDDEN)

        def attend(self, q, k, v, table):
            if encoding == "rope":
                return F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
            if encoding == "t5" and mode == "composed":  # table: the bias of all layers
                return torch.softmax(q @ k.mT * DIM**-0.5 + table, -1) @ v
            if encoding == "t5":
                return F.scaled_dot_product_attention(q, k, v, attn_mask=table)
            keys, queries = (layer(table).view(-1, HEADS, DIM).transpose(0, 1)
                             for layer in (self.position_keys, self.position_queries))
            scores = q @ k.mT + torch.gather(q @ keys.mT, -1, to_position)
            scores = scores + torch.gather(k @ queries.mT, -1, from_position).mT
            scores = (scores * (3 * DIM) ** -0.5).masked_fill(hidden_keys, -math.inf)
            return torch.softmax(scores, -1) @ v

        def forward(self, x, table):
            q, k, v = self.qkv(self.norm(x)).view(ROWS, TOKENS, 3, HEADS, DIM).permute(2, 0, 3, 1, 4)
            x = x + self.out(self.attend(q, k, v, table).transpose(1, 2).reshape(ROWS, TOKENS, HIDDEN))
            gate, up = self.gate_up(self.feed_norm(x)).chunk(2, -1)
            return x + self.down(F.silu(gate) * up)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(vocabulary, HIDDEN)
            nn.init.normal_(self.words.weight, std=0.02)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm = nn.RMSNorm(HIDDEN, 1e-5)
            if encoding == "t5":
                self.bias = nn.Parameter(torch.zeros(HEADS, BUCKETS))
            if encoding == "deberta":
                self.relative = nn.Parameter(torch.randn(2 * MAX_DISTANCE, HIDDEN) * 0.02)

        def forward(self, ids, labels):
            table = None
            if encoding == "t5":
                table = self.bias[:, buckets].masked_fill(hidden_keys, -math.inf)[None]
            if encoding == "deberta":
                table = self.relative
            x = self.words(ids)
            for block in self.blocks:
                x = block(x, table)
            logits = self.norm(x) @ self.words.weight.T
            return F.cross_entropy(logits.view(-1, vocabulary), labels.view(-1))

    model = Model()
    forward = torch.compile(model) if mode == "compile" else model
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    ids, labels = (torch.randint(vocabulary, (ROWS, TOKENS)) for _ in range(2))

    def step():
        optimiser.zero_grad(set_to_none=True)
        loss = forward(ids, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        return loss.item()

    first = step()
    if not abs(first - math.log(vocabulary)) < 0.5:
        raise SystemExit(f"torch's first loss must be near that of a guess, {math.log(vocabulary):.2f}, got {first:.2f}")
    return step


def peak_bytes():
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def worker(encoding, vocabulary, mode, threads):
    """Runs as many steps as each line of stdin says; prints their times."""
    step = make_torch_step(encoding, int(vocabulary), mode, int(threads))
    step()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        seconds, cpu = [], []
        for _ in range(int(line)):
            begin, cpu_begin = time.perf_counter(), time.process_time()
            step()
            seconds.append(time.perf_counter() - begin)
            cpu.append(time.process_time() - cpu_begin)
        print(json.dumps({"step_seconds": seconds, "cpu_seconds": cpu, "peak_bytes": peak_bytes()}), flush=True)


class Torch:
    def __init__(self, encoding, vocabulary, mode, threads):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", encoding, str(vocabulary), mode, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the torch process ended with exit code {self.process.wait()}")
        return json.loads(line)

    def run(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        return self.read()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Ours:
    def __init__(self, command, encoding, vocabulary, threads):
        self.words = [str(command), "lab", "speed", "--json", "--threads", str(threads), "--rows", str(ROWS),
                      "--tokens", str(TOKENS), "--set", f"encoding={encoding}", "--set", f"vocabulary={vocabulary}"]

    def run(self, steps):
        done = subprocess.run([*self.words, "--steps", str(steps)], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    def close(self):
        pass


def measure(name, threads, arguments):
    encoding, vocabulary, modes = CASES[name]
    engines = {"phasor": Ours(arguments.command, encoding, vocabulary, threads)}
    for mode in modes:
        engines[mode] = Torch(encoding, vocabulary, mode, threads)
    names, results = list(engines), {engine: [] for engine in engines}
    for index in range(arguments.rounds):
        for engine in names[index % len(names):] + names[:index % len(names)]:
            results[engine].append(engines[engine].run(arguments.steps))
    for engine in engines.values():
        engine.close()

    def medians(engine, key):
        return [statistics.median(result[key]) for result in results[engine]]

    ours = {key: medians("phasor", key) for key in ("step_seconds", "cpu_seconds")}
    rows = []
    for engine in names:
        row = {"name": name, "threads": threads, "engine": engine,
               "peak_mib": max(result["peak_bytes"] for result in results[engine]) / 2**20}
        for key, short in (("step_seconds", "step"), ("cpu_seconds", "cpu")):
            theirs = medians(engine, key)
            row[f"{short}_ms"] = 1e3 * statistics.median(theirs)
            row[f"{short}_ratio"] = statistics.median(b / a for a, b in zip(ours[key], theirs))
        row["tokens_per_second"] = ROWS * TOKENS / (row["step_ms"] / 1e3)
        rows.append(row)
    rows[0]["parts"] = {part: statistics.median(result["parts"][part] for result in results["phasor"])
                        for part in results["phasor"][0]["parts"]}
    return rows


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", type=pathlib.Path, default=root / "build/release/bin/phasor")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", default=[], help="cases whose name contains one of these texts")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(*arguments.worker)
    names = [name for name in CASES if not arguments.only or any(text in name for text in arguments.only)]
    if not names:
        parser.error(f"--only must be part of {', '.join(CASES)}, got {' '.join(arguments.only)}")
    table = []
    if not arguments.json:
        print(f"{'model':<23} {'threads':>7} {'engine':<8} {'tokens/s':>9} {'step ms':>9} {'ratio':>6} {'cpu ms':>9} "
              f"{'ratio':>6} {'MiB':>6}")
    for name in names:
        for threads in arguments.threads:
            for row in measure(name, threads, arguments):
                table.append(row)
                if not arguments.json:
                    print(f"{name:<23} {threads:>7} {row['engine']:<8} {row['tokens_per_second']:9.0f} "
                          f"{row['step_ms']:9.1f} {row['step_ratio']:5.2f}x {row['cpu_ms']:9.1f} {row['cpu_ratio']:5.2f}x "
                          f"{row['peak_mib']:6.0f}", flush=True)
                if not arguments.json and "parts" in row:
                    parts = ", ".join(f"{part} {100 * share:.1f} %" for part, share in row["parts"].items())
                    print(f"  where ours goes: {parts}", flush=True)
    if arguments.json:
        print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
