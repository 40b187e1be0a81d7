#![doc = include_str!("../README.md")]

pub mod address;
mod connections;
pub mod custom;
pub mod receiver;
pub mod resolver;
pub mod sender;
pub mod signature;
