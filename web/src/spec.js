// The controls by which a view chooses a spec: a known family, or head_dim and base; and a layer where layers differ.
// State: family, head_dim, base, layer.

import {el, select, slider} from "./ui.js";

export const specDefaults = {family: "", head_dim: 128, base: 10000, layer: ""};

let known = null;

// [{name, config}], asked for once.
export function families(engine) {
  known ??= engine.call("families", {}).families;
  return known;
}

// The groups of layers of a config that rotate alike, as explain has them; kept, since each update asks.
const groups = new Map();
function layerGroups(engine, config) {
  const key = JSON.stringify(config);
  if (!groups.has(key)) groups.set(key, engine.call("explain", {config: key}).answer.layers);
  return groups.get(key);
}

// A list of the groups of layers, shown if there are several. configOf(state): the config, or null for one spec.
// The state is the number of a group's first layer, "" for the first group.
export function layerControl(context, key, configOf) {
  const id = `${context.id}-${key}`;
  const list = el("select", {id, class: "field", "data-control": key, on: {change: () => context.set({[key]: list.value})}});
  const node = el("div", {class: "control"}, el("label", {for: id, text: context.text("layer")}), list);
  let shown = null;
  context.bind((state) => {
    const config = configOf(state), all = config ? layerGroups(context.engine, config) : [];
    node.hidden = all.length < 2;
    if (node.hidden) return;
    if (shown !== all) {
      shown = all;
      list.replaceChildren(...all.map(({layer_type: type, layers}) => el("option", {
        value: layers[0], text: `${type ?? ""} ${layers.slice(0, 4).join(", ")}${layers.length > 4 ? ", …" : ""}`.trim()})));
    }
    list.value = groupOf(all, state[key]).layers[0];
  });
  return node;
}

const groupOf = (all, layer) => all.find(({layers}) => layers.includes(Number(layer)) && layer !== "") ?? all[0];

// `layer` for the engine: a layer of the chosen group, nothing where all are alike.
export function layerOf(context, config, layer) {
  const all = layerGroups(context.engine, config);
  return all.length < 2 ? {} : {layer: String(groupOf(all, layer).layers[0])};
}

// suffix: for a view with two specs, the end of the keys of the second (family2, ...).
export function specControls(context, suffix = "") {
  const keys = Object.fromEntries(["family", "head_dim", "base", "layer"].map((key) => [key, key + suffix]));
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
    layerControl(context, keys.layer, (state) => families(context.engine).find(({name}) => name === state[keys.family])?.config),
    own,
  ];
}

// What the state names, as arguments of the engine's calls: {spec} or {spec, layer}. specControls has refused unknown names.
export function specArguments(context, state, suffix = "") {
  const name = state["family" + suffix];
  if (name === "") return {spec: {head_dim: state["head_dim" + suffix], base: state["base" + suffix], layout: "half"}};
  const {config} = families(context.engine).find((family) => family.name === name);
  return {spec: config, ...layerOf(context, config, state["layer" + suffix])};
}
