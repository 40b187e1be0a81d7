-- no-transaction
-- Events by type, for the audit. The frequent events of an order's lifecycle are left out. They are nearly the whole log, so
-- appending them costs no entry, and a scan from the end of the log finds them at once.
CREATE INDEX CONCURRENTLY IF NOT EXISTS events_by_type ON events (shard_id, type, position)
WHERE type <> ALL ('{OrderPlaced,WalletDebited,OrderQueued,OrderDelayed,OrderPartiallyDelivered,OrderDelivered}');
