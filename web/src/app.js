// The shell: navigation, language, theme, deep links, errors. A view is a module of views/ with
//   view = {id, defaults, create(host, context) -> {update(state), destroy?()}}
// Its texts are the section of its id in text/*.js; `title`, `short` and `about` are shown by the shell.
// context.engine        call(name, arguments)
// context.text(key, values)  text of the view's section, else of `common`; {name} is replaced by values.name
// context.state         the view's state, all that a deep link restores
// context.set(patch)    changes it; update runs once in the next animation frame
// context.refresh()     the same without a change, such as after a file was read into context.keep
// context.keep          an object that outlives changes of language and theme
// context.colour(name)  a colour of style.css: --name
// context.bind(sync)    sync(state) runs before each update (controls of ui.js use it); if one throws, update does not run
// context.announce(text)  said to screen readers once changes pause
// An Error that create or update throws is shown in one line.

import {load} from "./engine.js";
import {about} from "./about.js";
import {button, copyText, el, svg} from "./ui.js";
import {icons} from "./icons.js";
import {formatLink, parseLink, parseState} from "./links.js";
import en from "./text/en.js";
import zh from "./text/zh.js";
import {views} from "./views/index.js";

const texts = {en, zh};
const byId = (id) => document.getElementById(id);
const host = byId("host"), main = byId("main"), alert = byId("alert"), root = document.documentElement;

// Pages opened from disk may be refused storage.
const storage = {
  get(key) { try { return localStorage.getItem(`phasor-${key}`); } catch { return null; } },
  set(key, value) { try { localStorage.setItem(`phasor-${key}`, value); } catch { /* kept in the link */ } },
};

const settings = {
  lang: storage.get("lang") ?? (navigator.language?.startsWith("zh") ? "zh" : "en"),
  theme: storage.get("theme") ?? "auto",
};
const chosen = new Set();  // settings that the link carries
const states = new Map(views.map((view) => [view.id, {...view.defaults}]));
const kept = new Map(views.map((view) => [view.id, {}]));
const darkSystem = matchMedia("(prefers-color-scheme: dark)");
const choices = {lang: ["en", "zh"], theme: ["auto", "light", "dark"]};

let engine = null;
let current = null;  // {view, instance, syncs}
let frame = 0;
let linkTimer = 0;
let announceTimer = 0;
let colours = new Map();

const lookUp = (section, key) => texts[settings.lang][section]?.[key];

function textOf(section, key, values = {}) {
  const found = lookUp(section, key) ?? lookUp("common", key);
  if (found === undefined) throw new Error(`text "${key}" of "${section}" is missing in ${settings.lang}`);
  return found.replace(/\{(\w+)\}/g, (whole, name) => name in values ? String(values[name]) : whole);
}

function showError(message) {
  alert.hidden = message === "";
  if (alert.textContent !== message) alert.textContent = message;
  host.classList.toggle("stale", message !== "");
  // Pictures of an earlier state, or none: not to be copied.
  host.querySelector(".stage")?.toggleAttribute("inert", message !== "");
}

function announce(message) {
  clearTimeout(announceTimer);
  announceTimer = setTimeout(() => { byId("announcer").textContent = message; }, 600);
}

function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(root).getPropertyValue(`--${name}`).trim());
  return colours.get(name);
}

const linkOf = (view) => formatLink(view, states.get(view.id),
                                    Object.fromEntries([...chosen].map((name) => [name, settings[name]])));

function writeLink() {
  clearTimeout(linkTimer);
  if (!current) return;
  // Browsers limit how often a link may change, and dragging changes the state in every frame.
  linkTimer = setTimeout(() => {
    history.replaceState(null, "", linkOf(current.view));
    for (const view of views) byId(`to-${view.id}`).href = linkOf(view);
  }, 150);
}

function run() {
  cancelAnimationFrame(frame);
  frame = 0;
  if (!current) return;
  const state = states.get(current.view.id);
  let problem = null;
  const attempt = (act) => { try { act(); } catch (error) { problem ??= error; } };
  for (const sync of current.syncs) attempt(() => sync(state));
  if (!problem) attempt(() => current.instance.update(state));
  showError(problem?.message ?? "");
}

function schedule() {
  if (!frame) frame = requestAnimationFrame(run);
}

function contextOf(view, syncs) {
  return {
    engine,
    keep: kept.get(view.id),
    id: view.id,
    lang: settings.lang,
    get state() { return states.get(view.id); },
    text: (key, values) => textOf(view.id, key, values),
    set(patch) {
      Object.assign(states.get(view.id), patch);
      writeLink();
      schedule();
    },
    refresh: schedule,
    colour,
    bind: (sync) => syncs.push(sync),
    announce,
  };
}

function show(view) {
  current?.instance?.destroy?.();
  current = null;
  main.dataset.ready = "false";
  main.dataset.view = view.id;
  document.title = `${textOf(view.id, "title")} · Phasor`;
  for (const other of views) {
    const link = byId(`to-${other.id}`);
    link.href = linkOf(other);
    if (other === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const number = views.indexOf(view) + 1;
  const body = el("div", {class: "view-body"});
  host.replaceChildren(
    el("header", {class: "view-head"},
       el("div", {class: "view-bar"},
          el("p", {class: "eyebrow", text: textOf("common", "view_number", {number, count: views.length})}),
          button(textOf("common", "copy_link"), () => copyLink(view), {kind: "small", name: "copy-link"}),
          button(textOf("common", "reset"), () => reset(view), {kind: "small", name: "reset"})),
       el("h1", {text: textOf(view.id, "title")}),
       el("p", {class: "lead", html: textOf(view.id, "about")})),
    body);
  const syncs = [];
  try {
    const instance = view.create(body, contextOf(view, syncs));
    current = {view, instance, syncs};
  } catch (error) {
    showError(error.message);
    return;
  }
  run();
  main.dataset.ready = "true";
}

async function copyLink(view) {
  await copyText(new URL(linkOf(view), location.href).href);
  byId("announcer").textContent = textOf("common", "copied_short");
}

function reset(view) {
  states.set(view.id, {...view.defaults});
  show(view);
  writeLink();
}

function route() {
  const link = parseLink(location.hash);
  for (const name of ["lang", "theme"]) {
    if (choices[name].includes(link.values[name])) {
      settings[name] = link.values[name];
      chosen.add(name);
    }
  }
  const view = views.find((candidate) => candidate.id === link.id) ?? views[0];
  states.set(view.id, {...view.defaults, ...parseState(view.defaults, link.values)});
  dress();
  if (engine) show(view);
}

function change(name, value) {
  settings[name] = value;
  chosen.add(name);
  storage.set(name, value);
  dress();
  if (current) {
    const {view} = current;
    show(view);
    writeLink();
  }
}

// Everything around the view, in the language and theme that are set.
function dress() {
  root.lang = settings.lang === "zh" ? "zh-Hans" : "en";
  root.dataset.theme = settings.theme !== "auto" ? settings.theme : darkSystem.matches ? "dark" : "light";
  colours = new Map();
  const text = (key) => textOf("common", key);
  byId("skip").textContent = text("skip");
  byId("brand-name").textContent = text("explorer");
  byId("loading").textContent = engine ? "" : text("loading");
  byId("views").setAttribute("aria-label", text("views"));
  byId("switches").replaceChildren(choice("lang", text("language")), choice("theme", text("theme")));
  byId("views").replaceChildren(el("ul", {}, ...views.map((view, index) => el("li", {},
    el("a", {id: `to-${view.id}`, href: linkOf(view), class: "view-link"},
       icons[view.id] ? svg(icons[view.id]) : "",
       el("span", {class: "view-number", text: String(index + 1), "aria-hidden": "true"}),
       el("span", {class: "view-name", text: textOf(view.id, "short")}))))));
  byId("foot").replaceChildren(about(text, engine));
}

// A group of radio buttons, drawn as one switch.
function choice(name, label) {
  return el("fieldset", {class: "switch"}, el("legend", {class: "hidden", text: label}),
    ...choices[name].map((value) => {
      const long = textOf("common", `${name}_${value}`);
      const input = el("input", {type: "radio", name, value, class: "hidden", id: `${name}-${value}`,
                                 "data-control": `${name}-${value}`});
      input.checked = settings[name] === value;
      input.addEventListener("change", () => {
        change(name, value);
        byId(input.id).focus();
      });
      const shown = name === "theme" ? [svg(icons[value]), el("span", {class: "hidden", text: long})] : [long];
      return el("label", {title: long}, input, el("span", {class: "switch-face"}, ...shown));
    }));
}

byId("views").addEventListener("keydown", (event) => {
  const links = [...event.currentTarget.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  const to = {ArrowDown: at + 1, ArrowRight: at + 1, ArrowUp: at - 1, ArrowLeft: at - 1, Home: 0,
              End: links.length - 1}[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  links[(to + links.length) % links.length].focus();
});

byId("skip").addEventListener("click", (event) => {
  event.preventDefault();  // the link's hash is the view's
  main.focus();
});

darkSystem.addEventListener("change", () => {
  dress();
  if (current) show(current.view);
});

let spoken = "";
addEventListener("hashchange", () => {
  const focused = document.activeElement?.id;
  route();
  if (focused) byId(focused)?.focus();
  scrollTo(0, 0);
  if (document.title !== spoken) announce(document.title);
  spoken = document.title;
});

route();
load().then((loaded) => {
  engine = loaded;
  globalThis.phasor = engine;  // for readers who open the console: phasor.call("version")
  route();
}, (error) => {
  byId("loading").textContent = "";
  showError(textOf("common", "no_engine", {reason: error.message}));
});
