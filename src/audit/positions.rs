//! Audit of the log in the order of its positions. It reports gaps, times that decrease, payloads that cannot be decoded,
//! and references to missing events. Movements of money must directly follow the events that require them.
//!
//! Uniqueness of event ids needs no check: the key `events_event_id_key` guarantees it.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::beneficiary::BeneficiaryEvent;
use ledger_events::order::OrderEvent;
use ledger_events::payout::PayoutEvent;
use ledger_events::wallet::WalletEvent;
use ledger_events::{AccountId, BeneficiaryId, Currency, Event, Position, Recorded, ShardId, WalletId};
use uuid::Uuid;

use super::rules::ExpectedMovement;
use super::visitor::{Page, Visitor};
use super::{AuditError, Difference, Findings};
use crate::ledger::reader::{ReadError, Stored};

/// Returns the end of the log for this audit. Later events belong to the next audit.
pub async fn head(conn: &mut PgConnection, shard: ShardId, findings: &mut Findings) -> Result<Position, sqlx::Error> {
    let (head, said, last, recorded_at): (Position, DateTime<Utc>, Position, DateTime<Utc>) = sqlx::query_as(
        "SELECT h.position, h.recorded_at, coalesce(e.position, 0), coalesce(e.recorded_at, h.recorded_at) FROM log_head h
         LEFT JOIN LATERAL (SELECT position, recorded_at FROM events WHERE shard_id = h.shard_id ORDER BY position DESC LIMIT 1) AS e ON true
         WHERE h.shard_id = $1",
    )
    .bind(shard)
    .fetch_one(conn)
    .await?;
    if head != last {
        findings.add(Difference::Head { shard, head, last });
    }
    if said < recorded_at {
        findings.add(Difference::Time { shard, position: last + 1, recorded_at: said, before: recorded_at });
    }
    Ok(head.max(last))
}

/// Visitor that checks positions 1 to `head`.
#[derive(Debug)]
pub struct Log {
    walk: SequenceCheck,
    head: Position,
    events: u64,
}

impl Log {
    pub fn new(shard: ShardId, head: Position) -> Log {
        Log { walk: SequenceCheck::new(shard), head, events: 0 }
    }

    /// Returns the last position to check.
    pub fn head(&self) -> Position {
        self.head
    }

    /// Reports a movement that was still required at the end. Returns the number of events.
    pub fn end(mut self, findings: &mut Findings) -> u64 {
        self.walk.settle(None, findings);
        self.events
    }
}

impl Visitor for Log {
    async fn visit(&mut self, conn: &mut PgConnection, page: &Page, findings: &mut Findings) -> Result<(), AuditError> {
        let mut readable = Vec::with_capacity(page.events().len());
        for (stored, decoded) in page.events().iter().filter(|(stored, _)| stored.position <= self.head) {
            self.events += 1;
            self.walk.see(stored, decoded.as_ref(), findings);
            readable.extend(decoded.as_ref().ok());
        }
        Ok(references(conn, self.walk.shard, &readable, findings).await?)
    }

    fn is_done(&self) -> bool {
        self.walk.last >= self.head
    }
}

/// State of the walk from one event to the next, in the order of positions.
#[derive(Debug)]
pub struct SequenceCheck {
    shard: ShardId,
    last: Position,
    time: Option<DateTime<Utc>>,
    expected: Option<ExpectedMovement>,
    /// Account and currency of each wallet.
    wallets: HashMap<WalletId, (AccountId, Currency)>,
    /// Account and currency of each beneficiary that is not deleted.
    beneficiaries: HashMap<BeneficiaryId, (AccountId, Currency)>,
}

impl SequenceCheck {
    pub fn new(shard: ShardId) -> SequenceCheck {
        SequenceCheck { shard, last: 0, time: None, expected: None, wallets: HashMap::new(), beneficiaries: HashMap::new() }
    }

    /// Reports the problems of the next event. Returns the event if it can be decoded.
    pub fn step(&mut self, stored: &Stored, findings: &mut Findings) -> Option<Recorded> {
        let decoded = stored.decode();
        self.see(stored, decoded.as_ref(), findings);
        decoded.ok()
    }

    /// Reports the problems of the next event, which the caller has decoded.
    fn see(&mut self, stored: &Stored, decoded: Result<&Recorded, &ReadError>, findings: &mut Findings) {
        let (shard, position) = (self.shard, stored.position);
        if position != self.last + 1 {
            findings.add(Difference::Gap { shard, after: self.last, next: position });
        }
        self.last = position;
        if let Some(before) = self.time.filter(|before| stored.recorded_at < *before) {
            findings.add(Difference::Time { shard, position, recorded_at: stored.recorded_at, before });
        }
        self.time = Some(stored.recorded_at);
        let recorded = match decoded {
            Ok(recorded) => recorded,
            Err(error) => {
                findings.add(Difference::Unreadable { shard, position, problem: error.to_string() });
                self.settle(None, findings);
                return;
            }
        };
        self.settle(Some(recorded), findings);
        self.expected = ExpectedMovement::by(recorded);
        if let Some(problem) = self.wrong_party(recorded) {
            let (stream, id) = (recorded.stream_type.as_str(), recorded.stream_id);
            findings.add(Difference::Rule { shard, stream, id, position, problem });
        }
    }

    /// Checks that an order or payout uses a wallet of its own account and currency. A payout's beneficiary must have the
    /// same account and currency.
    fn wrong_party(&mut self, recorded: &Recorded) -> Option<String> {
        let id = recorded.stream_id;
        let wrong = |kind: &str, id: i64, account: AccountId, currency: Currency| {
            Some(format!("{kind} {id} does not belong to account {account} in {currency}"))
        };
        match &recorded.event {
            Event::Wallet(WalletEvent::WalletOpened(e)) => _ = self.wallets.insert(WalletId(id), (e.account_id, e.currency)),
            Event::Beneficiary(BeneficiaryEvent::BeneficiaryAdded(e)) => {
                _ = self.beneficiaries.insert(BeneficiaryId(id), (e.account_id, e.currency));
            }
            Event::Beneficiary(BeneficiaryEvent::BeneficiaryDeleted(_)) => _ = self.beneficiaries.remove(&BeneficiaryId(id)),
            Event::Order(OrderEvent::OrderPlaced(e)) if self.wallets.get(&e.wallet_id) != Some(&(e.account_id, e.currency)) => {
                return wrong("wallet", e.wallet_id.0, e.account_id, e.currency);
            }
            Event::Payout(PayoutEvent::PayoutRequested(e)) => {
                let party = Some(&(e.account_id, e.currency));
                if self.wallets.get(&e.wallet_id) != party {
                    return wrong("wallet", e.wallet_id.0, e.account_id, e.currency);
                }
                if self.beneficiaries.get(&e.beneficiary_id) != party {
                    return wrong("beneficiary", e.beneficiary_id.0, e.account_id, e.currency);
                }
            }
            _ => {}
        }
        None
    }

    /// Checks that this event is the required movement, and that no other event looks like one.
    pub fn settle(&mut self, next: Option<&Recorded>, findings: &mut Findings) {
        let shard = self.shard;
        let problem = match self.expected.take() {
            Some(expected) => match expected.unmet_by(next) {
                Some(problem) => {
                    let (stream, id, position) = (expected.stream.as_str(), expected.id, expected.position);
                    findings.add(Difference::Rule { shard, stream, id, position, problem });
                    next.and_then(ExpectedMovement::unexpected)
                }
                None => None,
            },
            None => next.and_then(ExpectedMovement::unexpected),
        };
        if let (Some(problem), Some(next)) = (problem, next) {
            let (id, position) = (next.stream_id, next.moment.position);
            findings.add(Difference::Rule { shard, stream: "wallet", id, position, problem });
        }
    }
}

/// Checks that causation and correlation ids refer to earlier events, or to the event itself.
async fn references(
    conn: &mut PgConnection,
    shard: ShardId,
    page: &[&Recorded],
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    let here: HashMap<Uuid, Position> = page.iter().map(|r| (r.moment.event_id, r.moment.position)).collect();
    let named = |r: &Recorded| {
        [("correlation_id", Some(r.metadata.correlation_id)), ("causation_id", r.metadata.causation_id)]
            .into_iter()
            .filter_map(|(field, id)| Some((field, id?)))
            .collect::<Vec<_>>()
    };
    let mut elsewhere: Vec<Uuid> =
        page.iter().copied().flat_map(named).map(|(_, id)| id).filter(|id| !here.contains_key(id)).collect();
    elsewhere.sort_unstable();
    elsewhere.dedup();
    let found: HashMap<Uuid, Position> = if elsewhere.is_empty() {
        HashMap::new()
    } else {
        let rows: Vec<(Uuid, Position)> =
            sqlx::query_as("SELECT event_id, position FROM events WHERE shard_id = $1 AND event_id = ANY($2)")
                .bind(shard)
                .bind(elsewhere)
                .fetch_all(conn)
                .await?;
        rows.into_iter().collect()
    };
    for recorded in page {
        let position = recorded.moment.position;
        for (field, event_id) in named(recorded) {
            let is_earlier = here.get(&event_id).or_else(|| found.get(&event_id)).is_some_and(|at| *at <= position);
            if !is_earlier {
                findings.add(Difference::Reference { shard, position, field, event_id });
            }
        }
    }
    Ok(())
}
