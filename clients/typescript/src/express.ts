/** Webhooks in Express, and in every other server whose requests are those of `node:http`. */

import type { IncomingMessage, ServerResponse } from "node:http";

import { InvalidWebhook, type LedgerEvent, type Tokens, verifyWebhook } from "./webhooks.js";

/** Largest body that is read. Deliveries are far smaller. */
const MAX_BYTES = 1024 * 1024;

type Handler<Req, Res> = (event: LedgerEvent, request: Req, response: Res) => unknown;

/**
 * Returns a request handler that calls yours with the verified event. Other requests get 401.
 *
 *     app.post("/webhooks", webhook(TOKEN, (event, request, response) => response.sendStatus(200)));
 *
 * It reads the raw body itself, so no `express.json()` may come before it. `express.raw({ type: "*\/*" })` may.
 */
export function webhook<Req extends IncomingMessage, Res extends ServerResponse>(
  tokens: Tokens,
  handler: Handler<Req, Res>,
): (request: Req, response: Res, next?: (error: unknown) => void) => Promise<void> {
  return async (request, response, next) => {
    try {
      const event = verifyWebhook(tokens, request.headers, await rawBody(request));
      await handler(event, request, response);
    } catch (error) {
      if (error instanceof InvalidWebhook) {
        response.writeHead(401, { "Content-Type": "application/json" });
        response.end(JSON.stringify({ error: error.message }));
      } else if (next === undefined) {
        throw error;
      } else {
        next(error);
      }
    }
  };
}

async function rawBody(request: IncomingMessage & { body?: unknown }): Promise<Uint8Array> {
  if (request.body instanceof Uint8Array) return request.body;
  if (request.readableEnded || request.body !== undefined) {
    throw new Error("the body is already parsed: webhooks need the raw one, so mount this handler before express.json()");
  }
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of request) {
    length += (chunk as Uint8Array).length;
    if (length > MAX_BYTES) throw new InvalidWebhook("the body is too large");
    chunks.push(chunk as Uint8Array);
  }
  return Buffer.concat(chunks);
}
