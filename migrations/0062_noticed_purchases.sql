-- A supplier's notice that an order is ready, if it arrives while a node works on the purchase. The supplier is then asked again at
-- once. Nodes of the last release ask at the next poll.
ALTER TABLE purchase_calls ADD COLUMN is_noticed boolean NOT NULL DEFAULT false;
