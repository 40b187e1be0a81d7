-- A million events: orders of a thousand accounts that were placed, debited, queued and delivered, 250 from each wallet.
-- The accounts, wallets and product that they need come before, and their vouchers are inserted as well.

CREATE FUNCTION pg_temp.id(kind int, n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS
    $$ SELECT format('01900000-0000-7000-800%s-%s', kind, lpad(to_hex(n), 12, '0'))::uuid $$;
-- Event metadata: actor, account, correlation id, causation id.
CREATE FUNCTION pg_temp.who(actor text, account bigint, correlation uuid, causation uuid) RETURNS json LANGUAGE sql IMMUTABLE AS
    $$ SELECT format('{"actor":%s,%s"request_id":"0d9b2b1c-6f0e-4f0e-9b1c-000000000000","correlation_id":"%s"%s}', actor,
        CASE WHEN account IS NULL THEN '' ELSE format('"account_id":%s,', account) END, correlation,
        CASE WHEN causation IS NULL THEN '' ELSE format(',"causation_id":"%s"', causation) END)::json $$;
CREATE TEMP TABLE story AS
SELECT n, 1 + n % 1000 AS wallet, 'ORD-' || lpad(n::text, 10, '0') AS reference,
    pg_temp.id(1, n) AS e1, pg_temp.id(2, n) AS e2, pg_temp.id(3, n) AS e3, pg_temp.id(4, n) AS e4
FROM generate_series(1, 250000) AS n;

INSERT INTO events
SELECT 1, a, pg_temp.id(5, a), 'account', a, 1, 'AccountCreated', 1, format('{"name":"Account %s"}', a)::json,
    pg_temp.who('{"operator":1}', a, pg_temp.id(5, a), NULL), '2026-01-01'
FROM generate_series(1, 1000) AS a;
INSERT INTO events VALUES
    (1, 1001, pg_temp.id(6, 1), 'product', 1, 1, 'ProductAdded', 1,
     '{"details":{"name":"Card","brand":"Brand","category_id":null,"country":"DE","currency":"EUR","denominations":{"type":"FIXED","values":["10.00"]},"max_quantity":100,"description":"","terms":"","is_active":true}}',
     pg_temp.who('{"operator":1}', NULL, pg_temp.id(6, 1), NULL), '2026-01-01'),
    (1, 1002, pg_temp.id(6, 2), 'product', 1, 2, 'VoucherStockLoaded', 1,
     '{"denomination":"10.00","accepted":250000,"duplicates":0}',
     pg_temp.who('{"operator":1}', NULL, pg_temp.id(6, 2), NULL), '2026-01-01');
INSERT INTO events
SELECT 1, 1001 + 2 * w, pg_temp.id(7, w), 'wallet', w, 1, 'WalletOpened', 1, format('{"account_id":%s,"currency":"EUR"}', w)::json,
    pg_temp.who('{"operator":1}', w, pg_temp.id(7, w), NULL), '2026-01-01'
FROM generate_series(1, 1000) AS w;
INSERT INTO events
SELECT 1, 1002 + 2 * w, pg_temp.id(8, w), 'wallet', w, 2, 'WalletFunded', 1,
    format('{"transaction_id":%s,"amount":"10000.00","balance_after":"10000.00","reference":"f%s","note_hash":null}', 1000000 + w, w)::json,
    pg_temp.who('{"operator":1}', w, pg_temp.id(8, w), NULL), '2026-01-01'
FROM generate_series(1, 1000) AS w;

INSERT INTO events
SELECT 1, 3002 + (n - 1) * 4 + 1, e1, 'order', n, 1, 'OrderPlaced', 1,
    format('{"account_id":%s,"reference_code":"%s","client_reference":null,"product_id":1,"product_name":"Card","currency":"EUR","denomination":"10.00","quantity":1,"face_value":"10.00","discount":"0.00","discount_amount":"0.00","amount":"10.00","wallet_id":%s,"transaction_id":%s,"metadata_hash":null}', wallet, reference, wallet, n)::json,
    pg_temp.who('{"credential":1}', wallet, e1, NULL), '2026-01-01'
FROM story ORDER BY n;
INSERT INTO events
SELECT 1, 3002 + (n - 1) * 4 + 2, e2, 'wallet', wallet, 3 + (n - 1) / 1000, 'WalletDebited', 2,
    format('{"transaction_id":%s,"amount":"10.00","balance_after":"%s","order_id":%s,"reference":"%s"}', n, (10000 - 10 * (1 + (n - 1) / 1000))::numeric(18, 2), n, reference)::json,
    pg_temp.who('{"credential":1}', wallet, e1, e1), '2026-01-01'
FROM story ORDER BY n;
INSERT INTO events
SELECT 1, 3002 + (n - 1) * 4 + 3, e3, 'order', n, 2, 'OrderQueued', 1, '{}', pg_temp.who('"fulfilment"', wallet, e1, e1), '2026-01-01'
FROM story ORDER BY n;
INSERT INTO events
SELECT 1, 3002 + (n - 1) * 4 + 4, e4, 'order', n, 3, 'OrderDelivered', 1, format('{"vouchers":["VR-%s"]}', lpad(n::text, 10, '0'))::json,
    pg_temp.who('"fulfilment"', wallet, e1, e3), '2026-01-01'
FROM story ORDER BY n;

INSERT INTO vault.vouchers (shard_id, product_id, denomination, reference, fingerprint, sealed, order_id)
SELECT 1, 1, 10, 'VR-' || lpad(n::text, 10, '0'), sha256(convert_to(n::text, 'UTF8')), '\x00', n FROM story ORDER BY n;
UPDATE log_head SET position = 1003002, recorded_at = '2026-01-01';
ANALYZE events;
ANALYZE vault.vouchers;
