#![doc = include_str!("../README.md")]

mod amount;
pub mod camt;
pub mod lines;
pub mod matching;
pub mod xml;
