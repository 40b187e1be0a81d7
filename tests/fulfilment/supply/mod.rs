//! Purchases from a simulated supplier.

mod buying;
mod faults;
mod metrics;
mod notices;
mod settings;

use std::sync::Arc;

use ledger_events::OrderId;
use ledger_events::catalogue::ProductSupplier;
use ledger_events::order::OrderStatus;
use ledger_events::purchase::Purchase;
use ledger_projections::page::Page;
use ledger_projections::purchases::{self, PurchaseFilter};
use rewards_ledger::audit::verify;
use rewards_ledger::fulfilment::Fulfilment;
use rewards_ledger::fulfilment::supply::{Purchaser, Supplier};
use rewards_ledger::ledger::commands;

use crate::support::shop::{SHARD, Shop};
use crate::support::supplier::Simulator;

/// A shop whose product names the simulated supplier.
struct World {
    shop: Shop,
    simulator: Simulator,
    supplier: Arc<dyn Supplier>,
}

impl World {
    async fn open() -> World {
        let (shop, simulator) = tokio::join!(Shop::open(), Simulator::start());
        let supplier = simulator.supplier();
        let named = Some(ProductSupplier { name: "acme".to_owned(), sku: "SKU-10".to_owned() });
        shop.run(commands::SetProductSupplier { product_id: shop.customer.product_id, supplier: named }).await;
        World { shop, simulator, supplier }
    }

    fn purchaser(&self) -> Purchaser {
        Purchaser::new(self.shop.ledger.clone(), self.supplier.clone(), self.shop.metrics.clone())
    }

    /// Allocates what is in the stock.
    async fn fulfil(&self) {
        let mut fulfilment = Fulfilment::new(self.shop.ledger.clone(), self.shop.metrics.clone());
        fulfilment.step(SHARD).await.unwrap();
        fulfilment.step(SHARD).await.unwrap();
    }

    /// Places an order that the stock does not serve.
    async fn order(&self, quantity: i32) -> OrderId {
        let order = self.shop.order(quantity).await;
        self.fulfil().await;
        order
    }

    /// Lets the next call happen now, whatever pause or breaker there is.
    async fn due(&self) {
        let due = "UPDATE purchase_calls SET due_at = '-infinity', leased_until = '-infinity';
            UPDATE supplier_calls SET next_at = '-infinity', open_until = '-infinity'";
        sqlx::raw_sql(due).execute(&mut self.shop.admin().await).await.unwrap();
    }

    /// Calls the supplier once. Returns whether a purchase was due.
    async fn work(&self) -> bool {
        self.due().await;
        self.purchaser().work(SHARD).await
    }

    async fn purchases(&self) -> Vec<Purchase> {
        let page = Page { number: 1, size: 100 };
        let mut found = purchases::list(self.shop.pool(), SHARD, &PurchaseFilter::default(), page).await.unwrap().rows;
        found.reverse();
        found
    }

    /// Returns the fault of the last call about the latest purchase.
    async fn problem(&self) -> String {
        let latest = "SELECT problem FROM purchase_calls ORDER BY purchase_id DESC LIMIT 1";
        sqlx::query_scalar(latest).fetch_one(self.shop.pool()).await.unwrap()
    }

    /// Lets purchases become this many days older.
    async fn days_pass(&self, days: i32) {
        let pass = "UPDATE purchases SET updated_at = updated_at - make_interval(days => $1), requested_at = requested_at
            - make_interval(days => $1)";
        sqlx::query(pass).bind(days).execute(&mut self.shop.admin().await).await.unwrap();
    }

    async fn status(&self, order: OrderId) -> OrderStatus {
        self.shop.find(order).await.status
    }

    /// Checks that each unit was bought once, that the stock has each code, and that the tables match the log.
    async fn is_sound(&self, units: usize) {
        assert_eq!(self.simulator.units(), units, "bought: {:?}", self.simulator.sold());
        let codes: i64 = sqlx::query_scalar("SELECT count(*) FROM vault.vouchers").fetch_one(self.shop.pool()).await.unwrap();
        let sold = self.simulator.sold();
        let delivered: usize = sold.values().filter(|sold| !sold.is_pending).map(|sold| sold.codes.len()).sum();
        assert_eq!(usize::try_from(codes).unwrap(), delivered, "no code is lost, and none is there twice");
        self.shop.project().await;
        let report = verify(&self.shop.options, |_| {}).await.unwrap();
        assert!(report.is_clean(), "{:#?}", report.differences);
    }
}
