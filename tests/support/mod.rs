pub mod postgres;
pub mod world;
