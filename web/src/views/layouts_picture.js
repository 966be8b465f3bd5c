// Rows of boxes, one box a feature, joined by arcs (pairs) or lines (where a feature goes). The drawing is 400 units
// wide, so that its text can be read on a phone.

const svgNamespace = "http://www.w3.org/2000/svg";
const box = {width: 45, height: 22, gap: 4, left: 6};
const width = 2 * box.left + 8 * box.width + 7 * box.gap;

const centre = (column) => box.left + column * (box.width + box.gap) + box.width / 2;

// svg: emptied and drawn into. colour(name): of the theme. pairColour(pair): one for each pair.
export function startPicture(svg, colour, pairColour) {
  svg.replaceChildren();
  const add = (name, attributes, content) => {
    const element = document.createElementNS(svgNamespace, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (content !== undefined) element.textContent = content;
    svg.append(element);
  };
  const write = (x, y, size, fill, anchor, content) =>
    add("text", {x, y, "font-size": size, fill: colour(fill), "text-anchor": anchor,
                 "font-family": "system-ui, sans-serif"}, content);

  return {
    label: (y, content) => write(box.left, y, 12, "text", "start", content),

    // The box of column j has the colour of pair pairOf(j).
    row(y, values, pairOf) {
      values.forEach((value, column) => {
        add("rect", {x: centre(column) - box.width / 2, y, width: box.width, height: box.height, rx: 4,
                     fill: "none", stroke: pairColour(pairOf(column)), "stroke-width": 2});
        write(centre(column), y + box.height / 2 + 4, 11, "text", "middle", value);
      });
    },

    // The number of each column, small.
    names: (y, names) => names.forEach((name, column) => write(centre(column), y, 10, "muted", "middle", name)),

    // An arc for each pair of columns, above y (side -1) or below it (side 1).
    arcs(y, pairs, side) {
      const wide = pairs[0][1] - pairs[0][0] > 1;
      pairs.forEach(([a, b], pair) => {
        const from = centre(a), to = centre(b), end = y + side * (wide ? 34 + 9 * pair : 20);
        add("path", {d: `M ${from} ${y} C ${from} ${end}, ${to} ${end}, ${to} ${y}`, fill: "none",
                     stroke: pairColour(pair), "stroke-width": 2});
      });
    },

    // Column j of the lower row holds column from[j] of the upper row.
    lines(top, bottom, from, pairOf) {
      const middle = (top + bottom) / 2;
      from.forEach((source, column) => {
        const a = centre(source), b = centre(column);
        add("path", {d: `M ${a} ${top} C ${a} ${middle}, ${b} ${middle}, ${b} ${bottom}`, fill: "none",
                     stroke: pairColour(pairOf(column)), "stroke-width": 2});
      });
    },

    finish(height) {
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    },
  };
}
