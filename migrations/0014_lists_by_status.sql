-- Pages of one status, however deep, without reading what is not of it.

-- What the worker has recorded, by event type. Every state says its own: a node that does not know the column makes none.
DROP INDEX delivery_state_delivered, delivery_state_failed;
ALTER TABLE delivery_state ADD COLUMN event_type text NOT NULL DEFAULT '';
UPDATE delivery_state s SET event_type = d.event_type FROM deliveries d WHERE d.shard_id = s.shard_id AND d.id = s.delivery_id;
ALTER TABLE delivery_state ALTER COLUMN event_type DROP DEFAULT;
CREATE INDEX delivery_state_delivered ON delivery_state (shard_id, webhook_id, event_type, delivery_id) WHERE status = 'delivered';
CREATE INDEX delivery_state_failed ON delivery_state (shard_id, webhook_id, event_type, delivery_id) WHERE status = 'failed';

-- An account's orders, however many products they are of: merging them by product took a plan of as many branches.
CREATE INDEX orders_status ON orders (shard_id, account_id, status, placed_position);
