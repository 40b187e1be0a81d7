//! Properties of all histories of a product.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{CategoryId, ProductId};

fn at(version: i64) -> Moment {
    let recorded_at = DateTime::from_timestamp(1_800_000_000 + version, 0).unwrap();
    Moment { position: 100 + version, event_id: Uuid::nil(), version, recorded_at }
}

fn details() -> impl Strategy<Value = ProductDetails> {
    let money = |cents: i64| Money::from_cents(cents).unwrap();
    let denominations = prop_oneof![
        prop::collection::vec(1i64..50, 1..4)
            .prop_map(move |cents| Denominations::Fixed { values: cents.into_iter().map(money).collect() }),
        (1i64..25, 25i64..50).prop_map(move |(min, max)| Denominations::Range { min: money(min), max: money(max) }),
    ];
    (denominations, 1i32..9, any::<bool>(), prop::option::of(1i64..4)).prop_map(
        |(denominations, max_quantity, is_active, category_id)| ProductDetails {
            name: format!("of {max_quantity}"),
            brand: "Brand".into(),
            category_id: category_id.map(CategoryId),
            country: "DE".into(),
            currency: "EUR".parse().unwrap(),
            denominations,
            max_quantity,
            description: String::new(),
            terms: String::new(),
            is_active,
            stock_thresholds: vec![],
            supplier: None,
        },
    )
}

fn event() -> impl Strategy<Value = ProductEvent> {
    prop_oneof![
        details().prop_map(|details| ProductChanged { details }.into()),
        (1i32..99).prop_map(|size| ProductImageSet { sha256: format!("{size:064}"), content_type: ImageType::Png, size }.into()),
        (0i32..99).prop_map(|accepted| {
            let (denomination, cost) = (Money::from_cents(1_000).unwrap(), Money::from_cents(950).ok());
            VoucherStockLoaded { denomination, accepted, duplicates: 0, cost, supplier_reference: None, vouchers: vec![] }.into()
        }),
        (1i32..99).prop_map(|number| VouchersVoided { vouchers: vec![number.to_string()], reason_hash: String::new() }.into()),
        (1i32..99).prop_map(|number| {
            VoucherExpirySet { vouchers: vec![number.to_string()], expires_on: NaiveDate::from_ymd_opt(2027, 12, 31).unwrap() }
                .into()
        }),
        (1i64..99).prop_map(|number| {
            let (to_product_id, vouchers) = (ProductId(number), vec![number.to_string()]);
            VouchersTransferredOut { to_product_id, vouchers, reason_hash: String::new() }.into()
        }),
        (1i64..99).prop_map(|number| {
            VouchersTransferredIn { from_product_id: ProductId(number), vouchers: vec![number.to_string()] }.into()
        }),
        (1i64..99).prop_map(|position| VouchersMovedOut { to_shard: 2, position, vouchers: vec![position.to_string()] }.into()),
        (1i64..99, prop::option::of(1i64..99)).prop_map(|(position, cost)| {
            let (denomination, cost) = (Money::from_cents(1_000).unwrap(), cost.map(|cents| Money::from_cents(cents).unwrap()));
            let lots = vec![MovedLot { cost, vouchers: vec![position.to_string()] }];
            VouchersMovedIn { from_shard: 2, position, denomination, lots }.into()
        }),
        (1i32..99).prop_map(|number| VouchersExpired { vouchers: vec![number.to_string()] }.into()),
        prop::option::of(1i32..9).prop_map(|number| {
            let supplier = number.map(|number| ProductSupplier { name: format!("supplier-{number}"), sku: "sku".into() });
            ProductSupplierSet { supplier }.into()
        }),
        (1i64..3, prop::option::of(1i32..99))
            .prop_map(|(cents, least)| { StockThresholdSet { denomination: Money::from_cents(cents).unwrap(), least }.into() }),
    ]
}

/// Lists the thresholds that are set.
fn listed(thresholds: &BTreeMap<Money, Option<i32>>) -> Vec<StockThreshold> {
    let set = thresholds.iter().filter_map(|(denomination, least)| Some((*denomination, (*least)?)));
    set.map(|(denomination, least)| StockThreshold { denomination, least }).collect()
}

proptest! {
    /// A product has its last properties and its last image, and stock changes neither.
    #[test]
    fn a_product_reflects_the_last_event_of_each_kind(
        first in details(), steps in prop::collection::vec(event(), 0..20), denomination in 1i64..60, quantity in 1i32..12,
    ) {
        let mut state = evolve(None, ProductId(3), &ProductAdded { details: first.clone() }.into(), &at(1)).unwrap();
        let (mut details, mut image, mut changed_at) = (first, None, 1);
        let mut thresholds = BTreeMap::new();
        for (event, version) in steps.iter().zip(2..) {
            match event {
                ProductEvent::ProductChanged(e) => {
                    // These details have no thresholds. A command takes them from the state before.
                    (details, changed_at) = (e.details.clone(), version);
                    thresholds.clear();
                }
                ProductEvent::ProductImageSet(e) => {
                    image = Some(ProductImage { set: e.clone(), updated_at: at(version).recorded_at });
                    changed_at = version;
                }
                ProductEvent::StockThresholdSet(e) => {
                    thresholds.insert(e.denomination, e.least);
                    details.stock_thresholds = listed(&thresholds);
                }
                ProductEvent::ProductSupplierSet(e) => details.supplier.clone_from(&e.supplier),
                ProductEvent::ProductAdded(_)
                | ProductEvent::VoucherStockLoaded(_)
                | ProductEvent::VouchersVoided(_)
                | ProductEvent::VoucherExpirySet(_)
                | ProductEvent::VouchersTransferredOut(_)
                | ProductEvent::VouchersTransferredIn(_)
                | ProductEvent::VouchersMovedOut(_)
                | ProductEvent::VouchersMovedIn(_)
                | ProductEvent::VouchersExpired(_) => {}
            }
            state = evolve(Some(state), ProductId(3), event, &at(version)).unwrap();
        }
        let denomination = Money::from_cents(denomination).unwrap();
        let includes = match &details.denominations {
            Denominations::Fixed { values } => values.contains(&denomination),
            Denominations::Range { min, max } => *min <= denomination && denomination <= *max,
        };
        let is_accepted = details.is_active && includes && quantity <= details.max_quantity;
        prop_assert_eq!(state.accepts(denomination, quantity).is_ok(), is_accepted);
        let (version, updated_at) = (1 + steps.len() as i64, at(changed_at).recorded_at);
        prop_assert_eq!(state, Product { id: ProductId(3), version, details, image, created_at: at(1).recorded_at, updated_at });
    }

    /// Only `ProductAdded` starts a stream.
    #[test]
    fn a_stream_without_its_first_event_has_no_state(event in event()) {
        prop_assert_eq!(evolve(None, ProductId(3), &event, &at(1)), None);
    }
}
