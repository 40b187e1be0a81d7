//! Orders and webhooks in the live sandbox that clients/test starts.

use futures::{StreamExt, TryStreamExt};
use poem::listener::{Listener, RustlsCertificate, RustlsConfig, TcpListener};
use poem::{EndpointExt, Server, handler, post};
use rewards_ledger_client::models::{
    CancelOrder, ErrorCode, FundOwnWallet, OrderStatus, PlaceOrder, Product, RegisterWebhook, TransactionType, WebhookEnvelope,
    WebhookEventType,
};
use rewards_ledger_client::webhook::{Verifier, Webhook};
use rewards_ledger_client::{Amount, Client, Credentials, ListProductsQuery, ListWalletsQuery};
use tokio::sync::mpsc::{Sender, channel};

/// Returns whether there is a sandbox, and says so if there is none.
fn has_sandbox() -> bool {
    let is_set = std::env::var_os("LEDGER_URL").is_some();
    if !is_set {
        println!("SKIPPED: no live sandbox; clients/test rust starts one");
    }
    is_set
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn client(credentials: Credentials) -> Client {
    Client::new(&variable("LEDGER_URL"), credentials).unwrap()
}

fn signed() -> Client {
    let [key, secret] = ["LEDGER_SIGNED_API_KEY", "LEDGER_SIGNED_API_SECRET"].map(variable);
    client(Credentials::signed(key, secret, variable("LEDGER_SIGNING_SECRET")))
}

/// Finds a product by its name, over pages of one product.
async fn product(client: &Client, name: &str) -> Product {
    let query = ListProductsQuery { limit: Some(1), ..Default::default() };
    let count = client.list_products(&query).await.unwrap().total_count;
    let products: Vec<Product> = client.list_products(&query).items().try_collect().await.unwrap();
    assert_eq!(products.len() as u64, count);
    products.into_iter().find(|product| product.name == name).unwrap()
}

#[tokio::test]
async fn an_order_is_placed_delivered_and_announced() {
    if !has_sandbox() {
        return;
    }
    let client = signed();
    let card = product(&client, "Coffee Card").await;
    let mut feed = client.events(Some("latest")).of_types(&[WebhookEventType::OrderDelivered]);
    feed.next_page().await.unwrap();
    let key = format!("rust-{}", feed.cursor().unwrap());

    let body = PlaceOrder::new(card.id, "25.00".parse().unwrap(), 2);
    let first = client.place_order(&body).idempotency_key(key.as_str()).send().await.unwrap();
    let second = client.place_order(&body).idempotency_key(key).send().await.unwrap();
    assert!(!first.is_replayed && second.is_replayed);
    assert_eq!(first.data, second.data);

    let mut events = Box::pin(feed.stream());
    let delivered = loop {
        let event = events.next().await.unwrap().unwrap();
        if event.envelope.order().unwrap().id == first.data.id {
            break event;
        }
    };
    // A feed that begins at the time of the event has it, too.
    let again = client.events(None).of_types(&[WebhookEventType::OrderDelivered]).since(delivered.envelope.created_at);
    let mut again = Box::pin(again.stream());
    while again.next().await.unwrap().unwrap().sequence != delivered.sequence {}
    let order = client.get_order(first.data.id).await.unwrap();
    assert_eq!((order.status, order.amount.to_string()), (OrderStatus::Delivered, "50.00".to_owned()));
    let vouchers = client.get_order_vouchers(order.id).await.unwrap().vouchers;
    assert!(vouchers.len() == 2 && !vouchers[0].card_number.expose().is_empty());
}

#[tokio::test]
async fn an_order_is_cancelled_and_money_moves() {
    if !has_sandbox() {
        return;
    }
    let client = signed();
    let never = product(&client, "Travel Card").await;
    let order = client.place_order(&PlaceOrder::new(never.id, Amount::from(100), 1)).await.unwrap();
    let reason = CancelOrder { reason: Some("changed my mind".to_owned()) };
    let order = client.cancel_order(order.id, Some(&reason)).await.unwrap();
    assert_eq!((order.status, order.refunded_amount), (OrderStatus::Cancelled, Amount::from(100)));
    let error = client.cancel_order(order.id, None).await.unwrap_err();
    assert_eq!(error.code(), Some(&ErrorCode::OrderNotCancellable));
    let wallets = client.list_wallets(&ListWalletsQuery::default()).await.unwrap();
    let body = FundOwnWallet::new("0.10".parse().unwrap());
    let funding = client.fund_own_wallet(wallets.items[0].id, &body).await.unwrap();
    assert_eq!((funding.r#type, funding.amount.to_string()), (TransactionType::Credit, "0.10".to_owned()));
}

#[tokio::test]
async fn refusals_have_their_codes() {
    if !has_sandbox() {
        return;
    }
    let plain = Credentials::api_key(variable("LEDGER_API_KEY"), variable("LEDGER_API_SECRET"));
    let wrong = Credentials::api_key(variable("LEDGER_API_KEY"), "wrong");
    let unsigned = Credentials::api_key(variable("LEDGER_SIGNED_API_KEY"), variable("LEDGER_SIGNED_API_SECRET"));
    let body = PlaceOrder::new(1, Amount::from(25), 1);
    let cases = [
        (wrong, body.clone(), ErrorCode::Unauthorized),
        (unsigned, body, ErrorCode::HmacSignatureRequired),
        (plain.clone(), PlaceOrder::new(1 << 40, Amount::from(25), 1), ErrorCode::ProductUnavailable),
        (plain, PlaceOrder::new(1, "25.001".parse().unwrap(), 1), ErrorCode::ValidationFailure),
    ];
    for (credentials, body, code) in cases {
        let error = client(credentials).place_order(&body).await.unwrap_err();
        assert_eq!(error.code(), Some(&code), "{error}");
    }
}

#[handler]
async fn hook(Webhook(event): Webhook, received: poem::web::Data<&Sender<WebhookEnvelope>>) {
    received.send(event).await.unwrap();
}

#[tokio::test]
async fn a_webhook_arrives_and_is_genuine() {
    if !has_sandbox() {
        return;
    }
    let client = signed();
    let [certificate, key] =
        ["LEDGER_WEBHOOK_CERTIFICATE", "LEDGER_WEBHOOK_KEY"].map(|name| std::fs::read(variable(name)).unwrap());
    let tls = RustlsConfig::new().fallback(RustlsCertificate::new().cert(certificate).key(key));
    let acceptor = TcpListener::bind("127.0.0.1:0").rustls(tls).into_acceptor().await.unwrap();
    let port = poem::listener::Acceptor::local_addr(&acceptor)[0].as_socket_addr().unwrap().port();
    let body = RegisterWebhook::new("rust", format!("https://localhost:{port}"), vec![WebhookEventType::OrderCreated]);
    let webhook = client.register_webhook(&body).await.unwrap();
    let (sender, mut received) = channel::<WebhookEnvelope>(10);
    let endpoint = post(hook).data(Verifier::new(webhook.token)).data(sender);
    let server = tokio::spawn(Server::new_with_acceptor(acceptor).run(endpoint));

    let card = product(&client, "Coffee Card").await;
    let order = client.place_order(&PlaceOrder::new(card.id, Amount::from(25), 1)).await.unwrap();
    while received.recv().await.unwrap().order().unwrap().id != order.id {}
    client.delete_webhook(webhook.id).await.unwrap();
    server.abort();
}
