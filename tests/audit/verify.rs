use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rewards_ledger::audit::verify;
use rewards_ledger::ledger::commands;

use crate::support::shop::Shop;

async fn lines(shop: &Shop) -> Vec<String> {
    let report = verify(&shop.options, |_| {}).await.unwrap();
    assert_eq!(report.is_clean(), report.differences.is_empty());
    report.differences.iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untouched_ledger_is_clean() {
    let shop = Shop::open().await;
    shop.eventful().await;
    let report = verify(&shop.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
    assert!(report.counts.events > 20 && report.counts.deliveries > 5 && report.counts.vouchers == 5, "{:?}", report.counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_or_lost_approval_is_named() {
    let shop = Shop::open().await;
    shop.approvals().await;
    shop.project().await;
    assert_eq!(verify(&shop.options, |_| {}).await.unwrap().differences.len(), 0);
    shop.tamper(
        "UPDATE approvals SET status = 'PENDING', decided_at = NULL WHERE status = 'GRANTED';
         UPDATE approvals SET requested = jsonb_set(requested::jsonb, '{amount}', '\"9.00\"')::json WHERE payout_id IS NOT NULL;
         DELETE FROM approvals WHERE status = 'REJECTED'",
    )
    .await;
    let report = verify(&shop.options, |_| {}).await.unwrap();
    let lines: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
    for expected in ["approvals 1: decided_at is null", "approvals 2 is missing", "approvals 3: requested is"] {
        assert!(lines.iter().any(|line| line.contains(expected)), "{expected}: {lines:#?}");
    }
}

/// Changes to the database, each with the line that the report must contain. `…` matches anything.
const TAMPERINGS: &[(&str, &str)] = &[
    (
        r#"UPDATE events SET data = regexp_replace(data::text, '"amount":"[^"]*"', '"amount":"1.00"')::json WHERE type = 'OrderPlaced' AND stream_id = 1"#,
        "order 1: its amount is 1.00, but its price is 20.00",
    ),
    ("DELETE FROM events WHERE type = 'OrderQueued' AND stream_id = 1", "shard 1: position…is missing"),
    (
        "UPDATE events SET position = 1000000 WHERE type = 'OrderPlaced' AND stream_id = 1;
         UPDATE events SET position = position - 1 WHERE type = 'WalletDebited' AND data->>'order_id' = '1';
         UPDATE events SET position = (SELECT position + 1 FROM events WHERE type = 'WalletDebited' AND data->>'order_id' = '1') WHERE position = 1000000",
        "is not the next event",
    ),
    ("UPDATE wallets SET balance = balance + 1", "wallets 1: balance is"),
    ("DELETE FROM wallet_transactions WHERE id = 2", "wallet_transactions 2 is missing"),
    ("UPDATE wallet_transactions SET id = id + 1000, reference = 'other' WHERE id = 2", "is not in the log"),
    (
        "INSERT INTO events SELECT shard_id, (SELECT max(position) + 1 FROM events), gen_random_uuid(), stream_type, stream_id,
            (SELECT max(version) + 1 FROM events WHERE stream_type = 'wallet'), type, schema_version, data, metadata,
            (SELECT max(recorded_at) FROM events) FROM events WHERE type = 'WalletRefunded' LIMIT 1;
         UPDATE log_head SET position = position + 1",
        "which was not cancelled by the preceding event",
    ),
    (
        r#"UPDATE events SET data = regexp_replace(data::text, '"refunded_amount":"[^"]*"', '"refunded_amount":"99.00"')::json WHERE type = 'OrderCancelled';
         UPDATE events SET data = regexp_replace(data::text, '"amount":"[^"]*"', '"amount":"99.00"')::json WHERE type = 'WalletRefunded' AND data->>'order_id' IS NOT NULL"#,
        "order…: its refund is 99.00 instead of",
    ),
    (
        "UPDATE vault.vouchers SET order_id = 4 WHERE id = (SELECT min(id) FROM vault.vouchers WHERE order_id = 1)",
        "is assigned to order 4",
    ),
    ("UPDATE vault.vouchers SET order_id = NULL WHERE order_id = 1", "is not assigned to an order in the stock"),
    ("DELETE FROM deliveries WHERE id = (SELECT min(id) FROM deliveries)", "deliveries…is missing"),
    ("DELETE FROM delivery_state WHERE delivery_id = (SELECT min(id) FROM deliveries)", "has no state"),
    ("UPDATE webhook_envelopes SET payload = replace(payload, 'PENDING', 'LOST')", "payload is"),
    ("UPDATE webhook_replays SET deliveries = 9", "webhook_replays 1: deliveries is 9, the log says 2"),
    ("DELETE FROM deliveries WHERE id = (SELECT max(id) FROM deliveries WHERE replay_id > 0)", "deliveries…is missing"),
    (
        "INSERT INTO deliveries SELECT shard_id, id + 1000, event_id, webhook_id, 77, account_id, order_id, event_type, created_at FROM deliveries WHERE replay_id = 1",
        "deliveries…is not in the log",
    ),
    ("UPDATE webhook_envelopes SET payload = payload || ' ' WHERE event_id = (SELECT event_id FROM deliveries WHERE replay_id > 0 LIMIT 1)", "payload is"),
    ("UPDATE delivery_state SET status = 'pending', attempt_count = 1, delivered_at = NULL; UPDATE webhook_envelopes SET payload = NULL", "is pending without a payload"),
    ("UPDATE webhook_audience SET is_active = false, is_deleted = true", "webhook_audience 1: is_active is false, the log says true"),
    ("UPDATE events SET version = version + 5 WHERE type = 'OrderDelivered'", "order 1 has version"),
    (
        "INSERT INTO orders SELECT (jsonb_populate_record(o, '{\"id\": 900}')).* FROM orders o WHERE id = 1",
        "orders 900 is not in the log",
    ),
    ("UPDATE events SET data = '{}' WHERE type = 'OrderDelivered'", "is not readable"),
    (
        r#"UPDATE events SET data = regexp_replace(data::text, '"amount":"[^"]*"', '"amount":"1.00"')::json WHERE type = 'PayoutRequested' AND stream_id = 1"#,
        "payout 1: its payment is 30.00 instead of 1.00",
    ),
    (
        r#"UPDATE events SET data = regexp_replace(data::text, '"refunded_amount":"[^"]*"', '"refunded_amount":"99.00"')::json WHERE type = 'PayoutFailed'"#,
        "payout 2: its refund is 99.00 instead of 40.00",
    ),
    (
        "UPDATE events SET stream_id = stream_id + 1, version = 1000 WHERE type = 'WalletRefunded' AND data->>'payout_id' = '2'",
        "payout 2: its refund went to wallet 2, but it was paid from wallet 1",
    ),
    (
        "INSERT INTO events SELECT shard_id, (SELECT max(position) + 1 FROM events), gen_random_uuid(), stream_type, stream_id,
            (SELECT max(version) + 1 FROM events WHERE stream_type = 'wallet'), type, schema_version, data, metadata,
            (SELECT max(recorded_at) FROM events) FROM events WHERE type = 'WalletRefunded' AND data->>'payout_id' = '3';
         UPDATE log_head SET position = position + 1",
        "for payout 3, which was not failed or cancelled by the preceding event",
    ),
    (
        "INSERT INTO events SELECT shard_id, (SELECT max(position) + 1 FROM events), gen_random_uuid(), stream_type, stream_id, 3,
            'PayoutPaid', 1, '{}', metadata, (SELECT max(recorded_at) FROM events) FROM events WHERE type = 'PayoutCancelled';
         UPDATE log_head SET position = position + 1",
        "payout 3: PayoutPaid after CANCELLED",
    ),
    (
        r#"UPDATE events SET data = regexp_replace(data::text, '"currency":"EUR"', '"currency":"USD"')::json WHERE type = 'BeneficiaryAdded'"#,
        "beneficiary 1 does not belong to account 1 in EUR",
    ),
    ("UPDATE payouts SET status = 'PAID', settled_at = now() WHERE status = 'PENDING'", "payouts 4: "),
    ("DELETE FROM payouts WHERE id = 1", "payouts 1 is missing"),
    ("UPDATE bank_statements SET lines = 9", "bank_statements 1: lines is 9, the log says 2"),
    ("UPDATE bank_statements SET decisions = '{}'", "bank_statements 1: decisions is {}, the log says {"),
    ("DELETE FROM bank_statements", "bank_statements 1 is missing"),
    ("UPDATE daily_totals SET payout_refunds = 1 WHERE wallet_id = 1", "daily_totals 1, day 2…: payout_refunds is 1.0, the log says 90.0"),
    ("DELETE FROM daily_totals WHERE wallet_id = 1", "daily_totals 1, day 2…is missing"),
    ("UPDATE daily_totals SET day = day + 1", "is not in the log"),
    ("UPDATE stock_days SET loaded = 99", "stock_days 2…, product_id 1: loaded is 99, the log says "),
    ("DELETE FROM stock_days", "stock_days 2…is missing"),
    ("INSERT INTO stock_costs VALUES (1, 'VCH-1', 9.25)", "stock_costs VCH-1 is not in the log"),
    ("UPDATE beneficiaries SET country = 'FR'", "beneficiaries 1: country is \"FR\", the log says \"DE\""),
    ("UPDATE products SET name = 'Another'", "products 1: name is \"Another\", the log says \"Card\""),
    ("UPDATE product_images SET bytes = 'other'", "the image of product 1 does not match its hash"),
    ("DELETE FROM product_images", "the image of product 1 is missing"),
    ("UPDATE products SET image = NULL", "products 1: image is null, the log says {"),
    ("UPDATE log_head SET position = position + 1", "log_head is at position"),
    ("DELETE FROM log_head", "shard 1: events has rows of this shard, but log_head has none"),
    (
        "INSERT INTO orders SELECT (jsonb_populate_record(o, '{\"shard_id\": 7}')).* FROM orders o WHERE id = 1",
        "shard 7: orders has rows of this shard, but log_head has none",
    ),
    (
        "INSERT INTO accounts SELECT (jsonb_populate_record(a, '{\"shard_id\": 7, \"id\": 900}')).* FROM accounts a WHERE id = 1",
        "shard 7: accounts has rows of this shard",
    ),
    (
        "INSERT INTO events SELECT 7, position, gen_random_uuid(), stream_type, stream_id, version, type, schema_version, data, metadata,
            recorded_at FROM events WHERE position = 1",
        "shard 7: events has rows of this shard, but log_head has none",
    ),
    ("UPDATE accounts SET status = 'ACTIVE' WHERE id = 2", "accounts 2: status is \"ACTIVE\", the log says \"SUSPENDED\""),
    ("UPDATE accounts SET discounts = '[]' WHERE id = 1", "accounts 1: discounts is [], the log says [{"),
    ("DELETE FROM accounts WHERE id = 2", "accounts 2 is missing"),
    ("UPDATE credentials SET hmac_required = false", "credentials 1: hmac_required is false, the log says true"),
    ("DELETE FROM credentials", "credentials 1 is missing"),
    ("UPDATE users SET is_removed = false WHERE id = 1", "users 1: is_removed is false, the log says true"),
    ("UPDATE users SET role = 'owner' WHERE id = 2", "users 2: role is \"owner\", the log says \"operator\""),
    ("DELETE FROM users WHERE id = 2", "users 2 is missing"),
    ("UPDATE categories SET name = 'Other'", "categories 1: name is \"Other\", the log says \"Games\""),
    ("DELETE FROM categories", "categories 1 is missing"),
    ("UPDATE webhooks SET is_active = NOT is_active WHERE id = 1", "webhooks 1: is_active is false, the log says true"),
    ("DELETE FROM webhooks WHERE id = 2", "webhooks 2 is missing"),
    ("DELETE FROM webhook_subscriptions WHERE id = 1", "webhook_subscriptions 1 is missing"),
    ("UPDATE webhook_subscriptions SET events = '{payout.paid}' WHERE id = 1", "webhook_subscriptions 1: events is"),
    ("UPDATE orders SET product_name = 'Other' WHERE id = 1", "orders 1: product_name is \"Other\", the log says \"Card\""),
    ("UPDATE events SET recorded_at = 'epoch' WHERE position = 3", "before its predecessor's"),
    (
        "UPDATE events SET metadata = (metadata::jsonb || '{\"causation_id\": \"00000000-0000-7000-8000-000000000000\"}')::json WHERE position = 3",
        "causation_id 00000000-0000-7000-8000-000000000000 is not an earlier event",
    ),
];

/// Changes to the shards of a ledger with a second one that drains, in the same form.
const OF_SHARDS: &[(&str, &str)] = &[
    (
        "INSERT INTO log_head (shard_id) VALUES (7)",
        "shard 7: log_head has this shard, but no event of the first shard's log adds it",
    ),
    (
        "DELETE FROM log_head WHERE shard_id = 2",
        "shard 2: an event of the first shard's log adds this shard, but log_head has none",
    ),
    (
        "UPDATE events SET type = 'ShardDrainSet', data = '{\"draining\":true}' WHERE type = 'ShardAdded'",
        "shard 2: log_head has this shard, but no event of the first shard's log adds it",
    ),
    ("UPDATE shards SET draining = false", "shards 2: draining is false, the log says true"),
    ("UPDATE shards SET added_at = NULL", "shards 2: added_at is null, the log says \"2"),
    ("DELETE FROM shards", "shards 2 is missing"),
    ("INSERT INTO shards VALUES (1, 9, 1, false, now())", "shards 9 is not in the log"),
    ("INSERT INTO shards VALUES (7, 9, 1, false, now())", "shard 7: shards has rows of this shard, but log_head has none"),
    // A row whose shard is greater than its number.
    ("INSERT INTO shards VALUES (9, 2, 1, false, now())", "shard 9: shards has rows of this shard, but log_head has none"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_the_shards_is_named() {
    for (tampering, expected) in OF_SHARDS {
        let shop = Shop::open().await;
        shop.run(commands::AddShard { shard_id: 2 }).await;
        shop.run(commands::SetShardDrain { shard_id: 2, draining: true }).await;
        assert_eq!(lines(&shop).await, Vec::<String>::new());
        shop.tamper(tampering).await;
        let lines = lines(&shop).await;
        assert!(
            lines.iter().any(|line| line.contains(expected)),
            "{tampering}\nshould be named as: {expected}\nfound: {lines:#?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_tampering_is_named() {
    for (tampering, expected) in TAMPERINGS {
        let shop = Shop::open().await;
        shop.history().await;
        shop.tamper(tampering).await;
        let lines = lines(&shop).await;
        assert!(
            lines.iter().any(|line| expected.split('…').all(|part| line.contains(part))),
            "{tampering}\nshould be named as: {expected}\nfound: {lines:#?}"
        );
    }
}

/// Changes to operators' tokens, in the same form. The first token is revoked, the second is not.
const OF_OPERATORS: &[(&str, &str)] = &[
    ("UPDATE vault.operators SET role = 'admin' WHERE id = 2", "vault.operators 2: role is \"admin\", the log says \"finance\""),
    ("UPDATE vault.operators SET revoked_at = NULL WHERE id = 1", "vault.operators 1: revoked_at is null, the log says \"2"),
    ("UPDATE vault.operators SET revoked_at = now() WHERE id = 2", "vault.operators 2: revoked_at is \"2…\", the log says null"),
    ("UPDATE vault.operators SET name = 'mallory' WHERE id = 2", "vault.operators 2: name_hash is \"…\", the log says \""),
    ("DELETE FROM vault.texts WHERE kind = 'operator.name' AND id = 2", "vault.operators 2: name_hash is null, the log says \""),
    ("UPDATE vault.operators SET created_at = 'epoch' WHERE id = 2", "vault.operators 2: created_at is \"1970-"),
    ("INSERT INTO vault.operators (name, role, token_hash) VALUES ('mallory', 'admin', '')", "vault.operators…is not in the log"),
    ("DELETE FROM vault.operators WHERE id = 2", "vault.operators 2 is missing"),
    ("UPDATE events SET version = 5 WHERE type = 'OperatorTokenRevoked'", "operator 1 has version 5 instead of 2"),
    (
        "INSERT INTO events SELECT shard_id, (SELECT max(position) + 1 FROM events), gen_random_uuid(), stream_type, stream_id, 3, type,
            schema_version, data, metadata, (SELECT max(recorded_at) FROM events) FROM events WHERE type = 'OperatorTokenRevoked';
         UPDATE log_head SET position = position + 1",
        "operator 1: OperatorTokenRevoked cannot follow the earlier events",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_change_of_an_operators_token_is_named() {
    for (tampering, expected) in OF_OPERATORS {
        let shop = Shop::open().await;
        shop.access().await;
        assert_eq!(lines(&shop).await, Vec::<String>::new());
        shop.tamper(tampering).await;
        let lines = lines(&shop).await;
        let is_named = |line: &String| expected.split('…').all(|part| line.contains(part));
        assert!(lines.iter().any(is_named), "{tampering}\nshould be named as: {expected}\nfound: {lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("mallory")), "the owner of the row is unchanged: {lines:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_is_clean_while_others_write() {
    let shop = Arc::new(Shop::open().await);
    shop.history().await;
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (shop, stop) = (shop.clone(), stop.clone());
        async move {
            while !stop.load(Ordering::Relaxed) {
                let order_id = shop.place(shop.customer.order("25.00", 1)).await;
                shop.fulfil(order_id).await;
                shop.project().await;
            }
        }
    });
    for _ in 0..5 {
        assert_eq!(lines(&shop).await, Vec::<String>::new());
    }
    stop.store(true, Ordering::Relaxed);
    writer.await.unwrap();
}
