pub mod history;
pub mod ledger;
pub mod node;
pub mod postgres;
pub mod program;
pub mod proxy;
pub mod relay;
pub mod shop;
