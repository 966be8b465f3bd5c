// The foot of the page: what computes its numbers, and the licences of what it contains.

import {licences} from "./licences.js";
import {el} from "./ui.js";

export function about(text, engine) {
  const dialog = el("dialog", {class: "about", "aria-labelledby": "about-title"},
    el("h2", {id: "about-title", text: text("about_title")}),
    el("p", {text: text("about_text")}),
    el("h3", {text: text("licences")}),
    ...licences.map(({name, licence, notice}) => el("details", {},
      el("summary", {text: `${name} · ${licence}`}), el("pre", {text: notice}))),
    el("form", {method: "dialog"}, el("button", {class: "button", text: text("close")})));
  const version = engine ? engine.call("version", {}) : null;
  return el("div", {class: "foot-inner"},
    el("p", {"data-test": "version",
             text: version ? text("computed_by").replace("{version}", version.version) : ""}),
    el("button", {type: "button", class: "button small", "data-test": "about", text: text("about_title"),
                  on: {click: () => dialog.showModal()}}),
    dialog);
}
