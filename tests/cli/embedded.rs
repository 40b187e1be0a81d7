//! Commands beside a `serve` that runs an embedded server: they work on that one.

use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{directory, err, out, program, run};
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
