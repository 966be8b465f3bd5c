// The cos/sin table as two pictures, and the wavelength of each pair with the trained length.

import {lineChart} from "../charts.js";
import {heatmap} from "../heatmap.js";
import {specControls, specArguments, specDefaults} from "../spec.js";
import {card, columns, csvOf, facts, figure, format, more, slider} from "../ui.js";

// [positions, pairs] to [pairs, positions]: the picture has positions from left to right.
function across(values, count, pairs) {
  const result = new Float64Array(values.length);
  for (let position = 0; position < count; ++position) {
    for (let pair = 0; pair < pairs; ++pair) result[pair * count + position] = values[position * pairs + pair];
  }
  return result;
}

export const view = {
  id: "table",
  defaults: {...specDefaults, family: "Llama 2 7B", first: 0, count: 512},

  create(host, context) {
    const {engine, text} = context;
    let frequencies = null, table = null;
    const height = (width) => width < 600 ? 250 : 300;
    const parts = {cos: heatmap(context, {label: text("cos_label"), name: "table-cos", height}),
                   sin: heatmap(context, {label: text("sin_label"), name: "table-sin", height})};
    const chart = lineChart(context, {label: text("wavelengths_label"), name: "table-wavelengths"});
    const readout = facts();

    const tableFigure = (part) => figure(context, {
      name: part, title: text(`${part}_title`), picture: parts[part],
      csv: () => csvOf(["position", ...Array.from({length: table.pairs}, (_, pair) => `pair_${pair}`)],
        Array.from({length: table.count}, (_, row) =>
          [context.state.first + row, ...table[part].subarray(row * table.pairs, (row + 1) * table.pairs)])),
    });
    columns(host, [
      ...specControls(context),
      more(context, slider(context, "first", {label: text("first"), stops: [0, ...Array.from({length: 18}, (_, power) => 2 ** power)], integer: true}),
      slider(context, "count", {label: text("count"), stops: [32, 64, 128, 256, 512, 1024, 2048, 4096, 8192], integer: true})),
    ], [
      card(readout.node),
      tableFigure("cos"),
      tableFigure("sin"),
      figure(context, {
        name: "wavelengths", title: text("wavelengths_title"), picture: chart, note: text("wavelengths_note"),
        csv: () => csvOf(["pair", "frequency", "wavelength"],
          Array.from(frequencies.frequencies, (value, pair) => [pair, value, frequencies.wavelengths[pair]])),
      }),
    ]);

    return {
      update(state) {
        // Dynamic NTK and LongRoPE depend on the context: the one that the last position needs.
        const reach = {...specArguments(context, state), context: state.first + state.count};
        frequencies = engine.call("frequencies", reach);
        table = engine.call("table", {...reach, first: state.first, count: state.count});
        const trained = frequencies.trained_length;
        const marks = trained === null ? [] : [{axis: "x", at: trained, label: text("trained_at", {length: trained})}];
        for (const [part, picture] of Object.entries(parts)) {
          picture.set({
            values: across(table[part], table.count, table.pairs), rows: table.pairs, columns: table.count,
            kind: "diverging", low: -frequencies.amplitude, high: frequencies.amplitude,
            x: {label: text("position"), first: state.first}, y: {label: text("pair")}, marks,
          });
        }
        const wavelengths = frequencies.wavelengths, pairs = wavelengths.length;
        chart.set({
          x: {label: text("pair")}, y: {label: text("wavelength_axis"), log: true},
          series: [{label: text("wavelength"), x: Array.from(wavelengths, (_, pair) => pair), y: wavelengths, points: true,
                    pointColour: (pair) => context.colour(trained !== null && wavelengths[pair] > trained ? "series-2" : "series-1")}],
          markers: trained === null ? [] : [{axis: "y", at: trained, label: text("trained_at", {length: trained})}],
        });
        readout.show([
          {name: "rotary-dim", label: text("rotary_dim"), value: frequencies.rotary_dim},
          {name: "base", label: text("base"), value: frequencies.base},
          {name: "scaling", label: text("scaling"), text: frequencies.scaling === "default" ? text("scaling_default") : frequencies.scaling ?? "–"},
          {name: "amplitude", label: text("amplitude"), value: frequencies.amplitude},
          {name: "shortest", label: text("shortest"), value: wavelengths[0]},
          {name: "longest", label: text("longest"), value: wavelengths[pairs - 1]},
          {name: "trained", label: text("trained"), value: trained, text: trained === null ? text("not_stated") : String(trained)},
        ]);
        context.announce(text("said", {pairs, shortest: format(wavelengths[0]), longest: format(wavelengths[pairs - 1])}));
      },
      destroy() {
        parts.cos.destroy();
        parts.sin.destroy();
        chart.destroy();
      },
    };
  },
};
