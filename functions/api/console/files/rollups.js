// Rollups: groups of records over time, as a chart and as a table.

import { choice, field, h, nothing, table, time, trying, turns } from "./dom.js";
import { chart } from "./chart.js";

const ALL = "all records";
const RANGES = { "last hour": 3_600_000, "last 24 hours": 86_400_000, "last 7 days": 7 * 86_400_000, "last 30 days": 30 * 86_400_000, [ALL]: 0 };
const LENGTHS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const PARTS = ["avg", "p50", "p95", "p99", "sum", "min", "max", "count"];
const MOST_SERIES = 7;
const MOST_BARS = 800;

const length = (interval) => Number.parseInt(interval, 10) * LENGTHS[interval.at(-1)];
export const number = (value) => Number(value?.rawJSON ?? value ?? 0);

// `ask(body)` and `find(body)` return the answers to an aggregate and to a search.
export const rollups = ({ place, configuration, ask, find }) => {
  const known = configuration?.rollups ?? {};
  if (!Object.keys(known).length) {
    place.append(nothing("There are no rollups: the search configuration can have some, with dimensions, intervals and measures."));
    return;
  }
  const rollup = choice(Object.keys(known));
  const range = choice(Object.keys(RANGES));
  const interval = h("select");
  const measure = h("select");
  const group = h("select");
  const query = h("input", { type: "search", autocomplete: "off", spellcheck: "false" });
  const wrong = h("div");
  const drawn = h("div");
  const options = (select, values) => select.replaceChildren(...values.map(([value, label]) => h("option", { value }, label)));
  const chosen = () => {
    const { dimensions = [], intervals, measures } = known[rollup.value];
    options(interval, intervals.map((one) => [one, one]));
    options(measure, Object.entries(measures).flatMap(([name, { kind }]) =>
      kind === "count" ? [[`${name}.count`, name]] : PARTS.map((part) => [`${name}.${part}`, `${name}, ${part}`])));
    options(group, [["", "nothing"], ...dimensions.map((one) => [one, one])]);
  };
  const window = async () => {
    const now = Date.now();
    if (range.value !== ALL) return [now - RANGES[range.value], now];
    const field = configuration.primaryTimestampField;
    const ends = await Promise.all(["asc", "desc"].map((way) => find({ q: `has:${field}`, size: 1, sort: [`${field}:${way}`] })));
    const [first, last] = ends.map(({ value }) => number(value.hits[0]?.sort[0] ?? now));
    return [first, last + 1];
  };
  const asked = turns();
  const run = () => trying(wrong, async () => {
    const isNewest = asked();
    const [from, to] = await window();
    const size = to - from;
    const lengths = [...interval.options].map((one) => one.value);
    if (size / length(interval.value) > MOST_BARS)
      interval.value = lengths.find((one) => size / length(one) <= MOST_BARS) ?? lengths.at(-1);
    const [name, part] = measure.value.split(".");
    const { value } = await ask({
      rollup: rollup.value, interval: interval.value, from: new Date(from).toISOString(), to: new Date(to).toISOString(),
      measures: [name], ...(group.value && { group_by: [group.value] }), ...(query.value.trim() && { q: query.value }),
    });
    if (!isNewest()) return;
    const keyOf = (one) => (group.value ? `${one.key[group.value] ?? "none"}` : measure.value.replace(".count", ""));
    const totals = {};
    const read = (one) => number(one.measures[name]?.[part]);
    for (const bucket of value.buckets) for (const one of bucket.groups) totals[keyOf(one)] = (totals[keyOf(one)] ?? 0) + read(one);
    const series = Object.keys(totals).sort((a, b) => totals[b] - totals[a]).slice(0, MOST_SERIES);
    const bars = value.buckets.map((bucket) => ({
      start: Date.parse(bucket.start), end: Date.parse(bucket.end),
      values: series.map((key) => { // null: no record
        const found = bucket.groups.find((one) => keyOf(one) === key);
        return found ? read(found) : null;
      }),
    }));
    const left = Object.keys(totals).length - series.length;
    drawn.replaceChildren(...(bars.length ? [
      chart({
        title: `Rollup ${rollup.value} by ${interval.value}`, unit: part === "count" ? name : `${part} of ${name}`,
        series, bars, from, to, stacked: part === "count" || part === "sum",
      }),
      left > 0 ? h("p", { class: "quiet" }, `${left} smaller groups are left out.`) : "",
      table("By interval", ["interval", ...series.map((one) => `#${one}`)],
        bars.map((bar) => [time(bar.start), ...bar.values.map((each) => each === null ? null : `${+each.toFixed(3)}`)])),
    ] : [nothing("No record is in this time. Choose a longer one.")]));
  });
  rollup.addEventListener("change", () => { chosen(); run(); });
  for (const each of [range, interval, measure, group]) each.addEventListener("change", run);
  const form = h("form", { class: "row" }, field("Rollup", rollup), field("Time", range), field("Interval", interval), field("Measure", measure),
    field("Grouped by", group), h("div", { class: "query" }, field("Only records that match", query)), h("button", { class: "main" }, "Show"));
  form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
  chosen();
  place.append(form, wrong, drawn);
  run();
};
