// Feature tables: what is registered, the features of one entity, the events behind them.

import { ask, button, facts, field, h, json, link, nothing, record, table, text, time, trying } from "./dom.js";
import { call, get, post } from "./api.js";
import { tabs } from "./listing.js";
import { search } from "./search.js";

const NAMESPACE = "headrace.namespace";
const root = () => {
  const name = sessionStorage.getItem(NAMESPACE) || "default";
  return name === "default" ? "" : `/features/${encodeURIComponent(name)}`;
};
const href = (name) => `#/features/${encodeURIComponent(name)}`;
const kindOf = (node) => (node.output_kind === "table" ? "table" : node.kind === "event" ? "event" : "derived event");
const featuresOf = (node) => node.ops?.flatMap((one) => Object.entries(one.agg ?? {})) ?? [];

export const show = async ({ place, parts: [name, tab], signal, again }) => {
  const registry = await get(`${root()}/registry`, { signal });
  if (name) one(place, registry, name, tab, signal);
  else list(place, registry, again);
};

const list = (place, registry, again) => {
  const find = h("input", { type: "search", autocomplete: "off", spellcheck: "false" });
  const namespace = h("input", { value: sessionStorage.getItem(NAMESPACE) || "default", size: 14, spellcheck: "false" });
  const rows = h("div");
  namespace.addEventListener("change", () => {
    sessionStorage.setItem(NAMESPACE, namespace.value.trim());
    again();
  });
  const draw = () => {
    const nodes = registry.nodes.filter((node) => node.name.startsWith(find.value.trim()));
    const row = (node) => [
      link(href(node.name), node.name), kindOf(node), node.upstreams?.join(", "), node.table_primary_key?.join(", "),
      `${featuresOf(node).length || "–"}`, registry.tables[node.name]?.building ? "back-fill under way" : "",
    ];
    const columns = ["name", "kind", "of", "key", "#features", "state"];
    const none = find.value ? "No name begins with this." : "Nothing is registered in this namespace. Press Register, or use a client: docs/features.md.";
    rows.replaceChildren(nodes.length ? table("Feature tables and events", columns, nodes.map(row)) : nothing(none));
  };
  find.addEventListener("input", draw);
  place.append(
    h("div", { class: "row" }, h("h1", {}, "Feature tables"), h("span", { class: "quiet" }, `version ${registry.version}`), h("span", { class: "grow" }),
      button("Register", () => register(again), { class: "main", "data-create": true, title: "Register events and tables (c)" })),
    h("div", { class: "row" }, field("Name begins with", find), field("Namespace", namespace)), rows);
  draw();
};

const EXAMPLE = JSON.stringify([
  { kind: "event", name: "Login", schema: { fields: { user_id: "str", country: "str" }, optional_fields: [] } },
  { kind: "derivation", name: "Logins", output_kind: "table", table_primary_key: ["user_id"], upstreams: ["Login"],
    ops: [{ op: "group_by", keys: ["user_id"], agg: { logins_1d: { op: "count", params: { window: "1d" } } } }],
    schema: { fields: { user_id: "str", logins_1d: "i64" }, optional_fields: [] } },
], null, 2);

const register = (again) => {
  const nodes = h("textarea", { name: "nodes", rows: 16, spellcheck: "false", required: true });
  nodes.value = EXAMPLE;
  const hint = "docs/features.md says what a node may have. A client writes this for you.";
  ask("Register events and tables", [field("Nodes", nodes, hint)], "Register", async ({ nodes: written }) => {
    await call("POST", `${root()}/register`, `{"nodes":${written}}`);
    again();
  });
};

const one = (place, registry, name, tab, signal) => {
  const node = registry.nodes.find((each) => each.name === name);
  if (!node) {
    place.append(nothing(`Nothing is called ${name} in this namespace.`));
    return;
  }
  const kind = kindOf(node);
  const names = kind === "table" ? [["lookup", "Lookup"], ["definition", "Definition"]] : [["events", "Events"], ["definition", "Definition"]];
  const shown = tab ?? names[0][0];
  const view = h("div");
  place.append(
    h("p", { class: "where" }, link("#/features", "Feature tables")), h("h1", {}, name),
    facts([["kind", kind], ["of", node.upstreams ? h("span", {}, node.upstreams.map((each) => [link(href(each), each), " "])) : null],
      ["key", (node.table_primary_key ?? []).join(", ") || null]]),
    tabs(href(name), names, shown), view);
  if (shown === "lookup") lookup(view, node);
  else if (shown === "events") events(view, node, signal);
  else {
    const rows = featuresOf(node).map(([each, { op, params, where }]) => [each, op, text({ ...params, ...(where && { where }) })]);
    view.append(rows.length ? table("Features", ["feature", "operator", "parameters"], rows) : "", json(node));
  }
};

const lookup = (place, node) => {
  const wrong = h("div");
  const found = h("div", { role: "status" });
  const keys = node.table_primary_key ?? [];
  const controls = keys.map((each) => h("input", { autocomplete: "off", required: true, name: each }));
  const form = h("form", { class: "row" }, keys.map((each, at) => field(each, controls[at])), h("button", { class: "main" }, "Look up"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    trying(wrong, async () => {
      const key = controls.map(({ value }) => value.replaceAll("%7C", "%257C").replaceAll("|", "%7C")).join("|");
      const { value, headers } = await call("POST", `${root()}/get`, { table: node.name, key });
      const asOf = headers.get("headrace-as-of");
      const rows = Object.entries(value);
      found.replaceChildren(...(rows.length
        ? [table("Features", ["feature", "value"], rows.map(([name, each]) => [name, each === null ? "null" : record(each)])),
          h("p", { class: "quiet" }, "as of ", time(Number(asOf?.split(";")[0])), asOf && `, events: ${asOf.split(";").slice(1).join(", ")}`)]
        : [nothing("No event has this key.")]));
    });
  });
  place.append(form, wrong, found);
};

const events = (place, node, signal) => {
  const wrong = h("div");
  const types = Object.entries(node.schema?.fields ?? {});
  const sample = Object.fromEntries(types.map(([name, type]) => [name, { str: "…", bool: true }[type] ?? 1]));
  const data = h("textarea", { rows: 2, required: true, spellcheck: "false", placeholder: text(sample) });
  let again;
  const said = h("span", { class: "quiet", role: "status" });
  const form = h("form", { class: "row append" }, field("Push: the JSON of one event", data), h("button", { class: "main" }, "Push"), said);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    trying(wrong, async () => {
      await post(`${root()}/push/${encodeURIComponent(node.name)}`, data.value);
      data.value = "";
      said.textContent = "pushed";
      again?.();
    });
  });
  if (node.kind === "event") place.append(form, wrong);
  if (!node.search) {
    place.append(nothing("Events are searched here if the event is registered with \"search\": true."));
    return;
  }
  const KINDS = { str: "keyword", i64: "integer", f64: "float", bool: "bool" };
  const fields = Object.fromEntries(types.map(([name, type]) => {
    const isText = type === "str";
    return [name, { kind: KINDS[type] ?? "keyword", exact: true, prefix: isText, column: !isText, sortable: true }];
  }));
  const clock = "ts" in fields ? "arrived_at" : "ts";
  again = search({
    place, configuration: { primaryTimestampField: clock, fields: { ...fields, [clock]: { kind: "date", column: true, sortable: true } } },
    ask: (body) => call("POST", `${root()}/search`, { event: node.name, ...body }, { signal }),
    columns: ["arrived"], cells: (hit) => [time(hit.arrived_ms)], source: (hit) => hit.data,
  });
};
