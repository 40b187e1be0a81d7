//! Operators and the audit from the shell.

use std::path::Path;

use serde_json::{Value, json};

use super::{err, out, run};
use crate::support::node::PASSWORD;
use crate::support::postgres;
use crate::support::program::{Program, write_private};

#[tokio::test(flavor = "multi_thread")]
async fn operators_are_managed_and_audited() {
    let database = postgres::database().await;
    let node = Program::start(&database.url, &["--console-url", "https://console.example"]).await;
    let directory = tempfile::tempdir().unwrap();
    let admin = async |arguments: &[&str]| {
        let mut command = node.command();
        let output = run(command.arg("admin").args(arguments).args(["--json"]).env("LEDGER_URL", node.url())).await;
        assert!(output.status.success(), "{arguments:?}: {}", err(&output));
        serde_json::from_str::<Value>(&out(&output)).unwrap_or_else(|_| panic!("{}", out(&output)))
    };
    let file = |name: &str, password: &str| {
        let path = directory.path().join(name);
        write_private(&path, &format!("{password}\n"));
        path.to_str().unwrap().to_owned()
    };
    let first = file("first", PASSWORD);
    let kim = admin(&["operator", "create", "kim@example.com", "--role", "finance", "--password-file", &first]).await;
    let id = kim["id"].to_string();
    let login = async |password: &str| {
        let body = json!({"email": "kim@example.com", "password": password});
        let request = reqwest::Client::new().post(format!("{}/admin/auth/login", node.url()));
        request.header("Origin", "https://console.example").json(&body).send().await.unwrap().status().as_u16()
    };
    assert_eq!(login(PASSWORD).await, 200);
    let second = file("second", "another battery staple");
    let changed = admin(&["operator", "change", &id, "--role", "auditor", "--password-file", &second]).await;
    assert_eq!(changed["role"], "auditor");
    assert_eq!((login(PASSWORD).await, login("another battery staple").await), (401, 200));
    assert_eq!(admin(&["operator", "remove-two-factor", &id]).await["two_factor"], false);
    assert_eq!(admin(&["operator", "list"]).await["operators"], json!([changed]));
    admin(&["operator", "remove", &id]).await;
    let subject = format!("operator/{id}");
    let audit = admin(&["audit", "--actor", "operator/0", "--subject", &subject, "--limit", "2"]).await;
    let told: Vec<&Value> = audit["entries"].as_array().unwrap().iter().map(|entry| &entry["type"]).collect();
    assert_eq!(told, ["OperatorUserRemoved", "OperatorUserChanged"]);
    assert!(Path::new(&first).exists() && !node.log().contains("kim@example.com"), "{}", node.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misconfigured_identity_provider_stops_the_start() {
    let directory = super::directory();
    for (arguments, expected) in [
        (&["--oidc-issuer", "https://id.example"][..], "error: --oidc-issuer needs --oidc-client-id\n"),
        (&["--oidc-client-id", "console"], "error: --oidc-client-id needs --oidc-issuer\n"),
    ] {
        let mut command = super::program(directory.path());
        let started = run(command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments)).await;
        assert_eq!((started.status.code(), err(&started).as_str()), (Some(2), expected));
    }
}
