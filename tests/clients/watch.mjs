// A client of /v0/watch on nothing but the built-in EventSource: of a browser's page, and of Node.

/** Watches two topics over several streams, while it appends to them; returns what came, in order. */
export async function journey(url, key, names) {
  const post = async (path, body) => {
    const headers = { "Content-Type": "application/json", Authorization: `Bearer ${key}` };
    const answer = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  };
  const append = (name, data) => post(`/v0/topics/${name}`, { records: [{ data }] });
  await append(names[0], "über");
  const topics = Object.fromEntries(names.map((name) => [name, {}]));
  await append(names[1], { n: 1 });
  const session = await post("/v0/watch", { topics, heartbeat_ms: 1000 });
  const seen = { data: names.map(() => []), caughtUp: 0, opened: 0, ids: [], deleted: [] };
  const source = new EventSource(`${url}${session.stream_url}?token=${encodeURIComponent(key)}`);
  await new Promise((resolve, reject) => {
    const late = setTimeout(() => reject(new Error(`too late: ${JSON.stringify(seen)}`)), 45_000);
    let appended = 0;
    source.onopen = () => {
      seen.opened += 1;
      // One record while the stream is open, one while it is not: until the third stream has brought them all.
      if (seen.opened < 4) append(names[0], `open ${(appended += 1)}`).catch(reject);
    };
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) reject(new Error("the source gave up"));
      else if (seen.opened < 4) append(names[1], `between ${seen.opened}`).catch(reject);
    };
    source.addEventListener("record", (event) => {
      const { topic, records } = JSON.parse(event.data);
      seen.ids.push(event.lastEventId);
      seen.data[names.indexOf(topic)].push(...records.map((record) => record.data));
      if (seen.data[0].includes("open 3") && seen.data[1].includes("between 2")) {
        clearTimeout(late);
        resolve();
      }
    });
    source.addEventListener("caught-up", () => (seen.caughtUp += 1));
  });
  source.close();
  return seen;
}

if (typeof process !== "undefined") {
  const [url, key, ...names] = process.argv.slice(2);
  console.log(JSON.stringify(await journey(url, key, names)));
}
