// The two pair layouts and the permutation between them, step by step on a published example.

import {startPicture} from "./layouts_picture.js";
import {seriesColour} from "../charts.js";
import {button, card, columns, csvOf, el, facts, figure, select, slider, table} from "../ui.js";

// The example's keys count 0, 1, 2, ...: 5 tokens of 8 features.
const width = 8, tokens = 5, steps = 5;
const features = Array.from({length: width}, (_, feature) => feature);
const keyOf = (token) => features.map((feature) => width * token + feature);

const four = (value) => value.toFixed(4).replace("-", "−");
const two = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(2)).replace("-", "−");

export const view = {
  id: "layouts",
  defaults: {token: 1, position: 1, base: 10000, step: 1},

  create(host, context) {
    const {engine, text} = context;
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("role", "img");
    svg.setAttribute("class", "layouts-picture");
    svg.dataset.test = "layouts-picture";
    const caption = el("p", {class: "step", "data-test": "step-text"});
    const readout = facts(), numbers = table({caption: text("numbers"), name: "layouts-table"});
    let rows = [];

    const move = (by) => context.set({step: Math.min(steps, Math.max(1, context.state.step + by))});
    const back = button(text("previous"), () => move(-1), {name: "previous"});
    const forth = button(text("next"), () => move(1), {name: "next", kind: "primary"});
    context.bind((state) => {
      back.setAttribute("aria-disabled", String(state.step === 1));
      forth.setAttribute("aria-disabled", String(state.step === steps));
    });

    columns(host, [
      slider(context, "step", {label: text("step"), min: 1, max: steps}),
      el("div", {class: "row"}, back, forth),
      select(context, "token", {label: text("token"), items: Array.from({length: tokens}, (_, token) =>
        ({value: token, label: text("token_item", {token, first: keyOf(token)[0], last: keyOf(token)[width - 1]})}))}),
      slider(context, "position", {label: text("position"), min: 0, max: 64, hint: text("position_hint")}),
      slider(context, "base", {label: text("base"), integer: false, stops: [10, 100, 1000, 10000, 100000, 500000, 1000000]}),
    ], [
      figure(context, {
        name: "layouts", title: text("picture_title"), note: text("picture_note"),
        picture: {node: el("div", {class: "layouts"}, caption, svg), image: () => svg},
        csv: () => csvOf(["row", ...features.map((feature) => `feature_${feature}`)], rows.map(({name, values}) => [name, ...values])),
      }),
      card(el("h2", {text: text("angles_title")}), readout.node),
      card(el("h2", {text: text("numbers")}), numbers.node),
    ]);

    function draw(step, x, answer) {
      const {permutation} = answer, pairs = {interleaved: answer.interleaved.pairs, half: answer.half.pairs};
      const pairIn = (layout) => (column) => pairs[layout].findIndex((pair) => pair.includes(column));
      const near = pairIn("interleaved"), far = pairIn("half");
      const permute = (values) => permutation.map((source) => values[source]), named = (sources) => sources.map((source) => `x${source}`);
      const picture = startPicture(svg, context.colour, (pair) => seriesColour(context, pair));
      const rotation = (layout, from, to, pairOf, sources) => {
        picture.label(12, text(layout));
        picture.arcs(66, pairs[layout], -1);
        picture.row(66, from.map(two), pairOf);
        picture.names(100, named(sources));
        picture.lines(104, 140, features, pairOf);
        picture.row(140, to.map(two), pairOf);
        picture.label(178, text("rotated"));
        picture.finish(186);
      };
      if (step === 1) {
        picture.label(12, text("interleaved"));
        picture.arcs(40, pairs.interleaved, -1);
        picture.row(40, x.map(two), near);
        picture.names(74, named(features));
        picture.label(106, text("half"));
        picture.row(114, x.map(two), far);
        picture.arcs(136, pairs.half, 1);
        picture.finish(186);
      } else if (step === 2) {
        rotation("interleaved", x, answer.interleaved.rotated, near, features);
      } else if (step === 3) {
        rotation("half", x, answer.half.rotated, far, features);
      } else if (step === 4) {
        picture.names(16, named(features));
        picture.row(22, x.map(two), near);
        picture.lines(44, 140, permutation, far);
        picture.row(140, permute(x).map(two), far);
        picture.names(176, named(permutation));
        picture.finish(186);
      } else {
        rotation("half", permute(x), answer.rotated_permuted, far, permutation);
      }
    }

    return {
      update(state) {
        const x = keyOf(state.token);
        const answer = engine.call("layouts", {head_dim: width, base: state.base, position: state.position, values: x});
        answer.permutation = Array.from(answer.permutation);
        for (const part of [answer.interleaved, answer.half]) part.rotated = Array.from(part.rotated);
        answer.rotated_permuted = Array.from(answer.rotated_permuted);
        const permute = (values) => answer.permutation.map((source) => values[source]);
        rows = [
          {name: "x", values: x},
          {name: "interleaved", values: answer.interleaved.rotated},
          {name: "half", values: answer.half.rotated},
          {name: "permuted", values: permute(x)},
          {name: "permuted_half", values: answer.rotated_permuted},
          {name: "interleaved_permuted", values: permute(answer.interleaved.rotated)},
        ];
        draw(state.step, x, answer);
        caption.textContent = text(`step${state.step}`);
        svg.setAttribute("aria-label", text("picture_label", {step: state.step, text: text(`step${state.step}`)}));
        readout.show(Array.from(answer.angles, (angle, pair) =>
          ({name: `angle-${pair}`, label: text("angle", {pair}), value: angle})));
        numbers.show([text("feature"), ...features.map(String)],
          rows.map(({name, values}) => [text(`row_${name}`), ...values.map(four)]));
        context.announce(text("said", {step: state.step, text: text(`step${state.step}`)}));
      },
    };
  },
};
