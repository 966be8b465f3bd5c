// A matrix as a picture: one cell a value, with axes and a bar of colours. The values are the engine's; this file
// turns them into colours.

import {surface} from "./surface.js";
import {el, format} from "./ui.js";

// Colours that remain apart for readers who do not see red or green: blue to orange through the background for values
// of both signs, dark blue through green to yellow for values of one sign.
const stops = {
  diverging: {
    light: ["#08407e", "#3f83c3", "#b7d3ea", "#fbfbfb", "#f6c9a2", "#d9762b", "#853600"],
    dark: ["#a8d4ff", "#5b9fe0", "#2b4f78", "#1d232d", "#70401d", "#d98244", "#ffd3ad"],
  },
  sequential: {
    light: ["#f4f7fa", "#c5dcec", "#86b9d6", "#4690bd", "#1f6499", "#123d68", "#0b1f3d"],
    dark: ["#151b24", "#1b3550", "#1f5a7e", "#2b84a0", "#52b0ab", "#9dd7a5", "#f2f3a6"],
  },
};

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// 256 colours, 4 bytes each.
function palette(kind, dark) {
  const anchors = stops[kind][dark ? "dark" : "light"].map(channels);
  const bytes = new Uint8ClampedArray(1024);
  for (let index = 0; index < 256; ++index) {
    const place = index / 255 * (anchors.length - 1);
    const from = Math.min(Math.floor(place), anchors.length - 2);
    for (let c = 0; c < 3; ++c) bytes[4 * index + c] = anchors[from][c] + (place - from) * (anchors[from + 1][c] - anchors[from][c]);
    bytes[4 * index + 3] = 255;
  }
  return bytes;
}

const isDark = (context) => {
  const [r, g, b] = channels(context.colour("surface"));
  return r + g + b < 384;
};

// Options: label (for screen readers), name (data-test), height (number or height(width); default: square cells),
// compact (no axes, no bar).
// set({values, rows, columns, kind: "diverging" | "sequential", low, high, x: {label, first, step}, y: {...},
//      marks: [{axis: "x" | "y", at, label}]})   values: rows first; low and high: the ends of the colours
export function heatmap(context, {label, name, height, compact = false}) {
  let data = null, image = null, box = null;
  const cells = document.createElement("canvas");
  const tip = el("div", {class: "tip", hidden: true});

  const side = (width) => Math.min(width - 64, 520);
  const square = (width) => compact ? width : side(width) + 62;
  const picture = surface({label, name, height: height ?? square, draw});

  function draw(pen, width, tall) {
    if (!data) return;
    const font = compact ? 10 : 12;
    const edge = compact ? {left: 0, top: 0, right: 0, bottom: 0} : {left: 54, top: 6, right: 10, bottom: 56};
    if (!height && !compact) edge.left += (width - 64 - side(width)) / 2;
    box = {x: edge.left, y: edge.top, width: height || compact ? width - edge.left - edge.right : side(width),
           height: tall - edge.top - edge.bottom};
    pen.imageSmoothingEnabled = false;
    pen.drawImage(cells, box.x, box.y, box.width, box.height);
    if (compact) return;
    pen.strokeStyle = context.colour("line");
    pen.lineWidth = 1;
    pen.strokeRect(box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1);
    pen.font = `${font}px system-ui, sans-serif`;
    pen.fillStyle = context.colour("muted");
    axis(pen, data.columns, data.x, (at) => box.x + at / data.columns * box.width, box.width, (at, text) => {
      pen.textAlign = "center";
      pen.textBaseline = "top";
      pen.fillText(text, at, box.y + box.height + 5);
    });
    axis(pen, data.rows, data.y, (at) => box.y + at / data.rows * box.height, box.height, (at, text) => {
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      pen.fillText(text, box.x - 6, at);
    });
    pen.textAlign = "center";
    pen.textBaseline = "top";
    pen.fillText(data.x?.label ?? "", box.x + box.width / 2, box.y + box.height + 20);
    pen.save();
    pen.translate(edge.left - 42, box.y + box.height / 2);
    pen.rotate(-Math.PI / 2);
    pen.textBaseline = "middle";
    pen.fillText(data.y?.label ?? "", 0, 0);
    pen.restore();
    bar(pen, box.x, box.y + box.height + 42, box.width, 9);
    for (const mark of data.marks ?? []) drawMark(pen, mark);
  }

  // About one number every 70 pixels, at round steps.
  function axis(pen, count, scale, place, length, write) {
    const first = scale?.first ?? 0, step = scale?.step ?? 1;
    const wanted = count / Math.max(2, length / 70);
    const round = [1, 2, 5, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500, 512, 1000, 1024, 2000, 2048, 4096, 8192]
      .find((candidate) => candidate >= wanted) ?? count;
    for (let cell = 0; cell < count; cell += round) write(place(cell + 0.5), format(first + cell * step));
  }

  function bar(pen, x, y, width, tall) {
    const colours = palette(data.kind, isDark(context));
    const long = Math.min(width * 0.6, 260), left = x + (width - long) / 2;
    for (let at = 0; at < long; ++at) {
      const index = Math.round(at / (long - 1) * 255) * 4;
      pen.fillStyle = `rgb(${colours[index]},${colours[index + 1]},${colours[index + 2]})`;
      pen.fillRect(left + at, y, 1.5, tall);
    }
    pen.fillStyle = context.colour("muted");
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    pen.fillText(format(data.low, 3), left - 6, y + tall / 2 + 0.5);
    pen.textAlign = "left";
    pen.fillText(format(data.high, 3), left + long + 7, y + tall / 2 + 0.5);
  }

  function drawMark(pen, {axis: side, at, label: text}) {
    const count = side === "x" ? data.columns : data.rows, scale = data[side];
    const cell = (at - (scale?.first ?? 0)) / (scale?.step ?? 1);
    if (cell <= 0 || cell >= count) return;
    pen.beginPath();
    const x = box.x + cell / count * box.width, y = box.y + cell / count * box.height;
    if (side === "x") { pen.moveTo(x, box.y); pen.lineTo(x, box.y + box.height); }
    else { pen.moveTo(box.x, y); pen.lineTo(box.x + box.width, y); }
    // Dashes on a line of the background's colour: the cells may have any colour.
    pen.strokeStyle = context.colour("surface");
    pen.lineWidth = 4;
    pen.stroke();
    pen.strokeStyle = context.colour("mark");
    pen.lineWidth = 2;
    pen.setLineDash([6, 4]);
    pen.stroke();
    pen.setLineDash([]);
    pen.font = "600 12px system-ui, sans-serif";
    const wide = pen.measureText(text).width + 12, right = side === "x" && x + wide + 6 > box.x + box.width;
    const left = side === "x" ? (right ? x - wide - 4 : x + 4) : box.x + 6, top = side === "x" ? box.y + 6 : y + 4;
    pen.fillStyle = context.colour("surface");
    pen.fillRect(left, top, wide, 20);
    pen.fillStyle = context.colour("mark");
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillText(text, left + 6, top + 10.5);
  }

  function paint() {
    const {values, rows, columns, low, high} = data;
    const colours = new Uint32Array(palette(data.kind, isDark(context)).buffer);
    if (!image || image.width !== columns || image.height !== rows) {
      cells.width = columns;
      cells.height = rows;
      image = cells.getContext("2d").createImageData(columns, rows);
    }
    const pixels = new Uint32Array(image.data.buffer), scale = 255 / (high - low || 1);
    for (let cell = 0; cell < pixels.length; ++cell) {
      const index = (values[cell] - low) * scale;
      pixels[cell] = colours[index > 255 ? 255 : index > 0 ? Math.round(index) : 0];
    }
    cells.getContext("2d").putImageData(image, 0, 0);
  }

  picture.canvas.addEventListener("pointermove", (event) => {
    if (!data || !box) return;
    const column = Math.floor((event.offsetX - box.x) / box.width * data.columns);
    const row = Math.floor((event.offsetY - box.y) / box.height * data.rows);
    tip.hidden = column < 0 || row < 0 || column >= data.columns || row >= data.rows;
    if (tip.hidden) return;
    const at = (scale, cell) => `${scale?.label ?? ""} ${format((scale?.first ?? 0) + cell * (scale?.step ?? 1))}`.trim();
    tip.textContent = `${at(data.x, column)}, ${at(data.y, row)}: ${format(data.values[row * data.columns + column])}`;
    tip.style.left = `${Math.min(event.offsetX + 14, picture.node.clientWidth - tip.offsetWidth - 4)}px`;
    tip.style.top = `${event.offsetY + 16}px`;
  });
  picture.canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  picture.node.append(tip);

  return {
    ...picture,
    set(next) {
      data = next;
      paint();
      picture.redraw();
    },
  };
}
