// Writes float32 numbers as the bytes of a .npy file.
export function npyBytes(values, shape) {
  const dictionary = `{'descr': '<f4', 'fortran_order': False, 'shape': (${shape.join(", ")},), }`;
  // The header ends with a newline at a multiple of 64 bytes; 10 bytes come before it.
  const header = dictionary.padEnd(Math.ceil((dictionary.length + 11) / 64) * 64 - 11) + "\n";
  const bytes = new Uint8Array(10 + header.length + 4 * values.length);
  bytes.set([0x93, ...new TextEncoder().encode("NUMPY"), 1, 0, header.length & 255, header.length >> 8]);
  bytes.set(new TextEncoder().encode(header), 10);
  const view = new DataView(bytes.buffer, 10 + header.length);
  values.forEach((value, at) => view.setFloat32(4 * at, value, true));
  return bytes;
}
