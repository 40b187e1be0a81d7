//! `login`, `logout` and `profiles`, and the client commands that use a profile.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::{directory, err, out, program, run};
use crate::support::postgres;
use crate::support::program::{Program, write_private};

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_keeps_a_key_that_works_and_goes_to_its_own_service_alone() {
    let (directory, database) = (directory(), postgres::database().await);
    let node = Program::start(&database.url, &[]).await;
    let client = node.client("100.00").await;
    let other = Program::start(&database.url, &[]).await;
    let (url, elsewhere) = (node.url(), other.url());
    let cli = async |arguments: &[&str]| run(program(directory.path()).args(arguments)).await;
    let log_in = async |secret: &str, name: &str| {
        let mut command = program(directory.path());
        command.args(["login", "--url", &url, "--profile", name, "--api-key", &client.key]).env("LEDGER_API_SECRET", secret);
        run(&mut command).await
    };

    let refused = log_in("wrong", "acme").await;
    assert!(!refused.status.success() && err(&refused).contains("E_UNAUTHORIZED"), "{}", err(&refused));
    let file = directory.path().join(".config/rewards-ledger/client.toml");
    assert!(!file.exists(), "a wrong key is not kept");
    for name in ["acme", "other"] {
        let done = log_in(&client.secret, name).await;
        assert!(done.status.success(), "{}", err(&done));
        assert!(!out(&done).contains(&client.secret), "{}", out(&done));
    }
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    let wallets = cli(&["call", "GET", "/api/v1/wallets"]).await;
    let wallets: Value = serde_json::from_str(&out(&wallets)).expect("only the body is on stdout");
    assert_eq!(wallets["data"]["wallets"][0]["balance"], "100.00");
    let anonymous = cli(&["call", "GET", "/api/v1/wallets", "--url", &elsewhere]).await;
    assert!(!anonymous.status.success() && out(&anonymous).contains("E_UNAUTHORIZED"), "{}", out(&anonymous));
    let contradiction = cli(&["call", "GET", "/api/v1/wallets", "--url", &elsewhere, "--profile", "acme"]).await;
    assert_eq!(err(&contradiction), "error: --url is not the URL of the profile acme: leave one of them out\n");

    let listed = cli(&["profiles", "--use", "acme", "--output", "csv"]).await;
    let expected = format!(
        "name,is_current,is_signing,key_prefix,url\nacme,true,false,{0},{url}\nother,false,false,{0},{url}\n",
        &client.key[..8]
    );
    assert_eq!(out(&listed), expected);
    assert!(cli(&["logout"]).await.status.success());
    let none = cli(&["trigger", "order.created"]).await;
    assert!(err(&none).contains("no credentials for http://127.0.0.1:8080/"), "{}", err(&none));
    assert!(cli(&["call", "GET", "/api/v1/wallets", "--profile", "other"]).await.status.success());
    assert!(err(&cli(&["call", "GET", "/", "--profile", "acme"]).await).contains("no profile acme"));
}

#[tokio::test]
async fn a_settings_file_that_others_can_read_or_that_is_damaged_is_refused_without_its_secrets() {
    let directory = directory();
    let folder = directory.path().join(".config/rewards-ledger");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("client.toml");
    write_private(&file, "[profiles.a]\nurl = \"http://127.0.0.1:1\"\napi_key = \"k\"\napi_secret = \"hidden-one\"\n");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let open = run(program(directory.path()).args(["profiles"])).await;
    assert!(err(&open).contains("is open to other users (mode 0644): chmod 600"), "{}", err(&open));
    write_private(&file, "[profiles.a]\napi_secret = \"hidden-two\" oops\n");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let damaged = run(program(directory.path()).args(["profiles"])).await;
    assert!(err(&damaged).contains("line 2 is wrong"), "{}", err(&damaged));
    assert!(!err(&open).contains("hidden") && !err(&damaged).contains("hidden"), "{}{}", err(&open), err(&damaged));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_of_the_portal_logs_in_and_gets_a_key_for_this_machine() {
    let (directory, database) = (directory(), postgres::database().await);
    let node = Program::start(&database.url, &[]).await;
    let client = node.client("100.00").await;
    let password = "correct horse battery staple";
    let user = serde_json::json!({"email": "ada@example.com", "password": password, "role": "owner"});
    node.operator(&format!("/accounts/{}/users", client.account_id), user).await;
    let file = directory.path().join("password");
    write_private(&file, password);
    let mut command = program(directory.path());
    command.args(["login", "--url", &node.url(), "--email", "ada@example.com", "--json", "--password-file"]).arg(&file);
    let done = run(&mut command).await;
    assert!(done.status.success(), "{}", err(&done));
    let done: Value = serde_json::from_str(&out(&done)).unwrap();
    assert_ne!(done["key_prefix"], client.key[..8], "a new key");
    let wallets = run(program(directory.path()).args(["call", "GET", "/api/v1/wallets"])).await;
    assert!(wallets.status.success(), "{}{}", out(&wallets), err(&wallets));
    let mut admin = program(directory.path());
    admin.args([
        "admin",
        "account",
        "show",
        &client.account_id.to_string(),
        "credentials",
        "--url",
        &node.url(),
        "--output",
        "csv",
    ]);
    let keys = run(admin.env("LEDGER_OPERATOR_TOKEN", crate::support::program::OPERATOR_TOKEN)).await;
    assert!(out(&keys).contains("rewards-ledger login on "), "{}{}", out(&keys), err(&keys));
}
