/** Retries, against a real HTTP server. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { ApiError, isApiError, NoResponse, RewardsLedger } from "rewards-ledger";

import { delayMs } from "../dist/retries.js";
import { type Answer, problem, Service } from "./service.js";

const AT_ONCE = { retries: { baseMs: 0 }, apiKey: "key", apiSecret: "secret" };
const ATTEMPTS = 5;
const PLACED: Answer = { status: 201, body: { success: true, data: { id: 42 } } };
const WALLETS: Answer = { status: 200, body: { success: true, data: { wallets: [] } } };
const UNAVAILABLE = problem(503, "E_UNAVAILABLE", { "Retry-After": "0" });
const LIMITED: Answer = {
  status: 429,
  headers: { "Retry-After": "0" },
  body: { error: "rate_limit_exceeded", message: "Too many.", retry_after: 0 },
};
const IN_PROGRESS = problem(409, "E_IDEMPOTENCY_IN_PROGRESS", { "Retry-After": "0" });
const UNKNOWN = problem(504, "E_OUTCOME_UNKNOWN");
const FAILURES: Record<string, Answer> = { UNAVAILABLE, LIMITED, IN_PROGRESS, UNKNOWN, CUT_OFF: "cut off" };

const place = (url: string, key?: string) =>
  new RewardsLedger(url, AT_ONCE).post("/api/v1/orders", {
    body: { product_id: 1, denomination: 25, quantity: 2 },
    ...(key !== undefined && { params: { header: { "Idempotency-Key": key } } }),
  });

const keys = (service: Service) => service.requests.map(({ headers }) => headers["idempotency-key"]);

for (const [name, failure] of Object.entries(FAILURES)) {
  test(`an order is placed again under the same key: ${name}`, async () => {
    await Service.with([failure, failure, PLACED], async (url, service) => {
      assert.equal((await place(url)).data.id, 42);
      assert.equal(service.requests.length, 3);
      assert.equal(new Set(keys(service)).size, 1);
      assert.ok(keys(service)[0]);
      assert.equal(new Set(service.requests.map(({ body }) => body)).size, 1);
    });
  });

  test(`a read is repeated without a key: ${name}`, async () => {
    await Service.with([failure, WALLETS], async (url, service) => {
      assert.deepEqual((await new RewardsLedger(url, AT_ONCE).get("/api/v1/wallets")).data.wallets, []);
      assert.deepEqual(keys(service), [undefined, undefined]);
    });
  });
}

test("each call has a key of its own", async () => {
  await Service.with([PLACED, PLACED], async (url, service) => {
    await place(url);
    await place(url);
    assert.equal(new Set(keys(service)).size, 2);
  });
});

test("a key of the caller is sent", async () => {
  await Service.with([UNKNOWN, PLACED], async (url, service) => {
    await place(url, "basket-9");
    assert.deepEqual(keys(service), ["basket-9", "basket-9"]);
  });
});

for (const [status, code] of [[400, "E_VALIDATION_FAILURE"], [401, "E_UNAUTHORIZED"], [402, "E_INSUFFICIENT_BALANCE"],
  [409, "E_DUPLICATE_REFERENCE"], [500, "E_INTERNAL"], [418, "E_OF_THE_FUTURE"]] as const) {
  test(`another error is thrown at once: ${code}`, async () => {
    await Service.with([problem(status, code)], async (url, service) => {
      await assert.rejects(place(url), (error) => {
        assert.ok(error instanceof ApiError);
        assert.equal(error.status, status);
        assert.equal(error.code, code);
        assert.equal(error.idempotencyKey, keys(service)[0]);
        return true;
      });
    });
  });
}

test("errors are told apart by their codes", async () => {
  await Service.with([problem(402, "E_INSUFFICIENT_BALANCE")], async (url) => {
    const error = await place(url).catch((error: unknown) => error);
    assert.ok(isApiError(error, "E_NOT_FOUND", "E_INSUFFICIENT_BALANCE") && isApiError(error));
    assert.ok(!isApiError(error, "E_NOT_FOUND"));
    assert.ok(!isApiError(new Error("another")));
  });
});

test("an error of a proxy has no code", async () => {
  await Service.with([{ status: 403, body: "<html>" }], async (url) => {
    await assert.rejects(place(url), { name: "ApiError", status: 403, code: null });
  });
});

test("attempts are bounded", async () => {
  await Service.with(Array(ATTEMPTS).fill(UNAVAILABLE), async (url) => {
    await assert.rejects(place(url), { code: "E_UNAVAILABLE" });
  });
});

test("a connection that always breaks is reported", async () => {
  await Service.with(Array(ATTEMPTS).fill("cut off"), async (url, service) => {
    await assert.rejects(place(url), (error) => error instanceof NoResponse && error.idempotencyKey === keys(service)[0]);
  });
});

const rotate = (url: string) =>
  new RewardsLedger(url, AT_ONCE).post("/client/api/api-keys/{id}/rotate-signing-secret", { params: { path: { id: 7 } } });

for (const failure of [UNKNOWN, "cut off"] as const) {
  test(`a POST without a key is not repeated after an unknown outcome: ${failure === UNKNOWN ? "504" : failure}`, async () => {
    await Service.with([failure], async (url, service) => {
      await assert.rejects(rotate(url));
      assert.deepEqual(keys(service), [undefined]);
    });
  });
}

test("a POST without a key is repeated if nothing happened", async () => {
  await Service.with([UNAVAILABLE, { status: 200, body: { success: true, data: { signing_secret: "s" } } }], async (url) => {
    assert.equal((await rotate(url)).data.signing_secret, "s");
  });
});

test("an unreachable service is asked again, even without a key", async () => {
  const service = new Service([]);
  const url = await service.start();
  await service.stop();
  let attempts = 0;
  const counting = (input: string, init: RequestInit) => {
    attempts += 1;
    return fetch(input, init);
  };
  const ledger = new RewardsLedger(url, { retries: { baseMs: 0, attempts: 3 }, fetch: counting });
  const login = { body: { email: "jo@example.com", password: "the-password" } };
  await assert.rejects(ledger.post("/auth/login", login), { name: "NoResponse", message: /^no response from http:/ });
  assert.equal(attempts, 3);
});

test("a caller who gives up is not kept waiting", async () => {
  await Service.with([problem(503, "E_UNAVAILABLE", { "Retry-After": "60" })], async (url, service) => {
    const caller = new AbortController();
    const ledger = new RewardsLedger(url, {
      fetch: async (input, init) => {
        const response = await fetch(input, init);
        setImmediate(() => caller.abort());
        return response;
      },
    });
    await assert.rejects(ledger.get("/api/v1/wallets", { signal: caller.signal }), { name: "AbortError" });
    assert.equal(service.requests.length, 1);
  });
});

test("an attempt that takes too long is repeated", async () => {
  const never = (_: string, init: RequestInit) =>
    new Promise<Response>((_resolve, reject) => init.signal?.addEventListener("abort", () => reject(init.signal?.reason)));
  const ledger = new RewardsLedger("http://127.0.0.1:1", { timeoutMs: 1, retries: { baseMs: 0 }, fetch: never });
  await assert.rejects(ledger.get("/api/v1/wallets"), { name: "NoResponse", message: /timed out/ });
});

const RETRIES = { attempts: 5, baseMs: 1000, longestMs: 60_000 };
const failed = (status: number, retryAfter: number | null) =>
  new ApiError({ status, code: null, messages: {}, requestId: null, retryAfter }, "why", null);

test("the wait doubles, with jitter", () => {
  for (const [index, longest] of [1000, 2000, 4000, 8000].entries()) {
    const delays = Array.from({ length: 200 }, () => delayMs(RETRIES, failed(503, null), index + 1, true) ?? NaN);
    assert.ok(delays.every((delay) => delay >= longest / 2 && delay <= longest));
    assert.ok(new Set(delays).size > 100);
  }
  assert.equal(delayMs(RETRIES, failed(503, null), 5, true), null);
});

test("the wait is what the service demands, unless that is too long", () => {
  const delay = delayMs(RETRIES, failed(429, 42), 1, false) ?? NaN;
  assert.ok(delay >= 42_000 && delay <= 43_000);
  assert.equal(delayMs(RETRIES, failed(429, 3600), 1, false), null);
});
