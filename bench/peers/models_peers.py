"""Phasor compared with llama.cpp and transformers on real models: decode at a context of 512, prefill of 512 tokens.

    python bench/peers/models_peers.py [--library build/release/lib/libphasor.so] [--gguf FILE...] [--rounds 9]
                                       [--llama-bench PATH] [--threads 1] [--isa best|avx2] [--only NAME] [--json]

SmolLM2-135M-Instruct from its GGUF file (`./dev model`) or the files of --gguf, as many threads each, one after the
other. llama.cpp is the program that --llama-bench names, a build for this machine: it runs as a process of its own
in every round (`-p 512`, and `-n 32 -d 512`), and the table says its build and commit. Without the option it is the
server of the PyPI package xllamacpp, as it was built, timed by itself, without prompt cache; transformers, one thread,
dequantises the same file to float32 (`logits_to_keep` 1 in prefill, a cache in decode). Each round runs every engine
once, starting with another engine; a figure is the median over the rounds, a ratio the median of the rounds' ratios.

--isa avx2 holds ours to AVX2 by its option and torch by ATEN_CPU_CAPABILITY, MKL_ENABLE_INSTRUCTIONS and
ONEDNN_MAX_CPU_ISA; llama.cpp cannot be told and runs as it was built.
"""

import argparse
import ctypes
import importlib.metadata
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

CONTEXT, DECODED = 512, 32
LEVELS = {"best": 0, "avx2": 3}  # phasor_instruction_set


class ModelOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("precision", ctypes.c_int32), ("threads", ctypes.c_int32),
                ("isa", ctypes.c_int32)]


class Ours:
    """phasor_model_forward, in exact or fast mode."""

    def __init__(self, library, model, ids, precision, isa, threads):
        self.library = ctypes.CDLL(str(library))
        self.library.phasor_last_error.restype = ctypes.c_char_p
        self.library.phasor_model_vocabulary.restype = ctypes.c_int64
        self.model, self.sequence = ctypes.c_void_p(), ctypes.c_void_p()
        options = ModelOptions(ctypes.sizeof(ModelOptions), precision, threads, isa)
        self.call("phasor_model_load", str(model).encode(), ctypes.byref(options), ctypes.byref(self.model))
        self.call("phasor_sequence_create", self.model, ctypes.c_int64(CONTEXT + DECODED + 1),
                  ctypes.byref(self.sequence))
        self.vocabulary = self.library.phasor_model_vocabulary(self.model)
        self.logits = (ctypes.c_float * self.vocabulary)()
        self.ids = (ctypes.c_int64 * len(ids))(*ids)

    def call(self, name, *arguments):
        if getattr(self.library, name)(*arguments) != 0:
            raise RuntimeError(self.library.phasor_last_error().decode())

    def forward(self, ids, count):
        self.call("phasor_model_forward", self.model, self.sequence, ids, ctypes.c_size_t(count), self.logits,
                  ctypes.c_size_t(self.vocabulary))

    def run(self):
        self.call("phasor_sequence_truncate", self.sequence, ctypes.c_int64(0))
        begin = time.perf_counter()
        self.forward(self.ids, CONTEXT)
        prefill = time.perf_counter()
        for i in range(DECODED):
            self.forward((ctypes.c_int64 * 1)(self.ids[i]), 1)
        end = time.perf_counter()
        return CONTEXT / (prefill - begin), DECODED / (end - prefill)


class LlamaBench:
    """llama.cpp's own benchmark: a process for the prompt and one for decoding."""

    def __init__(self, program, model, threads):
        self.command = [str(program), "-m", str(model), "-t", str(threads), "-r", "1", "-o", "json"]
        self.version = ""

    def speed(self, *options):
        done = subprocess.run([*self.command, *options], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(self.command)}: exit code {done.returncode}: {done.stderr.strip()[-300:]}")
        result = json.loads(done.stdout)[0]
        self.version = f"build {result['build_number']} ({result['build_commit']})"
        return result["avg_ts"]

    def run(self):
        return self.speed("-p", str(CONTEXT), "-n", "0"), self.speed("-p", "0", "-n", str(DECODED), "-d", str(CONTEXT))


class LlamaCpp:
    def __init__(self, model, ids, threads):
        import xllamacpp
        self.version = f"of xllamacpp {importlib.metadata.version('xllamacpp')}"
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(model)
        parameters.n_ctx, parameters.n_parallel = 1024, 1
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
        self.server, self.ids = xllamacpp.Server(parameters), ids

    def run(self):
        answer = self.server.handle_completions({"prompt": self.ids, "n_predict": DECODED, "temperature": 0,
                                                 "cache_prompt": False, "ignore_eos": True})
        return answer["timings"]["prompt_per_second"], answer["timings"]["predicted_per_second"]


class Transformers:
    def __init__(self, model, ids):
        import torch
        import transformers
        self.version = transformers.__version__
        transformers.utils.logging.disable_progress_bar()
        torch.set_num_threads(1)
        self.torch, self.ids = torch, torch.tensor([ids])
        self.model = transformers.AutoModelForCausalLM.from_pretrained(str(model.parent), gguf_file=model.name,
                                                                       dtype=torch.float32).eval()

    def run(self):
        with self.torch.inference_mode():
            begin = time.perf_counter()
            past = self.model(self.ids, use_cache=True, logits_to_keep=1).past_key_values
            prefill = time.perf_counter()
            for i in range(DECODED):
                past = self.model(self.ids[:, i:i + 1], past_key_values=past, use_cache=True).past_key_values
            end = time.perf_counter()
        return self.ids.shape[1] / (prefill - begin), DECODED / (end - prefill)


def measure(arguments, model):
    """The rows of one file."""
    ids = [(7919 * i) % 40000 + 100 for i in range(CONTEXT)]
    isa, threads = LEVELS[arguments.isa], arguments.threads
    engines = {mode: Ours(arguments.library, model, ids, precision, isa, threads)
               for precision, mode in enumerate(("exact", "fast"))}
    peers = {"llama.cpp": lambda: LlamaCpp(model, ids, threads), "transformers": lambda: Transformers(model, ids)}
    if arguments.llama_bench is not None:
        peers = {"llama.cpp": lambda: LlamaBench(arguments.llama_bench, model, threads)}
    for name, make in peers.items():
        if arguments.only in (None, name):
            try:
                engines[name] = make()
            except ImportError as error:
                print(f"models_peers: {name} is left out: {error}", file=sys.stderr)

    names = list(engines)
    speeds = {name: [] for name in names}
    for round_index in range(arguments.rounds + 1):
        for name in names[round_index % len(names):] + names[:round_index % len(names)]:
            speed = engines[name].run()
            if round_index > 0:  # the first round warms caches and heaps
                speeds[name].append(speed)

    rows = []
    for part, what in ((1, "decode"), (0, "prefill")):
        for mode in ("exact", "fast"):
            row = {"name": f"{what}/{mode}/{arguments.isa}", "file": model.name, "threads": threads,
                   "tokens_per_second": statistics.median(s[part] for s in speeds[mode])}
            for peer in names[2:]:
                row[f"{peer} version"] = engines[peer].version
                row[peer] = statistics.median(s[part] for s in speeds[peer])
                row[f"x {peer}"] = statistics.median(a[part] / b[part] for a, b in zip(speeds[mode], speeds[peer]))
            rows.append(row)
    return rows


def print_rows(rows):
    for row in rows:
        line = f"{row['file']:<40} {row['threads']} threads  {row['name']:<20} {row['tokens_per_second']:7.1f} tokens/s"
        for key in row:
            if key.startswith("x "):
                peer = key[2:]
                line += f"   {peer} {row[peer + ' version']} {row[peer]:6.1f}: {row[key]:5.2f} x"
        print(line, flush=True)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "phasor"
    folder = pathlib.Path(os.environ.get("PHASOR_MODELS") or cache)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=root / "build/release/lib/libphasor.so")
    parser.add_argument("--gguf", "--model", type=pathlib.Path, nargs="+",
                        default=[folder / "SmolLM2-135M-Instruct.Q4_1.gguf"])
    parser.add_argument("--llama-bench", type=pathlib.Path, help="llama.cpp's program, built for this machine")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--isa", choices=sorted(LEVELS), default="best")
    parser.add_argument("--only", choices=("llama.cpp", "transformers"))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for model in arguments.gguf:
        if not model.is_file():
            sys.exit(f"models_peers: {model} is missing; run: ./dev model")
    if arguments.isa == "avx2":
        os.environ.update(ATEN_CPU_CAPABILITY="avx2", MKL_ENABLE_INSTRUCTIONS="AVX2", ONEDNN_MAX_CPU_ISA="AVX2")
    rows = []
    for model in arguments.gguf:
        found = measure(arguments, model)
        if not arguments.json:
            print_rows(found)
        rows += found
    if arguments.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
