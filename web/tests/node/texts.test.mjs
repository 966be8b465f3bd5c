// The page's texts in both languages, and its deep links. These modules import nothing, so they are read as text.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const source = new URL("../../src/", import.meta.url);
const read = (path) => readFileSync(new URL(path, source), "utf8");
const load = (path) => import(`data:text/javascript,${encodeURIComponent(read(path))}`);
const [en, zh] = (await Promise.all([load("text/en.js"), load("text/zh.js")])).map((module) => module.default);
const placeholders = (text) => [...text.matchAll(/\{(\w+)\}/g)].map((match) => match[1]).sort();

test("both languages have the same keys, placeholders and marks", () => {
  assert.deepEqual(Object.keys(zh).sort(), Object.keys(en).sort());
  for (const section of Object.keys(en)) {
    assert.deepEqual(Object.keys(zh[section]).sort(), Object.keys(en[section]).sort(), section);
    for (const [key, text] of Object.entries(en[section])) {
      assert.deepEqual(new Set(placeholders(zh[section][key])), new Set(placeholders(text)), `${section}.${key}`);
      assert.equal(zh[section][key].split("<b>").length, text.split("<b>").length, `${section}.${key}`);
    }
  }
});

test("every text that a module names exists", () => {
  for (const file of readdirSync(new URL("views/", source))) {
    const section = file.replace(/(_picture)?\.js$/, "");
    for (const [, key] of read(`views/${file}`).matchAll(/\btext\("(\w+)"/g))
      assert.ok(en[section]?.[key] ?? en.common[key], `${file} names "${key}"`);
  }
  for (const file of ["app.js", "about.js", "spec.js", "ui.js"]) {
    for (const [, key] of read(file).matchAll(/\b(?:text\(|textOf\("common", )"(\w+)"/g))
      assert.ok(en.common[key], `${file} names "${key}"`);
  }
});

test("a link gives back the state that it was made of", async () => {
  const { formatLink, parseLink, parseState } = await load("links.js");
  const view = { id: "clocks", defaults: { position: 5, base: 1e4, compare: false, config: "" } };
  const state = { position: 0, base: 1e4, compare: true, config: '{"a": "x&y=1?#, 中"}' };
  const link = formatLink(view, state, { lang: "zh" });
  assert.equal(link.includes("base"), false, "defaults are left out");
  const { id, values } = parseLink(link);
  assert.equal(id, "clocks");
  assert.equal(values.lang, "zh");
  assert.deepEqual({ ...view.defaults, ...parseState(view.defaults, values) }, state);
  assert.deepEqual(parseState(view.defaults, { position: "abc", other: "1" }), {});
  assert.deepEqual(parseLink(""), { id: "", values: {} });
});
