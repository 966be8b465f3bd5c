// A canvas that keeps its sharpness at any width. draw(pen, width, height) works in CSS pixels.

import {el} from "./ui.js";

// height: a number, or height(width). label: what a screen reader says.
export function surface({label, height, draw, name}) {
  const canvas = el("canvas", {role: "img", "aria-label": label, "data-test": name});
  const holder = el("div", {class: "surface"}, canvas);
  const pen = canvas.getContext("2d");
  let width = 0;
  const redraw = () => {
    const wide = holder.clientWidth;
    if (!wide) return;
    width = wide;
    const tall = Math.round(typeof height === "function" ? height(wide) : height);
    const density = window.devicePixelRatio || 1;
    const columns = Math.round(wide * density), rows = Math.round(tall * density);
    if (canvas.width !== columns || canvas.height !== rows) {
      canvas.width = columns;
      canvas.height = rows;
      canvas.style.height = `${tall}px`;
    }
    pen.setTransform(density, 0, 0, density, 0, 0);
    pen.clearRect(0, 0, wide, tall);
    draw(pen, wide, tall);
  };
  // Drawn again at two pixels a CSS pixel, for a file.
  const image = () => {
    const {width: wide, height: tall} = canvas.getBoundingClientRect();
    const copy = el("canvas", {width: Math.round(2 * wide), height: Math.round(2 * tall)});
    const copyPen = copy.getContext("2d");
    copyPen.scale(2, 2);
    draw(copyPen, wide, tall);
    return copy;
  };
  const observer = new ResizeObserver(() => { if (holder.clientWidth !== width) redraw(); });
  observer.observe(holder);
  return {node: holder, canvas, image, redraw, describe: (text) => canvas.setAttribute("aria-label", text),
          destroy: () => observer.disconnect()};
}
