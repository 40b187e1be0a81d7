//! Receipts: the checkpoint that they are bound to, and their completeness.

use ledger_events::OrderId;
use rewards_ledger::transparency::issue::{IssueError, MAX_EVENTS, order_receipt};
use rewards_ledger::transparency::receipt::{Receipt, ReceiptError};
use rewards_ledger::transparency::signer::Signer;
use rewards_ledger::transparency::store;
use transparency_log::checkpoint::{CheckpointError, Trust};
use transparency_log::merkle::MerkleError;
use transparency_log::quorum::Quorum;

use super::kept::kept;
use crate::support::ledger::SHARD;
use crate::support::tampering::revealed;
use crate::support::tree::key;

/// A receipt combined with a checkpoint that it was not made for: the proof fails, although the log has signed that
/// checkpoint.
#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_holds_with_its_own_checkpoint_alone() {
    let kept = kept().await;
    let trust = Trust::in_keys(vec![key()]);
    let receipt = order_receipt(kept.shop.pool(), SHARD, OrderId(3), &Quorum::default()).await.unwrap();
    let first = receipt.events[0].event.position;
    assert_eq!(receipt.check(&trust).unwrap().opened.checkpoint.size, kept.sizes[1]);
    kept.shop.order(1).await;
    kept.tree.grow().await;
    let earlier = std::fs::read_to_string(kept.path("first.note")).unwrap();
    let later = kept.tree.newest().await.note;
    let mut other_root = trust.open(&receipt.checkpoint).unwrap().checkpoint;
    other_root.root = [7; 32];
    let signer = Signer::from_text(crate::support::ledger::LOG_KEY).unwrap();
    let same_size = signer.sign(&other_root).unwrap().to_string();
    for checkpoint in [earlier, later, same_size] {
        let other = Receipt { checkpoint: checkpoint.clone(), ..receipt.clone() };
        let refused = other.check(&trust);
        assert!(matches!(refused, Err(ReceiptError::Proof { position, .. }) if position == first), "{refused:?}");
        std::fs::write(kept.path("receipt.json"), serde_json::to_vec(&other).unwrap()).unwrap();
        let (is_well, facts) = kept.verify(&["--receipt", "receipt.json"]).await;
        assert!(!is_well && facts["problem"].as_str().unwrap().starts_with(&format!("position {first}: ")), "{facts}");
    }
    // A checkpoint too small to contain the order.
    let mut small = trust.open(&receipt.checkpoint).unwrap().checkpoint;
    small.size = u64::try_from(first).unwrap() - 1;
    let refused = Receipt { checkpoint: signer.sign(&small).unwrap().to_string(), ..receipt.clone() }.check(&trust);
    assert!(matches!(refused, Err(ReceiptError::Proof { source: MerkleError::NoSuchLeaf { .. }, .. })), "{refused:?}");
    // A checkpoint signed by another key.
    let stranger = Signer::from_text("bmV3IGtleSBuZXcga2V5IG5ldyBrZXkgbmV3IGtleS4=").unwrap();
    let own = trust.open(&receipt.checkpoint).unwrap().checkpoint;
    let refused = Receipt { checkpoint: stranger.sign(&own).unwrap().to_string(), ..receipt }.check(&trust);
    assert!(matches!(refused, Err(ReceiptError::Checkpoint(CheckpointError::Note(_)))), "{refused:?}");
}

/// However often an order's codes were read, its receipt is complete or refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_has_all_events_of_its_order_or_is_refused() {
    let kept = kept().await;
    let before = order_receipt(kept.shop.pool(), SHARD, OrderId(3), &Quorum::default()).await.unwrap().events.len();
    // Enough reads for more than one page.
    kept.shop.tamper(&revealed(3, 6_000)).await;
    kept.tree.grow().await;
    let receipt = order_receipt(kept.shop.pool(), SHARD, OrderId(3), &Quorum::default()).await.unwrap();
    assert_eq!(receipt.events.len(), before + 6_000);
    receipt.check(&Trust::in_keys(vec![key()])).unwrap();
    kept.shop.tamper(&revealed(3, MAX_EVENTS - 6_000)).await;
    let refused = order_receipt(kept.shop.pool(), SHARD, OrderId(3), &Quorum::default()).await;
    assert!(matches!(refused, Err(IssueError::TooMany)), "{:?}", refused.map(|receipt| receipt.events.len()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_is_verified_with_the_key_alone() {
    let kept = kept().await;
    let receipt = order_receipt(kept.shop.pool(), SHARD, OrderId(3), &Quorum::default()).await.unwrap();
    let text = serde_json::to_string(&receipt).unwrap();
    std::fs::write(kept.path("receipt.json"), &text).unwrap();
    let (is_well, facts) = kept.verify(&["--receipt", "receipt.json"]).await;
    assert!(is_well && facts["events"] == 2 && facts["order_id"] == 3, "{facts}");
    std::fs::write(kept.path("receipt.json"), text.replacen("\"10.00\"", "\"1.00\"", 1)).unwrap();
    let (is_well, facts) = kept.verify(&["--receipt", "receipt.json"]).await;
    assert!(!is_well && facts["problem"].as_str().unwrap().contains("the readable fields differ from the leaf"), "{facts}");
    assert!(store::newest(kept.shop.pool(), SHARD).await.unwrap().is_some());
}

/// A receipt that the service makes after the database was changed proves nothing, and names the position.
#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_made_after_the_database_was_changed_fails() {
    let kept = kept().await;
    let orders: Vec<(i64, i64)> =
        sqlx::query_as("SELECT stream_id, position FROM events WHERE type = 'OrderPlaced' ORDER BY position LIMIT 5")
            .fetch_all(kept.shop.pool())
            .await
            .unwrap();
    let [price, time, debit, gone, sound] = orders[..] else { panic!("{orders:?}") };
    kept.shop
        .tamper(&format!(
            "UPDATE events SET data = replace(data::text, '10.00', '1.00')::json WHERE position = {};
             UPDATE events SET recorded_at = recorded_at + interval '1 ms' WHERE position = {};
             UPDATE events SET data = replace(data::text, '10.00', '1.00')::json WHERE position = {};
             DELETE FROM events WHERE position = {}",
            price.1,
            time.1,
            debit.1 + 1,
            gone.1 + 1
        ))
        .await;
    for ((order, _), expected) in [
        (price, format!("position {}: ", price.1)),
        (time, format!("position {}: ", time.1)),
        (debit, format!("position {}: ", debit.1 + 1)),
        (gone, "of the order is missing".to_owned()),
    ] {
        let receipt = order_receipt(kept.shop.pool(), SHARD, OrderId(order), &Quorum::default()).await.unwrap();
        std::fs::write(kept.path("receipt.json"), serde_json::to_vec(&receipt).unwrap()).unwrap();
        let (is_well, facts) = kept.verify(&["--receipt", "receipt.json"]).await;
        assert!(!is_well && facts["problem"].as_str().unwrap().contains(&expected), "{expected}: {facts}");
    }
    let receipt = order_receipt(kept.shop.pool(), SHARD, OrderId(sound.0), &Quorum::default()).await.unwrap();
    std::fs::write(kept.path("receipt.json"), serde_json::to_vec(&receipt).unwrap()).unwrap();
    assert!(kept.verify(&["--receipt", "receipt.json"]).await.0, "unchanged events are still proven");
}
