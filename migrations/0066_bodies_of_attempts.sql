-- no-transaction
-- Stored bodies of attempts by webhook, for its quota and for erasures. A success stores none here, so it costs no more.
CREATE INDEX CONCURRENTLY IF NOT EXISTS delivery_attempts_bodies
ON delivery_attempts (shard_id, webhook_id, delivery_id)
WHERE response_body IS NOT NULL;
