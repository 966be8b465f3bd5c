// Attention maps of every encoding on the same q and k; two of them side by side, with their difference.

import {lineChart} from "../charts.js";
import {heatmap} from "../heatmap.js";
import {card, checkbox, columns, csvOf, el, facts, figure, format, more, select, slider} from "../ui.js";

const encodings = ["none", "shaw", "t5", "transformer_xl", "deberta", "tupe", "alibi", "rope", "xpos"];

export const view = {
  id: "attention",
  defaults: {tokens: 32, head_dim: 32, seed: 1, causal: true, first: "none", second: "rope", query: 24},

  create(host, context) {
    const {engine, text} = context;
    let answer = null, asked = "";
    const nameOf = (encoding) => text(`encoding_${encoding}`);
    const mapOf = (encoding) => answer.maps.find((map) => map.encoding === encoding) ?? answer.maps[0];

    const small = Object.fromEntries(encodings.map((encoding) =>
      [encoding, heatmap(context, {label: nameOf(encoding), name: `map-${encoding}`, compact: true})]));
    const tiles = encodings.map((encoding) => {
      const tile = el("button", {type: "button", class: "tile", "data-test": `tile-${encoding}`,
                                 on: {click: () => context.set({second: encoding})}},
        small[encoding].node, el("span", {text: nameOf(encoding)}));
      context.bind((state) => tile.setAttribute("aria-pressed", String(state.second === encoding)));
      return tile;
    });

    const large = Object.fromEntries(["first", "second", "difference"].map((name) =>
      [name, heatmap(context, {label: text(`${name}_title`), name: `attention-${name}`})]));
    const chart = lineChart(context, {label: text("row_label"), name: "attention-row", height: 360});
    const readout = facts();
    const values = (name) => name === "difference" ? answer.difference : mapOf(context.state[name]).probabilities;
    const mapFigure = (name) => figure(context, {
      name, title: text(`${name}_title`), picture: large[name], note: name === "difference" ? "" : text("colours_note"),
      csv: () => {
        const {tokens} = answer, keys = Array.from({length: tokens}, (_, key) => key);
        return csvOf(["query", ...keys.map((key) => `key_${key}`)],
          keys.map((query) => [query, ...values(name).subarray(query * tokens, (query + 1) * tokens)]));
      },
    });
    const figures = Object.fromEntries(Object.keys(large).map((name) => [name, mapFigure(name)]));
    const choose = (key) => select(context, key, {label: text(key), items: encodings.map((value) => ({value, label: nameOf(value)}))});

    columns(host, [
      choose("first"),
      choose("second"),
      slider(context, "query", {label: text("query"), min: 0, max: 63}),
      checkbox(context, "causal", {label: text("causal")}),
      more(context,
        slider(context, "tokens", {label: text("tokens"), min: 4, max: 64}),
        slider(context, "head_dim", {label: text("head_dim"), min: 2, max: 128, step: 2}),
        slider(context, "seed", {label: text("seed"), min: 0, max: 999})),
    ], [
      card(el("h2", {id: "gallery-title", text: text("gallery")}),
           el("div", {class: "tiles", role: "group", "aria-labelledby": "gallery-title"}, ...tiles)),
      card(readout.node),
      el("div", {class: "pair"}, figures.first, figures.second, figures.difference,
         figure(context, {
           name: "row", title: text("row_title"), picture: chart,
           csv: () => csvOf(["key", ...encodings], Array.from({length: answer.tokens}, (_, key) =>
             [key, ...encodings.map((encoding) => mapOf(encoding).probabilities[queryOf(context.state) * answer.tokens + key])])),
         })),
    ]);

    const queryOf = (state) => Math.min(state.query, answer.tokens - 1);

    const most = (map) => map.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
    // The first queries of a causal mask see few keys, with probabilities up to 1: they do not set the colours.
    const mostBelow = (map, tokens) => most(map.subarray(Math.floor(tokens / 2) * tokens));

    function drawMaps({tokens, first, second}) {
      const axes = {rows: tokens, columns: tokens, x: {label: text("key_axis")}, y: {label: text("query_axis")}};
      for (const {encoding, probabilities} of answer.maps) {
        small[encoding].set({...axes, values: probabilities, kind: "sequential", low: 0, high: mostBelow(probabilities, tokens)});
      }
      const highest = Math.max(mostBelow(values("first"), tokens), mostBelow(values("second"), tokens));
      for (const [name, encoding] of [["first", first], ["second", second]]) {
        figures[name].retitle(nameOf(encoding));
        large[name].describe(text("map_label", {name: nameOf(encoding)}));
        large[name].set({...axes, values: values(name), kind: "sequential", low: 0, high: highest});
      }
      const difference = text("difference_of", {first: nameOf(first), second: nameOf(second)}), widest = most(answer.difference);
      figures.difference.retitle(difference);
      large.difference.describe(difference);
      large.difference.set({...axes, values: answer.difference, kind: "diverging", low: -widest, high: widest});
    }

    return {
      update(state) {
        const {tokens, head_dim, seed, causal, first, second} = state;
        const request = {tokens, head_dim, seed, causal, encodings, compare: [first, second]};
        if (JSON.stringify(request) !== asked) {
          answer = engine.call("attention_maps", request);
          asked = JSON.stringify(request);
          drawMaps(state);
        }
        const query = queryOf(state), row = (name) => mapOf(state[name]).probabilities.subarray(query * tokens, (query + 1) * tokens);
        const keys = Array.from({length: tokens}, (_, key) => key);
        chart.set({
          x: {label: text("key_axis")}, y: {label: text("probability"), min: 0},
          series: (first === second ? ["first"] : ["first", "second"]).map((name) => ({
            label: nameOf(state[name]), x: keys, y: row(name), points: true,
            colour: context.colour(name === "first" ? "query" : "key"), dash: name === "first" ? [] : [7, 4]})),
        });
        const {largest} = answer;
        readout.show([
          {name: "largest-difference", label: text("largest_difference"), value: largest.value},
          {name: "largest-place", label: text("largest_place"), text: text("place", largest)},
          {name: "self-first", label: text("self_of", {name: nameOf(first), query}), value: row("first")[query]},
          {name: "self-second", label: text("self_of", {name: nameOf(second), query}), value: row("second")[query]},
        ]);
        context.announce(text("said", {first: nameOf(first), second: nameOf(second), ...largest, value: format(largest.value)}));
      },
      destroy() {
        for (const map of [...Object.values(small), ...Object.values(large)]) map.destroy();
        chart.destroy();
      },
    };
  },
};
