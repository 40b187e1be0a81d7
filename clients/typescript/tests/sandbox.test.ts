/** The library against a live sandbox, which `clients/test` starts. */

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { isApiError, type LedgerEvent, RewardsLedger } from "rewards-ledger";
import { webhook } from "rewards-ledger/express";

const environment = (name: string) => process.env[name] ?? "";
const URL = environment("LEDGER_URL");
const live = { skip: URL === "" && "clients/test starts the sandbox" };

const ledger = new RewardsLedger(URL || "http://127.0.0.1", { apiKey: environment("LEDGER_API_KEY"), apiSecret: environment("LEDGER_API_SECRET") });
const signing = (signingSecret: string) =>
  new RewardsLedger(URL, {
    apiKey: environment("LEDGER_SIGNED_API_KEY"),
    apiSecret: environment("LEDGER_SIGNED_API_SECRET"),
    signingSecret,
  });

async function product(name: string): Promise<number> {
  for await (const each of ledger.pages("/api/v1/products", { params: { query: { limit: 1 } } })) {
    if (each.name === name) return each.id;
  }
  throw new Error(`the sandbox sells no ${name}`);
}

const coffee = async (more: { client_reference?: string; metadata?: Record<string, unknown> } = {}) => ({
  product_id: await product("Coffee Card"),
  denomination: 25,
  quantity: 1,
  ...more,
});

test("an order is placed, paid and delivered", live, async () => {
  const metadata = { basket: 9, name: "Grüße" };
  const { data: placed } = await ledger.post("/api/v1/orders", { body: await coffee({ metadata }) });
  assert.deepEqual([placed.status, placed.amount, placed.metadata], ["PENDING", "25.00", metadata]);
  for await (const { events } of ledger.followEvents({ types: ["order.delivered"] })) {
    if (events.some(({ data }) => data["id"] === placed.id)) break;
  }
  const params = { path: { id: placed.id } };
  assert.equal((await ledger.get("/api/v1/orders/{id}", { params })).data.status, "DELIVERED");
  const { vouchers } = (await ledger.get("/api/v1/orders/{id}/vouchers", { params })).data;
  assert.equal(vouchers.length, 1);
  assert.ok(vouchers[0]?.card_number);
});

test("the same key places one order", live, async () => {
  const params = { header: { "Idempotency-Key": randomUUID() } };
  const first = await ledger.post("/api/v1/orders", { body: await coffee(), params });
  const second = await ledger.post("/api/v1/orders", { body: await coffee(), params });
  assert.equal(first.data.id, second.data.id);
  const other = ledger.post("/api/v1/orders", { body: await coffee({ client_reference: randomUUID() }), params });
  await assert.rejects(other, (error) => isApiError(error, "E_IDEMPOTENCY_KEY_REUSED"));
  assert.notEqual((await ledger.post("/api/v1/orders", { body: await coffee() })).data.id, first.data.id);
});

test("refusals are typed", live, async () => {
  const missing = ledger.get("/api/v1/orders/{id}", { params: { path: { id: Number.MAX_SAFE_INTEGER } } });
  await assert.rejects(missing, (error) => isApiError(error, "E_NOT_FOUND"));
  const invalid = ledger.post("/api/v1/orders", { body: { product_id: 1, denomination: 25, quantity: 0 } });
  await assert.rejects(invalid, (error) => {
    assert.ok(isApiError(error, "E_VALIDATION_FAILURE"));
    assert.ok(error.messages["quantity"] && error.requestId);
    return true;
  });
  const stranger = new RewardsLedger(URL, { apiKey: "wrong", apiSecret: "wrong" });
  await assert.rejects(stranger.get("/api/v1/wallets"), (error) => isApiError(error, "E_UNAUTHORIZED"));
});

test("a cancelled order is refunded", live, async () => {
  const body = { product_id: await product("Travel Card"), denomination: 100, quantity: 1 };
  const { data: order } = await ledger.post("/api/v1/orders", { body });
  const params = { path: { id: order.id } };
  const { data } = await ledger.post("/api/v1/orders/{id}/cancel", { params, body: { reason: "changed my mind" } });
  assert.deepEqual([data.status, data.refunded_amount], ["CANCELLED", "100.00"]);
  const again = ledger.post("/api/v1/orders/{id}/cancel", { params });
  await assert.rejects(again, (error) => isApiError(error, "E_ORDER_NOT_CANCELLABLE"));
});

test("every page is read", live, async () => {
  const reference = randomUUID();
  for (let number = 0; number < 5; number += 1) {
    await ledger.post("/api/v1/orders", { body: await coffee({ client_reference: `${reference}-${number}` }) });
  }
  let found = 0;
  for await (const order of ledger.pages("/api/v1/orders", { params: { query: { limit: 2 } } })) {
    if (order.client_reference?.startsWith(reference)) found += 1;
  }
  assert.equal(found, 5);
});

test("signed requests are admitted", live, async () => {
  const signed = signing(environment("LEDGER_SIGNING_SECRET"));
  const body = await coffee({ client_reference: `ä&=${randomUUID()}` });
  assert.ok((await signed.post("/api/v1/orders", { body })).data.id);
  const query = { client_reference: "a b&c=d/ü'", limit: 3 };
  assert.deepEqual((await signed.get("/api/v1/orders", { params: { query } })).data.orders, []);
  await assert.rejects(signing("wrong").get("/api/v1/wallets"), (error) => isApiError(error, "E_HMAC_SIGNATURE_INVALID"));
});

test("events wait for what happens next", live, async () => {
  const latest = await ledger.get("/api/v1/events", { params: { query: { after: "latest" } } });
  const options = { after: latest.data.cursor, types: ["order.created"], waitSeconds: 10 };
  const next = (async () => {
    for await (const { events } of ledger.followEvents(options)) {
      if (events[0] !== undefined) return events[0];
    }
    throw new Error("the feed never ends");
  })();
  const [event] = await Promise.all([next, coffee().then((body) => ledger.post("/api/v1/orders", { body }))]);
  assert.equal(event.event_type, "order.created");
  const again = { since: new Date(event.created_at), types: ["order.created"], waitSeconds: 0 };
  const places: number[] = [];
  let found = false;
  for await (const { events, sequences } of ledger.followEvents(again)) {
    assert.ok(events.every(({ created_at }) => created_at >= event.created_at) && sequences.length === events.length);
    found ||= events.some(({ event_id }) => event_id === event.event_id);
    places.push(...sequences);
  }
  assert.ok(found);
  assert.deepEqual(places, [...places].sort((a, b) => a - b));
});

test("a webhook arrives verified", live, async () => {
  const tokens: string[] = [];
  let arrive: (event: LedgerEvent) => void = () => {};
  const arrived = new Promise<LedgerEvent>((resolve) => (arrive = resolve));
  const tls = {
    cert: readFileSync(environment("LEDGER_WEBHOOK_CERTIFICATE")),
    key: readFileSync(environment("LEDGER_WEBHOOK_KEY")),
  };
  const server = createServer(tls, webhook(tokens, (event, _request, response) => {
    arrive(event);
    response.end();
  }));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const url = `https://localhost:${(server.address() as AddressInfo).port}/hook`;
    const registered = await ledger.post("/api/v1/webhooks", { body: { name: "Test", url, events: ["order.created"] } });
    tokens.push(registered.token);
    const { data: placed } = await ledger.post("/api/v1/orders", { body: await coffee() });
    const event = await arrived;
    assert.equal(event.data["id"], placed.id);
    await ledger.delete("/api/v1/webhooks/{id}", { params: { path: { id: registered.id } } });
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});
