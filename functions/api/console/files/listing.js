// A list of named things, page by page, whose names begin with what is typed.

import { button, field, h, link, nothing, table, trying, turns } from "./dom.js";
import { key } from "./api.js";

// `page(prefix, after)` returns { rows, after }; a row's first cell is a link to the thing.
export const listing = async ({ place, title, columns, page, create, creates, empty, tools = [] }) => {
  const rows = h("div");
  const wrong = h("div");
  const more = h("div", { class: "row" });
  const status = h("p", { class: "quiet", role: "status" });
  const find = h("input", { type: "search", autocomplete: "off", spellcheck: "false" });
  let all = [];
  const asked = turns();
  const load = async (after) => {
    const isNewest = asked();
    await trying(wrong, async () => {
      const got = await page(find.value.trim(), after);
      if (!isNewest()) return; // something else was typed meanwhile
      all = after === undefined ? got.rows : [...all, ...got.rows];
      rows.replaceChildren(all.length ? table(title, columns, all) : nothing(find.value ? "No name begins with this." : empty()));
      more.replaceChildren(...(got.after === undefined ? [] : [button("More", () => load(got.after))]));
      status.textContent = `${all.length}${got.after === undefined ? "" : " or more"}`;
    });
  };
  let timer;
  find.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(load, 150); });
  place.append(
    h("div", { class: "row" }, h("h1", {}, title), status, h("span", { class: "grow" }),
      create && button(creates, create, { class: "main", "data-create": true, title: `${creates} (c)` })),
    h("div", { class: "row" }, field("Name begins with", find), tools), wrong, rows, more);
  await load();
  return load;
};

// What an empty server shows: requests for a terminal, as [method, path, body].
export const firstSteps = (said, requests) => [said, " Create one here, or in a terminal:", h("pre", { class: "json", tabindex: 0 }, requests.map((one) => `${curl(one)}\n`)),
  "More is in the ", link("/docs", "API reference"), "."];
const curl = ([method, path, body]) => ["curl", `-X ${method} ${location.origin}${path}`, ...(key.get() ? ['-H "Authorization: Bearer $KEY"'] : []),
  "-H 'Content-Type: application/json'", ...(body ? [`-d '${JSON.stringify(body)}'`] : [])].join(" ");

export const tabs = (base, names, current) =>
  h("nav", { class: "tabs", "aria-label": "Views" }, names.map(([name, title]) =>
    h("a", { href: `${base}/${name}`, "aria-current": name === current ? "page" : null }, title)));
