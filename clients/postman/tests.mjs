// Writes a part of the collection with checks of each response: node tests.mjs COLLECTION
//
// An order, its cancellation and reads with a query that needs encoding: what a key of an account may do anywhere.

import { readFileSync } from "node:fs";

const collection = JSON.parse(readFileSync(process.argv[2], "utf8"));
const all = collection.item.flatMap(({ item }) => item);

/** Returns a request of the collection, changed, and with a check of its response. */
function step(name, expected, change = () => {}) {
  const found = structuredClone(all.find((each) => each.name === name));
  change(found.request);
  const script = `pm.test("${name}: ${expected}", () => pm.response.to.have.status(${expected}));`;
  return { ...found, event: [{ listen: "test", script: { exec: [script] } }] };
}

const remember = { listen: "test", script: { exec: ['pm.collectionVariables.set("order", pm.response.json().data.id);'] } };
const order = step("Place an order", 201, (request) => {
  // The product that the sandbox never delivers, so that the order can be cancelled.
  request.body.raw = '{"product_id": {{product}}, "denomination": 100, "quantity": 1, "client_reference": "{{$guid}} ä"}';
});
order.event.push(remember);
const products = step("List products", 200);
products.event.push({ listen: "test", script: { exec: [
  'const { products } = pm.response.json().data;',
  'pm.collectionVariables.set("product", products.find(({ name }) => name === "Travel Card").id);',
] } });
const named = (request) => (request.url.variable = [{ key: "id", value: "{{order}}" }]);

collection.item = [
  products,
  order,
  step("Retrieve an order", 200, named),
  step("List orders", 200, (request) => {
    request.url.query = [
      { key: "limit", value: "3" },
      { key: "client_reference", value: "a b&c=d/ü'\"<>+{}|" },
      { key: "status", value: "PENDING", disabled: true },
    ];
  }),
  step("Cancel an order", 200, named),
  step("List wallets", 200),
];
console.log(JSON.stringify(collection));
