pub mod ledger;
pub mod postgres;
pub mod program;
pub mod proxy;
