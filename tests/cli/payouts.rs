//! Payouts from the shell: a client requests one with `call`, an operator settles it with `admin payout`.

use serde_json::{Value, json};

use super::{directory, err, out, program, run};
use crate::support::postgres;
use crate::support::program::{OPERATOR_TOKEN, Program};

#[tokio::test(flavor = "multi_thread")]
async fn payouts_are_requested_and_settled() {
    let (directory, database) = (directory(), postgres::database().await);
    let node = Program::start(&database.url, &[]).await;
    let client = node.client("100.00").await;
    let url = node.url();
    let call = async |method: &str, path: &str, body: Value| {
        let mut command = program(directory.path());
        command.args(["call", method, path, &body.to_string(), "--json", "--url", &url]);
        command.env("LEDGER_API_KEY", &client.key).env("LEDGER_API_SECRET", &client.secret);
        let called = run(&mut command).await;
        serde_json::from_str::<Value>(&out(&called)).unwrap_or_else(|_| panic!("{}{}", out(&called), err(&called)))["body"].take()
    };
    let admin = async |arguments: &[&str]| {
        let mut command = program(directory.path());
        command.args(["admin", "--json", "--url", &url, "payout"]).args(arguments).env("LEDGER_OPERATOR_TOKEN", OPERATOR_TOKEN);
        run(&mut command).await
    };
    let wallet = call("GET", "/api/v1/wallets", Value::Null).await["data"]["wallets"][0]["id"].take();
    let person =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let to = call("POST", "/api/v1/beneficiaries", person).await["data"]["id"].take();
    let ask = json!({"beneficiary_id": to, "wallet_id": wallet, "amount": "10.00"});
    let first = call("POST", "/api/v1/payouts", ask.clone()).await["data"]["id"].to_string();
    let second = call("POST", "/api/v1/payouts", ask).await["data"]["id"].to_string();

    let paid = admin(&["paid", &first]).await;
    assert!(paid.status.success(), "{}", err(&paid));
    let failed = admin(&["failed", &second, "--reason", "no such account"]).await;
    let failed: Value = serde_json::from_str(&out(&failed)).unwrap();
    assert_eq!((&failed["status"], &failed["failure_reason"]), (&json!("FAILED"), &json!("no such account")));
    let shown = admin(&["show", &second]).await;
    assert_eq!(serde_json::from_str::<Value>(&out(&shown)).unwrap(), failed);
    let late = admin(&["failed", &first]).await;
    assert_eq!(late.status.code(), Some(1));
    assert!(err(&late).contains("E_CONFLICT"), "{}", err(&late));
    let listed = admin(&["list", "--status", "PAID"]).await;
    let listed: Value = serde_json::from_str(&out(&listed)).unwrap();
    assert_eq!(listed["payouts"][0]["id"].to_string(), first, "{listed}");
    assert_eq!(listed["payouts"].as_array().unwrap().len(), 1);
    let seen = call("GET", "/api/v1/wallets", Value::Null).await;
    assert_eq!(seen["data"]["wallets"][0]["balance"], "90.00");
}
