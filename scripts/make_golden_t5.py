"""Makes golden cases of T5 encoder-decoders with transformers: tiny random checkpoints, logits, greedy tokens.

    python scripts/make_golden_t5.py golden/models [NAME ...]

As make_golden_models.py, whose rules these cases follow.
"""

import copy
import json
import sys

import numpy as np
import torch
import transformers
from make_golden_models import finish, main, margin_of, save

TOKENS, STEPS, NEW_TOKENS, PADDING, VOCABULARY = 30, 11, 16, 7, 97
COMMON = dict(vocab_size=VOCABULARY, pad_token_id=0, eos_token_id=96, decoder_start_token_id=0, dropout_rate=0.0,
              attn_implementation="eager")

# name: (class, kind, settings, has a head of its own, notes)
CASES = {
    "t5_relu_tied": (
        "T5", "t5",
        dict(d_model=40, d_kv=12, d_ff=72, num_layers=3, num_decoder_layers=2, num_heads=4,
             relative_attention_num_buckets=8, relative_attention_max_distance=20, feed_forward_proj="relu"), False,
        "As T5 1.0: ReLU; the head is the embedding, and the decoder's output is multiplied by d_model^-1/2 before it; "
        "num_heads * d_kv is not d_model, the encoder has one layer more."),
    "t5_gated_untied": (
        "T5", "t5",
        dict(d_model=48, d_kv=16, d_ff=60, num_layers=2, num_heads=3, relative_attention_num_buckets=32,
             relative_attention_max_distance=128, feed_forward_proj="gated-gelu", tie_word_embeddings=False), True,
        "As T5 1.1 and Flan-T5: gated tanh-GELU; lm_head of its own, no factor before it; config.json has tie_word_embeddings "
        "false, as the files of the hub."),
    "mt5_gated": (
        "MT5", "mt5",
        dict(d_model=32, d_kv=8, d_ff=52, num_layers=3, num_heads=6, relative_attention_num_buckets=12,
             relative_attention_max_distance=16), True,
        "As mT5: gated tanh-GELU, lm_head of its own although config.json has tie_word_embeddings true, as transformers 5 writes it."),
    "umt5_tables": (
        "UMT5", "umt5",
        dict(d_model=36, d_kv=10, d_ff=64, num_layers=3, num_heads=4, relative_attention_num_buckets=8,
             relative_attention_max_distance=24), False,
        "As umT5: every layer has its own table of the relative bias; gated tanh-GELU; the head is the embedding, with the factor "
        "d_model^-1/2."),
}


def fill(model, seed):
    """Weights of a size that makes every part matter: T5 does not scale q.k."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:
            noise = noise * 0.25 + 1.0
        elif "shared" in name:
            noise = noise * 0.3
        elif "relative_attention_bias" not in name:
            noise = noise * ((0.5 if name.endswith((".q.weight", ".k.weight")) else 1.3) / parameter.shape[1] ** 0.5)
        parameter.data.copy_(noise)


def make(name, seed):
    kind, _, settings, own_head, _ = CASES[name]
    config = getattr(transformers, kind + "Config")(**(COMMON | settings))
    model = getattr(transformers, kind + "ForConditionalGeneration")(config).eval().float()
    if own_head:
        model.lm_head.weight = torch.nn.Parameter(torch.zeros_like(model.lm_head.weight))
    fill(model, seed)
    return model


def forward(model, ids, steps, mask=None, hidden=False):
    with torch.no_grad():
        return model(input_ids=ids, attention_mask=mask, decoder_input_ids=steps, use_cache=False, output_hidden_states=hidden)


def greedy(model, ids, mask=None):
    """Without a cache, row by row without padding: (tokens, logits they were taken from)."""
    rows, logits = [], []
    for row in range(ids.shape[0]):
        known = ids[row][mask[row].bool()] if mask is not None else ids[row]
        steps = torch.tensor([[0]])
        for _ in range(NEW_TOKENS):
            last = forward(model, known[None], steps).logits[0, -1]
            logits.append(last)
            steps = torch.cat([steps, last.argmax()[None, None]], -1)
        rows.append(steps[0, 1:].numpy())
    return np.stack(rows), torch.stack(logits).numpy()


def without(model, part):
    """A copy with one thing left out."""
    other = copy.deepcopy(model)
    for name, parameter in other.named_parameters():
        if "relative_attention_bias" in name and name.startswith(part):
            parameter.data.zero_()
        if part == "layer_tables" and "relative_attention_bias" in name and ".block.0." not in name:
            parameter.data.copy_(other.state_dict()[name.replace(f"block.{name.split('.')[2]}", "block.0")])
        if part == "cross" and name.endswith("EncDecAttention.o.weight"):
            parameter.data.zero_()
    return other


def write(folder, name, seed):
    kind, model_type, settings, own_head, notes = CASES[name]
    model = make(name, seed)
    generator = np.random.default_rng(seed)
    ids = torch.tensor(generator.integers(2, VOCABULARY - 1, (1, TOKENS)))
    steps = torch.tensor(generator.integers(2, VOCABULARY - 1, (1, STEPS)))
    padded = torch.tensor(generator.integers(2, VOCABULARY - 1, (2, TOKENS)))
    padded_steps = torch.tensor(generator.integers(2, VOCABULARY - 1, (2, STEPS)))
    steps[:, 0] = padded_steps[:, 0] = 0
    mask = torch.ones_like(padded)
    mask[1, :PADDING] = 0
    mask[0, -PADDING // 2:] = 0
    padded[mask == 0] = 0

    generated, generated_logits = greedy(model, ids)
    padded_generated, padded_step_logits = greedy(model, padded, mask)
    margin = min(margin_of(generated_logits), margin_of(padded_step_logits))
    if margin < 4e-3 or len(np.unique(generated)) < 6:
        return None
    # With the package's own generation, cache and all.
    options = dict(max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0)
    with torch.no_grad():
        if not np.array_equal(model.generate(ids, attention_mask=torch.ones_like(ids), **options)[:, 1:].numpy(), generated):
            return None
        if not np.array_equal(model.generate(padded, attention_mask=mask, **options)[:, 1:].numpy(), padded_generated):
            return None
    out = forward(model, ids, steps, hidden=True)
    encoder_hidden = torch.stack(out.encoder_hidden_states)[:, 0].numpy()
    hidden = torch.stack(out.decoder_hidden_states)[:, 0].numpy()
    logits = out.logits[0].numpy()
    padded_logits = forward(model, padded, padded_steps, mask).logits.numpy()

    exact = make(name, seed).double()
    exact_out = forward(exact, ids, steps, hidden=True)
    exact_logits = exact_out.logits[0].numpy()
    exact_padded = np.stack([forward(exact, padded[row][mask[row].bool()][None], padded_steps[row:row + 1]).logits[0].numpy()
                             for row in range(2)])
    exact_generated, exact_steps = greedy(exact, ids)
    exact_padded_generated, _ = greedy(exact, padded, mask)
    if not (np.array_equal(exact_generated, generated) and np.array_equal(exact_padded_generated, padded_generated)):
        return None
    stacked = lambda states: torch.stack(states)[:, 0].numpy()
    error = {
        "max_abs_diff_encoder": float(np.abs(encoder_hidden - stacked(exact_out.encoder_hidden_states)).max()),
        "max_abs_diff_hidden": float(np.abs(hidden - stacked(exact_out.decoder_hidden_states)).max()),
        "max_abs_diff_logits": float(np.abs(logits - exact_logits).max()),
        "max_abs_diff_padded": float(np.abs(padded_logits - exact_padded).max()),
        "max_abs_diff_generation": float(np.abs(generated_logits - exact_steps).max()),
    }
    power = {}
    for part in ["encoder", "decoder", "cross"] + (["layer_tables"] if kind == "UMT5" else []):
        other = forward(without(model, part), ids, steps).logits[0].numpy()
        power[part] = float(f"{np.abs(other - logits).max():.3g}")
        if power[part] < 2e-3:
            raise SystemExit(f"{name}: leaving out {part} changes the logits by {power[part]} only")

    case = folder / name
    case.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(case / "model")
    for extra in (case / "model").glob("generation_config.json"):
        extra.unlink()
    path = case / "model" / "config.json"
    config = json.loads(path.read_text())
    if settings.get("tie_word_embeddings") is False:
        config["tie_word_embeddings"] = False
        config.pop("scale_decoder_outputs", None)
        path.write_text(json.dumps(config, indent=2) + "\n")
    read = type(model).from_pretrained(case / "model", attn_implementation="eager").eval()
    difference = float(np.abs(forward(read, ids, steps).logits[0].numpy() - logits).max())
    if difference > 1e-6:
        raise SystemExit(f"{name}: the saved model differs by {difference}")
    tolerance = lambda key, floor=2e-5: {"atol": max(floor, float(f"{4 * error[key]:.1e}")), "rtol": 1e-4}
    exactly = {"atol": 0.0, "rtol": 0.0}
    batch = ["batch", "seq"]
    document = {
        "format": 1, "name": name, "group": "models", "kind": f"model_{model_type}",
        "source": {"package": "transformers", "version": transformers.__version__,
                   "where": f"{type(model).__name__} (save_pretrained), eager attention, float32, one thread", "how": "called"},
        "notes": "Random weights. input_ids are the encoder's, decoder_input_ids start with decoder_start_token_id. "
                 "encoder_hidden_states[0] and hidden_states[0] are the embedding, the last ones are after the final norm of "
                 "their stack. The padded batch is padded on either side. generated is without the start token. " + notes,
        "inputs": {
            "input_ids": save(case, "input_ids", ids.numpy(), batch),
            "decoder_input_ids": save(case, "decoder_input_ids", steps.numpy(), batch),
            "padded_input_ids": save(case, "padded_input_ids", padded.numpy(), batch),
            "padded_attention_mask": save(case, "padded_attention_mask", mask.numpy(), batch),
            "padded_decoder_input_ids": save(case, "padded_decoder_input_ids", padded_steps.numpy(), batch),
        },
        "outputs": {
            "encoder_hidden_states": save(case, "encoder_hidden_states", encoder_hidden, ["layer", "seq", "hidden"],
                                          **tolerance("max_abs_diff_encoder")),
            "hidden_states": save(case, "hidden_states", hidden, ["layer", "seq", "hidden"], **tolerance("max_abs_diff_hidden")),
            "logits": save(case, "logits", logits, ["seq", "vocab"], **tolerance("max_abs_diff_logits")),
            "padded_logits": save(case, "padded_logits", padded_logits, ["batch", "seq", "vocab"], **tolerance("max_abs_diff_padded")),
            "generated": save(case, "generated", generated, ["batch", "new_token"], **exactly, note="greedy answer to input_ids"),
            "padded_generated": save(case, "padded_generated", padded_generated, ["batch", "new_token"], **exactly,
                                     note="greedy answers to the padded batch"),
            "generated_logits": save(case, "generated_logits", generated_logits, ["new_token", "vocab"],
                                     **tolerance("max_abs_diff_generation", 4e-5), note="logits each new token was taken from"),
        },
        "truth": {
            "logits_f64": save(case, "logits_f64", exact_logits, ["seq", "vocab"], of="logits", **tolerance("max_abs_diff_logits")),
        },
        "verify": {"method": "the same model in float64; greedy decoding without cache in float64 and with the cache in float32: "
                             "identical tokens"} | {key: float(f"{value:.3e}") for key, value in error.items()},
        "greedy_min_margin": float(f"{margin:.4g}"),
        "logits_std": float(f"{logits.std():.3g}"),
        "model_dir": "model",
        "config": config,
        "power": power,
        "weights": {key: list(value.shape) for key, value in sorted(model.state_dict().items())
                    if not key.endswith("embed_tokens.weight") and (own_head or key != "lm_head.weight")},
    }
    finish(case, name, model_type, document, error)
    return document


if __name__ == "__main__":
    main(sys.argv[1:], CASES, write)
