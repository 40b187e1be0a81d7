//! The reconciliation stream: the import of a statement from a bank or payment processor, and people's decisions
//! about its lines.
//!
//! The vault stores the sealed lines and the reasons. Matches that follow from the lines and the log alone are no
//! events: each request computes them.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};

use crate::erasure::PersonalDataErased;
use crate::{DecisionId, Moment, PayoutId, Rejection, StatementId, TransactionId};

/// File format of a statement.
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

/// An imported statement. Each file can be imported only once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatementImported {
    pub format: StatementFormat,
    /// Keyed SHA-256 (hex) of the file. The vault stores the lines under it.
    pub fingerprint: String,
    /// Number of lines. Lines are numbered from 1.
    pub lines: i32,
    /// First booking day of the lines.
    pub first_day: NaiveDate,
    /// Last booking day of the lines.
    pub last_day: NaiveDate,
}

/// A person's decision about the meaning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Decision {
    /// The line is the money of this funding.
    Funding { transaction_id: TransactionId },
    /// The line is the money of this payout.
    Payout { payout_id: PayoutId },
    /// The line does not concern the ledger, for example a bank fee or interest.
    Ignored,
}

/// A recorded decision about a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatchDecided {
    pub decision_id: DecisionId,
    pub line: i32,
    #[serde(flatten)]
    pub decision: Decision,
    /// SHA-256 (hex) over a salt and the reason. The vault stores both.
    pub reason_hash: String,
}

/// A revocation of a decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatchDecisionRevoked {
    pub decision_id: DecisionId,
    pub line: i32,
    /// SHA-256 (hex) over a salt and the reason. The vault stores both.
    pub reason_hash: String,
}

/// A decision in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided {
    pub id: DecisionId,
    #[serde(flatten)]
    pub decision: Decision,
}

/// State of a statement: the fold of its stream, and the row of the table `bank_statements`.
#[derive(Clone, Debug, PartialEq)]
pub struct BankStatement {
    pub id: StatementId,
    pub version: i64,
    pub imported: StatementImported,
    /// Decisions in force, by line number.
    pub decisions: BTreeMap<i32, Decided>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl BankStatement {
    /// Decides the meaning of a line. Returns `None` if the same decision is already in force.
    ///
    /// # Errors
    /// Fails if the line does not exist, has another decision, or names a funding or payout that another line
    /// already matches.
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
                Err(Rejection::Conflict("the line already has another decision: revoke that decision first"))
            };
        }
        if decision != Decision::Ignored && self.decisions.values().any(|known| known.decision == decision) {
            return Err(Rejection::Conflict("another line of the statement is already matched to this funding or payout"));
        }
        Ok(Some(MatchDecided { decision_id, line, decision, reason_hash }.into()))
    }

    /// Revokes the decision about a line.
    ///
    /// # Errors
    /// Fails with [`Rejection::NotFound`] if the line has no decision.
    pub fn revoke(&self, line: i32, reason_hash: String) -> Result<ReconciliationEvent, Rejection> {
        let known = self.decisions.get(&line).ok_or(Rejection::NotFound)?;
        Ok(MatchDecisionRevoked { decision_id: known.id, line, reason_hash }.into())
    }
}

/// Folds an event into the state. This is the only fold of the reconciliation stream. Returns `None` only before
/// `StatementImported`.
pub fn evolve(state: Option<BankStatement>, id: StatementId, event: &ReconciliationEvent, at: &Moment) -> Option<BankStatement> {
    let mut statement = match (state, event) {
        (None, ReconciliationEvent::StatementImported(imported)) => BankStatement {
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
        // The log does not contain the lines, so an erasure leaves the decisions in place.
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
    /// Events of a bank statement.
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

    fn imported() -> BankStatement {
        let day = NaiveDate::from_ymd_opt(2026, 1, 31).unwrap();
        let event =
            StatementImported { format: StatementFormat::Csv, fingerprint: "f".into(), lines: 3, first_day: day, last_day: day };
        evolve(None, StatementId(4), &event.into(), &at(1)).unwrap()
    }

    fn after(statement: BankStatement, event: &ReconciliationEvent) -> BankStatement {
        let moment = at(statement.version + 1);
        evolve(Some(statement), StatementId(4), event, &moment).unwrap()
    }

    const FUNDING: Decision = Decision::Funding { transaction_id: TransactionId(9) };

    #[test]
    fn a_line_accepts_another_decision_only_after_a_revocation() {
        let statement = imported();
        let event = statement.decide(DecisionId(1), 2, FUNDING, "h".into()).unwrap().unwrap();
        let statement = after(statement, &event);
        assert_eq!(statement.decide(DecisionId(2), 2, FUNDING, "h".into()), Ok(None), "repeating a decision changes nothing");
        assert!(matches!(statement.decide(DecisionId(2), 2, Decision::Ignored, "h".into()), Err(Rejection::Conflict(_))));
        let revoked = statement.revoke(2, "h".into()).unwrap();
        let statement = after(statement, &revoked);
        assert_eq!(statement.revoke(2, "h".into()), Err(Rejection::NotFound));
        assert!(statement.decide(DecisionId(2), 2, Decision::Ignored, "h".into()).unwrap().is_some());
    }

    #[test]
    fn only_one_line_matches_a_funding_but_many_lines_can_be_ignored() {
        let statement = imported();
        let event = statement.decide(DecisionId(1), 1, FUNDING, "h".into()).unwrap().unwrap();
        let statement = after(statement, &event);
        assert!(matches!(statement.decide(DecisionId(2), 2, FUNDING, "h".into()), Err(Rejection::Conflict(_))));
        let event = statement.decide(DecisionId(2), 2, Decision::Ignored, "h".into()).unwrap().unwrap();
        let statement = after(statement, &event);
        assert!(statement.decide(DecisionId(3), 3, Decision::Ignored, "h".into()).unwrap().is_some());
        for line in [0, 4] {
            assert_eq!(statement.decide(DecisionId(3), line, FUNDING, "h".into()), Err(Rejection::NotFound));
        }
    }
}
