"""Model: logits and answers of the golden checkpoints, iterators, chat, fill, and errors."""

from __future__ import annotations

import gc
import json
import os
import pathlib
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import phasor
from golden_cases import GOLDEN

DECODERS = ["llama_gqa_llama3", "gpt_neox_partial", "gemma3_local_global", "phi3_longrope_partial"]
SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"


def case(name: str, group: str = "models") -> tuple[dict[str, Any], Callable[[str], Any]]:
    folder = GOLDEN / group / name
    return json.loads((folder / "case.json").read_text()), lambda array: np.load(folder / f"{array}.npy")


def golden_model(name: str) -> phasor.Model:
    return phasor.Model.load(GOLDEN / "models" / name / "model")


def assert_close(name: str, output: str, got: Any) -> None:
    about, array = case(name)
    bounds = about["outputs"][output]
    np.testing.assert_allclose(got, array(output), rtol=bounds["rtol"], atol=bounds["atol"])


def byte_names() -> dict[int, str]:
    """Byte-level BPE writes every byte as a printable character."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {byte: chr(byte) for byte in plain}
    others = [byte for byte in range(256) if byte not in names]
    return names | {byte: chr(256 + i) for i, byte in enumerate(others)}


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> phasor.Model:
    """The golden llama with a tokenizer: special tokens, bytes of two characters, then letters."""
    folder = tmp_path_factory.mktemp("talking")
    for file in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / "models" / "llama_gqa_llama3" / "model" / file, folder)
    specials = ["<s>", "<|im_start|>", "<|im_end|>"]
    first = list("é中".encode()) + list(b" \n.,!?'<>|_:")
    first += [byte for byte in range(256) if chr(byte).isascii() and chr(byte).isalpha()]
    names = byte_names()
    order = first + [byte for byte in range(256) if byte not in first]
    vocabulary = {token: i for i, token in enumerate(specials + [names[byte] for byte in order])}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    text = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": token, "special": True} for i, token in enumerate(specials)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(text))
    settings = {
        "bos_token": "<s>",
        "eos_token": "<|im_end|>",
        "add_bos_token": True,
        "chat_template": "{% for m in messages %}"
        "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return phasor.Model.load(str(folder))


@pytest.mark.parametrize("name", DECODERS)
def test_logits_and_greedy_tokens_are_those_of_the_reference(name: str) -> None:
    _, array = case(name)
    model = golden_model(name)
    assert model.kind == "decoder"
    ids = array("input_ids")
    logits = model.logits(ids[0])
    assert logits.dtype == np.float32
    assert_close(name, "logits", logits)
    assert model.logits(ids).shape == (1, *logits.shape)
    assert list(model.generate_ids(list(map(int, ids[0])), tokens=16)) == array("generated")[0].tolist()

    mask = array("padded_attention_mask")
    padded = model.logits(array("padded_input_ids"), mask=mask)
    about = case(name)[0]["outputs"]["padded_logits"]
    kept = mask == 1
    np.testing.assert_allclose(padded[kept], array("padded_logits")[kept], rtol=about["rtol"], atol=about["atol"])
    assert not padded[~kept].any()


def test_threads_and_precision_are_taken() -> None:
    path = GOLDEN / "models" / "llama_gqa_llama3" / "model"
    ids = case("llama_gqa_llama3")[1]("input_ids")[0]
    exact = phasor.Model.load(path, threads=1).logits(ids)
    np.testing.assert_allclose(phasor.Model.load(path, precision="fast").logits(ids), exact, rtol=0, atol=0.2)
    # 64-bit ids, 32-bit ids, a strided view and a list are one row.
    model = phasor.Model.load(path)
    row = np.repeat(ids, 2)[::2]
    for same in (ids.astype(np.int32), row, ids.tolist()):
        np.testing.assert_array_equal(model.logits(same), model.logits(ids))


def test_facts() -> None:
    facts = golden_model("llama_gqa_llama3").facts
    assert facts["model_type"] == "llama"
    assert (facts["layers"], facts["heads"], facts["key_heads"], facts["vocabulary"]) == (3, 4, 2, 97)
    assert facts["trained_length"] == 256
    assert facts["tokenizer"] is None
    roformer = golden_model("roformer_classification")
    assert roformer.kind == "roformer"
    assert roformer.facts["head"] == "classification"
    assert "3 layers" in repr(golden_model("llama_gqa_llama3"))


def test_roformer_logits() -> None:
    model = golden_model("roformer_mlm")
    _, array = case("roformer_mlm")
    assert_close("roformer_mlm", "logits", model.logits(array("input_ids")[0]))
    mask = array("padded_attention_mask")
    padded = model.logits(array("padded_input_ids"), mask=mask)
    assert_close("roformer_mlm", "padded_logits", np.where(mask[..., None] == 1, padded, array("padded_logits")))
    assert not padded[mask == 0].any()

    _, array = case("roformer_classification")
    labels = golden_model("roformer_classification").logits(
        array("input_ids"), mask=array("attention_mask"), token_types=array("token_type_ids")
    )
    assert_close("roformer_classification", "logits", labels)
    for name, head, causal in [
        ("roformer_causal_lm", "causal_lm", True),
        ("roformer_token_classification", "token_classification", False),
        ("roformer_question_answering", "question_answering", False),
    ]:
        model, (_, array) = golden_model(name), case(name)
        assert (model.facts["head"], model.facts["causal"]) == (head, causal)
        assert_close(name, "logits", model.logits(array("input_ids")[0]))
        mask = array("padded_attention_mask")
        assert_close(name, "padded_logits", model.logits(array("padded_input_ids"), mask=mask))
    assert golden_model("roformer_question_answering").facts["labels"] == ["start", "end"]


def test_fill(tmp_path: pathlib.Path) -> None:
    for file in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / "models" / "roformer_mlm" / "model" / file, tmp_path)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "capital", "of", "france", "is", "paris", ".", "##s"]
    words += ["今天", "非常", "。"]
    words += [f"w{i}" for i in range(97 - len(words))]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    model = phasor.Model.load(tmp_path)
    (filling,) = model.fill("The capital of France is [MASK].", count=3)
    assert filling["slot"] == 6
    # RoFormerForMaskedLM of transformers 5.22.2 in float64, for these ids.
    assert [choice["token"] for choice in filling["choices"][:2]] == ["w32", "[UNK]"]
    assert filling["choices"][0]["id"] == 48
    assert filling["choices"][0]["probability"] == pytest.approx(0.9999789309588341, rel=1e-5)
    assert filling["choices"][0]["logit"] == pytest.approx(29.1340106009053, rel=1e-5)
    assert len(filling["choices"]) == 3
    assert len(model.fill("[MASK] of [MASK]")) == 2
    for text, count, message in (("no mask", 5, r"\[MASK\]"), ("[MASK]", 0, "count .*0")):
        with pytest.raises(phasor.Error, match=message):
            model.fill(text, count=count)
    with pytest.raises(phasor.Error, match="Model.generate: .*roformer"):
        model.generate("the")


def test_text_pieces_are_the_decoded_ids(talking: phasor.Model) -> None:
    for seed in range(3):
        options: dict[str, Any] = {"tokens": 40, "temperature": 1.0, "seed": seed, "stops": []}
        ids = list(talking.generate_ids("The fox", **options))
        pieces = list(talking.generate("The fox", **options))
        assert len(ids) == 40
        assert "".join(pieces) == talking.decode(ids)
        assert all(pieces)
    assert talking.encode("The fox") + [1] == talking.encode("The fox<|im_start|>")
    assert 1 not in talking.encode("<|im_start|>", special="as_text")
    assert talking.decode([]) == ""
    assert talking.decode(talking.encode("An é and 中, by bytes")) == "An é and 中, by bytes"


def test_prompts_get_the_begin_token(talking: phasor.Model) -> None:
    ids = talking.encode("fox")
    with_begin = list(talking.generate_ids([0, *ids], tokens=12))
    assert list(talking.generate_ids("fox", tokens=12)) == with_begin
    assert list(talking.generate_ids("<s>fox", tokens=12)) == with_begin
    assert list(talking.generate_ids(ids, tokens=12)) != with_begin


def test_the_same_seed_gives_the_same_answer(talking: phasor.Model) -> None:
    greedy = "".join(talking.generate("one two", tokens=24))
    assert "".join(talking.generate("one two", tokens=24)) == greedy
    drawn = [list(talking.generate_ids("one", tokens=16, temperature=1.2, top_k=40, seed=s)) for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_stop_tokens_end_the_answer() -> None:
    _, array = case("llama_gqa_llama3")
    model, ids = golden_model("llama_gqa_llama3"), array("input_ids")[0].tolist()
    expected = array("generated")[0].tolist()
    stop = expected[6]
    assert list(model.generate_ids(ids, tokens=16, stops=[stop])) == expected[: expected.index(stop)]
    assert list(model.generate_ids(ids, tokens=0)) == []
    shifted = list(model.generate_ids(ids, tokens=80, context=16, when_full="shift"))
    assert len(shifted) == 80
    assert shifted[:2] == expected[:2]


def test_answers_are_computed_as_they_are_asked_for() -> None:
    model = golden_model("llama_gqa_llama3")
    answer = model.generate_ids([1, 2, 3], tokens=20)
    assert iter(answer) is answer
    first = [next(answer) for _ in range(3)]
    # Another answer of the same model between two steps changes nothing, nor does a call of logits.
    other = model.generate_ids([9, 8], tokens=20)
    mixed: list[int] = []
    for _ in range(5):
        mixed.append(next(other))
        model.logits([4, 5, 6])
        first.append(next(answer))
    assert first == list(model.generate_ids([1, 2, 3], tokens=20))[:8]
    assert mixed == list(model.generate_ids([9, 8], tokens=20))[:5]
    # An answer keeps its model alive; one that is dropped half-way is gone.
    del model
    gc.collect()
    assert len(list(answer)) == 12
    with pytest.raises(StopIteration):
        next(answer)
    del other


def test_threads_share_one_model() -> None:
    model = golden_model("llama_gqa_llama3")
    expected = list(model.generate_ids([5, 6, 7], tokens=30))
    answers: list[list[int]] = [[] for _ in range(4)]
    shared: Iterator[int] = model.generate_ids([5, 6, 7], tokens=30)
    from_shared: list[int] = []

    def work(index: int) -> None:
        answers[index].extend(model.generate_ids([5, 6, 7], tokens=30))
        from_shared.extend(shared)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 4
    assert sorted(from_shared) == sorted(expected)


def test_chat_writes_the_template_of_the_model(talking: phasor.Model) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = talking.chat(messages)
    assert text == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert "[INST]" in talking.chat(messages[1:], format="mistral")
    assert isinstance("".join(talking.generate(text, tokens=4)), str)
    for wrong, words in (
        ([], "message"),
        ([{"role": "user"}], "{'role': 'user'}"),
        ([{"role": "robot", "content": "x"}], "robot"),
        (["Hi"], "'Hi'"),
    ):
        with pytest.raises(phasor.Error) as refusal:
            talking.chat(wrong)  # type: ignore[arg-type]
        assert words in str(refusal.value)
    with pytest.raises(phasor.Error, match="nobody"):
        talking.chat(messages, format="nobody")


@pytest.mark.parametrize(
    ("call", "values"),
    [
        (lambda m: m.encode("x"), ("Model.encode: ", "tokenizer")),
        (lambda m: m.decode([1]), ("Model.decode: ", "tokenizer")),
        (lambda m: m.generate("x"), ("Model.generate: ", "tokenizer")),
        (lambda m: m.generate([1]), ("Model.generate: ", "tokenizer")),
        (lambda m: m.generate_ids("x"), ("Model.generate: ", "tokenizer")),
        (lambda m: m.chat([{"role": "user", "content": "x"}]), ("Model.chat: ", "tokenizer")),
        (lambda m: m.fill("[MASK]"), ("Model.fill: ", "llama")),
        (lambda m: m.logits([]), ("ids", "[0]")),
        (lambda m: m.logits(np.zeros(0, np.int64)), ("ids", "[0]")),
        (lambda m: m.logits([[[1]]]), ("Model.logits: ids", "[1, 1, 1]")),
        (lambda m: m.logits([1.5]), ("ids", "float64")),
        (lambda m: m.logits([1, 97]), ("97",)),
        (lambda m: m.logits([1, 2], mask=[1]), ("Model.logits: mask", "[2]", "[1]")),
        (lambda m: m.logits([[1, 2]], mask=[[0, 0]]), ("row 0",)),
        (lambda m: m.logits([1, 2], token_types=[0, 0]), ("token_types", "llama")),
        (lambda m: m.generate_ids(np.zeros(0, np.int64)), ("prompt",)),
        (lambda m: m.generate_ids([[1]]), ("prompt", "[1, 1]")),
        (lambda m: m.generate_ids([97]), ("96", "97")),
        (lambda m: m.generate_ids([1], tokens=-1), ("tokens", "-1")),
        (lambda m: m.generate_ids([1], tokens=300), ("300", "256")),
        (lambda m: m.generate_ids([1], temperature=-1.0), ("temperature",)),
        (lambda m: m.generate_ids([1], top_k=3), ("top_k", "temperature")),
        (lambda m: m.generate_ids([1], temperature=1.0, top_p=0.0), ("top_p",)),
        (lambda m: m.generate_ids([1], when_full="grow"), ("when_full", "grow")),
    ],
)
def test_refuses_before_anything_runs(call: Callable[[phasor.Model], object], values: tuple[str, ...]) -> None:
    with pytest.raises(phasor.Error) as refusal:
        call(golden_model("llama_gqa_llama3"))
    assert all(value in str(refusal.value) for value in values), refusal.value
    assert "\n" not in str(refusal.value)


def test_load_refuses(tmp_path: pathlib.Path) -> None:
    good = GOLDEN / "models" / "llama_gqa_llama3" / "model"
    with pytest.raises(phasor.Error, match="absent"):
        phasor.Model.load(tmp_path / "absent")
    with pytest.raises(phasor.Error, match="precision .*half"):
        phasor.Model.load(good, precision="half")  # type: ignore[arg-type]
    with pytest.raises(phasor.Error, match="threads .*-1"):
        phasor.Model.load(good, threads=-1)
    with pytest.raises(phasor.Error, match="Model.logits: .*head"):
        golden_model("roformer_base").logits([1, 2])


def changed_model(folder: pathlib.Path, name: str, tensor: str, value: float) -> pathlib.Path:
    """A copy of a golden model with the value in every element of a float32 tensor."""
    shutil.copytree(GOLDEN / "models" / name / "model", folder)
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8:start])[tensor]["data_offsets"]
    data[start + begin : start + end] = np.full((end - begin) // 4, value, "<f4").tobytes()
    file.write_bytes(data)
    return folder


def test_weights_and_results_must_be_finite(tmp_path: pathlib.Path) -> None:
    tensor = "model.layers.1.mlp.down_proj.weight"
    with pytest.raises(phasor.Error, match=f"{tensor}.*nan"):
        phasor.Model.load(changed_model(tmp_path / "nan", "llama_gqa_llama3", tensor, np.nan))
    model = phasor.Model.load(changed_model(tmp_path / "large", "llama_gqa_llama3", tensor, 3e38))
    for call in (
        lambda: model.logits([1, 2, 3]),
        lambda: list(model.generate_ids([1, 2, 3], tokens=4)),
    ):
        with pytest.raises(phasor.Error, match="layer 1 of 3"):
            call()
    encoder = "roformer.encoder.layer.2.output.dense.weight"
    wide = phasor.Model.load(changed_model(tmp_path / "wide", "roformer_mlm", encoder, 3e38))
    with pytest.raises(phasor.Error, match="layer 2 of 3"):
        wide.logits([1, 2, 3])


def real_model() -> pathlib.Path:
    folder = os.environ.get("PHASOR_MODELS")
    if not folder or not (pathlib.Path(folder) / SMOLLM2).is_file():
        pytest.skip(f"PHASOR_MODELS names no folder with {SMOLLM2}")
    return pathlib.Path(folder) / SMOLLM2


def test_a_real_model_speaks() -> None:
    about, array = case("smollm2_short", "real_models")
    model = phasor.Model.load(real_model())
    ids = array("input_ids")[0]
    assert model.encode(about["text"]) == ids.tolist()
    bounds = about["outputs"]["last_logits"]
    np.testing.assert_allclose(
        model.logits(ids)[-1], array("last_logits").ravel(), rtol=bounds["rtol"], atol=bounds["atol"]
    )
    expected = array("generated").ravel().tolist()
    assert list(model.generate_ids(ids.tolist(), tokens=len(expected), stops=[])) == expected
    assert "".join(model.generate(ids.tolist(), tokens=len(expected), stops=[])) == model.decode(expected)
    prompt = model.chat([{"role": "user", "content": "Say hello."}])
    assert "You are a helpful AI assistant" in prompt
    assert len("".join(model.generate(prompt, tokens=8))) > 0
