// What each scaling does to each frequency of a config.json, with explain's answer.

import {dashes, lineChart, seriesColour} from "../charts.js";
import {families, layerControl, layerOf} from "../spec.js";
import {button, card, chips, columns, copyText, csvOf, el, fileDrop, figure, format, more, select, slider, table} from "../ui.js";

// Each method on the unscaled frequencies, and the config's own scaling.
const methods = ["none", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope", "present"];

export const view = {
  id: "scalings",
  defaults: {family: "Llama 2 7B", config: "", layer: "", context: 32768, factor: 8, methods: methods.join(","), shown: "ratio"},

  create(host, context) {
    const {engine, text, keep} = context;
    const known = families(engine);
    let rows = [];
    const colourOf = (method) => method === "present" ? context.colour("text") : seriesColour(context, methods.indexOf(method));
    const chart = lineChart(context, {label: text("chart_label"), name: "scalings-chart", height: 400});
    const summary = table({caption: text("summary_title"), name: "scalings-table"});
    const answer = el("pre", {class: "answer", tabindex: "0", lang: "en", "data-test": "explain", "aria-label": text("explain_title")});

    const textOf = (state) => state.config !== "" ? state.config : JSON.stringify(known.find(({name}) => name === state.family)?.config);

    // A config is kept in the link in its shortest form; text that is not JSON is kept as it is, for the engine's message.
    function take(content, name) {
      keep.name = name;
      let short = content;
      try { short = JSON.stringify(JSON.parse(content)); } catch { /* the engine says what is wrong */ }
      context.set({config: short});
    }
    const drop = fileDrop({label: text("drop"), hint: text("drop_hint"), accept: ".json,application/json", name: "config-file",
                           read: (file) => take(file.text(), file.name)});
    const paste = el("textarea", {class: "field", id: "scalings-paste", "data-control": "config", spellcheck: "false",
                                  placeholder: '{"model_type": "llama", ...}', on: {change: () => take(paste.value, "")}});
    context.bind((state) => {
      drop.show(state.config && keep.name ? keep.name : text("drop"));
      if (document.activeElement !== paste) paste.value = state.config;
    });
    // A file dropped anywhere on the view is read, not opened by the browser.
    const stop = (event) => {
      event.preventDefault();
      drop.node.classList.add("over");
    };
    const dropped = async (event) => {
      event.preventDefault();
      drop.node.classList.remove("over");
      const file = event.dataTransfer.files[0];
      if (file && !drop.node.contains(event.target)) take(await file.text(), file.name);
    };
    document.addEventListener("dragover", stop);
    document.addEventListener("drop", dropped);

    const own = el("option", {value: "", text: text("own_config")});
    const family = el("select", {class: "field", id: "scalings-family", "data-control": "family",
                                 on: {change: () => context.set({family: family.value, config: ""})}},
      own, ...known.map(({name}) => el("option", {value: name, text: name})));
    context.bind((state) => {
      own.hidden = own.disabled = state.config === "";
      family.value = state.config !== "" ? "" : state.family;
      if (family.selectedIndex < 0) {
        throw new Error(text("not_choice", {label: text("family"), value: state.family, known: known.map(({name}) => name).join(", ")}));
      }
    });

    columns(host, [
      el("div", {class: "control"}, el("label", {for: family.id, text: text("family")}), family),
      layerControl(context, "layer", (state) => { try { return JSON.parse(textOf(state)); } catch { return null; } }),
      drop.node,
      el("details", {class: "more"}, el("summary", {text: text("paste")}), el("div", {class: "control"},
         el("label", {for: "scalings-paste", class: "hidden", text: text("paste")}), paste)),
      more(context,
        slider(context, "context", {label: text("context"), stops: Array.from({length: 12}, (_, power) => 512 * 2 ** power), integer: true}),
        slider(context, "factor", {label: text("factor"), min: 1, max: 64, step: 0.5}),
        chips(context, "methods", {label: text("methods"), items: methods.map((value) => ({value, label: text(`method_${value}`), colour: colourOf(value)}))}),
        select(context, "shown", {label: text("shown"), items: ["ratio", "wavelengths"].map((value) => ({value, label: text(`shown_${value}`)}))})),
    ], [
      figure(context, {
        name: "scalings", title: text("chart_title"), picture: chart, note: text("chart_note"),
        csv: () => csvOf(["pair", ...rows.flatMap(({method}) => [`${method}_frequency`, `${method}_ratio`])],
          Array.from(rows[0].frequencies, (_, pair) => [pair, ...rows.flatMap((row) => [row.frequencies[pair], row.ratio[pair]])])),
      }),
      card(el("h2", {text: text("summary_title")}), summary.node),
      card(el("div", {class: "card-head"}, el("h2", {text: text("explain_title")}),
              button(text("copy"), () => copyText(answer.textContent), {kind: "small", name: "copy-explain"})),
           answer),
    ]);

    return {
      update(state) {
        const chosen = state.methods.split(",").filter(Boolean);
        if (chosen.length === 0) throw new Error(text("no_methods"));
        const content = textOf(state);
        const explained = engine.call("explain", {config: content, context: state.context});
        answer.textContent = explained.text;
        const config = JSON.parse(content);
        const all = engine.call("scalings", {spec: config, ...layerOf(context, config, state.layer), context: state.context,
                                             methods: chosen, factor: state.factor}).rows;
        rows = all.filter(({frequencies}) => frequencies);  // a method that does not apply has a note instead
        chart.set({
          x: {label: text("pair")}, y: {label: text(`axis_${state.shown}`), log: true},
          series: rows.map((row) => ({
            label: text(`method_${row.method}`), x: Array.from(row.ratio, (_, pair) => pair), y: row[state.shown],
            colour: colourOf(row.method), dash: dashes[methods.indexOf(row.method)],
          })),
        });
        summary.show([text("method"), text("first_ratio"), text("last_ratio"), text("amplitude")],
          all.map((row) => [el("span", {text: text(`method_${row.method}`)}, ...(row.note ? [el("small", {text: row.note})] : [])),
                            format(row.ratio?.[0]), format(row.ratio?.[row.ratio.length - 1]), format(row.amplitude)]));
        context.announce(text("said", {count: rows.length, context: state.context}));
      },
      destroy() {
        document.removeEventListener("dragover", stop);
        document.removeEventListener("drop", dropped);
        chart.destroy();
      },
    };
  },
};
