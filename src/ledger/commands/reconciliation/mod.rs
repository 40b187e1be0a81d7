//! Bank statements, and decisions about their lines.

mod decide_match;
mod import_statement;
mod revoke_match_decision;

pub use decide_match::DecideMatch;
pub use import_statement::ImportStatement;
pub use revoke_match_decision::RevokeMatchDecision;
