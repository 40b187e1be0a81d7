//! An attacker who can write to the database but has no master key gains no access, and `verify` names every change.

use ledger_events::CredentialId;
use rewards_ledger::access::Passwords;
use rewards_ledger::audit::verify_with;
use rewards_ledger::ledger::commands;
use rewards_ledger::ledger::commands::WebhookChange;
use rewards_ledger::secrets::seal::Secret;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};

use crate::support::ledger::{MASTER_KEY, keyring};
use crate::support::node::PASSWORD;
use crate::support::postgres;
use crate::support::program::{Client, OPERATOR_TOKEN, Program, run};
use crate::support::shop::Shop;
use crate::support::wait::until;

/// Marker by which data planted by the attacker can be told from the original data.
const SECRET: &str = "mallory";

async fn ask(node: &Program, method: &str, path: &str, headers: &[(&str, &str)], body: Value) -> (u16, Value) {
    let request = reqwest::Client::new().request(method.parse().unwrap(), format!("{}{path}", node.url()));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let request =
        if body.is_null() { request } else { request.header("Content-Type", "application/json").body(body.to_string()) };
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default())
}

async fn with_key(node: &Program, key: &str, secret: &str) -> u16 {
    ask(node, "GET", "/api/v1/orders", &[("X-API-Key", key), ("X-API-Secret", secret)], Value::Null).await.0
}

async fn log_in(node: &Program, email: &str, password: &str) -> (u16, Value) {
    ask(node, "POST", "/auth/login", &[], json!({"email": email, "password": password})).await
}

async fn execute(pool: &PgPool, sql: &str) -> u64 {
    sqlx::query(AssertSqlSafe(sql.to_owned()))
        .execute(pool)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
        .rows_affected()
}

/// Starts a node with a client and a user.
async fn open(database_url: &str) -> (Program, Client, PgPool) {
    let node = Program::start(database_url, &[]).await;
    let client = node.client("100.00").await;
    let user = json!({"email": "ada@example.com", "password": PASSWORD, "role": "owner"});
    node.operator(&format!("/accounts/{}/users", client.account_id), user).await;
    (node, client, PgPool::connect(database_url).await.unwrap())
}

async fn verified(node: &Program) -> (bool, String) {
    let done = run(node.command().arg("verify")).await;
    (done.status.success(), String::from_utf8(done.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_planted_in_the_database_grant_no_access() {
    let database = postgres::database().await;
    let (mut node, client, pool) = open(&database.url).await;
    node.set_master_key(&format!("{MASTER_KEY}\nsealed\n"));
    node.restart().await;
    let other = node.client("1.00").await;
    let (status, session) = log_in(&node, "ada@example.com", PASSWORD).await;
    assert_eq!((status, with_key(&node, &client.key, &client.secret).await), (200, 200));
    let (clean, found) = verified(&node).await;
    assert!(clean, "{found}");

    // An API key for another account, and the attacker's own key moved to another account.
    let replace = format!(
        "UPDATE vault.credentials SET key_hash = sha256('{SECRET}'), secret_hash = sha256('{SECRET}') WHERE credential_id = {}",
        client.credential_id
    );
    assert_eq!(execute(&pool, &replace).await, 1);
    assert_eq!(with_key(&node, SECRET, SECRET).await, 401);
    let (own, theirs) = (other.credential_id, client.account_id);
    assert_eq!(execute(&pool, &format!("UPDATE credentials SET account_id = {theirs} WHERE id = {own}")).await, 1);
    assert_eq!(with_key(&node, &other.key, &other.secret).await, 401);

    // A planted operator token.
    let token = format!("INSERT INTO vault.operators (name, role, token_hash) VALUES ('{SECRET}', 'admin', sha256('{SECRET}'))");
    execute(&pool, &token).await;
    let bearer = |token: &str| [("Authorization".to_owned(), format!("Bearer {token}"))];
    let accounts = async |token: &str| {
        let [(name, value)] = bearer(token);
        ask(&node, "GET", "/admin/v1/accounts", &[(&name, &value)], Value::Null).await.0
    };
    assert_eq!((accounts(SECRET).await, accounts(OPERATOR_TOKEN).await), (401, 200));

    // A planted password.
    let hash = Passwords::default().hash(Secret::new("mallory's password"), vec![]).await.unwrap();
    assert_eq!(execute(&pool, &format!("UPDATE vault.users SET password_hash = '{}'", hash.expose())).await, 1);
    assert_eq!(log_in(&node, "ada@example.com", "mallory's password").await.0, 401);

    // A planted session cookie with a refresh token.
    execute(
        &pool,
        &format!(
            "INSERT INTO vault.sessions (user_id, portal_hash, portal_expires_at, expires_at)
             SELECT id, sha256('{SECRET}'), now() + interval '1 hour', now() + interval '1 hour' FROM users"
        ),
    )
    .await;
    let forged: i64 = sqlx::query_scalar("SELECT max(id) FROM vault.sessions").fetch_one(&pool).await.unwrap();
    execute(
        &pool,
        &format!(
            "INSERT INTO vault.refresh_tokens (token_hash, session_id, expires_at)
             VALUES (sha256('{SECRET}'), {forged}, now() + interval '1 hour')"
        ),
    )
    .await;
    let (portal, origin) = ("/client/api/api-keys", node.url());
    let cookie = format!("__Host-portal={forged}.{SECRET}");
    assert_eq!(ask(&node, "GET", portal, &[("Cookie", &cookie), ("Origin", &origin)], Value::Null).await.0, 401);
    let refresh = json!({"refresh_token": SECRET});
    assert_eq!(ask(&node, "POST", "/auth/refresh", &[], refresh).await.0, 401);
    // The session that the service itself started still works.
    let [(name, value)] = bearer(session["data"]["access_token"].as_str().unwrap());
    assert_eq!(ask(&node, "GET", "/api/v1/orders", &[(&name, &value)], Value::Null).await.0, 200);

    let (clean, found) = verified(&node).await;
    assert!(!clean);
    let tampered = client.credential_id;
    for expected in [
        format!("vault.credentials {tampered}: differs from the row that this service wrote"),
        format!("credentials {own}: account_id is"),
        "vault.operators 1 is not in the log".to_owned(),
        "vault.users 1: differs from the row that this service wrote".to_owned(),
        format!("vault.sessions {forged}: has no MAC"),
        format!("vault.refresh_tokens of session {forged}: has no MAC"),
    ] {
        assert!(found.contains(&expected), "{expected}\nin {found}");
    }
    until("the node logs it", async || node.log().contains("refused a row with a wrong or missing MAC")).await;
}

/// The restrictions of a key cannot be widened or lifted in the database, even before the ledger is sealed.
#[tokio::test(flavor = "multi_thread")]
async fn restrictions_that_were_changed_in_the_database_make_the_key_useless() {
    let database = postgres::database().await;
    let (node, client, pool) = open(&database.url).await;
    let body = json!({"name": "reader", "scopes": ["read"], "allowed_networks": ["127.0.0.0/8"]});
    let issued = node.operator(&format!("/accounts/{}/credentials", client.account_id), body).await;
    let (key, secret) = (issued["api_key"].as_str().unwrap(), issued["api_secret"].as_str().unwrap());
    assert_eq!(with_key(&node, key, secret).await, 200);
    execute(&pool, "CREATE TABLE kept AS TABLE credential_restrictions").await;
    for (change, found) in [
        ("UPDATE credential_restrictions SET scopes = NULL", "scopes is"),
        ("UPDATE credential_restrictions SET scopes = '{read,orders}'", "scopes is"),
        ("UPDATE credential_restrictions SET expires_at = now() + interval '1 year'", "expires_at is"),
        ("UPDATE credential_restrictions SET allowed_networks = '{0.0.0.0/0}'", "allowed_networks is"),
        ("DELETE FROM credential_restrictions", "is missing"),
    ] {
        execute(&pool, change).await;
        assert_eq!(with_key(&node, key, secret).await, 401, "{change}");
        let (clean, report) = verified(&node).await;
        assert!(!clean && report.contains("credential_restrictions") && report.contains(found), "{change}: {report}");
        execute(&pool, "DELETE FROM credential_restrictions").await;
        execute(&pool, "INSERT INTO credential_restrictions TABLE kept").await;
        assert_eq!(with_key(&node, key, secret).await, 200);
    }
    // A deleted MAC does not help either: the hash of the secret says that the key is restricted.
    execute(&pool, "DELETE FROM vault.credential_macs").await;
    execute(&pool, "DELETE FROM credential_restrictions").await;
    assert_eq!(with_key(&node, key, secret).await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_an_earlier_release_count_until_the_ledger_is_sealed() {
    let database = postgres::database().await;
    let (mut node, client, pool) = open(&database.url).await;
    let (status, session) = log_in(&node, "ada@example.com", PASSWORD).await;
    assert_eq!(status, 200);
    // The state that a node of the previous release leaves.
    for table in ["credential_macs", "operator_macs", "user_macs", "session_macs", "refresh_token_macs"] {
        execute(&pool, &format!("DELETE FROM vault.{table}")).await;
    }
    let refresh = json!({"refresh_token": session["data"]["refresh_token"]});
    assert_eq!(with_key(&node, &client.key, &client.secret).await, 200);
    assert_eq!(log_in(&node, "ada@example.com", PASSWORD).await.0, 200);

    let sealed = run(node.command().args(["keys", "seal", "--json"])).await;
    assert!(sealed.status.success(), "{}", String::from_utf8_lossy(&sealed.stderr));
    let sealed: Value = serde_json::from_slice(&sealed.stdout).unwrap();
    assert_eq!((&sealed["credentials"], &sealed["users"], &sealed["sessions"]), (&json!(1), &json!(1), &json!(1)), "{sealed}");
    assert_eq!(with_key(&node, &client.key, &client.secret).await, 200);
    assert_eq!(log_in(&node, "ada@example.com", PASSWORD).await.0, 200);
    assert_eq!(ask(&node, "POST", "/auth/refresh", &[], refresh).await.0, 200);
    let (clean, found) = verified(&node).await;
    assert!(clean, "{found}");

    // From now on a row without a MAC grants no access, on the running node and after a restart.
    execute(&pool, "DELETE FROM vault.credential_macs").await;
    until("the node notices the change", async || with_key(&node, &client.key, &client.secret).await == 401).await;
    node.restart().await;
    assert_eq!(with_key(&node, &client.key, &client.secret).await, 401);
    let (clean, found) = verified(&node).await;
    assert!(!clean && found.contains("has lost its MAC"), "{found}");
}

/// Changes to the database, each with the line that the report must contain. `…` matches anything.
const TAMPERINGS: &[(&str, &str)] = &[
    ("UPDATE vault.credentials SET key_hash = sha256('x') WHERE credential_id = 1", "vault.credentials 1: differs from the row"),
    ("UPDATE vault.credentials SET secret_hash = sha256('x')", "vault.credentials 1: differs from the row"),
    ("DELETE FROM vault.credential_macs", "vault.credentials 1: has lost its MAC"),
    ("UPDATE vault.credentials SET signing_secret = NULL", "vault.credentials 1: has lost its signing secret"),
    (
        "UPDATE vault.credentials SET signing_secret = (SELECT sealed FROM vault.texts WHERE kind = 'webhook.token' LIMIT 1)",
        "vault.credentials 1: its signing secret cannot be opened",
    ),
    (
        "INSERT INTO vault.credentials (credential_id, key_hash, secret_hash) VALUES (99, '', '')",
        "vault.credentials 99: is not in the log",
    ),
    ("UPDATE vault.users SET password_hash = 'x' WHERE user_id = 2", "vault.users 2: differs from the row"),
    ("UPDATE vault.operators SET token_hash = sha256('x') WHERE id = 2", "vault.operators 2: differs from the row"),
    ("DELETE FROM vault.data_keys WHERE subject = 'account'", "vault.data_keys…is missing"),
    ("DELETE FROM vault.data_keys WHERE subject = 'user'", "vault.users 2: its email cannot be opened: its data key is missing"),
    (
        "DELETE FROM vault.data_keys WHERE subject = 'user'; DELETE FROM vault.texts WHERE kind = 'user.email'",
        "vault.users 2: its email is missing",
    ),
    (
        "UPDATE vault.data_keys SET sealed = (SELECT sealed FROM vault.data_keys ORDER BY id LIMIT 1)
         WHERE id = (SELECT max(id) FROM vault.data_keys)",
        "vault.data_keys…cannot be opened",
    ),
    (
        "UPDATE vault.texts t SET sealed = o.sealed, salt = o.salt FROM vault.texts o
         WHERE t.kind = 'webhook.token' AND t.id = 1 AND o.kind = t.kind AND o.id = 3",
        "vault.texts webhook.token 1: cannot be opened",
    ),
    ("DELETE FROM vault.texts WHERE kind = 'webhook.url' AND id = 1", "vault.texts webhook.url 1: is missing"),
    ("DELETE FROM vault.master_keys", "vault.master_keys of this ledger: vault.master_keys names no current key"),
];

async fn lines(shop: &Shop) -> Vec<String> {
    let report = verify_with(&shop.options, Some(&keyring()), |_| {}).await.unwrap();
    report.differences.iter().map(ToString::to_string).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_names_every_change_to_a_credential() {
    for (tampering, expected) in TAMPERINGS {
        let shop = Shop::open().await;
        shop.history().await;
        shop.access().await;
        assert_eq!(lines(&shop).await, Vec::<String>::new());
        shop.tamper(tampering).await;
        let lines = lines(&shop).await;
        let is_named = |line: &String| expected.split('…').all(|part| line.contains(part));
        assert!(lines.iter().any(is_named), "{tampering}\nshould be named as: {expected}\nfound: {lines:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_names_a_restored_old_signing_secret() {
    let shop = Shop::open().await;
    shop.history().await;
    let before: (Vec<u8>, Vec<u8>) = sqlx::query_as(
        "SELECT v.signing_secret, m.secret_mac FROM vault.credentials v JOIN vault.credential_macs m USING (credential_id)",
    )
    .fetch_one(shop.pool())
    .await
    .unwrap();
    let (account_id, new_secret) = (shop.customer.account_id, Secret::new("another"));
    shop.run(commands::RotateSigningSecret {
        account_id,
        credential_id: CredentialId(1),
        new_secret,
        previous_valid_hours: None,
    })
    .await;
    assert_eq!(lines(&shop).await, Vec::<String>::new());
    // Both values as the service wrote them earlier.
    let mut admin = shop.admin().await;
    sqlx::query("UPDATE vault.credentials SET signing_secret = $1").bind(&before.0).execute(&mut admin).await.unwrap();
    sqlx::query("UPDATE vault.credential_macs SET secret_mac = $1").bind(&before.1).execute(&mut admin).await.unwrap();
    assert_eq!(lines(&shop).await, ["vault.credentials 1: its signing secret is not the latest one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_names_a_restored_old_webhook_url() {
    let shop = Shop::open().await;
    let (webhook, _) = shop.webhook("https://example.com/a").await;
    let before: (Vec<u8>, Vec<u8>) =
        sqlx::query_as("SELECT salt, sealed FROM vault.texts WHERE kind = 'webhook.url'").fetch_one(shop.pool()).await.unwrap();
    let change = WebhookChange { url: Some(Secret::new("https://example.com/b")), ..WebhookChange::default() };
    shop.run(commands::UpdateWebhook { account_id: shop.customer.account_id, webhook_id: webhook, change }).await;
    assert_eq!(lines(&shop).await, Vec::<String>::new());
    let mut admin = shop.admin().await;
    let back = sqlx::query("UPDATE vault.texts SET salt = $1, sealed = $2 WHERE kind = 'webhook.url'");
    back.bind(before.0).bind(before.1).execute(&mut admin).await.unwrap();
    assert_eq!(lines(&shop).await, [format!("vault.texts webhook.url {webhook}: is not the one in the log")]);
}
