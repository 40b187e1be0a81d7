//! Commands beside a `serve` with an embedded server: they use that server.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use embedded_postgres::running;
use ledger_database::PgConnectOptions;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rewards_ledger::embedded::{DATABASE, OWNER_ROLE};
use serde_json::Value;
use sqlx::PgConnection;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::{directory, err, out, program, run};
use crate::support::postgres;
use crate::support::program::{DEADLINE, OPERATOR_TOKEN};
use crate::support::wait::until;

/// Starts `serve` on its embedded server, and returns the API's URL once it is ready.
async fn serve(directory: &Path) -> (Child, String) {
    let mut command = program(directory);
    command.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json"]).env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN);
    let mut served = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(served.stderr.take().unwrap()).lines();
    let address = tokio::time::timeout(DEADLINE, async {
        loop {
            let line = lines.next_line().await.unwrap().expect("the program keeps running");
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not a JSON line: {line}"));
            if line["message"] == "ready" {
                return line["address"].as_str().unwrap().to_owned();
            }
        }
    });
    let url = format!("http://{}", address.await.expect("ready in time"));
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (served, url)
}

async fn stop(mut served: Child) {
    kill(Pid::from_raw(served.id().unwrap().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let ended = tokio::time::timeout(DEADLINE, served.wait()).await.expect("in time").unwrap();
    assert!(ended.success(), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_beside_a_running_serve_uses_its_server() {
    let directory = directory();
    let command = |arguments: &[&str]| {
        let mut command = program(directory.path());
        command.args(arguments).env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN);
        command
    };
    let (served, url) = serve(directory.path()).await;
    let postmaster = || std::fs::read_to_string(directory.path().join("postgres/postmaster.pid")).unwrap();
    let its_own = postmaster();

    // The API and the commands see each other's changes.
    let made = run(&mut command(&["admin", "--url", &url, "account", "create", "Acme"])).await;
    assert!(made.status.success(), "{}", err(&made));
    let tail = run(&mut command(&["events", "tail"])).await;
    assert!(tail.status.success() && out(&tail).contains("AccountCreated"), "{}{}", out(&tail), err(&tail));
    for arguments in [&["verify"][..], &["reconcile"], &["rebuild", "accounts"], &["events", "export"], &["migrate"]] {
        let done = run(&mut command(arguments)).await;
        assert!(done.status.success(), "{arguments:?}: {}{}", out(&done), err(&done));
    }
    let token = run(&mut command(&["admin", "token", "create", "Ada", "--role", "auditor", "--json"])).await;
    let token: Value = serde_json::from_str(&out(&token)).unwrap_or_else(|_| panic!("{}", err(&token)));
    let listed = reqwest::Client::new()
        .get(format!("{url}/admin/v1/accounts"))
        .bearer_auth(token["token"].as_str().unwrap())
        .send()
        .await
        .unwrap();
    assert_eq!(listed.status(), 200);
    assert!(listed.text().await.unwrap().contains("Acme"));
    assert_eq!(postmaster(), its_own, "no other server was started, and this one was not ended");

    // The server belongs to the program that started it, and ends together with it.
    stop(served).await;
    assert!(!directory.path().join("postgres/postmaster.pid").exists(), "the server has ended with its program");
    // A restored backup is not used before its recovery is complete.
    let signal = directory.path().join("postgres/recovery.signal");
    std::fs::write(&signal, "").unwrap();
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["events", "tail"]] {
        let refused = run(&mut command(arguments)).await;
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {}", err(&refused));
        let told = ["recovery.signal makes it start in recovery", "complete the recovery"];
        assert!(told.iter().all(|text| err(&refused).contains(text)), "{arguments:?}: {}", err(&refused));
    }
    std::fs::remove_file(&signal).unwrap();
    // Without a running `serve`, a command starts the server itself and finds the existing data.
    let tail = run(&mut command(&["events", "tail"])).await;
    assert!(tail.status.success() && out(&tail).contains("AccountCreated"), "{}{}", out(&tail), err(&tail));
    assert!(!directory.path().join("postgres/postmaster.pid").exists(), "the command stops the server that it started");
}

/// Connects as the owner to the server that runs in a data directory.
async fn owner(data_dir: &Path) -> PgConnection {
    let address = running(data_dir).unwrap().expect("a server runs in the data directory");
    let options: PgConnectOptions = address.url(OWNER_ROLE, DATABASE).parse().unwrap();
    options.connect().await.unwrap()
}

/// Lists everything in a data directory except the cluster and the server programs, with file modes.
fn modes(data_dir: &Path) -> Vec<(String, u32)> {
    let entries = std::fs::read_dir(data_dir).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| {
        let mode = entry.path().symlink_metadata().unwrap().permissions().mode() & 0o777;
        (entry.file_name().into_string().unwrap(), mode)
    });
    named.filter(|(name, _)| !["postgres", "programs"].contains(&name.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_service_has_no_superusers_connection_and_no_file_for_others() {
    let directory = directory();
    let (served, url) = serve(directory.path()).await;
    let made = run(program(directory.path())
        .args(["admin", "--url", &url, "account", "create", "Acme"])
        .env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN))
    .await;
    assert!(made.status.success(), "{}", err(&made));

    let mut admin = owner(directory.path()).await;
    let sessions =
        "SELECT usename::text, bool_or(usesuper), count(*) FROM pg_stat_activity JOIN pg_user USING (usesysid, usename)
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() GROUP BY usename";
    let sessions: Vec<(String, bool, i64)> = sqlx::query_as(sessions).fetch_all(&mut admin).await.unwrap();
    let [(user, is_superuser, count)] = &sessions[..] else { panic!("the sessions use several roles: {sessions:?}") };
    assert_eq!((user.as_str(), *is_superuser), ("ledger_service", false));
    assert!(*count > 5, "{count} connections");
    drop(admin);

    let modes_of = modes(directory.path());
    for name in ["master.key", "log.key", "log-state.lock", "postgres.lock", "postgres.log", "postgres.hba", "postgres.ident"] {
        assert!(modes_of.contains(&(name.to_owned(), 0o600)), "{name} in {modes_of:?}");
    }
    assert!(modes_of.contains(&("socket".to_owned(), 0o700)), "{modes_of:?}");
    assert!(modes_of.iter().all(|(_, mode)| mode & 0o077 == 0), "{modes_of:?}");

    // A killed postmaster is restarted, and the service reconnects to it.
    let postmaster = || {
        let text = std::fs::read_to_string(directory.path().join("postgres/postmaster.pid")).unwrap_or_default();
        text.lines().next().and_then(|line| line.parse::<i32>().ok())
    };
    let killed = postmaster().unwrap();
    kill(Pid::from_raw(killed), Signal::SIGKILL).unwrap();
    let http = reqwest::Client::new();
    until("the service works again", async || {
        let asked = http.get(format!("{url}/admin/v1/accounts")).bearer_auth(OPERATOR_TOKEN).send().await;
        postmaster().is_some_and(|pid| pid != killed) && asked.is_ok_and(|answer| answer.status() == 200)
    })
    .await;
    stop(served).await;
}

#[tokio::test]
async fn only_serve_demo_and_migrate_make_a_ledger() {
    let directory = directory();
    let (absent, empty) = (directory.path().join("absent"), directory.path().join("empty"));
    std::fs::create_dir(&empty).unwrap();
    let file = directory.path().join("log.ndjson");
    let file = file.to_str().unwrap();
    for data_dir in [&absent, &empty] {
        for (arguments, status) in [
            (&["events", "tail"][..], 1),
            (&["events", "show", "1"], 1),
            (&["events", "export", "--out", file], 1),
            (&["events", "import", file], 1),
            (&["verify"], 3),
            (&["rebuild", "accounts"], 3),
            (&["reconcile"], 3),
            (&["show", "order", "1"], 1),
            (&["erase", "order", "1", "--reason", "asked", "--yes"], 1),
            (&["erase", "finish"], 1),
            (&["admin", "token", "create", "Ada", "--role", "auditor"], 1),
            (&["admin", "token", "list"], 1),
        ] {
            let refused = run(program(directory.path()).args(arguments).env("LEDGER_DATA_DIR", data_dir)).await;
            assert_eq!(
                err(&refused),
                format!(
                    "error: no ledger in {}: give its data directory with --data-dir (LEDGER_DATA_DIR), or its database with \
                     --database-url (DATABASE_URL); `serve`, `demo` and `migrate` create a new one\n",
                    data_dir.display()
                ),
                "{arguments:?}"
            );
            assert_eq!((refused.status.code(), out(&refused)), (Some(status), String::new()), "{arguments:?}");
        }
    }
    assert!(!absent.exists() && !Path::new(file).exists());
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);

    // `listen` needs no data directory, and creates none.
    let mut listen = program(directory.path());
    listen.env("LEDGER_DATA_DIR", &absent).args(["listen", "--listen-webhooks", "127.0.0.1:0", "--json"]);
    let mut listening = listen.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(listening.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(DEADLINE, lines.next_line()).await.expect("in time").unwrap().expect("a line");
    let line: Value = serde_json::from_str(&line).unwrap();
    let certificate = PathBuf::from(line["ca_file"].as_str().unwrap());
    assert!(certificate.exists());
    stop(listening).await;
    assert!(!absent.exists() && !certificate.exists());
}

/// Creates a directory with server programs that record from which place they were started.
fn programs_in(directory: &Path, name: &str, real: &Path) -> PathBuf {
    let place = directory.join(name);
    std::fs::create_dir(&place).unwrap();
    let used = directory.join("used");
    for program in ["postgres", "initdb"] {
        let script = format!("#!/bin/sh\necho {name} >> {}\nexec {}/{program} \"$@\"\n", used.display(), real.display());
        executable(&place.join(program), &script);
    }
    place
}

fn executable(path: &Path, script: &str) {
    std::fs::write(path, script).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn server_programs_are_searched_in_the_setting_then_pg_config_then_path_then_the_usual_places() {
    let directory = directory();
    let real = postgres::programs().await;
    let told = programs_in(directory.path(), "told", &real);
    let configured = programs_in(directory.path(), "configured", &real);
    let in_path = programs_in(directory.path(), "in-path", &real);
    let tools = directory.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    executable(&tools.join("pg_config"), &format!("#!/bin/sh\necho {}\n", configured.display()));
    let broken = directory.path().join("broken");
    std::fs::create_dir(&broken).unwrap();
    executable(&broken.join("postgres"), "#!/bin/sh\necho 'postgres (PostgreSQL) 17.1'\n");
    let used = directory.path().join("used");

    // The system's own PATH is left out, because it may contain a `pg_config`.
    let path = |entries: &[&Path]| std::env::join_paths(entries).unwrap();
    for (expected, path, told) in [
        (Some("told"), path(&[&tools, &in_path]), Some(&told)),
        (Some("configured"), path(&[&tools, &in_path]), None),
        (Some("in-path"), path(&[&in_path]), None),
        // A directory without `initdb` is skipped, and so is an entry that does not exist.
        (Some("in-path"), path(&[&broken, Path::new("/nonexistent"), &in_path]), None),
        (None, path(&[&broken]), None),
    ] {
        std::fs::write(&used, "").unwrap();
        std::fs::set_permissions(&used, std::fs::Permissions::from_mode(0o666)).unwrap();
        let data = tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o711)).tempdir_in(directory.path()).unwrap();
        let mut command = program(data.path());
        command.env("PATH", path).arg("migrate");
        if let Some(told) = told {
            command.arg("--postgres-programs").arg(told);
        }
        let done = run(&mut command).await;
        assert!(done.status.success(), "{expected:?}: {}{}", out(&done), err(&done));
        let used = std::fs::read_to_string(&used).unwrap();
        let used: HashSet<&str> = used.lines().collect();
        assert_eq!(used, expected.into_iter().collect(), "{expected:?}");
    }
}

#[tokio::test]
async fn without_server_programs_and_network_one_line_says_what_to_install() {
    let directory = directory();
    let made = run(program(directory.path()).arg("migrate")).await;
    assert!(made.status.success(), "{}", err(&made));
    // Only version 9 could run this cluster, and no machine has that version any more.
    std::fs::write(directory.path().join("postgres/PG_VERSION"), "9\n").unwrap();
    let release = format!("9.6.0:{}", "0".repeat(64));
    let unpinned =
        "none could be downloaded (the pinned release is 17.11.0, but version 9 created this data directory: pin a release ";
    for (proxy, release, reason) in [
        ("http://127.0.0.1:9", Some(&release), "none could be downloaded (error sending request"),
        ("http://127.0.0.1:1", Some(&release), "none could be downloaded (error sending request"),
        ("http://127.0.0.1:1", None, unpinned),
    ] {
        let mut command = program(directory.path());
        command.arg("migrate").env("HTTPS_PROXY", proxy).envs(release.map(|release| ("LEDGER_POSTGRES_RELEASE", release)));
        let refused = run(&mut command).await;
        assert_eq!(refused.status.code(), Some(1), "{}", out(&refused));
        let said = err(&refused);
        assert_eq!(said.lines().count(), 1, "{said}");
        for part in ["is version ", reason, "install PostgreSQL 9 ", "apt-get install", "or set DATABASE_URL"] {
            assert!(said.contains(part), "{part} is not in {said}");
        }
    }
}
