//! The reconciliation stream: a statement of a bank or payment processor was imported, and what
//! people decided about its lines.
//!
//! What the lines say stands sealed in the vault, and so do the reasons. Matches that follow from the
//! lines and the log alone are no events: they are computed when they are asked for.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};

use crate::erasure::PersonalDataErased;
use crate::{DecisionId, Moment, PayoutId, Rejection, StatementId, TransactionId};

/// What a statement was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StatementFormat {
    #[serde(rename = "csv")]
    Csv,
    /// ISO 20022 bank-to-customer statement.
    #[serde(rename = "camt.053")]
    Camt053,
}

impl StatementFormat {
    pub const ALL: [StatementFormat; 2] = [Self::Csv, Self::Camt053];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Camt053 => "camt.053",
        }
    }

    pub fn parse(text: &str) -> Option<StatementFormat> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
    }
}

/// A statement was imported; one file is imported once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatementImported {
    pub format: StatementFormat,
    /// Keyed SHA-256 (hex) of the file; the lines stand in the vault under it.
    pub fingerprint: String,
    /// How many lines it has, numbered from 1.
    pub lines: i32,
    /// The days that its lines were booked on.
    pub first_day: NaiveDate,
    pub last_day: NaiveDate,
}

/// What a person said a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Decision {
    /// The money of this funding.
    Funding { transaction_id: TransactionId },
    /// The money of this payout.
    Payout { payout_id: PayoutId },
    /// Nothing that the ledger should know: a fee of the bank, interest.
    Ignored,
}

/// A person decided what a line is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatchDecided {
    pub decision_id: DecisionId,
    pub line: i32,
    #[serde(flatten)]
    pub decision: Decision,
    /// SHA-256 (hex) over a salt and the reason; both stand in the vault.
    pub reason_hash: String,
}

/// A person took a decision back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatchDecisionRevoked {
    pub decision_id: DecisionId,
    pub line: i32,
    /// SHA-256 (hex) over a salt and the reason; both stand in the vault.
    pub reason_hash: String,
}

/// A decision that stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    pub id: DecisionId,
    #[serde(flatten)]
    pub decision: Decision,
}

/// A statement's state: the fold of its stream, and the row of the table `bank_statements`.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    pub id: StatementId,
    pub version: i64,
    pub imported: StatementImported,
    /// By line.
    pub decisions: BTreeMap<i32, Decided>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Statement {
    /// Most lines of one statement.
    pub const MOST_LINES: usize = 50_000;

    /// Decides what a line is; none if just that was decided before.
    pub fn decide(
        &self,
        decision_id: DecisionId,
        line: i32,
        decision: Decision,
        reason_hash: String,
    ) -> Result<Option<ReconciliationEvent>, Rejection> {
        if !(1..=self.imported.lines).contains(&line) {
            return Err(Rejection::NotFound);
        }
        if let Some(known) = self.decisions.get(&line) {
            return if known.decision == decision {
                Ok(None)
            } else {
                Err(Rejection::Conflict("the line is decided already: revoke that decision first"))
            };
        }
        if decision != Decision::Ignored && self.decisions.values().any(|known| known.decision == decision) {
            return Err(Rejection::Conflict("another line was decided to be this one"));
        }
        Ok(Some(MatchDecided { decision_id, line, decision, reason_hash }.into()))
    }

    /// Takes the decision about a line back.
    pub fn revoke(&self, line: i32, reason_hash: String) -> Result<ReconciliationEvent, Rejection> {
        let known = self.decisions.get(&line).ok_or(Rejection::NotFound)?;
        Ok(MatchDecisionRevoked { decision_id: known.id, line, reason_hash }.into())
    }
}

/// The one fold of the reconciliation stream. `None` only before `StatementImported`.
pub fn evolve(state: Option<Statement>, id: StatementId, event: &ReconciliationEvent, at: &Moment) -> Option<Statement> {
    let mut statement = match (state, event) {
        (None, ReconciliationEvent::StatementImported(imported)) => Statement {
            id,
            version: at.version,
            imported: imported.clone(),
            decisions: BTreeMap::new(),
            created_at: at.recorded_at,
            updated_at: at.recorded_at,
        },
        (None, _) => return None,
        (Some(statement), _) => statement,
    };
    match event {
        // What lines say is not in the log; what was decided about them stays.
        ReconciliationEvent::StatementImported(_) | ReconciliationEvent::PersonalDataErased(_) => {}
        ReconciliationEvent::MatchDecided(e) => {
            statement.decisions.insert(e.line, Decided { id: e.decision_id, decision: e.decision });
        }
        ReconciliationEvent::MatchDecisionRevoked(e) => _ = statement.decisions.remove(&e.line),
    }
    statement.version = at.version;
    statement.updated_at = at.recorded_at;
    Some(statement)
}

crate::codec::stream_events! {
    /// What can happen to a bank's statement.
    ReconciliationEvent {
        StatementImported = 1,
        MatchDecided = 1,
        MatchDecisionRevoked = 1,
        PersonalDataErased = 1,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use uuid::Uuid;

    use super::*;

    fn at(version: i64) -> Moment {
        Moment { position: version, event_id: Uuid::nil(), version, recorded_at: DateTime::UNIX_EPOCH }
    }

    fn imported() -> Statement {
        let day = NaiveDate::from_ymd_opt(2026, 1, 31).unwrap();
        let event =
            StatementImported { format: StatementFormat::Csv, fingerprint: "f".into(), lines: 3, first_day: day, last_day: day };
        evolve(None, 4, &event.into(), &at(1)).unwrap()
    }

    fn after(statement: Statement, event: &ReconciliationEvent) -> Statement {
        let moment = at(statement.version + 1);
        evolve(Some(statement), 4, event, &moment).unwrap()
    }

    const FUNDING: Decision = Decision::Funding { transaction_id: 9 };

    #[test]
    fn a_line_is_decided_once_and_again_only_after_it_was_revoked() {
        let statement = imported();
        let event = statement.decide(1, 2, FUNDING, "h".into()).unwrap().unwrap();
        let statement = after(statement, &event);
        assert_eq!(statement.decide(2, 2, FUNDING, "h".into()), Ok(None), "the same again changes nothing");
        assert!(matches!(statement.decide(2, 2, Decision::Ignored, "h".into()), Err(Rejection::Conflict(_))));
        let revoked = statement.revoke(2, "h".into()).unwrap();
        let statement = after(statement, &revoked);
        assert_eq!(statement.revoke(2, "h".into()), Err(Rejection::NotFound));
        assert!(statement.decide(2, 2, Decision::Ignored, "h".into()).unwrap().is_some());
    }

    #[test]
    fn no_two_lines_are_one_funding_but_many_may_be_ignored() {
        let statement = imported();
        let event = statement.decide(1, 1, FUNDING, "h".into()).unwrap().unwrap();
        let statement = after(statement, &event);
        assert!(matches!(statement.decide(2, 2, FUNDING, "h".into()), Err(Rejection::Conflict(_))));
        let event = statement.decide(2, 2, Decision::Ignored, "h".into()).unwrap().unwrap();
        let statement = after(statement, &event);
        assert!(statement.decide(3, 3, Decision::Ignored, "h".into()).unwrap().is_some());
        for line in [0, 4] {
            assert_eq!(statement.decide(3, line, FUNDING, "h".into()), Err(Rejection::NotFound));
        }
    }
}
