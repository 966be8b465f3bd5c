// A query and a key as arrows, one clock a pair: (16), the score depends on the distance alone.

import {drawClocks, drawScores} from "./clocks_picture.js";
import {surface} from "../surface.js";
import {button, card, columns, csvOf, el, facts, figure, format, more, select, slider} from "../ui.js";
import {icons} from "../icons.js";

const longest = {position: 4096, distance: 256, pairs: 64};

// Pairs with different directions and lengths, repeated as often as needed. They are input; the engine rotates them.
const patterns = {
  spread: {
    q: [1, 0, 0.8, 0.5, 0.3, 0.9, -0.4, 0.8, 0.9, -0.3, 0.6, 0.6, -0.7, 0.4, 0.5, -0.8],
    k: [0.9, 0.4, 1, 0.1, 0.7, 0.6, 0.2, 0.9, 0.5, -0.7, 0.9, 0.2, -0.3, 0.8, 0.8, -0.4],
  },
  equal: {q: [1, 0], k: [1, 0]},
  opposite: {q: [1, 0], k: [-1, 0]},
};

const repeated = (pattern, count) => Array.from({length: count}, (_, at) => pattern[at % pattern.length]);

function vectorsOf(context, state) {
  if (state.vectors !== "own") {
    const pattern = patterns[state.vectors];
    return {q: repeated(pattern.q, 2 * state.pairs), k: repeated(pattern.k, 2 * state.pairs)};
  }
  return Object.fromEntries(["q", "k"].map((name) => {
    const words = state[name].trim().split(/[\s,;]+/).filter(Boolean);
    const bad = words.find((word) => !Number.isFinite(Number(word)));
    if (bad !== undefined) throw new Error(context.text("bad_number", {name, value: bad}));
    return [name, words.map(Number)];
  }));
}

export const view = {
  id: "clocks",
  defaults: {position: 24, distance: 6, pairs: 12, base: 10000, vectors: "spread", q: "1, 0, 0.5, 0.5", k: "1, 0, 0.5, 0.5"},

  create(host, context) {
    const {engine, text} = context;
    let answer = null, scores = null, scoresOf = "", curveOf = "", spec = null, vectors = null, playing = 0;

    const clocks = surface({
      label: text("clocks_label"), name: "clocks-picture",
      height: (width) => answer ? drawClocks.height(width, answer.pair_scores.length) : 300,
      draw: (pen, width, height) => { if (answer) drawClocks(pen, width, height, answer, vectors, context); },
    });
    const curve = surface({
      label: text("curve_label"), name: "clocks-curve", height: 190,
      draw: (pen, width, height) => { if (scores) drawScores(pen, width, height, scores, context.state.distance, answer.score, context); },
    });
    const readout = facts();

    // Again only when the vectors change: dragging costs one call a frame.
    function scoreCurve() {
      const key = JSON.stringify([spec, vectors]);
      if (key === scoresOf) return;
      scoresOf = key;
      scores = Array.from(engine.call("decay", {spec, ...vectors, longest: longest.distance, points: longest.distance + 1}).value);
    }

    const calm = matchMedia("(prefers-reduced-motion: reduce)");
    let last = 0;
    function step(now) {
      playing = requestAnimationFrame(step);
      if (calm.matches && now - last < 500) return;
      last = now;
      context.set({position: context.state.position >= longest.position ? 0 : context.state.position + 1});
    }
    const play = button(text("play"), () => {
      if (playing) cancelAnimationFrame(playing);
      playing = playing ? 0 : requestAnimationFrame(step);
      play.querySelector("svg").innerHTML = icons[playing ? "pause" : "play"];
      play.lastChild.textContent = text(playing ? "pause" : "play");
    }, {icon: "play", name: "play", kind: "primary"});

    const own = el("div", {class: "nested"}, ...["q", "k"].map((name) => {
      const field = el("input", {type: "text", class: "field", id: `clocks-${name}`, "data-control": name, spellcheck: "false",
                                 on: {input: () => context.set({[name]: field.value})}});
      context.bind((state) => { if (field.value !== state[name]) field.value = state[name]; });
      return el("div", {class: "control"}, el("label", {for: field.id, text: text(`own_${name}`)}), field);
    }));
    const pairs = slider(context, "pairs", {label: text("pairs"), min: 1, max: longest.pairs});
    context.bind((state) => {
      own.hidden = state.vectors !== "own";
      pairs.hidden = !own.hidden;
    });

    columns(host, [
      slider(context, "position", {label: text("position"), min: 0, max: longest.position, hint: text("position_hint")}),
      slider(context, "distance", {label: text("distance"), min: 0, max: longest.distance, hint: text("distance_hint")}),
      play,
      more(context,
        pairs,
        slider(context, "base", {label: text("base"), integer: false, stops: [10, 100, 1000, 10000, 100000, 500000, 1000000]}),
        select(context, "vectors", {label: text("vectors"),
                                    items: [...Object.keys(patterns), "own"].map((value) => ({value, label: text(`vectors_${value}`)}))}),
        own),
    ], [
      card(readout.node),
      figure(context, {
        name: "clocks", title: text("clocks_title"), picture: clocks, note: text("clocks_note"),
        csv: () => csvOf(["pair", "query_angle", "key_angle", "query_a", "query_b", "key_a", "key_b", "pair_score"],
          Array.from(answer.pair_scores, (score, i) => [i, answer.angles_q[i], answer.angles_k[i], answer.q[2 * i],
                                                        answer.q[2 * i + 1], answer.k[2 * i], answer.k[2 * i + 1], score])),
      }),
      figure(context, {
        name: "curve", title: text("curve_title"), picture: curve, note: text("curve_note"),
        csv: () => csvOf(["distance", "score"], scores.map((score, distance) => [distance, score])),
      }),
    ]);

    return {
      update(state) {
        vectors = vectorsOf(context, state);
        spec = {head_dim: vectors.q.length, base: state.base, layout: "interleaved"};
        answer = engine.call("rotate", {spec, ...vectors, query_position: state.position + state.distance, key_position: state.position});
        scoreCurve();
        readout.show([
          {name: "query-position", label: text("query_position"), value: state.position + state.distance},
          {name: "key-position", label: text("key_position"), value: state.position},
          {name: "score", label: text("score"), value: answer.score, main: true},
          {name: "score-of-distance", label: text("score_of_distance"), value: scores[state.distance], main: true},
        ]);
        clocks.redraw();
        if (curveOf !== scoresOf + state.distance) curve.redraw();
        curveOf = scoresOf + state.distance;
        if (!playing) context.announce(text("said", {query: state.position + state.distance, key: state.position, score: format(answer.score)}));
      },
      destroy() {
        cancelAnimationFrame(playing);
        clocks.destroy();
        curve.destroy();
      },
    };
  },
};
