"""Writes what tests print into docs/*.md into the Chinese pages too: docs/rope_spec.zh.md and the tables of docs/models.zh.md.

    python3 scripts/docs/zh_tables.py [--check]

Cells are translated phrase by phrase; code, numbers and names stay. An unknown phrase is an error that names it: add it below. --check writes
nothing and fails if a page is out of date.
"""

import pathlib
import re
import sys

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"

# Sentences, headings and cells of docs/rope_spec.md.
SPEC = {
    "# The RoPE spec": "# RoPE 规格",
    'The keys of a plain spec, `{"head_dim": 128, "layout": "half", ...}`, which are also the keywords of Python\'s `RopeSpec`.':
        '简单规格 `{"head_dim": 128, "layout": "half", ...}` 的键，也就是 Python 的 `RopeSpec` 的关键字参数。',
    "The same names are members of C's `phasor_rope_spec`. f_i = base^(-2i/dim) are the unscaled frequencies.":
        "C 的 `phasor_rope_spec` 的成员用同样的名字。f_i = base^(-2i/dim) 是未缩放的频率。",
    "`encodings_test` compares this page with the tables in `src/encodings/rope`.":
        "`encodings_test` 把本页的英文版与 `src/encodings/rope` 中的表比较。",
    "key": "键", "type": "类型", "if missing": "缺省时", "meaning": "含义",
    "required": "必须给出", "not used": "不使用", "object": "对象",
    "integer": "整数", "integer, > 0": "整数，> 0", "integer, >= 0": "整数，>= 0", "number, > 0": "数，> 0", "number, finite": "数，有限",
    "number, 0 to 1": "数，0 到 1", "number, > 0, <= 1": "数，> 0，<= 1", "list, finite": "列表，有限", "list, > 0": "列表，> 0",
    "true or false": "true 或 false",
    "`interleaved`, `half`, `interleaved_to_half`": "`interleaved`、`half`、`interleaved_to_half`",
    "`concatenated`, `alternating`, `per_half_head`": "`concatenated`、`alternating`、`per_half_head`",
    "required; not needed with `frequencies`": "必须给出；有 `frequencies` 时不需要",
    "required; not needed with `alpha`": "必须给出；有 `alpha` 时不需要",
    "required; null: `max_position_embeddings` / original length": "必须给出；null 表示 `max_position_embeddings` / 原始长度",
    "`max_position_embeddings` / original length": "`max_position_embeddings` / 原始长度",
    "`original_max_position_embeddings`; not needed with `alpha`": "`original_max_position_embeddings`；有 `alpha` 时不需要",
    "`max_position_embeddings` (outside)": "`max_position_embeddings`（在外层）",
    "Features of one head.": "一个头的特征数。",
    "f_i = base^(-2i/rotary_dim); rope_theta in a config.json.": "f_i = base^(-2i/rotary_dim)；在 config.json 中叫 rope_theta。",
    "Which two features make a pair; needed to rotate.": "哪两个特征组成一对；旋转时必须给出。",
    "Features that are rotated; even.": "参与旋转的特征数；偶数。",
    "The first feature that is rotated.": "第一个参与旋转的特征。",
    "The context length that the model was trained at, in tokens.": "模型训练时的上下文长度，以词元计。",
    "{type, ...}: how the frequencies change for longer contexts.": "{type, ...}：上下文更长时频率怎样变化。",
    "{sections, order}: a row of positions for each of 3 or 4 sections.": "{sections, order}：分为 3 或 4 段，每段一行位置。",
    "Two rows of positions, height and width, and how the frequencies share them.": "高和宽两行位置，以及频率怎样分配给它们。",
    "{scale_base, gamma, centre}: scores that fade with distance.": "{scale_base, gamma, centre}：分数随距离衰减。",
    "Replace f_i, in radians per position, one for each pair; scaling: default or linear.": "代替 f_i，单位为弧度每位置，每对一个；缩放只能是 default 或 linear。",
    "Divide the scaled frequencies, one for each pair; freq_factors in ggml.": "除缩放后的频率，每对一个；在 ggml 中叫 freq_factors。",
    "Multiplies cos and sin, and the scaling's own amplitude.": "乘在 cos 和 sin 上，并与缩放自身的幅度相乘。",
    "Positions over which the factor zeta_i applies once.": "因子 zeta_i 作用一次所跨的位置数。",
    "Smoothing: zeta_i = (2i/dim + gamma) / (1 + gamma).": "平滑：zeta_i = (2i/dim + gamma) / (1 + gamma)。",
    "The position where the factor is 1; or middle_floor or middle_ceil of the context.": "因子为 1 的位置；或上下文的 middle_floor、middle_ceil。",
    "f_i of base * factor, divided by factor^(2/dim)": "底数为 base * factor 的 f_i，除以 factor^(2/dim)",
    "base * (factor L/max - (factor - 1))^(dim/(dim-2)), L = max(context, max)": "base * (factor L/max - (factor - 1))^(dim/(dim-2))，L = max(context, max)",
    "linear blended into NTK, then into f_i, by rotations in the original length": "按原始长度内的圈数，先把线性混合到 NTK，再混合到 f_i",
    "f_i / factor blended into f_i between corr(beta_fast) and corr(beta_slow)": "在 corr(beta_fast) 与 corr(beta_slow) 之间，把 f_i / factor 混合到 f_i",
    "f_i / short_factor_i, or f_i / long_factor_i beyond the original length": "f_i / short_factor_i；超过原始长度时为 f_i / long_factor_i",
    "f_i, f_i / factor or a blend, by wavelength 2 pi / f_i": "按波长 2 pi / f_i，取 f_i、f_i / factor 或两者的混合",
    "base^(-2i/head_dim) / factor for a share of the pairs, then 0": "一部分特征对为 base^(-2i/head_dim) / factor，其余为 0",
    "YaRN with amplitude 1 + 0.07 ln factor": "幅度为 1 + 0.07 ln factor 的 YaRN",
    "Divides every frequency.": "除每一个频率。",
    "Divides the lowest frequency; the others by less.": "除最低的频率；其余频率除得较少。",
    "The exponent b of NTK-mixed, which divides f_i by exp(a (i+1)^b).": "NTK-mixed 的指数 b，它把 f_i 除以 exp(a (i+1)^b)。",
    "How fast the base grows with the length of the sequence.": "底数随序列长度增长的快慢。",
    "Multiplies the base by alpha^(dim/(dim-2)) at every length (Hunyuan).": "在任何长度上都把底数乘以 alpha^(dim/(dim-2))（混元）。",
    "Divides the lowest frequencies.": "除最低的那些频率。",
    "Rotations within the original length above which NTK replaces linear.": "原始长度内的圈数超过此值时，用 NTK 代替线性。",
    "Rotations below which linear applies alone.": "圈数低于此值时，只用线性。",
    "Rotations above which f_i is unscaled.": "圈数超过此值时，f_i 不缩放。",
    "Rotations below which the first blend applies.": "圈数低于此值时，用第一次混合的结果。",
    "Weight of NTK in the first blend.": "第一次混合中 NTK 的权重。",
    "Weight of f_i in the second blend.": "第二次混合中 f_i 的权重。",
    "Divides the lowest frequencies; it also sets the amplitude.": "除最低的那些频率；也决定幅度。",
    "Pairs with more rotations within the original length keep f_i.": "原始长度内圈数更多的特征对保持 f_i。",
    "Pairs with fewer rotations within the original length are divided by factor.": "原始长度内圈数更少的特征对除以 factor。",
    "Rounds the range of blended pairs outward to whole pairs; false in gpt-oss.": "把混合范围向外取整到整数对；gpt-oss 中为 false。",
    "The amplitude; without it 1 + 0.1 ln factor.": "幅度；没有给出时为 1 + 0.1 ln factor。",
    "With mscale_all_dim, the amplitude is g(mscale) / g(mscale_all_dim).": "与 mscale_all_dim 同时给出时，幅度为 g(mscale) / g(mscale_all_dim)。",
    "Divides the amplitude by g(mscale_all_dim) = 1 + 0.1 mscale_all_dim ln factor.": "把幅度除以 g(mscale_all_dim) = 1 + 0.1 mscale_all_dim ln factor。",
    "Weight of f_i in the blend; at 0 the amplitude is 1 too. ext_factor in ggml.": "混合中 f_i 的权重；为 0 时幅度也是 1。在 ggml 中叫 ext_factor。",
    "Gives the amplitude sqrt(1 + ln factor / ln original_length).": "决定幅度 sqrt(1 + ln factor / ln original_length)。",
    "Divides the frequencies up to the original length, one entry per pair.": "不超过原始长度时除各频率，每对一项。",
    "Divides the frequencies beyond the original length, one entry per pair.": "超过原始长度时除各频率，每对一项。",
    "The amplitude.": "幅度。",
    "The amplitude with short_factor.": "用 short_factor 时的幅度。",
    "The amplitude with long_factor.": "用 long_factor 时的幅度。",
    "Divides the frequencies of long wavelength.": "除长波长的频率。",
    "Wavelengths above original_length / low_freq_factor are divided in full.": "波长大于 original_length / low_freq_factor 的，频率完全除以 factor。",
    "Wavelengths below original_length / high_freq_factor stay as they are.": "波长小于 original_length / high_freq_factor 的保持不变。",
    "The share of the head's pairs that rotate.": "头中参与旋转的特征对所占的比例。",
}

# Cells and lines of the tables in docs/models.md.
MODELS = {
    "layers": "层", "rotated": "旋转", "windows": "窗口", "GGUF architecture": "GGUF 架构", "layout": "布局", "default base": "默认底数",
    "convert": "可转换", "run": "可运行", "what it does": "它的做法",
    "all": "全部", "nothing": "不旋转", "yes": "是", "none": "无", "decoder": "解码器", "encoder": "编码器", "M-RoPE": "M-RoPE", "two axes": "两个轴",
    "RMS norm": "RMS 归一化", "RMS norm with 1 + weight": "RMS 归一化（1 + 权重）", "LayerNorm": "LayerNorm",
    "LayerNorm without bias": "无偏置的 LayerNorm", "ALiBi": "ALiBi", "learned positions": "可学习的位置", "gated SiLU": "门控 SiLU",
    "gated tanh GELU": "门控 tanh GELU", "plain tanh GELU": "普通 tanh GELU", "plain GELU": "普通 GELU", "logit scale": "logit 缩放",
    "soft caps": "软上限", "parallel block": "并行块", "optional parallel block": "可选并行块", "parallel block with two norms": "带两个归一化的并行块",
    "optional LayerNorm of q and k": "q 和 k 可选 LayerNorm", "q, k, v fused": "q、k、v 合并", "q, k, v fused by head": "q、k、v 按头合并",
    "bias on q, k, v": "q、k、v 有偏置", "bias on the head": "输出头有偏置", "gate and up fused": "gate 与 up 合并",
    "embeddings times sqrt(hidden)": "嵌入乘以 sqrt(hidden)", "norms before and after each part": "每部分前后都有归一化",
    "norms after each part": "每部分之后归一化", "q and k normalised": "q 和 k 归一化", "q and k normalised per head": "q 和 k 按头归一化",
    "multipliers of embedding, branches and logits": "嵌入、分支和 logit 各有乘数", "top experts of a router": "由路由器选出的专家",
    "half": "half", "interleaved": "interleaved", "sliding window": "滑动窗口",
    "sliding window in every other layer": "每隔一层有滑动窗口", "sliding window with use_sliding_window": "use_sliding_window 时有滑动窗口",
    "sliding windows": "滑动窗口", "with their own base": "有自己的底数",
    "except in the layers that layer_types names; no rotation there": "layer_types 列出的层除外，这些层不旋转",
    "sliding windows except in the layers that layer_types names; no rotation there": "滑动窗口，layer_types 列出的层除外，这些层不旋转",
    "queries, keys and values rotate by one table, whose base is not in the config": "查询、键和值都按同一张表旋转，表的底数不在配置中",
    "the last features of compressed keys rotate, by two tables that no layer type names": "旋转压缩后的键的末尾特征，所用的两张表没有层类型与之对应",
    "positions are image coordinates between -1 and 1": "位置是 -1 到 1 之间的图像坐标",
    "the attention to memory rotates by the grid of an image": "对记忆的注意力按图像网格旋转",
    "the grid of an image shares the width of the model, not of a head": "图像网格分配的是模型的宽度，而不是头的宽度",
    "positions are coordinates of atoms": "位置是原子的坐标",
    "the config does not describe the layers of the timm model": "配置没有描述 timm 模型的层",
    "pairs read width and height in turn": "各特征对轮流读取宽和高",
    "the frequencies are trained": "频率是训练得到的",
    "pairs read width, then height, both counted from 1": "各特征对先读宽，再读高，都从 1 数起",
    "three axes share one list of frequencies": "三个轴共用一组频率",
    "trained factors scale the frequencies": "用训练得到的因子缩放频率",
    "pairs read the row and the column of an image in turn": "各特征对轮流读取图像的行和列",
    "the scores of the reading order rotate, not those of attention": "旋转的是阅读顺序的分数，不是注意力的分数",
    "three axes rotate a third of the head each": "三个轴各旋转头的三分之一",
    "GGUF architectures without a `model_type` above": "上面没有对应 `model_type` 的 GGUF 架构",
    "These rotate in a way that no RoPE spec describes; they are refused by name:": "下列模型的旋转方式没有 RoPE 规格能够描述，会按名字报错：",
    "These rotate nothing; `explain` says what they have instead:": "下列模型不旋转；`explain` 会说明它们用什么代替：",
    "- ALiBi, a bias by distance": "- ALiBi，按距离的偏置",
    "- absolute positions, added to the input or to queries and keys": "- 绝对位置，加到输入或查询和键上",
    "- no attention": "- 没有注意力",
    "- no positions": "- 没有位置",
    "- positions by convolution": "- 由卷积提供位置",
    "- relative positions in the scores": "- 分数中的相对位置",
}
NUMBERED = [
    (r"(\d+) features", r"\1 个特征"),
    (r"every (\d+)(?:th|rd) layer does not rotate", r"每 \1 层中有一层不旋转"),
    (r"sliding windows except in every (\d+)(?:th|rd) layer", r"滑动窗口，每 \1 层中有一层除外"),
    (r"sliding windows except in every (\d+)(?:th|rd) layer; no rotation there", r"滑动窗口，每 \1 层中有一层除外，该层不旋转"),
    (r"except in every (\d+)(?:th|rd) layer", r"每 \1 层中有一层除外"),
]
PLAIN = re.compile(r"(`[^`]+`( - `[^`]+`)?|[\d.,]+( %)?|:?-+:?|[\w.-]*)")  # code, numbers, rulers, names


def phrase(text, phrases):
    """The Chinese for one phrase, or for phrases joined by commas; None if it is unknown."""
    if text in phrases:
        return phrases[text]
    for pattern, chinese in NUMBERED:
        if match := re.fullmatch(pattern, text):
            return match.expand(chinese)
    if PLAIN.fullmatch(text):
        return text
    for at in reversed([match.start() for match in re.finditer(", ", text)]):
        if text[:at] in phrases and (rest := phrase(text[at + 2 :], phrases)) is not None:
            return phrases[text[:at]] + "，" + rest
    return None


def line_in_chinese(line, phrases, page):
    if line.startswith("|"):
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")] if "---" not in line else None
        if cells is None:
            return line
        chinese = [phrase(cell, phrases) for cell in cells]
        for cell, found in zip(cells, chinese):
            if found is None:
                sys.exit(f'{page}: no Chinese for "{cell}"; add it to scripts/docs/zh_tables.py')
        return "| " + " | ".join(chinese) + " |"
    if line in phrases:
        return phrases[line]
    head, colon, names = line.partition(": ")
    if colon and head in phrases:  # a list of names
        return phrases[head] + "：" + names.rstrip(".").replace(", ", "、") + "。"
    if not line or line.startswith("## scaling: ") or line == "## xpos" or re.fullmatch(r"f_i( = base\^\(-2i/dim\)| / factor)", line):
        return line
    sys.exit(f'{page}: no Chinese for "{line}"; add it to scripts/docs/zh_tables.py')


def spec_page():
    page = DOCS / "rope_spec.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    text = "".join(line_in_chinese(line, SPEC, page.name) + "\n" for line in lines)
    return re.sub("。\n(?=[^\n|#])", "。", text)  # a line break would show as a space


def models_page():
    english = (DOCS / "models.md").read_text(encoding="utf-8")
    chinese = (DOCS / "models.zh.md").read_text(encoding="utf-8")
    for name in ("decoders", "families"):
        part = re.compile(f"(<!-- {name} -->\n)(.*?)(<!-- end of {name} -->)", re.DOTALL)
        lines = part.search(english)[2].splitlines()
        table = "".join(line_in_chinese(line, MODELS, "models.md") + "\n" for line in lines)
        chinese = part.sub(lambda match, table=table: match[1] + table + match[3], chinese)
    return chinese


def main():
    stale = []
    for name, text in (("rope_spec.zh.md", spec_page()), ("models.zh.md", models_page())):
        path = DOCS / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(f"docs/{name}")
            if "--check" not in sys.argv[1:]:
                path.write_text(text, encoding="utf-8")
    if "--check" in sys.argv[1:] and stale:
        sys.exit(f"{', '.join(stale)}: out of date. Run: python3 scripts/docs/zh_tables.py")


if __name__ == "__main__":
    main()
