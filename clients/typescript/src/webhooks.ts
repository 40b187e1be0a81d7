/** Verification of webhooks, for every web framework. */

import { createHmac, timingSafeEqual } from "node:crypto";

import type { components } from "./generated/schema.js";

/** Maximum difference between a delivery's time and the receiver's clock, in seconds. */
export const TOLERANCE_SECONDS = 300;

type Envelope = components["schemas"]["WebhookEnvelope"];

/**
 * An event of the account, as webhooks and the event feed deliver it. It can arrive more than once: deduplicate on
 * `event_id`. New types may be added: ignore those that you do not know.
 */
export type LedgerEvent = Envelope | (Omit<Envelope, "event_type" | "data"> & { event_type: string & {}; data: Record<string, unknown> });

/** A request that is no genuine delivery: do not act on it, and answer with a 4xx status. */
export class InvalidWebhook extends Error {
  override readonly name = "InvalidWebhook";
}

/** Headers of a request, as `fetch` and Node.js have them. */
export type WebhookHeaders =
  | { get(name: string): string | null }
  | Readonly<Record<string, string | readonly string[] | undefined>>;

/** The webhook's token, or several while it is rotated. */
export type Tokens = string | readonly string[];

/**
 * Verifies a delivery and returns its event.
 *
 * `body` is the raw body: JSON that was parsed and written again has other bytes. `now` is the receiver's clock in Unix
 * seconds.
 *
 * Throws InvalidWebhook if the signature does not match, if the delivery is more than 5 minutes off, or if the body is no
 * event.
 */
export function verifyWebhook(
  tokens: Tokens,
  headers: WebhookHeaders,
  body: Uint8Array | string,
  now: number = Date.now() / 1000,
): LedgerEvent {
  const timestamp = header(headers, "x-timestamp");
  const signature = header(headers, "x-signature");
  if (timestamp === null || signature === null) {
    throw new InvalidWebhook("the headers X-Timestamp and X-Signature are required");
  }
  const candidates = typeof tokens === "string" ? [tokens] : tokens;
  // After a rotation, the service can sign with the replaced token, too.
  const signatures = [signature, header(headers, "x-signature-previous")].filter((each): each is string => each !== null);
  // Anybody can sign with an empty token, such as that of an unset variable.
  const isSigned = (token: string) => signatures.some((each) => isGenuine(token, timestamp, body, each, now));
  if (!candidates.some((token) => token !== "" && isSigned(token))) {
    throw new InvalidWebhook("the signature does not match, or the delivery is more than 5 minutes off");
  }
  const event = parsed(body);
  if (event === null) throw new InvalidWebhook("the body is not an event");
  return event;
}

/**
 * Verifies a request of the `fetch` API and returns its event: in route handlers of Next.js, in Hono (`c.req.raw`), Deno,
 * Bun and others. Throws as `verifyWebhook` does.
 */
export async function verifyRequest(tokens: Tokens, request: Request): Promise<LedgerEvent> {
  return verifyWebhook(tokens, request.headers, new Uint8Array(await request.arrayBuffer()));
}

/** Returns whether a delivery is signed with the token, and not more than 5 minutes off. */
export function isGenuine(
  token: string,
  timestamp: string,
  body: Uint8Array | string,
  signature: string,
  now: number,
): boolean {
  if (!/^[0-9]{1,18}$/.test(timestamp) || Math.abs(now - Number(timestamp)) > TOLERANCE_SECONDS) return false;
  const expected = Buffer.from(createHmac("sha256", token).update(`${timestamp}.`).update(body).digest("hex"));
  const sent = Buffer.from(signature);
  return expected.length === sent.length && timingSafeEqual(expected, sent);
}

function header(headers: WebhookHeaders, name: string): string | null {
  if (typeof headers.get === "function") return headers.get(name);
  const found = Object.entries(headers).find(([each]) => each.toLowerCase() === name)?.[1];
  return typeof found === "string" ? found : null;
}

function parsed(body: Uint8Array | string): LedgerEvent | null {
  let event: unknown;
  try {
    event = JSON.parse(typeof body === "string" ? body : new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch {
    return null;
  }
  return isEvent(event) ? event : null;
}

/** Returns whether a value has the fields of every event. */
export function isEvent(value: unknown): value is LedgerEvent {
  if (typeof value !== "object" || value === null) return false;
  const { event_id, event_type, created_at, data } = value as Record<string, unknown>;
  const isText = [event_id, event_type, created_at].every((each) => typeof each === "string");
  return isText && typeof data === "object" && data !== null;
}
