"""Ours beside torch's attention, in one process, in turns: fused without an encoding, composed with each.

    python bench/peers/attention_peers.py [--library build/release/lib/libphasor.so] [--rounds 15] [--json]
                                          [--isa best|avx2|avx512] [--only NAME] [--tokens N]

float32, causal, 8 heads of 64, one thread each. `sdpa` is torch.nn.functional.scaled_dot_product_attention, forward and
backward at 2048 and 4096 tokens. `composed` is the encoding's formula as a torch user writes it, with matrix products,
the relative shift or a gather, and softmax; where an encoding can be had through sdpa (q and k turned before it, a bias
handed over as its mask), that is measured too. Everything that depends on the input or on the encoding's tables is
computed in each call, by us as by torch; index tables that depend on the number of tokens alone are made before. Each
result is compared with ours before it is timed. torch is measured with a cold heap, as a script has it, and with a warm
one, as a long-running process ends up with.

--isa avx2 holds both sides to AVX2: ours by its option, torch by ATEN_CPU_CAPABILITY, MKL_ENABLE_INSTRUCTIONS and
ONEDNN_MAX_CPU_ISA, which are set before torch is loaded. The formulas composed in torch are in torch_attention.py.
"""

import argparse
import ctypes
import json
import os
import pathlib
import sys
import tempfile

import numpy as np

from rotary_peers import Heads, Phasor, contest, keep_heap_warm

HEADS, DIM = 8, 64
LEVELS = {"best": 0, "avx2": 3, "avx512": 4}  # phasor_instruction_set


class AttendOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32), ("causality", ctypes.c_int32), ("window", ctypes.c_int64),
        ("scale", ctypes.c_double), ("soft_cap", ctypes.c_double), ("threads", ctypes.c_int32), ("isa", ctypes.c_int32),
        ("log_sum_exp", ctypes.c_void_p), ("log_sum_exp_count", ctypes.c_size_t),
        ("query_segments", ctypes.c_void_p), ("query_segment_count", ctypes.c_size_t),
        ("key_segments", ctypes.c_void_p), ("key_segment_count", ctypes.c_size_t),
    ]


class Attention:
    """phasor_attend and its backward on arrays [heads, tokens, dim], with an encoding of torch_attention.py."""

    def __init__(self, phasor, encoding, q, k, v, isa):
        self.phasor, self.arrays = phasor, [q, k, v]
        self.out = np.zeros_like(q)
        self.handle = ctypes.c_void_p()
        with tempfile.TemporaryDirectory() as folder:
            spec = dict(encoding.spec)
            for name, table in encoding.tables.items():
                np.save(f"{folder}/{name}.npy", table)
                spec[name] = f"{name}.npy"
            phasor.call("phasor_encoding_parse", json.dumps(spec).encode(), folder.encode(), ctypes.byref(self.handle))
        self.log_sum_exp = np.zeros((HEADS, q.shape[1]), np.float32)
        self.segments = encoding.segments
        self.options = AttendOptions(ctypes.sizeof(AttendOptions), causality=1, threads=1, isa=isa)
        if self.segments is not None:
            self.options.query_segments = self.options.key_segments = self.segments.ctypes.data
            self.options.query_segment_count = self.options.key_segment_count = self.segments.size
        self.views = [self.view(array) for array in (q, k, v, self.out)]

    @staticmethod
    def view(array):
        heads, tokens, dim = array.shape
        return Heads(array.ctypes.data, 1, 1, tokens, heads, dim, heads * tokens * dim, dim, tokens * dim)

    def forward(self):
        self.phasor.call("phasor_attend", self.handle, *map(ctypes.byref, self.views), ctypes.byref(self.options))

    def prepare_backward(self, d_out):
        """Forward once with its sums; forward() writes them from then on, as training does."""
        self.d_out = d_out
        self.gradients = [np.zeros_like(array) for array in self.arrays]
        self.backward_views = [self.view(array) for array in (d_out, *self.gradients)]
        self.options.log_sum_exp, self.options.log_sum_exp_count = self.log_sum_exp.ctypes.data, self.log_sum_exp.size
        self.forward()

    def backward(self):
        self.phasor.call("phasor_attend_backward", self.handle, *map(ctypes.byref, self.views),
                         *map(ctypes.byref, self.backward_views), ctypes.byref(self.options))

    def close(self):
        self.phasor.library.phasor_encoding_destroy(self.handle)


def check(name, ours, theirs, tolerance):
    difference = float(np.abs(ours - theirs).max())
    if not difference < tolerance:
        raise SystemExit(f"{name}: not timed, differs from ours by {difference:.2g}")


def measured(arguments, phasor, tokens):
    """(name, peer, our function, peer's function) for each row; results have been compared."""
    import torch

    import torch_attention

    random = np.random.default_rng(1)
    q, k, v, d_out = (random.standard_normal((HEADS, tokens, DIM), dtype=np.float32) for _ in range(4))
    inputs = [torch.from_numpy(x)[None] for x in (q, k, v)]
    for encoding in torch_attention.encodings(HEADS, tokens, DIM):
        wanted = arguments.only is None or arguments.only == encoding.name
        if not wanted or (tokens > arguments.tokens and encoding.name != "none"):
            continue
        ours = Attention(phasor, encoding, q, k, v, LEVELS[arguments.isa])
        ours.forward()
        for peer, function in encoding.peers.items():
            with torch.no_grad():
                check(f"{encoding.name}, {peer}", ours.out, function(*inputs)[0].numpy(), 1e-4)

            def theirs(function=function):
                with torch.no_grad():
                    function(*inputs)

            yield f"attend/{encoding.name}/f32/t{tokens}", peer, ours.forward, theirs
        if encoding.name == "none" or arguments.backward:
            ours.prepare_backward(d_out)
            ours.backward()
            leaves = [x.clone().requires_grad_() for x in inputs]
            gradient = torch.from_numpy(d_out)[None]
            for peer, function in encoding.peers.items():
                result = function(*leaves)
                expected = torch.autograd.grad(result, leaves, gradient, retain_graph=True)
                for mine, their in zip(ours.gradients, expected):
                    # Gradients are sums over tokens: the largest sets the measure.
                    check(f"{encoding.name}, {peer}, backward", mine, their[0].numpy(),
                          1e-4 * max(1.0, float(np.abs(mine).max())))

                def backward(result=result):
                    torch.autograd.grad(result, leaves, gradient, retain_graph=True)

                yield f"attend_backward/{encoding.name}/f32/t{tokens}", peer, ours.backward, backward
                del result
        ours.close()


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=root / "build/release/lib/libphasor.so")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--isa", choices=LEVELS, default="best", help="hold both sides to one instruction set")
    parser.add_argument("--only", help="one encoding: none, rope, t5, ...")
    parser.add_argument("--tokens", type=int, default=2048, help="none is measured at twice as many too")
    parser.add_argument("--heap", choices=("cold", "warm", "both"), default="both")
    parser.add_argument("--backward", action="store_true", help="of every encoding, not of none alone")
    arguments = parser.parse_args()
    if arguments.isa != "best":
        os.environ["ATEN_CPU_CAPABILITY"] = arguments.isa
        os.environ["MKL_ENABLE_INSTRUCTIONS"] = arguments.isa.upper()
        os.environ["ONEDNN_MAX_CPU_ISA"] = {"avx2": "AVX2", "avx512": "AVX512_CORE"}[arguments.isa]
    try:
        import torch
    except ImportError as error:
        print(f"torch: not measured: {error}", file=sys.stderr)
        return 0
    torch.set_num_threads(1)
    phasor = Phasor(arguments.library)

    rows = []
    if not arguments.json:
        print(f"{HEADS} heads of {DIM}, float32, causal, 1 thread each, medians of {arguments.rounds} rounds in turns; "
              f"torch {torch.__version__} with {torch.backends.cpu.get_cpu_capability()}")
        print(f"{'what':<40} {'torch':<16} {'heap':<5} {'torch ms':>9} {'ours ms':>9} {'ratio':>6}")
    for heap in ("cold", "warm"):
        if arguments.heap not in (heap, "both"):
            continue
        if heap == "warm":
            keep_heap_warm()
        for tokens in (arguments.tokens, 2 * arguments.tokens):
            for name, peer, ours, theirs in measured(arguments, phasor, tokens):
                ours_ms, theirs_ms, ratio = contest(ours, theirs, arguments.rounds, least=1)
                rows.append({"name": name, "ours_us": ours_ms * 1e3, "against": f"torch {peer}, {heap} heap",
                             "against_us": theirs_ms * 1e3, "ratio": 1.0 / ratio})
                if not arguments.json:
                    print(f"{name:<40} {peer:<16} {heap:<5} {theirs_ms:9.2f} {ours_ms:9.2f} {ratio:5.2f}x", flush=True)
    if arguments.json:
        print(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
