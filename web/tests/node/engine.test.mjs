// Every call of the engine against the command's numbers, and what it refuses.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import test from "node:test";

import {
  distance,
  engine,
  npyBytes,
  output,
  phasor,
  phasorJson,
  readNpy,
  refusal,
  writeNpy,
} from "./support.mjs";

const SPEC = { head_dim: 16, base: 10000, layout: "half" };
const YARN = {
  head_dim: 64,
  base: 10000,
  layout: "interleaved",
  max_position_embeddings: 8192,
  scaling: { type: "yarn", factor: 4, original_max_position_embeddings: 2048 },
};
const DYNAMIC = {
  head_dim: 32,
  layout: "half",
  scaling: { type: "dynamic", factor: 2, original_max_position_embeddings: 128 },
};
const families = engine.call("families").families;

// A layer that rotates, for configs whose layers differ.
const layerOf = (config) => (config.model_type === "gemma3_text" ? "full_attention" : undefined);
const layerWords = (config) => (layerOf(config) ? ["--layer", layerOf(config)] : []);

test("version is the command's", () => {
  const answer = engine.call("version");
  assert.equal(`phasor ${answer.version}`, phasor("--version").trim());
  assert.equal(answer.simd, true);
});

test("frequencies are the command's, to the bit", () => {
  assert.ok(families.length >= 12);
  const cases = [SPEC, YARN, ...families.map((family) => family.config)];
  for (const config of cases) {
    const layer = layerOf(config);
    const answer = engine.call("frequencies", layer ? { spec: config, layer } : { spec: config });
    const expected = phasorJson(
      "freqs",
      "--config",
      JSON.stringify(config),
      ...layerWords(config),
    );
    assert.deepEqual(Array.from(answer.frequencies), expected.frequencies);
    for (const key of ["amplitude", "layout", "head_dim", "rotary_dim", "base", "scaling"]) {
      assert.equal(answer[key], expected[key], `${JSON.stringify(config)}: ${key}`);
    }
    assert.equal(Math.max(...answer.wavelengths), expected.longest_wavelength);
  }
  assert.equal(engine.call("frequencies", { spec: YARN }).trained_length, 2048);
  assert.equal(engine.call("frequencies", { spec: SPEC }).trained_length, null);
  const longer = engine.call("frequencies", { spec: DYNAMIC, context: 1024 });
  assert.deepEqual(
    Array.from(longer.frequencies),
    phasorJson("freqs", "--config", JSON.stringify(DYNAMIC), "--context", 1024).frequencies,
  );
});

test("rotate gives the command's vectors and a score of the distance alone", () => {
  const q = Float64Array.from({ length: 64 }, (_, i) => Math.sin(1 + i * i));
  const k = Float64Array.from({ length: 64 }, (_, i) => Math.cos(2 + i));
  const args = { spec: YARN, q, k, query_position: 1009, key_position: 1002 };
  const answer = engine.call("rotate", args);
  for (const [name, position] of [["q", 1009], ["k", 1002]]) {
    const input = writeNpy(`${name}.npy`, args[name], [1, 1, 64]);
    const config = JSON.stringify(YARN);
    phasor("rotate", "--config", config, "-i", input, "-o", output("y.npy"), "--offset", position);
    assert.ok(distance(answer[name], readNpy(output("y.npy"))) < 1e-14);
  }
  assert.equal(answer.pair_scores.length, 32);
  const sum = answer.pair_scores.reduce((total, score) => total + score, 0);
  assert.ok(Math.abs(sum - answer.score) < 1e-12);
  for (const shift of [1, 131072, 16777216]) {
    const moved = engine.call("rotate", {
      ...args,
      query_position: 1009 + shift,
      key_position: 1002 + shift,
    });
    assert.ok(Math.abs(moved.score - answer.score) < 1e-11, `shift ${shift}`);
    assert.notDeepEqual(moved.q, answer.q);
  }
  // The first pair rotates by one radian per position.
  const angle = 1009 - Math.round(1009 / (2 * Math.PI)) * 2 * Math.PI;
  assert.ok(Math.abs(answer.angles_q[0] - angle) < 1e-12);
});

test("table is the command's", () => {
  const answer = engine.call("table", { spec: YARN, first: 100000, count: 50 });
  phasor(
    "table", "--config", JSON.stringify(YARN), "--positions", "100000:100050",
    "-o", output("t.npy"),
  );
  const expected = readNpy(output("t.npy"));
  assert.deepEqual([answer.pairs, answer.count], [32, 50]);
  // Both are within 0.502 units in the last place of the exact value.
  assert.ok(distance(answer.cos, expected.subarray(0, 1600)) <= 2 ** -24);
  assert.ok(distance(answer.sin, expected.subarray(1600)) <= 2 ** -24);
});

test("layouts are one permutation apart, and the worked example's", () => {
  const answer = engine.call("layouts");
  assert.deepEqual(Array.from(answer.permutation), [0, 2, 4, 6, 1, 3, 5, 7]);
  assert.deepEqual(answer.interleaved.pairs[1], [2, 3]);
  assert.deepEqual(answer.half.pairs[1], [1, 5]);
  const permuted = Array.from(answer.permutation, (i) => answer.interleaved.rotated[i]);
  assert.ok(distance(answer.rotated_permuted, permuted) < 1e-14);
  for (const layout of ["interleaved", "half"]) {
    const input = writeNpy("x.npy", answer.values, [1, 1, 8]);
    phasor(
      "rotate", "--head-dim", 8, "--layout", layout, "-i", input, "-o", output("y.npy"),
      "--offset", 1,
    );
    assert.ok(distance(answer[layout].rotated, readNpy(output("y.npy"))) < 1e-13);
  }
});

test("angle_errors are those of the command's tables", () => {
  const position = 1000003;
  const angles = ["exact", "float32", "bfloat16_frequencies", "bfloat16"];
  const answer = engine.call("angle_errors", { spec: SPEC, position, angles });
  for (const row of answer.rows) {
    phasor(
      "table", "--config", JSON.stringify(SPEC), "--positions", `${position}:${position + 1}`,
      "--angles", row.angles, "-o", output("t.npy"),
    );
    const table = readNpy(output("t.npy"));
    const values = Array.from({ length: 8 }, (_, i) => Math.atan2(table[8 + i], table[i]));
    assert.ok(distance(row.values, values) < 1e-6, row.angles);
    assert.equal(row.largest, Math.max(...row.error.map(Math.abs)));
  }
  const [exact, float32, , bfloat16] = answer.rows;
  assert.ok(exact.largest < 1e-7);
  assert.ok(float32.largest > 1e-3 && bfloat16.largest > float32.largest);
  // float16 has no number for this angle: a note, not an error.
  const wide = engine.call("angle_errors", { spec: SPEC, position, angles: ["float16"] });
  assert.match(wide.rows[0].note, /65504/);
});

test("scalings are the command's", () => {
  const spec = { head_dim: 64, layout: "half", max_position_embeddings: 2048 };
  const methods = ["none", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope"];
  const answer = engine.call("scalings", { spec, context: 8192, factor: 4, methods });
  const plan = phasorJson("plan", "--config", JSON.stringify(spec), "--to", 8192);
  assert.equal(answer.rows.length, methods.length);
  for (const row of answer.rows) {
    const expected = plan.methods.find(({ method }) => method === row.method);
    assert.ok(distance(row.frequencies, expected.pairs.map((pair) => pair.frequency)) < 1e-15);
    assert.ok(distance(row.ratio, expected.pairs.map((pair) => pair.compression)) < 1e-12);
    assert.equal(row.amplitude, expected.amplitude);
  }
  const present = engine.call("scalings", { spec: YARN, methods: ["present"] }).rows[0];
  const direct = engine.call("frequencies", { spec: YARN });
  assert.deepEqual(present.frequencies, direct.frequencies);
  // A method that does not apply says why; the others are computed.
  const one = { head_dim: 2, layout: "half", max_position_embeddings: 2048 };
  const rows = engine.call("scalings", { spec: one, factor: 2, methods: ["ntk", "linear"] }).rows;
  assert.match(rows[0].note, /pair/);
  assert.equal(rows[1].ratio[0], 0.5);
});

test("decay is the score of equal vectors, under its bound", () => {
  const answer = engine.call("decay", { spec: YARN, longest: 1000, points: 11 });
  assert.deepEqual(Array.from(answer.distance), [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000]);
  const ones = new Float64Array(64).fill(1);
  answer.distance.forEach((away, i) => {
    const { score } = engine.call("rotate", {
      spec: YARN, q: ones, k: ones, query_position: away, key_position: 0,
    });
    assert.ok(Math.abs(answer.value[i] - score) < 1e-10);
    assert.ok(Math.abs(answer.value[i]) <= answer.bound[i]);
  });
  assert.ok(Math.abs(answer.mean[0] - 33 / 2) < 1e-12); // the mean of 1 .. 32
  // Of vectors of one's own.
  const q = Float64Array.from({ length: 64 }, (_, i) => Math.sin(i));
  const own = engine.call("decay", { spec: YARN, q, k: ones, longest: 9, points: 2 });
  const at = { query_position: 9, key_position: 0 };
  const { score } = engine.call("rotate", { spec: YARN, q, k: ones, ...at });
  assert.ok(Math.abs(own.value[1] - score) < 1e-10);
  // No more points than whole distances.
  assert.deepEqual(
    Array.from(engine.call("decay", { spec: SPEC, longest: 3, points: 100 }).distance),
    [0, 1, 2, 3],
  );
});

test("maps: rotary depends on the distance alone, sinusoidal does not", () => {
  const tokens = 8;
  const rope = engine.call("map", { kind: "rope", spec: SPEC, tokens, step: 5 }).values;
  const { value } = engine.call("decay", { spec: SPEC, longest: 35, points: 8 });
  const wave = engine.call("map", { kind: "sinusoidal", spec: SPEC, tokens, step: 5 }).values;
  const row = (position) =>
    Array.from({ length: 16 }, (_, i) => {
      const angle = position * 10000 ** (-2 * Math.floor(i / 2) / 16);
      return 1 + (i % 2 === 0 ? Math.sin(angle) : Math.cos(angle));
    });
  for (let m = 0; m < tokens; m += 1) {
    for (let n = 0; n < tokens; n += 1) {
      assert.ok(Math.abs(rope[m * tokens + n] - value[Math.abs(m - n)]) < 1e-10);
      const [a, b] = [row(5 * m), row(5 * n)];
      const product = a.reduce((sum, x, i) => sum + x * b[i], 0);
      assert.ok(Math.abs(wave[m * tokens + n] - product) < 1e-10);
    }
  }
  const seeded = engine.call("map", { kind: "rope", spec: SPEC, tokens, seed: 7 }).values;
  assert.deepEqual(seeded, engine.call("map", { kind: "rope", spec: SPEC, tokens, seed: 7 }).values);
  assert.notDeepEqual(seeded, rope);
});

test("attention maps are the command's", () => {
  const encodings = [
    "none", "rope", "xpos", "alibi", "t5", "shaw", "transformer_xl", "deberta", "tupe",
  ];
  for (const causal of [false, true]) {
    const answer = engine.call("attention_maps", {
      tokens: 24, head_dim: 16, seed: 3, causal, encodings,
    });
    assert.deepEqual(answer.maps.map((map) => map.encoding), encodings);
    const q = writeNpy("q.npy", answer.q, [24, 1, 16]);
    const k = writeNpy("k.npy", answer.k, [24, 1, 16]);
    const v = writeNpy("v.npy", new Float32Array(24), [24, 1, 1]);
    for (const map of answer.maps) {
      writeFileSync(output("e.json"), map.json);
      phasor(
        "attend", "--encoding", output("e.json"), "-q", q, "-k", k, "-v", v,
        "-o", output("o.npy"), "--probabilities", output("p.npy"), ...(causal ? ["--causal"] : []),
      );
      assert.ok(distance(map.probabilities, readNpy(output("p.npy"))) < 1e-6, map.encoding);
      const first = map.probabilities.subarray(0, 24).reduce((sum, p) => sum + p, 0);
      assert.ok(Math.abs(first - 1) < 1e-5);
      if (causal) assert.equal(map.probabilities[1], 0);
    }
    const [none, rope] = answer.maps.map((map) => map.probabilities);
    const compare = ["none", "rope"];
    const { difference, largest } = engine.call("attention_maps", {
      tokens: 24, head_dim: 16, seed: 3, causal, encodings, compare,
    });
    assert.deepEqual(Array.from(difference), Array.from(rope, (value, i) => value - none[i]));
    assert.equal(largest.value, Math.max(...difference.map(Math.abs)));
    assert.equal(Math.abs(difference[largest.query * 24 + largest.key]), largest.value);
    const maps = new Set(answer.maps.map((map) => map.probabilities.join()));
    assert.equal(maps.size, encodings.length);
  }
});

test("explain is the command's page and JSON", () => {
  for (const { config } of families) {
    const text = JSON.stringify(config);
    const answer = engine.call("explain", { config: text });
    assert.equal(answer.text, phasor("explain", text));
    assert.deepEqual(answer.answer, phasorJson("explain", text));
  }
  const long = engine.call("explain", { config: JSON.stringify(YARN), context: 100000 });
  assert.equal(long.text, phasor("explain", JSON.stringify(YARN), "--context", 100000));
});

test("diagnose is the command's", () => {
  const golden = "golden/diagnose/diag_interleaved_inverse_offset";
  const files = ["before", "after"].map((name) => `${golden}/${name}.npy`);
  const [before, after] = files.map((file) => new Uint8Array(readFileSync(file)));
  const answer = engine.call("diagnose", { before, after });
  assert.equal(answer.text, phasor("diagnose", ...files));
  assert.equal(answer.answer.layout, "interleaved");
  assert.equal(answer.answer.inverse, true);

  // With a config: a rotation of our own, right and wrong.
  const x = Float32Array.from({ length: 20 * 2 * 16 }, (_, i) => Math.sin(i * i + 0.5));
  const input = writeNpy("x.npy", x, [20, 2, 16]);
  phasor("rotate", "--config", JSON.stringify(SPEC), "-i", input, "-o", output("y.npy"));
  const bytes = (path) => new Uint8Array(readFileSync(path));
  const both = { before: bytes(input), after: bytes(output("y.npy")) };
  const right = engine.call("diagnose", { ...both, config: JSON.stringify(SPEC) });
  assert.equal(right.answer.agrees_with_config, true);
  const wrong = engine.call("diagnose", {
    ...both,
    config: JSON.stringify({ ...SPEC, layout: "interleaved" }),
    positions: new Uint8Array(npyBytes(Float64Array.from({ length: 20 }, (_, i) => i), [20])),
  });
  assert.equal(wrong.answer.agrees_with_config, false);
  assert.match(wrong.text, /DIFFERS/);
});

test("bad requests give one clear error, and the engine goes on", () => {
  const refuses = (name, args, ...values) =>
    assert.throws(
      () => engine.call(name, args),
      (error) => {
        assert.ok(!error.message.includes("\n"), error.message);
        for (const value of values) assert.ok(error.message.includes(value), error.message);
        return true;
      },
    );
  refuses("turn", {}, "turn", "rotate");
  refuses("frequencies", {}, "spec");
  refuses("frequencies", { spec: SPEC, contxt: 5 }, "contxt", "context");
  refuses("frequencies", { spec: SPEC, context: 0 }, "context", "0");
  refuses("frequencies", { spec: SPEC, context: 1.5 }, "context", "1.5");
  refuses("frequencies", { spec: SPEC, layer: 7 }, "layer", "7");
  refuses("frequencies", { spec: "{" }, "spec");
  refuses("frequencies", { spec: { model_type: "gpt2", n_embd: 64, n_head: 4 } }, "rotates");
  refuses("rotate", { spec: SPEC, q: [1], k: [1], query_position: 0, key_position: 0 }, "q", "16", "1");
  refuses("rotate", { spec: SPEC, q: Array(16).fill(NaN) }, "finite", "NaN");
  refuses("table", { spec: SPEC, first: 0, count: -1 }, "count", "-1");
  refuses("table", { spec: SPEC, first: 0, count: 4000000 }, "count", "4000000");
  refuses("map", { kind: "round", spec: SPEC, tokens: 4 }, "kind", "round");
  refuses("map", { kind: "rope", spec: SPEC, tokens: 100000 }, "tokens", "100000");
  refuses("layouts", { head_dim: 7 }, "7");
  refuses("decay", { spec: SPEC, longest: 0 }, "longest", "0");
  refuses("angle_errors", { spec: SPEC, position: 1, angles: ["float8"] }, "float8");
  refuses("scalings", { spec: SPEC }, "methods");
  refuses("attention_maps", { encodings: ["bert"] }, "bert");
  refuses("attention_maps", { head_dim: 7, encodings: ["rope"] }, "head_dim", "7");
  refuses("attention_maps", { encodings: ["rope"], compare: ["rope", "t5"] }, "compare", "t5");
  refuses("attention_maps", { encodings: ["rope"], compare: ["rope"] }, "compare", "1");
  refuses("decay", { spec: SPEC, longest: 5, q: [1] }, "q", "16");
  refuses("explain", {}, "config");
  refuses("diagnose", {}, "before");
  const npy = new Uint8Array(npyBytes(new Float32Array(8), [8]));
  refuses("diagnose", { before: npy.slice(0, 20), after: npy }, "before");
  refuses("diagnose", { before: new Uint8Array(), after: npy }, "before");
  refuses("diagnose", { before: npy, after: npy }, "[8]");
  // The words are the command's.
  const bad = JSON.stringify({ head_dim: 8, rotary_dim: 7 });
  refuses("explain", { config: bad }, refusal("explain", bad).replace(/^.*?: /, ""));
  assert.equal(engine.call("version").simd, true);
});
