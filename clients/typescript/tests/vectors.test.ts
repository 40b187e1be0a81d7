/** The published vectors of both signatures. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

import { canonicalString, isGenuine, xSignature } from "rewards-ledger";

interface Vector {
  name: string;
  body_base64: string;
  [field: string]: string;
}

function vectors(file: string, kind: string): Vector[] {
  const path = join(process.env["VECTORS"] ?? "../../docs/vectors", file);
  const found = (JSON.parse(readFileSync(path, "utf8")) as Record<string, Vector[]>)[kind] ?? [];
  assert.notEqual(found.length, 0);
  return found;
}

const body = (vector: Vector) => Buffer.from(vector.body_base64, "base64");

for (const vector of vectors("request-signing.json", "sign")) {
  test(`a request is signed as published: ${vector.name}`, () => {
    const { method = "", path = "", query = "", timestamp, secret = "" } = vector;
    const canonical = canonicalString(method, path, query, body(vector), Number(timestamp));
    assert.equal(canonical, vector["canonical"]);
    assert.equal(xSignature(secret, method, path, query, body(vector), Number(timestamp)), vector["header"]);
  });
}

for (const vector of vectors("webhook-signing.json", "sign")) {
  test(`a signed webhook is genuine: ${vector.name}`, () => {
    const { token = "", timestamp = "", signature = "" } = vector;
    assert.equal(isGenuine(token, timestamp, body(vector), signature, Number(timestamp)), true);
  });
}

for (const vector of vectors("webhook-signing.json", "verify")) {
  test(`a webhook is judged as published: ${vector.name}`, () => {
    const { token = "", timestamp = "", signature = "", now, genuine } = vector;
    assert.equal(isGenuine(token, timestamp, body(vector), signature, Number(now)), genuine);
  });
}
