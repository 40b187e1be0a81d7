//! Webhooks never contain voucher codes.

use ledger_events::webhook::WebhookEventType;
use rewards_ledger::ledger::commands;
use rewards_ledger::ledger::commands::NewVoucher;
use rewards_ledger::secrets::seal::Secret;
use webhook_client::receiver::ReceiverResponse;

use super::send_all;
use crate::support::ledger::money;
use crate::support::shop::{DEADLINE, Shop, receiver};

#[tokio::test]
async fn no_webhook_carries_a_code() {
    let shop = Shop::open().await;
    let (receiver, mut arrived) = receiver(|_| ReceiverResponse::Status(200)).await;
    shop.webhook_for(shop.customer.account_id, &receiver.url(), &WebhookEventType::OF_ORDERS).await;
    let vouchers = (1..=3).map(|row| NewVoucher {
        row,
        card_number: Secret::new(format!("CARD-{row}")),
        pin: Some(Secret::new(format!("PIN-{row}"))),
        claim_url: Some(Secret::new(format!("https://claim.example/{row}"))),
        reference: Some(format!("REF-{row}")),
        expires_on: None,
    });
    let (product_id, denomination) = (shop.customer.product_id, money("10.00"));
    shop.run(commands::LoadVouchers {
        product_id,
        denomination,
        vouchers: vouchers.collect(),
        cost: None,
        supplier_reference: None,
    })
    .await;
    let [whole, partly] = [shop.order(2).await, shop.order(2).await];
    for order_id in [whole, partly] {
        shop.fulfil(order_id).await;
    }
    shop.run(commands::RevealVouchers { account_id: shop.customer.account_id, order_id: whole }).await;
    shop.cancel(partly).await;
    shop.project().await;
    let worker = shop.worker(&receiver, DEADLINE);
    while send_all(&worker).await.claimed > 0 {}

    let mut told = vec![];
    while let Ok(received) = arrived.try_recv() {
        let text = format!("{:?} {}", received.headers, std::str::from_utf8(&received.body).unwrap());
        for code in ["CARD-", "PIN-", "claim.example"] {
            assert!(!text.contains(code), "{text}");
        }
        told.push(received.event_type().unwrap().to_owned());
    }
    told.sort_unstable();
    let [created, pending, delivered, partly, cancelled] = WebhookEventType::OF_ORDERS.map(WebhookEventType::as_str);
    assert_eq!(told, [cancelled, created, created, delivered, partly, pending, pending]);
    let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM webhook_envelopes WHERE payload ~ 'CARD-|PIN-|claim.example'")
        .fetch_one(shop.pool())
        .await
        .unwrap();
    assert_eq!(kept, 0);
}
