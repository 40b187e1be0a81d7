use ledger_events::catalogue::{Product, VoucherStockLoaded};
use ledger_events::{Money, ProductId};

use crate::ledger::command_result::StockLoaded;
use crate::ledger::commands::CommandError;
use crate::ledger::commands::prelude::*;
use crate::ledger::stock::{self, NewVoucher};

/// Prefix of the references that the ledger makes. No uploaded reference may begin with it.
const GENERATED_REFERENCE: &str = "VR-";

/// Adds vouchers of one face value to the stock.
#[derive(Clone, Debug)]
pub struct LoadVouchers {
    pub product_id: ProductId,
    pub denomination: Money,
    pub vouchers: Vec<NewVoucher>,
    /// Cost of each voucher, in the product's currency, if it is known.
    pub cost: Option<Money>,
    /// The supplier's name of the load.
    pub supplier_reference: Option<String>,
}

impl Handler for LoadVouchers {
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
        reads.streams.products.id(self.product_id);
        reads.uploads.push((self.product_id, &self.vouchers));
        let new = i64::try_from(self.vouchers.len()).unwrap_or(i64::MAX);
        reads.new_ids.vouchers += new;
        reads.new_ids.data_keys += new;
    }

    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
        let product = batch.streams.products.find(self.product_id)?;
        if !product.details.denominations.include(self.denomination) {
            return Err(Rejection::InvalidDenomination.into());
        }
        Ok(CommandResult::Stock(self.add(batch, context)?))
    }
}

impl LoadVouchers {
    /// Adds the vouchers, whatever denominations the product has now.
    pub(in crate::ledger::commands) fn add(
        &self,
        batch: &mut Batch,
        context: &CommandContext<'_>,
    ) -> Result<StockLoaded, CommandError> {
        let mut loaded = StockLoaded::default();
        let mut references = vec![];
        for voucher in &self.vouchers {
            references.extend(self.load(batch, voucher, &mut loaded)?);
        }
        batch.stock.reread(self.product_id, [self.denomination]);
        let StockLoaded { accepted, duplicates, .. } = loaded;
        let event = VoucherStockLoaded {
            denomination: self.denomination,
            accepted,
            duplicates,
            cost: self.cost,
            supplier_reference: self.supplier_reference.clone(),
            vouchers: if self.cost.is_some() { references } else { vec![] },
        };
        batch.append::<Product>(self.product_id, event, context);
        Ok(loaded)
    }

    /// Adds a voucher, and returns its reference. Returns none if the stock has it already, or if its reference is taken.
    fn load(&self, batch: &mut Batch, voucher: &NewVoucher, loaded: &mut StockLoaded) -> Result<Option<String>, CommandError> {
        let product_id = self.product_id;
        let fingerprint = stock::fingerprint(&batch.keyring, voucher);
        if batch.stock.known.fingerprints.contains(&(product_id, fingerprint)) {
            loaded.duplicates += 1;
            loaded.duplicate_rows.push(voucher.row);
            return Ok(None);
        }
        let id = batch.ids.vouchers.next()?;
        let reference = voucher.reference.clone().unwrap_or_else(|| format!("{GENERATED_REFERENCE}{id:010}"));
        if voucher.reference.as_ref().is_some_and(|r| r.starts_with(GENERATED_REFERENCE))
            || batch.stock.known.references.contains(&reference)
        {
            loaded.rejected.push((voucher.row, "voucher_reference_number is taken"));
            return Ok(None);
        }
        let codes = serde_json::json!({
            "card_number": voucher.card_number.expose(),
            "pin": voucher.pin.as_ref().map(Secret::expose),
            "claim_url": voucher.claim_url.as_ref().map(Secret::expose),
        });
        let key = batch.new_data_key(Owner::Voucher(id))?;
        let sealed = key.seal(stock::KIND, id, codes.to_string().as_bytes())?;
        batch.stock.known.fingerprints.insert((product_id, fingerprint));
        batch.stock.known.references.insert(reference.clone());
        batch.pending.vouchers.push(stock::NewRow {
            id,
            product_id,
            denomination: self.denomination,
            reference: reference.clone(),
            fingerprint,
            sealed,
            key_id: key.id,
            expires_on: voucher.expires_on,
        });
        loaded.accepted += 1;
        Ok(Some(reference))
    }
}
