//! Commands beside a `serve` that runs an embedded server: they work on that one.

use std::collections::HashSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{directory, err, out, program, run};
use crate::support::postgres;
use crate::support::program::{DEADLINE, OPERATOR_TOKEN};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_beside_a_running_serve_uses_its_server() {
    let directory = directory();
    let command = |arguments: &[&str]| {
        let mut command = program(directory.path());
        command.args(arguments).env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN);
        command
    };
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--log-format", "json"]);
    let mut served = serve.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(served.stderr.take().unwrap()).lines();
    let address = tokio::time::timeout(DEADLINE, async {
        loop {
            let line = lines.next_line().await.unwrap().expect("it does not end");
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not a JSON line: {line}"));
            if line["message"] == "ready" {
                return line["address"].as_str().unwrap().to_owned();
            }
        }
    });
    let url = format!("http://{}", address.await.expect("ready in time"));
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let postmaster = || std::fs::read_to_string(directory.path().join("postgres/postmaster.pid")).unwrap();
    let its_own = postmaster();

    // What is made through the API is there for the commands, and the other way round.
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

    // It is the program's that started it, and ends with that.
    kill(Pid::from_raw(served.id().unwrap().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let ended = tokio::time::timeout(DEADLINE, served.wait()).await.expect("in time").unwrap();
    assert!(ended.success(), "{ended}");
    assert!(!directory.path().join("postgres/postmaster.pid").exists(), "the server has ended with its program");
    // Alone, a command starts the server itself, and finds what was there.
    let tail = run(&mut command(&["events", "tail"])).await;
    assert!(tail.status.success() && out(&tail).contains("AccountCreated"), "{}{}", out(&tail), err(&tail));
    assert!(!directory.path().join("postgres/postmaster.pid").exists(), "and ends it");
}

/// A directory with server programs that write down which place they were started from.
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
async fn server_programs_are_looked_for_where_one_is_told_then_by_pg_config_then_in_path_then_in_the_usual_places() {
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

    // Without the system's own: there may be a `pg_config` in it.
    let path = |entries: &[&Path]| std::env::join_paths(entries).unwrap();
    for (expected, path, told) in [
        (Some("told"), path(&[&tools, &in_path]), Some(&told)),
        (Some("configured"), path(&[&tools, &in_path]), None),
        (Some("in-path"), path(&[&in_path]), None),
        // One without its initdb is passed by, as is an entry that is not there.
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
    // Only version 9 could run what is there then, and nobody has that any more.
    std::fs::write(directory.path().join("postgres/PG_VERSION"), "9\n").unwrap();
    for proxy in ["http://127.0.0.1:9", "http://127.0.0.1:1"] {
        let refused = run(program(directory.path()).arg("migrate").env("HTTPS_PROXY", proxy)).await;
        assert_eq!(refused.status.code(), Some(1), "{}", out(&refused));
        let said = err(&refused);
        assert_eq!(said.lines().count(), 1, "{said}");
        for part in
            ["is version ", "none could be downloaded (", "install PostgreSQL 9 ", "apt-get install", "or set DATABASE_URL"]
        {
            assert!(said.contains(part), "{part} is not in {said}");
        }
    }
}
