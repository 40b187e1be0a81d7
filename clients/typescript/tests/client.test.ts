/** Requests, pages, the event feed, and what stays hidden. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";

import { type FollowOptions, RewardsLedger, xSignature } from "rewards-ledger";

import { type Answer, problem, Service } from "./service.js";

const SECRETS = { apiKey: "the-key", apiSecret: "the-secret", signingSecret: "the-signing-secret" };

const page = (number: number, ...ids: number[]): Answer => ({
  status: 200,
  headers: { "X-Page": String(number), "X-Total-Pages": "3" },
  body: { success: true, data: { wallets: ids.map((id) => ({ id, currency: "EUR" })) } },
});

const feed = (cursor: string, has_more: boolean, ...ids: string[]): Answer => ({
  status: 200,
  body: {
    success: true,
    data: { cursor, has_more, events: ids.map((event_id) => ({ event_id })), sequences: ids.map((id) => 7 * Number(id.slice(1))) },
  },
});

test("every attempt is signed", async () => {
  await Service.with([problem(503, "E_UNAVAILABLE"), { status: 200, body: {} }], async (url, service) => {
    const ledger = new RewardsLedger(url, { ...SECRETS, retries: { baseMs: 0 } });
    await ledger.get("/api/v1/orders", { params: { query: { client_reference: "a b&c=ü/'", status: "PENDING", page: 2 } } });
    for (const { headers, path, query } of service.requests) {
      const timestamp = Number(/^t=(\d+),/.exec(String(headers["x-signature"]))?.[1]);
      assert.equal(headers["x-signature"], xSignature("the-signing-secret", "GET", path, query, Buffer.from(""), timestamp));
      assert.ok(Math.abs(Date.now() / 1000 - timestamp) < 300);
      assert.equal(headers["x-api-key"], "the-key");
      assert.equal(headers["x-api-secret"], "the-secret");
    }
  });
});

test("a list is read to its last page", async () => {
  await Service.with([page(1, 1, 2), page(2, 3, 4), page(3, 5)], async (url, service) => {
    const ids = [];
    for await (const wallet of new RewardsLedger(url).pages("/api/v1/wallets", { params: { query: { limit: 2 } } })) ids.push(wallet.id);
    assert.deepEqual(ids, [1, 2, 3, 4, 5]);
    assert.deepEqual(service.requests.map(({ query }) => query), ["limit=2&page=1", "limit=2&page=2", "limit=2&page=3"]);
  });
});

test("pages that nobody reads are not requested", async () => {
  await Service.with([page(1, 1, 2)], async (url) => {
    for await (const wallet of new RewardsLedger(url).pages("/api/v1/wallets")) {
      assert.equal(wallet.id, 1);
      break;
    }
  });
});

test("events are followed by their cursor", async () => {
  await Service.with([feed("c1", true, "e1", "e2"), feed("c2", false), feed("c3", false, "e3")], async (url, service) => {
    const seen = [];
    for await (const batch of new RewardsLedger(url).followEvents({ after: "c0", types: ["order.created", "order.delivered"] })) {
      seen.push(batch.events.map(({ event_id }, place) => [event_id, batch.sequences[place]]));
      if (batch.cursor === "c3") break;
    }
    assert.deepEqual(seen, [[["e1", 7], ["e2", 14]], [], [["e3", 21]]]);
    const types = "types=order.created%2Corder.delivered";
    assert.deepEqual(service.requests.map(({ query }) => query), [
      `after=c0&${types}`, `after=c1&${types}`, `after=c2&wait=30&${types}`,
    ]);
  });
});

test("events end where the log ends, if nobody waits", async () => {
  await Service.with([feed("c1", true, "e1"), feed("c2", false, "e2")], async (url) => {
    const cursors = [];
    for await (const { cursor } of new RewardsLedger(url).followEvents({ waitSeconds: 0 })) cursors.push(cursor);
    assert.deepEqual(cursors, ["c1", "c2"]);
  });
});

test("events begin at a time, until there is a cursor", async () => {
  const since = new Date("2026-01-31T12:00:00Z");
  await Service.with([feed("c1", true, "e1"), feed("c2", false, "e2"), feed("c3", false)], async (url, service) => {
    const runs: FollowOptions[] = [{ since }, { since, after: "c2" }];
    const cursors = [];
    for (const run of runs) {
      for await (const { cursor } of new RewardsLedger(url).followEvents({ ...run, waitSeconds: 0 })) cursors.push(cursor);
    }
    assert.deepEqual(cursors, ["c1", "c2", "c3"]);
    assert.deepEqual(service.requests.map(({ query }) => query), ["since=2026-01-31T12%3A00%3A00.000Z", "after=c1", "after=c2"]);
  });
});

test("a long poll may take longer than other requests", async (context) => {
  const timers = context.mock.method(globalThis, "setTimeout");
  const answer = async () => new Response('{"success":true,"data":{"events":[],"cursor":"c","has_more":false}}');
  const ledger = new RewardsLedger("http://localhost", { timeoutMs: 7000, fetch: answer });
  await ledger.get("/api/v1/events");
  await ledger.get("/api/v1/events", { params: { query: { wait: 30 } } });
  assert.deepEqual(timers.mock.calls.map((call) => call.arguments[1]), [7000, 37_000]);
});

test("an error carries what the service said", async () => {
  const error = { name: "ValidationError", code: "E_VALIDATION_FAILURE", message: "invalid", messages: { quantity: ["too many"] } };
  await Service.with([{ status: 400, headers: { "X-Request-ID": "r-1" }, body: { error } }], async (url) => {
    const body = { product_id: 1, denomination: 25, quantity: 99 };
    await assert.rejects(new RewardsLedger(url).post("/api/v1/orders", { body }), {
      message: "400 E_VALIDATION_FAILURE: invalid; quantity: too many (request r-1)",
      messages: { quantity: ["too many"] },
      requestId: "r-1",
    });
  });
});

test("secrets are shown nowhere", async () => {
  await Service.with(["cut off"], async (url) => {
    const ledger = new RewardsLedger(url, { ...SECRETS, accessToken: "the-token", retries: { attempts: 1 } });
    const login = { body: { email: "jo@example.com", password: "the-password" } };
    const error = await ledger.post("/auth/login", login).catch((error: unknown) => error);
    const shown = [inspect(ledger, { depth: 10, showHidden: true }), JSON.stringify(ledger), String(ledger)];
    shown.push(inspect(error, { depth: 10 }), JSON.stringify(error), inspect(ledger.raw, { depth: 10, showHidden: true }));
    assert.deepEqual(shown.filter((text) => text.includes("the-")), []);
  });
});

test("the response is there for its headers and other formats", async () => {
  await Service.with([{ status: 200, body: "id\n1\n", headers: { "Content-Type": "text/csv" } }], async (url) => {
    const { data, response } = await new RewardsLedger(url).raw.GET("/api/v1/wallets/{id}/statement", {
      params: { path: { id: 1 }, query: { from: "2026-01-01T00:00:00Z", to: "2026-02-01T00:00:00Z" } },
      headers: { Accept: "text/csv" },
      parseAs: "text",
    });
    assert.equal(data, "id\n1\n");
    assert.equal(response.headers.get("Content-Type"), "text/csv");
  });
});

test("half a key is refused", () => {
  assert.throws(() => new RewardsLedger("http://localhost", { apiKey: "key" }), /belong together/);
});
