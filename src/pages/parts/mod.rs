//! The design system: the building blocks of all pages. Each block is a function that returns markup. maud escapes every
//! value, and it checks the markup at compile time.

pub mod fields;
pub mod layout;
pub mod period;
pub mod plot;
pub mod table;
pub mod timeline;
pub mod values;
pub mod zone;
