//! The tree grows with the log, and its tables are what the events make.

use ledger_events::merkle::{Frontier, leaf_hash};
use ledger_events::tile::{FULL, Tile};
use rewards_ledger::audit::verify;
use rewards_ledger::ledger::reader;
use rewards_ledger::transparency::Standing;
use rewards_ledger::transparency::checkpoint::Trust;
use rewards_ledger::transparency::note::VerifierKey;
use rewards_ledger::transparency::projector::Step;
use rewards_ledger::transparency::store;

use crate::support::ledger::SHARD;
use crate::support::shop::Shop;
use crate::support::tree::{Signing, Tree, key_of};

pub fn tree(shop: &Shop, signing: Signing) -> Tree {
    Tree::with(&shop.ledger, &shop.options, &shop.metrics, &Standing::default(), signing)
}

/// The root of the events up to a position, by nothing but their bytes.
async fn root(shop: &Shop, size: u64) -> [u8; 32] {
    let events = reader::stored_after(shop.pool(), SHARD, 0, size.try_into().unwrap()).await.unwrap();
    assert_eq!(events.len() as u64, size);
    let mut frontier = Frontier::default();
    events.iter().for_each(|stored| frontier.append(leaf_hash(&stored.leaf().to_bytes())));
    frontier.root()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_checkpoint_is_the_root_of_the_events() {
    let shop = Shop::open().await;
    let tree = tree(&shop, Signing::default());
    let mut sizes = vec![];
    // Across the edges of tiles: none, some, and just over a full one and over two.
    for orders in [0, 1, 3, 120, 5, 130] {
        shop.orders(shop.customer.account_id, orders).await;
        sizes.push(tree.grow().await);
        let newest = tree.opened().await.checkpoint;
        assert_eq!((newest.origin.as_str(), newest.size), ("ledger.example.com/log/1", *sizes.last().unwrap()));
        assert_eq!(newest.root, root(&shop, newest.size).await);
    }
    let size = *sizes.last().unwrap();
    assert_eq!(i64::try_from(size).unwrap(), reader::head(shop.pool(), SHARD).await.unwrap());
    assert!(size > 512, "{size}");
    for earlier in sizes {
        assert_eq!(store::root_at(shop.pool(), SHARD, earlier).await.unwrap(), root(&shop, earlier).await);
    }
    // Every tile is there, whole.
    let tiles = store::tiles(shop.pool(), SHARD, &Tile::all(size).collect()).await.unwrap();
    for tile in Tile::all(size) {
        assert_eq!(tiles[&(tile.level, tile.index)].len(), usize::from(tile.width));
    }
    assert!(Tile::all(size).filter(|tile| tile.width == FULL).count() >= 2);
    assert_eq!(tree.projector.step(SHARD).await.unwrap(), Step::Idle);
    let report = verify(&shop.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:?}", report.differences);
    let reach = report.reached.iter().find(|reach| reach.projection == "transparency").unwrap();
    assert_eq!((reach.checkpoint, reach.behind()), (size.try_into().unwrap(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_without_events_has_a_checkpoint_too() {
    let shop = Shop::open().await;
    sqlx::raw_sql("ALTER TABLE events DISABLE TRIGGER ALL; DELETE FROM events; UPDATE log_head SET position = 0")
        .execute(&mut shop.admin().await)
        .await
        .unwrap();
    let tree = tree(&shop, Signing::default());
    assert_eq!(tree.grow().await, 0);
    assert_eq!(tree.opened().await.checkpoint.root, Frontier::default().root());
}

/// More events than one step takes.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_far_behind_catches_up_in_pages() {
    let shop = Shop::open().await;
    shop.orders(shop.customer.account_id, 2_100).await;
    let tree = tree(&shop, Signing::default());
    assert_eq!(tree.projector.step(SHARD).await.unwrap(), Step::Signed { size: 4_096, is_more: true });
    let size = tree.grow().await;
    assert_eq!(tree.opened().await.checkpoint.root, root(&shop, size).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_at_a_time_and_every_node_remembers() {
    let shop = Shop::open().await;
    let (one, other) = (tree(&shop, Signing::default()), tree(&shop, Signing::default()));
    shop.orders(shop.customer.account_id, 20).await;
    let size = one.grow().await;
    assert_eq!(other.projector.step(SHARD).await.unwrap(), Step::Idle);
    let state = |tree: &Tree| std::fs::read_to_string(&tree.state).unwrap();
    assert_eq!(state(&one), state(&other));
    assert!(state(&other).contains(&format!("\"size\": {size}")));

    // Held by somebody: the other one looks on, and remembers.
    shop.orders(shop.customer.account_id, 5).await;
    one.grow().await;
    let mut holder = shop.pool().begin().await.unwrap();
    store::hold(&mut holder, SHARD).await.unwrap().unwrap();
    assert_eq!(other.projector.step(SHARD).await.unwrap(), Step::Elsewhere);
    assert_eq!(state(&one), state(&other));
    drop(holder);

    // Both at once, again and again: nothing is signed twice, nothing is left out.
    for _ in 0..10 {
        shop.orders(shop.customer.account_id, 10).await;
        let (a, b) = tokio::join!(one.projector.step(SHARD), other.projector.step(SHARD));
        _ = (a.unwrap(), b.unwrap());
    }
    let size = one.grow().await;
    assert_eq!(one.opened().await.checkpoint.root, root(&shop, size).await);
    assert_eq!(size, u64::try_from(reader::head(shop.pool(), SHARD).await.unwrap()).unwrap());
}

const NEW_KEY: &str = "bmV3IGtleSBuZXcga2V5IG5ldyBrZXkgbmV3IGtleS4=";

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_handed_over_and_old_ones_stay_known() {
    let shop = Shop::open().await;
    let signing = Signing::default();
    let both = Signing { key_file: format!("{}\n{NEW_KEY}\n", signing.key_file), ..signing.clone() };
    let new = Signing { key_file: NEW_KEY.to_owned(), ..signing.clone() };
    let first = tree(&shop, signing.clone());
    let (old_key, new_key) = (key_of(&signing.key_file), key_of(NEW_KEY));
    let mut notes = vec![];
    for signing in [signing, both, new] {
        shop.orders(shop.customer.account_id, 1).await;
        let tree = tree(&shop, Signing { memory_of: Some(first.clone()), ..signing });
        tree.grow().await;
        notes.push(tree.newest().await);
    }
    let opens = |key: &VerifierKey, note: &store::Published| Trust::in_keys(vec![key.clone()]).open(&note.note).is_ok();
    assert_eq!([0, 1, 2].map(|at| opens(&old_key, &notes[at])), [true, true, false]);
    assert_eq!([0, 1, 2].map(|at| opens(&new_key, &notes[at])), [false, true, true]);
    let keys = store::keys(shop.pool(), SHARD).await.unwrap();
    let expected = [(old_key.to_string(), notes[0].size), (new_key.to_string(), notes[1].size)];
    let found: Vec<_> = keys.into_iter().map(|key| (key.verifier_key, u64::try_from(key.since_size).unwrap())).collect();
    assert_eq!(found, expected);
    assert!(verify(&shop.options, |_| {}).await.unwrap().is_clean());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_cannot_change_what_was_published() {
    let shop = Shop::open().await;
    shop.orders(shop.customer.account_id, 150).await;
    tree(&shop, Signing::default()).grow().await;
    for statement in [
        "UPDATE log_tiles SET index = index + 1000",
        "DELETE FROM log_tiles",
        "TRUNCATE log_tiles",
        "UPDATE log_checkpoints SET size = size + 1",
        "DELETE FROM log_checkpoints",
        "UPDATE log_keys SET since_size = 0",
        "DELETE FROM log_keys",
        "DELETE FROM log_edges",
    ] {
        let refused = sqlx::raw_sql(statement).execute(shop.pool()).await.unwrap_err();
        assert!(refused.to_string().contains("permission denied"), "{statement}: {refused}");
        if !statement.ends_with("log_edges") {
            let refused = sqlx::raw_sql(statement).execute(&mut shop.admin().await).await.unwrap_err();
            assert!(refused.to_string().contains("append-only"), "{statement}: {refused}");
        }
    }
}
