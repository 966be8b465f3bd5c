import { load } from "./engine.js";

const engine = await load();
document.getElementById("app").textContent = `Phasor ${engine.call("version").version}`;
