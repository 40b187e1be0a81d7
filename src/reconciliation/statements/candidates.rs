//! Candidates for the lines of a statement: fundings, and payouts that were paid.

use bank_statements::lines::Direction;
use bank_statements::matching;
use chrono::{NaiveDate, NaiveTime, TimeDelta};
use ledger_database::PgPool;
use ledger_events::reconciliation::Decision;
use ledger_events::{AccountId, Id, Money, PayoutId, Position, ShardId, TransactionId, payout};
use rust_decimal::Decimal;

use super::StatementError;
use crate::ledger::reader;

/// A funding, or a payout that was paid, that a line can be matched with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Either [`Decision::Funding`] or [`Decision::Payout`].
    pub is: Decision,
    pub account_id: AccountId,
    pub position: Option<Position>,
    /// The side of it that the bank sees.
    pub entry: matching::Candidate,
}

/// Returns the fundings received and the payouts paid on these days, ordered by day.
pub(super) async fn on_days(
    pool: &PgPool,
    shards: &[ShardId],
    first: NaiveDate,
    last: NaiveDate,
    most: usize,
) -> Result<Vec<Candidate>, StatementError> {
    let (from, to) = (first.and_time(NaiveTime::MIN).and_utc(), (last + TimeDelta::days(1)).and_time(NaiveTime::MIN).and_utc());
    let limit = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
    let mut candidates = vec![];
    for shard in shards {
        let (after, end) = (reader::position_at(pool, *shard, from).await?, reader::position_at(pool, *shard, to).await?);
        let fundings: Vec<FundingRow> = sqlx::query_as(
            "SELECT id, position, account_id, amount, currency, reference, (created_at AT TIME ZONE 'UTC')::date AS day
             FROM wallet_transactions WHERE shard_id = $1 AND category = 'FUNDING' AND position >= $2 AND position < $3 ORDER BY position LIMIT $4",
        )
        .bind(shard)
        .bind(after)
        .bind(end)
        .bind(limit)
        .fetch_all(pool)
        .await?;
        let payouts: Vec<PayoutRow> = sqlx::query_as(
            "SELECT id, account_id, amount, currency, client_reference, (settled_at AT TIME ZONE 'UTC')::date AS day
             FROM payouts WHERE shard_id = $1 AND status = 'PAID' AND settled_at >= $2 AND settled_at < $3 ORDER BY settled_at LIMIT $4",
        )
        .bind(shard)
        .bind(from)
        .bind(to)
        .bind(limit)
        .fetch_all(pool)
        .await?;
        for funding in fundings {
            candidates.push(funding.candidate()?);
        }
        for payout in payouts {
            candidates.push(payout.candidate()?);
        }
        if candidates.len() > most {
            return Err(StatementError::TooMany(most));
        }
    }
    candidates.sort_by_key(|candidate| candidate.entry.day);
    Ok(candidates)
}

/// Returns an amount with exactly two decimals.
fn exact(amount: Decimal) -> Result<Decimal, sqlx::Error> {
    let amount = Money::try_from(amount).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(amount.decimal())
}

#[derive(ledger_database::FromRow)]
struct FundingRow {
    id: TransactionId,
    position: Position,
    account_id: AccountId,
    amount: Decimal,
    currency: String,
    reference: Option<String>,
    day: NaiveDate,
}

impl FundingRow {
    fn candidate(self) -> Result<Candidate, sqlx::Error> {
        Ok(Candidate {
            is: Decision::Funding { transaction_id: self.id },
            account_id: self.account_id,
            position: Some(self.position),
            entry: matching::Candidate {
                direction: Direction::Credit,
                amount: exact(self.amount)?,
                currency: self.currency,
                day: self.day,
                references: self.reference.into_iter().collect(),
                is_taken: false,
            },
        })
    }
}

#[derive(ledger_database::FromRow)]
struct PayoutRow {
    id: PayoutId,
    account_id: AccountId,
    amount: Decimal,
    currency: String,
    client_reference: Option<String>,
    day: NaiveDate,
}

impl PayoutRow {
    fn candidate(self) -> Result<Candidate, sqlx::Error> {
        Ok(Candidate {
            is: Decision::Payout { payout_id: self.id },
            account_id: self.account_id,
            position: None,
            entry: matching::Candidate {
                direction: Direction::Debit,
                amount: exact(self.amount)?,
                currency: self.currency,
                day: self.day,
                references: [payout::reference_code(self.id)].into_iter().chain(self.client_reference).collect(),
                is_taken: false,
            },
        })
    }
}

/// Returns whether one of these shards has the funding or payout that a person has assigned to a line.
pub async fn exists(pool: &PgPool, shards: &[ShardId], decision: Decision) -> Result<bool, sqlx::Error> {
    let (sql, id) = match decision {
        Decision::Ignored => return Ok(true),
        Decision::Funding { transaction_id } => (
            "SELECT EXISTS (SELECT FROM wallet_transactions WHERE shard_id = ANY($1) AND id = $2 AND category = 'FUNDING')",
            transaction_id.0,
        ),
        Decision::Payout { payout_id } => {
            ("SELECT EXISTS (SELECT FROM payouts WHERE shard_id = ANY($1) AND id = $2 AND status = 'PAID')", payout_id.0)
        }
    };
    sqlx::query_scalar(sql).bind(id.shards_among(shards)).bind(id).fetch_one(pool).await
}
