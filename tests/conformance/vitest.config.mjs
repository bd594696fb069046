import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["official.test.mjs"],
    fileParallelism: false,
    testTimeout: 30_000,
    hookTimeout: 30_000,
    watch: false,
  },
})
