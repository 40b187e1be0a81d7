/** Webhooks in Fastify. */

import type { FastifyPluginAsync, FastifyReply, FastifyRequest } from "fastify";

import { InvalidWebhook, type LedgerEvent, type Tokens, verifyWebhook } from "./webhooks.js";

type Handler = (event: LedgerEvent, request: FastifyRequest, reply: FastifyReply) => unknown;

/**
 * Returns a plugin with a POST route that calls your handler with the verified event. Other requests get 401.
 *
 *     await app.register(webhook(TOKEN, async (event) => {}), { prefix: "/webhooks" });
 *
 * Only the plugin's own route reads raw bodies.
 */
export function webhook(tokens: Tokens, handler: Handler): FastifyPluginAsync {
  return async (app) => {
    app.removeAllContentTypeParsers();
    app.addContentTypeParser("*", { parseAs: "buffer" }, (_request, body, done) => done(null, body));
    app.post("/", async (request, reply) => {
      let event: LedgerEvent;
      try {
        const body = request.body instanceof Uint8Array ? request.body : new Uint8Array();
        event = verifyWebhook(tokens, request.headers, body);
      } catch (error) {
        if (!(error instanceof InvalidWebhook)) throw error;
        return reply.code(401).send({ error: error.message });
      }
      return (await handler(event, request, reply)) ?? "";
    });
  };
}
