/** Calls that the types accept and refuse. Compiling it is the test. */

import { type Item, type PagedPath, type Reply, RewardsLedger } from "rewards-ledger";

type Equals<A, B> = [A, B] extends [B, A] ? true : false;
const isPaged: [Equals<Extract<PagedPath, "/api/v1/orders">, never>, Equals<Extract<PagedPath, "/api/v1/countries">, never>] = [false, true];
const isTyped: [Equals<Item<"/api/v1/wallets">["balance"], string>, Equals<Reply<"/api/v1/orders", "post">["data"]["id"], number>] = [true, true];

export async function checked(ledger: RewardsLedger): Promise<unknown> {
  const { data } = await ledger.post("/api/v1/orders", { body: { product_id: 1, denomination: 25, quantity: 2 } });
  const id: number = data.id;
  // @ts-expect-error: the order has no such field
  console.log(data.nothing);
  // @ts-expect-error: the quantity is missing
  await ledger.post("/api/v1/orders", { body: { product_id: 1, denomination: 25 } });
  // @ts-expect-error: there is no such path
  await ledger.get("/api/v1/nothing");
  // @ts-expect-error: the path has no such method
  await ledger.delete("/api/v1/orders");
  // @ts-expect-error: the path needs an id
  await ledger.get("/api/v1/orders/{id}");
  // @ts-expect-error: the status is none of the API's
  await ledger.get("/api/v1/orders", { params: { query: { status: "LOST" } } });
  // @ts-expect-error: the list has no pages
  ledger.pages("/api/v1/countries");
  return [id, isPaged, isTyped];
}
