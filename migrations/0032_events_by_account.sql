-- no-transaction
-- Events that clients receive, by account within each segment of 4,096 positions: `GET /api/v1/events` looks an account up
-- in one segment after the other. The writer only ever adds to the last segment, a dozen pages that every order shares. An
-- index by account alone would cost each order one more page that no other account touches. The account is text: a cast would
-- refuse the rows of a damaged log.
CREATE INDEX CONCURRENTLY IF NOT EXISTS events_announced
ON events (shard_id, (position >> 12), ((metadata->>'account_id') COLLATE "C"), position)
WHERE stream_type = 'order' AND type IN ('OrderPlaced', 'OrderQueued', 'OrderDelivered', 'OrderPartiallyDelivered', 'OrderCancelled');
