/** Errors that calls throw. */

import type { components } from "./generated/schema.js";

/** A stable error code. New codes may be added. */
export type ErrorCode = components["schemas"]["ErrorCode"];

/**
 * A call that failed for good: its retries, if any, are used up. The same call with the same `idempotencyKey` continues it.
 */
export class LedgerError extends Error {
  override readonly name: string = "LedgerError";

  constructor(
    message: string,
    readonly idempotencyKey: string | null,
    options?: { cause?: unknown },
  ) {
    super(message, options);
  }
}

/** No response arrived. A call that changes something may have happened. */
export class NoResponse extends LedgerError {
  override readonly name = "NoResponse";
}

/** Content of an error response. */
export interface Problem {
  /** HTTP status. */
  readonly status: number;
  /** Stable code to branch on; null if the response did not come from the service. */
  readonly code: ErrorCode | "rate_limit_exceeded" | (string & {}) | null;
  /** Problems of each field or parameter. */
  readonly messages: Readonly<Record<string, readonly string[]>>;
  /** `X-Request-ID` of the response, for support. */
  readonly requestId: string | null;
  /** Seconds after which the service wants to be asked again. */
  readonly retryAfter: number | null;
}

/** An error response of the service. */
export class ApiError extends LedgerError implements Problem {
  override readonly name = "ApiError";
  readonly status: number;
  readonly code: Problem["code"];
  readonly messages: Problem["messages"];
  readonly requestId: string | null;
  readonly retryAfter: number | null;

  constructor(problem: Problem, explanation: string, idempotencyKey: string | null) {
    const fields = Object.entries(problem.messages).map(([name, problems]) => `; ${name}: ${problems.join(", ")}`);
    const request = problem.requestId === null ? "" : ` (request ${problem.requestId})`;
    super(`${problem.status} ${problem.code ?? "without a code"}: ${explanation}${fields.join("")}${request}`, idempotencyKey);
    this.status = problem.status;
    this.code = problem.code;
    this.messages = problem.messages;
    this.requestId = problem.requestId;
    this.retryAfter = problem.retryAfter;
  }
}

/** Returns whether something thrown is an error response, with one of these codes if there are any. */
export function isApiError<Code extends ErrorCode>(error: unknown, ...codes: Code[]): error is ApiError & { readonly code: Code } {
  return error instanceof ApiError && (codes.length === 0 || codes.some((code) => code === error.code));
}

/** Returns the error of a response that is no success. */
export function errorOf(response: Response, body: string, idempotencyKey: string | null): ApiError {
  const { error, message } = object(parsed(body));
  // The response to an exceeded rate limit has a flat shape of its own.
  const detail = typeof error === "string" ? { code: error, message } : object(error);
  const retryAfter = response.headers.get("Retry-After") ?? "";
  const problem = {
    status: response.status,
    code: typeof detail["code"] === "string" ? detail["code"] : null,
    messages: object(detail["messages"]) as Problem["messages"],
    requestId: response.headers.get("X-Request-ID"),
    retryAfter: /^[0-9]+$/.test(retryAfter) ? Number(retryAfter) : null,
  };
  const explanation = typeof detail["message"] === "string" ? detail["message"] : `HTTP ${response.status}`;
  return new ApiError(problem, explanation, idempotencyKey);
}

function parsed(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    // A proxy's page, for example.
    return null;
  }
}

function object(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}
