// Runs before every request of the collection. It sends the credentials of the collection's variables, an idempotency key
// with every POST, and a signature if there is a signing secret.

const hashes = require("crypto-js");

const variable = (name) => pm.variables.get(name) || "";
const header = (key, value) => value && pm.request.headers.upsert({ key, value });
// What Postman leaves as it is and what it encodes is its own affair, so that everything is encoded before it is signed.
const encoded = (text) => encodeURI(pm.variables.replaceIn(text)).replace(/%25([0-9A-Fa-f]{2})/g, "%$1").replace(/'/g, "%27");

header("X-API-Key", variable("apiKey"));
header("X-API-Secret", variable("apiSecret"));
header("Authorization", variable("accessToken") && `Bearer ${variable("accessToken")}`);
if (pm.request.method === "POST" && !pm.request.headers.has("Idempotency-Key")) {
  header("Idempotency-Key", pm.variables.replaceIn("{{$guid}}"));
}

if (variable("signingSecret")) {
  const path = encoded(pm.request.url.getPath());
  const pairs = pm.request.url.query.filter((parameter) => !parameter.disabled).map(({ key, value }) => {
    return [encoded(key || "").replace(/[&=#]/g, encodeURIComponent), encoded(value || "").replace(/[&#]/g, encodeURIComponent)];
  });
  const query = pairs.map((pair) => pair.join("="));
  pm.request.url.update(`${variable("baseUrl").replace(/\/+$/, "")}${path}${query.length ? "?" : ""}${query.join("&")}`);

  // Keys are compared by their bytes, which are ASCII here. The sort is stable.
  const sorted = pairs.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)).map((pair) => pair.join("="));
  const body = pm.variables.replaceIn(pm.request.body && pm.request.body.mode === "raw" ? pm.request.body.raw || "" : "");
  if (body) pm.request.body.update({ ...pm.request.body.toJSON(), raw: body });
  const timestamp = Math.floor(Date.now() / 1000);
  const lines = [pm.request.method, path.replace(/\/+$/, "") || "/", sorted.join("&"), hashes.SHA256(body).toString(), timestamp];
  const signature = hashes.HmacSHA256(lines.join("\n"), variable("signingSecret")).toString();
  header("X-Signature", `t=${timestamp},v1=${signature}`);
}
