import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["official.test.mjs"],
    fileParallelism: false,
    // A server whose every process starts cold is given more.
    testTimeout: Number(process.env.HEADRACE_CASE_TIMEOUT_MS ?? 30_000),
    hookTimeout: 30_000,
    watch: false,
  },
})
