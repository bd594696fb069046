// Records as they come, the newest at the bottom. Old ones are left out of the page, which keeps some hundreds.

import { button, h, heading, nothing } from "./dom.js";

const KEPT = 400;

// `follow(signal, add)` calls `add(rows)` with rows of cells for as long as the signal is not aborted.
export const tail = ({ title, columns, signal, follow }) => {
  const body = h("tbody");
  const status = h("span", { class: "quiet", role: "status" }, "live");
  const wrong = h("div");
  const none = nothing("No records yet. What is appended shows up here.");
  const scroll = h("div", { class: "scroll tail", tabindex: 0, role: "region", "aria-label": title },
    h("table", {}, h("caption", { class: "unseen" }, title),
      h("thead", {}, h("tr", {}, columns.map(heading))), body));
  let seen = 0;
  const add = (rows) => {
    if (!rows.length) return;
    const isAtEnd = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 40;
    none.remove();
    body.append(...rows.map((row) =>
      h("tr", {}, row.map((cell, at) => h("td", { class: columns[at].startsWith("#") && "number" }, cell ?? "–")))));
    while (body.childElementCount > KEPT) body.firstChild.remove();
    seen += rows.length;
    status.textContent = `live, ${seen} seen`;
    if (isAtEnd) scroll.scrollTop = scroll.scrollHeight;
  };
  let stop;
  const start = () => {
    stop = new AbortController();
    signal.addEventListener("abort", () => stop.abort(), { once: true });
    toggle.textContent = "Pause";
    status.textContent = seen ? `live, ${seen} seen` : "live";
    const own = stop.signal;
    follow(own, add).then(
      () => { if (!own.aborted) status.textContent = "ended: closed"; },
      (error) => {
        if (own.aborted || error.name === "AbortError") return;
        status.textContent = "stopped";
        wrong.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message));
        toggle.textContent = "Go on";
        stop.abort();
      });
  };
  const toggle = button("Pause", () => {
    if (stop.signal.aborted) {
      wrong.replaceChildren();
      start();
    } else {
      stop.abort();
      toggle.textContent = "Go on";
      status.textContent = "paused";
    }
  });
  start();
  return h("section", {}, h("div", { class: "row" }, toggle, button("Clear", () => body.replaceChildren()), status), wrong, scroll, none);
};
