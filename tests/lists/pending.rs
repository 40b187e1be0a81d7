//! Pages of a backlog: pending deliveries may lie anywhere among the delivered ones.

use ledger_events::webhook::WebhookEventType;
use ledger_projections::deliveries::DeliveryFilter;
use ledger_projections::listing::pages::Thresholds;

use crate::support::shop::{Shop, deliveries_of};

/// All deliveries of one webhook come before those of the other one. Pending ones are found whether the newest are
/// examined first or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_found_wherever_it_lies() {
    let shop = Shop::open().await;
    let account = shop.customer.account_id;
    let url = "https://example.com/hook";
    let (cancelled, created) = (WebhookEventType::OrderCancelled, WebhookEventType::OrderCreated);
    let old = shop.webhook_for(account, url, &[cancelled]).await.0;
    for _ in 0..40 {
        let order = shop.order(1).await;
        shop.cancel(order).await;
    }
    shop.project().await;
    let busy = shop.webhook_for(account, url, &[created]).await.0;
    shop.orders(account, 120).await;
    shop.project().await;

    let of_account = DeliveryFilter { status: Some("pending"), ..deliveries_of(account) };
    let mut filters = vec![of_account.clone()];
    filters.extend([old, busy].map(|webhook| DeliveryFilter { webhook_id: Some(webhook), ..of_account.clone() }));
    filters.extend([cancelled, created].map(|event_type| DeliveryFilter { event_type: Some(event_type), ..of_account.clone() }));
    let ways = [
        Thresholds::default(),
        Thresholds { pending: 0, ..Thresholds::default() },
        Thresholds { pending: 0, merged_groups: 0, ..Thresholds::default() },
        Thresholds { pending: 0, skipped: 10, ..Thresholds::default() },
    ];
    for pending in [
        // All of one webhook, before all of the other one.
        format!("webhook_id = {old}"),
        // The oldest of a webhook that has had far more delivered since.
        format!("delivery_id < (SELECT min(delivery_id) + 20 FROM delivery_state WHERE webhook_id = {busy})"),
        // The newest, all of them or some.
        "delivery_id > (SELECT max(delivery_id) - 90 FROM delivery_state)".to_owned(),
        "delivery_id % 3 = 0".to_owned(),
        // One old delivery, so that the page of the newest ends at it.
        "delivery_id > (SELECT max(delivery_id) - 4 FROM delivery_state) OR delivery_id = (SELECT min(delivery_id) FROM delivery_state)".to_owned(),
    ] {
        shop.tamper_with(&format!(
            "UPDATE delivery_state SET status = 'delivered', delivered_at = now(), attempt_count = 1;
             UPDATE delivery_state SET status = 'pending', delivered_at = NULL, attempt_count = delivery_id % 2 WHERE {pending}"
        ))
        .await;
        for filter in &filters {
            for size in [1, 5, 100] {
                shop.walk_deliveries(filter, size, &ways).await;
            }
        }
    }
}
