use rewards_ledger::access::Role;
use rewards_ledger::export::line;
use serde_json::Value;

use crate::support::node::Node;
use crate::support::program::run;

use super::command;

#[tokio::test(flavor = "multi_thread")]
async fn an_auditor_streams_the_log_or_a_part_of_it() {
    let (directory, node) = (tempfile::tempdir().unwrap(), Node::start().await);
    let setup = node.setup().await;
    let order = serde_json::json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    let token = node.token(Role::Auditor).await;
    let get = async |query: &str| node.bearer(token.expose(), "GET", &format!("/admin/v1/events{query}"), Value::Null).await;
    let file = run(&mut command(directory.path(), &node.options, &["events", "export"])).await.stdout;
    let (file, head) = (String::from_utf8(file).unwrap(), node.head().await);

    let all = get("").await;
    assert_eq!((all.status, all.header("content-type")), (200, "application/x-ndjson"));
    assert!(all.text == file && all.text.lines().count() as i64 == head);
    let range = ["x-log-shard", "x-log-from", "x-log-to", "x-log-head"].map(|name| all.header(name).to_owned());
    assert_eq!(range, ["1".to_owned(), "1".to_owned(), head.to_string(), head.to_string()]);

    // The client continues after a response that broke off.
    let lines: Vec<&str> = file.split_inclusive('\n').collect();
    let rest = get("?from=4").await;
    assert!(rest.text == lines[3..].concat() && rest.header("x-log-from") == "4");
    assert_eq!(get("?from=2&to=3").await.text, lines[1..3].concat());
    assert_eq!(get(&format!("?from={}", head + 1)).await.text, "");
    assert_eq!(get("?until=2020-01-01T00:00:00Z").await.text, "");
    assert!(get("?since=2020-01-01T00:00:00Z").await.text == file);
    let types: Vec<String> =
        get(&format!("?stream=order/{order}")).await.text.lines().map(|l| line::read(l).unwrap().event_type).collect();
    assert_eq!(types, ["OrderPlaced"]);
    let filter = format!("?type=OrderPlaced,WalletDebited&account_id={}", setup.client.account_id);
    assert_eq!(get(&filter).await.text.lines().count(), 2);
    assert_eq!(get("?account_id=77").await.text, "");
    let time = line::read(lines[3]).unwrap().recorded_at;
    let both = get(&format!("?from=2&since={}&stream=wallet/{}", time.format("%Y-%m-%dT%H:%M:%S%.3fZ"), setup.wallet_id)).await;
    let wanted: String = (lines.iter().skip(1))
        .filter(|text| line::read(text).is_ok_and(|s| s.stream_type == "wallet" && s.recorded_at >= time))
        .copied()
        .collect();
    assert!(both.text == wanted && !wanted.is_empty(), "{}", both.text);

    let request = |path: &str| node.request("GET", path).bearer_auth(token.expose());
    let packed = request("/admin/v1/events").header("Accept-Encoding", "br, zstd").send().await.unwrap();
    assert_eq!(packed.headers()["content-encoding"], "zstd");
    assert_eq!(packed.headers()["content-type"], "application/x-ndjson");
    assert_eq!(zstd::stream::decode_all(&packed.bytes().await.unwrap()[..]).unwrap(), file.as_bytes());
    let packed = request("/admin/v1/events?compression=zstd").send().await.unwrap();
    assert!(!packed.headers().contains_key("content-encoding") && packed.headers()["content-type"] == "application/zstd");
    assert!(packed.headers()["content-disposition"].to_str().unwrap().contains(".ndjson.zst"));
    assert_eq!(zstd::stream::decode_all(&packed.bytes().await.unwrap()[..]).unwrap(), file.as_bytes());

    for wrong in ["from=0", "to=-1", "from=x", "stream=pony/1", "type=OrderEaten", "shard_id=7", "compression=gzip", "since=now"]
    {
        get(&format!("?{wrong}")).await.refused(400, "E_VALIDATION_FAILURE");
    }
    let client = node.client(&setup.client, "GET", "/../../admin/v1/events", Value::Null).await;
    assert_ne!(client.status, 200);
    let nobody = node.anyone("GET", "/admin/v1/events", Value::Null).await;
    nobody.refused(401, "E_UNAUTHORIZED");
}
