// A search: the query with hints about its fields, an order, pages of hits.

import { button, choice, field, h, note, nothing, record, table, text, time, trying, turns } from "./dom.js";

const PAGE = 50;
const COMPARED = new Set(["integer", "float", "date"]);

// What can be written about a field, by its kind and what its configuration offers.
const hintsOf = (name, { kind, exact, prefix, column, exists, positions }) => [
  ...(kind === "text" ? [`${name}:word`, ...(positions ? [`${name}:"two words"`] : [])] : []),
  ...(exact || (kind !== "text" && column) ? [`${name}:`] : []),
  ...(prefix ? [`${name}:begins*`] : []),
  ...(column && COMPARED.has(kind) ? [`${name}:>=`, `${name}:<`] : []),
  ...(exists || exact || column || kind === "text" ? [`has:${name}`] : []),
];

const shown = (kind, value) =>
  value === undefined ? "–" : kind === "date" && !Array.isArray(value) ? time(typeof value === "string" ? value : Number(value)) : text(value);

// `ask(body)` returns the answer; `columns` and `cells(hit)` come before the fields; `fields(hit)` are values by field;
// `source(hit)` is the record.
export const search = ({ place, configuration, ask, columns, cells, fields, source, initial = "" }) => {
  if (!configuration?.fields) {
    place.append(nothing("Nothing is searched here yet: the schema needs a search configuration, with the fields and where they are in a record."));
    return;
  }
  const known = configuration.fields;
  const query = h("input", { type: "search", class: "grow", autocomplete: "off", spellcheck: "false", value: initial });
  const sortable = ["offset", ...Object.keys(known).filter((name) => known[name].sortable || name === configuration.primaryTimestampField)];
  const words = Object.values(known).some(({ kind }) => kind === "text") ? ["_score", "_bm25"] : [];
  const order = choice([{ value: "", label: "default" }, ...[...sortable, ...words].flatMap((name) =>
    [`${name}:desc`, `${name}:asc`])]);
  const hints = h("div", { class: "hints", role: "group", "aria-label": "What can be written" });
  const status = h("p", { class: "quiet", role: "status" });
  const wrong = h("div");
  const found = h("div");
  const more = h("div", { class: "row" });
  let hits = [];

  const word = () => query.value.slice(0, query.selectionStart).match(/[^\s()]*$/)[0].replace(/^-/, "");
  const hint = () => {
    const begun = word();
    const all = Object.entries(known).flatMap(([name, about]) => hintsOf(name, about)).concat("AND", "OR", "NOT");
    const fitting = all.filter((one) => one.startsWith(begun) && one !== begun);
    hints.replaceChildren(...(fitting.length ? fitting : all).slice(0, 14).map((one) => button(one, () => {
      const at = query.selectionStart;
      const start = at - word().length;
      const added = /^(AND|OR|NOT)$|word$/.test(one) ? one.replace(/word$/, "") : one.replace("begins*", "");
      query.setRangeText(added + (/^(AND|OR|NOT)$/.test(one) ? " " : ""), fitting.length ? start : at, at, "end");
      query.focus();
      hint();
    })));
  };
  query.addEventListener("input", hint);

  const asked = turns();
  const run = (after) => trying(wrong, async () => {
    const isNewest = asked();
    status.textContent = "searching";
    const body = { q: query.value || "*", size: PAGE, ...(order.value && { sort: [order.value] }), ...(after && { search_after: after }) };
    if (!query.value.trim()) body.q = everything(known, configuration.primaryTimestampField);
    const { value } = await ask(body).catch((error) => { status.textContent = ""; throw error; });
    if (!isNewest()) return;
    hits = after ? [...hits, ...value.hits] : value.hits;
    const { total, coverage, took_ms: took, timed_out: late } = value;
    const names = fields ? Object.keys(known) : [];
    status.textContent = `${total.relation === "gte" ? "at least " : ""}${total.value} found in ${Math.round(took)} ms` +
      (late ? ", time was over" : "") + (coverage.complete ? "" : ", not everything was looked at");
    found.replaceChildren(hits.length
      ? table("Hits", [...columns, ...names, "record"], hits.map((hit) =>
        [...cells(hit), ...names.map((name) => shown(known[name].kind, fields(hit)?.[name])), record(source(hit))]))
      : nothing("Nothing matches."),
    h("details", {}, h("summary", {}, "Coverage"), h("pre", { class: "json", tabindex: 0 }, JSON.stringify(coverage, null, 2))));
    more.replaceChildren(...(value.next_search_after ? [button("More", () => run(value.next_search_after))] : []));
  });
  const form = h("form", { class: "row" },
    h("div", { class: "query" }, field("Query", query)), field("Order", order), h("button", { class: "main" }, "Search"));
  form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
  order.addEventListener("change", () => run());
  place.append(form, hints, status, wrong, found, more, note("Fields, comparisons, phrases: docs/search.md."));
  hint();
  run();
  return run;
};

// A query that matches whatever has the primary timestamp or lacks it.
const everything = (known, timestamp) => {
  const name = timestamp in known ? timestamp : Object.keys(known)[0];
  return `has:${name} OR NOT has:${name}`;
};
