//! Products, categories, and voucher stock.

use ledger_events::catalogue::{
    CategoryAdded, CategoryEvent, ProductAdded, ProductChange, ProductChanged, ProductDetails, ProductEvent, ProductImageSet,
    VoucherStockLoaded,
};
use ledger_events::{CategoryId, Money, ProductId, Rejection};

use super::{Decided, Story, next, unknown};
use crate::ledger::answer::{Answer, StockLoaded};
use crate::ledger::batch::Batch;
use crate::ledger::command::NewVoucher;
use crate::ledger::keys::Owner;
use crate::ledger::stock;
use crate::secrets::seal::Private;

/// What the references that we make begin with; nobody else's may.
const GENERATED_REFERENCE: &str = "VR-";

pub(super) fn add_category(batch: &mut Batch, name: &str, parent_id: Option<CategoryId>, story: Story<'_>) -> Decided {
    known_category(batch, "parent_id", parent_id)?;
    let id = next(batch.ids.categories.pop_front(), "category")?;
    batch.append(id, CategoryEvent::from(CategoryAdded { name: name.to_owned(), parent_id }), &story);
    batch.categories.get(&id).cloned().map(Answer::Category).ok_or(Rejection::NotFound.into())
}

pub(super) fn add_product(batch: &mut Batch, details: &ProductDetails, story: Story<'_>) -> Decided {
    known_category(batch, "category_id", details.category_id)?;
    let id = next(batch.ids.products.pop_front(), "product")?;
    batch.append(id, ProductEvent::from(ProductAdded { details: details.clone() }), &story);
    product(batch, id)
}

pub(super) fn change_product(batch: &mut Batch, id: ProductId, change: &ProductChange, story: Story<'_>) -> Decided {
    let known = batch.products.get(&id).ok_or(Rejection::NotFound)?;
    if change.currency.is_some_and(|currency| currency != known.details.currency) {
        return Err(Rejection::InvalidField { field: "currency", problem: "cannot be changed" }.into());
    }
    known_category(batch, "category_id", change.category_id.flatten())?;
    let details = known.details.with(change);
    batch.append(id, ProductEvent::from(ProductChanged { details }), &story);
    product(batch, id)
}

/// The same image again is no event.
pub(super) fn set_image(batch: &mut Batch, id: ProductId, image: &ProductImageSet, story: Story<'_>) -> Decided {
    let known = batch.products.get(&id).ok_or(Rejection::NotFound)?;
    if known.image.as_ref().is_none_or(|known| known.set != *image) {
        batch.append(id, ProductEvent::from(image.clone()), &story);
    }
    product(batch, id)
}

pub(super) fn load_vouchers(
    batch: &mut Batch,
    product_id: ProductId,
    denomination: Money,
    vouchers: &[NewVoucher],
    story: Story<'_>,
) -> Decided {
    let product = batch.products.get(&product_id).ok_or(Rejection::NotFound)?;
    if !product.details.denominations.include(denomination) {
        return Err(Rejection::InvalidDenomination.into());
    }
    let mut loaded = StockLoaded::default();
    for voucher in vouchers {
        let fingerprint = stock::fingerprint(&batch.keyring, voucher);
        if batch.known_vouchers.fingerprints.contains(&(product_id, fingerprint)) {
            loaded.duplicates += 1;
            continue;
        }
        let id = next(batch.ids.vouchers.pop_front(), "voucher")?;
        let reference = voucher.reference.clone().unwrap_or_else(|| format!("{GENERATED_REFERENCE}{id:010}"));
        if voucher.reference.as_ref().is_some_and(|r| r.starts_with(GENERATED_REFERENCE))
            || batch.known_vouchers.references.contains(&reference)
        {
            loaded.rejected.push((voucher.row, "voucher_reference_number is taken"));
            continue;
        }
        let codes = serde_json::json!({
            "card_number": voucher.card_number.expose(),
            "pin": voucher.pin.as_ref().map(Private::expose),
            "claim_url": voucher.claim_url.as_ref().map(Private::expose),
        });
        let key = batch.new_data_key(Owner::Voucher(id))?;
        let sealed = key.seal(stock::KIND, id, codes.to_string().as_bytes())?;
        batch.known_vouchers.fingerprints.insert((product_id, fingerprint));
        batch.known_vouchers.references.insert(reference.clone());
        batch.vault.vouchers.push(stock::NewRow {
            id,
            product_id,
            denomination,
            reference,
            fingerprint,
            sealed,
            key_id: key.id,
            expires_on: voucher.expires_on,
        });
        loaded.accepted += 1;
    }
    batch.shelves.remove(&(product_id, denomination)); // it is read anew
    let event = ProductEvent::from(VoucherStockLoaded { denomination, accepted: loaded.accepted, duplicates: loaded.duplicates });
    batch.append(product_id, event, &story);
    Ok(Answer::Stock(loaded))
}

fn product(batch: &Batch, id: ProductId) -> Decided {
    batch.products.get(&id).cloned().map(Answer::Product).ok_or(Rejection::NotFound.into())
}

fn known_category(batch: &Batch, field: &'static str, id: Option<CategoryId>) -> Result<(), Rejection> {
    if id.is_some_and(|id| !batch.categories.contains_key(&id)) { Err(unknown(field)) } else { Ok(()) }
}
