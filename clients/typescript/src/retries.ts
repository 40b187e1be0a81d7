/** Retries by the rules of the API: which failed attempts to repeat, and after how long. */

import { ApiError, type LedgerError } from "./errors.js";

/** Number of attempts of a call, and the waits between them. */
export interface Retries {
  /** Maximum number of attempts; 1 for no retries. Default: 5. */
  readonly attempts: number;
  /** Wait after the first attempt. It doubles with each further one. Default: 1000. */
  readonly baseMs: number;
  /** Longest wait. If the service demands a longer one, the call fails, and the caller decides. Default: 60000. */
  readonly longestMs: number;
}

export const DEFAULT_RETRIES: Retries = { attempts: 5, baseMs: 1000, longestMs: 60_000 };

/** Errors of a connection that was never made: the request was not sent, so it may always be sent again. */
const NOT_SENT = new Set([
  "EAI_AGAIN", "ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND", "UND_ERR_CONNECT_TIMEOUT",
]);

/**
 * Returns the milliseconds to wait before the next attempt, or null if the call has failed.
 *
 * `attempt` counts the attempts so far, from 1. `isRepeatable` tells whether the call may be sent again after an attempt
 * with an unknown outcome.
 */
export function delayMs(retries: Retries, failure: LedgerError, attempt: number, isRepeatable: boolean): number | null {
  if (attempt >= retries.attempts || !isWorthRepeating(failure, isRepeatable)) return null;
  const wanted = failure instanceof ApiError ? failure.retryAfter : null;
  if (wanted === null) {
    const backoff = Math.min(retries.baseMs * 2 ** (attempt - 1), retries.longestMs);
    return (backoff * (1 + Math.random())) / 2;
  }
  // The jitter keeps clients apart that were told to wait equally long.
  return wanted * 1000 <= retries.longestMs ? wanted * 1000 + Math.random() * retries.baseMs : null;
}

function isWorthRepeating(failure: LedgerError, isRepeatable: boolean): boolean {
  if (!(failure instanceof ApiError)) return isRepeatable || wasNotSent(failure.cause);
  if (failure.status === 429 || failure.status === 503 || failure.code === "E_IDEMPOTENCY_IN_PROGRESS") return true;
  // 502 and a 504 without a code come from a proxy, which does not know the outcome either.
  return (failure.status === 502 || failure.status === 504) && isRepeatable;
}

/** `fetch` throws a TypeError, whose cause says what happened to the connection. */
function wasNotSent(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  const errors = cause instanceof AggregateError ? cause.errors : [cause];
  return errors.every((each: { code?: unknown } | undefined) => NOT_SENT.has(String(each?.code)));
}
