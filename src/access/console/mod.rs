//! Sessions of the console. Operators' users sign in with a password and a second factor, or through OpenID Connect.
//!
//! Every request looks up its cookie. So the end of a session, a removal or a new role applies to the very next request, on
//! every node. All times are those of the database's clock.

mod listing;
mod second_factor;

use std::net::IpAddr;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_database::{FromRow, PgPool, replanned};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::gate::LoginBudget;
use super::passwords::{Lane, Passwords};
use super::sessions::{PURGED_ROWS, SOURCE_LIFETIME};
use super::{AccessError, Operator, Role};
use crate::ledger::FIRST_SHARD;
use crate::ledger::texts::OPERATOR_TOTP;
use crate::secrets::rows::Row;
use crate::secrets::seal::{Keyring, Secret, random_secret};
pub use listing::LiveSession;
use second_factor::AcceptedFactor;

/// Lifetime of a session.
pub const CONSOLE_LIFETIME: TimeDelta = TimeDelta::hours(8);

/// A session of the console, and the operator who has signed in.
#[derive(Clone, Copy, Debug)]
pub struct ConsoleSession {
    pub id: i64,
    pub operator: Operator,
    /// Whether the identity provider has authenticated the operator.
    pub is_by_provider: bool,
    pub has_two_factor: bool,
    pub expires_at: DateTime<Utc>,
}

/// Result of a sign-in: the session, and the text of its cookie.
#[derive(Debug)]
pub struct SignedIn {
    pub session: ConsoleSession,
    pub cookie: Secret,
}

/// Starts, looks up and ends sessions of the console. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Console {
    /// Pool for lookups.
    access: PgPool,
    /// Pool for writes that must be on disk before the response.
    pool: PgPool,
    keyring: Arc<Keyring>,
    passwords: Passwords,
}

/// A user as a sign-in finds it.
#[derive(Debug, FromRow)]
struct Candidate {
    id: i64,
    role: String,
    password_hash: Option<String>,
    subject_lookup: Option<Vec<u8>>,
    totp_hash: Option<String>,
    totp_step: Option<i64>,
    mac: Vec<u8>,
    /// Salt of the two-factor secret's hash, and the sealed secret.
    salt: Option<Vec<u8>>,
    sealed: Option<Vec<u8>>,
    now: DateTime<Utc>,
}

/// A session with its user, who is not removed.
#[derive(Debug, FromRow)]
struct Known {
    operator_id: i64,
    secret_hash: Vec<u8>,
    expires_at: DateTime<Utc>,
    mac: Vec<u8>,
    role: String,
    password_hash: Option<String>,
    subject_lookup: Option<Vec<u8>>,
    totp_hash: Option<String>,
    user_mac: Vec<u8>,
    now: DateTime<Utc>,
}

impl Candidate {
    fn row(&self) -> Row<'_> {
        Row::OperatorUser {
            id: self.id,
            role: &self.role,
            password_hash: self.password_hash.as_deref(),
            subject_lookup: self.subject_lookup.as_deref(),
            totp_hash: self.totp_hash.as_deref(),
            is_removed: false,
        }
    }
}

impl Known {
    fn user(&self) -> Row<'_> {
        Row::OperatorUser {
            id: self.operator_id,
            role: &self.role,
            password_hash: self.password_hash.as_deref(),
            subject_lookup: self.subject_lookup.as_deref(),
            totp_hash: self.totp_hash.as_deref(),
            is_removed: false,
        }
    }
}

impl Console {
    pub fn new(access: PgPool, pool: PgPool, keyring: Arc<Keyring>, passwords: Passwords) -> Console {
        Console { access, pool, keyring, passwords }
    }

    /// Returns the keyed hash that finds an operator's user by email, ignoring case.
    pub fn email_lookup(&self, email: &str) -> [u8; 32] {
        self.keyring.fingerprint("operator.email", email.to_lowercase())
    }

    /// Returns the keyed hash that finds an operator's user by the subject of the identity provider.
    pub fn subject_lookup(&self, issuer: &str, subject: &str) -> [u8; 32] {
        self.keyring.fingerprint("operator.subject", format!("{issuer}\0{subject}"))
    }

    /// Returns the budget that counts failed logins of this user from this network.
    ///
    /// A network from which the user has logged in before has its own budget; all other networks share one. An unknown
    /// email gets the shared budget of that email too, so the two cannot be told apart.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn login_budget(&self, email: &str, network: IpAddr) -> Result<LoginBudget, AccessError> {
        let (user, source) = (self.email_lookup(email), self.source_hash(email, network));
        let is_known: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM vault.operator_users u JOIN vault.operator_login_sources s ON s.operator_id = u.id
             WHERE u.email_lookup = $1 AND s.source_hash = $2)",
        )
        .bind(&user[..])
        .bind(&source[..])
        .fetch_one(&self.pool)
        .await?;
        Ok(budget(if is_known { source } else { self.keyring.fingerprint("operator.login_elsewhere", user) }))
    }

    /// Returns the budget that counts wrong codes and wrong present passwords in this operator's sessions.
    pub fn guess_budget(&self, operator_id: i64) -> LoginBudget {
        budget(self.keyring.fingerprint("operator.code", operator_id.to_be_bytes()))
    }

    fn source_hash(&self, email: &str, network: IpAddr) -> [u8; 32] {
        let source = [&self.email_lookup(email)[..], network.to_string().as_bytes()].concat();
        self.keyring.fingerprint("operator.login_source", source)
    }

    /// Returns the hash of a signed-in operator's password if this is the password.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer, or too many passwords wait.
    pub async fn hash_of_password(&self, operator_id: i64, lane: Lane, password: Secret) -> Result<Option<Secret>, AccessError> {
        let found = self.candidate(None, Some(operator_id)).await?;
        let user = found.filter(|user| self.keyring.admits(user.row(), Some(&user.mac)));
        let hash = user.and_then(|user| user.password_hash).map(Secret::new);
        let is_right = self.passwords.verify(lane, password, hash.clone()).await?;
        Ok(hash.filter(|_| is_right))
    }

    /// Starts a session for a user who logs in with a password, and with a second factor if one is enrolled.
    ///
    /// # Errors
    /// [`AccessError::WrongPassword`] for an unknown email as well as for a wrong password or a wrong second factor.
    /// [`AccessError::TwoFactorRequired`] if only the second factor is missing.
    pub async fn log_in(
        &self,
        email: &str,
        password: Secret,
        factor: Option<&str>,
        network: IpAddr,
    ) -> Result<SignedIn, AccessError> {
        let found = self.candidate(Some(self.email_lookup(email)), None).await?;
        let hash = found.as_ref().and_then(|user| user.password_hash.as_deref()).map(Secret::new);
        let has_password = hash.is_some();
        let is_right = self.passwords.verify(Lane::Source(network), password, hash).await?;
        let user = found.filter(|user| is_right && has_password && self.keyring.admits(user.row(), Some(&user.mac)));
        let user = user.ok_or(AccessError::WrongPassword)?;
        let accepted = match (&user.totp_hash, factor) {
            (None, _) => AcceptedFactor::NotNeeded,
            (Some(_), None) => return Err(AccessError::TwoFactorRequired),
            (Some(_), Some(factor)) => self.accept(&user, factor)?.ok_or(AccessError::WrongPassword)?,
        };
        let source = self.source_hash(email, network);
        replanned(|| self.begin(&user, &accepted, Some(source))).await?.ok_or(AccessError::WrongPassword)
    }

    /// Starts a session for a user whom the identity provider has authenticated.
    ///
    /// # Errors
    /// [`AccessError::Unknown`] if the user was removed, or signs in with a password.
    pub async fn begin_by_provider(&self, operator_id: i64) -> Result<SignedIn, AccessError> {
        let found = self.candidate(None, Some(operator_id)).await?;
        let user = found.filter(|user| user.subject_lookup.is_some() && self.keyring.admits(user.row(), Some(&user.mac)));
        let user = user.ok_or(AccessError::Unknown)?;
        replanned(|| self.begin(&user, &AcceptedFactor::NotNeeded, None)).await?.ok_or(AccessError::Unknown)
    }

    async fn candidate(&self, email: Option<[u8; 32]>, id: Option<i64>) -> Result<Option<Candidate>, AccessError> {
        let found = sqlx::query_as(
            "SELECT u.id, u.role, u.password_hash, u.subject_lookup, u.totp_hash, u.totp_step, u.mac, t.salt, t.sealed,
                clock_timestamp() AS now
             FROM vault.operator_users u LEFT JOIN vault.texts t ON t.shard_id = $3 AND t.kind = $4 AND t.id = u.id
             WHERE (u.email_lookup = $1 OR u.id = $2) AND u.removed_at IS NULL",
        )
        .bind(email.as_ref().map(|email| &email[..]))
        .bind(id)
        .bind(FIRST_SHARD)
        .bind(OPERATOR_TOTP)
        .fetch_optional(&self.pool)
        .await?;
        Ok(found)
    }

    /// Uses up the second factor and starts a session. Returns nothing if the user or the factor has changed meanwhile.
    async fn begin(
        &self,
        user: &Candidate,
        accepted: &AcceptedFactor,
        source: Option<[u8; 32]>,
    ) -> Result<Option<SignedIn>, AccessError> {
        let role = Role::parse(&user.role).ok_or(AccessError::Unknown)?;
        let secret = random_secret();
        let mut transaction = self.pool.begin().await?;
        // The MAC covers everything that the sign-in was decided on. A change that comes later ends the session again.
        let begun: Option<(i64, DateTime<Utc>, DateTime<Utc>)> = sqlx::query_as(
            "WITH clock AS (SELECT clock_timestamp()::timestamptz(3) AS now)
             SELECT nextval('vault.console_session_ids'), clock.now, clock.now + $3
             FROM vault.operator_users u CROSS JOIN clock WHERE u.id = $1 AND u.mac = $2 AND u.removed_at IS NULL FOR UPDATE OF u",
        )
        .bind(user.id)
        .bind(&user.mac)
        .bind(CONSOLE_LIFETIME)
        .fetch_optional(&mut *transaction)
        .await?;
        let Some((id, now, expires_at)) = begun else { return Ok(None) };
        if !self.use_up(&mut transaction, user.id, accepted).await? {
            return Ok(None);
        }
        let secret_hash = hash_of(secret.expose());
        let mac = self.mac(Row::ConsoleSession { id, operator_id: user.id, secret_hash: &secret_hash, expires_at })?;
        sqlx::query(
            "INSERT INTO vault.console_sessions (id, operator_id, secret_hash, expires_at, mac) VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(id)
        .bind(user.id)
        .bind(&secret_hash[..])
        .bind(expires_at)
        .bind(&mac[..])
        .execute(&mut *transaction)
        .await?;
        if let Some(source) = source {
            sqlx::query(
                "INSERT INTO vault.operator_login_sources AS s (operator_id, source_hash, succeeded_at) VALUES ($1, $2, $3)
                 ON CONFLICT (operator_id, source_hash) DO UPDATE SET succeeded_at = greatest(s.succeeded_at, excluded.succeeded_at)",
            )
            .bind(user.id)
            .bind(&source[..])
            .bind(now)
            .execute(&mut *transaction)
            .await?;
        }
        transaction.commit().await?;
        let session = ConsoleSession {
            id,
            operator: Operator { id: user.id, role },
            is_by_provider: user.subject_lookup.is_some(),
            has_two_factor: user.totp_hash.is_some(),
            expires_at,
        };
        Ok(Some(SignedIn { session, cookie: Secret::new(format!("{id}.{}", secret.expose())) }))
    }

    /// Returns the session of a cookie.
    ///
    /// # Errors
    /// [`AccessError::InvalidToken`] for a cookie that is invalid or expired, or whose session has ended.
    pub async fn by_cookie(&self, cookie: &str) -> Result<ConsoleSession, AccessError> {
        let (id, secret) = cookie.split_once('.').ok_or(AccessError::InvalidToken)?;
        let id: i64 = id.parse().map_err(|_| AccessError::InvalidToken)?;
        let known: Option<Known> = sqlx::query_as(
            "SELECT s.operator_id, s.secret_hash, s.expires_at, s.mac, u.role, u.password_hash, u.subject_lookup, u.totp_hash,
                u.mac AS user_mac, clock_timestamp() AS now
             FROM vault.console_sessions s JOIN vault.operator_users u ON u.id = s.operator_id
             WHERE s.id = $1 AND u.removed_at IS NULL",
        )
        .bind(id)
        .fetch_optional(&self.access)
        .await?;
        let is_right = |known: &Known| bool::from(hash_of(secret).ct_eq(&known.secret_hash)) && known.now < known.expires_at;
        let known = known.filter(is_right).ok_or(AccessError::InvalidToken)?;
        let Known { operator_id, expires_at, .. } = known;
        let row = Row::ConsoleSession { id, operator_id, secret_hash: &known.secret_hash, expires_at };
        if !self.keyring.admits(row, Some(&known.mac)) || !self.keyring.admits(known.user(), Some(&known.user_mac)) {
            return Err(AccessError::InvalidToken);
        }
        let role = Role::parse(&known.role).ok_or(AccessError::InvalidToken)?;
        Ok(ConsoleSession {
            id,
            operator: Operator { id: operator_id, role },
            is_by_provider: known.subject_lookup.is_some(),
            has_two_factor: known.totp_hash.is_some(),
            expires_at,
        })
    }

    /// Looks an admitted session up again.
    ///
    /// # Errors
    /// [`AccessError::InvalidToken`] if it has expired or ended meanwhile, or its user has another role or is removed.
    pub async fn require_live(&self, session: &ConsoleSession) -> Result<(), AccessError> {
        let is_live: bool = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM vault.console_sessions s JOIN vault.operator_users u ON u.id = s.operator_id
             WHERE s.id = $1 AND s.operator_id = $2 AND s.expires_at > clock_timestamp() AND u.role = $3 AND u.removed_at IS NULL)",
        )
        .bind(session.id)
        .bind(session.operator.id)
        .bind(session.operator.role.as_str())
        .fetch_one(&self.access)
        .await?;
        if is_live { Ok(()) } else { Err(AccessError::InvalidToken) }
    }

    /// Ends a session.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer.
    pub async fn log_out(&self, session_id: i64) -> Result<(), AccessError> {
        sqlx::query("DELETE FROM vault.console_sessions WHERE id = $1").bind(session_id).execute(&self.pool).await?;
        Ok(())
    }

    fn mac(&self, row: Row<'_>) -> Result<[u8; 32], AccessError> {
        self.keyring.row_mac(row).map_err(|error| {
            tracing::error!(%error, "failed to compute the MAC of a console session");
            AccessError::Unavailable
        })
    }
}

/// Deletes one batch each of expired sessions and source networks.
///
/// Returns the number of deleted rows, and whether more may be left. All nodes may run it at the same time.
pub async fn purge(pool: &PgPool) -> Result<(u64, bool), sqlx::Error> {
    let sessions = sqlx::query(
        "DELETE FROM vault.console_sessions WHERE id IN (
            SELECT id FROM vault.console_sessions WHERE expires_at < clock_timestamp() LIMIT $1 FOR UPDATE SKIP LOCKED)",
    )
    .bind(PURGED_ROWS)
    .execute(pool)
    .await?;
    let sources = sqlx::query(
        "DELETE FROM vault.operator_login_sources WHERE (operator_id, source_hash) IN (
            SELECT operator_id, source_hash FROM vault.operator_login_sources WHERE succeeded_at < clock_timestamp() - $2
            LIMIT $1 FOR UPDATE SKIP LOCKED)",
    )
    .bind(PURGED_ROWS)
    .bind(SOURCE_LIFETIME)
    .execute(pool)
    .await?;
    let purged = [sessions, sources].map(|purged| purged.rows_affected());
    Ok((purged.iter().sum(), purged.iter().any(|rows| *rows >= PURGED_ROWS.unsigned_abs())))
}

fn budget(hash: [u8; 32]) -> LoginBudget {
    let mut budget = LoginBudget::default();
    budget.copy_from_slice(&hash[..16]);
    budget
}

fn hash_of(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}
