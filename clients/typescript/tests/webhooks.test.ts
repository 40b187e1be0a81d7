/** Verification of webhooks, alone and in each web framework. */

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import express from "express";
import Fastify from "fastify";
import { Hono } from "hono";
import { InvalidWebhook, type LedgerEvent, verifyRequest, verifyWebhook } from "rewards-ledger";
import { webhook as forExpress } from "rewards-ledger/express";
import { webhook as forFastify } from "rewards-ledger/fastify";

const TOKEN = "the-token";
const EVENT = {
  event_id: "e1",
  event_type: "order.created",
  created_at: "2026-01-31T12:00:02.000Z",
  data: { id: 42, product_name: "Grüße 😀" },
};
const BODY = JSON.stringify(EVENT);

function signed(body: string, token = TOKEN, now = Date.now() / 1000): Record<string, string> {
  const timestamp = String(Math.floor(now));
  const signature = createHmac("sha256", token).update(`${timestamp}.${body}`).digest("hex");
  return { "X-Timestamp": timestamp, "X-Signature": signature, "Content-Type": "application/json" };
}

test("a genuine delivery returns its event", () => {
  assert.deepEqual(verifyWebhook(TOKEN, signed(BODY), BODY), EVENT);
  assert.deepEqual(verifyWebhook(TOKEN, new Headers(signed(BODY)), Buffer.from(BODY)), EVENT);
});

test("one of several tokens suffices, but an empty one verifies nothing", () => {
  assert.deepEqual(verifyWebhook(["the-old-token", TOKEN], signed(BODY), BODY), EVENT);
  assert.throws(() => verifyWebhook(["the-old-token"], signed(BODY), BODY), InvalidWebhook);
  for (const tokens of ["", ["", TOKEN]]) {
    assert.throws(() => verifyWebhook(tokens, signed(BODY, ""), BODY), InvalidWebhook);
  }
});

test("after a rotation, the token before it still verifies", () => {
  const sent = { ...signed(BODY, "the-new-token"), "X-Signature-Previous": signed(BODY)["X-Signature"] ?? "" };
  assert.deepEqual(verifyWebhook(TOKEN, sent, BODY), EVENT);
  assert.deepEqual(verifyWebhook("the-new-token", sent, BODY), EVENT);
  assert.throws(() => verifyWebhook("another", sent, BODY), InvalidWebhook);
  assert.throws(() => verifyWebhook(TOKEN, sent, `${BODY} `), InvalidWebhook);
});

const FORGED: [string, Record<string, string>, string | Uint8Array][] = [
  ["another body", signed(BODY), `${BODY} `],
  ["another token", signed(BODY, "another"), BODY],
  ["an old delivery", signed(BODY, TOKEN, 1), BODY],
  ["a signature of other characters", { ...signed(BODY), "X-Signature": "ü" }, BODY],
  ["no signature", { "X-Timestamp": "1" }, BODY],
  ["no headers", {}, BODY],
  ["no JSON", signed("no JSON"), "no JSON"],
  ["no event", signed("[]"), "[]"],
  ["no object", signed("null"), "null"],
];
for (const [name, headers, body] of FORGED) {
  test(`everything else is refused: ${name}`, () => {
    assert.throws(() => verifyWebhook(TOKEN, headers, body), (error) => {
      assert.ok(error instanceof InvalidWebhook);
      assert.ok(!error.message.includes(TOKEN));
      return true;
    });
  });
}

type Post = (body: string, headers: Record<string, string>) => Promise<number>;
type App = (seen: LedgerEvent[], use: (post: Post) => Promise<void>) => Promise<void>;

async function listening(listener: RequestListener, use: (post: Post) => Promise<void>): Promise<void> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  try {
    await use(async (body, headers) => (await fetch(url, { method: "POST", body, headers })).status);
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}

const APPS: Record<string, App> = {
  Express: async (seen, use) => {
    const app = express();
    app.post("/hook", forExpress(TOKEN, (event, _request, response: express.Response) => {
      seen.push(event);
      response.sendStatus(200);
    }));
    await listening(app, use);
  },
  "Express with a raw parser": async (seen, use) => {
    const app = express().use(express.raw({ type: "*/*" }));
    app.post("/hook", forExpress(TOKEN, (event, _request, response: express.Response) => {
      seen.push(event);
      response.sendStatus(200);
    }));
    await listening(app, use);
  },
  "node:http": async (seen, use) => {
    await listening(forExpress(TOKEN, (event, _request, response) => {
      seen.push(event);
      response.end();
    }), use);
  },
  Fastify: async (seen, use) => {
    const app = Fastify({ forceCloseConnections: true });
    await app.register(forFastify(TOKEN, (event) => void seen.push(event)), { prefix: "/hook" });
    const url = `${await app.listen({ host: "127.0.0.1", port: 0 })}/hook`;
    try {
      await use(async (body, headers) => (await fetch(url, { method: "POST", body, headers })).status);
    } finally {
      await app.close();
    }
  },
  Hono: async (seen, use) => {
    const app = new Hono();
    app.post("/hook", async (context) => {
      try {
        seen.push(await verifyRequest(TOKEN, context.req.raw));
      } catch (error) {
        if (error instanceof InvalidWebhook) return context.text(error.message, 401);
        throw error;
      }
      return context.text("");
    });
    await use(async (body, headers) => (await app.request("/hook", { method: "POST", body, headers })).status);
  },
};

for (const [name, app] of Object.entries(APPS)) {
  test(`a framework hands over the event: ${name}`, async () => {
    const seen: LedgerEvent[] = [];
    await app(seen, async (post) => assert.equal(await post(BODY, signed(BODY)), 200));
    assert.deepEqual(seen, [EVENT]);
  });

  test(`a framework refuses what is not genuine: ${name}`, async () => {
    const seen: LedgerEvent[] = [];
    await app(seen, async (post) => {
      assert.equal(await post(`${BODY} `, signed(BODY)), 401);
      assert.equal(await post(BODY, {}), 401);
      assert.equal(await post("", signed("")), 401);
    });
    assert.deepEqual(seen, []);
  });
}

test("Express is told when the body is already parsed", async () => {
  const app = express().use(express.json());
  app.post("/hook", forExpress(TOKEN, () => assert.fail("the event cannot be verified")));
  const errors: unknown[] = [];
  app.use((error: unknown, _request: express.Request, response: express.Response, _next: express.NextFunction) => {
    errors.push(error);
    response.sendStatus(500);
  });
  await listening(app, async (post) => assert.equal(await post(BODY, signed(BODY)), 500));
  assert.match(String(errors[0]), /before express.json/);
});

test("a body that is far too large is refused", async () => {
  const body = JSON.stringify({ ...EVENT, data: { text: "x".repeat(2 * 1024 * 1024) } });
  await APPS["Express"]?.([], async (post) => assert.equal(await post(body, signed(body)), 401));
});

test("an error of the handler is the framework's", async () => {
  const app = express();
  app.post("/hook", forExpress(TOKEN, () => Promise.reject(new Error("the database is down"))));
  app.use((_error: unknown, _request: express.Request, response: express.Response, _next: express.NextFunction) => {
    response.sendStatus(503);
  });
  await listening(app, async (post) => assert.equal(await post(BODY, signed(BODY)), 503));
});
