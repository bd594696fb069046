// Streams: the list, and of each one records, search, rollups, schema and profile, status.

import { stream } from "./durable-streams.js";
import { ask, button, bytes, count, facts, field, h, json, link, note, record, time, trying } from "./dom.js";
import { Refused, bearer, call, exact, get, query, streamPath, wantsKey } from "./api.js";
import { firstSteps, listing, tabs } from "./listing.js";
import { tail } from "./tail.js";
import { search } from "./search.js";
import { rollups } from "./rollups.js";
import { indexes } from "./indexes.js";

const PAGE = 100;
const FIRST = 100n; // records that are shown at once
const DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

const href = (name, tab = "records") => `#/streams/${encodeURIComponent(name)}/${tab}`;

export const show = ({ place, parts: [name, tab = "records"], signal, again }) =>
  name ? one(place, name, tab, signal, again) : list(place);

const list = (place) => listing({
  place, title: "Streams", creates: "Create a stream", create,
  columns: ["name", "type", "profile", "#records", "#sealed", "created"],
  empty: () => firstSteps("There are no streams yet.", [["PUT", "/v1/stream/orders"], ["POST", "/v1/stream/orders", { id: 1 }]]),
  page: async (prefix, after) => {
    const streams = await get(`/v1/streams?${query({ prefix, after, limit: PAGE })}`);
    return {
      rows: streams.map((each) => [
        link(href(each.name), each.name), each.content_type, each.profile, count(each.next_offset),
        count(BigInt(each.sealed_through) + 1n), time(each.created_at),
      ]),
      after: streams.length === PAGE ? streams.at(-1).name : undefined,
    };
  },
});

const create = () => ask("Create a stream", [
  field("Name", h("input", { name: "name", required: true, autofocus: true, autocomplete: "off" })),
  field("Type", h("input", { name: "type", value: "application/json", required: true })),
  field("Expires when idle for", h("input", { name: "ttl", placeholder: "24h" }), "Seconds, or 15s, 90m, 24h. Empty: never."),
], "Create", async ({ name, type, ttl }) => {
  await call("PUT", streamPath(name), undefined, { headers: { "Content-Type": type, ...(ttl && { "Stream-TTL": ttl }) } });
  location.hash = href(name);
});

const one = async (place, name, tab, signal, again) => {
  const path = streamPath(name);
  const details = await get(`${path}/_details`, { signal });
  const { stream: about } = details;
  const isJson = about.content_type === "application/json";
  const ofJson = [["search", "Search"], ["rollups", "Rollups"], ["schema", "Schema and profile"]];
  const names = [["records", "Records"], ...(isJson ? ofJson : []), ["status", "Status"]];
  place.append(
    h("p", { class: "where" }, link("#/streams", "Streams")),
    h("div", { class: "row" }, h("h1", {}, name), h("span", { class: "grow" }), button("Delete", () => remove(path, name))),
    facts([
      ["type", about.content_type], ["profile", about.profile], ["records", count(about.next_offset)],
      ["size", bytes(about.total_size_bytes)], ["last append", BigInt(about.next_offset) ? time(about.last_append_at) : null],
      about.closed && ["state", "closed"], ["expires", time(about.expires_at)],
    ]),
    tabs(`#/streams/${encodeURIComponent(name)}`, names, tab));
  const view = h("div");
  place.append(view);
  const configuration = details.schema.search;
  if (tab === "search") {
    search({
      place: view, configuration, ask: (body) => call("POST", `${path}/_search`, body, { signal, accept: [408] }),
      columns: ["#offset"], cells: (hit) => [`${position(hit.offset) - 1n}`], fields: (hit) => hit.fields, source: (hit) => hit.source,
    });
  } else if (tab === "rollups") {
    const asking = (route) => (body) => call("POST", `${path}/${route}`, body, { signal });
    rollups({ place: view, configuration, ask: asking("_aggregate"), find: asking("_search") });
  }
  else if (tab === "schema") definitions(view, path, details, again);
  else if (tab === "status") indexes(view, details);
  else records(view, path, isJson, about, signal);
};

const remove = (path, name) => ask(`Delete ${name}?`, [note("Its records are gone for good.")], "Delete", async () => {
  await call("DELETE", path);
  location.hash = "#/streams";
});

// The text of a cursor is 26 digits of 5 bits: (incarnation << 96 | position << 32) << 2 (docs/formats.md § 1).
const number = (cursor) => [...cursor].reduce((sum, digit) => (sum << 5n) | BigInt(DIGITS.indexOf(digit)), 0n);
const position = (cursor) => (number(cursor) >> 34n) & 0xffff_ffff_ffff_ffffn;
const back = (cursor, records) => {
  const at = position(cursor);
  let value = number(cursor) - ((records < at ? records : at) << 34n);
  let told = "";
  for (let digit = 0; digit < 26; digit += 1, value >>= 5n) told = DIGITS[Number(value & 31n)] + told;
  return told;
};

const records = (place, path, isJson, about, signal) => {
  const wrong = h("div");
  const body = h("textarea", { rows: 2, name: "body", required: true, spellcheck: "false", placeholder: isJson ? '{"n": 1}' : "" });
  const routing = h("input", { name: "key", autocomplete: "off" });
  const form = h("form", { class: "row append" },
    field(isJson ? "Append: a JSON value, or an array of records" : `Append: ${about.content_type}`, body),
    field("Routing key", routing), h("button", { class: "main", disabled: about.closed }, "Append"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    trying(wrong, async () => {
      const headers = { "Content-Type": about.content_type, ...(routing.value && { "Stream-Key": routing.value }) };
      await call("POST", path, body.value, { headers });
      body.value = "";
    });
  });
  place.append(form, wrong, tail({
    title: "Records", columns: ["#offset", "record"], signal,
    follow: follow(path, isJson),
  }));
};

const follow = (path, isJson) => {
  let from; // the cursor of the first record that was not shown
  return async (signal, add) => {
    if (!from) {
      const { headers } = await call("HEAD", path, undefined, { signal });
      from = back(headers.get("stream-end-offset") ?? headers.get("stream-next-offset"), FIRST);
    }
    const refused = [];
    const open = () => stream({
      url: new URL(path, location.href), headers: bearer(), offset: from, live: "long-poll", params: { timeout: "20s" },
      signal, warnOnHttp: false, backoffOptions: { initialDelay: 100, maxDelay: 1000, multiplier: 2, maxRetries: 1 },
      onError: (error) => {
        if (error.status === 401) wantsKey();
        refused.push(error);
      },
    }).catch((error) => {
      const earliest = error.headers?.["stream-earliest-offset"];
      if (!earliest) throw refusal(error);
      from = earliest; // the retention has let go of what was asked for
      refused.length = 0;
      return open();
    });
    const answer = await open();
    answer.subscribeText(({ text, offset }) => {
      const at = position(from);
      const values = isJson ? exact(text || "[]") : text ? [text] : [];
      add(values.map((value, index) => [`${at + BigInt(index)}`, record(value)]));
      from = offset;
    });
    await answer.closed;
    if (refused.length) throw refusal(refused[0]);
  };
};
const refusal = ({ status, code, message }) => new Refused(status ?? 0, code ?? "", status ? message : "the server does not answer");

const definitions = (place, path, { schema, profile }, again) => {
  const part = (title, resource, value, help) => {
    const wrong = h("div");
    const written = JSON.stringify(value, null, 2);
    const area = h("textarea", { rows: Math.min(written.split("\n").length + 1, 16), spellcheck: "false" });
    area.value = written;
    return h("section", {}, h("h2", {}, title), note(help), field(`New ${title.toLowerCase()}`, area), wrong,
      h("div", { class: "row" }, button("Save", () => trying(wrong, async () => {
        await call("POST", `${path}/${resource}`, area.value);
        again();
      }), { class: "main" })),
      h("details", {}, h("summary", {}, "In force"), json(value)));
  };
  const { schemas, lenses, boundaries, currentVersion, search: configuration } = schema;
  place.append(
    part("Schema", "_schema", { schema: schemas[currentVersion] ?? {}, ...(configuration && { search: configuration }) },
      `Version ${currentVersion}; lenses: ${Object.keys(lenses).length}, boundaries: ${boundaries.length}. ` +
      "A first schema needs no lens; docs/json-streams.md says what a change needs."),
    part("Profile", "_profile", profile, "What the records mean: `kind` is generic, evlog, metrics, otel-traces or state-protocol."));
};
