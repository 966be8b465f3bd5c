// Line charts, drawn by Chart.js in the colours of the theme.

import {Chart, Legend, LinearScale, LineController, LineElement, LogarithmicScale, PointElement, Tooltip} from "chart.js";
import {el, format} from "./ui.js";

// Lines across the chart: [{axis: "x" | "y", at, label}].
const markers = {
  id: "markers",
  afterDatasetsDraw(chart, _, {items = [], colour, back}) {
    const {ctx: pen, chartArea: area, scales} = chart;
    for (const {axis, at, label} of items) {
      const place = scales[axis].getPixelForValue(at);
      const [low, high] = axis === "x" ? [area.left, area.right] : [area.top, area.bottom];
      if (!(place >= low && place <= high)) continue;
      pen.save();
      pen.strokeStyle = colour;
      pen.lineWidth = 1.5;
      pen.setLineDash([5, 4]);
      pen.beginPath();
      if (axis === "x") { pen.moveTo(place, area.top); pen.lineTo(place, area.bottom); }
      else { pen.moveTo(area.left, place); pen.lineTo(area.right, place); }
      pen.stroke();
      pen.setLineDash([]);
      pen.font = "600 12px system-ui, sans-serif";
      const wide = pen.measureText(label).width + 10;
      const x = axis === "x" ? (place + wide + 4 > area.right ? place - wide - 3 : place + 3) : area.left + 6;
      const y = axis === "x" ? area.top + 4 : (place - 22 < area.top ? place + 3 : place - 21);
      pen.fillStyle = back;
      pen.globalAlpha = 0.85;
      pen.fillRect(x, y, wide, 18);
      pen.globalAlpha = 1;
      pen.fillStyle = colour;
      pen.textAlign = "left";
      pen.textBaseline = "middle";
      pen.fillText(label, x + 5, y + 9.5);
      pen.restore();
    }
  },
};

Chart.register(Legend, LinearScale, LineController, LineElement, LogarithmicScale, PointElement, Tooltip, markers);

// Colours and dashes of the n-th line: apart by hue, by lightness and by pattern.
export const seriesColour = (context, index) => context.colour(`series-${index % 8 + 1}`);
export const dashes = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 4], [12, 4], [3, 2], [8, 3, 1, 3, 1, 3]];

// Options: label (for screen readers), name (data-test), height.
// set({x: {label, log?, min?, max?}, y: {...}, series: [{label, x, y, colour?, dash?, points?, pointColour?(index)}], markers?})
// x of a line rises.
export function lineChart(context, {label, name, height = 340}) {
  const canvas = el("canvas", {role: "img", "aria-label": label, "data-test": name});
  const node = el("div", {class: "chart", style: `height: ${height}px`}, canvas);
  const font = {family: getComputedStyle(document.body).fontFamily, size: 12};
  let chart = null;

  const scale = ({label: title, log, min, max}) => ({
    type: log ? "logarithmic" : "linear", min, max,
    title: {display: Boolean(title), text: title, color: context.colour("muted"), font},
    grid: {color: context.colour("grid"), borderColor: context.colour("line"), drawTicks: false},
    ticks: {
      color: context.colour("muted"), font, padding: 6, maxRotation: 0, autoSkipPadding: 14,
      callback(value) {
        if (!log) return format(value, 4);
        // A long logarithmic axis names the powers of ten, a short one also their 2 and 5 times.
        const digit = value.toExponential()[0];
        const power = Math.round(Math.log10(value));
        if (digit === "1" && (value >= 1e5 || value < 1e-3)) {
          return `10${power < 0 ? "⁻" : ""}${[...String(Math.abs(power))].map((n) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[n]).join("")}`;
        }
        return digit === "1" || (this.max < 200 * this.min && "25".includes(digit)) ? format(value, 1) : null;
      },
    },
  });
  // The line ends where the axis ends.
  const fitted = (axis, series) => ({
    min: Math.min(...series.map((line) => line.x[0])), max: Math.max(...series.map((line) => line.x[line.x.length - 1])), ...axis});

  return {
    node, canvas,
    image: () => canvas,
    describe: (text) => canvas.setAttribute("aria-label", text),
    set({x, y, series, markers: items = []}) {
      const data = {
        datasets: series.map((line, index) => ({
          label: line.label,
          data: Array.from(line.x, (value, at) => ({x: value, y: line.y[at]})),
          borderColor: line.colour ?? seriesColour(context, index),
          backgroundColor: line.colour ?? seriesColour(context, index),
          borderDash: line.dash ?? dashes[index % dashes.length],
          pointBackgroundColor: line.pointColour && Array.from(line.y, (_, at) => line.pointColour(at)),
          pointBorderColor: line.pointColour && Array.from(line.y, (_, at) => line.pointColour(at)),
          borderWidth: line.width ?? 2, pointRadius: line.points ? 2.5 : 0, pointHitRadius: 6, pointHoverRadius: 4,
          tension: 0,
        })),
      };
      const options = {
        animation: false, devicePixelRatio: Math.max(2, window.devicePixelRatio), responsive: true, maintainAspectRatio: false, parsing: false, normalized: true,
        interaction: {mode: "nearest", axis: "x", intersect: false},
        scales: {x: scale(series.length ? fitted(x, series) : x), y: scale(y)},
        plugins: {
          legend: {
            display: series.length > 1, position: "bottom", align: "start",
            labels: {
              font, usePointStyle: true, pointStyleWidth: 32, padding: 14,
              // The library's own labels lose the dashes.
              generateLabels: ({data}) => data.datasets.map(({label: text, borderColor, borderDash, borderWidth}, datasetIndex) => ({
                text, datasetIndex, strokeStyle: borderColor, lineDash: borderDash, lineWidth: Math.max(2, borderWidth), pointStyle: "line",
                fontColor: context.colour("text"), hidden: !chart?.isDatasetVisible(datasetIndex) && Boolean(chart)})),
            },
          },
          tooltip: {
            backgroundColor: context.colour("text"), titleColor: context.colour("surface"),
            bodyColor: context.colour("surface"), titleFont: {...font, weight: "600"}, bodyFont: font, padding: 10,
            displayColors: false,
            callbacks: {
              title: (points) => points.length ? `${x.label} ${format(points[0].parsed.x)}` : "",
              label: (point) => `${point.dataset.label}: ${format(point.parsed.y)}`,
            },
          },
          markers: {items, colour: context.colour("mark"), back: context.colour("surface")},
        },
      };
      if (chart) {
        chart.data = data;
        chart.options = options;
        chart.update("none");
      } else {
        chart = new Chart(canvas, {type: "line", data, options});
      }
    },
    destroy: () => chart?.destroy(),
  };
}
