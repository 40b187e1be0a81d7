#![doc = include_str!("../README.md")]

pub mod checkpoint;
pub mod leaf;
pub mod merkle;
pub mod note;
pub mod quorum;
pub mod tile;
