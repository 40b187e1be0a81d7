-- Events of a million orders of one account over a hundred products, in the last eighty days. Of every twenty orders, one is cancelled and
-- refunded, one still waits for fulfilment, two are delayed and sixteen are delivered. Order ids begin at 1. The caller
-- fills in {account}, {wallet}, {product} (the first of the hundred) and {head}.

CREATE FUNCTION pg_temp.id(kind int, n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS
    $$ SELECT format('01900000-0000-7000-800%s-%s', kind, lpad(to_hex(n), 12, '0'))::uuid $$;
-- Event metadata: actor, correlation id, causation id.
CREATE FUNCTION pg_temp.who(actor text, correlation uuid, causation uuid) RETURNS json LANGUAGE sql IMMUTABLE AS
    $$ SELECT format('{"actor":%s,"account_id":{account},"request_id":"benchmark","correlation_id":"%s"%s}', actor, correlation,
        CASE WHEN causation IS NULL THEN '' ELSE format(',"causation_id":"%s"', causation) END)::json $$;

-- The events before these are older than them all.
ALTER TABLE events DISABLE TRIGGER events_append_only;
UPDATE events SET recorded_at = recorded_at - interval '81 days';
ALTER TABLE events ENABLE ALWAYS TRIGGER events_append_only;
UPDATE log_head SET recorded_at = recorded_at - interval '81 days';

-- Four events per order, or two for an order that fulfilment has not processed. They end in the past: ten orders have one time.
CREATE TEMP TABLE story AS
SELECT n, n % 20 AS kind, {product} + (n / 20 + n) % 100 AS product, 'ORD-' || lpad(n::text, 10, '0') AS reference,
    {head} + 4 * (n - 1) - 2 * ((n + 18) / 20) AS before, 2 + n + (n - 1) / 20 AS version,
    1000000000 - 10 * n + 10 * ((n - 1) / 20) AS balance, (SELECT recorded_at FROM log_head) + n / 10 * interval '69 seconds' AS at,
    pg_temp.id(1, n) AS e1, pg_temp.id(2, n) AS e2, pg_temp.id(3, n) AS e3, pg_temp.id(4, n) AS e4
FROM generate_series(1, 1000000) AS n;

INSERT INTO events
SELECT 1, before + 1, e1, 'order', n, 1, 'OrderPlaced', 1,
    format('{"account_id":{account},"reference_code":"%s","client_reference":null,"product_id":%s,"product_name":"Voucher","currency":"EUR","denomination":"10.00","quantity":1,"face_value":"10.00","discount":"0.00","discount_amount":"0.00","amount":"10.00","wallet_id":{wallet},"transaction_id":%s,"metadata_hash":null}', reference, product, 1000000 + n)::json,
    pg_temp.who('{"operator":1}', e1, NULL), at
FROM story ORDER BY n;
INSERT INTO events
SELECT 1, before + 2, e2, 'wallet', {wallet}, version, 'WalletDebited', 1,
    format('{"transaction_id":%s,"amount":"10.00","balance_after":"%s.00","order_id":%s,"reference":"%s"}', 1000000 + n, balance, n, reference)::json,
    pg_temp.who('{"operator":1}', e1, e1), at
FROM story ORDER BY n;
INSERT INTO events
SELECT 1, before + 3, e3, 'order', n, 2, 'OrderQueued', 1, '{}', pg_temp.who('"fulfilment"', e1, e1), at
FROM story WHERE kind > 1 ORDER BY n;
INSERT INTO events
SELECT 1, before + 4, e4, 'order', n, 3, CASE WHEN kind > 3 THEN 'OrderDelivered' ELSE 'OrderDelayed' END, 1,
    CASE WHEN kind > 3 THEN format('{"vouchers":["VR-%s"]}', lpad(n::text, 10, '0')) ELSE '{}' END::json,
    pg_temp.who('"fulfilment"', e1, e3), at
FROM story WHERE kind > 1 ORDER BY n;
INSERT INTO events
SELECT 1, before + 3, e3, 'order', n, 2, 'OrderCancelled', 1,
    format('{"by":"OPERATOR","refunded_amount":"10.00","transaction_id":%s,"reason_hash":null}', 3000000 + n)::json,
    pg_temp.who('{"operator":1}', e3, e1), at
FROM story WHERE kind = 0 ORDER BY n;
INSERT INTO events
SELECT 1, before + 4, e4, 'wallet', {wallet}, version + 1, 'WalletRefunded', 1,
    format('{"transaction_id":%s,"amount":"10.00","balance_after":"%s.00","order_id":%s,"reference":"%s"}', 3000000 + n, balance + 10, n, reference)::json,
    pg_temp.who('{"operator":1}', e3, e3), at
FROM story WHERE kind = 0 ORDER BY n;

INSERT INTO vault.vouchers (shard_id, product_id, denomination, reference, fingerprint, sealed, order_id)
SELECT 1, product, 10, 'VR-' || lpad(n::text, 10, '0'), sha256(convert_to(n::text, 'UTF8')), '\x00', n FROM story WHERE kind > 3 ORDER BY n;
SELECT setval('order_ids', 2000000), setval('transaction_ids', 5000000);
UPDATE log_head SET (position, recorded_at) = (SELECT max(position), max(recorded_at) FROM events);
INSERT INTO projection_checkpoints (shard_id, projection, position) SELECT 1, 'deliveries', position FROM log_head
ON CONFLICT (shard_id, projection) DO UPDATE SET position = excluded.position;
ANALYZE events;
ANALYZE vault.vouchers;
