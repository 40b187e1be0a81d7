//! Finds an account's data page by page, in short statements outside the writer's transaction.

use ledger_database::{PgConnection, PgPool};
use ledger_events::{AccountId, Position, ShardId};

use super::Part;
use crate::ledger::texts::{
    ACCOUNT_NUMBER, APPROVAL_NOTE, APPROVAL_REASON, CANCEL_REASON, CREDENTIAL_PREVIOUS_SECRET, EMAIL, FAILURE_REASON, METADATA,
    NOTE, PROFILE, WEBHOOK_HEADERS, WEBHOOK_NAME, WEBHOOK_PREVIOUS_TOKEN, WEBHOOK_TOKEN, WEBHOOK_URL,
};

/// Number of orders, movements or payouts per statement, and the largest number that a step erases. An order can have a
/// hundred vouchers, and the head is locked while they are erased.
const PAGE: i64 = 500;

/// Returns the reason why an account cannot be erased now, or none. A suspended account cannot start anything new, so no
/// obstacle appears later.
pub async fn obstacle(pool: &PgPool, shard: ShardId, account: AccountId) -> Result<Option<&'static str>, sqlx::Error> {
    let (has_orders, has_payouts): (bool, bool) = sqlx::query_as(
        "SELECT EXISTS (SELECT FROM orders WHERE shard_id = $1 AND account_id = $2 AND status IN ('PENDING', 'DELAYED', 'PARTIALLY_DELIVERED')),
            EXISTS (SELECT FROM payouts WHERE shard_id = $1 AND account_id = $2 AND status = 'PENDING')",
    )
    .bind(shard)
    .bind(account)
    .fetch_one(pool)
    .await?;
    Ok(match (has_orders, has_payouts) {
        (true, _) => Some("the account has orders that are neither delivered nor cancelled"),
        (_, true) => Some("the account has payouts that are not settled"),
        _ => None,
    })
}

/// Iterates over an account's data.
#[derive(Debug)]
pub struct Finder {
    shard: ShardId,
    account: AccountId,
    stage: Stage,
    after: Position,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Orders,
    Movements,
    Payouts,
    Approvals,
    Rest,
    Done,
}

impl Finder {
    pub fn new(shard: ShardId, account: AccountId) -> Finder {
        Finder { shard, account, stage: Stage::Orders, after: 0 }
    }

    /// Returns the next part that contains data, or the last part even if it is empty. Returns none after the last part.
    pub async fn next(&mut self, pool: &PgPool) -> Result<Option<Part>, sqlx::Error> {
        let mut conn = pool.acquire().await?;
        loop {
            let part = match self.stage {
                Stage::Orders => {
                    // Every order has a debit, which was appended with it.
                    let page = self.page(&mut conn, "SELECT position, order_id FROM wallet_transactions WHERE shard_id = $1 AND account_id = $2 AND position > $3 AND type = 'DEBIT' AND order_id IS NOT NULL ORDER BY position LIMIT $4", Stage::Movements).await?;
                    let texts = present(&mut conn, self.shard, &[METADATA, CANCEL_REASON], &page).await?;
                    let vouchers = sqlx::query_scalar(
                        "SELECT v.id FROM unnest($2::bigint[]) AS o (id) JOIN vault.vouchers v ON v.shard_id = $1 AND v.order_id = o.id
                         WHERE v.sealed IS NOT NULL",
                    )
                    .bind(self.shard)
                    .bind(&page)
                    .fetch_all(&mut *conn)
                    .await?;
                    Part { texts, vouchers, is_last: false }
                }
                Stage::Movements => {
                    // Only these movements have notes.
                    let page = self.page(&mut conn, "SELECT position, id FROM wallet_transactions WHERE shard_id = $1 AND account_id = $2 AND position > $3 AND category IN ('FUNDING', 'ADJUSTMENT') ORDER BY position LIMIT $4", Stage::Payouts).await?;
                    Part { texts: present(&mut conn, self.shard, &[NOTE], &page).await?, ..Part::default() }
                }
                Stage::Payouts => {
                    let page = self
                        .page(
                            &mut conn,
                            "SELECT id, id FROM payouts WHERE shard_id = $1 AND account_id = $2 AND id > $3 ORDER BY id LIMIT $4",
                            Stage::Approvals,
                        )
                        .await?;
                    Part { texts: present(&mut conn, self.shard, &[FAILURE_REASON], &page).await?, ..Part::default() }
                }
                Stage::Approvals => {
                    let sql =
                        "SELECT id, id FROM approvals WHERE shard_id = $1 AND account_id = $2 AND id > $3 ORDER BY id LIMIT $4";
                    let page = self.page(&mut conn, sql, Stage::Rest).await?;
                    let texts = present(&mut conn, self.shard, &[APPROVAL_NOTE, APPROVAL_REASON], &page).await?;
                    Part { texts, ..Part::default() }
                }
                Stage::Rest => {
                    self.stage = Stage::Done;
                    return Ok(Some(self.rest(&mut conn).await?));
                }
                Stage::Done => return Ok(None),
            };
            if !part.texts.is_empty() || !part.vouchers.is_empty() {
                return Ok(Some(part));
            }
        }
    }

    /// Returns the ids of the next page of rows. Moves to the next stage after the last page.
    async fn page(&mut self, conn: &mut PgConnection, sql: &'static str, next: Stage) -> Result<Vec<i64>, sqlx::Error> {
        let page: Vec<(Position, i64)> =
            sqlx::query_as(sql).bind(self.shard).bind(self.account).bind(self.after).bind(PAGE).fetch_all(conn).await?;
        match page.last() {
            Some((position, _)) if i64::try_from(page.len()).is_ok_and(|rows| rows == PAGE) => self.after = *position,
            _ => (self.stage, self.after) = (next, 0),
        }
        Ok(page.into_iter().map(|(_, id)| id).collect())
    }

    async fn rest(&self, conn: &mut PgConnection) -> Result<Part, sqlx::Error> {
        let mut texts = vec![];
        for (sql, kinds) in [
            ("SELECT id FROM credentials WHERE shard_id = $1 AND account_id = $2", &[CREDENTIAL_PREVIOUS_SECRET][..]),
            (
                "SELECT id FROM webhooks WHERE shard_id = $1 AND account_id = $2",
                &[WEBHOOK_NAME, WEBHOOK_URL, WEBHOOK_TOKEN, WEBHOOK_PREVIOUS_TOKEN, WEBHOOK_HEADERS][..],
            ),
            ("SELECT id FROM users WHERE shard_id = $1 AND account_id = $2", &[EMAIL][..]),
            ("SELECT id FROM beneficiaries WHERE shard_id = $1 AND account_id = $2", &[PROFILE, ACCOUNT_NUMBER][..]),
        ] {
            let ids: Vec<i64> = sqlx::query_scalar(sql).bind(self.shard).bind(self.account).fetch_all(&mut *conn).await?;
            texts.extend(present(conn, self.shard, kinds, &ids).await?);
        }
        Ok(Part { texts, vouchers: vec![], is_last: true })
    }
}

/// Returns those of these texts that exist.
async fn present(
    conn: &mut PgConnection,
    shard: ShardId,
    kinds: &[&'static str],
    ids: &[i64],
) -> Result<Vec<(&'static str, i64)>, sqlx::Error> {
    let found: Vec<(String, i64)> = sqlx::query_as(
        "SELECT t.kind, t.id FROM unnest($3::bigint[]) AS wanted (id)
         JOIN vault.texts t ON t.shard_id = $1 AND t.kind = ANY($2) AND t.id = wanted.id",
    )
    .bind(shard)
    .bind(kinds)
    .bind(ids)
    .fetch_all(conn)
    .await?;
    let known = |kind: &str| kinds.iter().copied().find(|known| *known == kind);
    Ok(found.into_iter().filter_map(|(kind, id)| Some((known(&kind)?, id))).collect())
}
