-- no-transaction
-- The attempts of a webhook, newest first.
CREATE INDEX CONCURRENTLY IF NOT EXISTS delivery_attempts_of_webhook ON delivery_attempts (shard_id, webhook_id, claimed_at)
WHERE webhook_id IS NOT NULL;
