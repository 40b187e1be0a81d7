//! A database on another machine: nothing is sent to it unless TLS verifies its identity.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpListener;

use super::{directory, err, program, run};
use crate::support::program::write_private;

#[tokio::test]
async fn nothing_is_sent_to_a_remote_database_without_verified_tls() {
    let directory = directory();
    let key = directory.path().join("master.key");
    write_private(&key, crate::support::ledger::MASTER_KEY);
    // This address is not a loopback address, and still leads to this machine.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let remote = format!("postgres://ledger_service:hidden@0.0.0.0:{}/ledger", listener.local_addr().unwrap().port());
    let heard = Arc::new(AtomicUsize::new(0));
    let count = heard.clone();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            drop(connection);
        }
    });
    let command = |arguments: &[&str], variable: &str, url: &str| {
        let mut command = program(directory.path());
        command.args(arguments).env(variable, url).env("LEDGER_MASTER_KEY_FILE", &key);
        command
    };
    for (arguments, status) in [
        (&["serve", "--roles", "api", "--listen", "127.0.0.1:0"][..], 2),
        (&["migrate"], 1),
        (&["verify"], 3),
        (&["rebuild", "accounts"], 3),
        (&["reconcile"], 3),
        (&["events", "tail"], 1),
        (&["show", "order", "1"], 1),
        (&["admin", "token", "list"], 1),
    ] {
        for mode in ["", "?sslmode=disable", "?sslmode=require", "?sslmode=verify-ca"] {
            let refused = run(&mut command(arguments, "DATABASE_URL", &format!("{remote}{mode}"))).await;
            let said = err(&refused);
            assert_eq!(refused.status.code(), Some(status), "{arguments:?}{mode}: {said}");
            let begin = "error: --database-url (DATABASE_URL) leads to 0.0.0.0 without sslmode=verify-full";
            assert!(said.starts_with(begin) && said.contains("--allow-plain-database"), "{arguments:?}{mode}: {said}");
            assert!(said.lines().count() == 1 && !said.contains("hidden"), "{said}");
        }
    }
    let mut migration = command(&["migrate"], "LEDGER_MIGRATION_URL", &remote);
    let refused = run(migration.env("DATABASE_URL", "postgres://nobody@127.0.0.1:1/none")).await;
    assert!(err(&refused).starts_with("error: --migration-url (LEDGER_MIGRATION_URL) leads to 0.0.0.0"), "{}", err(&refused));
    assert_eq!(heard.load(Ordering::SeqCst), 0, "nothing has connected");

    // The client connects if plain text is explicitly allowed, or if TLS is to verify the server, which fails here.
    let mut plain = command(&["migrate"], "DATABASE_URL", &remote);
    let failed = run(plain.env("LEDGER_ALLOW_PLAIN_DATABASE", "true")).await;
    assert_eq!((failed.status.code(), heard.load(Ordering::SeqCst)), (Some(1), 1), "{}", err(&failed));
    let failed = run(&mut command(&["migrate"], "DATABASE_URL", &format!("{remote}?sslmode=verify-full"))).await;
    assert_eq!((failed.status.code(), heard.load(Ordering::SeqCst)), (Some(1), 2), "{}", err(&failed));
    let mut by_variable = command(&["migrate"], "DATABASE_URL", &remote);
    let failed = run(by_variable.env("PGSSLMODE", "verify-full")).await;
    assert_eq!((failed.status.code(), heard.load(Ordering::SeqCst)), (Some(1), 3), "{}", err(&failed));
}
