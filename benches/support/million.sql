-- A million events: orders of a thousand accounts that were placed, debited, queued and delivered,
-- 250 from each wallet, with what had to be there before, and the vouchers that they got.
CREATE TEMP TABLE story AS
SELECT n, uuid_in(('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::cstring) AS e1, uuid_in(('01900000-0000-7000-8001-' || lpad(to_hex(n), 12, '0'))::cstring) AS e2,
    uuid_in(('01900000-0000-7000-8002-' || lpad(to_hex(n), 12, '0'))::cstring) AS e3, uuid_in(('01900000-0000-7000-8003-' || lpad(to_hex(n), 12, '0'))::cstring) AS e4, 1 + n % 1000 AS wallet
FROM generate_series(1, 250000) AS n;
INSERT INTO events SELECT 1, a, gen_random_uuid(), 'account', a, 1, 'AccountCreated', 1, format('{"name":"Account %s"}', a)::json,
    format('{"actor":{"operator":1},"account_id":%s,"request_id":"t","correlation_id":"01900000-0000-7000-8000-000000000001"}', a)::json, '2026-01-01' FROM generate_series(1, 1000) AS a;
INSERT INTO events VALUES
    (1, 1001, gen_random_uuid(), 'product', 1, 1, 'ProductAdded', 1,
     '{"details":{"name":"Card","brand":"Brand","category_id":null,"country":"DE","currency":"EUR","denominations":{"type":"FIXED","values":["10.00"]},"max_quantity":100,"description":"","terms":"","is_active":true}}',
     '{"actor":{"operator":1},"request_id":"t","correlation_id":"01900000-0000-7000-8000-000000000001"}', '2026-01-01'),
    (1, 1002, gen_random_uuid(), 'product', 1, 2, 'VoucherStockLoaded', 1, '{"denomination":"10.00","accepted":250000,"duplicates":0}',
     '{"actor":{"operator":1},"request_id":"t","correlation_id":"01900000-0000-7000-8000-000000000001"}', '2026-01-01');
INSERT INTO events SELECT 1, 1001 + 2 * w, gen_random_uuid(), 'wallet', w, 1, 'WalletOpened', 1, format('{"account_id":%s,"currency":"EUR"}', w)::json,
    format('{"actor":{"operator":1},"account_id":%s,"request_id":"t","correlation_id":"01900000-0000-7000-8000-000000000001"}', w)::json, '2026-01-01' FROM generate_series(1, 1000) AS w;
INSERT INTO events SELECT 1, 1002 + 2 * w, gen_random_uuid(), 'wallet', w, 2, 'WalletFunded', 1,
    format('{"transaction_id":%s,"amount":"10000.00","balance_after":"10000.00","reference":"f%s","note_hash":null}', 1000000 + w, w)::json,
    format('{"actor":{"operator":1},"account_id":%s,"request_id":"t","correlation_id":"01900000-0000-7000-8000-000000000001"}', w)::json, '2026-01-01' FROM generate_series(1, 1000) AS w;
INSERT INTO events SELECT 1, 3002 + (n - 1) * 4 + 1, e1, 'order', n, 1, 'OrderPlaced', 1,
    format('{"account_id":%s,"reference_code":"ORD-%s","client_reference":null,"product_id":1,"product_name":"Card","currency":"EUR","denomination":"10.00","quantity":1,"face_value":"10.00","discount":"0.00","discount_amount":"0.00","amount":"10.00","wallet_id":%s,"transaction_id":%s,"metadata_hash":null}', wallet, lpad(n::text, 10, '0'), wallet, n)::json,
    format('{"actor":{"credential":1},"account_id":%s,"request_id":"0d9b2b1c-6f0e-4f0e-9b1c-000000000000","correlation_id":"%s"}', wallet, e1)::json, '2026-01-01' FROM story ORDER BY n;
INSERT INTO events SELECT 1, 3002 + (n - 1) * 4 + 2, e2, 'wallet', wallet, 3 + (n - 1) / 1000, 'WalletDebited', 1,
    format('{"transaction_id":%s,"amount":"10.00","balance_after":"%s","order_id":%s,"reference":"ORD-%s"}', n, (10000 - 10 * (1 + (n - 1) / 1000))::numeric(18,2), n, lpad(n::text, 10, '0'))::json,
    format('{"actor":{"credential":1},"account_id":%s,"request_id":"0d9b2b1c-6f0e-4f0e-9b1c-000000000000","correlation_id":"%s","causation_id":"%s"}', wallet, e1, e1)::json, '2026-01-01' FROM story ORDER BY n;
INSERT INTO events SELECT 1, 3002 + (n - 1) * 4 + 3, e3, 'order', n, 2, 'OrderQueued', 1, '{}',
    format('{"actor":"fulfilment","account_id":%s,"request_id":"fulfilment","correlation_id":"%s","causation_id":"%s"}', wallet, e1, e1)::json, '2026-01-01' FROM story ORDER BY n;
INSERT INTO events SELECT 1, 3002 + (n - 1) * 4 + 4, e4, 'order', n, 3, 'OrderDelivered', 1, format('{"vouchers":["VR-%s"]}', lpad(n::text, 10, '0'))::json,
    format('{"actor":"fulfilment","account_id":%s,"request_id":"fulfilment","correlation_id":"%s","causation_id":"%s"}', wallet, e1, e3)::json, '2026-01-01' FROM story ORDER BY n;
INSERT INTO vault.vouchers (shard_id, product_id, denomination, reference, fingerprint, sealed, order_id)
    SELECT 1, 1, 10, 'VR-' || lpad(n::text, 10, '0'), sha256(convert_to(n::text, 'UTF8')), '\x00', n FROM story ORDER BY n;
UPDATE log_head SET position = 1003002, recorded_at = '2026-01-01';
ANALYZE events;
ANALYZE vault.vouchers;
