//! `GET /admin/v1/audit`: who did what, by actor, subject, account and type.

use rewards_ledger::access::Role;
use serde_json::{Value, json};

use crate::support::node::Node;
use crate::support::wait::until;

#[tokio::test]
async fn the_audit_says_who_did_what() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let admin = node.console_user(Role::Admin).await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(order).await;
    node.client(&setup.client, "GET", &format!("/orders/{order}/vouchers"), Value::Null).await.data(200);
    let fund = json!({"amount": "5.00", "reference": "SEPA 4711", "note": "paid by hand"});
    node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), fund).await.data(201);
    let change =
        node.portal(&admin.cookie, node.url(), "POST", "/admin/v1/accounts", json!({"name": "By a person"})).await.data(201);
    let audit = async |query: &str| node.operator("GET", &format!("/audit?{query}"), Value::Null).await;
    let page = async |query: &str| audit(query).await.data(200);
    let told = |page: &Value| -> Vec<(String, String)> {
        let text = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
        page["entries"].as_array().unwrap().iter().map(|entry| (text(entry, "type"), text(entry, "subject"))).collect()
    };
    let created = ("AccountCreated".to_owned(), format!("account/{}", change["id"]));

    let by_admin = page(&format!("actor=operator/{}", admin.id)).await;
    assert_eq!(told(&by_admin), std::slice::from_ref(&created));
    let entry = &by_admin["entries"][0];
    assert_eq!((&entry["actor_type"], &entry["actor_id"]), (&json!("operator"), &json!(admin.id)));
    assert_eq!((&entry["actor_name"], &by_admin["next_before"]), (&json!(admin.email), &Value::Null));
    let funded = page("type=WalletFunded&limit=1").await["entries"][0].take();
    assert_eq!((&funded["reference"], &funded["reason"]), (&json!("SEPA 4711"), &json!("paid by hand")));
    let revealed = page("type=VouchersRevealed").await;
    assert_eq!((&revealed["entries"][0]["reference"], &revealed["entries"][0]["reason"]), (&Value::Null, &Value::Null));
    assert_eq!(told(&revealed), [("VouchersRevealed".to_owned(), format!("order/{order}"))]);
    // Keys and tokens that were shown are reveals, too.
    let reveals = told(&page("reveals=true").await);
    for kind in ["VouchersRevealed", "CredentialIssued"] {
        assert!(reveals.iter().any(|(name, _)| name == kind), "{kind}: {reveals:?}");
    }
    assert!(!reveals.iter().any(|(name, _)| name == "OrderPlaced"), "{reveals:?}");
    assert_eq!(
        (&revealed["entries"][0]["actor_type"], &revealed["entries"][0]["actor_name"]),
        (&json!("credential"), &json!("main"))
    );
    let of_order: Vec<String> = told(&page(&format!("subject=order/{order}")).await).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(of_order, ["VouchersRevealed", "OrderDelivered", "OrderQueued", "OrderPlaced"]);
    let by_client = format!("subject=order/{order}&actor=credential&account_id={}", setup.client.account_id);
    assert_eq!(told(&page(&by_client).await).len(), 2);
    assert_eq!(told(&page("actor=fulfilment&limit=100").await).len(), 2);
    assert!(told(&page("until=2000-01-01T00:00:00Z").await).is_empty());
    assert_eq!(told(&page("since=2000-01-01T00:00:00Z&limit=1").await), [created]);
    assert!(told(&page("since=2100-01-01T00:00:00Z").await).is_empty());

    // Page by page, every event comes once.
    let (mut before, mut all) = (String::new(), vec![]);
    loop {
        let found = page(&format!("limit=3{before}")).await;
        all.extend(found["entries"].as_array().unwrap().iter().map(|entry| entry["position"].as_i64().unwrap()));
        match found["next_before"].as_i64() {
            Some(position) => before = format!("&before={position}"),
            None => break,
        }
    }
    let head = node.head().await;
    assert_eq!(all, (1..=head).rev().collect::<Vec<_>>());
    for query in
        ["actor=king", "actor=operator/x", "subject=pony/1", "type=Nothing", "before=0", "limit=101", "shard_id=9", "page=1"]
    {
        audit(query).await.refused(400, "E_VALIDATION_FAILURE");
    }
}

/// Returns all actions that meet a query, the newest first, page by page.
pub async fn all(node: &Node, query: &str) -> Vec<Value> {
    let (mut before, mut all) = (String::new(), vec![]);
    loop {
        let page = node.operator("GET", &format!("/audit?limit=3{query}{before}"), Value::Null).await.data(200);
        all.extend(page["entries"].as_array().unwrap().iter().cloned());
        match page["next_before"].as_i64() {
            Some(position) => before = format!("&before={position}"),
            None => return all,
        }
    }
}

/// The other actions fill more than the first window of a page, so the later windows are read by the filters of the index.
#[tokio::test]
async fn actions_of_an_actor_or_account_are_found_far_back_in_the_log() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let person = node.console_user(Role::Admin).await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let order = node.client(&setup.client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap();
    node.fulfil(order).await;
    let other = json!({"name": "By a person"});
    node.portal(&person.cookie, node.url(), "POST", "/admin/v1/accounts", other).await.data(201);
    let early = all(&node, "").await;
    let mut admin = node.admin().await;
    sqlx::raw_sql(
        r#"INSERT INTO events (shard_id, position, event_id, stream_type, stream_id, version, type, schema_version, data, metadata, recorded_at)
           SELECT 1, position + n, gen_random_uuid(), 'category', 1000000 + n, 1, 'CategoryAdded', 1,
              '{"name": "far"}', '{"actor":{"user":999},"account_id":999}', recorded_at FROM log_head, generate_series(1, 12000) AS n;
           UPDATE log_head SET position = position + 12000;
           SELECT brin_summarize_new_values('events_by_actor');
           ANALYZE events"#,
    )
    .execute(&mut admin)
    .await
    .unwrap();

    let (account, person) = (setup.client.account_id, person.id);
    let of_kind = |kind: &'static str| move |entry: &Value| entry["actor_type"] == kind;
    let of_account = |entry: &Value| entry["account_id"] == account;
    let of_person = |entry: &Value| entry["actor_type"] == "operator" && entry["actor_id"] == person;
    type Passes<'a> = Box<dyn Fn(&Value) -> bool + 'a>;
    let cases: [(String, Passes); 8] = [
        (format!("&actor=operator/{person}"), Box::new(of_person)),
        ("&actor=operator".to_owned(), Box::new(of_kind("operator"))),
        ("&actor=credential".to_owned(), Box::new(of_kind("credential"))),
        ("&actor=fulfilment".to_owned(), Box::new(of_kind("fulfilment"))),
        (format!("&account_id={account}"), Box::new(of_account)),
        (format!("&account_id={account}&actor=operator"), Box::new(|entry| of_account(entry) && of_kind("operator")(entry))),
        (
            format!("&account_id={account}&type=OrderPlaced"),
            Box::new(|entry| of_account(entry) && entry["type"] == "OrderPlaced"),
        ),
        (format!("&actor=operator/{person}&type=AccountCreated"), Box::new(of_person)),
    ];
    for (query, passes) in cases {
        let expected: Vec<Value> = early.iter().filter(|entry| passes(entry)).cloned().collect();
        assert!(!expected.is_empty() && expected.len() < early.len(), "{query}");
        assert_eq!(all(&node, &query).await, expected, "{query}");
    }
    assert_eq!(all(&node, "&actor=operator/999").await, Vec::<Value>::new());
    until("events_by_actor is read", async || {
        let read = "SELECT coalesce(sum(idx_scan), 0) > 0 FROM pg_stat_user_indexes WHERE indexrelname = 'events_by_actor'";
        sqlx::query_scalar(read).fetch_one(node.ledger.pool()).await.unwrap()
    })
    .await;
}

#[tokio::test]
async fn an_audit_of_a_subject_reads_the_shard_of_the_subject() {
    let first = Node::start().await;
    first.account("Acme").await;
    let node = first.beside_with_two_shards().await;
    let elsewhere = "INSERT INTO events SELECT 2, 1, gen_random_uuid(), stream_type, 7000, version, type, schema_version, data, metadata, recorded_at
            FROM events WHERE shard_id = 1 AND type = 'AccountCreated';
        UPDATE log_head SET position = 1, recorded_at = (SELECT recorded_at FROM events WHERE shard_id = 2) WHERE shard_id = 2";
    sqlx::raw_sql(elsewhere).execute(&mut first.admin().await).await.unwrap();
    for (query, shard, subject) in
        [("subject=account/7000", 2, Some("account/7000")), ("subject=account/7000&shard_id=1", 1, None)]
    {
        let page = node.operator("GET", &format!("/audit?{query}"), Value::Null).await.data(200);
        assert_eq!((&page["shard_id"], page["entries"][0]["subject"].as_str()), (&json!(shard), subject), "{query}: {page}");
    }
    let page = node.operator("GET", "/audit", Value::Null).await.data(200);
    assert_eq!((&page["shard_id"], &page["shard_ids"]), (&json!(1), &json!([1, 2])));
}
