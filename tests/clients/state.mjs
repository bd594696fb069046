// One journey with @durable-streams/state and TanStack DB, unmodified: databases over one stream follow each other.
//
//   node state.mjs STREAM_URL long-poll|sse        prints what it saw as one JSON document
import { DurableStream } from "@durable-streams/client"
import { createStateSchema } from "@durable-streams/state"
import { createStreamDB } from "@durable-streams/state/db"
import { createLiveQueryCollection, eq } from "@tanstack/db"

const [url, live] = process.argv.slice(2)

const anything = { "~standard": { version: 1, vendor: "headrace", validate: (value) => ({ value }) } }
const state = createStateSchema({ tasks: { schema: anything, type: "task", primaryKey: "id" } })
const streamOptions = { url, contentType: "application/json" }
const actions = ({ db, stream }) => {
  const append = async (event) => {
    await stream.append(JSON.stringify(event))
    await db.utils.awaitTxId(event.headers.txid, 10_000)
  }
  const headers = () => ({ txid: crypto.randomUUID() })
  return {
    add: {
      onMutate: (value) => db.collections.tasks.insert(value),
      mutationFn: (value) => append(state.tasks.insert({ value, headers: headers() })),
    },
    finish: {
      onMutate: (id) => db.collections.tasks.update(id, (draft) => void (draft.done = true)),
      mutationFn: (id) =>
        append(state.tasks.update({ value: { ...db.collections.tasks.get(id), done: true }, headers: headers() })),
    },
    remove: {
      onMutate: (id) => db.collections.tasks.delete(id),
      mutationFn: (id) => append(state.tasks.delete({ key: id, headers: headers() })),
    },
  }
}
const open = async () => {
  const db = createStreamDB({ streamOptions, state, live, actions })
  await db.preload()
  return db
}

await DurableStream.create(streamOptions)
const writer = await open()
const reader = await open()
const query = createLiveQueryCollection((q) =>
  q.from({ task: reader.collections.tasks }).where(({ task }) => eq(task.done, false)),
)
await query.preload()
const unfinished = () => query.toArray.map((task) => task.id).sort()
const until = async (expected) => {
  const deadline = Date.now() + 10_000
  while (JSON.stringify(unfinished()) !== JSON.stringify(expected) && Date.now() < deadline)
    await new Promise((resolve) => setTimeout(resolve, 20))
  return unfinished()
}

const seen = []
for (const id of ["bread", "milk", "tea"]) await writer.actions.add({ id, done: false }).isPersisted.promise
seen.push(await until(["bread", "milk", "tea"]))
await writer.actions.finish("milk").isPersisted.promise
seen.push(await until(["bread", "tea"]))
await reader.actions.remove("tea").isPersisted.promise
seen.push(await until(["bread"]))

const late = await open()
const replayed = late.collections.tasks.toArray.map(({ id, done }) => [id, done]).sort()
console.log(JSON.stringify({ seen, replayed }))
process.exit(0)
