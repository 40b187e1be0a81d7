//! The gate's statement: it looks up API keys and blocks, and charges rate limits, for a whole batch of requests.

use std::collections::HashMap;
use std::net::IpAddr;

use chrono::{DateTime, Utc};
use ledger_events::restrictions::Restrictions;
use sha2::digest::Update;
use sha2::{Digest, Sha256};
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use subtle::ConstantTimeEq;

use super::request::{GateRequest, Hash};
use super::{Client, Verdict};
use crate::access::limits::{Block, Window, source_network};
use crate::access::rate_limits::RateLimit;
use crate::access::{AccessError, ClientIdentity, Principal};
use crate::ledger::connect::DedicatedConnection;
use crate::secrets::rows::{Row, restricted_hash};
use crate::secrets::seal::Keyring;

/// Checks and charges a batch of requests. Returns one row per distinct request and one row per rate limit window.
const CHECK_AND_CHARGE: &str =
    "WITH asked AS MATERIALIZED (
            SELECT a.nr, a.ceiling, a.seconds, a.requests, v.secret_hash, v.credential_id, c.account_id, c.shard_id, c.is_revoked, m.mac,
                r.id IS NOT NULL AS is_restricted, r.scopes, r.expires_at, r.allowed_networks::text[] AS networks,
                r.expires_at <= clock_timestamp() AS is_expired,
                CASE WHEN c.hmac_required THEN coalesce(v.signing_secret, '') END AS signing_secret,
                extract(epoch FROM b.ends_at)::float8 AS ends_at, extract(epoch FROM b.ends_at - clock_timestamp())::float8 AS ends_in,
                CASE WHEN b.ip IS NOT NULL THEN NULL
                    WHEN a.subject IS NOT NULL THEN a.rule || ' ' || a.subject
                    WHEN sha256($11 || v.secret_hash) = CASE WHEN r.id IS NULL THEN a.proof ELSE a.restricted_proof END AND NOT c.is_revoked
                        AND (r.expires_at IS NULL OR r.expires_at > clock_timestamp())
                        AND (r.allowed_networks IS NULL OR a.ip::inet <<= ANY (r.allowed_networks::inet[])) THEN
                        a.rule || CASE WHEN a.rule = 'images' THEN ' account ' || c.account_id ELSE ' credential ' || c.id END
                    ELSE a.rule || ' ip ' || a.ip END AS key
            FROM unnest($1::int[], $2::bytea[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::int[], $8::float8[], $9::int[], $12::text[],
                    $13::bytea[])
                AS a (nr, key_hash, proof, ip, rule, subject, ceiling, seconds, requests, network, restricted_proof)
            LEFT JOIN vault.credentials v ON v.key_hash = a.key_hash
            LEFT JOIN credentials c ON c.id = v.credential_id
            LEFT JOIN vault.credential_macs m ON m.credential_id = v.credential_id
            LEFT JOIN credential_restrictions r ON r.id = v.credential_id
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
         SELECT nr, key, secret_hash, credential_id, account_id, shard_id, is_revoked, signing_secret, ends_at, ends_in, NULL::int, NULL::int, mac,
            is_restricted, is_expired, scopes, expires_at, networks
         FROM asked
         UNION ALL
         SELECT NULL, key, NULL, NULL, NULL, NULL, NULL, NULL, extract(epoch FROM closes_at)::float8,
            extract(epoch FROM closes_at - coalesce($10, clock_timestamp()))::float8, used, granted, NULL,
            NULL, NULL, NULL, NULL, NULL FROM counted
         UNION ALL
         SELECT NULL, key, NULL, NULL, NULL, NULL, NULL, NULL, extract(epoch FROM closes_at)::float8,
            extract(epoch FROM closes_at - now)::float8, used, 0, NULL,
            NULL, NULL, NULL, NULL, NULL
         FROM (SELECT DISTINCT ON (a.key) a.key, clock.now, coalesce(w.used, 0) AS used,
                coalesce(w.closes_at, clock.now + make_interval(secs => a.seconds)) AS closes_at
            FROM asked a CROSS JOIN (SELECT coalesce($10, clock_timestamp()) AS now) AS clock
            LEFT JOIN rate_windows w ON w.key = a.key AND w.closes_at > clock.now
            WHERE a.key IS NOT NULL AND a.requests = 0
                AND NOT EXISTS (SELECT FROM asked c WHERE c.key = a.key AND c.requests > 0)) AS seen";

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
const IS_RESTRICTED: usize = 13;
const IS_EXPIRED: usize = 14;
const SCOPES: usize = 15;
const EXPIRES_AT: usize = 16;
const NETWORKS: usize = 17;

/// Answers a batch of requests, each as if the ones before it had been answered.
///
/// Returns one verdict per request, in the same order. `clock` replaces the database's clock in tests.
///
/// Windows are fixed: a window opens with its first request and lasts its full length. A database clock that was set
/// back shortens the window, so that no caller waits longer than one window.
///
/// # Errors
/// Any error of the database. It is then unknown whether the requests were counted.
pub async fn answer(
    dedicated: &DedicatedConnection,
    keyring: &Keyring,
    requests: &[GateRequest],
    clock: Option<DateTime<Utc>>,
) -> Result<Vec<Verdict>, sqlx::Error> {
    let (kinds, kind_of) = distinct(requests);
    // A salted hash lets the database compare two hashes without a timing that reveals them.
    let salt: [u8; 16] = rand::random();
    let proof = |hash: &Hash| Sha256::new().chain(salt).chain(hash).finalize().to_vec();
    let mut connection = dedicated.acquire().await?;
    let rows = sqlx::query(CHECK_AND_CHARGE)
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
        .bind(
            kinds
                .iter()
                .map(|(kind, _)| kind.key.as_ref().map(|(_, secret)| proof(&restricted_hash(secret))))
                .collect::<Vec<_>>(),
        )
        .fetch_all(&mut *connection)
        .await?;
    connection.keep();
    let mut found = GateRows::of(&rows, kinds.len())?;
    requests.iter().zip(kind_of).map(|(request, kind)| found.verdict(keyring, request, kind)).collect()
}

fn ceiling(limit: RateLimit) -> i32 {
    i32::try_from(limit.requests).unwrap_or(i32::MAX)
}

/// Returns the distinct requests with their counts, and for each request the index of its distinct one.
fn distinct(requests: &[GateRequest]) -> (Vec<(GateRequest, i32)>, Vec<usize>) {
    let mut kinds: Vec<(GateRequest, i32)> = Vec::new();
    let mut known = HashMap::with_capacity(requests.len());
    let of = requests.iter().map(|request| {
        let kind = *known.entry(request).or_insert_with(|| {
            kinds.push((*request, 0));
            kinds.len() - 1
        });
        kinds[kind].1 += 1;
        kind
    });
    let of = of.collect();
    (kinds, of)
}

/// Rows that the statement returned.
struct GateRows<'r> {
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

impl<'r> GateRows<'r> {
    fn of(rows: &'r [PgRow], kinds: usize) -> Result<GateRows<'r>, sqlx::Error> {
        let mut found = GateRows { kinds: vec![None; kinds], windows: HashMap::with_capacity(kinds) };
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

    fn verdict(&mut self, keyring: &Keyring, request: &GateRequest, kind: usize) -> Result<Verdict, sqlx::Error> {
        let row = self.kinds.get(kind).copied().flatten().ok_or(sqlx::Error::RowNotFound)?;
        let block: Option<f64> = row.try_get(AT)?;
        if let Some(ends_at) = block {
            return Ok(Verdict::Blocked(Block { ends_at, ends_in: row.try_get(IN)? }));
        }
        let client = match &request.key {
            Some(key) => client(row, keyring, request.ip, key)?,
            None => Err(AccessError::Unknown),
        };
        let Some((_, limit, _)) = request.charge else { return Ok(Verdict::Seen { client, quota: None }) };
        let key: &str = row.try_get(KEY)?;
        let (counted, told) = self.windows.get_mut(key).ok_or(sqlx::Error::RowNotFound)?;
        let Counted { used, granted, closes_at, closes_in } = *counted;
        let window = Window { ceiling: ceiling(limit), used, granted, closes_at, closes_in };
        if request.is_free {
            return Ok(Verdict::Seen { client, quota: Some(window.seen()) });
        }
        let quota = window.quota(*told);
        *told += 1;
        Ok(Verdict::Seen { client, quota: Some(quota) })
    }
}

/// Returns the owner of an API key that exists, has this secret, is not revoked and was issued by this service.
///
/// The comparison of the secret's hash takes constant time. For an unknown key it compares with a hash that no secret has.
/// Only a caller with the right secret learns that the key has expired, or may not be used from this address.
fn client(
    row: &PgRow,
    keyring: &Keyring,
    ip: IpAddr,
    (key_hash, secret_hash): &(Hash, Hash),
) -> Result<Result<Client, AccessError>, sqlx::Error> {
    let expected: Option<&[u8]> = row.try_get(SECRET_HASH)?;
    let is_restricted = row.try_get::<Option<bool>, _>(IS_RESTRICTED)? == Some(true);
    let secret_hash = if is_restricted { restricted_hash(secret_hash) } else { *secret_hash };
    let is_right = bool::from(secret_hash.ct_eq(expected.unwrap_or(&[0; 32])));
    let is_revoked: Option<bool> = row.try_get(IS_REVOKED)?;
    if !is_right || is_revoked != Some(false) {
        return Ok(Err(AccessError::Unknown));
    }
    let (id, account_id) = (row.try_get(CREDENTIAL_ID)?, row.try_get(ACCOUNT_ID)?);
    let restrictions = if is_restricted { restrictions(row)? } else { Restrictions::default() };
    let credential = Row::Credential { id, account_id, key_hash, secret_hash: &secret_hash, restrictions: &restrictions };
    if !keyring.admits(credential, row.try_get(MAC)?) {
        return Ok(Err(AccessError::Unknown));
    }
    // By the clock of the database, which is the same for all nodes.
    if row.try_get::<Option<bool>, _>(IS_EXPIRED)? == Some(true) {
        return Ok(Err(AccessError::KeyExpired));
    }
    if !restrictions.allow_source(ip) {
        return Ok(Err(AccessError::NetworkNotAllowed));
    }
    let identity = ClientIdentity::Credential(id);
    let principal = Principal { account_id, shard_id: row.try_get(SHARD_ID)?, identity, scopes: restrictions.scopes() };
    Ok(Ok(Client { principal, signing_secret: row.try_get(SIGNING_SECRET)? }))
}

fn restrictions(row: &PgRow) -> Result<Restrictions, sqlx::Error> {
    let (scopes, networks): (Option<Vec<String>>, Option<Vec<String>>) = (row.try_get(SCOPES)?, row.try_get(NETWORKS)?);
    let read = Restrictions::from_columns(scopes.as_deref(), row.try_get(EXPIRES_AT)?, networks.as_deref());
    read.map_err(|error| sqlx::Error::Decode(Box::new(error)))
}
