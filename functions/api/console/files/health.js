// How the server is, as far as this key may know.

import { bytes, facts, h, json, note, table } from "./dom.js";
import { Refused, call, pause } from "./api.js";

const REFRESH_MS = 5000;
const CHECKS = [["process", "/health"], ["topics and queues", "/v0/ready"], ["feature tables", "/ready"], ["streams", "/v1/streams?limit=1"]];

export const show = async ({ place, signal }) => {
  const state = h("div");
  place.append(h("h1", {}, "Health"), note("The process that answers: a server, or one instance of a Lambda function."), state);
  for (;;) {
    const rows = await Promise.all(CHECKS.map(async ([name, path]) => {
      const began = performance.now();
      const answer = await call("GET", path, undefined, { signal }).catch((error) => {
        if (error instanceof Refused) return { status: error.message };
        throw error;
      });
      const good = answer.status === 200;
      const said = h("span", { class: good ? "good" : "bad" }, good ? "answers" : `${answer.status}`);
      return [name, h("code", {}, path), said, `${Math.round(performance.now() - began)}`];
    }));
    state.replaceChildren(table("Checks", ["what", "route", "state", "#ms"], rows), await process(signal));
    await pause(REFRESH_MS, signal);
  }
};

const process = async (signal) => {
  const { status, value } = await call("GET", "/v1/server/_details", undefined, { signal, accept: [403] });
  if (status === 403) return note("Its memory and load are for keys with the scope admin, for every name.");
  const { runtime } = value;
  return h("div", {}, h("h2", {}, "Memory and load"), facts([
    ["resident memory", bytes(runtime.memory.last_rss_bytes)], ["at most so far", bytes(runtime.memory.max_rss_bytes)],
    ["writes under way", `${runtime.ingest_queue.requests}`],
    ["reads under way", `${runtime.concurrency.read.active + runtime.concurrency.read.queued}`],
  ]), h("details", {}, h("summary", {}, "Everything"), json(value)));
};
