// Elements and controls. A control is bound to one key of the view's state: it shows the state's value and sets it.

import {icons} from "./icons.js";
import {copyText, savePicture} from "./save.js";

// el("p", {class: "x", text: "..."}, child, ...): `text` and `html` set the content, `on` adds listeners,
// other entries are attributes; undefined and false are left out.
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "html") element.innerHTML = value;  // our own texts only
    else if (name === "on") for (const [event, run] of Object.entries(value)) element.addEventListener(event, run);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

// An icon of icons.js.
export function svg(paths) {
  const holder = document.createElement("span");
  holder.className = "icon";
  holder.innerHTML = `<svg viewBox="0 0 24 24" width="20" height="20" fill="none" stroke="currentColor" ` +
    `stroke-width="1.7" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">${paths}</svg>`;
  return holder;
}

// How a number is shown: `digits` significant ones, with a real minus sign. Layout only; the value is the engine's.
export function format(value, digits = 5) {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return String(value).replace("-", "−").replace("Infinity", "∞");
  const size = Math.abs(value);
  const short = Number.isInteger(value) && size < 1e12 ? String(value)
    : size >= 10 ** (digits + 1) || size < 1e-4 ? value.toExponential(digits - 1)
    : String(Number(value.toPrecision(digits)));
  return short.replace(/-/g, "−");
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

// A slider with a number field. Options: label, min, max, step (1), or `stops`, the rising list of values that the
// slider visits while the field takes any number between the first and the last; integer (true unless step is a fraction).
export function slider(context, key, options) {
  const {label, stops, step = 1, hint} = options;
  const min = stops ? stops[0] : options.min, max = stops ? stops[stops.length - 1] : options.max;
  const integer = options.integer ?? Number.isInteger(step);
  const id = `${context.id}-${key}`;
  const range = el("input", {type: "range", id, class: "range", "data-slider": key,
                             min: stops ? 0 : min, max: stops ? stops.length - 1 : max, step: stops ? 1 : step,
                             "aria-describedby": hint && `${id}-hint`});
  const field = el("input", {type: "number", id: `${id}-number`, class: "field", "data-control": key, min, max,
                             step: stops ? "any" : step, "aria-label": label});
  const nearest = (value) => {
    const above = stops.findIndex((stop) => stop >= value);
    if (above <= 0) return above === 0 ? 0 : stops.length - 1;
    return value - stops[above - 1] < stops[above] - value ? above - 1 : above;
  };
  range.addEventListener("input", () => context.set({[key]: stops ? stops[Number(range.value)] : Number(range.value)}));
  const typed = () => {
    const value = Number(field.value);
    if (field.value === "" || !Number.isFinite(value)) return;
    context.set({[key]: clamp(integer ? Math.round(value) : value, min, max)});
  };
  field.addEventListener("input", () => { if (Number(field.value) >= min && Number(field.value) <= max) typed(); });
  field.addEventListener("change", typed);
  context.bind((state) => {
    // A link may hold any value.
    if (!(state[key] >= min && state[key] <= max) || (integer && !Number.isInteger(state[key]))) {
      throw new Error(context.text(integer ? "not_integer" : "not_number", {label, min, max, value: state[key]}));
    }
    const place = String(stops ? nearest(state[key]) : state[key]);
    if (range.value !== place) range.value = place;
    if (stops) range.setAttribute("aria-valuetext", format(state[key], 6));
    if (document.activeElement !== field || Number(field.value) !== state[key]) field.value = String(state[key]);
  });
  return el("div", {class: "control"},
    el("div", {class: "control-head"}, el("label", {for: id, text: label}), field), range,
    hint ? el("p", {class: "hint", id: `${id}-hint`, text: hint}) : "");
}

// A list to choose from. items: [{value, label, group?}].
export function select(context, key, {label, items, hint}) {
  const id = `${context.id}-${key}`;
  const list = el("select", {id, class: "field", "data-control": key, "aria-describedby": hint && `${id}-hint`});
  const groups = new Map();
  for (const {value, label: shown, group} of items) {
    const option = el("option", {value, text: shown});
    if (group && !groups.has(group)) {
      groups.set(group, el("optgroup", {label: group}));
      list.append(groups.get(group));
    }
    (groups.get(group) ?? list).append(option);
  }
  const isNumber = typeof context.state[key] === "number";
  list.addEventListener("change", () => context.set({[key]: isNumber ? Number(list.value) : list.value}));
  context.bind((state) => {
    list.value = String(state[key]);
    if (list.selectedIndex < 0) {
      throw new Error(context.text("not_choice", {label, value: state[key], known: items.map((item) => item.value || item.label).join(", ")}));
    }
  });
  return el("div", {class: "control"}, el("label", {for: id, text: label}), list,
    hint ? el("p", {class: "hint", id: `${id}-hint`, text: hint}) : "");
}

export function checkbox(context, key, {label}) {
  const input = el("input", {type: "checkbox", id: `${context.id}-${key}`, "data-control": key});
  input.addEventListener("change", () => context.set({[key]: input.checked}));
  context.bind((state) => { input.checked = state[key]; });
  return el("label", {class: "check"}, input, el("span", {text: label}));
}

// Buttons of which several may be pressed. The state is a text such as "linear,yarn".
export function chips(context, key, {label, items}) {
  const chosen = () => new Set(context.state[key].split(",").filter(Boolean));
  return el("div", {class: "control", role: "group", "aria-label": label}, el("span", {class: "label", text: label}),
    el("div", {class: "chips"}, ...items.map(({value, label: shown, colour}) => {
      const button = el("button", {type: "button", class: "chip", "data-control": `${key}-${value}`, text: shown,
                                   style: colour && `--chip: ${colour}`});
      button.addEventListener("click", () => {
        const now = chosen();
        if (!now.delete(value)) now.add(value);
        context.set({[key]: items.map((item) => item.value).filter((item) => now.has(item)).join(",")});
      });
      context.bind(() => button.setAttribute("aria-pressed", String(chosen().has(value))));
      return button;
    })));
}

export function button(label, run, {icon, name, kind = ""} = {}) {
  return el("button", {type: "button", class: `button ${kind}`, "data-test": name, on: {click: run}},
    ...(icon ? [svg(icons[icon])] : []), el("span", {text: label}));
}

// A place for a file: drop it, choose it, or (with `paste`) paste its text. read({name, bytes, text()}).
export function fileDrop({label, hint, accept, name, read}) {
  const take = async (file) => {
    if (!file) return;
    const bytes = new Uint8Array(await file.arrayBuffer());
    read({name: file.name, bytes, text: () => new TextDecoder().decode(bytes)});
  };
  const input = el("input", {type: "file", class: "hidden", accept, "data-test": name,
                             on: {change: () => { take(input.files[0]); input.value = ""; }}});
  const shown = el("span", {class: "drop-name", text: label});
  const place = el("label", {class: "drop"}, input, svg(icons.file), shown,
    el("span", {class: "hint", text: hint}));
  const over = (on) => (event) => {
    event.preventDefault();
    place.classList.toggle("over", on);
  };
  place.addEventListener("dragover", over(true));
  place.addEventListener("dragleave", over(false));
  place.addEventListener("drop", (event) => {
    over(false)(event);
    take(event.dataTransfer.files[0]);
  });
  return {node: place, show: (text) => { shown.textContent = text; }};
}

export const card = (...children) => el("section", {class: "card"}, ...children);

// Controls on the left, pictures on the right; one column on a phone.
export function columns(host, controls, pictures) {
  host.append(el("div", {class: "columns"}, el("div", {class: "controls card"}, ...controls),
                 el("div", {class: "stage"}, ...pictures)));
}

// Controls that are folded on a phone, so that the first picture stays near the controls that move it.
export function more(context, ...controls) {
  return el("details", {class: "more", open: matchMedia("(min-width: 861px)").matches},
    el("summary", {text: context.text("more")}), el("div", {class: "nested"}, ...controls));
}

// A picture with its title and its buttons. picture: {node, image() -> canvas or svg}; csv() -> text.
// The element's retitle(title) changes the title.
export function figure(context, {name, title, picture, csv, note}) {
  const file = `phasor-${context.id}-${name}`, heading = el("h2");
  const tools = el("div", {class: "tools"},
    button(context.text("copy_csv"), async () => {
      const text = csv();
      await copyText(text);
      context.announce(context.text("copied", {lines: text.trim().split("\n").length}));
      flash(tools, context.text("copied_short"));
    }, {name: "copy-csv", kind: "small"}),
    button(context.text("save_png"), async () => {
      await savePicture(picture.image(), heading.textContent, `${file}.png`, context.colour);
      flash(tools, context.text("saved_short"));
    }, {name: "save-png", kind: "small"}));
  const retitle = (words) => {
    heading.textContent = words;
    tools.children[0].setAttribute("aria-label", context.text("copy_csv_of", {title: words}));
    tools.children[1].setAttribute("aria-label", context.text("save_png_of", {title: words}));
  };
  retitle(title);
  return Object.assign(el("figure", {class: "card figure", "data-test": `figure-${name}`},
    el("figcaption", {}, heading, tools),
    el("div", {class: "picture"}, picture.node),
    note ? el("p", {class: "note", html: note}) : ""), {retitle});
}

function flash(tools, text) {
  tools.dataset.done = text;
  setTimeout(() => { delete tools.dataset.done; }, 1600);
}

// Numbers as text. show([{name, label, value, text?, main?}]): `name` is data-test, the full value is data-value; `main`
// ones are larger.
export function facts() {
  const list = el("dl", {class: "facts"});
  const rows = new Map();
  return {
    node: list,
    show(entries) {
      for (const {name, label, value, text, main} of entries) {
        if (!rows.has(name)) {
          const term = el("dt", {}), number = el("dd", {"data-test": name});
          rows.set(name, {term, number});
          list.append(el("div", {class: main ? "fact main" : "fact"}, term, number));
        }
        const {term, number} = rows.get(name);
        const shown = text ?? format(value);
        if (term.textContent !== label) term.textContent = label;
        if (number.textContent !== shown) number.textContent = shown;
        if (value !== undefined) number.dataset.value = String(value);
      }
    },
  };
}

// A table of texts. rows: arrays as long as head; cells may be elements.
export function table({caption, name}) {
  const body = el("tbody"), head = el("thead");
  const node = el("div", {class: "table-wrap", tabindex: "0", role: "region", "aria-label": caption},
    el("table", {"data-test": name}, el("caption", {class: "hidden", text: caption}), head, body));
  return {
    node,
    show(titles, rows) {
      head.replaceChildren(el("tr", {}, ...titles.map((title) => el("th", {scope: "col", text: title}))));
      body.replaceChildren(...rows.map((row) => el("tr", {}, ...row.map((cell, column) =>
        el(column ? "td" : "th", column ? {} : {scope: "row"}, cell)))));
    },
  };
}

// Rows of numbers and texts as CSV, each number with all its digits.
export function csvOf(head, rows) {
  const field = (value) => /[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value);
  return [head, ...rows].map((row) => row.map(field).join(",")).join("\n") + "\n";
}

export {copyText};
