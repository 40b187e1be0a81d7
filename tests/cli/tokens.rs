//! Operators' tokens, which are managed without HTTP. Like everything else they are events, but without the token
//! itself.

use ledger_database::PgPool;
use ledger_events::operator::OperatorRole;
use rewards_ledger::access::Operators;
use rewards_ledger::audit::verify;
use rewards_ledger::ledger::operators;
use rewards_ledger::secrets::master_keys;
use rewards_ledger::secrets::seal::{Secret, random_secret, salted_hash};
use serde_json::{Value, json};
use sqlx::ConnectOptions;
use tokio::process::Command;

use super::{directory, err, out, program, run};
use crate::support::ledger::{MASTER_KEY, keyring};
use crate::support::postgres;
use crate::support::program::write_private;
use crate::support::proxy::{NextCommit, Proxy};

struct Tokens {
    directory: tempfile::TempDir,
    database: postgres::TestDatabase,
    pool: PgPool,
}

impl Tokens {
    async fn open() -> Tokens {
        let (directory, database) = (directory(), postgres::database().await);
        write_private(&directory.path().join("master.key"), MASTER_KEY);
        let pool = PgPool::patient(database.url.parse().unwrap(), 4);
        Tokens { directory, database, pool }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.command_by(&self.database.url, arguments)
    }

    /// Builds a command that reaches the database at this URL.
    fn command_by(&self, url: &str, arguments: &[&str]) -> Command {
        let mut command = program(self.directory.path());
        command.args(["admin", "token"]).args(arguments).args(["--json", "--database-url", url]);
        command.env("LEDGER_MASTER_KEY_FILE", self.directory.path().join("master.key"));
        command
    }

    async fn succeeds(&self, arguments: &[&str]) -> Value {
        let done = run(&mut self.command(arguments)).await;
        assert!(done.status.success(), "{arguments:?}: {}", err(&done));
        serde_json::from_str(&out(&done)).unwrap()
    }

    async fn fails(&self, arguments: &[&str]) -> String {
        let done = run(&mut self.command(arguments)).await;
        assert!(!done.status.success() && done.stdout.is_empty(), "{arguments:?}");
        err(&done)
    }

    /// Returns the events of tokens: type, stream, version, data, actor, and the command that caused it.
    async fn events(&self) -> Vec<(String, i64, i64, Value, Value, String)> {
        sqlx::query_as(
            "SELECT type, stream_id, version, data::jsonb, metadata::jsonb->'actor', metadata::jsonb->>'request_id'
             FROM events WHERE stream_type = 'operator' ORDER BY position",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap()
    }

    /// Returns the role of the operator with this token, if there is one.
    async fn role(&self, token: &str) -> Option<OperatorRole> {
        let keyring = keyring();
        master_keys::establish(&self.pool, &keyring).await.unwrap();
        let operator = Operators::new(self.pool.clone(), keyring, None).authenticate(token).await;
        operator.ok().map(|operator| operator.role)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_tokens_are_made_listed_and_revoked_and_each_change_is_an_event() {
    let tokens = Tokens::open().await;
    let ada = tokens.succeeds(&["create", "Ada", "--role", "admin"]).await;
    let jo = tokens.succeeds(&["create", "Jo Doe", "--role", "finance", "--by", "Ada"]).await;
    let secrets = [&ada, &jo].map(|made| made["token"].as_str().unwrap().to_owned());
    assert_eq!(tokens.role(&secrets[0]).await, Some(OperatorRole::Admin));
    assert_eq!(tokens.role(&secrets[1]).await, Some(OperatorRole::Finance));
    let listed = tokens.succeeds(&["list"]).await.to_string();
    assert!(listed.contains("Ada") && secrets.iter().all(|secret| !listed.contains(secret)), "{listed}");

    let (first, second) = (ada["id"].as_i64().unwrap(), jo["id"].as_i64().unwrap());
    let revoke = ["revoke", &second.to_string()];
    tokens.succeeds(&revoke).await;
    assert_eq!((tokens.role(&secrets[0]).await, tokens.role(&secrets[1]).await), (Some(OperatorRole::Admin), None));
    // A refused command appends no event.
    assert_eq!(tokens.fails(&revoke).await, format!("error: there is no token {second}, or it is already revoked\n"));
    assert_eq!(tokens.fails(&["revoke", "99"]).await, "error: there is no token 99, or it is already revoked\n");
    let role = tokens.fails(&["create", "Ada", "--role", "king"]).await;
    assert_eq!(role, "error: --role cannot be \"king\": expected admin, finance or auditor\n");
    let nobody = tokens.fails(&["create", "Kim", "--role", "auditor", "--by", "Jo Doe"]).await;
    assert!(nobody.starts_with("error: no operator Jo Doe has a token"), "{nobody}");

    let events = tokens.events().await;
    let told: Vec<_> =
        events.iter().map(|(kind, id, version, _, by, request)| (&**kind, *id, *version, by, &**request)).collect();
    let (configured, by_ada) = (json!({"operator": 0}), json!({"operator": first}));
    assert_eq!(
        told,
        [
            ("OperatorTokenIssued", first, 1, &configured, "admin token create"),
            ("OperatorTokenIssued", second, 1, &by_ada, "admin token create"),
            ("OperatorTokenRevoked", second, 2, &configured, "admin token revoke"),
        ]
    );
    for (at, (id, name, role)) in [(first, "Ada", "admin"), (second, "Jo Doe", "finance")].into_iter().enumerate() {
        let salt: Vec<u8> = sqlx::query_scalar("SELECT salt FROM vault.texts WHERE kind = 'operator.name' AND id = $1")
            .bind(id)
            .fetch_one(&tokens.pool)
            .await
            .unwrap();
        let mac: Vec<u8> = sqlx::query_scalar("SELECT mac FROM vault.operator_macs WHERE operator_id = $1")
            .bind(id)
            .fetch_one(&tokens.pool)
            .await
            .unwrap();
        let expected = json!({"role": role, "name_hash": salted_hash(&salt, name), "row_mac": hex::encode(mac)});
        assert_eq!(events[at].3, expected);
    }
    // The log contains neither a token nor the name of its holder.
    let log: String = sqlx::query_scalar("SELECT string_agg(e::text, ' ') FROM events e").fetch_one(&tokens.pool).await.unwrap();
    for secret in &secrets {
        let hash = hex::encode(operators::hash(secret));
        assert!(!log.contains(secret) && !log.contains(&hash));
    }
    assert!(!log.contains("Ada") && !log.contains("Jo Doe"));
    let report = verify(&tokens.database.url.parse().unwrap(), |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
}

/// The token comes from a release that recorded no event for it. Revoking it appends an event.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_from_before_token_events_can_be_revoked() {
    let tokens = Tokens::open().await;
    let token: Secret = random_secret();
    tokens.succeeds(&["list"]).await;
    let id: i64 =
        sqlx::query_scalar("INSERT INTO vault.operators (name, role, token_hash) VALUES ('Ada', 'auditor', $1) RETURNING id")
            .bind(&operators::hash(token.expose())[..])
            .fetch_one(&tokens.pool)
            .await
            .unwrap();
    assert_eq!(tokens.role(token.expose()).await, Some(OperatorRole::Auditor));
    // The log contains no event for this row.
    let named = verify(&tokens.database.url.parse().unwrap(), |_| {}).await.unwrap().differences;
    assert_eq!(
        named.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [format!("shard 1: vault.operators {id} is not in the log")]
    );
    tokens.succeeds(&["revoke", &id.to_string()]).await;
    assert_eq!(tokens.role(token.expose()).await, None);
    let events = tokens.events().await;
    assert!(events.len() == 1 && (events[0].0.as_str(), events[0].1, events[0].2) == ("OperatorTokenRevoked", id, 1));
    // The next token gets an id of its own.
    assert_eq!(tokens.succeeds(&["create", "Jo", "--role", "admin"]).await["id"], id + 1);
    assert!(verify(&tokens.database.url.parse().unwrap(), |_| {}).await.unwrap().is_clean());
}

/// The connection breaks before the COMMIT's answer arrives, and the database stays unavailable. The printed
/// instructions then leave no valid token that nobody holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_command_with_an_unknown_outcome_prints_what_to_do() {
    let tokens = Tokens::open().await;
    assert_eq!(tokens.succeeds(&["list"]).await, json!({"tokens": []}));
    let (proxy, through) = Proxy::before(&tokens.database.url).await;
    let through = through.hosts()[0].to_url_lossy();
    proxy.set(NextCommit::LosesItsAnswerForLong);
    let created = run(&mut tokens.command_by(through.as_str(), &["create", "Ada", "--role", "admin"])).await;
    assert!(!created.status.success() && created.stdout.is_empty(), "{}", out(&created));
    let told = err(&created);
    let (unknown, to_do) = told.lines().last().unwrap().split_once(": if ").unwrap_or_else(|| panic!("{told}"));
    assert_eq!(unknown, "error: it is not known whether the token was created, and its secret is lost");
    assert!(
        ["`admin token list`", "new token of Ada", "`admin token revoke ID`"].iter().all(|what| to_do.contains(what)),
        "{told}"
    );
    assert_eq!(tokens.events().await.len(), 1, "the token was created");

    let listed = tokens.succeeds(&["list"]).await;
    let id = listed["tokens"][0]["id"].to_string();
    proxy.set_away(false);
    proxy.set(NextCommit::LosesItsAnswerForLong);
    let revoked = run(&mut tokens.command_by(through.as_str(), &["revoke", &id])).await;
    assert!(!revoked.status.success() && revoked.stdout.is_empty(), "{}", out(&revoked));
    let told = err(&revoked);
    let last = told.lines().last().unwrap();
    assert!(
        last.starts_with(&format!("error: it is not known whether token {id} was revoked: see `admin token list`")),
        "{told}"
    );
    assert!(tokens.succeeds(&["list"]).await["tokens"][0]["revoked_at"].is_string(), "it is");
    assert_eq!(tokens.fails(&["revoke", &id]).await, format!("error: there is no token {id}, or it is already revoked\n"));
}
