// Calls to the server, with the key that was typed in. It is kept for this tab, and for as long as the tab is open.

const KEY = "headrace.key";
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};
export const bearer = () => (key.get() ? { Authorization: `Bearer ${key.get()}` } : {});

// An answer that is no success. `status` is 0 if there was none.
export class Refused extends Error {
  constructor(status, code, message) {
    super(status ? `${message} (${status} ${code})` : message);
    Object.assign(this, { status, code });
  }
}

export const wantsKey = () => window.dispatchEvent(new Event("headrace:key"));

// Numbers that a browser would write in another way (21.50, 2^60) stay as they are: JSON.stringify gives their own text.
const asWritten = (_, value, context) =>
  typeof value === "number" && context?.source !== undefined && String(value) !== context.source && JSON.rawJSON
    ? JSON.rawJSON(context.source) : value;
export const exact = (json) => JSON.parse(json, asWritten);

// `accept` lists statuses that are answers, too.
export const call = async (method, path, body, { headers = {}, signal, accept = [] } = {}) => {
  let answer;
  try {
    answer = await fetch(path, {
      method, signal, cache: "no-store",
      headers: { ...bearer(), ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers },
      body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
    });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Refused(0, "", "the server does not answer");
  }
  const type = answer.headers.get("content-type") ?? "";
  const sent = await answer.text();
  const value = type.includes("json") && sent ? exact(sent) : undefined;
  if (!answer.ok && !accept.includes(answer.status)) {
    const { code = "error", message, reason, path: where } = value?.error ?? {};
    if (answer.status === 401) wantsKey();
    const said = message ?? [where, reason].filter(Boolean).join(": ");
    throw new Refused(answer.status, code, answer.status === 401 ? "the server does not accept this key" : said || sent.slice(0, 200) || "refused");
  }
  return { status: answer.status, headers: answer.headers, value, sent };
};

export const get = async (path, options) => (await call("GET", path, undefined, options)).value;
export const post = async (path, body, options) => (await call("POST", path, body, options)).value;

export const streamPath = (name) => `/v1/stream/${name.split("/").map(encodeURIComponent).join("/")}`;
export const topicPath = (name) => `/v0/topics/${encodeURIComponent(name)}`;
export const query = (values) =>
  new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value != null)).toString();

// Does something again and again until the view is left, not while nobody sees it.
export const repeat = async (ms, signal, work) => {
  while (!signal.aborted) {
    await work();
    await until(signal, (done) => setTimeout(done, ms));
    if (document.hidden) await until(signal, (done) => document.addEventListener("visibilitychange", done, { once: true, signal }));
  }
};
const until = (signal, begin) => new Promise((resolve) => {
  const done = () => {
    signal.removeEventListener("abort", done);
    resolve();
  };
  signal.addEventListener("abort", done);
  begin(done);
});
