//! The signers of the transparency log.

use std::time::Duration;

use rewards_ledger::ledger::connect::is_transient;
use rewards_ledger::transparency::projector::SigningStep;
use rewards_ledger::transparency::{Refusal, TreeError};
use sqlx::{AssertSqlSafe, ConnectOptions};

use super::incident::log;
use crate::support::failover::Standby;
use crate::support::ledger::SHARD;
use crate::support::program::Program;
use crate::support::shop::Shop;
use crate::support::tree::{Signing, Tree};
use crate::support::wait::until;

fn tree(shop: &Shop) -> Tree {
    Tree::with(&shop.ledger, &shop.options, &shop.metrics, Signing::default())
}

/// Runs a node's next step. A step that finds its connection cut is repeated.
pub async fn step(tree: &Tree) -> Result<SigningStep, TreeError> {
    let mut outcome = tree.projector.step(SHARD).await;
    until("a step finds its connection open", async || {
        let is_cut = matches!(&outcome, Err(TreeError::Database(error)) if is_transient(error));
        if is_cut {
            outcome = tree.projector.step(SHARD).await;
        }
        !is_cut
    })
    .await;
    outcome
}

/// Sets up two nodes, one of which remembers more events than the database has. Returns the size that it remembers,
/// and the size that both have in common.
pub async fn failed_over() -> (Shop, Tree, Tree, u64, u64) {
    let shop = Shop::open().await;
    let (more, less) = (tree(&shop), tree(&shop));
    shop.orders(shop.customer.account_id, 20).await;
    let common = more.grow().await;
    assert_eq!(step(&less).await.unwrap(), SigningStep::Idle, "the node learns what the other one has signed");
    let standby = Standby::of(&shop.options).await;
    shop.orders(shop.customer.account_id, 10).await;
    let signed = more.grow().await;
    assert!(signed > common);
    standby.promote().await;
    // A writer whose connection is cut may raise the epoch on one server and not on the other. In these tests only
    // the trees decide.
    sqlx::raw_sql("UPDATE log_head SET epoch = epoch + 10").execute(&mut shop.admin().await).await.unwrap();
    // New orders extend the log beyond the lost events.
    shop.orders(shop.customer.account_id, 40).await;
    (shop, more, less, signed, common)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_refusal_of_one_node_stops_every_node() {
    let (shop, more, less, signed, common) = failed_over().await;
    // The node that comes first waits for the other one's state.
    for _ in 0..2 {
        assert_eq!(step(&less).await.unwrap(), SigningStep::Waiting);
    }
    let refused = Tree::refused(step(&more).await);
    assert!(matches!(refused, Refusal::Rewritten { size } if size == signed), "{refused}");
    let told = Refusal::Elsewhere {
        node: more.projector.identity().node,
        host: more.projector.identity().host.clone(),
        reason: refused.to_string(),
    };
    assert_eq!(Tree::refused(step(&less).await), told);
    // The refusal also holds when the node that remembers more is gone, and for a node without a state. It also
    // holds for a node of the previous release, which does not read refusals.
    drop(more);
    assert_eq!(Tree::refused(step(&tree(&shop)).await), told);
    let as_before = "INSERT INTO log_checkpoints (shard_id, size, origin, root, note)
        SELECT shard_id, size + 1, origin, root, note FROM log_checkpoints ORDER BY size DESC LIMIT 1";
    let old = sqlx::raw_sql(AssertSqlSafe(as_before)).execute(shop.pool()).await.unwrap_err();
    assert!(old.to_string().contains("refuses to sign this log"), "{old}");
    assert_eq!(less.newest().await.size, common, "nothing was signed");
    shop.order(1).await;
}

/// The node that remembers more takes its first step on the new server while another node grows the tree. It sees nothing of the
/// log then, so the others must still wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_has_not_compared_everything_is_waited_for() {
    let (shop, more, less, signed, common) = failed_over().await;
    let mut growing = shop.admin().await;
    let hold = "BEGIN; SELECT FROM projection_checkpoints WHERE projection = 'transparency' FOR UPDATE";
    sqlx::raw_sql(hold).execute(&mut growing).await.unwrap();
    assert_eq!(step(&more).await.unwrap(), SigningStep::Elsewhere);
    sqlx::raw_sql("COMMIT").execute(&mut growing).await.unwrap();
    assert_eq!(step(&less).await.unwrap(), SigningStep::Waiting, "it would sign another tree of {signed} events");
    let refused = Tree::refused(step(&more).await);
    assert!(matches!(refused, Refusal::Rewritten { size } if size == signed), "{refused}");
    assert!(Tree::refused(step(&less).await).is_of_another());
    assert_eq!(less.newest().await.size, common, "nothing was signed");
}

/// The origin follows from the public URL, which may change at the same time as the database fails over.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_holds_under_another_origin_until_an_incident_ends_it() {
    let (shop, more, less, signed, common) = failed_over().await;
    let moved = |state_of: Option<&Tree>| {
        let signing = Signing { origin: "moved.example.com/log".to_owned(), state_of: state_of.cloned(), ..Signing::default() };
        Tree::with(&shop.ledger, &shop.options, &shop.metrics, signing)
    };
    let (more_moved, less_moved) = (moved(Some(&more)), moved(Some(&less)));
    // The node remembers what it has signed under the former origin.
    let refused = Tree::refused(step(&more_moved).await);
    assert!(matches!(refused, Refusal::Rewritten { size } if size == signed), "{refused}");
    for other in [&less, &less_moved, &moved(None)] {
        assert!(Tree::refused(step(other).await).is_of_another());
    }
    assert_eq!(Tree::refused(step(&more).await), refused);
    let elsewhere = "INSERT INTO log_checkpoints (shard_id, size, origin, root, note)
        SELECT shard_id, size + 1, 'elsewhere/1', root, note FROM log_checkpoints ORDER BY size DESC LIMIT 1";
    let old = sqlx::raw_sql(elsewhere).execute(shop.pool()).await.unwrap_err();
    assert!(old.to_string().contains("refuses to sign this log"), "{old}");
    // Losing the state file helps as little as another origin.
    let kept = more.state.with_extension("kept");
    std::fs::rename(&more.state, &kept).unwrap();
    assert_eq!(Tree::refused(step(&more_moved).await), refused);
    std::fs::rename(&kept, &more.state).unwrap();
    assert_eq!(less.newest().await.size, common, "nothing was signed");

    let api = Program::start(shop.options.hosts()[0].to_url_lossy().as_str(), &["--roles", "api"]).await;
    let recorded = log(&api, &["incident", "--reason", "the disk of the primary failed"]).await.unwrap();
    assert_eq!(step(&less_moved).await.unwrap(), SigningStep::Waiting);
    assert!(more_moved.grow().await > signed);
    assert_eq!(more_moved.newest().await.origin, recorded["next_origin"]);
}

/// A case that cannot be excluded: the only node that remembers is down for longer than the others wait. When it
/// comes back, it stops them.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_remembers_more_stops_the_others_when_it_comes_back_late() {
    let (shop, more, mut hasty, ..) = failed_over().await;
    hasty.projector = hasty.projector.waiting(Duration::ZERO);
    let SigningStep::Signed { size: forked, .. } = step(&hasty).await.unwrap() else {
        panic!("the node did not sign although it need not wait")
    };
    shop.order(1).await;
    assert!(matches!(Tree::refused(step(&more).await), Refusal::Rewritten { .. } | Refusal::Stranger { .. }));
    assert!(Tree::refused(step(&hasty).await).is_of_another());
    assert_eq!(hasty.newest().await.size, forked);
}

/// The state file is lost, but the node's id beside it is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_stands_when_the_node_loses_its_memory() {
    let (_shop, more, less, _, common) = failed_over().await;
    let refused = Tree::refused(step(&more).await);
    std::fs::remove_file(&more.state).unwrap();
    for _ in 0..2 {
        assert_eq!(Tree::refused(step(&more).await), refused);
        assert!(Tree::refused(step(&less).await).is_of_another());
    }
    assert_eq!(less.newest().await.size, common, "nothing was signed");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_remember_the_same_continue_once_all_have_compared() {
    let shop = Shop::open().await;
    let (one, other) = (tree(&shop), tree(&shop));
    shop.orders(shop.customer.account_id, 5).await;
    one.grow().await;
    assert_eq!(step(&other).await.unwrap(), SigningStep::Idle);
    let standby = Standby::of(&shop.options).await;
    standby.promote().await;
    shop.order(1).await;
    assert_eq!(step(&one).await.unwrap(), SigningStep::Waiting);
    // The other node has nothing to wait for, and the first one no longer has either.
    assert!(matches!(step(&other).await.unwrap(), SigningStep::Signed { .. }));
    shop.order(1).await;
    assert!(matches!(step(&one).await.unwrap(), SigningStep::Signed { .. }));
}
