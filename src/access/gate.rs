//! The gate that every request passes: it checks the IP block, the API key and the rate limit.
//!
//! One statement serves all waiting requests and reads the current rows of the database. So a revocation, a rotated
//! secret or a block applies to the very next request, and a rate limit is exact across all nodes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use ledger_database::{PgPool, replanned};
use ledger_events::AccountId;
use sha2::digest::Update;
use sha2::{Digest, Sha256};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use subtle::ConstantTimeEq;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::limits::{Block, Quota, Rule, Window, source_network};
use super::rate_limits::{RateLimit, RateLimits};
use super::{AccessError, Principal, Who, blocks};
use crate::batching;
use crate::heartbeat::Heartbeat;
use crate::ledger::connect::{self, Line};
use crate::secrets::rows::Row;
use crate::secrets::seal::Keyring;

/// Maximum number of requests in one statement, and maximum that may wait.
const BATCH_QUESTIONS: usize = 1_024;
const QUEUE_QUESTIONS: usize = 8_192;
/// Longest time that a request waits for the database before the gate refuses it.
const DEADLINE: Duration = Duration::from_secs(10);
/// Timeout of one statement: slightly longer than the database's own statement timeout.
const ANSWERED: Duration = Duration::from_secs(6);

/// Maximum number of callers whose last quota a node remembers.
const KNOWN_QUOTAS: usize = 16_384;

type Hash = [u8; 32];

/// Identity that a request presents.
#[derive(Clone, Copy, Debug)]
pub enum Claim<'a> {
    Key {
        api_key: &'a str,
        api_secret: &'a str,
    },
    /// A user that session authentication has verified already.
    User {
        user_id: i64,
        account_id: AccountId,
    },
    Nobody,
}

/// Subject whose rate limit a request is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Payer {
    /// The API key; its account under the image rule; the IP if the key is invalid.
    Key,
    User(i64),
    Account(AccountId),
    Ip,
    /// A user and a source network, see [`LoginBudget`].
    Login(LoginBudget),
}

/// Key under which failed logins are counted together. It is a keyed hash of the user's email. If the user has logged in
/// from the source network before, the hash includes that network.
pub type LoginBudget = [u8; 16];

/// The gate's input for one request. Equal questions of a batch share one row of the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    ip: IpAddr,
    /// SHA-256 hashes of the API key and of its secret.
    key: Option<(Hash, Hash)>,
    charge: Option<(Rule, RateLimit, Payer)>,
    /// The gate reads the rate limit without charging it, because the request is refused in any case.
    is_free: bool,
}

impl Question {
    /// Creates a question for a request from this IP, charged under this rule if there is one.
    pub fn new(ip: IpAddr, claim: Claim<'_>, charge: Option<(Rule, RateLimit)>) -> Question {
        let hash = |text: &str| -> Hash { Sha256::digest(text.as_bytes()).into() };
        let key = match claim {
            Claim::Key { api_key, api_secret } => Some((hash(api_key), hash(api_secret))),
            _ => None,
        };
        let payer = |rule| match claim {
            Claim::Key { .. } => Payer::Key,
            Claim::User { account_id, .. } if rule == Rule::Images => Payer::Account(account_id),
            Claim::User { user_id, .. } => Payer::User(user_id),
            Claim::Nobody => Payer::Ip,
        };
        Question { ip, key, charge: charge.map(|(rule, limit)| (rule, limit, payer(rule))), is_free: false }
    }

    /// Turns the question into one that reads the rate limit and charges nothing.
    #[must_use]
    pub fn free(self) -> Question {
        Question { is_free: true, ..self }
    }

    /// Returns the subject of the rate limit; `None` if it depends on the API key.
    fn subject(&self) -> Option<String> {
        match self.charge?.2 {
            Payer::Key => None,
            Payer::User(id) => Some(format!("user {id}")),
            Payer::Account(id) => Some(format!("account {id}")),
            Payer::Ip => Some(match self.charge?.0 {
                Rule::Login | Rule::Operator => of_ip(source_network(self.ip)),
                _ => of_ip(self.ip),
            }),
            Payer::Login(budget) => Some(of_login(&budget)),
        }
    }
}

/// Result of the gate for one request.
#[derive(Clone, Debug)]
pub enum Verdict {
    Blocked(Block),
    Seen {
        /// Owner of the API key, if the key is valid.
        client: Option<Client>,
        /// State of the rate limit, if a rule governs the request.
        quota: Option<Quota>,
    },
}

/// Owner of a valid API key.
#[derive(Clone, Debug)]
pub struct Client {
    pub principal: Principal,
    /// Sealed secret of the request signature; `None` if the credential requires no signature.
    pub signing_secret: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Waiting {
    question: Question,
    reply: oneshot::Sender<Result<Verdict, AccessError>>,
}

/// Handle to the gate's task. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Gate {
    questions: mpsc::Sender<Waiting>,
    /// Pool for blocks. They are on disk before any caller is told of them.
    durable: PgPool,
    pub limits: RateLimits,
    /// Quotas that callers were last told, used while the database does not answer.
    known: Arc<Mutex<HashMap<Question, Quota>>>,
}

impl Gate {
    /// Starts the task that queries the database. The task ends when the last handle is dropped.
    ///
    /// Commits over `counting` may be asynchronous; commits over `durable` must be on disk.
    pub fn start(counting: Line, durable: PgPool, keyring: Arc<Keyring>, limits: RateLimits, tasks: &TaskTracker) -> Gate {
        Gate::watched(counting, durable, keyring, limits, Heartbeat::default(), tasks)
    }

    /// Starts the task as [`Gate::start`] does, and reports its progress to a heartbeat.
    pub fn watched(
        counting: Line,
        durable: PgPool,
        keyring: Arc<Keyring>,
        limits: RateLimits,
        heartbeat: Heartbeat,
        tasks: &TaskTracker,
    ) -> Gate {
        let (questions, waiting) = mpsc::channel(QUEUE_QUESTIONS);
        tasks.spawn(answer_all(counting, keyring, heartbeat, waiting));
        Gate { questions, durable, limits, known: Arc::default() }
    }

    /// Checks and charges a request. A login over the limit blocks the source network.
    ///
    /// # Errors
    /// [`AccessError::Unavailable`] if the database does not answer: no request passes uncounted.
    pub async fn ask(&self, ip: IpAddr, claim: Claim<'_>, rule: Option<Rule>) -> Result<Verdict, AccessError> {
        let question = Question::new(ip, claim, rule.map(|rule| (rule, rule.limit(&self.limits))));
        let verdict = self.put(question).await?;
        if let Verdict::Seen { quota: Some(quota), .. } = verdict {
            self.remember(question, quota);
        }
        if rule == Some(Rule::Login)
            && let Verdict::Seen { quota: Some(Quota { is_exceeded: true, .. }), .. } = verdict
        {
            let block = blocks::start(&self.durable, source_network(ip)).await.map_err(|error| {
                tracing::warn!(%error, %ip, "failed to block an IP");
                AccessError::Unavailable
            })?;
            // None if an operator has lifted the block already.
            return Ok(block.map_or(verdict, Verdict::Blocked));
        }
        Ok(verdict)
    }

    fn remember(&self, question: Question, quota: Quota) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_QUOTAS && !known.contains_key(&question) {
            let now = Utc::now().timestamp();
            known.retain(|_, quota| quota.resets_at > now);
            if known.len() >= KNOWN_QUOTAS {
                known.clear();
            }
        }
        known.insert(question, quota);
    }

    /// Returns a caller's quota without the database: the last one that this node told it, else that of a new window.
    pub fn last_known(&self, ip: IpAddr, claim: Claim<'_>, rule: Rule) -> Quota {
        let limit = rule.limit(&self.limits);
        let question = Question::new(ip, claim, Some((rule, limit)));
        let now = Utc::now().timestamp();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&question).copied();
        known.filter(|quota| quota.resets_at > now).unwrap_or_else(|| Quota::unused(limit, now))
    }

    /// Checks an anonymous request that is refused in any case, without charging it.
    ///
    /// # Errors
    /// Same as [`Gate::ask`].
    pub async fn look(&self, ip: IpAddr, rule: Option<Rule>) -> Result<Verdict, AccessError> {
        self.put(Question::new(ip, Claim::Nobody, rule.map(|rule| (rule, rule.limit(&self.limits)))).free()).await
    }

    /// Checks a login of this user. The gate charges it as a failed login before the password is verified;
    /// [`Gate::forgive`] takes the charge back.
    ///
    /// # Errors
    /// Same as [`Gate::ask`].
    pub async fn log_in(&self, ip: IpAddr, budget: LoginBudget) -> Result<Verdict, AccessError> {
        let (rule, key) = (Rule::UserLogin, None);
        self.put(Question { ip, key, charge: Some((rule, rule.limit(&self.limits), Payer::Login(budget))), is_free: false }).await
    }

    /// Takes back the charge of a login that succeeded.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn forgive(&self, budget: LoginBudget) -> Result<(), sqlx::Error> {
        let key = format!("{} {}", Rule::UserLogin.name(), of_login(&budget));
        let forgive = sqlx::query("UPDATE rate_windows SET used = used - 1 WHERE key = $1 AND used > 0");
        forgive.bind(key).execute(&self.durable).await.map(drop)
    }

    async fn put(&self, question: Question) -> Result<Verdict, AccessError> {
        let (reply, answer) = oneshot::channel();
        self.questions.try_send(Waiting { question, reply }).map_err(|_| AccessError::Unavailable)?;
        match tokio::time::timeout(DEADLINE, answer).await {
            Ok(Ok(verdict)) => verdict,
            _ => Err(AccessError::Unavailable),
        }
    }

    /// Resets the login count of a source network, if the network is blocked.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn forget_logins(&self, network: IpAddr) -> Result<(), sqlx::Error> {
        if blocks::of(&self.durable, network).await?.is_some() {
            let key = format!("{} {}", Rule::Login.name(), of_ip(network));
            sqlx::query("DELETE FROM rate_windows WHERE key = $1").bind(key).execute(&self.durable).await?;
        }
        Ok(())
    }
}

fn of_login(budget: &LoginBudget) -> String {
    format!("user {}", hex::encode(budget))
}

fn of_ip(ip: IpAddr) -> String {
    format!("ip {ip}")
}

async fn answer_all(line: Line, keyring: Arc<Keyring>, heartbeat: Heartbeat, mut waiting: mpsc::Receiver<Waiting>) {
    let mut batch = Vec::with_capacity(BATCH_QUESTIONS);
    loop {
        heartbeat.rest();
        if waiting.recv_many(&mut batch, BATCH_QUESTIONS).await == 0 {
            return;
        }
        heartbeat.beat();
        batching::gather(&mut waiting, &mut batch, BATCH_QUESTIONS).await;
        let questions: Vec<Question> = batch.iter().map(|waiting| waiting.question).collect();
        match connect::within(ANSWERED, replanned(|| answer(&line, &keyring, &questions, None))).await {
            Ok(verdicts) => {
                for (waiting, verdict) in batch.drain(..).zip(verdicts) {
                    _ = waiting.reply.send(Ok(verdict)); // the caller may have stopped waiting
                }
            }
            Err(error) => {
                tracing::warn!(%error, "failed to look up API keys and rate limits");
                for waiting in batch.drain(..) {
                    _ = waiting.reply.send(Err(AccessError::Unavailable));
                }
            }
        }
    }
}

/// Answers a batch of questions, each as if the ones before it had been answered.
///
/// Returns one verdict per question, in the same order. `clock` replaces the database's clock in tests.
///
/// Windows are fixed: a window opens with its first request and lasts its full length. A database clock that was set
/// back shortens the window, so that no caller waits longer than one window.
///
/// # Errors
/// Any error of the database. It is then unknown whether the requests were counted.
pub async fn answer(
    line: &Line,
    keyring: &Keyring,
    questions: &[Question],
    clock: Option<DateTime<Utc>>,
) -> Result<Vec<Verdict>, sqlx::Error> {
    let (kinds, kind_of) = kinds(questions);
    // A salted hash lets the database compare two hashes without a timing that reveals them.
    let salt: [u8; 16] = rand::random();
    let proof = |hash: &Hash| Sha256::new().chain(salt).chain(hash).finalize().to_vec();
    let mut connection = line.acquire().await?;
    let rows = sqlx::query(
        "WITH asked AS MATERIALIZED (
            SELECT a.nr, a.ceiling, a.seconds, a.requests, v.secret_hash, v.credential_id, c.account_id, c.shard_id, c.is_revoked, m.mac,
                CASE WHEN c.hmac_required THEN coalesce(v.signing_secret, '') END AS signing_secret,
                extract(epoch FROM b.ends_at)::float8 AS ends_at, extract(epoch FROM b.ends_at - clock_timestamp())::float8 AS ends_in,
                CASE WHEN b.ip IS NOT NULL THEN NULL
                    WHEN a.subject IS NOT NULL THEN a.rule || ' ' || a.subject
                    WHEN sha256($11 || v.secret_hash) = a.proof AND NOT c.is_revoked THEN
                        a.rule || CASE WHEN a.rule = 'images' THEN ' account ' || c.account_id ELSE ' credential ' || c.id END
                    ELSE a.rule || ' ip ' || a.ip END AS key
            FROM unnest($1::int[], $2::bytea[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::int[], $8::float8[], $9::int[], $12::text[])
                AS a (nr, key_hash, proof, ip, rule, subject, ceiling, seconds, requests, network)
            LEFT JOIN vault.credentials v ON v.key_hash = a.key_hash
            LEFT JOIN credentials c ON c.id = v.credential_id
            LEFT JOIN vault.credential_macs m ON m.credential_id = v.credential_id
            LEFT JOIN ip_blocks b ON b.ip = a.network AND clock_timestamp() BETWEEN b.started_at AND b.ends_at
         ), counted AS (
            INSERT INTO rate_windows AS w (key, ceiling, opened_at, closes_at, used, granted)
            SELECT key, ceiling, clock.now, clock.now + make_interval(secs => seconds), least(requests, ceiling), least(requests, ceiling)
            FROM (SELECT key, ceiling, seconds, sum(requests)::int AS requests FROM asked
                WHERE key IS NOT NULL AND requests > 0 GROUP BY key, ceiling, seconds ORDER BY key COLLATE \"C\") AS wanted,
                (SELECT coalesce($10, clock_timestamp()) AS now) AS clock
            ON CONFLICT (key) DO UPDATE SET ceiling = excluded.ceiling,
                opened_at = CASE WHEN w.closes_at <= excluded.opened_at THEN excluded.opened_at ELSE least(w.opened_at, excluded.opened_at) END,
                closes_at = CASE WHEN w.closes_at <= excluded.opened_at THEN excluded.closes_at ELSE least(w.closes_at, excluded.closes_at) END,
                used = CASE WHEN w.closes_at <= excluded.opened_at THEN excluded.used
                    ELSE w.used + least(excluded.used, greatest(excluded.ceiling - w.used, 0)) END,
                granted = CASE WHEN w.closes_at <= excluded.opened_at THEN excluded.used
                    ELSE least(excluded.used, greatest(excluded.ceiling - w.used, 0)) END
            RETURNING key, ceiling, closes_at, used, granted
         )
         SELECT nr, key, secret_hash, credential_id, account_id, shard_id, is_revoked, signing_secret, ends_at, ends_in, NULL::int, NULL::int, mac
         FROM asked
         UNION ALL
         SELECT NULL, key, NULL, NULL, NULL, NULL, NULL, NULL, extract(epoch FROM closes_at)::float8,
            extract(epoch FROM closes_at - coalesce($10, clock_timestamp()))::float8, used, granted, NULL FROM counted
         UNION ALL
         SELECT NULL, key, NULL, NULL, NULL, NULL, NULL, NULL, extract(epoch FROM closes_at)::float8,
            extract(epoch FROM closes_at - now)::float8, used, 0, NULL
         FROM (SELECT DISTINCT ON (a.key) a.key, clock.now, coalesce(w.used, 0) AS used,
                coalesce(w.closes_at, clock.now + make_interval(secs => a.seconds)) AS closes_at
            FROM asked a CROSS JOIN (SELECT coalesce($10, clock_timestamp()) AS now) AS clock
            LEFT JOIN rate_windows w ON w.key = a.key AND w.closes_at > clock.now
            WHERE a.key IS NOT NULL AND a.requests = 0
                AND NOT EXISTS (SELECT FROM asked c WHERE c.key = a.key AND c.requests > 0)) AS seen",
    )
    .bind((0..).take(kinds.len()).collect::<Vec<i32>>())
    .bind(kinds.iter().map(|(kind, _)| kind.key.as_ref().map(|(key, _)| &key[..])).collect::<Vec<_>>())
    .bind(kinds.iter().map(|(kind, _)| kind.key.as_ref().map(|(_, secret)| proof(secret))).collect::<Vec<_>>())
    .bind(kinds.iter().map(|(kind, _)| kind.ip.to_string()).collect::<Vec<_>>())
    .bind(kinds.iter().map(|(kind, _)| kind.charge.map(|(rule, ..)| rule.name())).collect::<Vec<_>>())
    .bind(kinds.iter().map(|(kind, _)| kind.subject()).collect::<Vec<_>>())
    .bind(kinds.iter().map(|(kind, _)| kind.charge.map(|(_, limit, _)| ceiling(limit))).collect::<Vec<_>>())
    .bind(kinds.iter().map(|(kind, _)| kind.charge.map(|(_, limit, _)| limit.window.as_secs_f64())).collect::<Vec<_>>())
    .bind(kinds.iter().map(|(kind, requests)| if kind.is_free { 0 } else { *requests }).collect::<Vec<_>>())
    .bind(clock)
    .bind(&salt[..])
    .bind(kinds.iter().map(|(kind, _)| source_network(kind.ip).to_string()).collect::<Vec<_>>())
    .fetch_all(&mut *connection)
    .await?;
    connection.keep();
    let mut found = Found::of(&rows, kinds.len())?;
    questions.iter().zip(kind_of).map(|(question, kind)| found.verdict(keyring, question, kind)).collect()
}

fn ceiling(limit: RateLimit) -> i32 {
    i32::try_from(limit.requests).unwrap_or(i32::MAX)
}

/// Returns the distinct questions with their counts, and for each question the index of its distinct one.
fn kinds(questions: &[Question]) -> (Vec<(Question, i32)>, Vec<usize>) {
    let mut kinds: Vec<(Question, i32)> = Vec::new();
    let mut known = HashMap::with_capacity(questions.len());
    let of = questions.iter().map(|question| {
        let kind = *known.entry(question).or_insert_with(|| {
            kinds.push((*question, 0));
            kinds.len() - 1
        });
        kinds[kind].1 += 1;
        kind
    });
    let of = of.collect();
    (kinds, of)
}

/// Rows that the statement returned.
struct Found<'r> {
    kinds: Vec<Option<&'r PgRow>>,
    /// Window of each rate limit key, with the number of requests of this batch that have got their verdict.
    windows: HashMap<&'r str, (Counted, i32)>,
}

#[derive(Clone, Copy)]
struct Counted {
    used: i32,
    granted: i32,
    closes_at: f64,
    closes_in: f64,
}

impl<'r> Found<'r> {
    fn of(rows: &'r [PgRow], kinds: usize) -> Result<Found<'r>, sqlx::Error> {
        let mut found = Found { kinds: vec![None; kinds], windows: HashMap::with_capacity(kinds) };
        for row in rows {
            let nr: Option<i32> = row.try_get(NR)?;
            match nr {
                Some(nr) => {
                    let place = usize::try_from(nr).ok().and_then(|nr| found.kinds.get_mut(nr));
                    *place.ok_or(sqlx::Error::RowNotFound)? = Some(row);
                }
                None => {
                    let counted = Counted {
                        used: row.try_get(USED)?,
                        granted: row.try_get(GRANTED)?,
                        closes_at: row.try_get(AT)?,
                        closes_in: row.try_get(IN)?,
                    };
                    found.windows.insert(row.try_get(KEY)?, (counted, 0));
                }
            }
        }
        Ok(found)
    }

    fn verdict(&mut self, keyring: &Keyring, question: &Question, kind: usize) -> Result<Verdict, sqlx::Error> {
        let row = self.kinds.get(kind).copied().flatten().ok_or(sqlx::Error::RowNotFound)?;
        let block: Option<f64> = row.try_get(AT)?;
        if let Some(ends_at) = block {
            return Ok(Verdict::Blocked(Block { ends_at, ends_in: row.try_get(IN)? }));
        }
        let client = match &question.key {
            Some(key) => client(row, keyring, key)?,
            None => None,
        };
        let Some((_, limit, _)) = question.charge else { return Ok(Verdict::Seen { client, quota: None }) };
        let key: &str = row.try_get(KEY)?;
        let (counted, told) = self.windows.get_mut(key).ok_or(sqlx::Error::RowNotFound)?;
        let Counted { used, granted, closes_at, closes_in } = *counted;
        let window = Window { ceiling: ceiling(limit), used, granted, closes_at, closes_in };
        if question.is_free {
            return Ok(Verdict::Seen { client, quota: Some(window.seen()) });
        }
        let quota = window.quota(*told);
        *told += 1;
        Ok(Verdict::Seen { client, quota: Some(quota) })
    }
}

/// Column indexes of the statement's result.
const NR: usize = 0;
const KEY: usize = 1;
const SECRET_HASH: usize = 2;
const CREDENTIAL_ID: usize = 3;
const ACCOUNT_ID: usize = 4;
const SHARD_ID: usize = 5;
const IS_REVOKED: usize = 6;
const SIGNING_SECRET: usize = 7;
const AT: usize = 8;
const IN: usize = 9;
const USED: usize = 10;
const GRANTED: usize = 11;
const MAC: usize = 12;

/// Returns the owner of an API key that exists, has this secret, is not revoked and was issued by this service.
///
/// The comparison of the secret's hash takes constant time. For an unknown key it compares with a hash that no secret has.
fn client(row: &PgRow, keyring: &Keyring, (key_hash, secret_hash): &(Hash, Hash)) -> Result<Option<Client>, sqlx::Error> {
    let expected: Option<&[u8]> = row.try_get(SECRET_HASH)?;
    let is_right = bool::from(secret_hash.ct_eq(expected.unwrap_or(&[0; 32])));
    let is_revoked: Option<bool> = row.try_get(IS_REVOKED)?;
    if !is_right || is_revoked != Some(false) {
        return Ok(None);
    }
    let (id, account_id) = (row.try_get(CREDENTIAL_ID)?, row.try_get(ACCOUNT_ID)?);
    if !keyring.admits(Row::Credential { id, account_id, key_hash, secret_hash }, row.try_get(MAC)?) {
        return Ok(None);
    }
    let principal = Principal { account_id, shard_id: row.try_get(SHARD_ID)?, who: Who::Credential(id) };
    Ok(Some(Client { principal, signing_secret: row.try_get(SIGNING_SECRET)? }))
}
