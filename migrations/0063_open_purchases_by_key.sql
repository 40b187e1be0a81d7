-- no-transaction
-- Open purchases by idempotency key, for the notices of suppliers.
CREATE INDEX CONCURRENTLY IF NOT EXISTS purchases_open_by_key ON purchases (key)
WHERE status IN ('REQUESTED', 'PENDING');
