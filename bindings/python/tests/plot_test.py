"""phasor.plot: what is drawn, against formulas written out here; files and the command."""

from __future__ import annotations

import csv
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import phasor

pytest.importorskip("matplotlib")

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from phasor import plot
from phasor.plot.__main__ import main
from phasor.plot.maps import _queries_and_keys

Doubles = npt.NDArray[np.float64]

LLAMA = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}


def frequencies(dim: int, base: float = 10000.0) -> Doubles:
    """RoFormer (15)."""
    return np.asarray(base ** (-2 * np.arange(dim // 2) / dim), dtype=np.float64)


def image(axes: Axes) -> Doubles:
    return np.asarray(axes.images[0].get_array(), dtype=np.float64)


def lines(axes: Axes) -> dict[str, Doubles]:
    """label -> y of the lines that a legend names."""
    return {
        str(line.get_label()): np.asarray(line.get_ydata(), dtype=np.float64)
        for line in axes.lines
        if not str(line.get_label()).startswith("_")
    }


def has_text(figure: Figure) -> bool:
    """Every panel that is drawn has a title and both axes are named somewhere in the figure."""
    panels = [axes for axes in figure.axes if axes.axison and axes.get_subplotspec() is not None]
    return all(axes.get_title(loc="left") for axes in panels) and any(axes.get_ylabel() for axes in panels)


def test_decay_is_equation_37_for_each_spec() -> None:
    figure = plot.decay([phasor.RopeSpec(128), phasor.RopeSpec(64, base=500000.0)], distance=100)
    assert len(figure.axes) == 1 and has_text(figure)
    drawn = lines(figure.axes[0])
    assert list(drawn) == ["base 10,000, dim 128", "base 500,000, dim 64"]
    for values, theta in zip(drawn.values(), (frequencies(128), frequencies(64, 500000.0))):
        partial = np.cumsum(np.exp(1j * np.arange(101)[:, None] * theta), axis=1)
        np.testing.assert_allclose(values, np.abs(partial).mean(axis=1), rtol=1e-12)


def test_decay_of_far_distances_is_drawn_as_means() -> None:
    axes = plot.decay(phasor.RopeSpec(64), distance=4096).axes[0]
    assert axes.get_xscale() == "log"
    x, y = (np.asarray(values, dtype=np.float64) for values in axes.lines[0].get_data())
    assert x[0] == 1 and 3900 < x[-1] < 4096
    at = int(np.searchsorted(x, 1024))
    near = np.arange(round(x[at] * 2 ** (-1 / 24)), round(x[at] * 2 ** (1 / 24)))
    bound = np.abs(np.cumsum(np.exp(1j * near[:, None] * frequencies(64)), axis=1)).mean(axis=1)
    # 32 samples represent the whole band.
    assert y[at] == pytest.approx(bound.mean(), rel=0.1) and bound.std() > 0.1 * bound.mean()


def test_decay_takes_labels_and_tells_equal_specs_apart() -> None:
    spec = phasor.RopeSpec(32)
    assert list(lines(plot.decay({"mine": spec}).axes[0])) == ["mine"]
    assert len(lines(plot.decay([spec, spec]).axes[0])) == 2


def test_decay_refuses() -> None:
    wrong: tuple[tuple[list[object], str], ...] = (([], "0"), ([phasor.RopeSpec(32)] * 9, "9"), (["llama"], "str"))
    for specs, value in wrong:
        with pytest.raises(phasor.Error, match=f"decay: specs .*got {value}"):
            plot.decay(specs)  # type: ignore[arg-type]


def test_inner_products_are_those_of_rows_and_of_rotated_vectors() -> None:
    figure = plot.inner_products(phasor.RopeSpec(32, layout="interleaved"), positions=40, agreement=0.5, seed=3)
    panels = figure.axes[:3]
    assert has_text(figure)
    theta, m = frequencies(32), np.arange(40)
    apart = (m[:, None] - m)[..., None] * theta
    np.testing.assert_allclose(image(panels[0]), np.cos(apart).sum(axis=-1), atol=1e-10)
    q, k = (row[0].astype(np.float64) for row in _queries_and_keys((1, 32), 0.5, 3))
    rows = np.stack([np.sin(m[:, None] * theta), np.cos(m[:, None] * theta)], axis=-1).reshape(40, 32)
    np.testing.assert_allclose(image(panels[1]), (q + rows) @ (k + rows).T, rtol=1e-6)
    # RoFormer (12), (16): Re sum_i q_i conj(k_i) e^{i (m - n) theta_i}
    pairs = (q[0::2] + 1j * q[1::2]) * np.conj(k[0::2] + 1j * k[1::2])
    np.testing.assert_allclose(image(panels[2]), (pairs * np.exp(1j * apart)).sum(axis=-1).real, atol=1e-12)


def test_inner_products_refuses() -> None:
    with pytest.raises(phasor.Error, match="rotary_dim 16 of 32"):
        plot.inner_products(phasor.RopeSpec(32, rotary_dim=16))
    with pytest.raises(phasor.Error, match="agreement .*2"):
        plot.inner_products(agreement=2.0)


def test_wavelengths_of_every_scaling() -> None:
    figure = plot.wavelengths(LLAMA, to=16384)
    waves, stretch = figure.axes
    assert has_text(figure)
    theta = frequencies(64)
    drawn = lines(waves)
    assert list(drawn) == ["none (plain RoPE)", "linear", "NTK", "dynamic NTK", "YaRN"]
    np.testing.assert_allclose(drawn["none (plain RoPE)"], 2 * math.pi / theta, rtol=1e-12)
    np.testing.assert_allclose(drawn["linear"], 4 * 2 * math.pi / theta, rtol=1e-12)
    np.testing.assert_allclose(drawn["NTK"], 2 * math.pi / frequencies(64, 10000.0 * 4 ** (64 / 62)), rtol=1e-9)
    # base' = base (s L / max - (s - 1))^(d / (d - 2)), s = 4, L = 4 max
    np.testing.assert_allclose(
        drawn["dynamic NTK"], 2 * math.pi / frequencies(64, 10000.0 * 13 ** (64 / 62)), rtol=1e-9
    )
    levels = [line.get_ydata()[0] for line in waves.lines if len(line.get_ydata()) == 2]  # type: ignore[index,arg-type]
    assert levels == [4096, 16384]
    np.testing.assert_allclose(stretch.lines[1].get_ydata(), 4, rtol=1e-12)  # type: ignore[arg-type]


def test_wavelengths_draws_llama3_where_the_config_has_it() -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024,
    }
    assert "llama3" in lines(plot.wavelengths(LLAMA | {"rope_scaling": scaling}, to=65536).axes[0])
    assert list(lines(plot.wavelengths(LLAMA, to=16384, methods=["yarn", "none"]).axes[0])) == [
        "YaRN",
        "none (plain RoPE)",
    ]
    with pytest.raises(phasor.Error, match="wavelengths: .*magic"):
        plot.wavelengths(LLAMA, to=16384, methods=["magic"])


def test_cos_sin_tables_are_cos_and_sin() -> None:
    figure = plot.cos_sin_tables(phasor.RopeSpec(16, base=100.0), positions=20)
    assert has_text(figure)
    angles = np.arange(20) * frequencies(16, 100.0)[:, None]
    np.testing.assert_allclose(image(figure.axes[0]), np.cos(angles), atol=1e-7)
    np.testing.assert_allclose(image(figure.axes[1]), np.sin(angles), atol=1e-7)
    with pytest.raises(phasor.Error, match="positions .*got 1"):
        plot.cos_sin_tables(phasor.RopeSpec(16), positions=1)


def test_float32_error_is_the_rounding_of_the_product() -> None:
    figure = plot.float32_error(phasor.RopeSpec(64), last=1 << 14, samples=32)
    assert has_text(figure)
    drawn = lines(figure.axes[0])["base 10,000, dim 64"]
    assert len(drawn) == 14
    theta = frequencies(64)
    for power in (8, 13):
        positions = np.unique(np.linspace((1 << power) + 1, 2 << power, 32).round())
        rounded = positions.astype(np.float32)[:, None] * theta.astype(np.float32)
        worst = np.abs(rounded.astype(np.float64) - positions[:, None] * theta).max()
        assert drawn[power] == pytest.approx(worst, rel=0.02)
    with pytest.raises(phasor.Error, match="last .*got 8"):
        plot.float32_error(phasor.RopeSpec(64), last=8)


def test_attention_maps_are_softmax_rows() -> None:
    encodings = {
        "none": None,
        "alibi": phasor.Encoding("alibi", slopes=[0.5]),
        "added": "sinusoidal",
        "rope": phasor.RopeSpec(16, layout="half"),
    }
    figure = plot.attention_maps(encodings, tokens=12, head_dim=16, samples=1, likeness=0.3, seed=5)
    panels = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title(loc="left") for axes in panels] == list(encodings) and has_text(figure)
    random = np.random.default_rng(5)
    q, k = (0.3 + math.sqrt(1 - 0.09) * random.standard_normal((1, 12, 16)) for _ in range(2))
    at, theta = np.arange(12), frequencies(16)
    rows = np.stack([np.sin(at[:, None] * theta), np.cos(at[:, None] * theta)], axis=-1).reshape(12, 16)
    rotation = np.exp(1j * at[:, None] * theta)
    rotated_q, rotated_k = ((x[0, :, :8] + 1j * x[0, :, 8:]) * rotation for x in (q, k))
    scores = {
        "none": q[0] @ k[0].T / 4,
        "alibi": q[0] @ k[0].T / 4 - 0.5 * np.abs(at[:, None] - at),
        "added": (q[0] + rows) @ (k[0] + rows).T / 4,
        "rope": (rotated_q @ np.conj(rotated_k).T).real / 4,
    }
    for axes, score in zip(panels, scores.values()):
        weights = np.tril(np.exp(score))
        shown = axes.images[0].get_array()
        assert shown is not None
        assert np.ma.getmaskarray(shown)[0, 1:].all()
        np.testing.assert_allclose(np.ma.filled(shown, 0.0), weights / weights.sum(axis=1, keepdims=True), atol=2e-6)


def test_attention_maps_draws_six_and_refuses() -> None:
    figure = plot.attention_maps(tokens=8, head_dim=16, samples=2, causal=False)
    assert len([axes for axes in figure.axes if axes.images]) == 6
    for choice, words in (
        ({"likeness": 1.5}, "likeness"),
        ({"tokens": 1}, "tokens"),
        ({"encodings": {}}, "encodings .*got 0"),
        ({"encodings": {"x": "learned"}}, "learned"),
    ):
        with pytest.raises(phasor.Error, match=words):
            plot.attention_maps(**choice)


def write_csv(path: Path, columns: str, *rows: tuple[object, ...]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns.split(","))
        writer.writerows(rows)
    return path


EVAL = "model,scaling,factor,context,nats,standard_error,perplexity,last_quarter_nats"


def test_eval_table_draws_perplexity(tmp_path: Path) -> None:
    rows = [
        ("m", "yarn", 2, 1024, 3.0, 0.1, 0, 2.0),
        ("m", "none", 1, 2048, 4.0, 0.1, 0, 5.0),
        ("m", "none", 1, 1024, 3.0, 0.1, 0, 2.0),
    ]
    path = write_csv(tmp_path / "eval.csv", EVAL, *rows)
    figure = plot.eval_table(path, trained=1024)
    assert has_text(figure)
    drawn = lines(figure.axes[0])
    assert list(drawn) == ["none (plain RoPE)", "YaRN"]
    np.testing.assert_allclose(drawn["none (plain RoPE)"], np.exp([3.0, 4.0]))
    tail = lines(plot.eval_table(path, tail=True).axes[0])
    np.testing.assert_allclose(tail["none (plain RoPE)"], np.exp([2.0, 5.0]))


def test_offset_table_draws_the_change_of_perplexity(tmp_path: Path) -> None:
    columns = "model,scaling,context,nats,standard_error,last_quarter_nats,offset,angles"
    rows = [
        ("m", "none", 2048, 3.0, 0.1, 3.0, 0, "exact"),
        ("m", "none", 2048, 3.0, 0.1, 3.0, 10000, "exact"),
        ("m", "none", 2048, 3.5, 0.1, 3.0, 10000, "bfloat16"),
        ("m", "none", 8192, 2.0, 0.1, 2.0, 0, "exact"),
    ]
    path = write_csv(tmp_path / "offsets.csv", columns, *rows)
    figure = plot.offset_table(path)
    assert has_text(figure)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["context 2,048", "context 8,192"]
    drawn = lines(figure.axes[0])
    np.testing.assert_allclose(drawn["exact"], [1e-7, 1e-7])
    np.testing.assert_allclose(drawn["angles in bfloat16"], [np.exp(0.5) - 1.0])
    # The other figure of such a file names its lines apart.
    assert list(lines(plot.eval_table(path).axes[0])) == [
        "none (plain RoPE)",
        "none, bfloat16, offset 10000",
        "none, offset 10000",
    ]
    for row, words in (
        (("m", "yarn", 2048, 3.0, 0.1, 3.0, 0, "exact"), "none, yarn"),
        (("m", "none", 2048, 3.0, 0.1, 3.0, 0, "float8"), "float8"),
        (("m", "none", 4096, 3.0, 0.1, 3.0, 8, "exact"), "4096"),
    ):
        with pytest.raises(phasor.Error, match=words):
            plot.offset_table(write_csv(tmp_path / "bad.csv", columns, *rows, row))


def test_lab_table_draws_means_by_encoding(tmp_path: Path) -> None:
    rows = [("copy", "rope", seed, step, 4.0 - step / 10 + seed) for seed in (0, 1) for step in (0, 10)]
    path = write_csv(tmp_path / "lab.csv", "experiment,encoding,seed,step,loss", *rows, ("sort", "alibi", 0, 0, 2.5))
    figure = plot.lab_table(path)
    panels = [axes for axes in figure.axes if axes.lines]
    assert [axes.get_title(loc="left") for axes in panels] == ["copy", "sort"] and has_text(figure)
    np.testing.assert_allclose(lines(panels[0])["rope"], [4.5, 3.5])
    np.testing.assert_allclose(lines(panels[1])["alibi"], [2.5])
    assert panels[0].lines[0].get_color() != panels[1].lines[0].get_color()


def test_lab_contexts_draws_lengths_on_a_logarithmic_axis(tmp_path: Path) -> None:
    rows = [("longer", f"e{name}", context, 2.0 + name) for name in range(14) for context in (256, 1024)]
    path = write_csv(tmp_path / "lab.csv", "experiment,encoding,context,loss", *rows)
    figure = plot.lab_contexts(path)
    (axes,) = [axes for axes in figure.axes if axes.lines]
    assert axes.get_xscale() == "log" and list(axes.get_xticks()) == [256, 1024]
    np.testing.assert_allclose(lines(axes)["e13"], [15.0, 15.0])
    # A colour that comes back has other dashes.
    assert len({(line.get_color(), str(line._dash_pattern)) for line in axes.lines}) == 14  # type: ignore[attr-defined]
    bad = write_csv(tmp_path / "bad.csv", "experiment,encoding,context,loss", ("longer", "rope", 0, 1.0))
    with pytest.raises(phasor.Error, match="context .*0"):
        plot.lab_contexts(bad)


def test_tables_refuse_other_columns(tmp_path: Path) -> None:
    lab = "experiment,encoding,step,loss"
    cases = (
        (plot.eval_table, "model,scaling", (), "context, nats.*model, scaling"),
        (plot.eval_table, EVAL, (), "table.csv .*rows"),
        (
            plot.eval_table,
            EVAL,
            ("m", "none", 1, 8, "fast", 0, 0, 0),
            "nats of row 1 .*fast",
        ),
        (plot.lab_table, "step,loss", (), "experiment, encoding"),
        (plot.lab_table, lab + ",accuracy", (), "accuracy"),
        (plot.lab_table, lab, ("e", "rope", 1, "nan"), "loss of row 1"),
    )
    for draw, columns, row, words in cases:
        path = write_csv(tmp_path / "table.csv", columns, *((row,) if row else ()))
        with pytest.raises(phasor.Error, match=words):
            draw(path)
    with pytest.raises(phasor.Error, match="none.csv"):
        plot.lab_table(tmp_path / "none.csv")


def test_save_writes_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        plot.save(plot.decay(phasor.RopeSpec(32), distance=8), tmp_path / f"{name}.svg", tmp_path / f"{name}.PNG")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.PNG").read_bytes() == (tmp_path / "b.PNG").read_bytes()
    assert b"<svg" in (tmp_path / "a.svg").read_bytes() and (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")
    # Text stays text, so that an SVG can be searched and read aloud.
    assert b"positions</text>" in (tmp_path / "a.svg").read_bytes()


def test_save_replaces_whole_files_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = plot.decay(phasor.RopeSpec(32), distance=8)
    old = tmp_path / "old.svg"
    old.write_text("old")
    with pytest.raises(phasor.Error, match=r"new\.pdf"):
        plot.save(figure, old, tmp_path / "new.pdf")
    assert old.read_text() == "old"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(phasor.Error, match="old.svg.*No space left"):
        plot.save(figure, old)
    assert old.read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["old.svg"]


def test_figures_leave_matplotlib_as_it_was() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    plot.decay(phasor.RopeSpec(32), distance=8)
    assert dict(matplotlib.rcParams) == before


def test_command_draws_every_figure(tmp_path: Path) -> None:
    assert main(["--all", str(tmp_path / "all")]) == 0
    names = ("attention_maps", "cos_sin_tables", "decay", "float32_error", "inner_products", "wavelengths")
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == sorted(
        f"{name}.{form}" for name in names for form in ("svg", "png")
    )


def test_command_takes_configs_and_tables(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"head_dim": 32, "base": 10000, "layout": "half"}')
    out = tmp_path / "decay.svg"
    assert (
        main(
            [
                "decay",
                "--config",
                str(config),
                "--config",
                '{"head_dim": 16, "base": 7}',
                "--distance",
                "9",
                "-o",
                str(out),
            ]
        )
        == 0
    )
    assert b"base 7, dim 16" in out.read_bytes() and b"base 10,000, dim 32" in out.read_bytes()
    lab = write_csv(tmp_path / "lab.csv", "experiment,encoding,step,loss", ("copy", "rope", 0, 1.0))
    assert main(["lab_table", str(lab), "--title", "Mine", "-o", str(tmp_path / "lab.svg")]) == 0
    assert b"Mine" in (tmp_path / "lab.svg").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "FIGURE or --all"),
        (["decay"], "-o/--output"),
        (["pie", "-o", "x.svg"], "'pie'"),
        (["decay", "-o", "x.pdf"], "x.pdf"),
        (["decay", "--config", "nowhere.json", "-o", "x.svg"], "nowhere.json"),
        (["decay", "--config", "{broken", "-o", "x.svg"], "--config"),
        (["decay", "--config", '{"head_dim": 7}', "-o", "x.svg"], "got 7"),
        (["cos_sin_tables", "--config", "{}", "--config", "{}", "-o", "x.svg"], "cos_sin_tables takes one --config, got 2"),
        (["eval_table", "nowhere.csv", "-o", "x.svg"], "nowhere.csv"),
        (["decay", "-o", "nowhere/x.svg"], "nowhere/x.svg"),
    ],
)
def test_command_refuses_in_one_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(arguments)
    except SystemExit as leaving:
        code = int(str(leaving.code))
    said = capsys.readouterr()
    assert code == 2 and said.out == "" and said.err.count("\n") == 1 and words in said.err
    assert list(tmp_path.iterdir()) == []


def without(module: str, program: str) -> subprocess.CompletedProcess[str]:
    """A program in a Python that lacks a module."""
    hide = f"import sys; sys.modules[{module!r}] = None\n"
    return subprocess.run([sys.executable, "-c", hide + program], capture_output=True, text=True, check=False)


def test_missing_matplotlib_is_said_in_one_line() -> None:
    run = without(
        "matplotlib",
        "import runpy; sys.argv[1:] = ['decay', '-o', 'x.svg']; runpy.run_module('phasor.plot', run_name='__main__')",
    )
    assert (
        run.returncode == 2 and run.stderr.count("\n") == 1 and "pip install matplotlib" in run.stderr
    )
    run = without(
        "matplotlib.pyplot",
        "import phasor; from phasor import plot; plot.decay(phasor.RopeSpec(8), distance=4); print('drawn')",
    )
    assert run.stdout == "drawn\n", run.stderr


def test_missing_onnx_is_said() -> None:
    run = without("onnx", "import phasor.onnx")
    assert run.returncode == 1
    assert "pip install onnx" in run.stderr.splitlines()[-1]
