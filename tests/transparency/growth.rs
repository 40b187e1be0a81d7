//! The tree grows with the log, and its tables match the events.

use ledger_events::ShardId;
use rewards_ledger::audit::verify;
use rewards_ledger::ledger::reader;
use rewards_ledger::transparency::projector::SigningStep;
use rewards_ledger::transparency::proof::consistency;
use rewards_ledger::transparency::signer::{Origin, Signer};
use rewards_ledger::transparency::store;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use transparency_log::checkpoint::{Checkpoint, Trust};
use transparency_log::merkle::{Frontier, leaf_hash, verify_consistency};
use transparency_log::note::VerifierKey;
use transparency_log::tile::{FULL, Tile};

use crate::support::ledger::{LOG_KEY, SHARD};
use crate::support::node::Node;
use crate::support::shop::Shop;
use crate::support::tree::{ORIGIN, Signing, Tree, key_of};

pub fn tree(shop: &Shop, signing: Signing) -> Tree {
    Tree::with(&shop.ledger, &shop.options, &shop.metrics, signing)
}

/// Computes the root over the events up to a position, from their bytes alone.
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
    // Across the edges of tiles: no event, some, and just over one and over two full tiles.
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
    // Every tile exists and is complete.
    let tiles = store::tiles(shop.pool(), SHARD, &Tile::all(size).collect()).await.unwrap();
    for tile in Tile::all(size) {
        assert_eq!(tiles[&(tile.level, tile.index)].len(), usize::from(tile.width));
    }
    assert!(Tile::all(size).filter(|tile| tile.width == FULL).count() >= 2);
    assert_eq!(tree.projector.step(SHARD).await.unwrap(), SigningStep::Idle);
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
async fn a_tree_far_behind_catches_up_in_pages() {
    let shop = Shop::open().await;
    shop.orders(shop.customer.account_id, 2_100).await;
    let tree = tree(&shop, Signing::default());
    assert_eq!(tree.projector.step(SHARD).await.unwrap(), SigningStep::Signed { size: 4_096, is_more: true });
    let size = tree.grow().await;
    assert_eq!(tree.opened().await.checkpoint.root, root(&shop, size).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_signs_at_a_time_and_every_node_remembers() {
    let shop = Shop::open().await;
    let (one, other) = (tree(&shop, Signing::default()), tree(&shop, Signing::default()));
    shop.orders(shop.customer.account_id, 20).await;
    let size = one.grow().await;
    assert_eq!(other.projector.step(SHARD).await.unwrap(), SigningStep::Idle);
    let state = |tree: &Tree| std::fs::read_to_string(&tree.state).unwrap();
    assert_eq!(state(&one), state(&other));
    assert!(state(&other).contains(&format!("\"size\": {size}")));

    // While another node holds the tree, this one only watches and remembers.
    shop.orders(shop.customer.account_id, 5).await;
    one.grow().await;
    let mut holder = shop.pool().begin().await.unwrap();
    store::hold(&mut holder, SHARD).await.unwrap().unwrap();
    assert_eq!(other.projector.step(SHARD).await.unwrap(), SigningStep::Elsewhere);
    assert_eq!(state(&one), state(&other));
    drop(holder);

    // Both at once, repeatedly: nothing is signed twice and nothing is left out.
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
async fn keys_are_rotated_and_old_keys_stay_valid() {
    let shop = Shop::open().await;
    let signing = Signing::default();
    let both = Signing { key_file: format!("{}\n{NEW_KEY}\n", signing.key_file), ..signing.clone() };
    let new = Signing { key_file: NEW_KEY.to_owned(), ..signing.clone() };
    let first = tree(&shop, signing.clone());
    let (old_key, new_key) = (key_of(&signing.key_file), key_of(NEW_KEY));
    let mut notes = vec![];
    for signing in [signing, both, new] {
        shop.orders(shop.customer.account_id, 1).await;
        let tree = tree(&shop, Signing { state_of: Some(first.clone()), ..signing });
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

/// Computes the root over a shard's events up to a position, from their bytes alone.
async fn root_of(node: &Node, shard: ShardId, size: u64) -> [u8; 32] {
    let events = reader::stored_after(node.ledger.pool(), shard, 0, size.try_into().unwrap()).await.unwrap();
    assert_eq!(events.len() as u64, size);
    let mut frontier = Frontier::default();
    events.iter().for_each(|stored| frontier.append(leaf_hash(&stored.leaf().to_bytes())));
    frontier.root()
}

/// Returns the newest checkpoint that a shard serves: the note, and its content verified with the shard's key.
async fn served(node: &Node, shard: ShardId) -> (String, Checkpoint) {
    let note = node.anyone("GET", &format!("/log/{shard}/checkpoint"), Value::Null).await;
    assert_eq!(note.status, 200, "{}", note.text);
    let origin = Origin::new(ORIGIN).of(shard);
    let key = Signer::from_text(LOG_KEY).unwrap().verifiers(&origin).unwrap().remove(0);
    let checkpoint = Trust::in_keys(vec![key]).open(&note.text).unwrap().checkpoint;
    assert_eq!(checkpoint.origin, format!("{ORIGIN}/{shard}"));
    (note.text, checkpoint)
}

/// Appends the first events of shard 1 to shard 2.
async fn append_to_the_second(node: &Node, count: i64) {
    let sql = format!(
        "INSERT INTO events SELECT 2, h.position + e.position, gen_random_uuid(), stream_type, h.position + stream_id, version, type, schema_version, data,
            metadata, greatest(e.recorded_at, h.recorded_at) FROM events e, log_head h WHERE e.shard_id = 1 AND e.position <= {count} AND h.shard_id = 2;
         UPDATE log_head SET position = position + {count}, recorded_at = (SELECT max(recorded_at) FROM events WHERE shard_id = 2) WHERE shard_id = 2"
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut node.options.connect().await.unwrap()).await.unwrap();
}

/// Grows the trees of both shards.
async fn grow_both(tree: &Tree) {
    for shard in [1, 2] {
        while tree.projector.once(shard).await.unwrap() != SigningStep::Idle {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_shard_has_a_tree_of_its_own() {
    let first = Node::start().await;
    let setup = first.setup().await;
    let node = first.beside_with_two_shards().await;
    append_to_the_second(&first, 5).await;
    let tree = Tree::of(&node.ledger, &node.options, &node.metrics);
    grow_both(&tree).await;
    let (of_first, of_second) = (served(&node, 1).await, served(&node, 2).await);
    assert_eq!((of_first.1.size, of_second.1.size), (u64::try_from(node.head().await).unwrap(), 5));
    for (shard, checkpoint) in [(1, &of_first.1), (2, &of_second.1)] {
        assert_eq!(checkpoint.root, root_of(&node, shard, checkpoint.size).await);
        let path = format!("/log/{shard}/proof/inclusion?position=3");
        let proved = node.anyone("GET", &path, Value::Null).await.data(200);
        assert_eq!((&proved["origin"], &proved["size"]), (&json!(checkpoint.origin), &json!(checkpoint.size)));
    }
    assert_ne!(root_of(&node, 1, 5).await, of_second.1.root, "equal events of another shard have different leaves");
    assert_eq!(node.anyone("GET", "/log/3/checkpoint", Value::Null).await.status, 404);

    // Growth of one tree leaves the other one unchanged.
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
    grow_both(&tree).await;
    let grown = served(&node, 1).await;
    assert_eq!((grown.1.size, served(&node, 2).await), (of_first.1.size + 2, of_second.clone()));
    append_to_the_second(&node, 3).await;
    grow_both(&tree).await;
    assert_eq!(served(&node, 1).await, grown);
    let second = served(&node, 2).await.1;
    assert_eq!((second.size, second.root), (8, root_of(&node, 2, 8).await));
    let path = consistency(node.ledger.pool(), 2, 5, 8).await.unwrap();
    verify_consistency(5, &of_second.1.root, 8, &second.root, &path).unwrap();

    // A change in one shard is found there and nowhere else.
    let change = "ALTER TABLE events DISABLE TRIGGER ALL; UPDATE events SET data = (data::text || ' ')::json WHERE shard_id = 2 AND position = 3;
        ALTER TABLE events ENABLE ALWAYS TRIGGER events_append_only; ALTER TABLE events ENABLE ALWAYS TRIGGER events_no_truncate";
    sqlx::raw_sql(change).execute(&mut node.options.connect().await.unwrap()).await.unwrap();
    let report = verify(&node.options, |_| {}).await.unwrap();
    let lines = report.differences.iter().map(ToString::to_string);
    let of_trees: Vec<String> = lines.filter(|line| line.contains("differs from the one in the tree")).collect();
    assert!(of_trees.len() == 1 && of_trees[0].contains("shard 2, position 3: "), "{of_trees:#?}");
}
