// Two .npy files: which rotation leads from one to the other, and does the config say the same?

import {lineChart} from "../charts.js";
import {layerControl, layerOf} from "../spec.js";
import {exampleFiles, examples} from "./diagnose_examples.js";
import {button, card, columns, copyText, csvOf, el, facts, fileDrop, figure, format, select, table} from "../ui.js";

const parts = ["before", "after", "config", "positions"];
const mostMegabytes = 64;

export const view = {
  id: "diagnose",
  defaults: {example: "", layer: ""},

  create(host, context) {
    const {engine, text, keep} = context;
    keep.files ??= {};
    let series = [];

    const filesOf = (state) => state.example === "" ? keep.files : exampleFiles(engine, state.example);
    // The config as an object; null without one, and for text that is not JSON: the engine says what is wrong with it.
    function configOf(state) {
      const {config} = filesOf(state);
      try { return config ? JSON.parse(new TextDecoder().decode(config.bytes)) : null; } catch { return null; }
    }

    const verdict = el("p", {class: "verdict", role: "status", "data-test": "verdict"});
    const readout = facts();
    const differences = table({caption: text("differences_title"), name: "differences"});
    const differencesCard = card(el("h2", {text: text("differences_title")}), differences.node);
    const chart = lineChart(context, {label: text("chart_label"), name: "diagnose-chart", height: 360});
    const report = el("pre", {class: "answer", tabindex: "0", lang: "en", "data-test": "report", "aria-label": text("report_title")});

    function take(part, file) {
      if (file.bytes.length > mostMegabytes * 2 ** 20) {
        throw new Error(text("too_large", {name: file.name, size: Math.ceil(file.bytes.length / 2 ** 20), limit: mostMegabytes}));
      }
      if (context.state.example !== "") keep.files = {};  // an example's files are not mixed with the reader's
      keep.files[part] = file;
    }
    const drops = Object.fromEntries(parts.map((part) => [part, fileDrop({
      label: text(part), hint: text(part === "config" ? "file_hint_config" : "file_hint_array"), name: `file-${part}`,
      accept: part === "config" ? ".json,application/json" : ".npy",
      read: (file) => guarded(() => { take(part, file); context.set({example: ""}); }),
    })]));
    let problem = "";
    function guarded(run) {
      problem = "";
      try { run(); } catch (error) { problem = error.message; context.refresh(); }
    }

    // Files dropped elsewhere on the view find their place by their names.
    const partOf = (name, files) => /\.json$/i.test(name) ? "config" : /pos/i.test(name) ? "positions"
      : /after|out|rot/i.test(name) ? "after" : /before|in/i.test(name) || !files.before ? "before" : "after";
    const stop = (event) => event.preventDefault();
    const dropped = async (event) => {
      event.preventDefault();
      if (event.target.closest?.(".drop")) return;
      const files = await Promise.all(Array.from(event.dataTransfer.files, async (file) =>
        ({name: file.name, bytes: new Uint8Array(await file.arrayBuffer())})));
      guarded(() => {
        for (const file of files) {
          take(partOf(file.name, keep.files), file);
          context.state.example = "";
        }
        context.set({example: ""});
      });
    };
    document.addEventListener("dragover", stop);
    document.addEventListener("drop", dropped);

    const picture = figure(context, {
      name: "frequencies", title: text("chart_title"), picture: chart, note: text("chart_note"),
      csv: () => csvOf(["pair", ...series.map(({name}) => name)],
        Array.from(series[0].values, (_, pair) => [pair, ...series.map(({values}) => values[pair] ?? "")])),
    });
    columns(host, [
      select(context, "example", {label: text("example"), items: [
        {value: "", label: text("own_files")},
        ...examples.map((value) => ({value, label: text(`example_${value}`), group: text("examples")}))]}),
      ...parts.map((part) => drops[part].node),
      layerControl(context, "layer", configOf),
      button(text("clear"), () => { keep.files = {}; problem = ""; context.set({example: ""}); }, {name: "clear"}),
    ], [
      card(verdict, readout.node),
      differencesCard,
      picture,
      card(el("div", {class: "card-head"}, el("h2", {text: text("report_title")}),
              button(text("copy"), () => copyText(report.textContent), {kind: "small", name: "copy-report"})),
           report),
    ]);
    const results = [...host.querySelectorAll(".stage > *")].slice(1);

    function sentence({answer}) {
      if (answer.verdict === "agrees" || answer.agrees_with_config === true) return text("agrees");
      if (answer.agrees_with_config === false) return text("differs");
      return text(answer.answer === "none" ? "none" : "found");
    }

    function show({answer, text: page}, config) {
      verdict.textContent = sentence({answer});
      verdict.dataset.verdict = answer.agrees_with_config === undefined ? answer.answer : answer.agrees_with_config ? "agrees" : "differs";
      report.textContent = page;
      const known = (value) => value === null || value === undefined ? text("unknown") : String(value);
      readout.show([
        {name: "layout", label: text("layout"), text: answer.layout ? text(`layout_${answer.layout}`) : text("unknown")},
        {name: "rotary-dim", label: text("rotary_dim"), value: answer.rotary_dim, text: known(answer.rotary_dim)},
        {name: "base", label: text("base"), value: answer.base, text: answer.base == null ? text("unknown") : format(answer.base, 7)},
        {name: "scaling", label: text("scaling"), text: answer.scaling?.type === "default" ? text("scaling_default") : known(answer.scaling?.type)},
        {name: "direction", label: text("direction"), text: answer.inverse == null ? text("unknown") : text(answer.inverse ? "inverse" : "forward")},
        {name: "amplitude", label: text("amplitude"), value: answer.amplitude, text: answer.amplitude == null ? text("unknown") : format(answer.amplitude, 7)},
        {name: "offset", label: text("offset"), value: answer.offset,
         text: answer.offset == null && answer.positions === "given" ? text("given") : known(answer.offset)},
        {name: "table-dtype", label: text("table_dtype"), text: answer.table_dtype === "exact" ? text("exact") : known(answer.table_dtype)},
        {name: "residual", label: text("residual"), value: answer.residual, text: answer.residual == null ? text("unknown") : format(answer.residual, 3)},
        {name: "rounding-floor", label: text("rounding_floor"), value: answer.rounding_floor, text: format(answer.rounding_floor, 3)},
      ]);
      const rows = answer.differences ?? [];
      differencesCard.hidden = rows.length === 0;
      differences.show([text("field"), text("in_config"), text("in_data")],
        rows.map(({field, asked, found: data}) => [field, known(asked), known(data)].map((word) => el("span", {lang: "en", text: word}))));
      series = [
        {name: "measured", values: answer.measured_frequencies ?? []},
        {name: "standard_error", values: answer.frequency_errors ?? []},
        {name: "formula", values: answer.frequencies ?? []},
        {name: "config", values: config ? Array.from(engine.call("frequencies", config).frequencies) : []},
      ].filter(({values}) => values.length > 0);
      // Often all are the same: points on a line on a band.
      const looks = {measured: {colour: "query", dash: [], width: 0.5, points: true}, formula: {colour: "text", dash: [], width: 2},
                     config: {colour: "key", dash: [], width: 8}};
      picture.hidden = series.length === 0;
      chart.set({
        x: {label: text("pair")}, y: {label: text("frequency_axis"), log: true},
        series: series.filter(({name}) => looks[name]).map(({name, values}) => ({
          label: text(`series_${name}`), x: values.map((_, pair) => pair), y: values.map((value) => value > 0 ? value : NaN),
          ...looks[name], colour: context.colour(looks[name].colour)})),
      });
      context.announce(verdict.textContent);
    }

    return {
      update(state) {
        const files = filesOf(state);
        for (const part of parts) drops[part].show(files[part] ? files[part].name : text(part));
        if (problem) throw new Error(problem);
        const complete = Boolean(files.before && files.after);
        for (const element of [readout.node, ...results]) element.hidden = !complete;
        if (!complete) {
          verdict.textContent = text(files.before ? "need_after" : files.after ? "need_before" : "waiting");
          delete verdict.dataset.verdict;
          return;
        }
        const config = configOf(state), layer = config ? layerOf(context, config, state.layer) : {};
        show(engine.call("diagnose", {
          before: files.before.bytes, after: files.after.bytes, ...(files.positions && {positions: files.positions.bytes}),
          ...(files.config && {config: new TextDecoder().decode(files.config.bytes)}), ...layer}), config && {spec: config, ...layer});
      },
      destroy() {
        document.removeEventListener("dragover", stop);
        document.removeEventListener("drop", dropped);
        chart.destroy();
      },
    };
  },
};
