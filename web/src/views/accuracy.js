// Rounded angles against exact ones, at a position that the reader types.

import {dashes, lineChart, seriesColour} from "../charts.js";
import {specArguments, specControls, specDefaults} from "../spec.js";
import {card, chips, columns, csvOf, el, figure, format, more, slider, table} from "../ui.js";

const kinds = ["float32", "bfloat16_frequencies", "bfloat16", "float16"];

export const view = {
  id: "accuracy",
  defaults: {...specDefaults, position: 50000, pair: 0, angles: kinds.join(",")},

  create(host, context) {
    const {engine, text} = context;
    let answer = null;
    // A type that has no angle this large has a note instead of numbers.
    const drawn = () => answer.rows.filter(({error}) => error);
    const chart = lineChart(context, {label: text("chart_label"), name: "accuracy-chart", height: 400});
    const largest = table({caption: text("largest_title"), name: "accuracy-table"});
    const notes = el("div", {"data-test": "accuracy-notes"});
    const onePair = table({caption: text("pair_title"), name: "accuracy-pair"});

    columns(host, [
      slider(context, "position", {label: text("position"), hint: text("position_hint"), integer: true,
                                   stops: [0, ...Array.from({length: 25}, (_, power) => 2 ** power)]}),
      chips(context, "angles", {label: text("angles"), items: kinds.map((value, index) =>
        ({value, label: text(`kind_${value}`), colour: seriesColour(context, index)}))}),
      more(context, ...specControls(context), slider(context, "pair", {label: text("pair_shown"), min: 0, max: 127})),
    ], [
      card(el("h2", {text: text("largest_title")}), largest.node, notes),
      figure(context, {
        name: "errors", title: text("chart_title"), picture: chart, note: text("chart_note"),
        csv: () => csvOf(["pair", "exact_angle", ...drawn().flatMap(({angles}) => [`${angles}_angle`, `${angles}_error`, `${angles}_cos_error`, `${angles}_sin_error`])],
          Array.from(answer.exact, (exact, pair) => [pair, exact,
            ...drawn().flatMap((row) => [row.values[pair], row.error[pair], row.cos_error[pair], row.sin_error[pair]])])),
      }),
      card(el("h2", {text: text("pair_title")}), onePair.node),
    ]);

    // Where a list of errors is largest.
    function largestOf(errors) {
      let at = 0;
      errors.forEach((error, pair) => { if (Math.abs(error) > Math.abs(errors[at])) at = pair; });
      return {at, value: Math.abs(errors[at])};
    }

    return {
      update(state) {
        const chosen = kinds.filter((kind) => state.angles.split(",").includes(kind));
        answer = engine.call("angle_errors", {...specArguments(context, state), position: state.position, angles: chosen});
        const rows = drawn(), pair = Math.min(state.pair, answer.exact.length - 1);
        chart.set({
          x: {label: text("pair")}, y: {label: text("error_axis"), log: true},
          series: rows.map((row) => {
            const index = kinds.indexOf(row.angles);
            return {label: text(`kind_${row.angles}`), x: Array.from(row.error, (_, at) => at),
                    y: Array.from(row.error, (error) => error === 0 ? NaN : Math.abs(error)),
                    colour: seriesColour(context, index), dash: dashes[index], points: true};
          }),
        });
        largest.show([text("angles"), text("largest"), text("largest_pair"), text("largest_cos"), text("largest_sin")],
          rows.map((row) => {
            const angle = largestOf(row.error);
            return [text(`kind_${row.angles}`), format(angle.value), String(angle.at), format(largestOf(row.cos_error).value),
                    format(largestOf(row.sin_error).value)];
          }));
        notes.replaceChildren(...answer.rows.filter(({note}) => note).map(({angles, note}) =>
          el("p", {class: "note"}, `${text(`kind_${angles}`)}: `, el("span", {lang: "en", text: note}))));
        onePair.show([text("pair_of", {pair}), text("angle"), text("error"), text("cos_error"), text("sin_error")], [
          [text("kind_exact"), format(answer.exact[pair], 8), "–", "–", "–"],
          ...rows.map((row) => [text(`kind_${row.angles}`), format(row.values[pair], 8),
                                ...[row.error, row.cos_error, row.sin_error].map((errors) => format(errors[pair]))]),
        ]);
        context.announce(text("said", {position: state.position,
          errors: rows.map((row) => `${text(`kind_${row.angles}`)} ${format(row.largest, 3)}`).join(", ")}));
      },
      destroy: () => chart.destroy(),
    };
  },
};
