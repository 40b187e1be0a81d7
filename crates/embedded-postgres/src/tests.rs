//! Tests against real server programs. If they run as root, one test runs all of them again as an ordinary user.

#![allow(clippy::unwrap_used)]

mod crashes;
mod helpers;

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use super::account::Account;
use super::processes::send;
use super::programs::Search;
use super::{Address, Error, Server, Settings, running};
use helpers::{DOWNLOADING, Directory, OWNED, Owner, ask, execute, helper, lives, names, test_name, until};

/// Not a test by itself: the body of the helper process.
#[tokio::test]
async fn owner_process() {
    if let Some(directory) = std::env::var_os(DOWNLOADING) {
        _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let pin = format!("17.11.0:{}", "0".repeat(64)).parse().unwrap();
        let refused = super::download::Source::public().unwrap().download(Path::new(&directory), None, Some(&pin), None).await;
        println!("the download: {refused:?}");
        return;
    }
    let Some(directory) = std::env::var_os(OWNED) else {
        return;
    };
    let server = if directory.is_empty() {
        Server::start(Settings::temporary(false, names()).unwrap()).await.unwrap()
    } else {
        Server::start(Settings::new(directory, names())).await.unwrap()
    };
    println!("\npostmaster is {}", server.pid());
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn data_survives_stop_and_start() {
    let directory = Directory::new();
    let data_dir = directory.0.clone();
    assert_eq!(running(&data_dir).unwrap(), None);

    let server = Server::start(directory.settings()).await.unwrap();
    let url = server.url();
    execute(&url, "CREATE TABLE kept AS SELECT 'here' AS word").await.unwrap();
    assert_eq!(running(&data_dir).unwrap().as_ref(), Some(server.address()));
    for (name, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("TimeZone", "UTC"),
        ("server_encoding", "UTF8"),
        ("listen_addresses", ""),
        ("unix_socket_permissions", "0700"),
    ] {
        assert_eq!(ask(&url, &format!("SHOW {name}")).await, value, "{name}");
    }
    let postmaster = server.pid();
    // Ctrl-C in a terminal signals only the program's own process group.
    let state = std::fs::read_to_string(format!("/proc/{postmaster}/stat")).unwrap();
    let group = state.split(' ').nth(4).unwrap();
    assert_eq!(group, postmaster.to_string());

    server.stop().await.unwrap();
    assert!(!lives(postmaster));
    assert_eq!(running(&data_dir).unwrap(), None);

    // A restored backup whose recovery is not complete, and a standby, are left as they are.
    for name in ["recovery.signal", "standby.signal"] {
        let signal = data_dir.join("postgres").join(name);
        std::fs::write(&signal, "").unwrap();
        let refused = Server::start(directory.settings()).await.unwrap_err();
        let file = Path::new("postgres").join(name);
        assert!(matches!(&refused, Error::InRecovery(named) if Path::new(named).ends_with(&file)), "{refused}");
        std::fs::remove_file(&signal).unwrap();
    }

    let server = Server::start(directory.settings()).await.unwrap();
    assert_eq!(server.url(), url, "the socket stays where it was");
    assert_eq!(ask(&url, "SELECT word FROM kept").await, "here");
    server.stop().await.unwrap();
}

/// Returns the inodes of the sockets that listen for TCP connections.
fn listening() -> HashSet<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    let columns = rows.map(|row| row.split_whitespace().collect::<Vec<_>>());
    columns.filter(|columns| columns[3] == "0A").map(|columns| columns[9].to_owned()).collect()
}

/// Returns the inodes of a process's sockets, or none if this process may not read them.
fn sockets(pid: u32) -> Option<HashSet<String>> {
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let names = open.filter_map(|descriptor| std::fs::read_link(descriptor.path()).ok());
    Some(names.filter_map(|name| Some(name.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect())
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn the_server_has_no_port_and_no_password_and_its_socket_is_closed_to_others() {
    let directory = Directory::new();
    let server = Server::start(directory.settings()).await.unwrap();
    if let Some(sockets) = sockets(server.pid()) {
        assert!(!sockets.is_empty(), "it has its own socket");
        assert!(sockets.is_disjoint(&listening()), "and none for TCP");
    }
    let url = server.url();
    assert!(url.starts_with("postgres://shop_owner@%2F"), "no password is in {url}");
    assert_eq!(ask(&url, "SELECT count(*)::text FROM pg_authid WHERE rolpassword IS NOT NULL").await, "0");
    let rules =
        "SELECT string_agg(concat_ws(' ', type, auth_method, options, error), ', ' ORDER BY line_number) FROM pg_hba_file_rules";
    assert_eq!(ask(&url, rules).await, "local peer {map=shop}, local peer {map=shop}");

    let socket = directory.0.join("socket");
    assert_eq!(server.address().directory(), socket.canonicalize().unwrap());
    assert_eq!(mode(&socket), 0o700);
    for file in ["postgres.lock", "postgres.log", "postgres.hba", "postgres.ident"] {
        assert_eq!(mode(&directory.0.join(file)), 0o600, "{file}");
    }
    assert!(!directory.0.join("postgres.password").exists());

    // Only the roles of the rules may log in.
    execute(&url, "CREATE ROLE stranger LOGIN SUPERUSER").await.unwrap();
    let stranger = url.replacen("shop_owner", "stranger", 1);
    let refused = execute(&stranger, "SELECT 1").await.unwrap_err().to_string();
    assert!(refused.contains("no pg_hba.conf entry"), "{refused}");
    if nix::unistd::geteuid().is_root() {
        std::fs::set_permissions(&directory.0, PermissionsExt::from_mode(0o711)).unwrap();
        // Another user can neither reach the server, nor take its place once it has ended.
        let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
        let neighbour = |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script, "sh"]).arg(&socket).uid(nobody.uid.as_raw()).gid(nobody.gid.as_raw()).current_dir("/");
            shell.status().unwrap().success()
        };
        assert!(neighbour("test -d \"$1\""));
        assert!(!neighbour("test -x \"$1\"") && !neighbour("test -S \"$1/.s.PGSQL.5432\""));
        server.stop().await.unwrap();
        assert!(!neighbour("echo > \"$1/.s.PGSQL.5432\"") && !neighbour("mv \"$1\" \"$1.mine\""));
        return;
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_service_login_can_become_only_the_runtime_role() {
    let directory = Directory::new();
    let server = Server::start(directory.settings()).await.unwrap();
    let service = server.service_url();
    let rights =
        "SELECT concat_ws(' ', session_user, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls, rolinherit)
        FROM pg_roles WHERE rolname = session_user";
    assert_eq!(ask(&service, rights).await, "shop_service f f f f f f");
    assert_eq!(ask(&service, "SELECT current_user::text FROM set_config('role', 'shop_runtime', false)").await, "shop_runtime");
    for way_up in [
        "SET ROLE shop_owner",
        "SET ROLE shop_runtime; RESET ROLE; SET ROLE shop_owner",
        "SET SESSION AUTHORIZATION shop_owner",
        "RESET SESSION AUTHORIZATION; CREATE ROLE another",
        "ALTER ROLE shop_service SUPERUSER",
        "GRANT shop_owner TO shop_service",
        "CREATE DATABASE another",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "SELECT pg_read_file('postgresql.conf')",
        "ALTER SYSTEM SET hba_file = '/dev/null'",
    ] {
        let refused = execute(&service, way_up).await.unwrap_err().into_database_error().unwrap();
        assert_eq!(refused.code().as_deref(), Some("42501"), "{way_up}: {refused}");
    }
    // The next start resets the privileges of a login that was elevated.
    execute(&server.url(), "ALTER ROLE shop_service SUPERUSER INHERIT PASSWORD 'guessed'").await.unwrap();
    server.stop().await.unwrap();
    let server = Server::start(directory.settings()).await.unwrap();
    assert_eq!(ask(&service, rights).await, "shop_service f f f f f f");
    server.stop().await.unwrap();
}

/// A server as the previous release ran it: on a port of 127.0.0.1, with a password.
struct OnPort {
    postmaster: std::process::Child,
    url: String,
    port: u16,
}

impl OnPort {
    /// Creates the data directory as that release did, and starts the server.
    async fn start(data_dir: &Path) -> OnPort {
        const PASSWORD: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let pgdata = data_dir.join("postgres");
        let account = Account::choose(None, &pgdata).unwrap();
        let downloads = data_dir.join("programs");
        let programs = Search { explicit: None, downloads: &downloads, major: None, account: &account }.run().unwrap().unwrap();
        let password_file = data_dir.join("postgres.password");
        std::fs::write(&password_file, format!("{PASSWORD}\n")).unwrap();
        std::fs::set_permissions(&password_file, PermissionsExt::from_mode(0o600)).unwrap();
        account.give(&password_file).unwrap();
        std::fs::create_dir(&pgdata).unwrap();
        std::fs::set_permissions(&pgdata, PermissionsExt::from_mode(0o700)).unwrap();
        account.give(&pgdata).unwrap();
        let mut initdb = account.command(&programs.initdb());
        initdb.arg("--pgdata").arg(&pgdata).arg("--pwfile").arg(&password_file);
        initdb.args(["--username", "shop_owner", "--auth", "scram-sha-256", "--locale", "C", "--encoding", "UTF8", "--no-sync"]);
        let made = initdb.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let lock = data_dir.join("postgres.lock");
        std::fs::write(&lock, format!("{} {port}\n", std::process::id())).unwrap();
        std::fs::set_permissions(&lock, PermissionsExt::from_mode(0o644)).unwrap();
        let mut postgres = account.command(&programs.postgres());
        postgres.arg("-D").arg(&pgdata).args(["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]);
        postgres.arg("-c").arg(format!("port={port}")).stderr(std::process::Stdio::null());
        let postmaster = postgres.spawn().unwrap();
        let url = |database: &str| format!("postgres://shop_owner:{PASSWORD}@127.0.0.1:{port}/{database}?sslmode=disable");
        until("the server to start", async || super::processes::is_ready(&pgdata, postmaster.id())).await;
        execute(&url("postgres"), "CREATE DATABASE shop").await.unwrap();
        OnPort { postmaster, url: url("shop"), port }
    }
}

#[tokio::test]
async fn a_data_directory_of_the_previous_release_is_upgraded_in_place() {
    let directory = Directory::new();
    let mut old = OnPort::start(&directory.0).await;
    execute(&old.url, "CREATE TABLE kept AS SELECT 'here' AS word").await.unwrap();
    // The server crashed, and another user listens on its port to catch the password.
    old.postmaster.kill().unwrap();
    old.postmaster.wait().unwrap();
    let neighbour = std::net::TcpListener::bind(("127.0.0.1", old.port)).unwrap();
    neighbour.set_nonblocking(true).unwrap();

    let server = Server::start(directory.settings()).await.unwrap();
    assert_eq!(ask(&server.url(), "SELECT word FROM kept").await, "here");
    assert_eq!(ask(&server.service_url(), "SELECT session_user::text").await, "shop_service");
    assert_eq!(ask(&server.url(), "SELECT count(*)::text FROM pg_authid WHERE rolpassword IS NOT NULL").await, "0");
    assert_eq!(ask(&server.url(), "SHOW listen_addresses").await, "");
    assert!(!directory.0.join("postgres.password").exists());
    assert_eq!(mode(&directory.0.join("postgres.lock")), 0o600);
    let heard = neighbour.accept().map(|_| ()).unwrap_err();
    assert_eq!(heard.kind(), std::io::ErrorKind::WouldBlock, "nothing connected to the old port");

    // A crash of the new server causes no connection to the old port, either.
    let killed = server.pid();
    send(killed, Signal::SIGKILL);
    until("the new postmaster", async || ![0, killed].contains(&server.pid())).await;
    assert_eq!(ask(&server.url(), "SELECT word FROM kept").await, "here");
    server.stop().await.unwrap();
    assert_eq!(
        neighbour.accept().map(|_| ()).unwrap_err().kind(),
        std::io::ErrorKind::WouldBlock,
        "nothing connected to the old port"
    );
}

#[test]
fn a_running_server_of_an_earlier_release_is_refused() {
    let directory = Directory::new();
    let lock = directory.0.join("postgres.lock");
    std::fs::write(&lock, "4711 5432\n").unwrap();
    let held = std::fs::File::open(&lock).unwrap();
    held.lock().unwrap();
    let refused = running(&directory.0).unwrap_err().to_string();
    assert!(refused.starts_with("process 4711, of an earlier release, runs the server in "), "{refused}");
}

#[tokio::test]
async fn a_data_directory_with_a_long_path_has_its_socket_elsewhere() {
    let directory = Directory::new();
    let data_dir = directory.0.join("long".repeat(30));
    let server = Server::start(Settings::new(&data_dir, names())).await.unwrap();
    let address = server.address().clone();
    assert_eq!(running(&data_dir).unwrap(), Some(address.clone()));
    let socket = address.directory().to_owned();
    assert!(!socket.starts_with(&directory.0), "{}", socket.display());
    assert_eq!(mode(&socket), 0o700);
    assert_eq!(ask(&address.url("shop_owner", "shop"), "SELECT 'works'").await, "works");
    server.stop().await.unwrap();
    assert!(!socket.exists(), "the socket's directory is removed with the server");

    // After a kill, the watchdog removes the directory, or the next start does if only root may remove it.
    let mut owner = Owner::start(data_dir.to_str().unwrap());
    let left = running(&data_dir).unwrap().unwrap();
    owner.kill();
    until("the end of the server", async || !lives(owner.postmaster)).await;
    let server = Server::start(Settings::new(&data_dir, names())).await.unwrap();
    assert!(server.address() != &left && !left.directory().exists(), "no directory is left behind");
    assert_eq!(Address::new(server.address().directory()).as_ref(), Some(server.address()));
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
async fn a_stale_pid_file_with_a_reused_pid_does_not_prevent_a_start() {
    let directory = Directory::new();
    Server::start(directory.settings()).await.unwrap().stop().await.unwrap();
    let stale = directory.0.join("postgres/postmaster.pid");
    let text = format!("{}\n/data\n1\n5432\n\n127.0.0.1\n\nready\n", std::process::id());
    std::fs::write(stale, text).unwrap();
    Server::start(directory.settings()).await.unwrap().stop().await.unwrap();
}

#[tokio::test]
async fn a_throwaway_server_leaves_nothing_behind() {
    let settings = Settings::temporary(false, names()).unwrap();
    let directory = settings.data_dir.clone();
    let server = Server::start(settings).await.unwrap();
    assert_eq!(ask(&server.url(), "SHOW fsync").await, "off");
    assert_eq!(ask(&server.url(), "SHOW full_page_writes").await, "off");
    server.stop().await.unwrap();
    assert!(!directory.exists());

    let settings = Settings::temporary(false, names()).unwrap();
    let directory = settings.data_dir.clone();
    let server = Server::start(settings).await.unwrap();
    let postmaster = server.pid();
    drop(server);
    until("the end of a dropped server", async || !lives(postmaster) && !directory.exists()).await;

    let mut owner = Owner::start("");
    let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", owner.postmaster)).unwrap();
    let pgdata = PathBuf::from(arguments.split('\0').nth(2).unwrap());
    assert!(pgdata.exists());
    owner.kill();
    until("the end of a killed owner's server", async || !lives(owner.postmaster) && !pgdata.parent().unwrap().exists()).await;
}

#[tokio::test]
async fn missing_programs_are_an_error() {
    let settings = Settings::temporary(false, names()).unwrap();
    let directory = settings.data_dir.clone();
    let refused = Server::start(Settings { programs: Some("/usr/share".into()), ..settings }).await.unwrap_err();
    let expected = "cannot use the given Postgres programs: /usr/share has no postgres and initdb";
    assert!(refused.to_string().contains(expected), "{refused}");
    until("the removal of its directory", async || !directory.exists()).await;
}

#[tokio::test]
async fn a_failed_start_reports_its_reason() {
    let mut settings = Settings::temporary(false, names()).unwrap();
    settings.extra = vec![("no_such_setting".into(), "1".into())];
    let directory = settings.data_dir.clone();
    let refused = Server::start(settings).await.unwrap_err().to_string();
    let expected = "unrecognized configuration parameter \"no_such_setting\"";
    assert!(refused.contains(expected), "{refused}");
    assert!(!refused.contains('\n'));
    until("the removal of its directory", async || !directory.exists()).await;
}

#[test]
fn a_network_that_refuses_connections_is_noticed_soon() {
    let directory = Directory::new();
    let output =
        helper().env(DOWNLOADING, directory.0.join("programs")).env("HTTPS_PROXY", "http://127.0.0.1:9").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    // The refusal itself is the error, and not a timeout.
    assert!(said.contains(": Err(") && said.contains("onnection refused"), "{said}");
}

#[tokio::test]
async fn root_learns_which_directory_the_server_cannot_enter() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let parent = Directory::new();
    let closed = parent.0.join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    let refused = Server::start(Settings::new(closed.join("data"), names())).await.unwrap_err();
    let text = refused.to_string();
    let closed = closed.display();
    assert!(text.contains(&format!("cannot enter the directory {closed}:")), "{text}");
    assert!(!text.contains('\n'));
    assert!(!parent.0.join("closed/data").exists());
}

#[test]
fn all_tests_pass_as_an_ordinary_user() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let nobody = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    let directory = tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o777)).tempdir_in("/tmp").unwrap();
    // That user may not be able to enter the build directory, so the test runs a copy of the binary. Another program makes
    // the copy, because a file that is open for writing cannot be executed ("text file busy"). If this process wrote it, a
    // process that a concurrent test starts could inherit the open descriptor.
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
