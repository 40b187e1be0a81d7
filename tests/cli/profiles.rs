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
    let prefix = &client.key[..8];
    let expected = serde_json::json!({"profiles": [
        {"name": "acme", "url": url, "key_prefix": prefix, "is_signing": false, "is_current": true},
        {"name": "other", "url": url, "key_prefix": prefix, "is_signing": false, "is_current": false},
    ]});
    let listed = cli(&["profiles", "--output", "json"]).await;
    let listed: Value = serde_json::from_str(&out(&listed)).unwrap();
    assert_eq!(listed, expected);
    let expected = [
        "name   is_current  is_signing  key_prefix  url".to_owned(),
        format!("acme   true        false       {prefix}    {url}"),
        format!("other  false       false       {prefix}    {url}"),
    ];
    for arguments in [&["profiles", "--output", "table"][..], &["profiles"]] {
        assert_eq!(out(&cli(arguments).await).lines().collect::<Vec<_>>(), expected, "{arguments:?}");
    }
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
    assert!(err(&damaged).contains("client.toml: line 2, column 27 is wrong: mend it"), "{}", err(&damaged));
    // A value of a wrong type, which the parser's own message repeats.
    write_private(&file, "current = \"a\"\n[profiles]\na = \"hidden-three\"\n");
    let mistyped = run(program(directory.path()).args(["profiles"])).await;
    assert!(err(&mistyped).contains("client.toml: line 3, column 5 is wrong"), "{}", err(&mistyped));
    for refused in [&open, &damaged, &mistyped] {
        assert!(!err(refused).contains("hidden"), "{}", err(refused));
    }
}

#[tokio::test]
async fn a_secret_without_its_key_is_refused_and_does_not_use_the_profile() {
    let directory = directory();
    let folder = directory.path().join(".config/rewards-ledger");
    std::fs::create_dir_all(&folder).unwrap();
    let profile = "[profiles.a]\nurl = \"http://127.0.0.1:1\"\napi_key = \"k\"\napi_secret = \"hidden\"\n";
    write_private(&folder.join("client.toml"), &format!("current = \"a\"\n{profile}"));
    let mut call = program(directory.path());
    let refused = run(call.args(["call", "GET", "/api/v1/wallets"]).env("LEDGER_API_SECRET", "hidden-too")).await;
    assert_eq!(refused.status.code(), Some(2), "{}", err(&refused));
    let expected = "error: --api-secret (LEDGER_API_SECRET) needs --api-key (LEDGER_API_KEY); leave both out to use a profile\n";
    assert_eq!(err(&refused), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_secrets_that_others_can_read_is_used_with_a_warning() {
    let (directory, database) = (directory(), postgres::database().await);
    let node = Program::start(&database.url, &[]).await;
    let client = node.client("100.00").await;
    let file = directory.path().join("kit.json");
    let kit = serde_json::json!({"url": node.url(), "api_key": client.key, "api_secret": client.secret});
    write_private(&file, &kit.to_string());
    for (mode, is_warned) in [(0o600, false), (0o644, true)] {
        std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        let done = run(program(directory.path()).args(["login", "--from"]).arg(&file)).await;
        assert!(done.status.success(), "{}", err(&done));
        assert_eq!(err(&done).contains("kit.json holds secrets, and is open to other users (mode 0644)"), is_warned);
    }
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
    let log_in = || {
        let mut command = program(directory.path());
        command.args(["login", "--url", &node.url(), "--email", "ada@example.com", "--json", "--password-file"]).arg(&file);
        command
    };
    // With a file in place of its directory, the profile cannot be written, so no key is created for it.
    let blocked = directory.path().join("blocked");
    std::fs::create_dir(&blocked).unwrap();
    std::fs::write(blocked.join("rewards-ledger"), "").unwrap();
    let refused = run(log_in().env("XDG_CONFIG_HOME", &blocked)).await;
    assert!(err(&refused).contains("cannot write"), "{}{}", out(&refused), err(&refused));
    let done = run(&mut log_in()).await;
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
    assert_eq!(out(&keys).matches("rewards-ledger login on ").count(), 1, "{}{}", out(&keys), err(&keys));
}
