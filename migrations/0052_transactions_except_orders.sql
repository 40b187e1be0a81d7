-- no-transaction
-- Movements that are not payments of orders: refunds, fundings, adjustments and payouts. Payments of orders are most movements,
-- so placing an order costs no entry, and a list of the others is counted from the index alone.
CREATE INDEX CONCURRENTLY IF NOT EXISTS wallet_transactions_except_orders
ON wallet_transactions (shard_id, account_id, position) INCLUDE (wallet_id, category, type)
WHERE category <> 'ORDER';
