#!/usr/bin/env python3
"""Draws the two pictures of docs/design.md, in English and Chinese, into docs/figures.

Every text is on a box of its own colour, so that the pictures can be read on a light and on a dark page.
"""

import pathlib
from xml.sax.saxutils import escape

FIGURES = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "figures"
FONT = (
    "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC', sans-serif"
)
MONO = "ui-monospace, 'SFMono-Regular', Consolas, 'DejaVu Sans Mono', monospace"
INK = "#1f2433"
LINE = "#7c8396"  # of arrows: seen on white and on black
FILLS = ["#dbe4ff", "#d3f0e3", "#fdf0c8", "#ffe0d1", "#efdcf7", "#e3e6ee"]

# Floors from the top: rooms with what they hold.
ROOMS = {
    "en": [
        [
            ("tools/phasor", "the command line"),
            ("bindings/python", "import phasor"),
            ("capi", "phasor.h"),
            ("web", "the explorer"),
        ],
        [("lab", "training: networks with gradients, data, experiments, reports")],
        [
            ("models", "RoFormer, T5, decoders; generation, perplexity"),
            ("porting", "explain, diagnose, diff, audit, convert, plan"),
        ],
        [
            ("attention", "softmax and linear, masks, KV cache"),
            ("config", "config.json and GGUF to encodings"),
            ("text", "tokenizers, chat formats"),
        ],
        [
            ("encodings", "RoPE and its scalings, every other encoding, score terms"),
            ("io", "npy, JSON, safetensors, GGUF"),
        ],
        [("core", "views, errors, threads, frequencies, exact angles, tables, rotate and its kernels")],
    ],
    "zh": [
        [("tools/phasor", "命令行"), ("bindings/python", "import phasor"), ("capi", "phasor.h"), ("web", "浏览器页面")],
        [("lab", "训练：带梯度的网络、数据、实验、报告")],
        [
            ("models", "RoFormer、T5、解码器；生成、困惑度"),
            ("porting", "explain、diagnose、diff、audit、convert、plan"),
        ],
        [
            ("attention", "softmax 与线性注意力、掩码、键值缓存"),
            ("config", "config.json 与 GGUF → 编码"),
            ("text", "分词器、对话格式"),
        ],
        [("encodings", "RoPE 及其缩放、其他各种编码、分数项"), ("io", "npy、JSON、safetensors、GGUF")],
        [("core", "视图、错误、线程、频率、精确角度、表、旋转及其内核")],
    ],
}
# Steps of one call: room (its floor gives the colour), what is called, what happens.
STEPS = {
    "en": [
        (
            2,
            "config",
            "spec = RopeSpec.from_hf(path)",
            "every key is known or refused; the spec is a plain value, made once",
        ),
        (
            5,
            "bindings/python",
            "phasor.rotate_qk(q, k, spec, out=(q, k))",
            "arrays of NumPy, torch or DLPack become views; nothing is copied",
        ),
        (
            1,
            "encodings",
            "resolve(spec, context) → Rotary",
            "a scaling becomes frequencies θ in float64, an amplitude and a layout; kept for the next call",
        ),
        (
            0,
            "core/rotate",
            "rotate(rotary, positions, {q, k})",
            "shapes, strides and positions are checked; a wrong one throws before any write",
        ),
        (
            0,
            "core/system",
            "run_parts(parts, task)",
            "tokens are divided among threads; with less than 256 KiB for each, the caller works alone",
        ),
        (
            0,
            "core/angles",
            "cos(m θ), sin(m θ)",
            "the exact product, reduced, rounded once; or a row of a table. One row serves all heads of q and k",
        ),
        (
            0,
            "core/kernels",
            "Kernels::rotate",
            "one source, built for each instruction set; the best one of this CPU runs",
        ),
    ],
    "zh": [
        (2, "config", "spec = RopeSpec.from_hf(path)", "每个键要么认识，要么报错；规格是一个普通的值，只需生成一次"),
        (
            5,
            "bindings/python",
            "phasor.rotate_qk(q, k, spec, out=(q, k))",
            "NumPy、torch 或 DLPack 数组变成视图，不复制任何数据",
        ),
        (1, "encodings", "resolve(spec, context) → Rotary", "缩放变成 float64 频率 θ、幅度和配对布局；留给下一次调用"),
        (0, "core/rotate", "rotate(rotary, positions, {q, k})", "检查形状、步长和位置；有错就在写入任何数据之前抛出"),
        (0, "core/system", "run_parts(parts, task)", "把词元分给各线程；每线程不足 256 KiB 时由调用者独自完成"),
        (
            0,
            "core/angles",
            "cos(m θ), sin(m θ)",
            "精确乘积，归约后只舍入一次；或者取表中的一行。q 和 k 的所有头共用一行",
        ),
        (0, "core/kernels", "Kernels::rotate", "同一份源码为每个指令集各编译一次；运行时选用本机最好的"),
    ],
}
TITLES = {
    "rooms": {
        "en": "The rooms of Phasor: each includes only rooms below it",
        "zh": "Phasor 的模块：每个模块只包含位于其下方的模块",
    },
    "scale": {
        "en": "Three orders of 16 tokens on 4 ranks, a ring of keys and values, an exchange of heads",
        "zh": "16 个词元在 4 个进程上的三种顺序，键和值的环，以及头的交换",
    },
    "call": {"en": "The path of one call, from Python to the kernel", "zh": "一次调用的路径：从 Python 到内核"},
}


def box(x, y, width, height, fill):
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{LINE}"/>'


def text(x, y, words, size=13, anchor="middle", weight="normal", font=FONT):
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" font-family="{font}" '
        f'fill="{INK}">{escape(words)}</text>'
    )


def picture(name, language, width, height, parts):
    title = TITLES[name][language]
    body = "\n".join(parts)
    arrow = (
        f'<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{LINE}"/></marker></defs>'
    )
    suffix = "" if language == "en" else f".{language}"
    (FIGURES / f"{name}{suffix}.svg").write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(title)}">\n<title>{escape(title)}</title>\n{arrow}\n{body}\n</svg>\n',
        encoding="utf-8",
    )


def draw_rooms(language):
    width, gap, height = 860, 10, 58
    parts, y = [], 4
    for floor, rooms in enumerate(ROOMS[language]):
        # A box is as wide as its text asks for.
        weights = [max(len(name), sum(2 if ord(letter) > 255 else 1 for letter in what)) + 8 for name, what in rooms]
        room_for_all = width - 8 - gap * (len(rooms) - 1)
        x = 4
        for (name, what), weight in zip(rooms, weights):
            wide = round(room_for_all * weight / sum(weights))
            parts += [
                box(x, y, wide, height, FILLS[5 - floor]),
                text(x + wide / 2, y + 24, name, 15, weight="600", font=MONO),
                text(x + wide / 2, y + 45, what),
            ]
            x += wide + gap
        y += height
        if floor + 1 < len(ROOMS[language]):
            parts.append(
                f'<path d="M{width / 2} {y + 2}v14" stroke="{LINE}" stroke-width="2" marker-end="url(#arrow)"/>'
            )
            y += 18
    picture("rooms", language, width, y + 4, parts)


def draw_call(language):
    width, height, gap = 860, 58, 18
    parts, y = [], 4
    for number, (floor, room, call, what) in enumerate(STEPS[language]):
        parts += [
            box(4, y, width - 8, height, FILLS[floor]),
            text(20, y + 35, room, 14, "start", "600", MONO),
            text(190, y + 24, call, 14, "start", font=MONO),
            text(190, y + 45, what, 13, "start"),
        ]
        y += height
        if number + 1 < len(STEPS[language]):
            parts.append(f'<path d="M90 {y + 2}v{gap - 4}" stroke="{LINE}" stroke-width="2" marker-end="url(#arrow)"/>')
            y += gap
    picture("call", language, width, y + 4, parts)


if __name__ == "__main__":
    for one in ROOMS:
        draw_rooms(one)
        draw_call(one)
