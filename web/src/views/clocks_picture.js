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

function arrow(pen, x, y, dx, dy, colour, width) {
  const long = Math.hypot(dx, dy);
  if (long < 0.5) return;
  const head = Math.min(9, 3 + width * 2, long), ux = dx / long, uy = dy / long;
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = width;
  pen.lineCap = "round";
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(x + dx - ux * head * 0.7, y + dy - uy * head * 0.7);
  pen.stroke();
  pen.beginPath();
  pen.moveTo(x + dx, y + dy);
  pen.lineTo(x + dx - ux * head - uy * head * 0.5, y + dy - uy * head + ux * head * 0.5);
  pen.lineTo(x + dx - ux * head + uy * head * 0.5, y + dy - uy * head - ux * head * 0.5);
  pen.fill();
}

// answer: of the engine's `rotate`; pair i is features 2i and 2i + 1. Angles grow against the hands of a clock.
export function drawClocks(pen, width, answer, vectors, context) {
  const {q, k, pair_scores: scores} = answer, pairs = scores.length;
  const {columns, size} = grid(width, pairs);
  const colour = Object.fromEntries(["query", "key", "line", "grid", "muted", "text", "good", "mark", "raised"]
    .map((name) => [name, context.colour(name)]));
  // The longest arrow of all reaches the rim.
  let reach = 0;
  for (const v of [vectors.q, vectors.k]) for (let i = 0; i < pairs; ++i) reach = Math.max(reach, Math.hypot(v[2 * i], v[2 * i + 1]));
  const radius = size / 2 - 2, scale = reach ? radius * 0.94 / reach : 0, stroke = size > 90 ? 2.6 : size > 60 ? 2 : 1.6;
  const left = (width - columns * size - (columns - 1) * gap) / 2;
  pen.font = `${size > 90 ? 12 : 10}px system-ui, sans-serif`;
  for (let i = 0; i < pairs; ++i) {
    const x = left + (i % columns) * (size + gap) + size / 2;
    const y = Math.floor(i / columns) * (size + gap + foot) + size / 2;
    const [qx, qy, kx, ky] = [q[2 * i], -q[2 * i + 1], k[2 * i], -k[2 * i + 1]].map((value) => value * scale);
    pen.lineWidth = 1.2;
    pen.fillStyle = colour.raised;
    pen.strokeStyle = colour.line;
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.fill();
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x + radius, y);
    pen.lineTo(x + radius - 5, y);
    pen.stroke();
    // The wedge between the arrows keeps its shape while both rotate.
    const from = Math.atan2(ky, kx), to = Math.atan2(qy, qx);
    let between = to - from;
    if (between > Math.PI) between -= 2 * Math.PI;
    if (between < -Math.PI) between += 2 * Math.PI;
    pen.globalAlpha = 0.2;
    pen.fillStyle = colour.mark;
    pen.beginPath();
    pen.moveTo(x, y);
    pen.arc(x, y, radius * 0.6, from, from + between, between < 0);
    pen.closePath();
    pen.fill();
    pen.globalAlpha = 1;
    arrow(pen, x, y, kx, ky, colour.key, stroke);
    arrow(pen, x, y, qx, qy, colour.query, stroke);
    pen.fillStyle = colour.text;
    pen.beginPath();
    pen.arc(x, y, stroke * 0.9, 0, 2 * Math.PI);
    pen.fill();
    // The pair's part of the score: to the right if positive, as long as the half clock at most.
    const most = reach * reach, long = most ? scores[i] / most * radius : 0, top = y + radius + 8;
    pen.fillStyle = colour.grid;
    pen.fillRect(x - radius, top, 2 * radius, 5);
    pen.fillStyle = scores[i] < 0 ? colour.mark : colour.good;
    pen.fillRect(Math.min(x, x + long), top, Math.abs(long), 5);
    pen.fillStyle = colour.muted;
    pen.fillRect(x - 0.5, top - 2, 1, 9);
    if (size > 50) {
      pen.textAlign = "center";
      pen.textBaseline = "top";
      pen.fillText(String(i), x, top + 9);
    }
  }
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
