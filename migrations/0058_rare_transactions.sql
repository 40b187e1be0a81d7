-- no-transaction
-- Movements that are neither payments of orders nor their refunds: fundings, adjustments and payouts. An account has few of them,
-- so a list of one of these categories reads no refund.
CREATE INDEX CONCURRENTLY IF NOT EXISTS wallet_transactions_except_orders_and_refunds
ON wallet_transactions (shard_id, account_id, position) INCLUDE (wallet_id, category, type)
WHERE category NOT IN ('ORDER', 'ORDER_REFUND');
