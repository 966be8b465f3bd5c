"""Makes tests/lab/nn/torch_gradients: losses and gradients of tiny models of the lab, by torch in float64.

    python scripts/make_lab_gradients.py tests/lab/nn/torch_gradients [NAME ...]

Needs torch and transformers (tests/oracle/requirements.txt of the Python package). The encoder, the classifier and the
decoder with RoPE are transformers' own models; the others are composed below from the papers' formulas, under the
parameter names of the lab. A case is one safetensors file: the model as JSON and the loss in its metadata, `value.NAME`
and `gradient.NAME` for each parameter, and the batch. The values are float32 numbers; gradients are rounded to float32.
"""

import json
import math
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.numpy import save_file
from transformers.models.t5.modeling_t5 import T5Attention

HIDDEN, HEADS, INNER, VOCABULARY, CONTEXT, EPSILON = 12, 2, 14, 13, 9, 1e-5
DIM = HIDDEN // HEADS
CLIP, BUCKETS, MAX_DISTANCE = 3, 8, 6
SMOOTHING, SCALE, NO_LABEL = 0.1, 0.25, -1
ROWS, TOKENS, SOURCE_TOKENS = 2, 9, 7

BASE = {"vocabulary": VOCABULARY, "hidden": HIDDEN, "layers": 1, "heads": HEADS, "intermediate": INNER, "context": CONTEXT}
ENCODER = {**BASE, "architecture": "encoder", "style": "roformer", "token_types": 2, "encoding": "rope"}
DECODER = {**BASE, "architecture": "decoder", "style": "llama"}
BUCKETED = {"buckets": BUCKETS, "max_distance": MAX_DISTANCE}
CASES = {
    "roformer_masked": ENCODER,
    "roformer_classification": {**ENCODER, "head": "classification", "labels": 3},
    "llama": {**DECODER, "layers": 2, "encoding": "rope"},
    "decoder_alibi": {**DECODER, "encoding": "alibi"},
    "decoder_deberta": {**DECODER, "encoding": {"name": "deberta", "max_distance": MAX_DISTANCE}},
    "decoder_kerple": {**DECODER, "encoding": "kerple"},
    "decoder_linear": {**DECODER, "encoding": "rope", "attention": "linear", "features": "elu"},
    "decoder_shaw": {**DECODER, "encoding": {"name": "shaw", "clip": CLIP}},
    "decoder_transformer_xl": {**DECODER, "encoding": "transformer_xl"},
    "decoder_tupe": {**DECODER, "encoding": {"name": "tupe", **BUCKETED}},
    "encoder_decoder_t5": {**BASE, "architecture": "encoder-decoder", "style": "llama", "output": "own", "cross": "rope",
                           "encoding": {"name": "t5", **BUCKETED}},
}


def normal(generator, *shape):
    """Numbers that float32 has, as float64 with a gradient."""
    numbers = torch.randn(*shape, generator=generator, dtype=torch.float32) * 0.3
    return numbers.double().requires_grad_()


def loss_of(logits, labels):
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=NO_LABEL, label_smoothing=SMOOTHING,
                           reduction="sum")


class Parameters(dict):
    """Tensors by name, made when they are first asked for."""

    def __init__(self, generator):
        super().__init__()
        self.generator = generator

    def get(self, name, *shape):
        if name not in self:
            self[name] = normal(self.generator, *shape)
        return self[name]


def heads_of(x):
    return x.unflatten(-1, (HEADS, DIM)).transpose(1, 2)  # [rows, heads, tokens, dim]


def rotated(x):
    """RoFormer (34) in the half layout, positions from 0."""
    angles = torch.outer(torch.arange(x.shape[-2]).double(), 10000.0 ** (-torch.arange(0, DIM, 2).double() / DIM))
    a, b = x.chunk(2, -1)
    return torch.cat((a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1)


class Stack:
    """Layers of style llama, with the position encoding of a model."""

    def __init__(self, spec, weights, layers, encoding, causal):
        self.weights, self.layers, self.prefix, self.causal = weights, layers, encoding, causal
        self.count = spec["layers"]
        self.cross = spec.get("cross")
        self.linear = spec.get("attention") == "linear"
        self.encoding = spec["encoding"] if isinstance(spec["encoding"], str) else spec["encoding"]["name"]

    def matrix(self, name, out=HIDDEN, width=HIDDEN):
        return self.weights.get(name + ".weight", out, width)

    def norm(self, name, x):
        return F.rms_norm(x, (HIDDEN,), self.weights.get(name + ".weight", HIDDEN), EPSILON)

    def bias(self, distance):
        rows = T5Attention._relative_position_bucket(-distance, not self.causal, BUCKETS, MAX_DISTANCE)
        return self.weights.get(self.prefix + "relative_bias", BUCKETS, HEADS, 1)[rows, :, 0].permute(2, 0, 1)

    def scores(self, layer, q, k):
        """Scores of queries m and keys n, as their papers have them."""
        tokens = q.shape[-2]
        index = torch.arange(tokens)
        distance = index[:, None] - index[None, :]  # m - n
        own = f"{self.prefix}layer.{layer}."
        products, get = q @ k.mT, self.weights.get
        match self.encoding:
            case "alibi":
                slopes = 2.0 ** (-8.0 * torch.arange(1, HEADS + 1).double() / HEADS)
                return products * DIM**-0.5 - slopes[:, None, None] * distance
            case "kerple":
                r1, r2 = F.softplus(get(self.prefix + "kerple", 2, HEADS))
                return products * DIM**-0.5 - r1[:, None, None] * torch.log1p(r2[:, None, None] * distance.abs())
            case "t5":
                return products * DIM**-0.5 + self.bias(distance)
            case "shaw":
                keys = get(own + "relative_keys", CLIP + 1, 1, DIM)[:, 0]
                return (products + torch.einsum("bhmd,mnd->bhmn", q, keys[self.clipped(distance)])) * DIM**-0.5
            case "deberta":
                size = MAX_DISTANCE
                table = get(self.prefix + "relative.weight", 2 * size, HIDDEN)
                rows = (distance + size).clamp(0, 2 * size - 1)
                position = [(table @ self.matrix(own + name).T).view(2 * size, HEADS, DIM)[rows]
                            for name in ("position_keys", "position_queries")]
                to_position = torch.einsum("bhmd,mnhd->bhmn", q, position[0])
                from_position = torch.einsum("bhnd,mnhd->bhmn", k, position[1])
                return (products + to_position + from_position) * (3 * DIM) ** -0.5
            case "transformer_xl":
                angles = torch.outer(index.double(), 10000.0 ** (-torch.arange(0, HIDDEN, 2).double() / HIDDEN))
                waves = torch.cat((angles.sin(), angles.cos()), -1)  # row: distance
                rows = (waves @ self.matrix(own + "relative").T).view(tokens, HEADS, DIM)[distance.clamp(min=0)]
                u, v = (get(self.prefix + name, 1, HEADS, DIM)[0, :, None] for name in "uv")
                return ((q + u) @ k.mT + torch.einsum("bhmd,mnhd->bhmn", q + v, rows)) * DIM**-0.5
            case "tupe":
                table = get(self.prefix + "positions.weight", CONTEXT, HIDDEN)[:tokens]
                pos_q, pos_k = (heads_of((table @ self.matrix(self.prefix + name).T)[None])
                                for name in ("position_queries", "position_keys"))
                return (products + pos_q @ pos_k.mT) * (2 * DIM) ** -0.5 + self.bias(distance)
        raise ValueError(self.encoding)

    def clipped(self, distance):
        return (-distance).clamp(-CLIP, 0) + CLIP

    def attend(self, layer, name, x):
        q, k, v = (heads_of(x @ self.matrix(f"{name}.{part}_proj").T) for part in "qkv")
        tokens = x.shape[1]
        distance = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]
        visible = self.keep[:, None, None, :] & (distance >= 0 if self.causal else torch.ones_like(distance, dtype=torch.bool))
        if self.linear:  # RoFormer (19), rotated numerator and plain denominator
            q, k = F.elu(q) + 1, F.elu(k) + 1
            weights = (rotated(q) @ rotated(k).mT) / ((q @ k.mT) * visible).sum(-1, keepdim=True) * visible
        else:
            weights = torch.softmax(self.scores(layer, q, k).masked_fill(~visible, -math.inf), -1)
        out = weights @ v
        if self.encoding == "shaw":
            values = self.weights.get(f"{self.prefix}layer.{layer}.relative_values", CLIP + 1, 1, DIM)[:, 0]
            out = out + torch.einsum("bhmn,mnd->bhmd", weights, values[self.clipped(distance)])
        return out.transpose(1, 2).flatten(2) @ self.matrix(name + ".o_proj").T

    def attend_across(self, name, x, memory, memory_keep):
        q = heads_of(x @ self.matrix(name + ".q_proj").T)
        k, v = (heads_of(memory @ self.matrix(f"{name}.{part}_proj").T) for part in "kv")
        if self.cross == "rope":
            q, k = rotated(q), rotated(k)
        scores = (q @ k.mT * DIM**-0.5).masked_fill(~memory_keep[:, None, None, :], -math.inf)
        return (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2) @ self.matrix(name + ".o_proj").T

    def run(self, x, keep, final, memory=None, memory_keep=None):
        self.keep = keep
        for layer in range(self.count):
            at = f"{self.layers}{layer}."
            x = x + self.attend(layer, at + "self_attn", self.norm(at + "input_layernorm", x))
            if memory is not None:
                normed = self.norm(at + "cross_attention_layernorm", x)
                x = x + self.attend_across(at + "cross_attn", normed, memory, memory_keep)
            normed = self.norm(at + "post_attention_layernorm", x)
            gate, up = (normed @ self.matrix(f"{at}mlp.{name}_proj", INNER).T for name in ("gate", "up"))
            x = x + (F.silu(gate) * up) @ self.matrix(at + "mlp.down_proj", HIDDEN, INNER).T
        return self.norm(final, x)


def composed(spec, generator, batch):
    weights = Parameters(generator)
    if spec["architecture"] == "decoder":
        words = weights.get("model.embed_tokens.weight", VOCABULARY, HIDDEN)
        decoder = Stack(spec, weights, "model.layers.", "model.encoding.", causal=True)
        hidden = decoder.run(words[batch["ids"]], batch["mask"], "model.norm")
        return loss_of(hidden @ words.T, batch["labels"]), weights
    words = weights.get("shared.weight", VOCABULARY, HIDDEN)
    encoder = Stack(spec, weights, "encoder.layers.", "encoder.encoding.", causal=False)
    decoder = Stack(spec, weights, "decoder.layers.", "decoder.encoding.", causal=True)
    memory = encoder.run(words[batch["source_ids"]], batch["source_mask"], "encoder.norm")
    hidden = decoder.run(words[batch["ids"]], batch["mask"], "decoder.norm", memory, batch["source_mask"])
    return loss_of(hidden @ weights.get("lm_head.weight", VOCABULARY, HIDDEN).T, batch["labels"]), weights


def by_transformers(spec, generator, batch):
    # A padding token would have no gradient from the input.
    common = dict(vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=spec["layers"], num_attention_heads=HEADS,
                  intermediate_size=INNER, max_position_embeddings=CONTEXT, attn_implementation="eager", pad_token_id=None)
    inputs = {"input_ids": batch["ids"], "attention_mask": batch["mask"].long()}
    if spec["architecture"] == "decoder":
        config = transformers.LlamaConfig(**common, rms_norm_eps=EPSILON, tie_word_embeddings=True,
                                          rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
        model = transformers.LlamaForCausalLM(config)
    else:
        classifies = spec.get("head") == "classification"
        config = transformers.RoFormerConfig(**common, embedding_size=HIDDEN, type_vocab_size=2, layer_norm_eps=EPSILON,
                                             num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        model = (transformers.RoFormerForSequenceClassification if classifies else transformers.RoFormerForMaskedLM)(config)
        inputs["token_type_ids"] = batch["token_types"]
    model = model.double().eval()
    weights = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
    with torch.no_grad():
        for tensor in weights.values():
            tensor.copy_(normal(generator, *tensor.shape))
    return loss_of(model(**inputs).logits, batch["labels"]), weights


def make_batch(spec, generator):
    """Random ids; the second row ends in padding; every third token has no label."""
    def ids(*shape, below=VOCABULARY):
        return torch.randint(below, shape, generator=generator)

    mask = torch.ones(ROWS, TOKENS, dtype=torch.bool)
    mask[1, -2:] = False
    labels = ids(ROWS, TOKENS)
    labels[:, ::3] = NO_LABEL
    labels[~mask] = NO_LABEL
    batch = {"ids": ids(ROWS, TOKENS), "mask": mask, "labels": labels}
    if spec["architecture"] == "encoder":
        batch["token_types"] = ids(ROWS, TOKENS, below=2)
    if spec.get("head") == "classification":
        batch["labels"] = ids(ROWS, below=spec["labels"])
    if spec["architecture"] == "encoder-decoder":
        batch["source_ids"] = ids(ROWS, SOURCE_TOKENS)
        batch["source_mask"] = torch.ones(ROWS, SOURCE_TOKENS, dtype=torch.bool)
        batch["source_mask"][0, -1] = False
    return batch


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for index, (name, spec) in enumerate(CASES.items()):
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        generator = torch.Generator().manual_seed(100 + index)
        batch = make_batch(spec, generator)
        make = composed if name.startswith(("decoder_", "encoder_decoder")) else by_transformers
        loss, weights = make(spec, generator, batch)
        (SCALE * loss).backward()
        tensors = {key: value.to(torch.uint8 if value.dtype == torch.bool else torch.int32).numpy()
                   for key, value in batch.items()}
        for key, value in weights.items():
            tensors["value." + key] = value.detach().numpy().astype(np.float32)
            tensors["gradient." + key] = value.grad.numpy().astype(np.float32)
        package = "torch" if make is composed else "transformers"
        metadata = {"model": json.dumps(spec), "loss": repr(loss.item()), "label_smoothing": str(SMOOTHING),
                    "gradient_scale": str(SCALE), "source": f"{package} {sys.modules[package].__version__}, float64"}
        path = folder / f"{name}.safetensors"
        save_file(tensors, path, metadata)
        print(f"{name:26} loss {loss.item():.6f}  {len(weights)} parameters  {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
