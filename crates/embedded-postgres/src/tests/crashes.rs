//! Postmasters, owners and watchdogs that are killed.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::super::processes::send;
use super::super::{Server, running};
use super::helpers::{Directory, Owner, ask, execute, lives, until};

#[tokio::test]
async fn a_killed_postmaster_is_restarted() {
    let directory = Directory::new();
    let server = Server::start(directory.settings()).await.unwrap();
    let url = server.url();
    execute(&url, "CREATE TABLE kept AS SELECT 'here' AS word").await.unwrap();
    // A busy backend does not notice by itself that its postmaster has died.
    let busy = tokio::spawn({
        let url = url.clone();
        async move { execute(&url, "SELECT count(*) FROM generate_series(1, 1e12)").await }
    });
    let busy_backends = "SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE '%1e12%' AND pid <> pg_backend_pid()";
    until("the busy backend", async || ask(&url, busy_backends).await == "1").await;
    let killed = server.pid();
    send(killed, Signal::SIGKILL);
    until("the new postmaster", async || ![0, killed].contains(&server.pid())).await;
    assert!(busy.await.unwrap().is_err());
    assert_eq!(ask(&url, "SELECT word FROM kept").await, "here");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_killed_owner_leaves_no_server() {
    let directory = Directory::new();
    let mut owner = Owner::start(directory.0.to_str().unwrap());
    let url = running(&directory.0).unwrap().unwrap().url("shop_owner", "shop");
    execute(&url, "CREATE TABLE kept AS SELECT 'here' AS word").await.unwrap();
    let refused = Server::start(directory.settings()).await.unwrap_err();
    let expected = format!("is in use by process {}", owner.process.id());
    assert!(refused.to_string().ends_with(&expected), "{refused}");

    owner.kill();
    until("the end of the server", async || !lives(owner.postmaster)).await;
    assert_eq!(running(&directory.0).unwrap(), None);
    let server = Server::start(directory.settings()).await.unwrap();
    assert_eq!(ask(&server.url(), "SELECT word FROM kept").await, "here");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_without_owner_and_watchdog_is_taken_over() {
    let directory = Directory::new();
    let mut owner = Owner::start(directory.0.to_str().unwrap());
    let url = running(&directory.0).unwrap().unwrap().url("shop_owner", "shop");
    execute(&url, "CREATE TABLE kept AS SELECT 'here' AS word").await.unwrap();
    // Pause the owner first, so that it does not start another watchdog.
    send(owner.process.id(), Signal::SIGSTOP);
    send(owner.watchdog(), Signal::SIGKILL);
    owner.kill();
    // Nothing signals that a server goes on, so it gets time to end.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(lives(owner.postmaster), "the server survives: nothing is left that could end it");

    let server = Server::start(directory.settings()).await.unwrap();
    assert!(!lives(owner.postmaster));
    assert_eq!(ask(&server.url(), "SELECT word FROM kept").await, "here");
    server.stop().await.unwrap();
}
