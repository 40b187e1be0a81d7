//! Signed requests: who must sign, and what is refused.

use rewards_ledger::access::seal::random_secret;
use rewards_ledger::ledger::{Answer, Command};
use serde_json::{Value, json};

use crate::support::ledger::run;
use crate::support::node::Node;

#[tokio::test]
async fn the_signing_secret_is_shown_once_when_it_is_made() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let path = format!("/credentials/{}", client.credential_id);
    let off = node.operator("PUT", &path, json!({"hmac_required": false})).await.data(200);
    assert_eq!(off, json!({"id": client.credential_id, "hmac_required": false, "signing_secret": null}));
    let head = node.head().await;
    let on = node.operator("PUT", &path, json!({"hmac_required": true})).await;
    assert_eq!(on.header("cache-control"), "no-store");
    let on = on.data(200);
    let secret = on["signing_secret"].as_str().unwrap();
    assert_eq!((secret.len(), &on["hmac_required"]), (64, &json!(true)));
    assert_eq!(node.head().await, head + 2, "SigningSecretRotated, HmacRequirementChanged");
    let again = node.operator("PUT", &path, json!({"hmac_required": true})).await.data(200);
    assert_eq!(again["signing_secret"], Value::Null);
    assert_eq!(node.head().await, head + 2, "nothing changed");
    let log: String =
        sqlx::query_scalar("SELECT string_agg(data::text, ' ') FROM events").fetch_one(node.ledger.pool()).await.unwrap();
    assert!(!log.contains(secret));

    node.operator("PUT", &path, json!({})).await.refused(400, "E_VALIDATION_FAILURE");
    node.operator("PUT", "/credentials/999999", json!({"hmac_required": true})).await.refused(404, "E_NOT_FOUND");
    node.operator("DELETE", &path, Value::Null).await.data(200);
    node.operator("PUT", &path, json!({"hmac_required": false})).await.refused(409, "E_CONFLICT");
}

#[tokio::test]
async fn a_rotated_secret_is_the_token_of_the_next_webhook() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let (account_id, credential_id) = (client.account_id, client.credential_id);
    let new_secret = random_secret();
    let rotate = Command::RotateSigningSecret { account_id, credential_id, new_secret: new_secret.clone() };
    let Answer::Signing { credential, signing_secret } = run(&node.ledger, rotate.clone()).await else { panic!() };
    assert!(credential.has_signing_secret && !credential.hmac_required);
    assert_eq!(signing_secret.as_ref(), Some(&new_secret));
    let hook =
        json!({"name": "a", "url": "https://example.com/hook", "events": ["order.created"], "credential_id": credential_id});
    let webhook = node.client(&client, "POST", "/webhooks", hook).await.json();
    assert_eq!(webhook["token"], new_secret.expose());

    // A change of the account's, as opposed to an operator's.
    node.operator("PUT", &format!("/accounts/{account_id}"), json!({"status": "SUSPENDED"})).await.data(200);
    let refused = node.ledger.execute(1, rotate, crate::support::ledger::origin()).await;
    assert!(format!("{refused:?}").contains("AccountSuspended"), "{refused:?}");
}
