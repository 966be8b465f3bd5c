"""Moving a control changes the right numbers: each view's numbers are those of the native command."""

import numpy as np
import pytest

# Digits that the page's float32 and float64 numbers share with the command's; libraries of C++ differ in the last ones.
SINGLE = {"rtol": 0, "atol": 2e-7}
DOUBLE = {"rtol": 1e-12, "atol": 1e-12}


def close(ours, theirs, **tolerance):
    np.testing.assert_allclose(np.asarray(ours, float), np.asarray(theirs, float), **(tolerance or DOUBLE))


def rotated(command, vectors, *flags):
    """Vectors [tokens, features] rotated by the command."""
    vectors = np.asarray(vectors, np.float64)
    flags = ("--head-dim", vectors.shape[1], *flags)
    return command.array("rotate", "-i", command.save(vectors[:, None, :]), *flags)[:, 0, :]


def test_clocks(explorer, command):
    q, k = [1, 0, 0.5, -0.25, 0.75, 2, -1, 0.125], [0.5, 1, -0.5, 0.75, 1, 1, 0.25, -2]
    lists = {name: ",".join(map(str, values)) for name, values in (("q", q), ("k", k))}
    explorer.open("clocks", vectors="own", position=5, distance=3, **lists)

    def compare(position, distance):
        query, key = (
            rotated(command, [vector], "--layout", "interleaved", "--offset", place)[0]
            for vector, place in ((q, position + distance), (k, position))
        )
        shown = explorer.numbers("clocks")
        close(shown["query_a"], query[0::2])
        close(shown["query_b"], query[1::2])
        close(shown["key_a"], key[0::2])
        close(shown["key_b"], key[1::2])
        close(shown["pair_score"], query[0::2] * key[0::2] + query[1::2] * key[1::2])
        close(explorer.number("score"), query @ key)
        return explorer.number("score")

    before = compare(5, 3)
    explorer.move("position", "ArrowRight", 4)
    assert compare(9, 3) == pytest.approx(before, abs=1e-12)
    explorer.move("distance", "ArrowRight", 2)
    assert compare(9, 5) != pytest.approx(before, abs=1e-3)
    explorer.set("position", 1000)
    compare(1000, 5)
    curve = explorer.numbers("curve")
    close(curve["score"][[3, 5]], [before, explorer.number("score")])


def test_table(explorer, command):
    explorer.open("table", family="", head_dim=64, base=10000)
    explorer.set("first", 1000)
    explorer.set("count", 32)
    explorer.move("base", "ArrowRight", 3)
    assert explorer.control("base").input_value() == "500000"
    spec = ("--head-dim", 64, "--base", 500000)
    cos, sin = command.array("table", *spec, "--positions", "1000:1032")
    for name, expected in (("cos", cos), ("sin", sin)):
        shown = explorer.numbers(name)
        close(shown.pop("position"), np.arange(1000, 1032))
        close(np.stack(list(shown.values()), axis=1), expected, **SINGLE)
    shown, expected = explorer.numbers("wavelengths"), command.json("freqs", *spec)
    close(shown["frequency"], expected["frequencies"])
    close(shown["wavelength"][[0, -1]], [expected["shortest_wavelength"], expected["longest_wavelength"]])
    close(explorer.number("longest"), expected["longest_wavelength"])


def test_decay(explorer, command):
    explorer.open("decay", head_dim=32, base=10000, tokens=16)
    explorer.set("longest", 64)
    explorer.set("base", 1000)
    # (35) for q = k = 1: the rotated ones times ones.
    scores = rotated(command, np.ones((65, 32)), "--layout", "half", "--base", 1000).sum(axis=1)
    shown = explorer.numbers("curve")
    close(shown["distance"], np.arange(65))
    close(shown["value_1"], scores, rtol=1e-9, atol=1e-9)
    assert np.all(np.abs(shown["value_1"]) <= shown["bound_1"] + 1e-9)
    close(explorer.number("score-at-longest"), scores[-1], rtol=1e-9, atol=1e-9)
    picture = explorer.numbers("rope")
    for query in range(16):
        close([picture[f"key_{key}"][query] for key in range(16)], scores[np.abs(query - np.arange(16))], rtol=1e-9, atol=1e-9)


CONFIG = """{"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2,
 "max_position_embeddings": 2048, "rope_theta": 10000.0}"""


def test_scalings(explorer, command):
    explorer.open("scalings", config=CONFIG, context=8192, factor=2)
    explorer.set("factor", 4)
    shown = explorer.numbers("scalings")
    plain = command.json("freqs", "--config", CONFIG)["frequencies"]
    close(shown["none_frequency"], plain)
    for method in ("linear", "dynamic", "yarn"):
        length = ",original_max_position_embeddings=2048" if method == "yarn" else ""
        flags = ("--scaling", f"{method}:factor=4{length}", "--context", 8192)
        expected = command.json("freqs", "--config", CONFIG, *flags)
        close(shown[f"{method}_frequency"], expected["frequencies"])
        close(shown[f"{method}_ratio"], np.divide(expected["frequencies"], plain))
    assert explorer.read("explain").split() == command.run("explain", CONFIG, "--context", 8192).split()


def test_layouts(explorer, command):
    explorer.open("layouts", token=1, position=1)
    # Published with four decimals: the key 8, ..., 15 at position 1.
    published = [-3.2508, 11.5945, 8.8519, 11.9434, 11.8694, 13.1193, 13.9850, 15.0140]
    assert explorer.table("layouts-table")[1][1:] == [f"{value:.4f}".replace("-", "\u2212") for value in published]
    explorer.set("token", 3)
    explorer.set("position", 7)
    x = np.arange(24, 32, dtype=float)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    place = ("--offset", 7)
    expected = {
        "x": x,
        "interleaved": rotated(command, [x], "--layout", "interleaved", *place)[0],
        "half": rotated(command, [x], "--layout", "half", *place)[0],
        "permuted": x[order],
        "permuted_half": rotated(command, [x[order]], "--layout", "half", *place)[0],
    }
    expected["interleaved_permuted"] = expected["interleaved"][order]
    shown = explorer.csv("layouts")
    for row, name in enumerate(shown.pop("row")):
        close([column[row] for column in shown.values()], expected[name])
    close(expected["permuted_half"], expected["interleaved_permuted"])
    for step in range(2, 6):
        explorer.at("next").click()
        explorer.settle()
        assert explorer.read("step-text").startswith(f"{step}.")


def test_accuracy(explorer, command):
    explorer.open("accuracy", head_dim=32)
    explorer.set("position", 123456)
    shown = explorer.numbers("errors")
    ones = np.tile([1.0, 0.0], 16)
    exact = rotated(command, [ones], "--layout", "interleaved", "--offset", 123456)[0]
    cos, sin = exact[0::2], exact[1::2]
    close(shown["exact_angle"], np.arctan2(sin, cos), rtol=0, atol=1e-9)
    assert "123456" in explorer.read("accuracy-notes")  # float16 has no angle this large
    for kind, row in zip(("float32", "bfloat16_frequencies", "bfloat16"), explorer.table("accuracy-table"), strict=True):
        flags = ("--head-dim", 32, "--angles", kind, "--positions", "123456:123457")
        (rounded_cos,), (rounded_sin,) = command.array("table", *flags).astype(float)
        error = np.arctan2(rounded_sin * cos - rounded_cos * sin, rounded_cos * cos + rounded_sin * sin)
        close(shown[f"{kind}_error"], error, **SINGLE)
        close(shown[f"{kind}_cos_error"], rounded_cos - cos, **SINGLE)
        close(shown[f"{kind}_sin_error"], rounded_sin - sin, **SINGLE)
        assert float(row[1]) == pytest.approx(np.abs(error).max(), rel=1e-3)
        assert int(row[2]) == np.abs(shown[f"{kind}_error"]).argmax()
    # The errors of the first pair grow with the position.
    far = shown["float32_error"]
    explorer.set("position", 100)
    assert np.abs(explorer.numbers("errors")["float32_error"]).max() < np.abs(far).max() / 100


def test_attention(explorer, command):
    explorer.open("attention", tokens=12, head_dim=8, seed=3)
    explorer.set("tokens", 10)
    encodings = ["none", "shaw", "t5", "transformer_xl", "deberta", "tupe", "alibi", "rope", "xpos"]
    explorer.set("query", 9)
    shown = explorer.numbers("row")
    request = {"tokens": 10, "head_dim": 8, "seed": 3, "causal": True, "encodings": encodings}
    asked = explorer.page.evaluate(
        """request => {
             const {q, k, maps} = phasor.call("attention_maps", request);
             return {q: [...q], k: [...k], encodings: maps.map(({json}) => json)};
           }""",
        request,
    )
    q, k = (command.save(np.array(asked[name], np.float32).reshape(10, 1, 8)) for name in "qk")
    v = command.save(np.zeros((10, 1, 1), np.float32))
    maps = {}
    for name, encoding in zip(encodings, asked["encodings"], strict=True):
        path = command.folder / f"{name}.npy"
        command.array("attend", "--encoding", encoding, "-q", q, "-k", k, "-v", v, "--causal", "--probabilities", path)
        maps[name] = np.load(path).reshape(10, 10)
        close(shown[name], maps[name][9], rtol=0, atol=1e-6)
    for name in ("alibi", "tupe"):
        explorer.at(f"tile-{name}").click()
        explorer.settle()
        assert explorer.control("second").input_value() == name
        second, difference = explorer.numbers("second"), explorer.numbers("difference")
        for key in range(10):
            close(second[f"key_{key}"], maps[name][:, key], rtol=0, atol=1e-6)
            close(difference[f"key_{key}"], (maps[name] - maps["none"])[:, key], rtol=0, atol=1e-6)
        assert explorer.number("largest-difference") == pytest.approx(np.abs(maps[name] - maps["none"]).max(), abs=1e-6)
