//! `--pages off`: no page is there, and the API is.

use poem::http::Method;
use rewards_ledger::pages;
use serde_json::Value;

use crate::support::postgres;
use crate::support::program::Program;

#[tokio::test]
async fn a_node_without_pages_serves_the_api_alone() {
    let database = postgres::database().await;
    let node = Program::start(&database.url, &["--pages", "off"]).await;
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    for (route, methods) in pages::routes() {
        let path = route.replace(['{', '}'], "");
        for method in [Method::GET, Method::POST].iter().filter(|method| methods.contains(method)) {
            let request = http.request(method.as_str().parse().unwrap(), format!("{}{path}", node.url()));
            let answer = request.header("Content-Type", "application/x-www-form-urlencoded").send().await.unwrap();
            let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap());
            assert!(status == 404 && !text.contains("<html"), "{method} {path}: {status} {text}");
        }
    }
    let client = node.client("100.00").await;
    let (status, wallets) = node.call(&client, "GET", "/wallets", None, &Value::Null).await.unwrap();
    assert_eq!((status, &wallets["wallets"][0]["balance"]), (200, &"100.00".into()));
}
