// Out of the page: the clipboard and files.

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages opened from disk may have no clipboard of the newer kind.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden";
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

export function saveFile(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// A canvas or an svg element as something that a canvas can draw, with its size in CSS pixels. A canvas that is not on
// the page has two pixels for each.
async function drawable(picture) {
  if (!picture.isConnected) return {source: picture, width: picture.width / 2, height: picture.height / 2};
  const {width, height} = picture.getBoundingClientRect();
  if (picture instanceof HTMLCanvasElement) return {source: picture, width, height};
  const copy = picture.cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  await image.decode();
  return {source: image, width, height};
}

// Saves a picture with its title on the page's background, at twice the size on the screen.
export async function savePicture(picture, title, name, colour) {
  const {source, width, height} = await drawable(picture);
  const scale = 2, edge = 24, head = 44;
  const canvas = document.createElement("canvas");
  canvas.width = Math.round((width + 2 * edge) * scale);
  canvas.height = Math.round((height + head + 2 * edge) * scale);
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.fillStyle = colour("surface");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.fillStyle = colour("text");
  pen.font = "600 18px system-ui, sans-serif";
  pen.textBaseline = "top";
  pen.fillText(title, edge, edge, width);
  pen.drawImage(source, edge, edge + head, width, height);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  saveFile(name, blob);
}
