// The engine: Phasor's C++ as WebAssembly. The import is what `./dev web` builds; the bundler puts it
// into the page.
import createPhasor from "../../build/wasm/bin/phasor_web.js";
import compressed from "../../build/wasm/bin/phasor_web.wasm.gz";

// An answer's numbers are in the engine's memory until the next call: they are copied.
function revive(value, arrays, memory) {
  if (Array.isArray(value)) return value.map((item) => revive(item, arrays, memory));
  if (value === null || typeof value !== "object") return value;
  if ("$array" in value) {
    const [bytes, address, count] = arrays[value.$array];
    const Type = bytes === 8 ? Float64Array : Float32Array;
    return new Type(memory, address, count).slice();
  }
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, revive(item, arrays, memory)]),
  );
}

// Loads the engine. `call(name, args)` answers with a plain object whose arrays of numbers are typed
// arrays, or throws an Error with the engine's message. Arguments are plain values and typed arrays;
// a Uint8Array is the contents of a file.
export async function load() {
  const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const phasor = await createPhasor({ wasmBinary: await new Response(stream).arrayBuffer() });

  function place(bytes) {
    const address = phasor._malloc(Math.max(bytes.length, 1));
    if (address === 0) throw new Error("out of memory");
    phasor.HEAPU8.set(bytes, address);
    return address;
  }
  const placeText = (text) => place(new TextEncoder().encode(`${text}\0`));
  function textAt(address) {
    return new TextDecoder().decode(
      phasor.HEAPU8.subarray(address, phasor.HEAPU8.indexOf(0, address)),
    );
  }

  function call(name, args = {}) {
    const files = [];
    const text = JSON.stringify(args, (key, value) => {
      if (value instanceof Uint8Array) return { $file: files.push(value) - 1 };
      if (ArrayBuffer.isView(value)) return Array.from(value);
      if (typeof value === "number" && !Number.isFinite(value)) {
        throw new Error(`${name}: ${key || "an argument"} must be a finite number, got ${value}`);
      }
      return value;
    });
    const held = [placeText(name), placeText(text)];
    try {
      const addresses = files.map((file) => {
        held.push(place(file));
        return held[held.length - 1];
      });
      const list = new Uint32Array([...addresses, ...files.map((file) => file.length)]);
      held.push(place(new Uint8Array(list.buffer)));
      const answer = JSON.parse(
        textAt(phasor._phasor_call(held[0], held[1], held[held.length - 1], files.length)),
      );
      if (answer.error !== undefined) throw new Error(answer.error);
      return revive(answer.answer, answer.arrays, phasor.HEAPU8.buffer);
    } finally {
      held.forEach((address) => phasor._free(address));
    }
  }
  return { call };
}
