//! Products, categories, and voucher stock.

mod expire_vouchers;
mod load_vouchers;
mod products;
mod set_product_supplier;
mod set_stock_threshold;
mod set_voucher_expiry;
mod transfer_vouchers;
mod void_vouchers;

use ledger_events::CategoryId;
use ledger_events::catalogue::{Category, CategoryAdded};

pub use expire_vouchers::ExpireVouchers;
pub use load_vouchers::LoadVouchers;
pub use products::{AddProduct, ChangeProduct, SetProductImage};
pub use set_product_supplier::SetProductSupplier;
pub use set_stock_threshold::SetStockThreshold;
pub use set_voucher_expiry::SetVoucherExpiry;
pub use transfer_vouchers::TransferVouchers;
pub use void_vouchers::VoidVouchers;

use super::unknown;
use crate::ledger::commands::prelude::*;

#[derive(Clone, Debug)]
pub struct AddCategory {
    pub name: String,
    pub parent_id: Option<CategoryId>,
}

impl Handler for AddCategory {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.categories.ids.extend(self.parent_id);
        reads.streams.categories.new_id();
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        require_category(batch, "parent_id", self.parent_id)?;
        let id = batch.streams.categories.next_id()?;
        batch.append::<Category>(id, CategoryAdded { name: self.name.clone(), parent_id: self.parent_id }, context);
        Ok(CommandResult::Category(batch.streams.categories.find(id)?.clone()))
    }
}

/// Refuses a field that names an unknown category.
#[track_caller]
fn require_category(batch: &Batch, field: &'static str, id: Option<CategoryId>) -> Result<(), Rejection> {
    match id {
        Some(id) if batch.streams.categories.get(id).is_none() => Err(unknown(field)),
        _ => Ok(()),
    }
}
