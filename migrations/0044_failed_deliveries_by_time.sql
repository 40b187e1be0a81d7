-- no-transaction
CREATE INDEX CONCURRENTLY IF NOT EXISTS delivery_state_failed_at ON delivery_state (next_attempt_at) INCLUDE (shard_id, webhook_id) WHERE status = 'failed';
