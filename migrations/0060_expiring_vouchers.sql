-- no-transaction
-- Free vouchers whose expiry is not in the log yet.
CREATE INDEX CONCURRENTLY IF NOT EXISTS vouchers_expiring ON vault.vouchers (shard_id, expires_on)
WHERE order_id IS NULL AND expired_at IS NULL AND expires_on IS NOT NULL;
