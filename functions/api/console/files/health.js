// How the server is, as far as this key may know.

import { bytes, facts, h, note, table } from "./dom.js";
import { Refused, call, repeat } from "./api.js";

const REFRESH_MS = 5000;
const CHECKS = [["process", "/health"], ["topics and queues", "/v0/ready"], ["feature tables", "/ready"], ["streams", "/v1/streams?limit=1"]];

export const show = async ({ place, signal }) => {
  const checks = h("div");
  const load = h("div");
  const whole = h("pre", { class: "json", tabindex: 0 });
  const details = h("details", { hidden: true }, h("summary", {}, "Everything"), whole);
  place.append(h("h1", {}, "Health"), note("The process that answers: a server, or one instance of a Lambda function."), checks, load, details);
  await repeat(REFRESH_MS, signal, async () => {
    const [process, ...answers] = await Promise.all(["/v1/server/_details", ...CHECKS.map(([, path]) => path)].map((path) => look(path, signal)));
    const rows = CHECKS.map(([name, path], at) => {
      const { status, message, ms } = answers[at];
      const good = status === 200;
      return [name, h("code", {}, path), h("span", { class: good ? "good" : "bad" }, good ? "answers" : message), `${ms}`];
    });
    checks.replaceChildren(table("Checks", ["what", "route", "state", "#ms"], rows));
    load.replaceChildren(...loadOf(process));
    details.hidden = process.status !== 200;
    whole.textContent = JSON.stringify(process.value, null, 2);
  });
};

const look = async (path, signal) => {
  const began = performance.now();
  const answer = await call("GET", path, undefined, { signal }).catch((error) => {
    if (error instanceof Refused) return error;
    throw error;
  });
  const { status, message, value } = answer;
  return { status, message, value, ms: Math.round(performance.now() - began) };
};

const loadOf = ({ status, value }) => {
  if (status === 403) return [note("Its memory and load are for keys with the scope admin, for every name.")];
  if (status !== 200) return []; // the checks say why
  const { memory, ingest_queue: writes, concurrency: { read } } = value.runtime;
  return [h("h2", {}, "Memory and load"), facts([
    ["resident memory", bytes(memory.last_rss_bytes)], ["at most so far", bytes(memory.max_rss_bytes)],
    ["writes under way", `${writes.requests}`], ["reads under way", `${read.active + read.queued}`],
  ])];
};
