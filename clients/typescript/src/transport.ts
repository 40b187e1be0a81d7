/** The attempts of a request: credentials, signatures, timeouts and retries. */

import { setTimeout as sleep } from "node:timers/promises";

import { errorOf, type LedgerError, NoResponse } from "./errors.js";
import { delayMs, type Retries } from "./retries.js";
import { xSignature } from "./signing.js";
import { VERSION } from "./version.js";

export type Fetch = (input: string, init: RequestInit) => Promise<Response>;

/** Settings that all requests of a client share. */
export interface Settings {
  readonly apiKey?: string | undefined;
  readonly apiSecret?: string | undefined;
  readonly signingSecret?: string | undefined;
  readonly accessToken?: string | undefined;
  readonly timeoutMs: number;
  readonly retries: Retries;
  readonly fetch: Fetch;
}

/** Responses with these statuses cannot have a body. */
const WITHOUT_BODY = new Set([204, 205, 304]);

/** Returns a `fetch` that resolves to a successful response, and throws everything else as a LedgerError. */
export function transport(settings: Settings): (request: Request) => Promise<Response> {
  return async (request) => {
    const body = request.body === null ? null : new Uint8Array(await request.arrayBuffer());
    const isRepeatable = request.method !== "POST" || request.headers.has("Idempotency-Key");
    for (let attempt = 1; ; attempt += 1) {
      const outcome = await send(settings, request, body);
      if (outcome instanceof Response) return outcome;
      const delay = delayMs(settings.retries, outcome, attempt, isRepeatable);
      if (delay === null) throw outcome;
      await sleep(delay, undefined, { signal: request.signal });
    }
  };
}

async function send(settings: Settings, request: Request, body: Uint8Array | null): Promise<Response | LedgerError> {
  const key = request.headers.get("Idempotency-Key");
  const { method, url } = request;
  const deadline = new AbortController();
  // The service holds a long-poll request back for up to `wait` seconds.
  const waitMs = Number(new URL(url).searchParams.get("wait") ?? 0) * 1000;
  const timer = setTimeout(() => deadline.abort(new Error("the request timed out")), settings.timeoutMs + waitMs);
  const abort = () => deadline.abort(request.signal.reason);
  request.signal.addEventListener("abort", abort);
  try {
    request.signal.throwIfAborted();
    const headers = headersOf(settings, request, body ?? new Uint8Array());
    const response = await settings.fetch(url, { method, headers, body, redirect: "manual", signal: deadline.signal });
    // The body is part of the attempt: a connection that breaks now is worth a retry, too.
    const received = new Uint8Array(await response.arrayBuffer());
    if (!response.ok) return errorOf(response, new TextDecoder().decode(received), key);
    const { status, statusText } = response;
    return new Response(WITHOUT_BODY.has(status) ? null : received, { status, statusText, headers: response.headers });
  } catch (cause) {
    // The caller gave up.
    if (request.signal.aborted) throw cause;
    return new NoResponse(`no response from ${new URL(url).origin}: ${reason(cause)}`, key, { cause });
  } finally {
    clearTimeout(timer);
    request.signal.removeEventListener("abort", abort);
  }
}

/** Returns the headers of one attempt. Each attempt is signed anew, because a signature expires. */
function headersOf(settings: Settings, request: Request, body: Uint8Array): Headers {
  const headers = new Headers(request.headers);
  if (!headers.has("Accept")) headers.set("Accept", "application/json");
  headers.set("User-Agent", `rewards-ledger-typescript/${VERSION}`);
  if (settings.apiKey !== undefined) headers.set("X-API-Key", settings.apiKey);
  if (settings.apiSecret !== undefined) headers.set("X-API-Secret", settings.apiSecret);
  if (settings.accessToken !== undefined) headers.set("Authorization", `Bearer ${settings.accessToken}`);
  if (settings.signingSecret !== undefined) {
    const { pathname, search } = new URL(request.url);
    const timestamp = Math.floor(Date.now() / 1000);
    const signature = xSignature(settings.signingSecret, request.method, pathname, search.slice(1), body, timestamp);
    headers.set("X-Signature", signature);
  }
  return headers;
}

function reason(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  return cause.cause instanceof Error && cause.cause.message !== "" ? cause.cause.message : cause.message;
}
