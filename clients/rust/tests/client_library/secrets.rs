//! Secrets in debug output and errors.

use rewards_ledger_client::models::{Login, Voucher};
use rewards_ledger_client::webhook::Verifier;
use rewards_ledger_client::{Client, Credentials, Secret};

const HIDDEN: &str = "s3cr3t";

#[tokio::test]
async fn debug_output_and_errors_show_no_secret() {
    let signed = Credentials::signed("key", HIDDEN, HIDDEN);
    let client = Client::new("http://127.0.0.1:1", signed.clone()).unwrap();
    let login = Login::new("a@example.com", HIDDEN);
    let voucher = r#"{"card_number": "s3cr3t", "claim_url": "s3cr3t", "expires_on": null, "pin": "s3cr3t", "voucher_reference_number": "V"}"#;
    let voucher: Voucher = serde_json::from_str(voucher).unwrap();
    let unusable = Client::new("http://127.0.0.1:1", Credentials::access_token("s3cr3t\n")).unwrap();
    let shown = [
        format!("{signed:?} {:?}", Credentials::access_token(HIDDEN)),
        format!("{client:?} {:?}", client.log_in(&login)),
        format!("{login:?} {voucher:#?}"),
        format!("{:?}", Verifier::new("old").or(HIDDEN)),
        format!("{:?}", Secret::from(HIDDEN)),
        format!("{:?}", unusable.get_order(1).await.unwrap_err()),
    ];
    for text in shown {
        assert!(!text.contains(HIDDEN), "{text}");
    }
    assert!(serde_json::to_string(&login).unwrap().contains(HIDDEN), "a request contains it");
    assert!(Secret::from("a") == Secret::from("a") && Secret::from("a") != Secret::from("b"));
}
