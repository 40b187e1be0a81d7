use ledger_events::ProductId;
use ledger_events::catalogue::{Product, ProductAdded, ProductChange, ProductChanged, ProductDetails, ProductImageSet};

use super::require_category;
use crate::ledger::commands::prelude::*;

#[derive(Clone, Debug)]
pub struct AddProduct {
    pub details: ProductDetails,
}

impl Handler for AddProduct {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.categories.ids.extend(self.details.category_id);
        reads.streams.products.new_id();
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        require_category(batch, "category_id", self.details.category_id)?;
        let id = batch.streams.products.next_id()?;
        batch.append::<Product>(id, ProductAdded { details: self.details.clone() }, context);
        product(batch, id)
    }
}

#[derive(Clone, Debug)]
pub struct ChangeProduct {
    pub product_id: ProductId,
    pub change: ProductChange,
}

impl Handler for ChangeProduct {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.products.id(self.product_id);
        reads.streams.categories.ids.extend(self.change.category_id.flatten());
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let known = batch.streams.products.find(self.product_id)?;
        if self.change.currency.is_some_and(|currency| currency != known.details.currency) {
            return Err(Rejection::InvalidField { field: "currency", problem: "cannot be changed" }.into());
        }
        require_category(batch, "category_id", self.change.category_id.flatten())?;
        let details = known.details.with(&self.change);
        batch.append::<Product>(self.product_id, ProductChanged { details }, context);
        product(batch, self.product_id)
    }
}

/// Sets a product's image, whose bytes are stored already. Setting the same image again appends no event.
#[derive(Clone, Debug)]
pub struct SetProductImage {
    pub product_id: ProductId,
    pub image: ProductImageSet,
}

impl Handler for SetProductImage {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.products.id(self.product_id);
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let known = batch.streams.products.find(self.product_id)?;
        if known.image.as_ref().is_none_or(|known| known.set != self.image) {
            batch.append::<Product>(self.product_id, self.image.clone(), context);
        }
        product(batch, self.product_id)
    }
}

fn product(batch: &Batch, id: ProductId) -> Decided {
    Ok(CommandResult::Product(batch.streams.products.find(id)?.clone()))
}
