"""Ours beside other libraries' rotary embedding, in one process, in turns.

    python bench/peers/rotary_peers.py [--library build/release/lib/libphasor.so] [--rounds 15] [--json]

Needs NumPy; measures each peer that can be imported: PyTorch (the rotate-half form eager and compiled, the complex
form) and ONNX Runtime (RotaryEmbedding, opset 23). Every peer gets its own memory order, and so do we beside it: a
ratio compares the same bytes in the same places. Peers return new tensors; ours writes out of place into a buffer that
is there, and a second column turns in place. Each result is compared with ours before it is timed.
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import sys
import time

import numpy as np

BATCH, TOKENS, HEADS, DIM, BASE = 1, 4096, 32, 128, 10000.0


class Heads(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int32)] + [
        (name, ctypes.c_int64)
        for name in ("batch", "tokens", "heads", "head_dim", "batch_stride", "token_stride", "head_stride")
    ]


class Positions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32), ("kind", ctypes.c_int32), ("integers", ctypes.c_void_p),
        ("floats", ctypes.c_void_p), ("axes", ctypes.c_int64), ("batch", ctypes.c_int64),
        ("tokens", ctypes.c_int64), ("offset", ctypes.c_int64), ("sequences", ctypes.c_int64),
    ]


class Turn(ctypes.Structure):
    _fields_ = [("in_", ctypes.POINTER(Heads)), ("out", ctypes.POINTER(Heads)), ("role", ctypes.c_int32)]


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32), ("direction", ctypes.c_int32), ("angles", ctypes.c_int32),
        ("threads", ctypes.c_int32), ("table", ctypes.c_void_p), ("isa", ctypes.c_int32),
    ]


class Phasor:
    """The few calls of phasor.h that are needed here."""

    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.phasor_last_error.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        if getattr(self.library, name)(*arguments) != 0:
            raise RuntimeError(self.library.phasor_last_error().decode())

    def rope(self, layout):
        spec = json.dumps({"head_dim": DIM, "base": BASE, "layout": layout}).encode()
        rope = ctypes.c_void_p()
        self.call("phasor_rope_from_config_text", spec, ctypes.c_size_t(len(spec)), None, ctypes.c_int32(-1),
                  ctypes.c_int64(0), ctypes.byref(rope))
        return rope

    def turner(self, layout, source, target, order):
        """A function without arguments that turns source into target; order is "bshd" or "bhsd"."""
        rope, table = self.rope(layout), ctypes.c_void_p()
        # Peers are handed their cos and sin, so ours has its table too.
        self.call("phasor_table_create", rope, ctypes.c_int64(0), ctypes.c_int64(TOKENS), ctypes.c_int32(0),
                  ctypes.c_int32(1), ctypes.byref(table))
        positions = Positions(ctypes.sizeof(Positions), 0, None, None, 1, 0, 0, 0, 0)
        options = Options(ctypes.sizeof(Options), 0, 0, 1, table, 0)
        strides = (HEADS * DIM, DIM) if order == "bshd" else (DIM, TOKENS * DIM)

        def view(array):
            return Heads(array.ctypes.data, 1, BATCH, TOKENS, HEADS, DIM, TOKENS * HEADS * DIM, *strides)

        view_in, view_out = view(source), view(target)
        turn = Turn(ctypes.pointer(view_in), ctypes.pointer(view_out), 0)
        rotate = self.library.phasor_rotate
        keep = (rope, positions, options, view_in, view_out, turn, source, target, table)

        def run():
            if rotate(keep[0], ctypes.byref(keep[1]), ctypes.byref(keep[5]), ctypes.c_size_t(1),
                      ctypes.byref(keep[2])) != 0:
                raise RuntimeError(self.library.phasor_last_error().decode())

        return run


def aligned(shape):
    """A touched float32 array at a multiple of 64 bytes, as torch and ONNX Runtime allocate their own."""
    count = int(np.prod(shape))
    memory = np.zeros(count + 16, dtype=np.float32)
    first = (-memory.ctypes.data % 64) // 4
    return memory[first : first + count].reshape(shape)


def torch_peers(x_bhsd, x_bshd):
    """(name, layout, order, function that returns an array) for each form that people call."""
    import torch

    torch.set_num_threads(1)
    frequencies = 1.0 / (BASE ** (torch.arange(0, DIM, 2, dtype=torch.float32) / DIM))
    angles = torch.outer(torch.arange(TOKENS, dtype=torch.float32), frequencies)
    cos, sin = torch.cat((angles, angles), -1).cos()[None, None], torch.cat((angles, angles), -1).sin()[None, None]
    phases = torch.polar(torch.ones_like(angles), angles)[None, :, None]
    by_head, by_token = torch.from_numpy(x_bhsd), torch.from_numpy(x_bshd)

    def halves(x):
        first, second = x[..., : DIM // 2], x[..., DIM // 2 :]
        return x * cos + torch.cat((-second, first), dim=-1) * sin

    def complex_pairs(x):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * phases).flatten(3)

    yield "torch eager, rotate-half", "half", "bhsd", lambda: halves(by_head)
    try:
        compiled = torch.compile(halves)
        compiled(by_head)
        yield "torch.compile, rotate-half", "half", "bhsd", lambda: compiled(by_head)
    except Exception as error:  # a machine without a C++ compiler, say: the other peers still count
        print(f"torch.compile: not measured: {error}".splitlines()[0], file=sys.stderr)
    yield "torch complex", "interleaved", "bshd", lambda: complex_pairs(by_token)


def onnx_peers(x_bhsd):
    import onnx
    import onnxruntime

    frequencies = BASE ** (-np.arange(0, DIM, 2) / DIM)
    angles = np.outer(np.arange(TOKENS), frequencies)
    feeds = {"x": x_bhsd, "cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32),
             "ids": np.arange(TOKENS, dtype=np.int64)[None]}
    types = {np.dtype(np.float32): onnx.TensorProto.FLOAT, np.dtype(np.int64): onnx.TensorProto.INT64}
    inputs = [onnx.helper.make_tensor_value_info(name, types[array.dtype], array.shape)
              for name, array in feeds.items()]
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, x_bhsd.shape)
    for layout, flag in (("half", 0), ("interleaved", 1)):
        node = onnx.helper.make_node("RotaryEmbedding", ["x", "cos", "sin", "ids"], ["y"], interleaved=flag)
        model = onnx.helper.make_model(onnx.helper.make_graph([node], "rotary", inputs, [output]),
                                       opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        yield f"onnxruntime RotaryEmbedding, {layout}", layout, "bhsd", lambda s=session: s.run(None, feeds)[0]


def contest(ours, theirs, rounds, least=4):
    """Median milliseconds of both and the median of the rounds' ratios theirs / ours.

    A turn repeats its work for a while, `least` times or more, so that each side meets its own data in the caches, not
    the other's.
    """
    work, repeats = (ours, theirs), []
    for function in work:
        function()
        begin = time.perf_counter()
        function()
        repeats.append(max(least, int(0.15 / (time.perf_counter() - begin))))
    times = [], []
    for turn in range(rounds):
        for which in ((0, 1), (1, 0))[turn % 2]:
            begin = time.perf_counter()
            for _ in range(repeats[which]):
                work[which]()
            times[which].append((time.perf_counter() - begin) * 1e3 / repeats[which])
    ratio = statistics.median(b / a for a, b in zip(*times))
    return statistics.median(times[0]), statistics.median(times[1]), ratio


def keep_heap_warm():
    """Makes glibc reuse freed memory instead of giving it back: what a long-running process ends up doing."""
    libc = ctypes.CDLL(None)
    m_trim_threshold, m_mmap_max = -1, -4
    libc.mallopt(m_mmap_max, 0)
    libc.mallopt(m_trim_threshold, 2**31 - 1)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", default=root / "build/release/lib/libphasor.so")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    phasor = Phasor(arguments.library)

    x_bhsd, x_bshd = aligned((BATCH, HEADS, TOKENS, DIM)), aligned((BATCH, TOKENS, HEADS, DIM))
    x_bhsd[:] = np.random.default_rng(1).standard_normal(x_bhsd.shape, dtype=np.float32)
    x_bshd[:] = x_bhsd.transpose(0, 2, 1, 3)
    peers = []
    for source, load in (("torch", lambda: torch_peers(x_bhsd, x_bshd)), ("onnxruntime", lambda: onnx_peers(x_bhsd))):
        try:
            peers.extend(load())
        except ImportError as error:
            print(f"{source}: not measured: {error}", file=sys.stderr)

    rows = []
    if not arguments.json:
        print(f"{BATCH} x {TOKENS} x {HEADS} x {DIM} float32, 1 thread each, medians of {arguments.rounds} rounds in turns")
        print(f"{'peer':<38} {'heap':<5} {'peer ms':>8}  {'ours ms':>8} {'ratio':>6}  {'in place':>8} {'ratio':>6}")
    for heap in ("cold", "warm"):
        if heap == "warm":
            keep_heap_warm()
        for name, layout, order, theirs in peers:
            source = x_bhsd if order == "bhsd" else x_bshd
            target, working = aligned(source.shape), aligned(source.shape)
            working[:] = source
            ours = phasor.turner(layout, source, target, order)
            in_place = phasor.turner(layout, working, working, order)
            ours()
            difference = float(np.abs(np.asarray(theirs()) - target).max())
            if not difference < 1e-2:  # the peers' float32 angles are off by 1e-3 at the last positions
                print(f"{name}: not timed, differs from ours by {difference:.2g}", file=sys.stderr)
                return 1
            ours_ms, theirs_ms, ratio = contest(ours, theirs, arguments.rounds)
            in_place_ms, again_ms, in_place_ratio = contest(in_place, theirs, arguments.rounds)
            for how, mine, other, value in (("out of place", ours_ms, theirs_ms, ratio),
                                            ("in place", in_place_ms, again_ms, in_place_ratio)):
                rows.append({"name": f"rotate/{layout}/f32/{order}/{how}", "ours_us": mine * 1e3,
                             "against": f"{name}, {heap} heap", "against_us": other * 1e3, "ratio": 1.0 / value})
            if not arguments.json:
                print(f"{name:<38} {heap:<5} {theirs_ms:8.2f}  {ours_ms:8.2f} {ratio:5.1f}x  {in_place_ms:8.2f} "
                      f"{in_place_ratio:5.1f}x")
    if arguments.json:
        print(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
