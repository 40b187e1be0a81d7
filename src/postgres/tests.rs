//! Against real server programs. As root the whole lot also runs as an ordinary user.

#![allow(clippy::unwrap_used)]

mod helpers;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::processes::send;
use super::{Error, Server, Settings, running_url, start_throwaway};
use helpers::{DOWNLOADING, Directory, OWNED, Owner, ask, execute, helper, lives, test_name, until};

/// Not a test by itself: what the helper process does.
#[tokio::test]
async fn owner_process() {
    if let Some(directory) = std::env::var_os(DOWNLOADING) {
        let begun = Instant::now();
        let refused = super::download::download(Path::new(&directory), None).await;
        println!("download took {:?}: {refused:?}", begun.elapsed());
        return;
    }
    let Some(directory) = std::env::var_os(OWNED) else {
        return;
    };
    let server = if directory.is_empty() {
        start_throwaway(None).await.unwrap()
    } else {
        Server::start(Settings::new(directory)).await.unwrap()
    };
    println!("\npostmaster is {}", server.pid());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn data_survives_stop_and_start() {
    let directory = Directory::new();
    let data_dir = directory.0.clone();
    assert_eq!(running_url(&data_dir).unwrap(), None);

    let server = Server::start(directory.settings()).await.unwrap();
    let url = server.url();
    execute(&url, "CREATE TABLE kept AS SELECT 'here' AS word").await.unwrap();
    assert_eq!(running_url(&data_dir).unwrap(), Some(url.clone()));
    for (name, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("TimeZone", "UTC"),
        ("server_encoding", "UTF8"),
        ("listen_addresses", "127.0.0.1"),
        ("unix_socket_directories", ""),
    ] {
        assert_eq!(ask(&url, &format!("SHOW {name}")).await, value, "{name}");
    }
    let wrong = url.replacen(":", ":x", 2).replacen(":x", ":", 1);
    assert!(execute(&wrong, "SELECT 1").await.is_err(), "a wrong password is refused");
    let password_file = data_dir.join("postgres.password");
    let mode = password_file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let password = std::fs::read_to_string(&password_file).unwrap();
    assert!(!format!("{server:?}").contains(password.trim()));
    let postmaster = server.pid();
    let arguments = std::fs::read_to_string(format!("/proc/{postmaster}/cmdline")).unwrap();
    assert!(!arguments.contains(password.trim()));
    // Ctrl-C in a terminal signals the program's group only.
    let state = std::fs::read_to_string(format!("/proc/{postmaster}/stat")).unwrap();
    let group = state.split(' ').nth(4).unwrap();
    assert_eq!(group, postmaster.to_string());

    server.stop().await.unwrap();
    assert!(!lives(postmaster));
    assert_eq!(running_url(&data_dir).unwrap(), None);

    let server = Server::start(directory.settings()).await.unwrap();
    assert_eq!(server.url(), url, "port and password stay");
    assert_eq!(ask(&url, "SELECT word FROM kept").await, "here");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_killed_postmaster_is_started_anew() {
    let directory = Directory::new();
    let server = Server::start(directory.settings()).await.unwrap();
    let url = server.url();
    execute(&url, "CREATE TABLE kept AS SELECT 'here' AS word").await.unwrap();
    // A busy backend does not notice by itself that its postmaster is gone.
    let busy = tokio::spawn({
        let url = url.clone();
        async move { execute(&url, "SELECT count(*) FROM generate_series(1, 1e12)").await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let killed = server.pid();
    send(killed, Signal::SIGKILL);
    until("another postmaster", || ![0, killed].contains(&server.pid())).await;
    assert!(busy.await.unwrap().is_err());
    assert_eq!(ask(&url, "SELECT word FROM kept").await, "here");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_killed_owner_leaves_no_server() {
    let directory = Directory::new();
    let mut owner = Owner::start(directory.0.to_str().unwrap());
    let url = running_url(&directory.0).unwrap().unwrap();
    execute(&url, "CREATE TABLE kept AS SELECT 'here' AS word").await.unwrap();
    let refused = Server::start(directory.settings()).await.unwrap_err();
    let expected = format!("is in use by process {}", owner.process.id());
    assert!(refused.to_string().ends_with(&expected), "{refused}");

    owner.kill();
    until("the end of the server", || !lives(owner.postmaster)).await;
    assert_eq!(running_url(&directory.0).unwrap(), None);
    let server = Server::start(directory.settings()).await.unwrap();
    assert_eq!(ask(&server.url(), "SELECT word FROM kept").await, "here");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_without_owner_and_watchdog_is_taken_over() {
    let directory = Directory::new();
    let mut owner = Owner::start(directory.0.to_str().unwrap());
    let url = running_url(&directory.0).unwrap().unwrap();
    execute(&url, "CREATE TABLE kept AS SELECT 'here' AS word").await.unwrap();
    // Stopped first, so that it does not start another watchdog.
    send(owner.process.id(), Signal::SIGSTOP);
    send(owner.watchdog(), Signal::SIGKILL);
    owner.kill();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(lives(owner.postmaster), "nothing is left that would end it");

    let server = Server::start(directory.settings()).await.unwrap();
    assert!(!lives(owner.postmaster));
    assert_eq!(ask(&server.url(), "SELECT word FROM kept").await, "here");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_second_owner_in_the_same_process_is_refused() {
    let directory = Directory::new();
    let server = Server::start(directory.settings()).await.unwrap();
    let refused = Server::start(directory.settings()).await.unwrap_err();
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    assert_eq!(ask(&server.url(), "SELECT 'works'").await, "works");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_stale_pid_file_of_a_reused_pid_is_no_obstacle() {
    let directory = Directory::new();
    Server::start(directory.settings()).await.unwrap().stop().await.unwrap();
    let stale = directory.0.join("postgres/postmaster.pid");
    let text = format!("{}\n/data\n1\n5432\n\n127.0.0.1\n\nready\n", std::process::id());
    std::fs::write(stale, text).unwrap();
    Server::start(directory.settings()).await.unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn a_throwaway_server_leaves_nothing() {
    let settings = Settings::temporary(false).unwrap();
    let directory = settings.data_dir.clone();
    let server = Server::start(settings).await.unwrap();
    assert_eq!(ask(&server.url(), "SHOW fsync").await, "off");
    assert_eq!(ask(&server.url(), "SHOW full_page_writes").await, "off");
    server.stop().await.unwrap();
    assert!(!directory.exists());

    let settings = Settings::temporary(false).unwrap();
    let directory = settings.data_dir.clone();
    let server = Server::start(settings).await.unwrap();
    let postmaster = server.pid();
    drop(server);
    until("the end of a dropped server", || !lives(postmaster) && !directory.exists()).await;

    let mut owner = Owner::start("");
    let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", owner.postmaster)).unwrap();
    let pgdata = PathBuf::from(arguments.split('\0').nth(2).unwrap());
    assert!(pgdata.exists());
    owner.kill();
    until("the end of a killed owner's server", || !lives(owner.postmaster) && !pgdata.parent().unwrap().exists()).await;
}

#[tokio::test]
async fn programs_that_are_not_there_are_an_error() {
    let settings = Settings::temporary(false).unwrap();
    let directory = settings.data_dir.clone();
    let refused = Server::start(Settings { programs: Some("/usr/share".into()), ..settings }).await.unwrap_err();
    let expected = "cannot be used: /usr/share has no postgres and initdb";
    assert!(refused.to_string().contains(expected), "{refused}");
    until("the removal of its directory", || !directory.exists()).await;
}

#[tokio::test]
async fn a_server_that_does_not_start_says_why() {
    let mut settings = Settings::temporary(false).unwrap();
    settings.extra = vec![("no_such_setting".into(), "1".into())];
    let directory = settings.data_dir.clone();
    let refused = Server::start(settings).await.unwrap_err().to_string();
    let expected = "unrecognized configuration parameter \"no_such_setting\"";
    assert!(refused.contains(expected), "{refused}");
    assert!(!refused.contains('\n'));
    until("the removal of its directory", || !directory.exists()).await;
}

#[test]
fn a_refusing_network_is_noticed_soon() {
    let directory = Directory::new();
    let begun = Instant::now();
    let output =
        helper().env(DOWNLOADING, directory.0.join("programs")).env("HTTPS_PROXY", "http://127.0.0.1:9").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains(": Err("), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{said}");
}

#[tokio::test]
async fn root_is_told_which_directory_is_closed_to_the_server() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let parent = Directory::new();
    let closed = parent.0.join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    let refused = Server::start(Settings::new(closed.join("data"))).await.unwrap_err();
    let text = refused.to_string();
    let closed = closed.display();
    assert!(text.starts_with(&format!("the directory {closed} cannot be entered")), "{text}");
    assert!(!text.contains('\n'));
    assert!(!parent.0.join("closed/data").exists());
}

#[test]
fn all_works_as_an_ordinary_user() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let directory = tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o777)).tempdir_in("/tmp").unwrap();
    // The build's directory may be closed to that user. Another program copies: what a test beside this one starts
    // meanwhile would have inherited our descriptor for writing, and no one may run what is written ("text file busy").
    let copy = directory.path().join("tests");
    assert!(Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&copy).status().unwrap().success());
    let output = Command::new(&copy)
        .arg(test_name(""))
        .env("TMPDIR", "/tmp")
        .env("HOME", directory.path())
        .current_dir("/")
        .uid(nobody.uid.as_raw())
        .gid(nobody.gid.as_raw())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("data_survives_stop_and_start ... ok"), "{said}");
}
