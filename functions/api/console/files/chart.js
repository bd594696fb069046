// A chart over time with axes, as SVG: stacked bars, or lines for what can't be added up. A table beside it says the same in numbers.

import { h, svg } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [900, 280, 64, 12, 26, 34];

const ANCHORS = ["start", "middle", "middle", "middle", "middle", "end"]; // of the times below

// The least of 1, 2, 5, 10, 20, … that makes at most five steps.
const step = (top) => {
  const size = 10 ** Math.floor(Math.log10(top / 5));
  return [1, 2, 5, 10].map((factor) => factor * size).find((each) => top / each <= 5);
};
const short = (value) => Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 }).format(value);

// `bars`: [{ start, end, values: [number or null for each of `series`] }], by time; `unit` is what the numbers are.
export const chart = ({ title, unit, series, bars, from, to, stacked = true }) => {
  const highest = ({ values }) => (stacked ? values.reduce((sum, value) => sum + value, 0) : Math.max(...values));
  const top = Math.max(...bars.map(highest), 0) || 1;
  const each = step(top);
  const ticks = Array.from({ length: Math.floor(top / each + 1e-9) + 1 }, (_, at) => at * each);
  const high = Math.max(top, ticks.at(-1));
  const x = (at) => LEFT + ((at - from) / (to - from || 1)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / high) * (HEIGHT - TOP - BOTTOM);
  const times = Array.from({ length: 6 }, (_, at) => from + ((to - from) * at) / 5);
  const days = (to - from) / 86_400_000;
  const told = (at) => new Date(at).toISOString().slice(...(days > 300 ? [0, 10] : days > 2 ? [5, 10] : [11, 16]));
  const summary = `${title}, ${bars.length} intervals, highest ${short(top)} ${unit}`;
  return h("figure", { tabindex: 0 },
    h("figcaption", {}, `${title}, ${unit}, UTC`),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": summary },
      ticks.map((tick) => [
        svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(tick), y2: y(tick) }),
        svg("text", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, short(tick)),
      ]),
      times.map((at, index) => svg("text", { x: x(at), y: HEIGHT - BOTTOM + 20, "text-anchor": ANCHORS[index] }, told(at))),
      stacked ? bars.map((bar) => stack(bar, from, to, series, x, y)) : series.map((_, at) => svg("path", { class: `line s${at % 7}`, d: line(bars, at, (bar) => x(Math.max(bar.start, from)), y) })),
      series.length > 1 && legend(series)));
};

// A line with a gap where there is no value; the h0 makes a dot of a value between two gaps.
const line = (bars, at, x, y) => bars.map((bar, index) => {
  if (bar.values[at] === null) return "";
  return `${index && bars[index - 1].values[at] !== null ? "L" : "M"}${x(bar)} ${y(bar.values[at])}h0`;
}).join("");

const stack = (bar, from, to, series, x, y) => {
  const [start, end] = [Math.max(bar.start, from), Math.min(bar.end, to)];
  let base = 0;
  return bar.values.map((value, at) => {
    const lower = base;
    base += value;
    const [width, height] = [Math.max(x(end) - x(start) - 1, 1), y(lower) - y(base)];
    return value > 0 && svg("rect", { class: `s${at % 7}`, x: x(start) + 0.5, width, y: y(base), height },
      svg("title", {}, `${new Date(bar.start).toISOString()} ${series[at]}: ${value}`));
  });
};

const legend = (series) => {
  let at = LEFT;
  return series.map((name, index) => {
    const start = at;
    at += 30 + name.length * 7;
    return at < WIDTH && [
      svg("rect", { class: `s${index % 7}`, x: start, y: 4, width: 11, height: 11 }),
      svg("text", { class: "legend", x: start + 16, y: 14 }, name),
    ];
  });
};
