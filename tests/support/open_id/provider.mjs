// An OpenID provider for the tests: the package oidc-provider, which the OpenID Foundation has certified. It listens on a free
// port and prints it. Each line of stdin is a command in JSON, and is answered by a line on stdout:
//
//   {"redirect_uri": "..."}     registers the client, with new signing keys
//   {"account": {"sub": "..."}} signs everybody in as this account, with these claims
//   {"keys": "new"}             replaces the signing keys
import { createPrivateKey, generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

// The package's notices must not mix with the answers.
console.info = console.warn = console.error;
const { default: Provider } = await import(pathToFileURL(`${process.env.OIDC_PROVIDER}/node_modules/oidc-provider/lib/index.js`));
const [clientId, clientSecret] = process.argv.slice(2);
let redirectUri = "http://127.0.0.1/none";
let account = { sub: "nobody" };
let provider;

// Generates a private key as text. Do not export a generated key object as JWK: the export holds a lock that the garbage collector
// may need to free the generator, and then Node.js stands still.
function generatePem() {
  const [publicKeyEncoding, privateKeyEncoding] = ["spki", "pkcs8"].map((type) => ({ type, format: "pem" }));
  return generateKeyPairSync("rsa", { modulusLength: 2048, publicKeyEncoding, privateKeyEncoding }).privateKey;
}

function build(issuer) {
  const key = createPrivateKey(generatePem()).export({ format: "jwk" });
  provider = new Provider(issuer, {
    clients: [{ client_id: clientId, client_secret: clientSecret, redirect_uris: [redirectUri] }],
    jwks: { keys: [{ ...key, kid: randomUUID(), use: "sig", alg: "RS256" }] },
    cookies: { keys: ["the key of the cookies"] },
    claims: { openid: ["sub", "rewards_ledger_role"], email: ["email"], profile: ["preferred_username"] },
    conformIdTokenClaims: false,
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    pkce: { required: () => true },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ ...account, sub }) }),
  });
}

// Signs in and consents at once, as a person with a running session at the provider does.
async function interact(request, response) {
  const { params } = await provider.interactionDetails(request, response);
  const grant = new provider.Grant({ accountId: account.sub, clientId: params.client_id });
  grant.addOIDCScope("openid email profile");
  const consent = { grantId: await grant.save() };
  const result = account.refuses ? { error: "access_denied" } : { login: { accountId: account.sub }, consent };
  await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
}

const server = createServer((request, response) => {
  if (!request.url.startsWith("/interaction/")) return provider.callback()(request, response);
  interact(request, response).catch((error) => response.writeHead(500).end(String(error)));
});
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  build(issuer);
  createInterface({ input: process.stdin }).on("line", (line) => {
    const command = JSON.parse(line);
    account = command.account ?? account;
    redirectUri = command.redirect_uri ?? redirectUri;
    if (command.redirect_uri || command.keys) build(issuer);
    console.log("done");
  }).on("close", () => process.exit());
  console.log(issuer);
});
