//! Notices of low balances: one for each fall below the amount that the account has set.

use rewards_ledger::ledger::FIRST_SHARD;
use rewards_ledger::ledger::low_balance::queue_mails;
use serde_json::{Value, json};

use crate::support::ledger::keyring;
use crate::support::mail::{Received, SmtpServer};
use crate::support::node::{Node, Setup, User};

async fn with_users() -> (Node, Setup, User, User) {
    let node = Node::start().await;
    let setup = node.setup().await;
    let account_id = setup.client.account_id;
    let (viewer, operator) = (node.user(account_id, "viewer").await, node.user(account_id, "operator").await);
    (node, setup, viewer, operator)
}

fn path(setup: &Setup) -> String {
    format!("/client/api/wallets/{}/notice", setup.wallet_id)
}

async fn adjust(node: &Node, setup: &Setup, direction: &str, amount: &str) {
    let body = json!({"type": direction, "amount": amount, "reason": "r"});
    node.operator("POST", &format!("/wallets/{}/adjust", setup.wallet_id), body).await.data(201);
}

/// Sends the mails that are due. Returns amount and balance of each.
async fn mailed(node: &Node, server: &SmtpServer) -> Vec<(String, String)> {
    node.project().await;
    queue_mails(node.ledger.pool(), &keyring(), FIRST_SHARD).await.unwrap();
    let amounts = |mail: &Received| {
        let text = mail.text.replace("=\n", "");
        let (_, rest) = text.split_once(" has fallen below ").unwrap_or_else(|| panic!("{text}"));
        let (below, rest) = rest.split_once(". It was ").unwrap();
        (below.to_owned(), rest.split_once(".\n").unwrap().0.to_owned())
    };
    server.deliver(node).await.iter().map(amounts).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(below, balance)| ((*below).to_owned(), (*balance).to_owned())).collect()
}

#[tokio::test]
async fn a_fall_below_the_amount_makes_one_notice_until_the_balance_is_above_again() {
    let (node, setup, viewer, operator) = with_users().await;
    let server = SmtpServer::start().await;
    node.user(setup.client.account_id, "owner").await;
    let set = async |below: Value| {
        let path = path(&setup);
        node.bearer(&operator.access_token, "PUT", &path, json!({"below": below})).await.data(200)
    };
    assert_eq!(set(json!("900.00")).await, json!({"wallet_id": setup.wallet_id, "below": "900.00"}));
    adjust(&node, &setup, "DEBIT", "100.00").await; // 900.00, which is not below
    assert_eq!(mailed(&node, &server).await, []);
    let shown = node.bearer(&viewer.access_token, "GET", &path(&setup), Value::Null).await.data(200);
    assert_eq!(shown["below"], "900.00");
    let all = async |user: &User| {
        node.bearer(&user.access_token, "GET", "/client/api/wallets/notices", Value::Null).await.data(200)["notices"].take()
    };
    assert_eq!(all(&viewer).await, json!([shown]));
    let stranger = node.user(node.account("Other").await.account_id, "owner").await;
    assert_eq!(all(&stranger).await, json!([]));

    adjust(&node, &setup, "DEBIT", "0.01").await;
    adjust(&node, &setup, "DEBIT", "50.00").await; // still below
    assert_eq!(mailed(&node, &server).await, pairs(&[("900.00", "899.99")]));
    assert_eq!(mailed(&node, &server).await, []);
    adjust(&node, &setup, "CREDIT", "50.01").await; // 900.00
    adjust(&node, &setup, "DEBIT", "1.00").await;
    assert_eq!(mailed(&node, &server).await, pairs(&[("900.00", "899.00")]));

    // A wallet that is below the new amount already makes no notice before it has been above.
    set(json!("950.00")).await;
    adjust(&node, &setup, "DEBIT", "1.00").await;
    assert_eq!(mailed(&node, &server).await, []);
    set(Value::Null).await;
    adjust(&node, &setup, "CREDIT", "500.00").await;
    adjust(&node, &setup, "DEBIT", "1000.00").await;
    assert_eq!(mailed(&node, &server).await, []);
    assert_eq!(all(&viewer).await, json!([]));
    let actor: Value =
        sqlx::query_scalar("SELECT metadata::jsonb->'actor' FROM events WHERE type = 'LowBalanceNoticeSet' LIMIT 1")
            .fetch_one(node.ledger.pool())
            .await
            .unwrap();
    assert_eq!(actor, json!({"user": operator.id}));
}

#[tokio::test]
async fn a_notice_whose_mails_could_not_be_stored_stays_due() {
    let (node, setup, _, operator) = with_users().await;
    node.bearer(&operator.access_token, "PUT", &path(&setup), json!({"below": "900.00"})).await.data(200);
    adjust(&node, &setup, "DEBIT", "500.00").await;
    node.project().await;
    let (mut admin, server) = (node.admin().await, SmtpServer::start().await);
    node.user(setup.client.account_id, "owner").await;
    sqlx::raw_sql("ALTER TABLE vault.mails ADD CONSTRAINT none CHECK (false) NOT VALID").execute(&mut admin).await.unwrap();
    assert!(queue_mails(node.ledger.pool(), &keyring(), FIRST_SHARD).await.is_err());
    sqlx::raw_sql("ALTER TABLE vault.mails DROP CONSTRAINT none").execute(&mut admin).await.unwrap();
    assert_eq!(mailed(&node, &server).await, pairs(&[("900.00", "500.00")]));
}

#[tokio::test]
async fn only_the_accounts_own_operators_set_a_notice() {
    let (node, setup, viewer, operator) = with_users().await;
    let body = || json!({"below": "900.00"});
    node.bearer(&viewer.access_token, "PUT", &path(&setup), body()).await.refused(403, "E_FORBIDDEN");
    let other = node.account("Other").await;
    let stranger = node.user(other.account_id, "owner").await;
    node.bearer(&stranger.access_token, "PUT", &path(&setup), body()).await.refused(404, "E_NOT_FOUND");
    node.bearer(&stranger.access_token, "GET", &path(&setup), Value::Null).await.refused(404, "E_NOT_FOUND");
    for wrong in [json!({}), json!({"below": "0.00"}), json!({"below": "-1"}), json!({"below": "1.001"})] {
        node.bearer(&operator.access_token, "PUT", &path(&setup), wrong).await.refused(400, "E_VALIDATION_FAILURE");
    }
}
