"""Files that readers give to the page: configs, tensors, and files that are not what they should be."""

import json

import numpy as np
import pytest

LLAMA = {
    "model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2,
    "max_position_embeddings": 2048, "rope_theta": 50000.0,
}  # fmt: skip


def give(explorer, place, name, content):
    content = content if isinstance(content, bytes) else content.encode()
    explorer.at(place).set_input_files({"name": name, "mimeType": "application/octet-stream", "buffer": content})
    explorer.page.wait_for_timeout(50)
    explorer.settle()


def drop(explorer, target, *files):
    """Drops files onto an element as a reader's mouse does."""
    data = explorer.page.evaluate_handle(
        """files => {
             const data = new DataTransfer();
             for (const [name, bytes] of files) data.items.add(new File([new Uint8Array(bytes)], name));
             return data;
           }""",
        [[name, list(content)] for name, content in files],
    )
    explorer.page.dispatch_event(target, "drop", {"dataTransfer": data})
    explorer.page.wait_for_timeout(50)
    explorer.settle()


def test_config_dropped_onto_the_page(explorer, command):
    explorer.open("scalings")
    before = explorer.read("explain")
    text = json.dumps(LLAMA)
    drop(explorer, "main", ("config.json", text.encode()))
    assert explorer.message() == ""
    assert explorer.read("explain") != before
    frequencies = command.json("freqs", "--config", text)["frequencies"]
    np.testing.assert_allclose(explorer.numbers("scalings")["none_frequency"], frequencies, rtol=1e-12)


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("{not json", "config.json"),
        (json.dumps({**LLAMA, "rope_scaling": {"type": "yarm", "factor": 2}}), "yarm"),
        (json.dumps({"head_dim": 7, "layout": "half"}), "7"),
    ],
)
def test_bad_config_is_refused_in_one_line(explorer, content, shown):
    explorer.open("scalings")
    give(explorer, "config-file", "config.json", content)
    assert shown in explorer.message()
    assert "\n" not in explorer.message()
    give(explorer, "config-file", "config.json", json.dumps(LLAMA))
    assert explorer.message() == ""


@pytest.fixture(scope="module")
def tensors(command):
    """Paths: a tensor, rotated in both layouts, and positions."""
    x = np.random.default_rng(5).standard_normal((24, 2, 32)).astype(np.float32)
    paths = {"before": command.save(x), "positions": command.save(np.arange(24))}
    for layout in ("half", "interleaved"):
        paths[layout] = command.save(command.array("rotate", "--head-dim", 32, "--layout", layout, "-i", paths["before"]))
    return paths


def begin(explorer):
    """The view without the files of an earlier test, which the page keeps."""
    explorer.visit("diagnose")
    explorer.at("clear").click()
    explorer.settle()
    assert explorer.message() == ""


SPEC = '{"head_dim": 32, "base": 10000, "layout": "half"}'


@pytest.mark.parametrize(("layout", "verdict", "code"), [("half", "agrees", 0), ("interleaved", "differs", 1)])
def test_diagnose(explorer, command, tensors, layout, verdict, code):
    begin(explorer)
    give(explorer, "file-before", "before.npy", tensors["before"].read_bytes())
    assert explorer.at("report").is_hidden()
    give(explorer, "file-after", "after.npy", tensors[layout].read_bytes())
    arguments = ("diagnose", tensors["before"], tensors[layout])
    assert explorer.at("verdict").get_attribute("data-verdict") == "rope"
    assert explorer.read("report").split() == command.run(*arguments).split()
    give(explorer, "file-config", "config.json", SPEC)
    assert explorer.at("verdict").get_attribute("data-verdict") == verdict
    assert explorer.read("report").split() == command.run(*arguments, "--config", SPEC, code=code).split()
    assert explorer.read("layout") == layout
    give(explorer, "file-positions", "positions.npy", tensors["positions"].read_bytes())
    arguments = (*arguments, "--positions", tensors["positions"], "--config", SPEC)
    assert explorer.read("report").split() == command.run(*arguments, code=code).split()
    measured = explorer.numbers("frequencies")
    expected = command.json(*arguments, code=code)
    np.testing.assert_allclose(measured["measured"], expected["measured_frequencies"], rtol=1e-9)
    np.testing.assert_allclose(measured["formula"], expected["frequencies"], rtol=1e-12)


def test_tensors_dropped_together(explorer, tensors):
    begin(explorer)
    drop(
        explorer, "main", ("q_after.npy", tensors["interleaved"].read_bytes()), ("config.json", SPEC.encode()),
        ("q_before.npy", tensors["before"].read_bytes()),
    )  # fmt: skip
    assert explorer.at("verdict").get_attribute("data-verdict") == "differs"


def test_bad_tensor_is_refused_in_one_line(explorer, tensors):
    begin(explorer)
    give(explorer, "file-before", "notes.npy", b"these are notes")
    give(explorer, "file-after", "after.npy", tensors["half"].read_bytes())
    assert "before" in explorer.message()
    assert "\n" not in explorer.message()
    give(explorer, "file-before", "before.npy", tensors["before"].read_bytes())
    assert explorer.message() == ""
    other = np.zeros((3, 2, 32), np.float32)
    explorer.at("clear").click()
    assert explorer.message() == ""
    path = tensors["before"].with_name("other.npy")
    np.save(path, other)
    give(explorer, "file-before", "other.npy", path.read_bytes())
    give(explorer, "file-after", "after.npy", tensors["half"].read_bytes())
    assert "3, 2, 32" in explorer.message() and "24, 2, 32" in explorer.message()


@pytest.mark.parametrize(
    ("example", "verdict", "field"),
    [
        ("correct", "agrees", None), ("layout", "differs", "layout"), ("base", "differs", "base"),
        ("offset", "differs", "positions"), ("direction", "differs", "direction"),
    ],
)  # fmt: skip
def test_examples_are_diagnosed(explorer, example, verdict, field):
    begin(explorer)
    explorer.set("example", example)
    assert explorer.message() == ""
    assert explorer.at("verdict").get_attribute("data-verdict") == verdict
    if field:
        assert field in explorer.read("report")
