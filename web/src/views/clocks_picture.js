// The pictures of the view `clocks`. All numbers are the engine's; this file places pixels.

import {format} from "../ui.js";

const gap = 12, foot = 26;

function grid(width, pairs) {
  const wanted = pairs <= 4 ? 190 : pairs <= 8 ? 150 : pairs <= 16 ? 112 : pairs <= 32 ? 90 : 72;
  const most = Math.max(pairs <= 4 ? 2 : 4, Math.floor((width + gap) / (Math.min(wanted, width / 4) + gap)));
  // Of the numbers of columns that fit, the one that leaves the fewest empty places in the last row.
  let columns = Math.min(pairs, most);
  const empty = (count) => (count - pairs % count) % count;
  for (let count = columns - 1; count > most * 0.6; --count) if (empty(count) < empty(columns)) columns = count;
  const size = Math.min(wanted * 1.35, (width - (columns - 1) * gap) / columns);
  return {columns, size, rows: Math.ceil(pairs / columns)};
}

// The faces, the tracks of the bars and the numbers, which stay while the arrows move.
let backdrop = {key: "", canvas: null};

function drawFaces(pen, width, height, pairs, colour) {
  const density = pen.getTransform().a, key = JSON.stringify([width, height, pairs, density, colour]);
  if (key !== backdrop.key) {
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(width * density);
    canvas.height = Math.round(height * density);
    backdrop = {key, canvas};
    const still = canvas.getContext("2d");
    still.scale(density, density);
    const {size} = grid(width, pairs), radius = size / 2 - 2;
    still.font = `${size > 90 ? 12 : 10}px system-ui, sans-serif`;
    still.textAlign = "center";
    still.textBaseline = "top";
    places(width, pairs).forEach(([x, y], pair) => {
      still.lineWidth = 1.2;
      still.fillStyle = colour.raised;
      still.strokeStyle = colour.line;
      still.beginPath();
      still.arc(x, y, radius, 0, 2 * Math.PI);
      still.fill();
      still.moveTo(x + radius, y);
      still.lineTo(x + radius - 5, y);
      still.stroke();
      const top = y + radius + 8;
      still.fillStyle = colour.grid;
      still.fillRect(x - radius, top, 2 * radius, 5);
      still.fillStyle = colour.muted;
      still.fillRect(x - 0.5, top - 2, 1, 9);
      if (size > 50) still.fillText(String(pair), x, top + 9);
    });
  }
  pen.drawImage(backdrop.canvas, 0, 0, width, height);
}

// The centre of each clock.
function places(width, pairs) {
  const {columns, size} = grid(width, pairs), left = (width - columns * size - (columns - 1) * gap) / 2;
  return Array.from({length: pairs}, (_, i) =>
    [left + (i % columns) * (size + gap) + size / 2, Math.floor(i / columns) * (size + gap + foot) + size / 2]);
}

// One arrow a clock, all in one stroke and one fill. tips: dx, dy of each.
function arrows(pen, centres, tips, colour, width) {
  const shafts = new Path2D(), heads = new Path2D();
  centres.forEach(([x, y], i) => {
    const dx = tips[2 * i], dy = tips[2 * i + 1], long = Math.hypot(dx, dy);
    if (long < 0.5) return;
    const head = Math.min(9, 3 + width * 2, long), ux = dx / long, uy = dy / long;
    shafts.moveTo(x, y);
    shafts.lineTo(x + dx - ux * head * 0.7, y + dy - uy * head * 0.7);
    heads.moveTo(x + dx, y + dy);
    heads.lineTo(x + dx - ux * head - uy * head * 0.5, y + dy - uy * head + ux * head * 0.5);
    heads.lineTo(x + dx - ux * head + uy * head * 0.5, y + dy - uy * head - ux * head * 0.5);
    heads.closePath();
  });
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = width;
  pen.lineCap = "round";
  pen.stroke(shafts);
  pen.fill(heads);
}

// answer: of the engine's `rotate`; pair i is features 2i and 2i + 1. Angles grow counterclockwise.
export function drawClocks(pen, width, height, answer, vectors, context) {
  const {q, k, pair_scores: scores} = answer, pairs = scores.length;
  const colour = Object.fromEntries(["query", "key", "line", "grid", "muted", "text", "good", "mark", "raised"]
    .map((name) => [name, context.colour(name)]));
  drawFaces(pen, width, height, pairs, colour);
  // The longest arrow of all reaches the rim.
  let reach = 0;
  for (const v of [vectors.q, vectors.k]) for (let i = 0; i < pairs; ++i) reach = Math.max(reach, Math.hypot(v[2 * i], v[2 * i + 1]));
  const {size} = grid(width, pairs), radius = size / 2 - 2, scale = reach ? radius * 0.94 / reach : 0;
  const stroke = size > 90 ? 2.6 : size > 60 ? 2 : 1.6, centres = places(width, pairs);
  // Down is positive on a canvas.
  const pixels = (values) => values.map((value, at) => at % 2 ? -value * scale : value * scale);
  const queries = pixels(q), keys = pixels(k);

  // The wedge between the arrows keeps its shape while both rotate.
  const wedges = new Path2D(), dots = new Path2D(), bars = [new Path2D(), new Path2D()];
  centres.forEach(([x, y], i) => {
    const from = Math.atan2(keys[2 * i + 1], keys[2 * i]);
    let between = Math.atan2(queries[2 * i + 1], queries[2 * i]) - from;
    if (between > Math.PI) between -= 2 * Math.PI;
    if (between < -Math.PI) between += 2 * Math.PI;
    wedges.moveTo(x, y);
    wedges.arc(x, y, radius * 0.6, from, from + between, between < 0);
    wedges.closePath();
    dots.moveTo(x + stroke, y);
    dots.arc(x, y, stroke, 0, 2 * Math.PI);
    // The pair's part of the score: to the right if positive, as long as the half clock at most.
    const long = reach ? scores[i] / (reach * reach) * radius : 0;
    bars[long < 0 ? 1 : 0].rect(Math.min(x, x + long), y + radius + 8, Math.abs(long), 5);
  });
  pen.globalAlpha = 0.2;
  pen.fillStyle = colour.mark;
  pen.fill(wedges);
  pen.globalAlpha = 1;
  arrows(pen, centres, keys, colour.key, stroke);
  arrows(pen, centres, queries, colour.query, stroke);
  pen.fillStyle = colour.text;
  pen.fill(dots);
  pen.fillStyle = colour.good;
  pen.fill(bars[0]);
  pen.fillStyle = colour.mark;
  pen.fill(bars[1]);
}

drawClocks.height = (width, pairs) => {
  const {rows, size} = grid(width, pairs);
  return rows * (size + foot) + (rows - 1) * gap;
};

// The score of each distance as a line, with a dot at the distance that is shown.
export function drawScores(pen, width, height, scores, distance, score, context) {
  const edge = {left: 52, right: 12, top: 14, bottom: 34};
  const low = Math.min(0, ...scores), high = Math.max(0, ...scores), span = high - low || 1;
  const x = (at) => edge.left + at / (scores.length - 1) * (width - edge.left - edge.right);
  const y = (value) => height - edge.bottom - (value - low) / span * (height - edge.top - edge.bottom);
  pen.font = "12px system-ui, sans-serif";
  pen.strokeStyle = context.colour("line");
  pen.fillStyle = context.colour("muted");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const value of new Set([low, 0, high])) {
    pen.strokeStyle = context.colour(value === 0 ? "line" : "grid");
    pen.beginPath();
    pen.moveTo(edge.left, y(value));
    pen.lineTo(width - edge.right, y(value));
    pen.stroke();
    if (value === 0 || Math.abs(y(value) - y(0)) > 14) pen.fillText(format(value, 3), edge.left - 7, y(value));
  }
  pen.textAlign = "center";
  pen.textBaseline = "top";
  for (let at = 0; at < scores.length; at += 32) if (width > 560 || at % 64 === 0) pen.fillText(String(at), x(at), height - edge.bottom + 4);
  pen.fillText(context.text("distance"), x((scores.length - 1) / 2), height - 14);
  pen.strokeStyle = context.colour("good");
  pen.lineWidth = 2;
  pen.lineJoin = "round";
  pen.beginPath();
  scores.forEach((value, at) => at ? pen.lineTo(x(at), y(value)) : pen.moveTo(x(at), y(value)));
  pen.stroke();
  pen.strokeStyle = context.colour("mark");
  pen.setLineDash([4, 4]);
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x(distance), edge.top);
  pen.lineTo(x(distance), height - edge.bottom);
  pen.stroke();
  pen.setLineDash([]);
  pen.fillStyle = context.colour("mark");
  pen.beginPath();
  pen.arc(x(distance), y(score), 6, 0, 2 * Math.PI);
  pen.fill();
}
