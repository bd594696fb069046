// A client of /v0/ws on nothing but the built-in WebSocket: of a browser's page, and of Node.

/** Subscribes, publishes, and returns what came until the third record. */
export function journey(url, topic) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url);
    const seen = { ops: [], data: [], ack: null };
    const send = (message) => socket.send(JSON.stringify(message));
    socket.onerror = () => reject(new Error("the socket failed"));
    socket.onclose = () => reject(new Error("the socket was closed"));
    socket.onopen = () => send({ op: "publish", request_id: "p1", topic, records: [{ data: "über" }, { data: { n: 1 } }] });
    socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      seen.ops.push(message.op);
      if (message.op === "ack" && !seen.ack) {
        seen.ack = message;
        send({ op: "subscribe", request_id: "s1", topic });
      }
      if (message.op === "caught_up") send({ op: "publish", request_id: "p2", topic, records: [{ data: 3 }] });
      if (message.op === "record") seen.data.push(...message.records.map((record) => record.data));
      if (seen.data.length >= 3) {
        socket.onclose = () => resolve(seen);
        socket.close(1000);
      }
    };
  });
}

if (typeof process !== "undefined") {
  const seen = await journey(process.argv[2], process.argv[3]);
  console.log(JSON.stringify(seen));
}
