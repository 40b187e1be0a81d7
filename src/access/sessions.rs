//! User sessions. A login starts one, a refresh token extends it, and a logout or a reused refresh token ends it.
//!
//! Every request looks up its access token or portal cookie. So the end of a session, of a user or of a role applies to
//! the very next request, on every node. All times are those of the database's clock.

mod listing;
mod lookup;
mod purging;
mod second_factor;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use ledger_database::{FromRow, PgConnection, PgPool, replanned};
use ledger_events::{AccountId, UserId};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::gate::LoginBudget;
use super::passwords::{Lane, Passwords};
use super::tokens::{AccessTokens, Claims};
use super::two_factor::SecondFactor;
use super::{AccessError, Principal};
use crate::heartbeat::Heartbeat;
use crate::secrets::rows::Row;
use crate::secrets::seal::{Keyring, Secret, random_secret};
pub use listing::UserSession;
use lookup::{ActiveSession, Lookup, look_up};
pub use purging::purge;
pub(super) use purging::{PURGED_ROWS, SOURCE_LIFETIME};

/// Lifetime of a refresh token.
const REFRESH_LIFETIME: TimeDelta = TimeDelta::days(7);
/// Lifetime of a portal cookie.
pub const PORTAL_LIFETIME: TimeDelta = TimeDelta::hours(8);

/// Maximum number of lookups that may wait.
const QUEUE_LOOKUPS: usize = 8_192;
/// Longest time that a lookup waits for the database before it fails.
const DEADLINE: Duration = Duration::from_secs(10);

type SessionId = i64;

/// Credentials of a user who logs in, and the client that sends them.
#[derive(Clone, Debug)]
pub struct Login {
    pub email: Secret,
    pub password: Secret,
    /// Code or recovery code, for a user with two-factor authentication.
    pub otp: Option<SecondFactor>,
    pub network: IpAddr,
    /// Program that logs in, as it calls itself.
    pub user_agent: Option<Secret>,
}

impl Login {
    /// Creates a login without a second factor.
    pub fn new(email: impl Into<String>, password: Secret, network: IpAddr) -> Login {
        Login { email: Secret::new(email), password, otp: None, network, user_agent: None }
    }
}

/// Tokens that a login or a refresh returns.
#[derive(Debug)]
pub struct Granted {
    pub user_id: UserId,
    pub account_id: AccountId,
    pub access_token: Secret,
    pub refresh_token: Secret,
    pub refresh_expires_at: DateTime<Utc>,
}

/// Starts, looks up and ends sessions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Sessions {
    pool: PgPool,
    lookups: mpsc::Sender<Lookup>,
    passwords: Passwords,
    tokens: Arc<AccessTokens>,
    keyring: Arc<Keyring>,
}

/// State of a presented refresh token.
#[derive(Debug, FromRow)]
struct Refreshable {
    session_id: SessionId,
    user_id: UserId,
    account_id: AccountId,
    expires_at: DateTime<Utc>,
    mac: Option<Vec<u8>>,
    is_used: bool,
    /// The token has not expired, its session is not revoked and its user is not removed.
    is_good: bool,
}

/// A new session, with its first refresh token.
#[derive(Debug, FromRow)]
struct Begun {
    portal_expires_at: DateTime<Utc>,
    #[sqlx(flatten)]
    renewed: Renewed,
}

/// Row of a new refresh token.
#[derive(Debug, FromRow)]
struct Renewed {
    session_id: SessionId,
    expires_at: DateTime<Utc>,
    now: DateTime<Utc>,
}

impl Sessions {
    /// Starts the task that looks sessions up. The task ends when the last handle is dropped.
    ///
    /// `access` is the pool for lookups, `pool` the one for writes that must be on disk before the response.
    pub fn start(access: PgPool, pool: PgPool, keyring: Arc<Keyring>, heartbeat: Heartbeat, tasks: &TaskTracker) -> Sessions {
        let (lookups, waiting) = mpsc::channel(QUEUE_LOOKUPS);
        tasks.spawn(look_up(access, heartbeat, waiting));
        let tokens = Arc::new(AccessTokens::new(&keyring));
        Sessions { pool, lookups, passwords: Passwords::default(), tokens, keyring }
    }

    pub fn passwords(&self) -> &Passwords {
        &self.passwords
    }

    /// Returns the keyed hash that finds a user by email, ignoring case.
    pub fn email_lookup(&self, email: &str) -> [u8; 32] {
        self.keyring.fingerprint("user.email", email.to_lowercase())
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
            "SELECT EXISTS (SELECT FROM vault.users v JOIN vault.login_sources s ON s.user_id = v.user_id
             WHERE v.email_lookup = $1 AND s.source_hash = $2)",
        )
        .bind(&user[..])
        .bind(&source[..])
        .fetch_one(&self.pool)
        .await?;
        let whole = if is_known { source } else { self.keyring.fingerprint("login.elsewhere", user) };
        let mut budget = LoginBudget::default();
        budget.copy_from_slice(&whole[..16]);
        Ok(budget)
    }

    /// Returns the budget that counts the mails sent to reset the password of this email, known or not.
    pub fn reset_budget(&self, email: &str) -> LoginBudget {
        let whole = self.keyring.fingerprint("password.reset", self.email_lookup(email));
        let mut budget = LoginBudget::default();
        budget.copy_from_slice(&whole[..16]);
        budget
    }

    /// Returns the hash of a signed-in user's password if this is the password.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer, or too many passwords wait.
    pub async fn hash_of_password(&self, user_id: UserId, lane: Lane, password: Secret) -> Result<Option<Secret>, AccessError> {
        let found: Option<(AccountId, String, Option<Vec<u8>>)> = sqlx::query_as(
            "SELECT u.account_id, v.password_hash, m.mac FROM vault.users v JOIN users u ON u.id = v.user_id
             LEFT JOIN vault.user_macs m ON m.user_id = v.user_id WHERE v.user_id = $1",
        )
        .bind(user_id)
        .fetch_optional(&self.pool)
        .await?;
        let (account_id, hash, mac) = found.ok_or(AccessError::InvalidToken)?;
        let is_authentic = self.keyring.admits(Row::User { id: user_id, account_id, password_hash: &hash }, mac.as_deref());
        let hash = Secret::new(hash);
        let is_right = self.passwords.verify(lane, password, Some(hash.clone())).await?;
        Ok((is_right && is_authentic).then_some(hash))
    }

    fn source_hash(&self, email: &str, network: IpAddr) -> [u8; 32] {
        self.keyring.fingerprint("login.source", [&self.email_lookup(email)[..], network.to_string().as_bytes()].concat())
    }

    /// Starts a session for a user who logs in. Returns its tokens and the text of its portal cookie.
    ///
    /// # Errors
    /// [`AccessError::WrongPassword`] for an unknown email as well as for a wrong password. Both cost the same work. Only
    /// after a right password, [`AccessError::TwoFactorRequired`] or [`AccessError::WrongSecondFactor`].
    pub async fn log_in(&self, login: Login) -> Result<(Granted, Secret), AccessError> {
        let Login { email, password, network, .. } = &login;
        let found: Option<(UserId, AccountId, String, Option<Vec<u8>>)> = sqlx::query_as(
            "SELECT v.user_id, u.account_id, v.password_hash, m.mac FROM vault.users v JOIN users u ON u.id = v.user_id
             LEFT JOIN vault.user_macs m ON m.user_id = v.user_id WHERE v.email_lookup = $1",
        )
        .bind(&self.email_lookup(email.expose())[..])
        .fetch_optional(&self.pool)
        .await?;
        let (user, hash) = found.map(|(user_id, account_id, hash, mac)| ((user_id, account_id, mac), Secret::new(hash))).unzip();
        let is_right = self.passwords.verify(Lane::Source(*network), password.clone(), hash.clone()).await?;
        let ((user_id, account_id, mac), hash) = user.zip(hash).filter(|_| is_right).ok_or(AccessError::WrongPassword)?;
        if !self.keyring.admits(Row::User { id: user_id, account_id, password_hash: hash.expose() }, mac.as_deref()) {
            return Err(AccessError::WrongPassword);
        }
        replanned(|| self.begin((user_id, account_id), &hash, &login)).await
    }

    /// Starts a session of a user whose password is right.
    async fn begin(
        &self,
        (user_id, account_id): (UserId, AccountId),
        hash: &Secret,
        login: &Login,
    ) -> Result<(Granted, Secret), AccessError> {
        let Login { email, otp, network, user_agent, .. } = login;
        let (portal_secret, refresh_token) = (random_secret(), random_secret());
        // An operator may have removed the user or changed the password in the meantime. A login that waits here for
        // such a change sees it afterwards, and the change ends the sessions that started before it.
        let mut transaction = self.pool.begin().await?;
        let begun: Option<Begun> = sqlx::query_as(
            "WITH clock AS (SELECT clock_timestamp()::timestamptz(3) AS now), session AS (
                INSERT INTO vault.sessions (user_id, portal_hash, portal_expires_at, expires_at)
                SELECT v.user_id, $2, clock.now + $4, clock.now + $5 FROM vault.users v CROSS JOIN clock
                WHERE v.user_id = $1 AND v.password_hash = $6 FOR SHARE OF v
                RETURNING id, portal_expires_at, expires_at), token AS (
                INSERT INTO vault.refresh_tokens (token_hash, session_id, expires_at) SELECT $3, id, expires_at FROM session), source AS (
                INSERT INTO vault.login_sources AS s (user_id, source_hash, succeeded_at)
                SELECT $1, $7, clock.now FROM session CROSS JOIN clock
                ON CONFLICT (user_id, source_hash) DO UPDATE SET succeeded_at = greatest(s.succeeded_at, excluded.succeeded_at))
             SELECT session.id AS session_id, session.portal_expires_at, session.expires_at, clock.now FROM session CROSS JOIN clock",
        )
        .bind(user_id)
        .bind(&hash_of(portal_secret.expose())[..])
        .bind(&hash_of(refresh_token.expose())[..])
        .bind(PORTAL_LIFETIME)
        .bind(REFRESH_LIFETIME)
        .bind(hash.expose())
        .bind(&self.source_hash(email.expose(), *network)[..])
        .fetch_optional(&mut *transaction)
        .await?;
        let Begun { portal_expires_at, renewed: begun } = begun.ok_or(AccessError::WrongPassword)?;
        // After the user's row is locked, as everywhere, so that two transactions cannot wait for each other.
        self.pass_second_factor(&mut transaction, user_id, otp.as_ref()).await?;
        let portal_hash = &hash_of(portal_secret.expose())[..];
        let session = Row::Session { id: begun.session_id, user_id, account_id, portal_hash, portal_expires_at };
        self.keep_session_mac(&mut transaction, begun.session_id, session).await?;
        self.keep_details(&mut transaction, &begun, *network, user_agent.as_ref()).await?;
        self.keep_token_mac(&mut transaction, &hash_of(refresh_token.expose()), &begun).await?;
        transaction.commit().await?;
        let cookie = Secret::new(format!("{}.{}", begun.session_id, portal_secret.expose()));
        Ok((self.granted(user_id, account_id, &begun, refresh_token)?, cookie))
    }

    /// Extends a session: uses up the refresh token and issues a new one.
    ///
    /// A token that was used before revokes its session: two parties hold it, so it was stolen.
    ///
    /// # Errors
    /// [`AccessError::InvalidToken`] for a token that is unknown, expired, revoked or used.
    pub async fn refresh(&self, refresh_token: &str) -> Result<Granted, AccessError> {
        replanned(|| self.refresh_once(refresh_token)).await
    }

    async fn refresh_once(&self, refresh_token: &str) -> Result<Granted, AccessError> {
        let token_hash = hash_of(refresh_token);
        let mut transaction = self.pool.begin().await?;
        // A concurrent second use waits here for the row lock, and then sees that the token is used.
        let known: Option<Refreshable> = sqlx::query_as(
            "SELECT s.id AS session_id, s.user_id, u.account_id, t.expires_at, m.mac, t.used_at IS NOT NULL AS is_used,
                t.expires_at > clock_timestamp() AND s.revoked_at IS NULL AND NOT u.is_removed AS is_good
             FROM vault.refresh_tokens t JOIN vault.sessions s ON s.id = t.session_id JOIN users u ON u.id = s.user_id
             LEFT JOIN vault.refresh_token_macs m ON m.token_hash = t.token_hash
             WHERE t.token_hash = $1 FOR UPDATE OF t, s",
        )
        .bind(&token_hash[..])
        .fetch_optional(&mut *transaction)
        .await?;
        let known = known.ok_or(AccessError::InvalidToken)?;
        let row = Row::RefreshToken { token_hash: &token_hash, session_id: known.session_id, expires_at: known.expires_at };
        if !self.keyring.admits(row, known.mac.as_deref()) {
            return Err(AccessError::InvalidToken);
        }
        if known.is_used {
            sqlx::query("UPDATE vault.sessions SET revoked_at = clock_timestamp() WHERE id = $1 AND revoked_at IS NULL")
                .bind(known.session_id)
                .execute(&mut *transaction)
                .await?;
            transaction.commit().await?;
            let Refreshable { session_id, user_id, .. } = known;
            tracing::warn!(session_id, user_id = user_id.0, "a refresh token was used a second time; revoked its session");
            return Err(AccessError::InvalidToken);
        }
        if !known.is_good {
            return Err(AccessError::InvalidToken);
        }
        let next = random_secret();
        let renewed: Renewed = sqlx::query_as(
            "WITH clock AS (SELECT clock_timestamp()::timestamptz(3) AS now), used AS (
                UPDATE vault.refresh_tokens t SET used_at = clock.now FROM clock WHERE t.token_hash = $1), session AS (
                UPDATE vault.sessions s SET expires_at = clock.now + $4 FROM clock WHERE s.id = $2 RETURNING s.id, s.expires_at), token AS (
                INSERT INTO vault.refresh_tokens (token_hash, session_id, expires_at) SELECT $3, id, expires_at FROM session)
             SELECT session.id AS session_id, session.expires_at, clock.now FROM session CROSS JOIN clock",
        )
        .bind(&token_hash[..])
        .bind(known.session_id)
        .bind(&hash_of(next.expose())[..])
        .bind(REFRESH_LIFETIME)
        .fetch_one(&mut *transaction)
        .await?;
        self.keep_token_mac(&mut transaction, &hash_of(next.expose()), &renewed).await?;
        transaction.commit().await?;
        self.granted(known.user_id, known.account_id, &renewed, next)
    }

    /// Looks the session of an admitted request up again.
    ///
    /// # Errors
    /// [`AccessError::InvalidToken`] if it has ended meanwhile, or its user is removed.
    pub async fn require_live(&self, session_id: SessionId) -> Result<(), AccessError> {
        self.find(session_id).await?.map(drop).ok_or(AccessError::InvalidToken)
    }

    /// Ends a session with its access tokens, refresh tokens and portal cookie.
    pub async fn log_out(&self, session_id: SessionId) -> Result<(), AccessError> {
        sqlx::query("UPDATE vault.sessions SET revoked_at = clock_timestamp() WHERE id = $1 AND revoked_at IS NULL")
            .bind(session_id)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    /// Returns the client of an access token.
    ///
    /// # Errors
    /// [`AccessError::InvalidToken`] for a token that is invalid or expired, or whose session has ended.
    pub async fn by_access_token(&self, token: &str) -> Result<Principal, AccessError> {
        let claims = self.tokens.read(token)?;
        let known = self.find(claims.sid).await?;
        let known = known.filter(|known| known.user_id == claims.sub && !claims.is_expired_at(known.now));
        known.ok_or(AccessError::InvalidToken)?.principal()
    }

    /// Returns the client of a portal cookie.
    ///
    /// # Errors
    /// [`AccessError::InvalidToken`] for a cookie that is invalid or expired, or whose session has ended.
    pub async fn by_portal_cookie(&self, cookie: &str) -> Result<Principal, AccessError> {
        let (id, secret) = cookie.split_once('.').ok_or(AccessError::InvalidToken)?;
        let id = id.parse().map_err(|_| AccessError::InvalidToken)?;
        let known = self.find(id).await?;
        let is_right = |known: &ActiveSession| bool::from(hash_of(secret).ct_eq(&known.portal_hash));
        let known = known.filter(|known| is_right(known) && known.now < known.portal_expires_at);
        known.ok_or(AccessError::InvalidToken)?.principal()
    }

    async fn find(&self, session_id: SessionId) -> Result<Option<ActiveSession>, AccessError> {
        let (reply, found) = oneshot::channel();
        self.lookups.try_send(Lookup { session_id, reply }).map_err(|_| AccessError::Unavailable)?;
        match tokio::time::timeout(DEADLINE, found).await {
            Ok(Ok(found)) => Ok(found?.filter(|known| known.is_authentic(&self.keyring))),
            _ => Err(AccessError::Unavailable),
        }
    }

    fn mac(&self, row: Row<'_>) -> Result<[u8; 32], AccessError> {
        self.keyring.row_mac(row).map_err(|error| {
            tracing::error!(%error, "failed to compute the MAC of a session");
            AccessError::Unavailable
        })
    }

    async fn keep_session_mac(&self, conn: &mut PgConnection, id: SessionId, row: Row<'_>) -> Result<(), AccessError> {
        sqlx::query("INSERT INTO vault.session_macs (session_id, mac) VALUES ($1, $2)")
            .bind(id)
            .bind(&self.mac(row)?[..])
            .execute(conn)
            .await?;
        Ok(())
    }

    async fn keep_token_mac(&self, conn: &mut PgConnection, token_hash: &[u8; 32], token: &Renewed) -> Result<(), AccessError> {
        let Renewed { session_id, expires_at, .. } = *token;
        let mac = self.mac(Row::RefreshToken { token_hash, session_id, expires_at })?;
        sqlx::query("INSERT INTO vault.refresh_token_macs (token_hash, mac) VALUES ($1, $2)")
            .bind(&token_hash[..])
            .bind(&mac[..])
            .execute(conn)
            .await?;
        Ok(())
    }

    fn granted(
        &self,
        user_id: UserId,
        account_id: AccountId,
        session: &Renewed,
        refresh_token: Secret,
    ) -> Result<Granted, AccessError> {
        let claims = Claims::new(user_id, session.session_id, session.now);
        let access_token = self.tokens.sign(&claims).map_err(|error| {
            tracing::error!(%error, "failed to sign an access token");
            AccessError::Unavailable
        })?;
        Ok(Granted { user_id, account_id, access_token, refresh_token, refresh_expires_at: session.expires_at })
    }
}

fn hash_of(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}
