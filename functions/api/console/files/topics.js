// Topics and queues: the list, and of each one records, search, rollups, jobs, configuration.

import { ask, button, bytes, choice, count, facts, field, h, json, link, note, nothing, record, span, table, time, trying } from "./dom.js";
import { call, get, post, query, repeat, topicPath } from "./api.js";
import { chart } from "./chart.js";
import { firstSteps, listing, tabs } from "./listing.js";
import { rollups } from "./rollups.js";
import { search } from "./search.js";
import { tail } from "./tail.js";

const FIRST = 100; // records that are shown at once
const MOST_LEASES = 100;
const REFRESH_MS = 2000;
const [FROM, DELIVERIES, JOB] = ["$dead_letter_from", "$dead_letter_deliveries", "$dead_letter_src_seq"];

const VIEWS = [["records", "Records"], ["search", "Search"], ["rollups", "Rollups"], ["configuration", "Configuration"]];

const href = (name, tab = "records") => `#/topics/${encodeURIComponent(name)}/${tab}`;

export const show = ({ place, parts: [name, tab], signal }) => (name ? one(place, name, tab, signal) : list(place));

const list = async (place) => {
  const type = choice([{ value: "", label: "topics and queues" }, { value: "log", label: "topics" }, { value: "queue", label: "queues" }]);
  const load = await listing({
    place, title: "Topics and queues", creates: "Create", create: () => create(type.value), tools: field("Show", type),
    columns: ["name", "type", "#records", "#size", "#newest seq"], empty: () => (type.value ? "None of those that were loaded." : firstSteps("There are no topics or queues yet.", [
      ["PUT", "/v0/topics/readings", {}], ["POST", "/v0/topics/readings", { records: [{ data: { celsius: 21.5 } }] }]])),
    page: async (prefix, cursor) => {
      const page = await get(`/v0/topics?${query({ prefix, cursor, page_size: 100 })}`);
      return {
        rows: page.topics.filter((each) => !type.value || each.type === type.value).map((each) => [
          link(href(each.topic, each.type === "queue" ? "jobs" : "records"), each.topic), each.type,
          count(each.count), bytes(each.bytes), `${each.head_seq}`,
        ]),
        after: page.next_cursor,
      };
    },
  });
  type.addEventListener("change", () => load());
};

const create = (chosen) => {
  const type = choice([
    { value: "log", label: "topic: readers see each record" }, { value: "queue", label: "queue: workers lease jobs" },
  ], { name: "type" });
  const ofQueue = h("div", { class: "stack" },
    field("Lease, in seconds", h("input", { name: "lease", type: "number", min: 1, value: 30 }), "A job that is not completed by then is delivered again."),
    field("Dead-letter topic", h("input", { name: "dead", autocomplete: "off" }), "Empty: jobs are delivered until they are completed."),
    field("Deliveries before a job goes there", h("input", { name: "deliveries", type: "number", min: 0, value: 5 })));
  const follow = () => { ofQueue.hidden = type.value !== "queue"; };
  type.addEventListener("change", follow);
  type.value = chosen || "log";
  follow();
  ask("Create a topic or a queue", [
    field("Name", h("input", { name: "name", required: true, autofocus: true, autocomplete: "off", pattern: "[A-Za-z0-9][A-Za-z0-9._:\\-]*" }),
      "Letters, digits, and . _ : - after the first."),
    field("Type", type),
    field("Records live for, in seconds", h("input", { name: "ttl", type: "number", min: 0 }), "Empty: for good."), ofQueue,
  ], "Create", async ({ name, ttl, lease, deliveries, dead }) => {
    const isQueue = type.value === "queue";
    const queue = isQueue ? { lease_ms: lease * 1000, max_deliveries: Number(deliveries), dead_letter: dead || null } : {};
    await call("PUT", topicPath(name), { type: type.value, ...(ttl && { ttl_ms: ttl * 1000 }), ...queue });
    location.hash = href(name, isQueue ? "jobs" : "records");
  });
};

const one = async (place, name, tab, signal) => {
  const path = topicPath(name);
  const state = await get(`${path}?touch=false`, { signal });
  const isQueue = state.type === "queue";
  const shown = tab ?? (isQueue ? "jobs" : "records");
  const view = h("div");
  place.append(
    h("p", { class: "where" }, link("#/topics", "Topics and queues")),
    h("div", { class: "row" }, h("h1", {}, name), h("span", { class: "grow" }), button("Delete", () => remove(path, name))),
    facts([["type", state.type], ["records", count(state.count)], ["size", bytes(state.bytes)], ["seqs", state.count ? `${state.earliest_seq} to ${state.head_seq}` : null],
      ["last write", time(state.last_write_ts)], ["kept for", state.config.ttl_ms ? span(state.config.ttl_ms) : null]]),
    tabs(`#/topics/${encodeURIComponent(name)}`, isQueue ? [["jobs", "Jobs"], ...VIEWS] : VIEWS, shown),
    view);
  const asking = (route) => (body) => call("POST", `${path}/${route}`, body, { signal });
  if (shown === "jobs" && isQueue) jobs(view, path, name, state, signal);
  else if (shown === "search" || shown === "rollups") {
    const { search: configuration } = await get(`${path}/search`, { signal });
    if (shown === "search") {
      search({
        place: view, configuration, ask: asking("search"), columns: ["#seq", "time", "tag", "node"],
        cells: (hit) => [`${hit.$seq}`, time(hit.$ts), hit.$tag, hit.$node], source: (hit) => hit.data,
      });
    } else rollups({ place: view, configuration, ask: asking("aggregate"), find: asking("search") });
  } else if (shown === "configuration") view.append(json(state.config));
  else records(view, path, state, signal);
};

const GONE = "Its records, and the routers from it and into it, are gone for good.";
const remove = (path, name) => ask(`Delete ${name}?`, [note(GONE)], "Delete", async () => {
  await call("DELETE", path);
  location.hash = "#/topics";
});

const records = (place, path, state, signal) => {
  const wrong = h("div");
  const data = h("textarea", { rows: 2, required: true, spellcheck: "false", placeholder: '{"n": 1}' });
  const tag = h("input", { autocomplete: "off" });
  const form = h("form", { class: "row append" },
    field("Append: the JSON of one record", data), field("Tag", tag), h("button", { class: "main" }, "Append"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    trying(wrong, async () => {
      JSON.parse(data.value);
      await post(path, `{"records":[{"data":${data.value},"tag":${JSON.stringify(tag.value || null)}}],"node":"console"}`);
      data.value = "";
    });
  });
  let seq = Math.max(state.head_seq - FIRST, 0);
  place.append(form, wrong, tail({
    title: "Records", columns: ["#seq", "time", "tag", "node", "record"], signal,
    follow: async (own, add) => {
      let wait = 0;
      for (;;) {
        const page = await post(`${path}/diff`, { from_seq: seq, limit: FIRST, include_tags: true, ...(wait && { wait_ms: wait }) }, { signal: own });
        if (page.tombstone) {
          const { gap_from: first, gap_to: to, reason } = page.tombstone;
          add([[`${first}`, "", "", "", `${first} to ${to} are gone: ${reason}`]]);
        }
        add(page.records.map((each) => [`${each.$seq}`, time(each.$ts), each.$tag, each.$node, record(each.data)]));
        seq = page.next_from_seq;
        wait = page.caught_up ? 20_000 : 0;
      }
    },
  }));
};

const jobs = (place, path, name, state, signal) => {
  const { config } = state;
  const depth = h("div", { class: "big" });
  const wrong = h("div");
  const leases = h("section");
  const letters = h("section");
  const timings = h("section");
  place.append(depth, facts([["lease", span(config.lease_ms)], ["deliveries", config.dead_letter ? config.max_deliveries || "no limit" : "no limit"],
    ["dead letters go to", config.dead_letter ? link(href(config.dead_letter), config.dead_letter) : "nowhere"]]), wrong, leases, letters, timings);
  let given = -1;
  let last;
  const refresh = async () => {
    const [{ queue }, held] = await Promise.all([
      get(`${path}?touch=false`, { signal }), call("GET", `${path}/leases?limit=${MOST_LEASES}`, undefined, { signal })]);
    depth.replaceChildren(facts([["ready", count(queue.ready)], ["leased", count(queue.in_flight)], ["dead-lettered", count(queue.dead_lettered)]]));
    const rows = JSON.stringify(held.value.leases);
    if (rows !== last) leases.replaceChildren(...listed(held.value.leases)); // what is the same keeps the focus
    last = rows;
    if (queue.dead_lettered !== given && config.dead_letter) {
      given = queue.dead_lettered;
      await showLetters(letters, path, name, config.dead_letter, signal);
    }
  };
  repeat(REFRESH_MS, signal, () => trying(wrong, refresh));
  trying(timings, () => showTimings(timings, path, signal));
};

const listed = (leases) => [h("h2", {}, "Leases"), leases.length
  ? table("Leases", ["#job", "worker", "claimed", "lease ends", "#deliveries"], leases.map((one) =>
    [`${one.$seq}`, one.node, time(one.claimed_ts), time(one.deadline), `${one.deliveries}`]))
  : nothing("No worker holds a job."),
leases.length === MOST_LEASES ? note(`The first ${MOST_LEASES} that end.`) : ""];

// The jobs in the dead-letter topic that are of this queue, the oldest first.
const showLetters = async (place, path, name, topic, signal) => {
  const wrong = h("div");
  const dead = topicPath(topic);
  const answer = await call("POST", `${dead}/diff`, { from_seq: 0, limit: FIRST, include_tags: true }, { signal, accept: [404] });
  const page = answer.status === 404 ? { records: [], caught_up: true } : answer.value;
  const own = page.records.filter((each) => each.meta?.[FROM] === name);
  const retry = (letter) => trying(wrong, async () => {
    await post(path, jobOf(letter));
    await post(`${dead}/delete`, { seqs: [letter.$seq] });
    await showLetters(place, path, name, topic, signal);
  });
  place.replaceChildren(h("h2", {}, "Dead letters"), wrong, own.length
    ? table("Dead letters", ["#seq", "#job", "#deliveries", "tag", "data", ""], own.map((each) => [
      `${each.$seq}`, each.meta[JOB], each.meta[DELIVERIES], each.$tag, record(each.data),
      button("Retry", () => retry(each), { disabled: !JSON.rawJSON, "aria-label": `Retry ${each.$seq}` })]))
    : nothing("None."),
  page.caught_up ? "" : note(`Only the first ${FIRST} records of ${topic} were looked at.`),
  JSON.rawJSON ? "" : note("This browser can't hand numbers on as they were written: use `headrace queue dead-letters retry`."));
};

// The append of a job that is tried again. The key makes a repeat harmless: it is of this letter alone.
const jobOf = ({ $seq, $ts, $tag, $node, data, meta }) => {
  const rest = Object.fromEntries(Object.entries(meta).filter(([name]) => ![FROM, DELIVERIES, JOB].includes(name)));
  const job = { data, ...($tag && { tag: $tag }), ...($node && { node: $node }), ...(Object.keys(rest).length && { meta: rest }) };
  return { records: [job], create: false, idempotency_key: `dead-letter:${$seq}:${$ts}:${meta[JOB]}` };
};

const showTimings = async (place, path, signal) => {
  const to = Date.now();
  const from = to - 86_400_000;
  const window = { from: new Date(from).toISOString(), to: new Date(to).toISOString(), interval: "1h" };
  const { buckets } = await post(`${path}/timings`, window, { signal });
  place.replaceChildren(h("h2", {}, "Last 24 hours"), buckets.length ? h("div", {},
    chart({ title: "Outcomes by hour", unit: "jobs", series: ["acked", "nacked", "expired", "dead"], from, to,
      bars: buckets.map((one) => ({
        start: Date.parse(one.start), end: Date.parse(one.end), values: [one.acked, one.nacked, one.expired, one.dead],
      })) }),
    table("By hour", ["hour", "#claimed", "#acked", "#redelivered", "#nacked", "#expired", "#dead", "#wait p95", "#run p95"], buckets.map((one) => [
      time(one.start), ...[one.claimed, one.acked, one.redelivered, one.nacked, one.expired, one.dead].map(count),
      one.wait_ms.p95 == null ? "–" : span(Number(one.wait_ms.p95)), one.run_ms.p95 == null ? "–" : span(Number(one.run_ms.p95))])))
    : nothing("Nothing was claimed."));
};
