"""Every encoding's attention composed in torch, and the JSON of the same encoding for Phasor.

Causal. q, k and v are [1, heads, tokens, dim]. Each formula is written as a torch user would for speed: no loops,
products as matmul, the relative shift where rows are in order of distance and a gather where they are clipped.
"""

import dataclasses
import math

import numpy as np
import torch
import torch.nn.functional as F

CLIP, BUCKETS, MAX_DISTANCE, BASE = 64, 32, 128, 10000.0


@dataclasses.dataclass
class Encoding:
    name: str
    spec: dict  # of phasor.Encoding, with its name and without its tables
    tables: dict  # of float32 arrays
    peers: dict  # of functions of q, k and v
    segments: np.ndarray = None


def softmax_product(scores, v, hidden):
    return torch.softmax(scores.masked_fill_(hidden, -math.inf), -1) @ v


def t5_buckets(distance):
    """distance = m - n >= 0 counts; the future reads bucket 0."""
    distance = distance.clamp(min=0)
    exact = BUCKETS // 2
    far = torch.log(distance.clamp(min=1).double() / exact) / math.log(MAX_DISTANCE / exact) * (BUCKETS - exact)
    return torch.where(distance < exact, distance, (exact + (far + 1e-9).long()).clamp(max=BUCKETS - 1))


def encodings(heads, tokens, dim):
    random = np.random.default_rng(2)

    def table(*shape, size=0.3):
        return random.standard_normal(shape, dtype=np.float32) * np.float32(size)

    index = torch.arange(tokens)
    distance = index[:, None] - index[None, :]  # m - n
    hidden = distance < 0
    scale = dim**-0.5

    yield Encoding("none", {"encoding": "none"}, {}, {
        "sdpa": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)})

    angles = torch.outer(index.double(), BASE ** (-torch.arange(0, dim, 2).double() / dim))
    cos, sin = torch.cat((angles, angles), -1).cos().float(), torch.cat((angles, angles), -1).sin().float()

    def rotated(x):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    yield Encoding("rope", {"encoding": "rope", "head_dim": dim, "base": BASE, "layout": "half"}, {}, {
        "rotate, then sdpa": lambda q, k, v: F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True),
        "composed": lambda q, k, v: softmax_product((rotated(q) * scale) @ rotated(k).mT, v, hidden)})

    buckets = t5_buckets(distance)
    bias = table(BUCKETS, heads, size=1.0)
    bias_rows = torch.from_numpy(bias).T.contiguous()  # [heads, buckets]
    t5_spec = {"num_buckets": BUCKETS, "max_distance": MAX_DISTANCE, "bidirectional": False}

    def gathered_bias():
        return bias_rows[:, buckets]  # [heads, tokens, tokens]

    def with_bias(bias_of, scale):
        def sdpa(q, k, v):
            return F.scaled_dot_product_attention(q, k, v, bias_of().masked_fill(hidden, -math.inf)[None], scale=scale)

        def composed(q, k, v):
            return softmax_product((q * scale) @ k.mT + bias_of(), v, hidden)

        return {"sdpa with mask": sdpa, "composed": composed}

    yield Encoding("t5", {"encoding": "t5", **t5_spec}, {"relative_attention_bias": bias}, with_bias(gathered_bias, 1.0))

    slopes = 2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads)
    far = -distance.float()
    yield Encoding("alibi", {"encoding": "alibi"}, {}, with_bias(lambda: slopes[:, None, None] * far, scale))

    # Shaw: row clip(n - m) + CLIP.
    rel_k, rel_v = table(2 * CLIP + 1, dim), table(2 * CLIP + 1, dim)
    keys, values = torch.from_numpy(rel_k), torch.from_numpy(rel_v)
    shaw_rows = ((-distance).clamp(-CLIP, CLIP) + CLIP).expand(1, heads, -1, -1)

    def shaw_scores(q, k):
        q = q * scale
        return q @ k.mT + torch.gather(q @ keys.T, -1, shaw_rows)

    def shaw_both(q, k, v):
        weights = torch.softmax(shaw_scores(q, k).masked_fill_(hidden, -math.inf), -1)
        near = torch.zeros(1, heads, tokens, 2 * CLIP + 1).scatter_add(-1, shaw_rows, weights)
        return weights @ v + near @ values

    yield Encoding("shaw_keys", {"encoding": "shaw", "clip": CLIP}, {"rel_k": rel_k}, {
        "composed": lambda q, k, v: softmax_product(shaw_scores(q, k), v, hidden)})
    yield Encoding("shaw", {"encoding": "shaw", "clip": CLIP}, {"rel_k": rel_k, "rel_v": rel_v},
                   {"composed": shaw_both})

    # DeBERTa: row clip(m - n + size), both terms.
    for size in (CLIP, 512):
        pos_k, pos_q = table(heads, 2 * size, dim), table(heads, 2 * size, dim)
        rows = (distance + size).clamp(0, 2 * size - 1)
        to_position, from_position = (x.contiguous().expand(1, heads, -1, -1) for x in (rows, rows.T))

        def deberta(q, k, v, pos_k=torch.from_numpy(pos_k), pos_q=torch.from_numpy(pos_q), to=to_position,
                    back=from_position):
            factor = (3 * dim) ** -0.5
            scores = q @ k.mT + torch.gather(q @ pos_k.mT, -1, to) + torch.gather(k @ pos_q.mT, -1, back).mT
            return softmax_product(scores * factor, v, hidden)

        yield Encoding(f"deberta_{2 * size}", {"encoding": "deberta_v2", "max_relative_positions": size,
                                               "position_buckets": -1},
                       {"pos_k": pos_k, "pos_q": pos_q}, {"composed": deberta})

    # Transformer-XL: row p is distance tokens - 1 - p.
    u, w, s = table(heads, dim), table(heads, dim), table(heads, dim)
    u_row, w_row, s_row = (torch.from_numpy(x)[:, None] for x in (u, w, s))
    rows = table(tokens, heads, dim)
    by_head = torch.from_numpy(rows).transpose(0, 1).contiguous()  # [heads, tokens, dim]

    def shifted(x):
        """Row m moves left until its column of distance 0 is at m."""
        _, heads, queries, columns = x.shape
        x = F.pad(x, (1, 0)).view(1, heads, columns + 1, queries)
        return x[:, :, 1:].view(1, heads, queries, columns)

    def transformer_xl(q, k, v):
        scores = (q + u_row) @ k.mT + shifted((q + w_row) @ by_head.mT)
        return softmax_product(scores * scale, v, hidden)

    yield Encoding("transformer_xl", {"encoding": "transformer_xl"}, {"u_bias": u, "v_bias": w, "r_head": rows},
                   {"composed": transformer_xl})

    # XLNet: row p is distance tokens - p, both directions; and two segments.
    both_ways = table(2 * tokens, heads, dim)
    both_by_head = torch.from_numpy(both_ways).transpose(0, 1).contiguous()
    segment_rows = table(2, heads, dim)
    segments_by_head = torch.from_numpy(segment_rows).transpose(0, 1).contiguous()
    segments = (np.arange(tokens) >= tokens // 2).astype(np.int32)
    other = torch.from_numpy(segments[:, None] != segments[None, :])

    def xlnet_shifted(x):
        _, heads, queries, columns = x.shape
        x = x.view(1, heads, columns, queries)[:, :, 1:]
        return x.reshape(1, heads, queries, columns - 1)[..., :queries]

    def xlnet(q, k, v):
        position = xlnet_shifted((q + w_row) @ both_by_head.mT)
        segment = (q + s_row) @ segments_by_head.mT
        scores = (q + u_row) @ k.mT + position + torch.where(other, segment[..., 1:], segment[..., :1])
        return softmax_product(scores * scale, v, hidden)

    yield Encoding("xlnet", {"encoding": "xlnet", "first_distance": tokens},
                   {"r_w_bias": u, "r_r_bias": w, "r_s_bias": s, "k_head_r": both_ways, "seg_embed": segment_rows},
                   {"composed": xlnet}, segments)

    # TUPE: position-position product and a T5 bias.
    pos_q, pos_k = table(heads, tokens, dim), table(heads, tokens, dim)
    query_positions, key_positions = torch.from_numpy(pos_q)[None], torch.from_numpy(pos_k)[None]

    def tupe(q, k, v):
        factor = (2 * dim) ** -0.5
        scores = (q * factor) @ k.mT + (query_positions * factor) @ key_positions.mT + gathered_bias()
        return softmax_product(scores, v, hidden)

    yield Encoding("tupe", {"encoding": "tupe", **t5_spec}, {"pos_q": pos_q, "pos_k": pos_k, "bias_table": bias},
                   {"composed": tupe})
