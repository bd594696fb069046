// The official suite of the protocol, unmodified, against the server at HEADRACE_BASE_URL. Its receivers of webhooks listen
// on this machine, so the server must be here, too.
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

const baseUrl = process.env.HEADRACE_BASE_URL
if (!baseUrl) throw new Error("set HEADRACE_BASE_URL to the server to test, for example http://127.0.0.1:8787")

// The suite knows no keys: a server that demands one gets it with every request that has no token of its own, such as that
// of a claim.
const key = process.env.HEADRACE_API_KEY
if (key) {
  const plain = globalThis.fetch
  globalThis.fetch = (input, init) => {
    const request = new Request(input, init)
    if (!request.headers.has("authorization")) request.headers.set("authorization", `Bearer ${key}`)
    return plain(request)
  }
}

runConformanceTests({ baseUrl, longPollTimeoutMs: 20_000, subscriptions: true })
