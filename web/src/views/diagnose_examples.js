// Tensors to diagnose, rotated by the engine: rightly, or with one of the classic mistakes.

import {npyBytes} from "./npy.js";

const tokens = 24, heads = 2, spec = {head_dim: 64, base: 10000, layout: "half"};

// Input that looks random and is the same at each visit: the high bits of a linear congruential generator.
function noise(count) {
  let seed = 1;
  return Array.from({length: count}, () => {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    return seed / 2 ** 31 - 1;
  });
}

// spec: what the wrong engine used; position: where it put token t.
const mistakes = {
  correct: {},
  layout: {spec: {layout: "interleaved"}},
  base: {spec: {base: 500000}},
  offset: {position: (token) => token + 1},
  direction: {position: (token) => -token},
};
export const examples = Object.keys(mistakes);

const made = new Map();

// {before, after, config, positions}, each {name, bytes}, as a reader's own files would be.
export function exampleFiles(engine, name) {
  if (!made.has(name)) made.set(name, make(engine, name));
  return made.get(name);
}

function make(engine, name) {
  const mistake = mistakes[name], used = {...spec, ...mistake.spec}, place = mistake.position ?? ((token) => token);
  const before = new Float32Array(noise(tokens * heads * spec.head_dim)), after = [];
  for (let token = 0; token < tokens; ++token) {
    for (let head = 0; head < heads; ++head) {
      const start = (token * heads + head) * spec.head_dim;
      const vector = Array.from(before.subarray(start, start + spec.head_dim));
      after.push(...engine.call("rotate", {spec: used, q: vector, k: vector, query_position: place(token), key_position: place(token)}).q);
    }
  }
  const shape = [tokens, heads, spec.head_dim];
  return {
    before: {name: "q_before.npy", bytes: npyBytes(before, shape)},
    after: {name: "q_after.npy", bytes: npyBytes(after, shape)},
    config: {name: "config.json", bytes: new TextEncoder().encode(JSON.stringify(spec))},
    positions: {name: "positions.npy", bytes: npyBytes(Array.from({length: tokens}, (_, token) => token), [tokens])},
  };
}
