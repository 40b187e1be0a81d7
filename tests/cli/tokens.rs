//! Operators' tokens, which are made past HTTP: events as everything is, without the token.

use ledger_events::operator::OperatorRole;
use rewards_ledger::access::Operators;
use rewards_ledger::access::operators;
use rewards_ledger::access::seal::{Private, random_secret, salted_hash};
use rewards_ledger::audit::verify;
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::process::Command;

use super::{directory, err, out, program, run};
use crate::support::ledger::MASTER_KEY;
use crate::support::postgres;

struct Tokens {
    directory: tempfile::TempDir,
    database: postgres::TestDatabase,
    pool: PgPool,
}

impl Tokens {
    async fn open() -> Tokens {
        let (directory, database) = (directory(), postgres::database().await);
        std::fs::write(directory.path().join("master.key"), MASTER_KEY).unwrap();
        let pool = PgPool::connect(&database.url).await.unwrap();
        Tokens { directory, database, pool }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program(self.directory.path());
        command.args(["admin", "token"]).args(arguments).args(["--json", "--database-url", &self.database.url]);
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

    /// The events of tokens: type, stream, version, data, and who did it by which command.
    async fn events(&self) -> Vec<(String, i64, i64, Value, Value, String)> {
        sqlx::query_as(
            "SELECT type, stream_id, version, data::jsonb, metadata::jsonb->'actor', metadata::jsonb->>'request_id'
             FROM events WHERE stream_type = 'operator' ORDER BY position",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap()
    }

    /// What an operator of this token may do, if anything.
    async fn role(&self, token: &str) -> Option<OperatorRole> {
        let operator = Operators::new(self.pool.clone(), None).authenticate(token).await;
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
    // What is refused is no event.
    assert_eq!(tokens.fails(&revoke).await, format!("error: no token {second} that is not revoked already\n"));
    assert_eq!(tokens.fails(&["revoke", "99"]).await, "error: no token 99 that is not revoked already\n");
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
        assert_eq!(events[at].3, json!({"role": role, "name_hash": salted_hash(&salt, name)}));
    }
    // Neither a token nor whose it is stands in the log.
    let log: String = sqlx::query_scalar("SELECT string_agg(e::text, ' ') FROM events e").fetch_one(&tokens.pool).await.unwrap();
    for secret in &secrets {
        let hash = hex::encode(operators::hash(secret));
        assert!(!log.contains(secret) && !log.contains(&hash));
    }
    assert!(!log.contains("Ada") && !log.contains("Jo Doe"));
    let report = verify(&tokens.database.url.parse().unwrap(), |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
}

/// Made by a program for which a token was no event: revoking it is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_older_than_its_events_can_be_revoked() {
    let tokens = Tokens::open().await;
    let token: Private = random_secret();
    tokens.succeeds(&["list"]).await;
    let id: i64 =
        sqlx::query_scalar("INSERT INTO vault.operators (name, role, token_hash) VALUES ('Ada', 'auditor', $1) RETURNING id")
            .bind(&operators::hash(token.expose())[..])
            .fetch_one(&tokens.pool)
            .await
            .unwrap();
    assert_eq!(tokens.role(token.expose()).await, Some(OperatorRole::Auditor));
    tokens.succeeds(&["revoke", &id.to_string()]).await;
    assert_eq!(tokens.role(token.expose()).await, None);
    let events = tokens.events().await;
    assert!(events.len() == 1 && (events[0].0.as_str(), events[0].1, events[0].2) == ("OperatorTokenRevoked", id, 1));
    // And the next one has an id of its own.
    assert_eq!(tokens.succeeds(&["create", "Jo", "--role", "admin"]).await["id"], id + 1);
    assert!(verify(&tokens.database.url.parse().unwrap(), |_| {}).await.unwrap().is_clean());
}
