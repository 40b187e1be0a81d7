-- no-transaction
-- The attempts of all accounts, newest first.
CREATE INDEX CONCURRENTLY IF NOT EXISTS delivery_attempts_claimed ON delivery_attempts (claimed_at);
