// Runs the guides' JavaScript code, which is placed beside this file, over the vectors.
import { readFileSync } from "node:fs";

import { canonicalString, xSignature } from "./signing.mjs";
import { isGenuine } from "./webhooks.mjs";

const [requests, deliveries] = process.argv.slice(2, 4).map((path) => JSON.parse(readFileSync(path)));
const body = (vector) => Buffer.from(vector.body_base64, "base64");
let count = 0;

function check(vector, made, expected) {
  count += 1;
  if (made !== expected) throw new Error(`${vector.name}: ${made} is not ${expected}`);
}

for (const vector of requests.sign) {
  const parts = [vector.method, vector.path, vector.query, body(vector), vector.timestamp];
  check(vector, canonicalString(...parts), vector.canonical);
  check(vector, xSignature(vector.secret, ...parts), vector.header);
}
for (const vector of deliveries.sign) {
  check(vector, isGenuine(vector.token, vector.timestamp, body(vector), vector.signature, Number(vector.timestamp)), true);
}
for (const vector of deliveries.verify) {
  check(vector, isGenuine(vector.token, vector.timestamp, body(vector), vector.signature, vector.now), vector.genuine);
}
console.log(count);
