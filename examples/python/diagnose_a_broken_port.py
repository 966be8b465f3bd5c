"""Diagnose a broken port: find the rotation from a tensor before and after it.

Six ports of one model, five of them with a mistake that real ports have had. Each dumps q before and after its rotation.
"""

import numpy as np

import phasor

config = {"head_dim": 64, "base": 500000.0, "layout": "half", "max_position_embeddings": 8192}
right = phasor.RopeSpec.from_hf(config)
q = np.random.default_rng(0).standard_normal((64, 4, 64), dtype=np.float32)

ports = {
    "right": phasor.rotate(q, right),
    "pairs neighbouring features": phasor.rotate(q, right.replace(layout="interleaved")),
    "never read the base": phasor.rotate(q, right.replace(base=10000.0)),
    "scales linearly by 4": phasor.rotate(q, right.replace(scaling={"type": "linear", "factor": 4.0})),
    "starts at position 1": phasor.rotate(q, right, 1),
    "rotates backwards": phasor.rotate(q, right, inverse=True),
}

for name, after in ports.items():
    found = phasor.diagnose(q, after, config=config)
    parts = [part["text"] for part in found["differences"]] or ["agrees with the config"]
    if found["offset"]:
        parts.append(f"but the positions begin at {found['offset']}")
    print(f"{name:28} {'; '.join(parts)}")

# Without a config it reports the rotation itself.
found = phasor.diagnose(q, ports["never read the base"])
print(
    f"\nno config: {found['answer']}, layout {found['layout']}, base {found['base']:g}, "
    f"residual {found['residual']:.1e}"
)

# Two engines may agree on everything above and still differ in their tables. An audit shows by how much, and at which row.
cos, sin = phasor.cos_sin(right, 65536, angles="float32")
audit = phasor.audit(cos, sin, right)
print(
    f"audit of a float32 engine's table: angles wrong by up to {audit['max_angle_error']:.1e} radians, "
    f"by more than {audit['threshold']:g} from position {audit['first_position_past_threshold']:.0f} on"
)
