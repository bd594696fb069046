// The frame of the console: where one is (the fragment of the address), the key, the colours, the keyboard.

import { ask, button, field, h, link, note } from "./dom.js";
import { call, key } from "./api.js";
import * as streams from "./streams.js";
import * as topics from "./topics.js";
import * as routers from "./routers.js";
import * as features from "./features.js";
import * as health from "./health.js";

const PLACES = {
  streams: { title: "Streams", shortcut: "s", view: streams },
  topics: { title: "Topics and queues", shortcut: "t", view: topics },
  routers: { title: "Routers", shortcut: "r", view: routers },
  features: { title: "Feature tables", shortcut: "f", view: features },
  health: { title: "Health", shortcut: "h", view: health },
};
const HELP = [
  ["/", "search by name"], ["c", "create"], ["k", "enter a key"],
  ...Object.values(PLACES).map((place) => [`g ${place.shortcut}`, place.title.toLowerCase()]),
  ["Esc", "close a dialog"], ["?", "this list"],
];

const THEMES = { auto: "system", light: "light", dark: "dark" };
const setTheme = (theme) => {
  localStorage.setItem("headrace.theme", theme);
  document.documentElement.dataset.theme = theme;
  themeButton.textContent = `◐ ${THEMES[theme]}`;
  themeButton.setAttribute("aria-label", `Colours: ◐ ${THEMES[theme]}`);
};
const nextTheme = () => {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
};
const themeButton = button("", nextTheme, { title: "Change colours" });
const keyButton = button("", () => askKey(), { title: "Enter a key (k)" });
const showKey = () => { keyButton.textContent = key.get() ? "key: set" : "key: none"; };

let asking = null;
const askKey = (why) => {
  if (asking?.open) return;
  asking = ask("Key of this server", [
    why && note(why, "bad"),
    field("Key", h("input", { name: "key", type: "password", autocomplete: "off", autofocus: true, value: key.get() }),
      "Kept in this tab until it is closed. Empty: none, as for `headrace dev`."),
  ], "Use it", ({ key: entered }) => {
    key.set(entered.trim());
    showKey();
    show();
  });
};
window.addEventListener("headrace:key", () =>
  askKey(key.get() ? "The server does not accept this key." : "This server needs a key."));

const links = Object.fromEntries(Object.entries(PLACES).map(([name, { title }]) => [name, link(`#/${name}`, title)]));
const main = h("main", { id: "main", tabindex: -1 });
const version = h("span", { class: "version" });
document.body.append(
  h("a", { class: "skip", href: "#main", onclick: (event) => { event.preventDefault(); main.focus(); } }, "Skip to content"),
  h("header", {},
    h("a", { class: "brand", href: "#/streams" }, "Headrace"), version,
    h("nav", { "aria-label": "Kinds" }, Object.values(links), link("/docs", "API reference")),
    h("div", { class: "row" }, keyButton, themeButton, button("?", () => showHelp(), { "aria-label": "Keyboard shortcuts" }))),
  main,
);

const showHelp = () => ask("Keyboard", [
  h("dl", { class: "facts" }, HELP.map(([keys, what]) => h("div", {}, h("dt", {}, h("kbd", {}, keys)), h("dd", {}, what)))),
], "Close");

const decoded = (text) => {
  try {
    return decodeURIComponent(text);
  } catch { // a percent sign that somebody typed
    return text;
  }
};

let leave = new AbortController();
const show = async () => {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const [name = "", ...parts] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const place = PLACES[name] ?? PLACES.streams;
  for (const [each, anchor] of Object.entries(links))
    each === name || (!PLACES[name] && each === "streams") ? anchor.setAttribute("aria-current", "page") : anchor.removeAttribute("aria-current");
  document.title = `${parts[0] ?? place.title} · Headrace`;
  const content = h("div", { class: "view" });
  main.replaceChildren(content);
  try {
    await place.view.show({ place: content, parts, signal, again: show });
  } catch (error) {
    if (error.name === "AbortError") return;
    if (!content.children.length) content.append(h("p", { class: "where" }, link(`#/${name}`, place.title)), h("h1", {}, parts[0] ?? place.title));
    content.append(note(error.message, "bad"));
  }
};
// The focus moves at once: when the view has loaded, something may be typed already.
window.addEventListener("hashchange", () => {
  for (const dialog of document.querySelectorAll("dialog[open]")) if (dialog !== asking) dialog.close(); // of another place
  show();
  if (!document.querySelector("dialog[open]")) main.focus({ preventScroll: true });
});

let going = false;
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const target = going && Object.entries(PLACES).find(([, place]) => place.shortcut === event.key);
  going = event.key === "g";
  if (target) location.hash = `#/${target[0]}`;
  else if (event.key === "/") document.querySelector("input[type=search]")?.focus();
  else if (event.key === "c") document.querySelector("[data-create]")?.click();
  else if (event.key === "k") askKey();
  else if (event.key === "?") showHelp();
  else return;
  event.preventDefault();
});

setTheme(localStorage.getItem("headrace.theme") ?? "auto");
showKey();
show();
call("GET", "/health").then(({ headers }) => { version.textContent = headers.get("headrace-version") ?? ""; }, () => {});
