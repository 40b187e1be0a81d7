//! The commands of the program, one file a subject.

pub mod audit;
