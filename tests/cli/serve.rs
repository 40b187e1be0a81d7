//! `serve`, `migrate`, `events`, `admin` and `call` against a test database.

use nix::sys::signal::Signal;
use serde_json::json;

use super::{directory, err, out, program, run};
use crate::support::postgres;
use crate::support::program::{OPERATOR_TOKEN, Program};
use crate::support::wait::{until, until_locked_out, until_true};

#[tokio::test]
async fn a_database_is_migrated_once() {
    let directory = directory();
    let server = postgres::own_server(false).await;
    let migrate = || {
        let mut command = program(directory.path());
        command.args(["migrate", "--json"]).env("DATABASE_URL", server.url());
        command
    };
    let first = run(&mut migrate()).await;
    assert!(first.status.success(), "{}", err(&first));
    assert!(out(&first).starts_with("{\"applied\":[1"), "{}", out(&first));
    let second = run(&mut migrate()).await;
    assert_eq!(out(&second), "{\"applied\":[]}\n");
    server.stop().await.unwrap();
}

/// A listener that accepts connections and never answers stands for a database behind a silent network.
#[tokio::test]
async fn a_silent_database_ends_the_start_with_an_error() {
    let database = postgres::database().await;
    let node = Program::start(&database.url, &["--roles", "api"]).await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://ledger@{}/ledger", silent.local_addr().unwrap());
    let ended = run(node.command().args(["serve", "--listen", "127.0.0.1:0"]).env("DATABASE_URL", url)).await;
    let said = err(&ended);
    assert!(!ended.status.success() && said.contains("the database did not answer within 15s"), "{said}");
}

#[tokio::test]
async fn mails_must_not_link_to_a_portal_that_is_not_there() {
    let (directory, database) = (directory(), postgres::database().await);
    let mails = ["--pages", "off", "--smtp-url", "smtp://127.0.0.1:1", "--mail-from", "rewards@example.com"];
    let refused = run(program(directory.path()).args(["serve", "--listen", "127.0.0.1:0"]).args(mails)).await;
    let expected = "error: --smtp-url (LEDGER_SMTP_URL) with --pages off needs --portal-url (LEDGER_PORTAL_URL), because mails link to \
                    the portal, which this node does not serve\n";
    assert_eq!((refused.status.code(), err(&refused).as_str()), (Some(2), expected));
    for more in [&["--portal-url", "https://pay.example"][..], &["--roles", "api"]] {
        drop(Program::start(&database.url, &[&mails[..], more].concat()).await);
    }
}

#[tokio::test]
async fn failing_webhooks_are_looked_for_only_with_the_setting() {
    let database = postgres::database().await;
    for (arguments, looks) in [(&[][..], false), (&["--deactivate-webhooks-after", "5d"][..], true)] {
        let node = Program::start(&database.url, arguments).await;
        let mut ready = String::new();
        // The loop of replays starts last.
        until("the loops run", async || {
            ready = reqwest::get(format!("{}/readyz", node.url())).await.unwrap().text().await.unwrap();
            ready.contains("replays") && ready.contains("failing webhooks") >= looks
        })
        .await;
        assert_eq!(ready.contains("failing webhooks"), looks, "{ready}");
    }
}

#[tokio::test]
async fn an_operators_work_in_the_shell_is_in_the_log() {
    let (directory, database) = (directory(), postgres::database().await);
    let mut served = Program::start(&database.url, &[]).await;
    let admin = |arguments: &[&str]| {
        let mut command = program(directory.path());
        command.args(["admin", "--json", "--url", &served.url()]).args(arguments).env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN);
        command
    };
    let account = run(&mut admin(&["account", "create", "Acme"])).await;
    assert!(account.status.success(), "{}", err(&account));
    let account: serde_json::Value = serde_json::from_str(&out(&account)).unwrap();
    assert_eq!((&account["name"], &account["status"]), (&"Acme".into(), &"ACTIVE".into()));
    let account = account["id"].to_string();

    let credential = run(&mut admin(&["credential", "issue", &account, "shop"])).await;
    let credential: serde_json::Value = serde_json::from_str(&out(&credential)).unwrap();
    let call = |path: &str, secret: &serde_json::Value| {
        let mut command = program(directory.path());
        command.args(["call", "get", path, "--url", &served.url(), "--signing-secret", "anything"]);
        command.env("LEDGER_API_KEY", credential["api_key"].as_str().unwrap());
        command.env("LEDGER_API_SECRET", secret.as_str().unwrap());
        command
    };
    let orders = run(&mut call("/api/v1/orders", &credential["api_secret"])).await;
    assert!(orders.status.success() && out(&orders).starts_with("{\"success\":true"), "{}{}", out(&orders), err(&orders));
    let refused = run(&mut call("/api/v1/orders", &credential["api_key"])).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(out(&refused).contains("E_UNAUTHORIZED"), "{}", out(&refused));

    let password = directory.path().join("password");
    std::fs::write(&password, "correct horse battery staple\n").unwrap();
    let create =
        ["user", "create", &account, "ada@example.com", "--role", "owner", "--password-file", password.to_str().unwrap()];
    let user: serde_json::Value = serde_json::from_str(&out(&run(&mut admin(&create)).await)).unwrap();
    assert_eq!((&user["email"], &user["role"]), (&"ada@example.com".into(), &"owner".into()));
    let login = serde_json::json!({"email": "ada@example.com", "password": "correct horse battery staple"});
    let login = reqwest::Client::new().post(format!("{}/auth/login", served.url())).json(&login).send().await.unwrap();
    assert_eq!(login.status(), 200);
    let users = out(&run(&mut admin(&["user", "list", &account])).await);
    assert!(users.contains("ada@example.com") && !users.contains("horse"), "{users}");
    let id = user["id"].to_string();
    let changed = out(&run(&mut admin(&["user", "change", &id, "--role", "viewer"])).await);
    assert!(changed.contains("\"viewer\""), "{changed}");
    assert!(!run(&mut admin(&["user", "change", &id])).await.status.success(), "nothing to change");
    assert!(run(&mut admin(&["user", "end-sessions", &id])).await.status.success());
    assert!(run(&mut admin(&["user", "remove", &user["id"].to_string()])).await.status.success());

    let unknown = run(&mut admin(&["order", "show", "4711"])).await;
    assert_eq!(unknown.status.code(), Some(1));
    assert!(err(&unknown).starts_with("error: the service answered 404 E_NOT_FOUND"), "{}", err(&unknown));

    let events = |arguments: &[&str]| {
        let mut command = program(directory.path());
        command.arg("events").args(arguments).args(["--database-url", &database.url]);
        command
    };
    let tail = out(&run(&mut events(&["tail"])).await);
    assert!(tail.contains("AccountCreated") && tail.contains("CredentialIssued"), "{tail}");
    let second = out(&run(&mut events(&["tail", "--after", "1", "--limit", "1", "--json"])).await);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&second).unwrap()["position"], 2);
    let csv = run(&mut events(&["tail", "--after", "0", "--limit", "2", "--output", "csv"])).await;
    let mut rows = csv::Reader::from_reader(&*csv.stdout);
    assert_eq!(rows.headers().unwrap(), vec!["position", "recorded_at", "stream", "type", "summary"], "{}", err(&csv));
    let rows: Vec<csv::StringRecord> = rows.records().map(Result::unwrap).collect();
    assert_eq!((rows.len(), &rows[0][0], &rows[0][3], &rows[1][0]), (2, "1", "AccountCreated", "2"), "{rows:?}");
    assert!(rows[0][1].ends_with('Z') && rows[0][2].starts_with("account/") && rows[0][4].starts_with("Acme"), "{rows:?}");
    let none = run(&mut events(&["tail", "--after", "99", "--output", "csv"])).await;
    assert_eq!((none.status.code(), &*out(&none)), (Some(0), "position,recorded_at,stream,type,summary\n"), "{}", err(&none));
    let shown = out(&run(&mut events(&["show", "1"])).await);
    assert!(shown.contains("\"name\": \"Acme\""), "{shown}");
    let absent = run(&mut events(&["show", "99"])).await;
    assert_eq!(err(&absent), "error: the log of shard 1 has no event at position 99\n");

    served.signal(Signal::SIGTERM);
    assert!(served.ended().await.success());
}

#[tokio::test]
async fn requests_accepted_before_sigterm_are_answered() {
    let database = postgres::database().await;
    let mut served = Program::start(&database.url, &[]).await;
    // Holding the head keeps requests in flight while the signal arrives.
    let options: ledger_database::PgConnectOptions = database.url.parse().unwrap();
    let mut connection = options.connect().await.unwrap();
    let mut lock = sqlx::Connection::begin(&mut connection).await.unwrap();
    sqlx::query("SELECT position FROM log_head FOR UPDATE").execute(&mut *lock).await.unwrap();

    let served_url = served.url();
    let create = |number: usize| {
        let request = reqwest::Client::new().post(format!("{served_url}/admin/v1/accounts")).bearer_auth(OPERATOR_TOKEN);
        let body = format!(r#"{{"name": "Account {number}"}}"#);
        tokio::spawn(request.header("Content-Type", "application/json").body(body).send())
    };
    let mut creating = vec![create(0)];
    until_locked_out(&options, "rewards-ledger writer").await;
    creating.extend((1..8).map(create));
    // The writer has taken the first request. The others are in its queue.
    let (metrics, seven) = (format!("{served_url}/metrics"), "\nledger_writer_queue_depth{shard=\"1\"} 7\n");
    until("all are accepted", async || reqwest::get(&metrics).await.unwrap().text().await.unwrap().contains(seven)).await;
    // A connection that was opened before the signal and kept alive.
    let kept = reqwest::Client::new();
    let alive = format!("{served_url}/healthz");
    assert_eq!(kept.get(&alive).send().await.unwrap().status(), 200);
    served.signal(Signal::SIGTERM);
    // Once the signal arrives, no new requests are accepted. Those accepted before still get their answers.
    until("no new requests are let in", async || reqwest::get(&alive).await.is_err()).await;
    let create_late = create(8).await.unwrap();
    assert!(create_late.is_err_and(|error| error.is_connect()), "a request that comes later is refused");
    assert!(kept.get(&alive).send().await.is_err(), "refused on a connection opened earlier as well");
    assert!(!served.has_ended() && !creating.iter().any(tokio::task::JoinHandle::is_finished), "it ends no accepted request");
    lock.rollback().await.unwrap();

    for created in creating {
        let created = created.await.unwrap().unwrap();
        assert_eq!(created.status(), 201);
    }
    assert!(served.ended().await.success());
    let refused = reqwest::get(format!("{}/healthz", served.url())).await;
    assert!(refused.is_err(), "the node no longer listens");
    let accounts: i64 = sqlx::query_scalar("SELECT count(*) FROM accounts").fetch_one(&mut connection).await.unwrap();
    assert_eq!(accounts, 8);
}

#[tokio::test]
async fn a_node_that_stops_is_not_ready_but_answers_for_the_configured_time() {
    let database = postgres::database().await;
    let mut served = Program::start(&database.url, &["--shutdown-delay", "1h"]).await;
    let get = async |path: &str| reqwest::get(format!("{}{path}", served.url())).await.unwrap();
    assert_eq!(get("/readyz").await.status(), 200);
    assert_eq!(get("/healthz").await.headers().get("Connection"), None);
    served.signal(Signal::SIGTERM);
    until("the node is not ready", async || get("/readyz").await.status() == 503).await;
    assert!(get("/readyz").await.text().await.unwrap().contains("This node is stopping."));
    let answer = get("/healthz").await;
    assert_eq!((answer.status().as_u16(), answer.headers()["Connection"].to_str().unwrap()), (200, "close"));
    let client = served.client("10.00").await;
    assert!(client.account_id > 0, "it takes commands");
    // A second signal ends it at once.
    served.signal(Signal::SIGTERM);
    assert_eq!(served.ended().await.code(), Some(128 + 15));
}

/// At the signal, one order is being written to the database and the others are decided.
#[tokio::test]
async fn orders_that_were_accepted_before_sigterm_are_answered() {
    let database = postgres::database().await;
    let mut served = Program::start(&database.url, &["--roles", "api"]).await;
    let client = served.client("1000.00").await;
    let body = json!({"product_id": served.product(0).await, "denomination": 10, "quantity": 1});
    assert_eq!(served.call(&client, "POST", "/orders", None, &body).await.unwrap().0, 201);
    let options: ledger_database::PgConnectOptions = database.url.parse().unwrap();
    let mut connection = options.connect().await.unwrap();
    let mut lock = sqlx::Connection::begin(&mut connection).await.unwrap();
    sqlx::query("SELECT position FROM log_head FOR UPDATE").execute(&mut *lock).await.unwrap();

    let place = || {
        let request = reqwest::Client::new().post(format!("{}/api/v1/orders", served.url()));
        let request = request.header("X-API-Key", &client.key).header("X-API-Secret", &client.secret);
        tokio::spawn(request.header("Content-Type", "application/json").body(body.to_string()).send())
    };
    let mut placing = vec![place()];
    until_locked_out(&options, "rewards-ledger writer").await;
    placing.extend((1..8).map(|_| place()));
    let pool = sqlx::PgPool::connect_lazy_with(options.hosts()[0].clone());
    // Nine, including the first order, which is already answered.
    let charged = "SELECT used = 9 FROM rate_windows WHERE key LIKE 'orders credential%'";
    until_true("all have passed the gate", &pool, charged).await;
    served.signal(Signal::SIGTERM);
    let alive = format!("{}/healthz", served.url());
    until("no new requests are let in", async || reqwest::get(&alive).await.is_err()).await;
    assert!(!served.has_ended() && !placing.iter().any(tokio::task::JoinHandle::is_finished), "it ends no accepted request");
    lock.rollback().await.unwrap();
    for placed in placing {
        assert_eq!(placed.await.unwrap().unwrap().status(), 201);
    }
    assert!(served.ended().await.success());
    let orders: i64 = sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(&mut connection).await.unwrap();
    assert_eq!(orders, 9);
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let (directory, database) = (directory(), postgres::database().await);
    let mut served = Program::start(&database.url, &[]).await;
    let options: ledger_database::PgConnectOptions = database.url.parse().unwrap();
    let mut connection = options.connect().await.unwrap();
    let mut lock = sqlx::Connection::begin(&mut connection).await.unwrap();
    sqlx::query("SELECT position FROM log_head FOR UPDATE").execute(&mut *lock).await.unwrap();
    let mut command = program(directory.path());
    command.args(["admin", "--url", &served.url(), "account", "create", "Acme"]).env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN);
    let creating = tokio::spawn(async move { run(&mut command).await });
    until_locked_out(&options, "rewards-ledger writer").await;
    served.signal(Signal::SIGTERM);
    // Two pending signals of one kind are merged, so wait until the first one is handled.
    until("the node is stopping", async || served.log().contains("\"stopping\"")).await;
    assert!(!served.has_ended(), "a request still waits for its answer");
    served.signal(Signal::SIGTERM);
    let status = served.ended().await;
    assert_eq!(status.code(), Some(128 + 15));
    assert!(!creating.await.unwrap().status.success());
}
