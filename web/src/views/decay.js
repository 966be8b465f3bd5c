// How scores fall with the distance: (35) and its bound (36), (37); rotary and sinusoidal products as pictures.

import {lineChart} from "../charts.js";
import {heatmap} from "../heatmap.js";
import {specControls, specDefaults, specOf} from "../spec.js";
import {card, checkbox, columns, csvOf, el, facts, figure, format, slider} from "../ui.js";

export const view = {
  id: "decay",
  defaults: {...specDefaults, longest: 256, tokens: 96, step: 1, compare: false,
             family2: "", head_dim2: 128, base2: 500000},

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
        const {values, tokens} = drawn[name], positions = Array.from({length: tokens}, (_, at) => at * context.state.step);
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
      slider(context, "longest", {label: text("longest"), stops: [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536], integer: true}),
      slider(context, "tokens", {label: text("tokens"), min: 16, max: 192, step: 8}),
      slider(context, "step", {label: text("step"), stops: [1, 2, 4, 8, 16, 32, 64, 128, 256], integer: true}),
    ], [
      card(readout.node),
      figure(context, {
        name: "curve", title: text("curve_title"), picture: chart, note: text("curve_note"),
        csv: () => csvOf(["distance", ...curves.flatMap((_, at) => [`value_${at + 1}`, `bound_${at + 1}`])],
          Array.from(curves[0].distance, (distance, row) => [distance, ...curves.flatMap(({value, bound}) => [value[row], bound[row]])])),
      }),
      el("div", {class: "pair"}, mapFigure("rope"), mapFigure("sinusoidal"), secondMap),
      el("p", {class: "note", html: text("maps_note")}),
    ]);

    // The colours end at the size of the picture's largest value, so that zero keeps the background's colour.
    function drawMap(name, kind, spec, state) {
      const {values, tokens} = drawn[name] = engine.call("map", {kind, spec, tokens: state.tokens, step: state.step});
      const most = values.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
      maps[name].set({values, rows: tokens, columns: tokens, kind: "diverging", low: -most, high: most,
                      x: {label: text("key_position"), step: state.step}, y: {label: text("query_position"), step: state.step}});
    }

    return {
      update(state) {
        const specs = [specOf(context, state), ...(state.compare ? [specOf(context, state, "2")] : [])];
        curves = specs.map((spec) => engine.call("decay", {spec, longest: state.longest, points: Math.min(state.longest + 1, 513)}));
        chart.set({
          x: {label: text("distance")}, y: {label: text("score")},
          series: curves.flatMap(({distance, value, bound}, at) => {
            const ending = curves.length > 1 ? ` ${at ? "B" : "A"}` : "";
            return [{label: text("value") + ending, x: distance, y: value, colour: context.colour(`series-${2 * at + 1}`), dash: []},
                    {label: text("bound") + ending, x: distance, y: bound, colour: context.colour(`series-${2 * at + 2}`), dash: [7, 4]}];
          }),
        });
        drawMap("rope", "rope", specs[0], state);
        drawMap("sinusoidal", "sinusoidal", specs[0], state);
        if (state.compare) drawMap("rope2", "rope", specs[1], state);
        const last = curves[0].distance.length - 1;
        readout.show([
          {name: "score-at-zero", label: text("score_at", {distance: 0}), value: curves[0].value[0]},
          {name: "score-at-longest", label: text("score_at", {distance: curves[0].distance[last]}), value: curves[0].value[last]},
          {name: "bound-at-longest", label: text("bound_at", {distance: curves[0].distance[last]}), value: curves[0].bound[last]},
        ]);
        context.announce(text("said", {distance: curves[0].distance[last], score: format(curves[0].value[last]), bound: format(curves[0].bound[last])}));
      },
      destroy() {
        chart.destroy();
        for (const map of Object.values(maps)) map.destroy();
      },
    };
  },
};
