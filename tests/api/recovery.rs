//! Password resets, mails, sessions and the own password.

mod invitations;

use ledger_events::{AccountId, UserId};
use rewards_ledger::heartbeat::Heartbeat;
use rewards_ledger::ledger::erasure::Subject;
use rewards_ledger::ledger::{FIRST_SHARD, eraser};
use rewards_ledger::mail::{self, Mailer, Sender, Transport};
use rewards_ledger::secrets::seal::Secret;
use serde_json::{Value, json};

use super::at_rest::readable_in;
use crate::support::ledger::{keyring, origin};
use crate::support::mail::SmtpServer;
use crate::support::node::{AMPLE_LIMITS, Node, PASSWORD, TestResponse, User};
use crate::support::wait::{until, until_locked_out};

const NEW_PASSWORD: &str = "a quite different one";
const USERS: &str = "/client/api/users";
const INVITATIONS: &str = "/client/api/users/invitations";

async fn with_user(role: &str) -> (Node, User) {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let user = node.user(client.account_id, role).await;
    (node, user)
}

async fn ask(node: &Node, user: &User, method: &str, path: &str, body: Value) -> TestResponse {
    node.bearer(&user.access_token, method, path, body).await
}

async fn request_reset(node: &Node, email: &str) -> TestResponse {
    node.anyone("POST", "/auth/password-reset", json!({"email": email})).await
}

async fn reset(node: &Node, token: &str, password: &str) -> TestResponse {
    node.anyone("POST", "/auth/password-reset/confirm", json!({"token": token, "password": password})).await
}

async fn log_in(node: &Node, email: &str, password: &str) -> TestResponse {
    node.anyone("POST", "/auth/login", json!({"email": email, "password": password})).await
}

async fn accept(node: &Node, token: &str) -> TestResponse {
    node.anyone("POST", "/auth/invitations/accept", json!({"token": token, "password": PASSWORD})).await
}

async fn execute(node: &Node, sql: &'static str) -> u64 {
    sqlx::query(sql).execute(node.ledger.pool()).await.unwrap().rows_affected()
}

#[tokio::test]
async fn a_forgotten_password_is_reset_by_mail_once() {
    let (node, user) = with_user("viewer").await;
    let server = SmtpServer::start().await;
    request_reset(&node, &user.email.to_uppercase()).await.data(200);
    let mails = server.deliver(&node).await;
    let [mail] = &mails[..] else { panic!("{mails:?}") };
    assert_eq!((mail.from.as_str(), mail.to.as_str()), ("rewards@example.com", user.email.as_str()));
    let token = mail.token();
    assert!(mail.text.contains(&format!("{}/portal/reset-password?token={token}\n", node.url())), "{}", mail.text);
    assert_eq!(readable_in(&node, &token).await, Vec::<String>::new());

    // A weak password and a wrong token use nothing up.
    let error = reset(&node, &token, "password1").await.refused(400, "E_VALIDATION_FAILURE");
    assert!(error["messages"]["password"].is_array(), "{error}");
    reset(&node, &token[1..], NEW_PASSWORD).await.refused(401, "E_INVALID_TOKEN");
    let head = node.head().await;
    let answers = futures::future::join_all((0..4).map(|_| reset(&node, &token, NEW_PASSWORD))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
    answers.iter().filter(|answer| answer.status != 200).for_each(|answer| _ = answer.refused(401, "E_INVALID_TOKEN"));
    ask(&node, &user, "GET", "/api/v1/orders", Value::Null).await.refused(401, "E_INVALID_TOKEN");
    log_in(&node, &user.email, PASSWORD).await.refused(401, "E_INVALID_CREDENTIALS");
    log_in(&node, &user.email, NEW_PASSWORD).await.data(200);
    let events: Vec<(String, Value)> = sqlx::query_as("SELECT type, metadata->'actor' FROM events WHERE position > $1")
        .bind(head)
        .fetch_all(node.ledger.pool())
        .await
        .unwrap();
    assert_eq!(events, [("UserPasswordReset".to_owned(), json!({"user": user.id}))]);
    assert!(server.deliver(&node).await[0].subject().ends_with("was changed"));
}

#[tokio::test]
async fn an_unknown_email_gets_the_same_answer_and_no_mail() {
    let (node, user) = with_user("viewer").await;
    let server = SmtpServer::start().await;
    let mut texts = vec![];
    for email in [user.email.as_str(), "nobody@example.com", "no address"] {
        let answer = request_reset(&node, email).await;
        answer.data(200);
        texts.push(answer.text);
    }
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
    // Each request writes the same rows.
    let rows: (i64, i64) =
        sqlx::query_as("SELECT (SELECT count(*) FROM vault.password_resets), (SELECT count(*) FROM vault.mails)")
            .fetch_one(node.ledger.pool())
            .await
            .unwrap();
    assert_eq!(rows, (3, 3));
    assert_eq!(server.deliver(&node).await.len(), 1);
    assert_eq!(execute(&node, "DELETE FROM vault.mails").await, 0, "mails to nobody are dropped");
}

#[tokio::test]
async fn resets_are_limited_by_address_and_by_source() {
    let node = Node::with_limits(format!("{AMPLE_LIMITS},password-reset=6/1h,reset-mail=2/1h").parse().unwrap()).await;
    let client = node.account("Acme").await;
    let user = node.user(client.account_id, "viewer").await;
    let server = SmtpServer::start().await;
    for _ in 0..4 {
        request_reset(&node, &user.email).await.data(200);
    }
    assert_eq!(server.deliver(&node).await.len(), 2, "further mails are not sent, and the answer does not tell");
    let last = reset(&node, "x", NEW_PASSWORD).await;
    last.refused(401, "E_INVALID_TOKEN");
    assert_eq!(last.header("x-ratelimit-limit"), "6");
    request_reset(&node, &user.email).await.data(200);
    assert_eq!(request_reset(&node, &user.email).await.status, 429);
}

#[tokio::test]
async fn a_token_ends_with_its_time_and_with_a_new_password() {
    let (node, user) = with_user("viewer").await;
    let server = SmtpServer::start().await;
    for _ in 0..2 {
        request_reset(&node, &user.email).await.data(200);
    }
    let tokens: Vec<String> = server.deliver(&node).await.iter().map(|mail| mail.token()).collect();
    let [first, second] = &tokens[..] else { panic!("{tokens:?}") };
    reset(&node, first, NEW_PASSWORD).await.data(200);
    reset(&node, second, PASSWORD).await.refused(401, "E_INVALID_TOKEN");
    server.deliver(&node).await;
    request_reset(&node, &user.email).await.data(200);
    let token = server.deliver(&node).await[0].token();
    // A changed row is refused by its MAC, an old one by its time.
    execute(&node, "UPDATE vault.password_resets SET expires_at = now() - interval '1 ms'").await;
    reset(&node, &token, PASSWORD).await.refused(401, "E_INVALID_TOKEN");
}

#[tokio::test]
async fn a_refused_mail_is_sent_later_and_two_nodes_send_it_once() {
    let (node, user) = with_user("viewer").await;
    let server = SmtpServer::start().await;
    server.refuse(1);
    request_reset(&node, &user.email).await.data(200);
    assert_eq!(server.deliver(&node).await, []);
    assert_eq!(execute(&node, "UPDATE vault.mails SET due_at = now() WHERE attempts = 1").await, 1);
    let (one, other) = (server.mailer(&node), server.mailer(&node));
    let heartbeat = Heartbeat::default();
    let (first, second) = tokio::join!(one.send_due(&heartbeat), other.send_due(&heartbeat));
    assert_eq!(first.unwrap() + second.unwrap(), 1);
    assert_eq!(server.take().len(), 1);
    // A node that dies while it sends leaves a lease; the mail is sent again when the lease expires.
    request_reset(&node, &user.email).await.data(200);
    execute(&node, "UPDATE vault.mails SET due_at = now() + interval '5 min', attempts = 1").await;
    assert_eq!(server.deliver(&node).await, []);
    execute(&node, "UPDATE vault.mails SET due_at = now()").await;
    assert_eq!(server.deliver(&node).await.len(), 1);
}

#[tokio::test]
async fn a_mail_whose_recipient_is_refused_for_good_is_given_up() {
    let (node, user) = with_user("viewer").await;
    let server = SmtpServer::start().await;
    let waiting = async || {
        let count = "SELECT count(*) FROM vault.mails";
        sqlx::query_scalar::<_, i64>(count).fetch_one(node.ledger.pool()).await.unwrap()
    };
    // The operators can correct a wrong password or sender, so such a refusal keeps the mail.
    for answer in ["450 busy", "554 5.7.1 relay access denied"] {
        server.answer_recipients(answer);
        request_reset(&node, &user.email).await.data(200);
        assert_eq!((server.deliver(&node).await, waiting().await), (vec![], 1), "{answer}");
        assert_eq!(execute(&node, "DELETE FROM vault.mails").await, 1);
    }
    server.answer_recipients("550 5.1.1 no such user");
    request_reset(&node, &user.email).await.data(200);
    assert_eq!((server.deliver(&node).await, waiting().await), (vec![], 0));
    let metrics = node.send(node.request("GET", "/metrics")).await.text;
    for line in ["ledger_mail_attempts_total{outcome=\"failed\"} 2", "ledger_mail_attempts_total{outcome=\"refused\"} 1"] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let message = mail::Message { to: Secret::new(&user.email), subject: "A subject".to_owned(), text: Secret::new("A text") };
    let error = server.mailer(&node).sender.send(1, &message).await.unwrap_err().to_string();
    assert_eq!(error, "the SMTP server refuses the recipient for good (status 550)");
}

#[tokio::test]
async fn a_mail_to_an_address_that_no_mail_can_have_is_given_up() {
    let node = Node::start().await;
    let client = node.account("Acme").await;
    let email = "jo<b>@example.com";
    let user = json!({"email": email, "password": PASSWORD, "role": "viewer"});
    node.operator("POST", &format!("/accounts/{}/users", client.account_id), user).await.data(201);
    let server = SmtpServer::start().await;
    request_reset(&node, email).await.data(200);
    assert_eq!(execute(&node, "UPDATE vault.mails SET due_at = now()").await, 1);
    assert_eq!(server.deliver(&node).await, []);
    assert_eq!(execute(&node, "UPDATE vault.mails SET due_at = now()").await, 0);
}

#[tokio::test]
async fn the_error_of_a_refused_mail_does_not_name_its_recipient() {
    let (node, user) = with_user("viewer").await;
    let server = SmtpServer::start().await;
    server.refuse(1);
    let message = mail::Message { to: Secret::new(&user.email), subject: "A subject".to_owned(), text: Secret::new("A text") };
    let error = server.mailer(&node).sender.send(1, &message).await.unwrap_err().to_string();
    assert_eq!(error, "the SMTP server refused the message or did not answer (status 451)");
}

#[tokio::test]
async fn a_sandbox_keeps_sent_mails_and_writes_them_to_files() {
    let node = Node::sandbox().await;
    let client = node.account("Acme").await;
    let user = node.user(client.account_id, "viewer").await;
    let directory = tempfile::tempdir().unwrap();
    let server = SmtpServer::start().await;
    let sender =
        Sender { transport: Transport::Files(directory.path().join("outbox")), from: "rewards@example.com".parse().unwrap() };
    let mailer = Mailer { sender: sender.into(), keeps_sent: true, ..server.mailer(&node) };
    request_reset(&node, &user.email).await.data(200);
    assert_eq!(mailer.send_due(&Heartbeat::default()).await.unwrap(), 1);
    assert_eq!(mailer.send_due(&Heartbeat::default()).await.unwrap(), 0);
    let sent = mail::sent(node.ledger.pool(), &keyring(), &mailer.site, AccountId(user.account_id), 10).await.unwrap();
    assert_eq!((sent.len(), sent[0].message.to.expose()), (1, user.email.as_str()));
    assert!(sent[0].message.text.expose().contains("/portal/reset-password?token="));
    assert_eq!(std::fs::read_dir(directory.path().join("outbox")).unwrap().count(), 1);
}

#[tokio::test]
async fn users_see_and_end_their_own_sessions() {
    let (node, user) = with_user("viewer").await;
    let stranger = node.user(user.account_id, "owner").await;
    let login = node
        .request("POST", "/auth/login")
        .header("User-Agent", "a browser")
        .json(&json!({"email": user.email, "password": PASSWORD}));
    let token = node.send(login).await.data(200)["access_token"].as_str().unwrap().to_owned();
    let list =
        async |token: &str| node.bearer(token, "GET", "/client/api/sessions", Value::Null).await.data(200)["sessions"].clone();
    let sessions = list(&token).await;
    let newest = &sessions[0];
    assert_eq!(sessions.as_array().unwrap().len(), 2);
    assert_eq!(
        (&newest["is_current"], &newest["user_agent"], &newest["network"]),
        (&json!(true), &json!("a browser"), &json!("127.0.0.1"))
    );
    assert_eq!(newest["started_at"], newest["last_used_at"]);
    assert_eq!((&sessions[1]["is_current"], &sessions[1]["user_agent"]), (&json!(false), &Value::Null));
    assert_eq!(readable_in(&node, "a browser").await, Vec::<String>::new());

    let path = format!("/client/api/sessions/{}", sessions[1]["id"]);
    node.bearer(&stranger.access_token, "DELETE", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    node.bearer(&token, "DELETE", &path, Value::Null).await.data(200);
    node.bearer(&token, "DELETE", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    ask(&node, &user, "GET", "/api/v1/orders", Value::Null).await.refused(401, "E_INVALID_TOKEN");
    assert_eq!(list(&token).await.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_new_password_keeps_the_session_that_sets_it() {
    let (node, user) = with_user("operator").await;
    let other = node.again(&user).await;
    let change = async |current: &str, new: &str| {
        ask(&node, &user, "PUT", "/client/api/password", json!({"current_password": current, "new_password": new})).await
    };
    for (current, new, field) in [
        ("wrong", NEW_PASSWORD, "current_password"),
        (PASSWORD, "password1", "new_password"),
        (PASSWORD, "short", "new_password"),
    ] {
        let error = change(current, new).await.refused(400, "E_VALIDATION_FAILURE");
        assert!(error["messages"][field].is_array(), "{error}");
    }
    change(PASSWORD, NEW_PASSWORD).await.data(200);
    ask(&node, &user, "GET", "/api/v1/orders", Value::Null).await.data(200);
    ask(&node, &other, "GET", "/api/v1/orders", Value::Null).await.refused(401, "E_INVALID_TOKEN");
    log_in(&node, &user.email, PASSWORD).await.refused(401, "E_INVALID_CREDENTIALS");
    log_in(&node, &user.email, NEW_PASSWORD).await.data(200);

    // An operator replaces the password after the user has shown it, and before the user's change is decided.
    let (last, of_operator) = ("a third battery staple", "an operator's own choice");
    let mut holder = node.admin().await;
    sqlx::raw_sql("BEGIN; SELECT position FROM log_head FOR UPDATE").execute(&mut holder).await.unwrap();
    let late = async {
        until_locked_out(&node.options, "rewards-ledger writer").await;
        let release = async {
            until("the change waits, too", async || node.metrics.queue_depths() == [(FIRST_SHARD, 1)]).await;
            sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
        };
        tokio::join!(change(NEW_PASSWORD, last), release).0
    };
    let path = format!("/users/{}", user.id);
    let (replaced, late) = tokio::join!(node.operator("PUT", &path, json!({"password": of_operator})), late);
    replaced.data(200);
    late.refused(409, "E_CONFLICT");
    ask(&node, &user, "GET", "/api/v1/orders", Value::Null).await.refused(401, "E_INVALID_TOKEN");
    log_in(&node, &user.email, last).await.refused(401, "E_INVALID_CREDENTIALS");
    log_in(&node, &user.email, of_operator).await.data(200);
}

#[tokio::test]
async fn an_erased_user_leaves_no_session_details_mails_or_invitations() {
    let (node, user) = with_user("owner").await;
    let server = SmtpServer::start().await;
    request_reset(&node, &user.email).await.data(200);
    ask(&node, &user, "POST", "/client/api/two-factor", Value::Null).await.data(201);
    ask(&node, &user, "POST", INVITATIONS, json!({"email": "grace@example.com", "role": "viewer"})).await.data(201);
    let reason = Secret::new("they asked for it");
    eraser::erase(&node.ledger, Subject::User(UserId(user.id)), &reason, &origin(), |_| {}).await.unwrap();
    for table in ["two_factor", "recovery_codes", "password_resets", "invitations", "session_details", "mails"] {
        let count = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM vault.{table}"));
        let rows: i64 = sqlx::query_scalar(count).fetch_one(node.ledger.pool()).await.unwrap();
        assert_eq!(rows, 0, "{table}");
    }
    assert_eq!(server.deliver(&node).await, []);
}
