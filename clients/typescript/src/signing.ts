/** Signatures of requests. */

import { createHash, createHmac } from "node:crypto";

/** Returns the text that a request's signature covers. `path` and `query` are as sent. */
export function canonicalString(method: string, path: string, query: string, body: Uint8Array, timestamp: number): string {
  const pairs = query.split("&").filter((pair) => pair !== "").map((pair): [string, string] => {
    const at = pair.indexOf("=");
    return at < 0 ? [pair, ""] : [pair.slice(0, at), pair.slice(at + 1)];
  });
  // The sort is stable: pairs with the same key keep their order.
  pairs.sort(([a], [b]) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  const sorted = pairs.map(([key, value]) => `${key}=${value}`).join("&");
  const digest = createHash("sha256").update(body).digest("hex");
  return [method.toUpperCase(), path.replace(/\/+$/, "") || "/", sorted, digest, timestamp].join("\n");
}

/** Returns the value of the header `X-Signature`. */
export function xSignature(
  secret: string,
  method: string,
  path: string,
  query: string,
  body: Uint8Array,
  timestamp: number,
): string {
  const canonical = canonicalString(method, path, query, body, timestamp);
  return `t=${timestamp},v1=${createHmac("sha256", secret).update(canonical).digest("hex")}`;
}
