// One journey with the official JavaScript client, unmodified: create, append, follow live, resume, see the close.
//
//   node journey.mjs STREAM_URL long-poll|sse        prints what it saw as one JSON document
import { DurableStream, IdempotentProducer, stream } from "@durable-streams/client"

const [url, live] = process.argv.slice(2)

const handle = await DurableStream.create({ url, contentType: "application/json" })
await handle.append(JSON.stringify({ n: 1 }))
await handle.append(JSON.stringify({ n: 2 }))

const caughtUp = await stream({ url, live: false })
const first = await caughtUp.json()
const savedOffset = caughtUp.offset

// Follow from the start; what is appended while following has to arrive without another request by hand.
const followed = []
const following = await stream({ url, offset: "-1", live })
const sawEverything = (async () => {
  for await (const item of following.jsonStream()) followed.push(item)
})()

const problems = []
const producer = new IdempotentProducer(handle, "journey", { onError: (error) => problems.push(String(error)) })
for (let n = 3; n <= 50; n++) producer.append(JSON.stringify({ n }))
await producer.flush()
await new Promise((resolve) => setTimeout(resolve, 200)) // the next append meets a waiting reader
await handle.append(JSON.stringify({ n: 51 }))
const closed = await handle.close({ body: JSON.stringify({ n: 52 }) })
await sawEverything // the stream of items ends by itself, because the stream is closed

const resumed = []
const resuming = await stream({ url, offset: savedOffset, live })
for await (const item of resuming.jsonStream()) resumed.push(item)

let refusal = null
try {
  await handle.append(JSON.stringify({ n: 53 }))
} catch (error) {
  refusal = error.status
}

const head = await handle.head()
console.log(
  JSON.stringify({
    first,
    followed,
    resumed,
    problems,
    refusal,
    closedAt: closed.finalOffset,
    end: head.offset,
    streamClosed: { followed: following.streamClosed, resumed: resuming.streamClosed, head: head.streamClosed },
  }),
)
process.exit(0)
