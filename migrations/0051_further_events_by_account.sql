-- no-transaction
-- Events of payouts and wallets that clients receive, as `events_announced` has those of orders. They are few, so each costs one
-- more index entry, and an order none.
CREATE INDEX CONCURRENTLY IF NOT EXISTS events_announced_further
ON events (shard_id, (position >> 12), ((metadata->>'account_id') COLLATE "C"), position)
WHERE stream_type IN ('payout', 'account') AND type IN ('PayoutRequested', 'PayoutPaid', 'PayoutFailed', 'PayoutCancelled', 'LowBalanceReached');
