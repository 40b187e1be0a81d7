//! Look-ups and search of operators, and the explanation of a webhook's deliveries.

use rewards_ledger::access::limits::Rule;
use rewards_ledger::ledger::FIRST_SHARD;
use serde_json::{Value, json};
use webhook_client::receiver::ReceiverResponse as Received;

use super::images::PNG;
use super::routes::world;
use crate::support::node::{Node, PASSWORD};
use crate::support::shop::{DEADLINE, receiver, worker};
use crate::support::wait::until;

async fn look_up(node: &Node, path: &str) -> Value {
    node.operator("GET", path, Value::Null).await.data(200)
}

#[tokio::test]
async fn operators_see_what_an_account_has() {
    let node = Node::sandbox().await;
    let world = world(&node).await;
    let (account, of) = (world.key.account_id, |name: &str| &world.things[name]);
    assert_eq!(look_up(&node, &format!("/accounts/{account}")).await["name"], "Acme");
    let credentials = look_up(&node, &format!("/accounts/{account}/credentials")).await;
    let ids: Vec<i64> = credentials["credentials"].as_array().unwrap().iter().map(|key| key["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, [*of("credentials"), world.key.credential_id]);
    let spare = &credentials["credentials"][0];
    assert!(spare.get("api_secret").is_none());
    for field in ["scopes", "expires_at", "allowed_networks", "last_used_at"] {
        assert_eq!(spare[field], Value::Null, "an unused key without restrictions has no {field}");
    }
    let wallets = look_up(&node, &format!("/accounts/{account}/wallets")).await;
    assert_eq!((&wallets["wallets"][0]["id"], &wallets["wallets"][0]["currency"]), (&json!(of("wallets")), &json!("EUR")));
    let discount = json!({"discount": "2.50", "product_id": of("products"), "category_id": null});
    node.operator("PUT", &format!("/accounts/{account}/discounts"), json!({"discount": "2.50", "product_id": of("products")}))
        .await;
    assert_eq!(look_up(&node, &format!("/accounts/{account}/discounts")).await, json!({"discounts": [discount]}));

    let webhooks = look_up(&node, &format!("/accounts/{account}/webhooks")).await;
    assert_eq!(webhooks["webhooks"][0]["id"], json!(of("webhooks")));
    let deliveries = look_up(&node, &format!("/accounts/{account}/deliveries?status=pending")).await;
    assert_eq!(deliveries["deliveries"][0]["id"], json!(of("deliveries")));
    assert_eq!(look_up(&node, &format!("/accounts/{account}/deliveries?status=failed")).await["deliveries"], json!([]));
    let delivery = look_up(&node, &format!("/deliveries/{}", of("deliveries"))).await;
    assert_eq!((&delivery["account_id"], &delivery["attempts"]), (&json!(account), &json!([])));
    let own = node.client(&world.key, "GET", &format!("/webhooks/deliveries/{}", of("deliveries")), Value::Null).await.data(200);
    assert_eq!(delivery["payload"], own["payload"]);
    node.client(&world.key, "DELETE", &format!("/webhooks/{}", of("webhooks")), Value::Null).await.data(200);
    let webhook = look_up(&node, &format!("/webhooks/{}", of("webhooks"))).await;
    assert_eq!((&webhook["account_id"], &webhook["is_deleted"]), (&json!(account), &json!(true)));
    assert!(webhook.get("token").is_none());
    for path in ["/accounts/999999999/wallets", "/accounts/999999999/limits", "/webhooks/999999999", "/deliveries/999999999"] {
        node.operator("GET", path, Value::Null).await.refused(404, "E_NOT_FOUND");
    }
}

#[tokio::test]
async fn limits_and_blocks_in_use_are_listed() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let viewer = node.user(setup.client.account_id, "viewer").await;
    let path = format!("/accounts/{}/limits", setup.client.account_id);
    assert_eq!(look_up(&node, &path).await, json!({"limits": []}));
    for _ in 0..3 {
        node.client(&setup.client, "GET", "/orders", Value::Null).await.data(200);
    }
    node.bearer(&viewer.access_token, "GET", "/api/v1/orders", Value::Null).await.data(200);
    let limits = look_up(&node, &path).await["limits"].clone();
    let shown: Vec<_> =
        limits.as_array().unwrap().iter().map(|limit| (&limit["rule"], &limit["subject"], &limit["used"])).collect();
    let general = json!(Rule::General.name());
    assert_eq!(shown, [(&general, &json!("credential"), &json!(3)), (&general, &json!("user"), &json!(1))]);
    assert_eq!(limits[0]["remaining"].as_i64().unwrap(), limits[0]["limit"].as_i64().unwrap() - 3);

    assert_eq!(look_up(&node, "/ip-blocks").await, json!({"ip_blocks": []}));
    let login = async |ip: &str| {
        let request = node.request("POST", "/auth/login").header("X-Forwarded-For", ip);
        node.send(request.json(&json!({"email": viewer.email, "password": PASSWORD}))).await.data(200)
    };
    let session = login("2001:db8:0:1::7").await;
    login("192.0.2.2").await;
    let blocks = "INSERT INTO ip_blocks (ip, started_at, ends_at) VALUES ('192.0.2.1', now() - interval '1 min', now() + interval '14 min'),
        ('192.0.2.2', now() - interval '20 min', now() - interval '5 min')";
    sqlx::raw_sql(blocks).execute(node.ledger.pool()).await.unwrap();
    let own = format!("/ip-blocks?account_id={}", setup.client.account_id);
    assert_eq!(look_up(&node, &own).await, json!({"ip_blocks": []}), "nobody is signed in from there, or the block has ended");
    let listed = look_up(&node, "/ip-blocks").await;
    assert_eq!(listed["ip_blocks"].as_array().unwrap().len(), 1);
    assert_eq!(listed["ip_blocks"][0]["ip"], "192.0.2.1");
    node.operator("DELETE", "/ip-blocks/192.0.2.1", Value::Null).await.data(200);
    assert_eq!(look_up(&node, "/ip-blocks").await, json!({"ip_blocks": []}));
    let blocks = "INSERT INTO ip_blocks (ip, started_at, ends_at)
        VALUES ('2001:db8:0:1::', now() - interval '1 min', now() + interval '14 min')";
    sqlx::raw_sql(blocks).execute(node.ledger.pool()).await.unwrap();
    assert_eq!(look_up(&node, &own).await["ip_blocks"][0]["ip"], "2001:db8:0:1::");
    let other = node.account("Other").await.account_id;
    assert_eq!(look_up(&node, &format!("/ip-blocks?account_id={other}")).await, json!({"ip_blocks": []}));
    let token = session["access_token"].as_str().unwrap();
    node.bearer(token, "POST", "/auth/logout", Value::Null).await.data(200);
    assert_eq!(look_up(&node, &own).await, json!({"ip_blocks": []}), "the session from there has ended");
}

#[tokio::test]
async fn operators_see_one_product_and_payout_and_the_movements_of_a_wallet() {
    let node = Node::start().await;
    let world = world(&node).await;
    let (client, of) = (&world.key, |name: &str| world.things[name]);
    let product = format!("/products/{}", of("products"));
    node.operator("PUT", &product, json!({"is_active": false})).await.data(200);
    let shown = look_up(&node, &product).await;
    assert_eq!((&shown["name"], &shown["is_active"], &shown["discount"]), (&json!("Acme Card"), &json!(false), &json!("0.00")));
    let image = format!("{product}/image");
    node.operator("GET", &image, Value::Null).await.refused(404, "E_NOT_FOUND");
    let set = node.by_operator("PUT", &image).header("Content-Type", "image/png").body(PNG);
    node.send(set).await.data(200);
    let response = node.by_operator("GET", &image).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "image/png");
    assert_eq!(response.bytes().await.unwrap(), PNG);

    let payout = format!("/payouts/{}", of("payouts"));
    node.operator("PUT", &payout, json!({"status": "FAILED", "failure_reason": "closed"})).await.data(200);
    let shown = look_up(&node, &payout).await;
    assert_eq!(shown, look_up(&node, "/payouts").await["payouts"][0]);
    assert_eq!((&shown["account_id"], &shown["failure_reason"]), (&json!(client.account_id), &json!("closed")));

    let movements = async |query: &str| {
        let path = format!("/wallets/{}/transactions?{query}", of("wallets"));
        look_up(&node, &path).await["transactions"].as_array().unwrap().clone()
    };
    let own = node.client(client, "GET", "/transactions", Value::Null).await.data(200);
    assert_eq!(movements("").await, *own["transactions"].as_array().unwrap());
    let by_order = movements(&format!("category=ORDER&type=DEBIT&order_id={}", of("orders"))).await;
    assert_eq!((by_order.len(), &by_order[0]["id"]), (1, &json!(of("transactions"))));
    assert_eq!(movements("created_to=2001-01-01T00:00:00Z").await, [Value::Null; 0]);
}

#[tokio::test]
async fn a_look_up_of_one_returns_what_the_list_returns() {
    let node = Node::start().await;
    let world = world(&node).await;
    let other = node.account("Other").await;
    let foreign = node.user(other.account_id, "owner").await;
    let (account, owner) = (format!("/accounts/{}", world.key.account_id), &world.users[2]);
    let listed = async |path: &str, of: &str| look_up(&node, path).await[of].as_array().unwrap().clone();
    for (path, of) in [
        (format!("{account}/users"), "users"),
        (format!("{account}/credentials"), "credentials"),
        ("/operators".to_owned(), "operators"),
    ] {
        let all = listed(&path, of).await;
        assert!(!all.is_empty(), "{path}");
        for one in all {
            assert_eq!(look_up(&node, &format!("{path}/{}", one["id"])).await, one);
        }
        node.operator("GET", &format!("{path}/999999999"), Value::Null).await.refused(404, "E_NOT_FOUND");
    }
    for (path, of, own, foreign) in [
        ("/client/api/users", "users", owner.id, foreign.id),
        ("/client/api/api-keys", "api_keys", world.key.credential_id, other.credential_id),
    ] {
        let ask = async |path: &str| node.bearer(&owner.access_token, "GET", path, Value::Null).await;
        let all = ask(path).await.data(200)[of].as_array().unwrap().clone();
        assert!(all.iter().any(|one| one["id"] == own), "{all:?}");
        for one in all {
            assert_eq!(ask(&format!("{path}/{}", one["id"])).await.data(200), one);
        }
        ask(&format!("{path}/{foreign}")).await.refused(404, "E_NOT_FOUND");
    }
    // The things of another account are found under that account alone.
    for path in [format!("{account}/users/{}", foreign.id), format!("{account}/credentials/{}", other.credential_id)] {
        node.operator("GET", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    }
    let user = format!("/users/{}", world.users[0].id);
    node.operator("DELETE", &user, Value::Null).await.data(200);
    node.operator("GET", &format!("{account}{user}"), Value::Null).await.refused(404, "E_NOT_FOUND");
}

const WORKBOOK: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";

#[tokio::test]
async fn a_reconciliation_is_a_workbook_if_it_is_the_first_wish() {
    let node = Node::start().await;
    node.setup().await;
    let wish = async |accept: &str| {
        let request = node.by_operator("GET", "/reconciliation").header("Accept", accept);
        let response = request.send().await.unwrap();
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        (kind, response.bytes().await.unwrap())
    };
    for accept in [WORKBOOK, &format!("image/png, {WORKBOOK}, text/csv;q=0.5")] {
        let (kind, file) = wish(accept).await;
        assert_eq!(kind, WORKBOOK, "{accept}");
        assert!(file.starts_with(b"PK\x03\x04") && file.len() > 4_000, "{} bytes", file.len());
    }
    for (accept, kind) in [("text/csv", "text/csv"), ("*/*", "application/json")] {
        let (found, _) = wish(&format!("{accept}, {WORKBOOK};q=0.5")).await;
        assert!(found.starts_with(kind), "{accept}: {found}");
    }
}

async fn search(node: &Node, term: &str) -> Vec<Value> {
    let term: String = url::form_urlencoded::byte_serialize(term.as_bytes()).collect();
    look_up(node, &format!("/search?q={term}")).await["results"].as_array().unwrap().clone()
}

#[tokio::test]
async fn support_finds_the_event_of_a_movement_by_what_the_client_sees() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let path = format!("/transactions?wallet_id={}", setup.wallet_id);
    let funding = &node.client(&setup.client, "GET", &path, Value::Null).await.data(200)["transactions"][0];
    assert_eq!(funding["category"], "FUNDING");
    let path = format!("/transactions/{}", funding["id"]);
    let own = node.client(&setup.client, "GET", &path, Value::Null).await.data(200);
    let movement = node.operator("GET", &path, Value::Null).await.data(200);
    let found = search(&node, own["event_id"].as_str().unwrap()).await;
    assert_eq!((&found[0]["kind"], &found[0]["id"]), (&json!("event"), &movement["position"]));
}

#[tokio::test]
async fn a_search_finds_whatever_a_client_names() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let viewer = node.user(client.account_id, "viewer").await;
    let hook = json!({"name": "Shop", "url": "https://example.com/hook", "events": ["order.created"]});
    let webhook = node.client(client, "POST", "/webhooks", hook).await.json()["id"].as_i64().unwrap();
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    let request = node.by(client, "POST", "/orders").header("X-Request-ID", "from.the-client_1").json(&order);
    let order = node.send(request).await.data(201);
    let (id, code) = (order["id"].as_i64().unwrap(), order["reference_code"].as_str().unwrap());
    let of = |results: &[Value], kind: &str| -> Vec<Value> {
        results.iter().filter(|result| result["kind"] == kind).cloned().collect()
    };

    let by_code = search(&node, code).await;
    assert_eq!((&by_code[0]["kind"], &by_code[0]["id"]), (&json!("order"), &json!(id)));
    assert_eq!(by_code[0]["title"], format!("{code} PENDING"));
    assert_eq!(of(&search(&node, &id.to_string()).await, "order")[0]["account_id"], client.account_id);
    for name in ["Acme", "acm", " AC"] {
        let found = of(&search(&node, name).await, "account");
        assert_eq!((found.len(), &found[0]["title"]), (1, &json!("Acme")), "{name}");
    }
    for name in ["cme", "Ac%", "A_me"] {
        assert_eq!(of(&search(&node, name).await, "account").len(), 0, "{name}");
    }
    let by_key = search(&node, &client.key).await;
    assert_eq!(of(&by_key, "credential")[0]["id"], client.credential_id);
    assert!(!json!(by_key).to_string().contains(&client.key), "the key itself is not repeated");
    let by_email = search(&node, &viewer.email.to_uppercase()).await;
    assert_eq!(
        (&by_email[0]["kind"], &by_email[0]["id"], &by_email[0]["title"]),
        (&json!("user"), &json!(viewer.id), &json!(viewer.email))
    );
    assert_eq!(of(&search(&node, &webhook.to_string()).await, "webhook")[0]["title"], "Shop");

    // References that the client has chosen, or that the bank names.
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1, "client_reference": "cart 7/B"});
    let referred = node.client(client, "POST", "/orders", order).await.data(201);
    let found = search(&node, "cart 7/B").await;
    assert_eq!((found.len(), &found[0]["kind"], &found[0]["id"]), (1, &json!("order"), &referred["id"]));
    let fund = json!({"amount": "5.00", "reference": "SEPA 4711", "note": "paid by hand"});
    let funded = node.operator("POST", &format!("/wallets/{}/fund", setup.wallet_id), fund).await.data(201);
    let found = search(&node, "SEPA 4711").await;
    assert_eq!((found.len(), &found[0]["kind"], &found[0]["id"]), (1, &json!("transaction"), &funded["id"]));
    let movement = node.operator("GET", &format!("/transactions/{}", funded["id"]), Value::Null).await.data(200);
    assert_eq!((&movement["amount"], &movement["account_id"]), (&json!("5.00"), &json!(client.account_id)));
    assert_eq!((&movement["shard_id"], &movement["position"]), (&json!(1), &json!(node.head().await)));
    assert_eq!(movement["note"], "paid by hand");
    node.operator("GET", "/transactions/999999", Value::Null).await.refused(404, "E_NOT_FOUND");
    let ada =
        json!({"name": "Ada", "type": "BANK", "country": "DE", "currency": "EUR", "account_number": "DE89370400440532013000"});
    let ada = node.client(client, "POST", "/beneficiaries", ada).await.data(201);
    let payout =
        json!({"beneficiary_id": ada["id"], "wallet_id": setup.wallet_id, "amount": "1.00", "client_reference": "salary-3"});
    let payout = node.client(client, "POST", "/payouts", payout).await.data(201);
    let found = search(&node, "salary-3").await;
    assert_eq!((found.len(), &found[0]["kind"], &found[0]["id"]), (1, &json!("payout"), &payout["id"]));

    let by_request = search(&node, "from.the-client_1").await;
    let stream = |result: &Value| result["stream"].as_str().unwrap().to_owned();
    assert_eq!(by_request.iter().map(stream).collect::<Vec<_>>(), [format!("order/{id}"), format!("wallet/{}", setup.wallet_id)]);
    assert_eq!(by_request[0]["title"], "OrderPlaced");
    let by_event = search(&node, by_request[0]["event_id"].as_str().unwrap()).await;
    assert_eq!(by_event, by_request[..1]);
    assert_eq!(search(&node, "nothing-like-this").await, Vec::<Value>::new());
    for term in ["", "%20", &"x".repeat(201)] {
        node.operator("GET", &format!("/search?q={term}"), Value::Null).await.refused(400, "E_VALIDATION_FAILURE");
    }
}

/// The other plans are switched off, so those of a large log are the same.
#[tokio::test]
async fn feeds_and_searches_read_the_indexes_made_for_them() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
    node.client(&setup.client, "POST", "/orders", order).await.data(201);
    let pool = node.ledger.pool();
    for (index, path) in [
        ("events_announced", "/api/v1/events"),
        ("events_request", "/admin/v1/search?q=a-request"),
        ("accounts_name", "/admin/v1/search?q=Acme"),
        ("orders_client_reference", "/admin/v1/search?q=a-reference"),
        ("payouts_client_reference", "/admin/v1/search?q=a-reference"),
    ] {
        until(&format!("{index} is read"), async || {
            let request = node.request("GET", path);
            let request = match path.starts_with("/admin") {
                true => node.by_operator("GET", path.trim_start_matches("/admin/v1")),
                false => request.header("X-API-Key", &setup.client.key).header("X-API-Secret", &setup.client.secret),
            };
            node.send(request).await.data(200);
            let read = "SELECT coalesce(sum(idx_scan), 0) > 0 FROM pg_stat_user_indexes WHERE indexrelname = $1";
            sqlx::query_scalar(read).bind(index).fetch_one(pool).await.unwrap()
        })
        .await;
    }
}

#[tokio::test]
async fn an_explanation_says_why_an_event_was_sent_or_not() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let client = &setup.client;
    let (receiver, _arrived) = receiver(|_| Received::Status(200)).await;
    let order = async || {
        let order = json!({"product_id": setup.product_id, "denomination": 10, "quantity": 1});
        node.client(client, "POST", "/orders", order).await.data(201)["id"].as_i64().unwrap()
    };
    let explain = async |webhook: &Value, order: i64| {
        let path = format!("/webhooks/{}/explanation?order_id={order}", webhook["id"]);
        node.client(client, "GET", &path, Value::Null).await.data(200)["events"].as_array().unwrap().clone()
    };
    let told = |events: &[Value]| -> Vec<(String, String, String)> {
        let text = |event: &Value, name: &str| event[name].as_str().unwrap().to_owned();
        events.iter().map(|event| (text(event, "event_type"), text(event, "webhook_state"), text(event, "outcome"))).collect()
    };
    let expected = |rows: &[(&str, &str, &str)]| -> Vec<(String, String, String)> {
        rows.iter().map(|(one, two, three)| ((*one).to_owned(), (*two).to_owned(), (*three).to_owned())).collect()
    };
    let early = order().await;
    let hook = json!({"name": "a", "url": receiver.url(), "events": ["order.created", "order.delivered"]});
    let webhook = node.client(client, "POST", "/webhooks", hook).await.json();
    node.fulfil(early).await;
    let pending = explain(&webhook, early).await;
    let rows = [
        ("order.created", "created_later", "not_sent"),
        ("order.pending", "not_subscribed", "not_sent"),
        ("order.delivered", "subscribed", "pending"),
    ];
    assert_eq!(told(&pending), expected(&rows), "before the projection");
    node.project().await;
    assert_eq!(worker(&node.options, &receiver, DEADLINE).once().await.unwrap().delivered, 1);
    let sent = explain(&webhook, early).await;
    assert_eq!(told(&sent)[2], ("order.delivered".to_owned(), "subscribed".to_owned(), "delivered".to_owned()));
    assert_eq!(
        (&sent[2]["deliveries"][0]["attempt_count"], &sent[2]["deliveries"][0]["response_status"]),
        (&json!(1), &json!(200))
    );

    let path = format!("/webhooks/{}", webhook["id"]);
    node.client(client, "PUT", &path, json!({"is_active": false})).await.data(200);
    let late = order().await;
    node.client(client, "DELETE", &path, Value::Null).await.data(200);
    node.client(client, "POST", &format!("/orders/{late}/cancel"), Value::Null).await.data(200);
    node.project().await;
    let rows = [("order.created", "inactive", "not_sent"), ("order.cancelled", "deleted", "not_sent")];
    assert_eq!(told(&explain(&webhook, late).await), expected(&rows), "of a deleted webhook");

    let other = node.account("Other").await;
    let path = format!("/webhooks/{}/explanation?order_id={late}", webhook["id"]);
    node.client(&other, "GET", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    let path = format!("/webhooks/{}/explanation?order_id=999999", webhook["id"]);
    node.client(client, "GET", &path, Value::Null).await.refused(404, "E_NOT_FOUND");
    assert!(node.ledger.shards().contains(&FIRST_SHARD));
}
