// Starts the protocol's reference server on loopback and says where it is. SIGTERM stops it.
//
//   node reference.mjs [PORT] [DATA_DIR]     without DATA_DIR everything stays in memory
import { DurableStreamTestServer } from "@durable-streams/server"

const [port = "0", dataDir] = process.argv.slice(2)
const server = new DurableStreamTestServer({
  port: Number(port),
  host: "127.0.0.1",
  dataDir,
  longPollTimeout: 3_000, // its default, 30 s, is longer than the official suite waits
})
const url = await server.start()
console.log(`ready ${url}`)
process.on("SIGTERM", async () => {
  await server.stop()
  process.exit(0)
})
