-- no-transaction
-- Accounts by the beginning of their name, in lower case.
CREATE INDEX CONCURRENTLY IF NOT EXISTS accounts_name ON accounts (lower(name) text_pattern_ops);
