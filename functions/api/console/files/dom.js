// Elements, made of data. A text becomes a text node, never markup.

const SVG = "http://www.w3.org/2000/svg";

const fill = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
};

export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export const link = (href, ...children) => h("a", { href }, ...children);
export const button = (text, onclick, attributes = {}) => h("button", { type: "button", onclick, ...attributes }, text);
export const field = (label, control, hint) =>
  h("label", { class: "field" }, h("span", {}, label), control, hint && h("small", {}, hint));
export const choice = (options, attributes = {}) =>
  h("select", attributes, options.map((one) => h("option", { value: one.value ?? one }, one.label ?? one)));

// Columns are texts; one that begins with # holds numbers.
export const heading = (name) =>
  name ? h("th", { scope: "col", class: name.startsWith("#") && "number" }, name.replace(/^#/, "")) : h("td");
export const table = (caption, columns, rows) => {
  const numeric = columns.map((name) => name.startsWith("#"));
  const cells = (row) => row.map((cell, at) => h("td", { class: numeric[at] && "number" }, cell ?? "–"));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map(heading))),
      h("tbody", {}, rows.map((row) => h("tr", {}, cells(row))))));
};

export const facts = (pairs) =>
  h("dl", { class: "facts" }, pairs.filter((pair) => pair && pair[1] != null).map(([name, value]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value))));

export const note = (text, kind = "quiet") => h("p", { class: kind, role: kind === "bad" ? "alert" : null }, text);
export const nothing = (...told) => h("div", { class: "empty" }, told);

// Runs what may fail; what went wrong is shown in `place`.
export const trying = async (place, work) => {
  try {
    place.replaceChildren();
    return await work();
  } catch (error) {
    if (error.name !== "AbortError") place.replaceChildren(note(error.message, "bad"));
    return undefined;
  }
};

// Tells of several answers that are waited for which one was asked for last: `const isNewest = asked(); await …`.
export const turns = () => {
  let newest = 0;
  return () => {
    const own = ++newest;
    return () => own === newest;
  };
};

// A dialog with a form. `submit` gets the controls' values by name; if it throws, the dialog stays and says why. Without it
// there is only something to read.
export const ask = (title, fields, action, submit) => {
  const wrong = h("div");
  const form = h("form", { method: "dialog" },
    h("h2", {}, title), fields, wrong,
    h("div", { class: "row end" },
      submit && button("Cancel", () => dialog.close()), h("button", { class: "main" }, action)));
  const dialog = h("dialog", { "aria-label": title, onclose: () => dialog.remove() }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const values = Object.fromEntries(new FormData(form));
    await trying(wrong, async () => {
      await submit?.(values);
      dialog.close();
    });
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
};

export const count = (value) => BigInt(value).toLocaleString("en");
export const time = (value) => {
  if (value == null) return null;
  const iso = new Date(value).toISOString();
  return h("time", { datetime: iso }, iso.replace("T", " ").replace(/\.000Z$|Z$/, ""));
};
export const bytes = (value) => {
  let size = Number(value);
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1024) return `${unit === "B" ? size : size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(1)} TiB`;
};
export const span = (ms) => {
  for (const [unit, length] of [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]])
    if (ms >= length) return `${+(ms / length).toFixed(1)} ${unit}`;
  return `${ms} ms`;
};
export const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
export const json = (value) => h("pre", { class: "json", tabindex: 0 }, JSON.stringify(value, null, 2));
// One line, which opens to the whole.
const SHOWN = 200;
export const record = (value) => {
  const line = text(value);
  if (line.length < 60) return h("code", {}, line);
  const whole = h("details", { class: "record" }, h("summary", {}, h("code", {}, line.length > SHOWN ? `${line.slice(0, SHOWN)}…` : line)));
  whole.addEventListener("toggle", () => whole.lastChild.tagName === "SUMMARY" &&
    whole.append(typeof value === "string" ? h("pre", { class: "json", tabindex: 0 }, value) : json(value)));
  return whole;
};
