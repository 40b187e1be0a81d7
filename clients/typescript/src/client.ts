/** Client of the API. */

import { randomUUID } from "node:crypto";
import { inspect } from "node:util";

import createClient, { type Client, type ClientPathsWithMethod, type FetchResponse, type MaybeOptionalInit } from "openapi-fetch";

import { KEYED } from "./generated/keyed.js";
import type { paths } from "./generated/schema.js";
import { DEFAULT_RETRIES, type Retries } from "./retries.js";
import { type Fetch, transport } from "./transport.js";
import type { LedgerEvent } from "./webhooks.js";

/** Settings of a client. */
export interface Options {
  /** API key of your account, with its secret. */
  apiKey?: string;
  apiSecret?: string;
  /** Signing secret of the API key, if it requires signed requests. */
  signingSecret?: string;
  /** Access token of a person, from `POST /auth/login`, instead of an API key. */
  accessToken?: string;
  /** Timeout of one attempt. Default: 30000. */
  timeoutMs?: number;
  /** Number of attempts of a call, and the waits between them. */
  retries?: Partial<Retries>;
  /** Replacement of the global `fetch`, for example with a proxy. */
  fetch?: Fetch;
}

type Raw = Client<paths, "application/json">;
type Method = "get" | "put" | "post" | "delete";
type PathWith<M extends Method> = ClientPathsWithMethod<Raw, M>;
type InitOf<Init> = undefined extends Init ? [init?: Init] : [init: Init];
type Success<Operation extends Record<string | number, unknown>, Init> = Extract<
  FetchResponse<Operation, Init, "application/json">,
  { data: unknown }
>["data"];
/** Body of a successful response. */
export type Reply<Path extends keyof paths, M extends Method, Init = object> =
  paths[Path][M] extends Record<string | number, unknown> ? Success<paths[Path][M], Init> : never;

type QueryOf<Path extends keyof paths> = paths[Path] extends { get: { parameters: { query?: infer Query } } } ? NonNullable<Query> : never;
type HasPages<Path extends keyof paths> = [QueryOf<Path>] extends [never] ? false : "page" extends keyof QueryOf<Path> ? true : false;
/** Paths of lists that have pages. */
export type PagedPath = { [Path in keyof paths]: HasPages<Path> extends true ? Path : never }[keyof paths] & PathWith<"get">;
/** Element of a list. */
export type Item<Path extends PagedPath> =
  Reply<Path, "get"> extends { data: infer Data } ? (Data[keyof Data] extends readonly (infer Each)[] ? Each : never) : never;

/** Consecutive events, and the cursor behind them. */
export interface EventBatch {
  readonly events: readonly LedgerEvent[];
  /** Place of each event in the order of all events, as the header `X-Event-Sequence` of a webhook says it. */
  readonly sequences: readonly number[];
  /** Cursor to store after the events are processed: the next run continues behind it. */
  readonly cursor: string;
  /** Whether the log goes on behind the cursor. */
  readonly hasMore: boolean;
}

export interface FollowOptions {
  /** Stored cursor of an earlier run, or `latest` to skip the past. Without it, the first event comes first. */
  after?: string;
  /** Begins with the events recorded at or after this time, if there is no cursor yet. */
  since?: Date;
  /** Types of the events. Default: all. */
  types?: readonly string[];
  /** Maximum number of events of a batch. */
  limit?: number;
  /** Longest time that the service holds back a request. With 0, the iterator ends where the log ends. Default: 30. */
  waitSeconds?: number;
  signal?: AbortSignal;
}

/**
 * A client of the API.
 *
 * Its methods take the paths of the API's document. They resolve to the body of a successful response, and throw an
 * `ApiError` or `NoResponse` otherwise.
 */
export class RewardsLedger {
  readonly #origin: string;
  /** Calls with openapi-fetch's results, `{ data, response }`, for headers and other formats. */
  readonly raw: Raw;

  constructor(url: string, options: Options = {}) {
    const { apiKey, apiSecret, signingSecret, accessToken } = options;
    if ((apiKey === undefined) !== (apiSecret === undefined)) throw new TypeError("apiKey and apiSecret belong together");
    // Without a user name and a password.
    this.#origin = new URL(url).origin;
    const send = transport({
      apiKey,
      apiSecret,
      signingSecret,
      accessToken,
      timeoutMs: options.timeoutMs ?? 30_000,
      retries: { ...DEFAULT_RETRIES, ...options.retries },
      // Looked up at each call, because instrumentation may replace it.
      fetch: options.fetch ?? ((input, init) => fetch(input, init)),
    });
    this.raw = createClient<paths, "application/json">({ baseUrl: url, fetch: send });
    this.raw.use({
      onRequest({ request, schemaPath }) {
        const needsKey = request.method === "POST" && KEYED.has(schemaPath) && !request.headers.has("Idempotency-Key");
        if (needsKey) request.headers.set("Idempotency-Key", randomUUID());
      },
    });
  }

  async get<Path extends PathWith<"get">, Init extends MaybeOptionalInit<paths[Path], "get">>(
    path: Path,
    ...init: InitOf<Init>
  ): Promise<Reply<Path, "get", Init>> {
    return this.#body(this.raw.GET, path, init);
  }

  async post<Path extends PathWith<"post">, Init extends MaybeOptionalInit<paths[Path], "post">>(
    path: Path,
    ...init: InitOf<Init>
  ): Promise<Reply<Path, "post", Init>> {
    return this.#body(this.raw.POST, path, init);
  }

  async put<Path extends PathWith<"put">, Init extends MaybeOptionalInit<paths[Path], "put">>(
    path: Path,
    ...init: InitOf<Init>
  ): Promise<Reply<Path, "put", Init>> {
    return this.#body(this.raw.PUT, path, init);
  }

  async delete<Path extends PathWith<"delete">, Init extends MaybeOptionalInit<paths[Path], "delete">>(
    path: Path,
    ...init: InitOf<Init>
  ): Promise<Reply<Path, "delete", Init>> {
    return this.#body(this.raw.DELETE, path, init);
  }

  /**
   * Iterates over a list, page after page. An item that moves to a later page meanwhile, because others are added, comes
   * twice.
   */
  async *pages<Path extends PagedPath>(path: Path, ...init: InitOf<MaybeOptionalInit<paths[Path], "get">>): AsyncGenerator<Item<Path>> {
    const options = (init[0] ?? {}) as { params?: { query?: object } };
    for (let page = 1, last = 1; page <= last; page += 1) {
      const params = { ...options.params, query: { ...options.params?.query, page } };
      const { data, response } = (await this.raw.GET(path, { ...options, params } as never)) as Result;
      last = Number(response.headers.get("X-Total-Pages") ?? page);
      const [items] = Object.values((data as { data: Record<string, Item<Path>[]> }).data);
      yield* items ?? [];
    }
  }

  /** Iterates over the account's events, oldest first, and then waits for new ones: it never ends. A batch can be empty. */
  async *followEvents({ after, since, types, limit, waitSeconds = 30, signal }: FollowOptions = {}): AsyncGenerator<EventBatch> {
    let cursor = after;
    for (let hasMore = true; hasMore || waitSeconds > 0; ) {
      const query: QueryOf<"/api/v1/events"> = {
        ...(cursor !== undefined ? { after: cursor } : since !== undefined && { since: since.toISOString() }),
        ...(!hasMore && { wait: waitSeconds }),
        ...(types !== undefined && { types: types.join(",") }),
        ...(limit !== undefined && { limit }),
      };
      const reply = await this.get("/api/v1/events", { params: { query }, ...(signal && { signal }) });
      const { events, sequences, ...rest } = reply.data;
      cursor = rest.cursor;
      hasMore = rest.has_more;
      yield { events: events as unknown as LedgerEvent[], sequences, cursor: rest.cursor, hasMore };
    }
  }

  async #body<Body>(call: (path: never, init: never) => Promise<Result>, path: string, [init]: unknown[]): Promise<Body> {
    const { data } = await call(path as never, (init ?? {}) as never);
    return data as Body;
  }

  /** Shows the address alone: credentials are held in closures, and appear nowhere. */
  [inspect.custom](): string {
    return `RewardsLedger(${this.#origin})`;
  }
}

interface Result {
  data?: unknown;
  response: Response;
}
