/** Client of the Rewards Ledger: orders, events, and verified webhooks. */

export { type EventBatch, type FollowOptions, type Item, type Options, type PagedPath, type Reply, RewardsLedger } from "./client.js";
export { ApiError, type ErrorCode, isApiError, LedgerError, NoResponse, type Problem } from "./errors.js";
export type { components, operations, paths } from "./generated/schema.js";
export type { Retries } from "./retries.js";
export { canonicalString, xSignature } from "./signing.js";
export type { Fetch } from "./transport.js";
export { VERSION } from "./version.js";
export {
  InvalidWebhook,
  isGenuine,
  type LedgerEvent,
  type Tokens,
  verifyRequest,
  verifyWebhook,
  type WebhookHeaders,
} from "./webhooks.js";
