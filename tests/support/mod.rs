pub mod ledger;
pub mod postgres;
