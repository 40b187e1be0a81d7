/** A local HTTP server whose answers a test decides. */

import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";

/** A response to send, or a connection to break. */
export type Answer = { status: number; body?: unknown; headers?: Record<string, string> } | "cut off";

export interface Received {
  method: string;
  path: string;
  query: string;
  headers: IncomingHttpHeaders;
  body: string;
}

export function problem(status: number, code: string, headers: Record<string, string> = {}): Answer {
  return { status, headers, body: { error: { name: "Error", code, message: "why" } } };
}

/** Answers requests in the order in which a test lists the answers. */
export class Service {
  readonly requests: Received[] = [];
  readonly #server: Server;

  constructor(readonly answers: Answer[]) {
    this.#server = createServer(async (request, response) => {
      const [path = "", query = ""] = (request.url ?? "").split("?");
      const body = (await buffer(request)).toString();
      this.requests.push({ method: request.method ?? "", path, query, headers: request.headers, body });
      const answer = this.answers.shift() ?? problem(500, "E_TOO_MANY_REQUESTS_IN_THIS_TEST");
      if (answer === "cut off") return request.socket.destroy();
      response.writeHead(answer.status, { "Content-Type": "application/json", ...answer.headers });
      response.end(typeof answer.body === "string" ? answer.body : JSON.stringify(answer.body));
    });
  }

  /** Runs an action with the URL of the running server. */
  static async with<T>(answers: Answer[], action: (url: string, service: Service) => Promise<T>): Promise<T> {
    const service = new Service([...answers]);
    const url = await service.start();
    try {
      const result = await action(url, service);
      if (service.answers.length > 0) throw new Error("the client sent fewer requests than the test expects");
      return result;
    } finally {
      await service.stop();
    }
  }

  async start(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
