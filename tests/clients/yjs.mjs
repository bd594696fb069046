// One journey with @durable-streams/y-durable-streams, unmodified: its server keeps documents in streams of Headrace.
//
//   node yjs.mjs SERVER_URL DOCUMENT long-poll|sse        prints what it saw as one JSON document
import { YjsProvider } from "@durable-streams/y-durable-streams"
import { YjsServer } from "@durable-streams/y-durable-streams/server"
import { Awareness } from "y-protocols/awareness"
import * as Y from "yjs"

const [dsServerUrl, docId, liveMode] = process.argv.slice(2)

const problems = []
const until = async (what, isTrue) => {
  const deadline = Date.now() + 15_000
  while (!isTrue() && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 20))
  if (!isTrue()) problems.push(what)
}
const server = new YjsServer({ dsServerUrl, compactionThreshold: 2_000 })
const url = await server.start()
const open = async (name) => {
  const doc = new Y.Doc()
  const awareness = new Awareness(doc)
  const provider = new YjsProvider({ doc, awareness, baseUrl: `${url}/v1/yjs/journey`, docId, liveMode })
  provider.on("error", (error) => problems.push(`${name}: ${error}`))
  await until(`${name} is synced`, () => provider.synced)
  return { text: doc.getText("text"), awareness, provider }
}
const present = ({ awareness }) => [...awareness.getStates().values()].map((state) => state.name).sort()

const ann = await open("ann")
const bob = await open("bob")
ann.text.insert(0, "Hello")
await until("bob reads ann", () => String(bob.text) === "Hello")
ann.text.insert(5, ", world")
bob.text.insert(0, "> ")
await until("both edits are in both", () => [ann, bob].every(({ text }) => String(text) === "> Hello, world"))
// Presence is read from now on: what was set before a reader came is repeated only every 15 seconds.
ann.awareness.setLocalState({ name: "ann" })
bob.awareness.setLocalState({ name: "bob" })
await until("they see each other", () => [ann, bob].every((one) => present(one).length === 2))

for (let n = 0; n < 40; n++) {
  ann.text.insert(ann.text.length, ` ${n}`.padEnd(60, "."))
  await new Promise((resolve) => setTimeout(resolve, 5))
}
await until("bob reads everything", () => String(bob.text) === String(ann.text))
const edited = String(ann.text)
const late = await open("late")
await until("who comes late reads everything", () => String(late.text) === edited)
console.log(JSON.stringify({ start: edited.slice(0, 14), length: edited.length, present: present(bob), problems }))
process.exit(0)
