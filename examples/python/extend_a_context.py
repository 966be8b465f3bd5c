"""Extend a context: what each scaling does to the pairs of a model that was trained at 4096 positions.

    python examples/python/extend_a_context.py [FOLDER]

With a folder, also writes the figure of wavelengths.
"""

import sys
from pathlib import Path

import phasor

config = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
target = 16384

plan = phasor.plan(config, to=target)
print(f"trained to {plan['trained']}, wanted {plan['to']}: {plan['factor']:g} times as long\n")
print("method    pairs at new angles  fastest pair  slowest pair  amplitude")
for method in plan["methods"]:
    if method["applies"]:
        pairs = method["pairs"]
        print(
            f"{method['method']:9} {method['ood_pairs']:19} {pairs[0]['compression']:13.3g} "
            f"{pairs[-1]['compression']:13.3g} {method['amplitude']:10.4f}"
        )
print("(pairs: frequency / unscaled frequency; 1 = as trained, 0.25 = slowed to fit)\n")

# The plan has the config keys to paste.
yarn = next(method for method in plan["methods"] if method["method"] == "yarn")
longer = {key: value for key, value in config.items() if key not in yarn["rope_parameters"]["remove"]} | yarn[
    "rope_parameters"
]["paste"]
spec = phasor.RopeSpec.from_hf(longer)
plain, _ = phasor.RopeSpec.from_hf(config).frequencies()
scaled, amplitude = spec.frequencies(target)
print(f"YaRN, pasted: {(scaled == plain).sum()} of {len(plain)} pairs untouched, amplitude {amplitude:.4f}")

# Dynamic scaling depends on the context length.
dynamic = phasor.RopeSpec.from_hf(config | {"rope_scaling": {"type": "dynamic", "factor": 4.0}})
for context in (4096, 8192, 16384):
    slowest = dynamic.frequencies(context)[0][-1]
    print(f"dynamic NTK at {context:5}: the slowest pair rotates {slowest / plain[-1]:.3f} times as fast as unscaled")

if len(sys.argv) > 1:
    from phasor import plot

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    plot.save(plot.wavelengths(config, to=target), folder / "wavelengths.svg", folder / "wavelengths.png")
    print("wrote wavelengths.svg and wavelengths.png")
