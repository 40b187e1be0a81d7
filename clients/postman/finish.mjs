// Makes a converted collection one to publish: node finish.mjs COLLECTION
//
// It removes what differs from run to run, and examples of responses, which would be most of the file. It adds variables for
// the address and the credentials, and the script that uses them.

import { readFileSync } from "node:fs";

const collection = JSON.parse(readFileSync(process.argv[2], "utf8"));
const script = readFileSync(new URL("sign.js", import.meta.url), "utf8");

const text = (description) => description?.content ?? description ?? undefined;

function parameter({ key, value, disabled, description }) {
  // The converter makes up values, and others in every run.
  const example = disabled ? "" : /^-?\d+$/.test(value) ? "1" : value;
  return { key, value: example, ...(disabled && { disabled }), description: text(description) };
}

function request({ name, request: { method, url, header, body, description } }) {
  const path = { host: url.host, path: url.path };
  if (url.query.length > 0) path.query = url.query.map(parameter);
  if (url.variable.length > 0) path.variable = url.variable.map(({ key, description }) => ({ key, value: "1", description: text(description) }));
  // The script sends idempotency keys.
  const headers = header.filter(({ key }) => key !== "Idempotency-Key").map(parameter);
  const raw = body?.raw && { mode: "raw", raw: body.raw, options: { raw: { language: "json" } } };
  return { name, request: { method, url: path, header: headers, ...(raw && { body: raw }), description: text(description) } };
}

const folders = collection.item.filter(({ item }) => item.length > 0);
const secret = (key) => ({ key, value: "", type: "secret" });
const published = {
  info: {
    name: "Rewards Ledger: client API",
    description: "Set the variables `baseUrl`, `apiKey` and `apiSecret` of the collection, and `signingSecret` if the API key requires signed requests. Requests under `/client/api` need an `accessToken` from `POST /auth/login` instead.",
    schema: collection.info.schema,
  },
  variable: [{ key: "baseUrl", value: "http://127.0.0.1:8080" }, { key: "apiKey", value: "" }, ...["apiSecret", "signingSecret", "accessToken"].map(secret)],
  event: [{ listen: "prerequest", script: { type: "text/javascript", exec: script.trimEnd().split("\n") } }],
  item: folders.map(({ name, description, item }) => ({ name, description: text(description), item: item.map(request) })),
};
console.log(JSON.stringify(published, null, 2));
