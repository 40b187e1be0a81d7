//! `admin category`, `admin product`: the catalogue from the shell.

use serde_json::{Value, json};

use super::{err, out, run};
use crate::support::postgres;
use crate::support::program::Program;

#[tokio::test(flavor = "multi_thread")]
async fn a_product_is_made_changed_and_given_an_image() {
    let database = postgres::database().await;
    let node = Program::start(&database.url, &["--public-url", "https://rewards.example/base/"]).await;
    let directory = tempfile::tempdir().unwrap();
    let admin = async |arguments: &[&str]| {
        let mut command = node.command();
        run(command.arg("admin").args(arguments).args(["--json"]).env("LEDGER_URL", node.url())).await
    };
    let done = async |arguments: &[&str]| {
        let output = admin(arguments).await;
        assert!(output.status.success(), "{arguments:?}: {}", err(&output));
        serde_json::from_str::<Value>(&out(&output)).unwrap_or_else(|_| panic!("{}", out(&output)))
    };
    let category = done(&["category", "create", "Games"]).await["id"].to_string();
    let create =
        ["product", "create", "Card", "--brand", "B", "--country", "DE", "--currency", "EUR", "--denominations", "10,25"];
    let product = done(&[&create[..], &["--category", &category, "--terms", "None."]].concat()).await;
    let id = product["id"].to_string();
    assert_eq!(product["image_url"], json!(null));

    let change = ["product", "change", &id, "--min", "5", "--max", "9.50", "--no-category", "--active", "false"];
    let changed = done(&change).await;
    assert_eq!((&changed["denomination_type"], &changed["max_denomination"]), (&json!("RANGE"), &json!("9.50")));
    assert_eq!((&changed["category_id"], &changed["is_active"]), (&json!(null), &json!(false)));
    assert_eq!((&changed["name"], &changed["terms"]), (&json!("Card"), &json!("None.")));
    assert!(!admin(&["product", "change", &id]).await.status.success(), "nothing to change");

    assert_eq!(done(&["product", "show", &id]).await, changed);

    let file = directory.path().join("image");
    std::fs::write(&file, b"\x89PNG\r\n\x1a\n-and-so-on").unwrap();
    let file = file.to_str().unwrap();
    let url = done(&["product", "image", &id, file]).await["image_url"].as_str().unwrap().to_owned();
    assert!(url.starts_with(&format!("https://rewards.example/base/api/v1/products/{id}/image/")), "{url}");
    std::fs::write(file, "<svg/>").unwrap();
    let refused = admin(&["product", "image", &id, file]).await;
    assert!(!refused.status.success() && err(&refused).contains("E_UNSUPPORTED_MEDIA_TYPE"), "{}", err(&refused));
}
