-- no-transaction
-- The attempts of a webhook, newest first. A page is found from the index alone.
CREATE INDEX CONCURRENTLY IF NOT EXISTS delivery_attempts_of_webhook
ON delivery_attempts (shard_id, webhook_id, claimed_at, request_id)
WHERE webhook_id IS NOT NULL;
