// Deep links: #/VIEW?key=value&...; only what differs from the defaults is written.

export function parseLink(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return {id: decodeURIComponent(path), values: Object.fromEntries(new URLSearchParams(query))};
}

// The values of a link that a view knows, in the types of its defaults; others are ignored.
export function parseState(defaults, values) {
  const state = {};
  for (const [key, fallback] of Object.entries(defaults)) {
    if (!(key in values)) continue;
    if (typeof fallback === "number") {
      const number = Number(values[key]);
      if (values[key].trim() !== "" && Number.isFinite(number)) state[key] = number;
    } else if (typeof fallback === "boolean") {
      state[key] = values[key] === "true";
    } else {
      state[key] = values[key];
    }
  }
  return state;
}

export function formatLink(view, state, settings) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(state)) {
    if (value !== view.defaults[key]) query.set(key, String(value));
  }
  for (const [name, value] of Object.entries(settings)) query.set(name, value);
  const text = query.toString();
  return `#/${view.id}${text ? `?${text}` : ""}`;
}
