#!/usr/bin/env python3
"""Writes the seed corpora of npy, config, safetensors, tokenizer, archive and pickle, and the dictionaries, from the golden data and by hand.

Run it after the readers learn a key, a type or a family: python3 fuzz/make_seeds.py
The seeds of gguf are kept as they are.
"""

import json
import pathlib
import re
import struct
import zipfile

FUZZ = pathlib.Path(__file__).resolve().parent
ROOT = FUZZ.parent
GOLDEN = ROOT / "golden"

SCALINGS = [
    {"type": "default"},
    {"type": "linear", "factor": 4.0},
    {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 2048},
    {"type": "ntk", "factor": 4.0},
    {"type": "ntk_by_parts", "factor": 4.0, "original_max_position_embeddings": 2048},
    {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
     "mscale": 1.0, "mscale_all_dim": 0.5, "attention_factor": 1.2, "truncate": False,
     "extrapolation_factor": 0.5},
    {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 8192},
    {"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0],
     "original_max_position_embeddings": 4096, "factor": 32.0},
    {"type": "proportional", "factor": 2.0},
]

ENCODINGS = [
    {"encoding": "none", "scale": 0.25},
    {"encoding": "rope", "head_dim": 4, "base": 500, "layout": "half"},
    {"encoding": "rope", "layout": "half", "config": {"head_dim": 4, "base": 500}},
    {"encoding": "xpos", "head_dim": 4, "layout": "interleaved", "scale_base": 256, "gamma": 0.4,
     "centre": "middle_ceil"},
    {"encoding": "alibi", "max_bias": 4, "order": "mpt"},
    {"encoding": "alibi", "slopes": [1, 0.5]},
    {"encoding": "t5", "relative_attention_bias": [[1, 2], [3, 4]], "num_buckets": 2, "max_distance": 8,
     "bidirectional": False},
    {"encoding": "shaw", "left": 0, "right": 1, "rel_k": [[1, 2, 3, 4], [5, 6, 7, 8]],
     "rel_v": [[1, 2, 3, 4], [5, 6, 7, 8]]},
    {"encoding": "shaw", "clip": 1, "rel_k": {"sinusoidal": {"variant": "concat", "dim": 4, "base": 100}}},
    {"encoding": "bert_relative", "distance_embedding": [[1, 2, 3, 4]] * 5, "max_position_embeddings": 3,
     "position_embedding_type": "relative_key_query"},
    {"encoding": "transformer_xl", "u_bias": [[1, 2, 3, 4]] * 2, "v_bias": [[1, 2, 3, 4]] * 2,
     "r_head": [[[1, 2, 3, 4]] * 2] * 3, "first_distance": 2},
    {"encoding": "conformer_relative", "pos_proj": [[1, 2, 3, 4]] * 5, "pos_bias_u": [[1, 2, 3, 4]] * 2},
    {"encoding": "xlnet", "k_head_r": [[1, 2, 3, 4]] * 6, "first_distance": 3, "r_s_bias": [[1, 2, 3, 4]] * 2,
     "seg_embed": [[[1, 2, 3, 4]] * 2] * 2},
    {"encoding": "deberta_v1", "max_relative_positions": 1, "pos_att_type": ["c2p", "p2c"],
     "pos_k": [[1, 2, 3, 4]] * 2, "pos_q": [[1, 2, 3, 4]] * 2},
    {"encoding": "deberta_v2", "max_relative_positions": 8, "position_buckets": 2, "pos_att_type": ["c2p"],
     "pos_k": [[1, 2, 3, 4]] * 4},
    {"encoding": "tupe", "pos_q": [[[1, 2, 3, 4]] * 3] * 2, "pos_k": [[[1, 2, 3, 4]] * 3] * 2,
     "bias_table": [[1, 2]] * 4, "num_buckets": 4, "max_distance": 8, "bidirectional": True,
     "relative_bias": True, "theta1": [1, 2], "theta2": [1, 2], "reset_cls": True},
    {"encoding": [{"encoding": "rope", "layout": "half", "head_dim": 4}, {"encoding": "alibi"}], "scale": 0.5},
    {"encoding": "kerple", "r1": [1.2, 0.4], "r2": [0.5, 2.0]},
]

HOSTILE = [
    r'{"head_dim": 8, "a\nb": 1}',
    r'{"a\nb": 1, "a\nb": 1}',
    r'{"head_dim": 8, "layout": "a\nb"}',
    r'{"head_dim": 8, "scaling": {"type": "a\nb"}}',
    r'{"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "rope_scaling": {"rope_type": "a\nb"}}',
    r'{"encoding": "a\nb"}',
    r'{"encoding": "shaw", "clip": 3, "rel_k": {"sinusoidal": {"dim": 1000000000}}}',
    '{"head_dim": 8}\0{',
]


def put(target, name, data):
    folder = FUZZ / "seeds" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def configs():
    for path in sorted(GOLDEN.glob("rope_freqs/*/config.*.json")):
        put("config", f"{path.parent.name}.{path.name.split('.')[1]}.json", path.read_bytes())
    for path in sorted(GOLDEN.glob("models/*/model/config.json")):
        put("config", f"model_{path.parent.parent.name}.json", path.read_bytes())
    for scaling in SCALINGS:
        spec = {"head_dim": 4, "base": 10000.0, "layout": "half", "max_position_embeddings": 8192, "scaling": scaling}
        put("config", f"plain_{scaling['type']}.json", json.dumps(spec))
    axes = [{"mrope": {"sections": [1, 1, 2], "order": "interleaved"}}, {"axial": "per_half_head"},
            {"xpos": {"scale_base": 512, "gamma": 0.4, "centre": 2.5}}, {"rotary_dim": 4, "rotary_offset": 2},
            {"frequencies": [1.0, 0.1, 0.01, 0.001], "amplitude": 1.25, "mrope": {"sections": [1, 2, 1, 0]}},
            {"frequency_factors": [1.0, 2.0, 4.0, 8.0], "axial": "concatenated"}]
    for extra in axes:
        put("config", f"plain_{next(iter(extra))}.json", json.dumps({"head_dim": 8, **extra}))
    # Words of the file that appear in messages.
    for number, text in enumerate(HOSTILE):
        put("config", f"hostile_{number}.json", text)
    for number, encoding in enumerate(ENCODINGS):
        name = encoding["encoding"] if isinstance(encoding["encoding"], str) else "several"
        put("config", f"encoding_{number:02}_{name}.json", json.dumps(encoding))


def npy(descr, shape, data, version=1, order="False"):
    text = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    prelude = 10 if version == 1 else 12
    text += b" " * (-(prelude + len(text) + 1) % 64) + b"\n"
    return (b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data)


def arrays():
    widths = {"<f8": 8, "<f4": 4, "<f2": 2, "<V2": 2, "<i8": 8, "<i4": 4, "<i2": 2, "|i1": 1, "<u8": 8, "<u4": 4,
              "<u2": 2, "|u1": 1, "|b1": 1}
    for descr, width in widths.items():
        data = bytes(range(6 * width))
        put("npy", f"{descr[1:]}.npy", npy(descr, "(2, 3)", data))
    put("npy", "scalar.npy", npy("<f4", "()", bytes(4)))
    put("npy", "empty.npy", npy("<f4", "(3, 0, 5)", b""))
    put("npy", "version2.npy", npy("<i8", "(1,)", bytes(8), version=2))
    put("npy", "version3.npy", npy("<f4", "(1,)", bytes(4), version=3))
    put("npy", "fortran_row.npy", npy("<f4", "(1, 3)", bytes(12), order="True"))
    put("npy", "big_endian.npy", npy(">f4", "(1,)", bytes(4)))
    put("npy", "integers_beyond_2_53.npy", npy("<i8", "(1,)", struct.pack("<q", -(2**62))))
    for path in sorted(GOLDEN.glob("worked_example/*/*.npy"))[:4]:
        if path.stat().st_size <= 4096:
            put("npy", f"golden_{path.name}", path.read_bytes())


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def checkpoints():
    widths = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2,
              "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1}
    header, begin = {"__metadata__": {"format": "pt"}}, 0
    for kind, width in widths.items():
        header[f"model.{kind.lower()}.weight"] = {"dtype": kind, "shape": [2, 3], "data_offsets": [begin, begin + 6 * width]}
        begin += 6 * width
    put("safetensors", "every_type.safetensors", safetensors(header, bytes(i % 256 for i in range(begin))))
    one = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    put("safetensors", "one.safetensors", safetensors({"a": one}, bytes(8)))
    put("safetensors", "no_tensor.safetensors", safetensors({}))
    put("safetensors", "scalar_and_empty.safetensors",
        safetensors({"empty": {"dtype": "I8", "shape": [0, 4], "data_offsets": [0, 0]},
                     "scalar": {"dtype": "F64", "shape": [], "data_offsets": [0, 8]}}, bytes(8)))
    put("safetensors", "overlap.safetensors", safetensors({"a": one, "b": one}, bytes(8)))
    put("safetensors", "repeated.safetensors", safetensors(b'{"a":%s,"a":%s}' % ((json.dumps(one).encode(),) * 2), bytes(8)))
    put("safetensors", "unknown_type.safetensors", safetensors({"a": {**one, "dtype": "C64"}}, bytes(8)))


def tokenizers():
    """tokenizer.json of both kinds of BPE, SentencePiece models after an S, text after the number of its pre-tokenizer."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
    regex = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    digits = {"type": "Digits", "individual_digits": True}
    added = [{"id": 5, "content": "<s>", "special": True, "lstrip": True, "rstrip": True, "single_word": True,
              "normalized": False}, {"id": 6, "content": "x y", "normalized": True}]
    words = {"type": "BPE", "unk_token": "<s>", "ignore_merges": True, "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3,
             "\u0120ab": 4}, "merges": ["a b", ["\u0120", "ab"]]}
    pieces = {"type": "BPE", "unk_token": "<s>", "fuse_unk": True, "byte_fallback": True,
              "vocab": {"\u2581": 0, "a": 1, "\u2581a": 2, "<0x0A>": 3, "b": 4}, "merges": [["\u2581", "a"]]}
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}]}
    files = {
        "gpt2": {"pre_tokenizer": byte_level, "model": words},
        "smollm": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, byte_level]}, "model": words},
        "qwen2": {"normalizer": {"type": "NFC"}, "model": words, "post_processor": template, "pre_tokenizer":
                  {"type": "Sequence", "pretokenizers": [split, {**byte_level, "use_regex": False}]}},
        "llama2": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, space]},
                   "decoder": {"type": "Strip"}, "model": pieces},
        "metaspace": {"pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first",
                                        "split": False}, "model": pieces},
    }
    for name, root in files.items():
        put("tokenizer", f"{name}.json", json.dumps({"added_tokens": added, **root}))
    for path in sorted((ROOT / "tests" / "models" / "data").glob("*.model")):
        put("tokenizer", path.name, b"S" + path.read_bytes())
    texts = ["The quick brown fox isn't 12345 years  old\n\n\tI'LL \u4e2d\u6587 \u00e9", "aaaaaaaa he  \n\n x", "e\u0301\u0323 \ud55c"]
    for number, text in enumerate(texts):
        put("tokenizer", f"text_{number}", bytes([number]) + text.encode())
    put("tokenizer", "text_not_utf8", b"\x02ab\xff\xe2\x82x\xf0\x9f")


def archives():
    """What NumPy and torch wrote for the tests; of torch's files also the pickle alone."""
    for path in sorted((ROOT / "tests" / "io" / "data" / "arrays").iterdir()):
        put("archive", path.name, path.read_bytes())
        if path.suffix == ".pt" and zipfile.is_zipfile(path) and path.stem != "no_check_sums":
            with zipfile.ZipFile(path) as archive:
                put("pickle", path.stem, archive.read(f"{path.stem}/data.pkl"))


def dictionary(target, words):
    lines = []
    for word in dict.fromkeys(words):
        escaped = "".join(c if c.isprintable() and c.isascii() and c not in '"\\' else f"\\x{ord(c):02x}" for c in word)
        lines.append(f'"{escaped}"\n')
    (FUZZ / f"{target}.dict").write_text("".join(lines))


def words_in(folder):
    """The quoted words of the sources: keys, names and choices."""
    paths = sorted((ROOT / "src" / folder).rglob("*.[ch]pp"))
    return {word for path in paths for word in re.findall(r'"([A-Za-z][A-Za-z0-9_]*)"', path.read_text())}


def dictionaries():
    keys = words_in("config") | words_in("encodings/rope")
    dictionary("config", [f'"{key}"' for key in sorted(keys)] + ["null", "true", "false", "1e308", "-1", "0", "[[", "]]", "{}"])
    keys = words_in("text/tokenizer")
    dictionary("tokenizer", [f'"{key}"' for key in sorted(keys)] + ["null", "true", "false", "-1", "0", "[]", "{}", "'s", "'ll",
                                                                    "<s>", "</s>", "  ", "\\u2581"])
    dictionary("safetensors", ['"__metadata__":{', '"dtype":"', '"shape":[', '"data_offsets":[', "F64", "F32", "F16", "BF16",
                               "F8_E4M3", "F8_E5M2", "I64", "BOOL", "9223372036854775807", "18446744073709551615"])
    dictionary("npy", ["\x93NUMPY", "'descr': ", "'fortran_order': ", "'shape': (", "True", "False", "<f4", "<V2", "|b1",
                       "9223372036854775807", ", }"])
    dictionary("archive", ["PK\x03\x04", "PK\x01\x02", "PK\x05\x06", "PK\x06\x06", "PK\x06\x07", "\x93NUMPY", ".npy", "data.pkl",
                           "byteorder", "data/0", "\xff\xff\xff\xff", "'shape': ("])
    dictionary("pickle", ["ctorch._utils\n_rebuild_tensor_v2\n", "ctorch._utils\n_rebuild_tensor_v3\n",
                          "ctorch._utils\n_rebuild_parameter\n", "ctorch\nFloatStorage\n", "ctorch\nHalfStorage\n",
                          "ctorch.storage\nUntypedStorage\n", "ctorch\nuint16\n", "ccollections\nOrderedDict\n", ")R", "(",
                          "t", "Q", "K\x00", "J\xff\xff\xff\xff", "\x8a\x08", "\x85", "\x86", "\x87", "s", "u", "}", "]",
                          "h\x00", "q\x00", "b", "."])
    dictionary("gguf", ["GGUF", "general.architecture", "general.alignment", "llama", ".rope.freq_base",
                        ".rope.dimension_count", ".rope.scaling.type", ".rope.scaling.factor",
                        ".rope.scaling.original_context_length", ".context_length", ".embedding_length",
                        ".attention.head_count", ".attention.key_length", ".block_count", "rope_freqs.weight",
                        "rope_factors_long.weight", "rope_factors_short.weight", "yarn", "linear"])


if __name__ == "__main__":
    configs()
    arrays()
    checkpoints()
    tokenizers()
    archives()
    dictionaries()
