//! Erasure of personal data: finds a subject's data and destroys it.
//!
//! The log itself does not change: it contains counts, ids, and hashes whose salts are destroyed with the data. The
//! destroyed data is in the vault and in stored responses. It is destroyed in the transaction that appends the event of
//! the erasure. The files of the tables are rewritten afterwards (see [`wipe`]).

mod answers;
pub mod find;
pub mod orphans;
pub mod wipe;

use ledger_database::PgConnection;
use ledger_events::{AccountId, BeneficiaryId, Id, OrderId, Position, ShardId, StatementId, UserId, WebhookId};
use uuid::Uuid;

use super::texts::{
    ACCOUNT_NUMBER, CANCEL_REASON, DECISION_REASON, EMAIL, FAILURE_REASON, METADATA, PROFILE, REVOCATION_REASON, VaultError,
};
use crate::secrets::seal::Keyring;
use answers::Rewritten;

/// The entity whose personal data is to be erased.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// All data of a suspended account. This includes the texts of its orders and the codes of their vouchers, its
    /// webhooks, users and beneficiaries, and notes on its movements.
    Account(AccountId),
    /// The beneficiary's profile and account number, and the reasons why payouts to it failed.
    Beneficiary(BeneficiaryId),
    /// The order's metadata, the reason of its cancellation, and the codes of its vouchers.
    Order(OrderId),
    /// The user's email address and login.
    User(UserId),
    /// The content of one line of a bank statement, or of all its lines, and the reasons of people's decisions about
    /// them.
    Statement { id: StatementId, line: Option<i32> },
}

impl Subject {
    pub fn name(self) -> (&'static str, i64) {
        match self {
            Self::Account(id) => ("account", id.0),
            Self::Beneficiary(id) => ("beneficiary", id.0),
            Self::Order(id) => ("order", id.0),
            Self::User(id) => ("user", id.0),
            Self::Statement { id, .. } => ("statement", id.0),
        }
    }
}

/// The part of an account's data that one step erases. An account may have more data than one transaction should destroy.
/// The data is found outside the transaction; data that has disappeared by then is not counted.
#[derive(Clone, Debug, Default)]
pub struct Part {
    pub texts: Vec<(&'static str, i64)>,
    /// Ids of vouchers whose codes are not erased yet.
    pub vouchers: Vec<i64>,
    /// Set for the last step, which also erases users, beneficiaries, webhooks, responses and the account's own data key.
    pub is_last: bool,
}

/// Numbers of items that were erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub texts: i64,
    pub vouchers: i64,
    pub answers: i64,
    pub data_keys: i64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, more: Counts) {
        self.texts += more.texts;
        self.vouchers += more.vouchers;
        self.answers += more.answers;
        self.data_keys += more.data_keys;
    }
}

/// Result of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Erased {
    pub counts: Counts,
    /// Position and id of the event, or none if there was nothing left to erase.
    pub event: Option<(Position, Uuid)>,
}

/// Data of a subject that can be erased, found under the head lock.
#[derive(Debug, Default)]
pub struct Erasable {
    texts: Vec<(String, i64)>,
    vouchers: Vec<i64>,
    /// Fingerprint of the statement, and the numbers of the lines to erase.
    lines: (String, Vec<i32>),
    rewritten: Vec<Rewritten>,
    /// Keys whose stored responses are deleted completely, because their account can send no more requests.
    closed_keys: Vec<i64>,
    closed_answers: i64,
    keys: Vec<i64>,
    pub users: Vec<UserId>,
    pub beneficiaries: Vec<BeneficiaryId>,
    webhooks: Vec<WebhookId>,
    /// Whether a payout to the beneficiary is not settled yet.
    pub has_pending_payouts: bool,
    /// Whether nothing of the subject remains after this step.
    pub is_last: bool,
}

/// Query with one part for each kind of text, so that each part finds its rows by index.
const TEXTS_OF_BENEFICIARY: &str = "SELECT kind, id FROM vault.texts WHERE shard_id = $1 AND kind = ANY($3) AND id = $2
     UNION ALL
     SELECT t.kind, t.id FROM beneficiaries b
     JOIN payouts p ON p.shard_id = b.shard_id AND p.account_id = b.account_id AND p.beneficiary_id = b.id
     JOIN vault.texts t ON t.shard_id = p.shard_id AND t.kind = $4 AND t.id = p.id
     WHERE b.shard_id = $1 AND b.id = $2";

impl Erasable {
    /// Finds the data of a subject. For an account, finds the items of `part` that still exist.
    pub async fn load(
        conn: &mut PgConnection,
        keyring: &Keyring,
        shard: ShardId,
        subject: Subject,
        part: &Part,
    ) -> Result<Erasable, VaultError> {
        let mut found = Erasable { is_last: true, ..Erasable::default() };
        match subject {
            Subject::Beneficiary(id) => found.beneficiary(conn, keyring, shard, id).await?,
            Subject::Order(id) => found.order(conn, keyring, shard, id).await?,
            Subject::User(id) => {
                found.texts = texts(conn, shard, &[(EMAIL, id.0)]).await?;
                found.keys = keys(conn, shard, "user", &[id]).await?;
                found.users = vec![id];
            }
            Subject::Statement { id, line } => found.statement(conn, shard, id, line).await?,
            Subject::Account(id) => found.account(conn, shard, id, part).await?,
        }
        Ok(found)
    }

    async fn beneficiary(
        &mut self,
        conn: &mut PgConnection,
        keyring: &Keyring,
        shard: ShardId,
        id: BeneficiaryId,
    ) -> Result<(), VaultError> {
        self.texts = sqlx::query_as(TEXTS_OF_BENEFICIARY)
            .bind(shard)
            .bind(id)
            .bind(vec![PROFILE, ACCOUNT_NUMBER])
            .bind(FAILURE_REASON)
            .fetch_all(&mut *conn)
            .await?;
        self.has_pending_payouts = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM payouts WHERE shard_id = $1 AND beneficiary_id = $2 AND status = 'PENDING')",
        )
        .bind(shard)
        .bind(id)
        .fetch_one(&mut *conn)
        .await?;
        self.keys = keys(conn, shard, "beneficiary", &[id]).await?;
        self.rewritten = answers::under(conn, keyring, shard, &self.keys, None).await?;
        Ok(())
    }

    async fn order(&mut self, conn: &mut PgConnection, keyring: &Keyring, shard: ShardId, id: OrderId) -> Result<(), VaultError> {
        self.texts = texts(conn, shard, &[(METADATA, id.0), (CANCEL_REASON, id.0)]).await?;
        self.vouchers = sqlx::query_scalar(
            "SELECT id FROM vault.vouchers WHERE shard_id = $1 AND order_id = $2 AND sealed IS NOT NULL ORDER BY id",
        )
        .bind(shard)
        .bind(id)
        .fetch_all(&mut *conn)
        .await?;
        self.keys = keys(conn, shard, "voucher", &self.vouchers).await?;
        let account: Option<AccountId> = sqlx::query_scalar("SELECT account_id FROM orders WHERE shard_id = $1 AND id = $2")
            .bind(shard)
            .bind(id)
            .fetch_optional(&mut *conn)
            .await?;
        let accounts: Vec<AccountId> = account.into_iter().collect();
        let of_account = keys(conn, shard, "account", &accounts).await?;
        self.rewritten = answers::under(conn, keyring, shard, &of_account, Some(id.0)).await?;
        Ok(())
    }

    /// Finds the items of a part that still exist. The last part also has the data of the account itself.
    async fn account(&mut self, conn: &mut PgConnection, shard: ShardId, id: AccountId, part: &Part) -> Result<(), sqlx::Error> {
        self.is_last = part.is_last;
        self.texts = texts(conn, shard, &part.texts).await?;
        self.vouchers = sqlx::query_scalar(
            "SELECT v.id FROM unnest($2::bigint[]) AS wanted (id) JOIN vault.vouchers v ON v.shard_id = $1 AND v.id = wanted.id
                     WHERE v.order_id IS NOT NULL AND v.sealed IS NOT NULL",
        )
        .bind(shard)
        .bind(&part.vouchers)
        .fetch_all(&mut *conn)
        .await?;
        self.keys = keys(conn, shard, "voucher", &self.vouchers).await?;
        if part.is_last {
            self.close(conn, shard, id).await?;
        }
        Ok(())
    }

    /// Finds the lines of a statement, and the reasons of all decisions about them, including revoked ones.
    async fn statement(
        &mut self,
        conn: &mut PgConnection,
        shard: ShardId,
        id: StatementId,
        line: Option<i32>,
    ) -> Result<(), sqlx::Error> {
        let is_wanted = |of: i32| line.is_none_or(|line| line == of);
        let lines: Vec<(String, i32)> = sqlx::query_as(
            "SELECT l.fingerprint, l.line FROM bank_statements s
             JOIN vault.statement_lines l ON l.shard_id = s.shard_id AND l.fingerprint = s.fingerprint
             WHERE s.shard_id = $1 AND s.id = $2 ORDER BY l.line",
        )
        .bind(shard)
        .bind(id)
        .fetch_all(&mut *conn)
        .await?;
        let texts: Vec<(String, i64, i32)> = sqlx::query_as(
            "SELECT t.kind, t.id, decided.line FROM (
                SELECT DISTINCT (data->>'decision_id')::bigint AS id, (data->>'line')::int AS line FROM events
                WHERE shard_id = $1 AND stream_type = 'reconciliation' AND stream_id = $2 AND type = 'MatchDecided') AS decided
             JOIN vault.texts t ON t.shard_id = $1 AND t.kind = ANY($3) AND t.id = decided.id",
        )
        .bind(shard)
        .bind(id)
        .bind(vec![DECISION_REASON, REVOCATION_REASON])
        .fetch_all(conn)
        .await?;
        // When one line is erased, this is the last step only if the line is all that remained.
        self.is_last = lines.iter().all(|(_, of)| is_wanted(*of)) && texts.iter().all(|(.., of)| is_wanted(*of));
        for (fingerprint, line) in lines.into_iter().filter(|(_, of)| is_wanted(*of)) {
            self.lines.0 = fingerprint;
            self.lines.1.push(line);
        }
        self.texts = texts.into_iter().filter(|(.., of)| is_wanted(*of)).map(|(kind, id, _)| (kind, id)).collect();
        Ok(())
    }

    /// Finds the data that is erased with the account itself.
    async fn close(&mut self, conn: &mut PgConnection, shard: ShardId, id: AccountId) -> Result<(), sqlx::Error> {
        self.users = sqlx::query_scalar("SELECT id FROM users WHERE shard_id = $1 AND account_id = $2 ORDER BY id")
            .bind(shard)
            .bind(id)
            .fetch_all(&mut *conn)
            .await?;
        self.beneficiaries = sqlx::query_scalar(
            "SELECT id FROM beneficiaries WHERE shard_id = $1 AND account_id = $2 AND NOT is_deleted ORDER BY id",
        )
        .bind(shard)
        .bind(id)
        .fetch_all(&mut *conn)
        .await?;
        self.webhooks = sqlx::query_scalar("SELECT id FROM webhooks WHERE shard_id = $1 AND account_id = $2")
            .bind(shard)
            .bind(id)
            .fetch_all(&mut *conn)
            .await?;
        let of_beneficiaries: Vec<i64> = sqlx::query_scalar(
            "SELECT k.id FROM beneficiaries b JOIN vault.data_keys k ON k.shard_id = b.shard_id AND k.subject = 'beneficiary' AND k.subject_id = b.id
             WHERE b.shard_id = $1 AND b.account_id = $2",
        )
        .bind(shard)
        .bind(id)
        .fetch_all(&mut *conn)
        .await?;
        self.closed_keys = keys(conn, shard, "account", &[id]).await?;
        self.closed_keys.extend(of_beneficiaries);
        self.closed_answers =
            sqlx::query_scalar("SELECT count(*) FROM idempotency_keys WHERE shard_id = $1 AND key_id = ANY($2)")
                .bind(shard)
                .bind(&self.closed_keys)
                .fetch_one(&mut *conn)
                .await?;
        self.keys.extend_from_slice(&self.closed_keys);
        self.keys.extend(keys(conn, shard, "user", &self.users).await?);
        Ok(())
    }

    pub fn counts(&self) -> Counts {
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        Counts {
            texts: count(self.texts.len() + self.lines.1.len()),
            vouchers: count(self.vouchers.len()),
            answers: count(self.rewritten.len()) + self.closed_answers,
            data_keys: count(self.keys.len()),
        }
    }

    /// Returns whether neither the vault nor a stored response has any data of the subject.
    pub fn is_empty(&self) -> bool {
        self.counts() == Counts::default()
    }

    /// Destroys the data in the writer's transaction, and records the tables whose files must be rewritten.
    pub async fn destroy(&self, conn: &mut PgConnection, shard: ShardId) -> Result<(), sqlx::Error> {
        let mut touched = vec![];
        if !self.texts.is_empty() {
            touched.push("vault.texts");
            let (kinds, ids): (Vec<&str>, Vec<i64>) = self.texts.iter().map(|(kind, id)| (&**kind, *id)).unzip();
            let delete = "DELETE FROM vault.texts t USING unnest($2::text[], $3::bigint[]) AS gone (kind, id)
                          WHERE t.shard_id = $1 AND t.kind = gone.kind AND t.id = gone.id";
            expect(self.texts.len(), sqlx::query(delete).bind(shard).bind(kinds).bind(ids).execute(&mut *conn).await?)?;
        }
        if !self.lines.1.is_empty() {
            touched.push("vault.statement_lines");
            let delete = "DELETE FROM vault.statement_lines WHERE shard_id = $1 AND fingerprint = $2 AND line = ANY($3)";
            let (fingerprint, lines) = &self.lines;
            expect(lines.len(), sqlx::query(delete).bind(shard).bind(fingerprint).bind(lines).execute(&mut *conn).await?)?;
        }
        if !self.vouchers.is_empty() {
            touched.push("vault.vouchers");
            let update = "UPDATE vault.vouchers v SET sealed = NULL, fingerprint = NULL, key_id = NULL
                          FROM unnest($2::bigint[]) AS gone (id) WHERE v.shard_id = $1 AND v.id = gone.id";
            expect(self.vouchers.len(), sqlx::query(update).bind(shard).bind(&self.vouchers).execute(&mut *conn).await?)?;
        }
        if !self.rewritten.is_empty() || self.closed_answers > 0 {
            touched.push("public.idempotency_keys");
            answers::replace(conn, shard, &self.rewritten).await?;
            sqlx::query("DELETE FROM idempotency_keys WHERE shard_id = $1 AND key_id = ANY($2)")
                .bind(shard)
                .bind(&self.closed_keys)
                .execute(&mut *conn)
                .await?;
        }
        if !self.keys.is_empty() {
            touched.push("vault.data_keys");
            let delete =
                "DELETE FROM vault.data_keys k USING unnest($2::bigint[]) AS gone (id) WHERE k.shard_id = $1 AND k.id = gone.id";
            expect(self.keys.len(), sqlx::query(delete).bind(shard).bind(&self.keys).execute(&mut *conn).await?)?;
        }
        if !self.users.is_empty() {
            touched.extend([
                "vault.users",
                "vault.sessions",
                "vault.refresh_tokens",
                "vault.refresh_token_macs",
                "vault.login_sources",
                "vault.session_details",
                "vault.two_factor",
                "vault.invitations",
                "vault.mails",
            ]);
            // Deleting a session also deletes its refresh tokens and its details. Deleting the user deletes the networks of
            // its logins, its second factor, its mails, and its invitations of others.
            sqlx::query("DELETE FROM vault.sessions WHERE user_id = ANY($1)").bind(&self.users).execute(&mut *conn).await?;
        }
        if !self.webhooks.is_empty() {
            let of_attempts = "UPDATE delivery_attempts SET response_body = NULL
                               WHERE shard_id = $1 AND webhook_id = ANY($2) AND response_body IS NOT NULL";
            let of_deliveries = "UPDATE delivery_state SET response_body = NULL
                                 WHERE shard_id = $1 AND webhook_id = ANY($2) AND response_body IS NOT NULL";
            for (table, update) in [("public.delivery_attempts", of_attempts), ("public.delivery_state", of_deliveries)] {
                let bodies = sqlx::query(update).bind(shard).bind(&self.webhooks).execute(&mut *conn).await?;
                touched.extend((bodies.rows_affected() > 0).then_some(table));
            }
        }
        wipe::note(conn, &touched).await
    }
}

/// Checks that a statement destroyed as many rows as the event counts.
fn expect(expected: usize, done: sqlx::postgres::PgQueryResult) -> Result<(), sqlx::Error> {
    match usize::try_from(done.rows_affected()) {
        Ok(rows) if rows == expected => Ok(()),
        _ => Err(sqlx::Error::RowNotFound),
    }
}

/// Returns those of these texts that exist.
async fn texts(
    conn: &mut PgConnection,
    shard: ShardId,
    wanted: &[(&'static str, i64)],
) -> Result<Vec<(String, i64)>, sqlx::Error> {
    let (kinds, ids): (Vec<&str>, Vec<i64>) = wanted.iter().copied().unzip();
    sqlx::query_as(
        "SELECT t.kind, t.id FROM unnest($2::text[], $3::bigint[]) AS wanted (kind, id)
         JOIN vault.texts t ON t.shard_id = $1 AND t.kind = wanted.kind AND t.id = wanted.id",
    )
    .bind(shard)
    .bind(kinds)
    .bind(ids)
    .fetch_all(conn)
    .await
}

/// Returns the ids of the data keys of these subjects.
async fn keys(conn: &mut PgConnection, shard: ShardId, subject: &str, ids: &[impl Id]) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT k.id FROM unnest($3::bigint[]) AS wanted (id)
         JOIN vault.data_keys k ON k.shard_id = $1 AND k.subject = $2 AND k.subject_id = wanted.id",
    )
    .bind(shard)
    .bind(subject)
    .bind(ids.iter().map(|id| id.number()).collect::<Vec<_>>())
    .fetch_all(conn)
    .await
}
