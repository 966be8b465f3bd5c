// How scores fall with the distance: (35), its bound (36), the mean of (37); rotary and sinusoidal products as pictures.

import {lineChart} from "../charts.js";
import {heatmap} from "../heatmap.js";
import {specControls, specArguments, specDefaults} from "../spec.js";
import {card, checkbox, chips, columns, csvOf, el, facts, figure, format, more, select, slider} from "../ui.js";

const lines = ["value", "bound", "mean"];
const patterns = {value: [], bound: [8, 4], mean: [2, 3]};

export const view = {
  id: "decay",
  defaults: {...specDefaults, longest: 256, lines: lines.join(","), axis: "log", tokens: 96, step: 1, seed: 0, compare: false,
             family2: "", head_dim2: 128, base2: 500000, layer2: ""},

  create(host, context) {
    const {engine, text} = context;
    const chart = lineChart(context, {label: text("curve_label"), name: "decay-curve", height: 380});
    const maps = {};
    for (const name of ["rope", "sinusoidal", "rope2"]) maps[name] = heatmap(context, {label: text(`${name}_label`), name: `decay-${name}`});
    const readout = facts();
    let curves = [], drawn = {};

    const mapFigure = (name) => figure(context, {
      name, title: text(`${name}_title`), picture: maps[name],
      csv: () => {
        const {values, tokens, step} = drawn[name], positions = Array.from({length: tokens}, (_, at) => at * step);
        return csvOf(["query", ...positions.map((position) => `key_${position}`)],
          positions.map((position, row) => [position, ...values.slice(row * tokens, (row + 1) * tokens)]));
      },
    });
    const second = el("div", {class: "nested"}, ...specControls(context, "2"));
    const secondMap = mapFigure("rope2");
    context.bind((state) => { second.hidden = secondMap.hidden = !state.compare; });

    columns(host, [
      ...specControls(context),
      checkbox(context, "compare", {label: text("compare")}),
      second,
      more(context,
        slider(context, "longest", {label: text("longest"), stops: Array.from({length: 12}, (_, power) => 32 * 2 ** power), integer: true}),
        chips(context, "lines", {label: text("lines"), items: lines.map((value, index) =>
          ({value, label: text(value), colour: context.colour(`series-${index + 1}`)}))}),
        select(context, "axis", {label: text("axis"), items: ["log", "linear"].map((value) => ({value, label: text(`axis_${value}`)}))}),
        slider(context, "tokens", {label: text("tokens"), min: 16, max: 192, step: 8}),
        slider(context, "step", {label: text("step"), stops: [1, 2, 4, 8, 16, 32, 64, 128, 256], integer: true}),
        slider(context, "seed", {label: text("seed"), min: 0, max: 99, hint: text("seed_hint")})),
    ], [
      card(readout.node),
      figure(context, {
        name: "curve", title: text("curve_title"), picture: chart, note: text("curve_note"),
        csv: () => csvOf(["distance", ...curves.flatMap((_, at) => lines.map((line) => `${line}_${at + 1}`))],
          Array.from(curves[0].distance, (distance, row) => [distance, ...curves.flatMap((curve) => lines.map((line) => curve[line][row]))])),
      }),
      el("div", {class: "pair"}, mapFigure("rope"), mapFigure("sinusoidal"), secondMap),
      el("p", {class: "note", html: text("maps_note")}),
    ]);

    // The colours reach from the picture's smallest value to its largest.
    function drawMap(name, kind, spec, state) {
      const {values, tokens} = drawn[name] = {step: state.step,
        ...engine.call("map", {kind, ...spec, tokens: state.tokens, step: state.step, seed: state.seed})};
      maps[name].set({
        values, rows: tokens, columns: tokens, kind: "sequential",
        low: values.reduce((least, value) => Math.min(least, value)), high: values.reduce((most, value) => Math.max(most, value)),
        x: {label: text("key_position"), step: state.step}, y: {label: text("query_position"), step: state.step}});
    }

    function drawCurves(state) {
      const shown = state.lines.split(",");
      const series = curves.flatMap((curve, at) => lines.filter((line) => shown.includes(line)).map((line) => ({
        label: text(line) + (curves.length > 1 ? ` ${"AB"[at]}` : ""),
        x: curve.distance,
        // A logarithmic axis has no place for scores of zero or less.
        y: state.axis === "log" ? curve[line].map((value) => value > 0 ? value : NaN) : curve[line],
        colour: context.colour(`series-${lines.indexOf(line) + 1 + 3 * at}`), dash: patterns[line],
      })));
      chart.set({x: {label: text("distance")}, y: {label: text("score"), log: state.axis === "log"}, series});
    }

    return {
      update(state) {
        const specs = [specArguments(context, state), ...(state.compare ? [specArguments(context, state, "2")] : [])];
        curves = specs.map((spec) => engine.call("decay", {...spec, longest: state.longest, points: 513}));
        drawCurves(state);
        drawMap("rope", "rope", specs[0], state);
        drawMap("sinusoidal", "sinusoidal", specs[0], state);
        if (state.compare) drawMap("rope2", "rope", specs[1], state);
        const last = curves[0].distance.length - 1;
        readout.show([
          {name: "score-at-zero", label: text("score_at", {distance: 0}), value: curves[0].value[0]},
          {name: "score-at-longest", label: text("score_at", {distance: state.longest}), value: curves[0].value[last]},
          {name: "bound-at-longest", label: text("bound_at", {distance: state.longest}), value: curves[0].bound[last]},
          {name: "mean-at-longest", label: text("mean_at", {distance: state.longest}), value: curves[0].mean[last]},
        ]);
        context.announce(text("said", {distance: state.longest, score: format(curves[0].value[last]), bound: format(curves[0].bound[last])}));
      },
      destroy() {
        chart.destroy();
        for (const map of Object.values(maps)) map.destroy();
      },
    };
  },
};
