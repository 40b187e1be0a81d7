//! PgBouncer between the program and Postgres, in both modes.

use std::process::Stdio;
use std::time::Duration;

use embedded_postgres::Server;
use ledger_database::{Connector, PgConnectOptions, PgPool};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use webhook_client::receiver::ReceiverResponse;

use crate::support::postgres;
use crate::support::program::{Client, Program, program, run};
use crate::support::replicas::as_server_user;
use crate::support::shop::receiver;
use crate::support::wait::until;

/// A pooler in front of a server. It ends when it is dropped.
#[derive(Debug)]
struct Pooler {
    port: u16,
    _process: Child,
    _directory: tempfile::TempDir,
}

/// Returns whether PgBouncer is installed. Without it a test says so, unless `CI` is set.
fn is_installed() -> bool {
    let found = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].into_iter().any(|path| std::path::Path::new(path).exists());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "install pgbouncer");
        eprintln!("skipped the test of PgBouncer: install pgbouncer");
    }
    found
}

impl Pooler {
    /// Starts PgBouncer with Debian's settings, but for the mode and the number of connections to the server.
    async fn before(server: &Server, mode: &str, size: u32) -> Pooler {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let options: sqlx::postgres::PgConnectOptions = server.url().parse().unwrap();
        let socket = options.get_socket().unwrap().display().to_string();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let users = directory.path().join("users.txt");
        std::fs::write(&users, "\"ledger_service\" \"\"\n\"ledger_owner\" \"\"\n").unwrap();
        let settings = format!(
            "[databases]\n* = host={socket} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = {mode}\ndefault_pool_size = {size}\n\
             max_client_conn = 500\nserver_reset_query = DISCARD ALL\n",
            options.get_port(),
            users.display()
        );
        let file = directory.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new("/usr/sbin/pgbouncer");
        command.arg(&file).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let process = as_server_user(&mut command).spawn().unwrap();
        until("the pooler listens", async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()).await;
        Pooler { port, _process: process, _directory: directory }
    }

    fn url(&self) -> String {
        format!("postgres://ledger_service@127.0.0.1:{}/ledger?sslmode=disable", self.port)
    }
}

async fn migrated() -> Server {
    let server = postgres::own_server(false).await;
    rewards_ledger::ledger::migrate(&server.url().parse().unwrap()).await.unwrap();
    server
}

/// Uses each part of a node: orders with and without stock, lists, statements, sign-in, webhooks and operators' pages.
async fn use_it(node: &Program, client: &Client, is_over: impl AsyncFn(usize) -> bool) {
    let product = node.product(40).await;
    let body = json!({"product_id": product, "denomination": 10, "quantity": 1});
    let mut orders = vec![];
    for round in 0..4 {
        let keys: Vec<String> = (0..10).map(|n| format!("{round}-{n}")).collect();
        let placing = keys.iter().map(|key| node.call(client, "POST", "/orders", Some(key), &body));
        for placed in futures::future::join_all(placing).await {
            let (status, order) = placed.unwrap();
            assert_eq!(status, 201, "{order}");
            orders.push(order["id"].as_i64().unwrap());
        }
    }
    for path in ["/orders", "/orders?status=DELIVERED", "/products", "/wallets", "/webhooks"] {
        let reading = (0..20).map(|_| node.call(client, "GET", path, None, &Value::Null));
        for read in futures::future::join_all(reading).await {
            let (status, answer) = read.unwrap();
            assert_eq!(status, 200, "{path}: {answer}");
        }
    }
    let last = format!("/orders/{}", orders.last().unwrap());
    until("the last order is delivered", async || {
        let (status, order) = node.call(client, "GET", &last, None, &Value::Null).await.unwrap();
        assert_eq!(status, 200, "{order}");
        order["status"] == "DELIVERED"
    })
    .await;
    until("every webhook is called", async || is_over(orders.len()).await).await;
}

async fn serves(server: &Server, url: &str, direct: Option<&str>) {
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    let reach = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];
    let direct: Vec<&str> = direct.into_iter().flat_map(|direct| ["--direct-url", direct]).collect();
    let node = Program::start(url, &[&reach[..], &direct].concat()).await;
    let client = node.client("1000.00").await;
    let webhook = json!({"name": "a", "url": receiver.url(), "events": ["order.delivered"]});
    assert_eq!(node.call(&client, "POST", "/webhooks", None, &webhook).await.unwrap().0, 201);
    let calls = std::cell::Cell::new(0);
    let arrivals = std::cell::RefCell::new(&mut arrived);
    use_it(&node, &client, async |orders| {
        while arrivals.borrow_mut().try_recv().is_ok() {
            calls.set(calls.get() + 1);
        }
        calls.get() >= orders
    })
    .await;
    for arguments in [&["verify"][..], &["reconcile"], &["show", "order", "1"]] {
        let mut command = node.command();
        if let Some(direct) = direct.get(1) {
            command.env("DIRECT_DATABASE_URL", direct);
        }
        let done = run(command.args(arguments)).await;
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let log = node.log();
    let complaints: Vec<&str> = log.lines().filter(|line| line.contains("WARN") || line.contains("ERROR")).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
    let mut admin = server.url().parse::<PgConnectOptions>().unwrap().connect().await.unwrap();
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
    until("no transaction stays open", async || sqlx::query_scalar::<_, i64>(open).fetch_one(&mut admin).await.unwrap() == 0)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_works_through_a_pooler_in_transaction_mode_with_a_direct_url() {
    if !is_installed() {
        return;
    }
    let server = migrated().await;
    // Fewer sessions than the node has connections, so that each of them serves many.
    let pooler = Pooler::before(&server, "transaction", 4).await;
    serves(&server, &pooler.url(), Some(&server.service_url())).await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_works_through_a_pooler_in_session_mode() {
    if !is_installed() {
        return;
    }
    let server = migrated().await;
    let pooler = Pooler::before(&server, "session", 60).await;
    serves(&server, &pooler.url(), None).await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_hold_for_each_transaction_and_reach_no_other_session() {
    if !is_installed() {
        return;
    }
    let server = migrated().await;
    let pooler = Pooler::before(&server, "transaction", 1).await;
    let direct: PgConnectOptions = server.service_url().parse().unwrap();
    let options = pooler.url().parse::<PgConnectOptions>().unwrap().pooled(direct);
    let ours = options.clone().options([("role", "ledger_runtime"), ("statement_timeout", "4321")]);
    let (ours, others) = (
        PgPool::new(Connector::new(ours, Duration::from_secs(5)), 4),
        PgPool::new(Connector::new(options, Duration::from_secs(5)), 4),
    );
    let look = "SELECT current_user::text || ' ' || current_setting('statement_timeout') || $1";
    for _ in 0..3 {
        for (pool, expected) in [(&ours, "ledger_runtime 4321ms!"), (&others, "ledger_service 0!")] {
            let found: String = sqlx::query_scalar(look).bind("!").fetch_one(pool).await.unwrap();
            assert_eq!(found, expected);
            // The statement's own settings replace those of the connection.
            let mut transaction = pool.begin_with("BEGIN READ ONLY; SET LOCAL statement_timeout = '99'").await.unwrap();
            let found: String = sqlx::query_scalar("SHOW statement_timeout").fetch_one(&mut *transaction).await.unwrap();
            assert_eq!(found, "99ms");
            transaction.commit().await.unwrap();
        }
    }
    // A refused statement and a call that is dropped half-way leave no transaction behind: the pooler has one session.
    sqlx::query("SELECT 1 / $1").bind(0).fetch_one(&ours).await.unwrap_err();
    let dropped =
        tokio::time::timeout(Duration::from_millis(100), sqlx::query("SELECT pg_sleep($1)").bind(1.0).execute(&ours)).await;
    assert!(dropped.is_err());
    let found: String = sqlx::query_scalar(look).bind("!").fetch_one(&others).await.unwrap();
    assert_eq!(found, "ledger_service 0!");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_direct_url_without_a_database_url_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = run(program(directory.path()).arg("serve").env("DIRECT_DATABASE_URL", "postgres://u:hidden@localhost/d")).await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("--direct-url (DIRECT_DATABASE_URL) needs --database-url"), "{said}");
    assert!(!said.contains("hidden"));
}
