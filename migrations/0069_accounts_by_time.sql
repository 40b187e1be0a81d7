-- no-transaction
-- Accounts of all shards, newest first. Their ids tell their shards, so they are not in the order of time.
CREATE INDEX CONCURRENTLY IF NOT EXISTS accounts_created_at ON accounts (created_at, id);
