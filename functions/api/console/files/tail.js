// Records as they come, the newest at the bottom. Old ones are left out of the page, which keeps some hundreds.

import { button, h, heading, note, nothing } from "./dom.js";

const KEPT = 400;
const TRY_AGAIN_MS = 3000;
const PASSING = new Set([0, 429, 500, 502, 503, 504]); // no answer, or one that another try may not get

// `follow(signal, add)` calls `add(rows)` with rows of cells for as long as the signal is not aborted. Called again, it goes on.
export const tail = ({ title, columns, signal, follow }) => {
  const body = h("tbody");
  const status = h("span", { class: "quiet", role: "status" }, "live");
  const wrong = h("div");
  const none = nothing("No records yet. What is appended shows up here.");
  const scroll = h("div", { class: "scroll tail", tabindex: 0, role: "region", "aria-label": title },
    h("table", {}, h("caption", { class: "unseen" }, title),
      h("thead", {}, h("tr", {}, columns.map(heading))), body));
  let seen = 0;
  const say = (told) => { if (status.textContent !== told) status.textContent = told; };
  const add = (rows) => {
    seen += rows.length;
    say(seen ? `live, ${seen} seen` : "live");
    if (!rows.length) return;
    const isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 40;
    none.remove();
    body.append(...rows.map((row) =>
      h("tr", {}, row.map((cell, at) => h("td", { class: columns[at].startsWith("#") && "number" }, cell ?? "–")))));
    while (body.childElementCount > KEPT) body.firstChild.remove();
    if (isAtEnd) scroll.scrollTop = scroll.scrollHeight;
  };
  let stop;
  const start = () => {
    stop?.abort();
    stop = new AbortController();
    const own = stop.signal;
    signal.addEventListener("abort", () => stop.abort(), { once: true, signal: own });
    follow(own, add).then(
      () => { if (!own.aborted) say("ended: closed"); },
      (error) => {
        if (own.aborted || error.name === "AbortError") return;
        if (PASSING.has(error.status)) {
          say(`${error.message}; trying again`);
          setTimeout(() => { if (!own.aborted) start(); }, TRY_AGAIN_MS);
          return;
        }
        say("stopped");
        wrong.replaceChildren(note(error.message, "bad"));
        toggle.textContent = "Resume";
        stop.abort();
      });
  };
  const toggle = button("Pause", () => {
    if (stop.signal.aborted) {
      wrong.replaceChildren();
      toggle.textContent = "Pause";
      add([]);
      start();
    } else {
      stop.abort();
      toggle.textContent = "Resume";
      say("paused");
    }
  });
  start();
  return h("section", {}, h("div", { class: "row" }, toggle, button("Clear", () => body.replaceChildren()), status), wrong, scroll, none);
};
