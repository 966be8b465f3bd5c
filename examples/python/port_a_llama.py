"""Port a LLaMA: one attention layer in NumPy, from the model's config, in both layouts of its weights.

Meta's checkpoints pair neighbouring features (interleaved); Hugging Face's hold the same weights with the rows of q
and k reordered, so that the features of a pair are half a head apart. Mixing the two gives text that looks like noise.
"""

import numpy as np

import phasor

config = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 4,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 2048,
    },
}
heads, key_heads, head_dim = 8, 2, 32

# Everything about the rotation comes from the config; an unknown key about positions is an error.
spec = phasor.RopeSpec.from_hf(config)
layer = phasor.explain(config)["layers"][0]
print(
    f"config: {layer['encoding']}, layout {layer['layout']}, base {layer['base']:g}, scaling {layer['scaling']['type']}"
)

random = np.random.default_rng(0)
x = random.standard_normal((12, 256), dtype=np.float32)
w_q, w_k, w_v, w_o = (
    random.standard_normal((rows, 256), dtype=np.float32) / 16
    for rows in (heads * head_dim, key_heads * head_dim, key_heads * head_dim, 256)
)


def layer_output(w_q: np.ndarray, w_k: np.ndarray, spec: phasor.RopeSpec) -> np.ndarray:
    """The attention block of a LLaMA layer: projections, rotation, grouped-query attention, output projection."""
    q = (x @ w_q.T).reshape(12, heads, head_dim)
    k = (x @ w_k.T).reshape(12, key_heads, head_dim)
    v = (x @ w_v.T).reshape(12, key_heads, head_dim)
    mixed: np.ndarray = phasor.attention(q, k, v, encoding=spec, causal=True).reshape(12, -1)
    return mixed @ w_o.T


ours = layer_output(w_q, w_k, spec)

# The same layer with Meta's order of rows: other weights, another layout, the same result.
meta_q = phasor.convert_layout(w_q, to="interleaved", heads=heads)
meta_k = phasor.convert_layout(w_k, to="interleaved", heads=key_heads)
meta = layer_output(meta_q, meta_k, spec.replace(layout="interleaved"))
print(f"weights and layout converted together: largest difference {np.abs(meta - ours).max():.1e}")

# Only one of the two converted: a common mistake.
broken = layer_output(meta_q, meta_k, spec)
print(f"weights converted, layout forgotten:   largest difference {np.abs(broken - ours).max():.1e}")

# diagnose() finds the layout from one tensor before and after its rotation.
q = (x @ w_q.T).reshape(12, heads, head_dim)
found = phasor.diagnose(q, phasor.rotate(q, spec.replace(layout="interleaved")), config=spec)
print("diagnose:", found["differences"][0]["text"])
