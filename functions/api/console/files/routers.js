// Routers: which topic is copied into which, as a graph and as a list.

import { ask, button, count, field, h, link, note, nothing, svg, table, time } from "./dom.js";
import { call, get, query } from "./api.js";

const MOST = 200;
const MOST_LOOKS = 50;
const [WIDE, HIGH, GAP_X, GAP_Y] = [170, 30, 110, 18];

const path = (name) => `/v0/routers/${encodeURIComponent(name)}`;

export const show = async ({ place, signal, again }) => {
  const routers = [];
  let cursor;
  do {
    const page = await get(`/v0/routers?${query({ cursor, page_size: MOST })}`, { signal });
    routers.push(...page.routers);
    cursor = page.next_cursor;
  } while (cursor && routers.length < MOST);
  const many = `${routers.length}${cursor ? " or more" : ""}`;
  place.append(h("div", { class: "row" }, h("h1", {}, "Routers"), h("span", { class: "quiet" }, many), h("span", { class: "grow" }),
    button("Create a router", () => create(again), { class: "main", "data-create": true, title: "Create a router (c)" })));
  if (!routers.length) {
    place.append(nothing("There are no routers. A router copies what is appended to one topic into another."));
    return;
  }
  const looked = await Promise.all(routers.slice(0, MOST_LOOKS).map(({ router }) => get(path(router), { signal })));
  const state = Object.fromEntries(looked.map((one) => [one.router, one]));
  const row = ({ router, source, dest, forwarded_total: copied }) => {
    const { filter, lag, blocked_since: blocked } = state[router] ?? {};
    return [
      router, topic(source), topic(dest), filter ? JSON.stringify(filter) : "all", count(copied), lag === undefined ? null : count(lag),
      time(blocked), button("Delete", () => remove(router, again), { "aria-label": `Delete ${router}` }),
    ];
  };
  const columns = ["router", "from", "into", "filter", "#copied", "#behind", "waits since", ""];
  place.append(graph(routers, state), table("Routers", columns, routers.map(row)));
};

const topic = (name) => link(`#/topics/${encodeURIComponent(name)}`, name);

const create = (again) => ask("Create a router", [
  field("From topic", h("input", { name: "source", required: true, autofocus: true })),
  field("Into topic", h("input", { name: "dest", required: true })),
  field("Only records with the tag", h("input", { name: "tag" }), "A tag, or its beginning with a * behind it. Empty: all."),
], "Create", async ({ source, dest, tag }) => {
  const filter = tag.endsWith("*") ? ["tag", "Glob", tag] : tag || null;
  await call("PUT", path(`${source}->${dest}`), { source, dest, filter });
  again();
});

const remove = (name, again) => ask(`Delete ${name}?`, [note("What it has copied stays.")], "Delete", async () => {
  await call("DELETE", path(name));
  again();
});

// Each topic's column is the longest way to it from a topic that nothing feeds; cycles are cut where they are met.
const ranks = (routers) => {
  const into = {};
  for (const { source, dest } of routers) {
    into[source] ??= [];
    (into[dest] ??= []).push(source);
  }
  const depth = {};
  const find = (name, above) => {
    if (depth[name] !== undefined) return depth[name];
    if (above.has(name)) return 0;
    above.add(name);
    const found = Math.max(0, ...into[name].map((one) => find(one, above) + 1));
    above.delete(name);
    return (depth[name] = found);
  };
  const all = [];
  for (const name of Object.keys(into).sort()) (all[find(name, new Set())] ??= []).push(name);
  return all.map((names) => names ?? []);
};

const curve = (x1, y1, x2, y2) => `M${x1} ${y1} C${x1 + GAP_X / 2} ${y1} ${x2 - GAP_X / 2} ${y2} ${x2 - 3} ${y2}`;
const arrow = { id: "arrow", viewBox: "0 0 10 10", refX: 9, refY: 5, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" };
const shortened = (name) => (name.length > 22 ? [`${name.slice(0, 21)}…`, svg("title", {}, name)] : name);

const graph = (routers, state) => {
  const places = {};
  const laid = ranks(routers);
  laid.forEach((names, column) => names.forEach((name, row) => {
    places[name] = { x: 10 + column * (WIDE + GAP_X), y: 10 + row * (HIGH + GAP_Y) };
  }));
  const width = 20 + laid.length * WIDE + (laid.length - 1) * GAP_X;
  const height = 20 + Math.max(...laid.map((names) => names.length)) * (HIGH + GAP_Y) - GAP_Y;
  const edge = ({ router, source, dest }) => {
    const [a, b] = [places[source], places[dest]];
    const [x1, y1, x2, y2] = [a.x + WIDE, a.y + HIGH / 2, b.x, b.y + HIGH / 2];
    const lag = state[router]?.lag;
    return [
      svg("path", { class: "edge", "marker-end": "url(#arrow)", d: curve(x1, y1, x2, y2) }, svg("title", {}, router)),
      lag > 0 && svg("text", { x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 4, "text-anchor": "middle" }, `${lag} behind`),
    ];
  };
  const node = ([name, { x, y }]) => svg("a", { class: "node", href: `#/topics/${encodeURIComponent(name)}` },
    svg("rect", { x, y, width: WIDE, height: HIGH, rx: 6 }),
    svg("text", { x: x + WIDE / 2, y: y + HIGH / 2 + 4, "text-anchor": "middle" }, shortened(name)));
  const box = { viewBox: `0 0 ${width} ${height}`, width, height, class: "graph", role: "group", "aria-label": "Graph of routers" };
  return h("figure", { tabindex: 0 }, svg("svg", box,
    svg("defs", {}, svg("marker", arrow, svg("path", { class: "arrow", d: "M0 0 L10 5 L0 10 z" }))),
    routers.map(edge), Object.entries(places).map(node)));
};
