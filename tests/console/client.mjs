// What the console uses of the official client: `npm run --silent bundle` prints functions/api/console/files/durable-streams.js.
export { stream } from "@durable-streams/client";
