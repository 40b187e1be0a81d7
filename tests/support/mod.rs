pub mod ledger;
pub mod postgres;
pub mod proxy;
