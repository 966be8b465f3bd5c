// The controls by which a view chooses a spec: a known family, or head_dim and base. State: family, head_dim, base.

import {el, select, slider} from "./ui.js";

export const specDefaults = {family: "", head_dim: 128, base: 10000};

let known = null;

// [{name, config}], asked for once.
export function families(engine) {
  known ??= engine.call("families", {}).families;
  return known;
}

// suffix: for a view with two specs, the end of the keys of the second (family2, ...).
export function specControls(context, suffix = "") {
  const keys = Object.fromEntries(["family", "head_dim", "base"].map((key) => [key, key + suffix]));
  const own = el("div", {class: "nested"},
    slider(context, keys.head_dim, {label: context.text("head_dim"), min: 2, max: 256, step: 2}),
    slider(context, keys.base, {label: context.text("base"), integer: false,
                                stops: [100, 500, 1000, 5000, 10000, 50000, 100000, 500000, 1000000, 5000000, 10000000]}));
  context.bind((state) => { own.hidden = state[keys.family] !== ""; });
  return [
    select(context, keys.family, {
      label: context.text("model"),
      items: [{value: "", label: context.text("own_spec")},
              ...families(context.engine).map(({name}) => ({value: name, label: name, group: context.text("families")}))],
    }),
    own,
  ];
}

// The spec that the state names; specControls has refused unknown names.
export function specOf(context, state, suffix = "") {
  const name = state["family" + suffix];
  if (name === "") return {head_dim: state["head_dim" + suffix], base: state["base" + suffix], layout: "half"};
  return families(context.engine).find((family) => family.name === name).config;
}
