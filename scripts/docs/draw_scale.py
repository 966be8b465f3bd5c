#!/usr/bin/env python3
"""Draws the picture of docs/scale.md, in English and Chinese, into docs/figures: tokens of 4 ranks in three orders, with
the causal work of each rank, and what travels in a ring and in an exchange of heads."""

from draw_design import LINE, MONO, box, picture, text

COLOURS = ["#7aa2f7", "#6cc4a1", "#f2c14e", "#f08a6b"]
RANKS, TOKENS = 4, 16
WORDS = {
    "en": {
        "tokens": "tokens of rank 0, 1, 2, 3",
        "work": "causal pairs of each rank",
        "ring": "ring: k and v travel, q and out stay",
        "heads": "heads: q, k, v one way, out the other",
        "before": "tokens divided",
        "after": "heads divided",
    },
    "zh": {
        "tokens": "进程 0、1、2、3 的词元",
        "work": "各进程的因果配对数",
        "ring": "环：k 和 v 传递，q 和 out 不动",
        "heads": "头交换：q、k、v 去，out 回",
        "before": "按词元划分",
        "after": "按头划分",
    },
}
ORDERS = {
    "contiguous": lambda token: token * RANKS // TOKENS,
    "zigzag": lambda token: min(token * 2 * RANKS // TOKENS, 2 * RANKS - 1 - token * 2 * RANKS // TOKENS),
    "striped": lambda token: token % RANKS,
}


def arrow(path):
    return f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="2" marker-end="url(#arrow)"/>'


def draw(language):
    words, parts = WORDS[language], []
    parts.append(box(4, 4, 852, 398, "#f4f5f9"))
    parts += [text(120, 30, words["tokens"], 13, "start"), text(585, 30, words["work"], 13, "start")]
    for row, (name, rank_of) in enumerate(ORDERS.items()):
        y = 44 + 48 * row
        parts.append(text(22, y + 22, name, 13, "start", "600", MONO))
        work = [0] * RANKS
        for token in range(TOKENS):
            rank = rank_of(token)
            work[rank] += token + 1  # a query sees the keys up to itself
            parts += [box(120 + 28 * token, y + 4, 26, 26, COLOURS[rank]), text(133 + 28 * token, y + 22, str(rank), 12)]
        x = 585
        for rank, pairs in enumerate(work):
            wide = 1.85 * pairs
            parts += [box(x, y + 4, wide - 2, 26, COLOURS[rank]), text(x + wide / 2 - 1, y + 22, str(pairs), 12)]
            x += wide
    # The ring.
    parts.append(text(210, 222, words["ring"], 13, weight="600"))
    places = [(70, 240), (250, 240), (250, 330), (70, 330)]
    for rank, (x, y) in enumerate(places):
        parts += [box(x, y, 100, 44, COLOURS[rank]), text(x + 50, y + 27, f"q{rank}  k{rank} v{rank}", 13, font=MONO)]
    parts += [arrow("M172 262H246"), arrow("M300 286V326"), arrow("M248 352H174"), arrow("M120 328V288")]
    for x, y in ((209, 254), (322, 311), (209, 371), (97, 311)):
        parts.append(text(x, y, "k v", 12, font=MONO))
    # The exchange: a table of tokens and heads, before and after.
    parts.append(text(640, 222, words["heads"], 13, weight="600"))
    for x, title, colour in (
        (450, words["before"], lambda token, head: COLOURS[token]),
        (690, words["after"], lambda token, head: COLOURS[head]),
    ):
        for token in range(RANKS):
            for head in range(RANKS):
                parts.append(box(x + 30 * head, 246 + 30 * token, 28, 28, colour(token, head)))
        parts.append(text(x + 59, 388, title, 13))
    parts += [arrow("M582 290H680"), arrow("M680 324H582")]
    parts += [text(631, 282, "q k v", 12, font=MONO), text(631, 342, "out", 12, font=MONO)]
    picture("scale", language, 860, 406, parts)


if __name__ == "__main__":
    for one in WORDS:
        draw(one)
