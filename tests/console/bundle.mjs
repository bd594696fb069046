// Prints functions/api/console/files/durable-streams.js: what the console uses of the official client, of the version in
// package-lock.json.
import { readFileSync } from "node:fs";
import { build } from "esbuild";

const { name, version, license } = JSON.parse(readFileSync("node_modules/@durable-streams/client/package.json", "utf8"));
const banner = `// ${name} ${version} (${license}, https://github.com/durable-streams/durable-streams), as esbuild bundles it. Not to be edited:
// \`npm ci --ignore-scripts && node bundle.mjs\` in tests/console prints it, and a test there compares.`;
const { outputFiles } = await build({
  stdin: { contents: `export { stream } from "${name}";`, resolveDir: process.cwd(), sourcefile: "console" },
  bundle: true, write: false, format: "esm", target: "es2022", charset: "utf8", banner: { js: banner },
});
process.stdout.write(outputFiles[0].text);
