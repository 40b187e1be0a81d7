/** The README's examples, which `test` has written beside this file and which compile, run as they are printed. */

import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";

const examples = readdirSync(new URL(".", import.meta.url)).filter((name) => /^readme-\d+\.js$/.test(name)).sort();
const skip = process.env["LEDGER_URL"] === undefined && "clients/test starts the sandbox";

test("the README has examples", () => {
  assert.equal(examples.length, 5);
});

for (const name of examples) {
  test(`an example runs: ${name}`, { skip }, async () => {
    await import(`./${name}`);
  });
}
