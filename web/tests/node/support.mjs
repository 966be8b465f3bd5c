// The engine, the command that it is compared with, and .npy files.
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { after } from "node:test";

const { load } = await import(pathToFileURL(process.env.PHASOR_ENGINE).href);
export const engine = await load();

export const folder = mkdtempSync(join(tmpdir(), "phasor-web-"));
after(() => rmSync(folder, { recursive: true }));

// What the command prints.
export function phasor(...words) {
  return execFileSync(process.env.PHASOR_COMMAND, words.map(String), {
    encoding: "utf8",
    maxBuffer: 1 << 28,
    stdio: ["ignore", "pipe", "pipe"],
  });
}
export const phasorJson = (...words) => JSON.parse(phasor(...words, "--json"));

// The text that the command ends with when it refuses.
export function refusal(...words) {
  try {
    phasor(...words);
  } catch (error) {
    return error.stderr.split("\n")[0].replace(/^phasor \w+: /, "");
  }
  throw new Error(`phasor ${words.join(" ")} refused nothing`);
}

const TYPES = { "<f4": Float32Array, "<f8": Float64Array };

export function npyBytes(array, shape) {
  const descr = Object.keys(TYPES).find((name) => array instanceof TYPES[name]);
  const tuple = `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`;
  const text = `{'descr': '${descr}', 'fortran_order': False, 'shape': ${tuple}, }`;
  const length = Math.ceil((10 + text.length + 1) / 64) * 64 - 10;
  const head = Buffer.alloc(10 + length, " ");
  head.write("\x93NUMPY\x01\x00", "latin1");
  head.writeUInt16LE(length, 8);
  head.write(text, 10, "latin1");
  head.write("\n", 9 + length, "latin1");
  return Buffer.concat([head, Buffer.from(array.buffer, array.byteOffset, array.byteLength)]);
}

export function writeNpy(name, array, shape) {
  const path = join(folder, name);
  writeFileSync(path, npyBytes(array, shape));
  return path;
}

export function readNpy(path) {
  const bytes = readFileSync(path);
  const length = bytes.readUInt16LE(8);
  const text = bytes.toString("latin1", 10, 10 + length);
  const Type = TYPES[/'descr': '([^']+)'/.exec(text)[1]];
  return new Type(new Uint8Array(bytes.subarray(10 + length)).buffer);
}

export const output = (name) => join(folder, name);

// The largest |a - b|; infinite when the lengths differ.
export function distance(a, b) {
  if (a.length !== b.length) return Infinity;
  let largest = 0;
  for (let i = 0; i < a.length; i += 1) {
    const difference = Math.abs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}
