-- January 2026 with ten million movements, in 1,000 rounds. All movements of a round have the same time: one hot wallet
-- moves a thousand times, then 9,000 wallets move once each. Every movement has its row. The log contains only the hot
-- wallet's events, the last event of each round (so that a time is found where the round ends), and all events of the
-- last ten rounds, which the projection folds itself. The rows of daily_totals up to that point are summed in SQL.
CREATE TEMP TABLE step AS
SELECT round, slot, {head} + round * 10000 + slot + 1 AS position,
    timestamptz '2026-01-01T00:00:00Z' + round * interval '44.64 minutes' AS at,
    CASE WHEN slot >= 1000 THEN 1000000 + slot ELSE {wallet} END AS wallet,
    CASE WHEN slot >= 1000 THEN 1000000 + slot ELSE {account} END AS account,
    CASE WHEN slot >= 1000 THEN round ELSE round * 1000 + slot END AS nth
FROM generate_series(0, 999) AS round CROSS JOIN generate_series(0, 9999) AS slot ORDER BY round, slot;

INSERT INTO wallets
SELECT 1, 1000000 + n, 1001, 1000000 + n, 'EUR', 1000000000 - 999, '2026-01-01', '2026-02-01' FROM generate_series(1000, 9999) AS n;

-- Every wallet starts with a billion. The hot wallet already has it.
INSERT INTO wallet_transactions
SELECT 1, position + 1000000000, position, wallet, account,
    CASE WHEN slot >= 1000 AND nth = 0 THEN 'CREDIT' ELSE 'DEBIT' END,
    CASE WHEN slot >= 1000 AND nth = 0 THEN 'FUNDING' WHEN nth % 10 = 9 THEN 'PAYOUT' ELSE 'ORDER' END,
    CASE WHEN slot >= 1000 AND nth = 0 THEN 1000000000 ELSE 1 END,
    CASE WHEN slot >= 1000 THEN 1000000000 - nth ELSE 1000000000 - nth - 1 END,
    'EUR', NULL, CASE WHEN slot >= 1000 AND nth = 0 THEN 'f' || slot END, date_trunc('milliseconds', at)
FROM step ORDER BY position;

INSERT INTO events
SELECT 1, position, gen_random_uuid(), 'wallet', wallet, nth + CASE WHEN slot >= 1000 THEN 2 ELSE 3 END, 'WalletDebited', 2,
    format('{"transaction_id":%s,"amount":"1.00","balance_after":"%s.00","%s":%s,"reference":"r"}', position + 1000000000,
        CASE WHEN slot >= 1000 THEN 1000000000 - nth ELSE 1000000000 - nth - 1 END,
        CASE WHEN nth % 10 = 9 THEN 'payout_id' ELSE 'order_id' END, position)::json,
    format('{"actor":{"credential":1},"account_id":%s,"request_id":"bench","correlation_id":"01900000-0000-7000-8000-000000000000"}', account)::json,
    date_trunc('milliseconds', at)
FROM step WHERE slot < 1000 OR slot = 9999 OR round >= 990 ORDER BY position;

INSERT INTO daily_totals
SELECT 1, wallet_id, (created_at AT TIME ZONE 'UTC')::date, account_id, 'EUR',
    coalesce(sum(amount) FILTER (WHERE category = 'FUNDING'), 0), coalesce(sum(amount) FILTER (WHERE category = 'ORDER'), 0),
    coalesce(sum(amount) FILTER (WHERE category = 'PAYOUT'), 0), 0, 0, 0, 0, count(*), min(balance_after), min(position), max(position)
FROM wallet_transactions WHERE position > {head} AND position <= {head} + 9900000 GROUP BY 2, 3, 4;
INSERT INTO daily_totals
SELECT 1, wallet_id, (created_at AT TIME ZONE 'UTC')::date, account_id, 'EUR', amount, 0, 0, 0, 0, 0, 0, 1, balance_after, position - 1, position
FROM wallet_transactions WHERE position <= {head};
INSERT INTO projection_checkpoints (shard_id, projection, position) VALUES (1, 'daily_totals', {head} + 9900000)
ON CONFLICT (shard_id, projection) DO UPDATE SET position = excluded.position;

UPDATE wallets SET balance = 1000000000 - 1000000, version = 1000002 WHERE id = {wallet};
UPDATE log_head SET position = {head} + 10000000, recorded_at = '2026-02-01';
