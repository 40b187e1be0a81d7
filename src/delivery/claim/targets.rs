//! URLs and secrets of webhooks, opened for sending, as they are at the time of a claim.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use ledger_database::{FromRow, PgConnection, PgPool};
use ledger_events::{CredentialId, ShardId, WebhookId};
use sha2::{Digest, Sha256};
use sqlx::Row;
use webhook_client::custom::{CustomHeaders, HeaderRefused, check_name};

use super::ClaimRequest;
use crate::delivery::schedule::Clock;
use crate::ledger::previous_secret::PreviousSecret;
use crate::ledger::texts::{CREDENTIAL_PREVIOUS_SECRET, WEBHOOK_HEADERS, WEBHOOK_PREVIOUS_TOKEN};
use crate::ledger::webhook_headers::{self, WebhookHeader};
use crate::secrets::SIGNING_SECRET;
use crate::secrets::seal::{KeyId, Keyring, SealError, Secret, salted_hash};

/// Current URL and secret of a webhook, opened for sending.
#[derive(Debug)]
pub struct Target {
    pub url: Secret,
    pub secret: Secret,
    /// Secret before a rotation, up to its end.
    previous: Option<PreviousSecret>,
    pub headers: CustomHeaders,
    /// Salted hash by which the log commits to the URL.
    pub(super) url_hash: String,
    pub(super) secret_hash: String,
    /// Salted hash of the custom headers, if there are some.
    pub(super) headers_hash: Option<String>,
}

impl PartialEq for Target {
    fn eq(&self, other: &Target) -> bool {
        let until = |target: &Target| target.previous.as_ref().map(|previous| previous.until);
        let hashes = |target: &Target| (target.url_hash.clone(), target.secret_hash.clone(), target.headers_hash.clone());
        hashes(self) == hashes(other) && until(self) == until(other)
    }
}

impl Target {
    /// Returns the secret before a rotation, if it is still valid at a time in Unix seconds.
    pub fn previous_at(&self, now: i64) -> Option<&Secret> {
        self.previous.as_ref().filter(|previous| now < previous.until).map(|previous| &previous.secret)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
struct Sealed {
    webhook_id: WebhookId,
    credential_id: Option<CredentialId>,
    url_salt: Option<Vec<u8>>,
    url: Option<Vec<u8>>,
    token: Option<Vec<u8>>,
    signing_secret: Option<Vec<u8>>,
    previous: Option<Vec<u8>>,
    headers_salt: Option<Vec<u8>>,
    headers: Option<Vec<u8>>,
}

impl Sealed {
    fn open(&self, keyring: &Keyring) -> Result<Target, SealError> {
        let missing = SealError::Unreadable;
        let (salt, url) = self.url_salt.as_ref().zip(self.url.as_ref()).ok_or(missing)?;
        let url = keyring.open_text("webhook.url", self.webhook_id.0, url)?;
        let secret = match (self.credential_id, &self.signing_secret, &self.token) {
            (Some(id), Some(secret), _) => keyring.open_text(SIGNING_SECRET, id.0, secret)?,
            (None, _, Some(token)) => keyring.open_text("webhook.token", self.webhook_id.0, token)?,
            _ => return Err(SealError::Unreadable),
        };
        let url_hash = salted_hash(salt, url.expose());
        // A secret of 256 random bits needs no salt.
        let secret_hash = hex::encode(Sha256::digest(secret.expose().as_bytes()));
        let (headers, headers_hash) = self.open_headers(keyring)?;
        let previous = self.open_previous(keyring)?;
        Ok(Target { url, secret, previous, headers, url_hash, secret_hash, headers_hash })
    }

    fn open_previous(&self, keyring: &Keyring) -> Result<Option<PreviousSecret>, SealError> {
        let Some(sealed) = &self.previous else { return Ok(None) };
        let (kind, id) = match self.credential_id {
            Some(id) => (CREDENTIAL_PREVIOUS_SECRET, id.0),
            None => (WEBHOOK_PREVIOUS_TOKEN, self.webhook_id.0),
        };
        PreviousSecret::open(&keyring.open_text(kind, id, sealed)?).map(Some).ok_or(SealError::Unreadable)
    }

    fn open_headers(&self, keyring: &Keyring) -> Result<(CustomHeaders, Option<String>), SealError> {
        let Some((salt, sealed)) = self.headers_salt.as_ref().zip(self.headers.as_ref()) else {
            return Ok((CustomHeaders::default(), None));
        };
        let headers = keyring.open_text(WEBHOOK_HEADERS, self.webhook_id.0, sealed)?;
        let opened = webhook_headers::open(&headers).ok_or(SealError::Unreadable)?;
        let checked = sendable(&opened).map_err(|_| SealError::Unreadable)?;
        Ok((checked, Some(salted_hash(salt, headers.expose()))))
    }
}

/// Returns the headers to send: all but those whose names a later release has reserved.
fn sendable(headers: &[WebhookHeader]) -> Result<CustomHeaders, HeaderRefused> {
    let allowed = headers.iter().filter(|header| check_name(&header.name).is_ok());
    CustomHeaders::new(allowed.map(|header| (&*header.name, header.value.expose())))
}

/// Returns whether a claim failed because this node lacks the current master key.
pub fn lacks_key(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Decode(source) if source.downcast_ref() == Some(&SealError::NotCurrent))
}

/// Time, targets and leases that a claim starts from.
pub(super) struct Present {
    pub at: DateTime<Utc>,
    pub targets: HashMap<WebhookId, Arc<Target>>,
    /// Number of leased deliveries of each webhook, across all nodes. It is not counted for webhooks without a limit.
    pub leased: HashMap<WebhookId, usize>,
}

/// Cache of opened targets. Every claim reads the sealed values, so a changed URL or secret applies to the very next claim;
/// the cache only saves opening them again.
#[derive(Debug, Default)]
pub struct Targets(Mutex<HashMap<WebhookId, (Sealed, Arc<Target>)>>);

impl Targets {
    /// Maximum number of cached targets.
    const MAX_TARGETS: usize = 10_000;

    /// Returns the current targets of these webhooks.
    pub async fn now(
        &self,
        pool: &PgPool,
        clock: &Clock,
        keyring: &Keyring,
        shard: ShardId,
        webhooks: &[WebhookId],
    ) -> Result<HashMap<WebhookId, Arc<Target>>, sqlx::Error> {
        let none_of = |webhook_id: &WebhookId| ClaimRequest {
            webhook_id: *webhook_id,
            first_attempts: 0,
            retries: 0,
            least: 0,
            most: usize::MAX,
        };
        let requests: Vec<ClaimRequest> = webhooks.iter().map(none_of).collect();
        let present = self.open(&mut *pool.acquire().await?, clock, keyring, shard, &requests).await?;
        Ok(present.map(|present| present.targets).unwrap_or_default())
    }

    /// Loads the targets and lease counts of the wanted webhooks. Returns `None` if none of them exists.
    pub(super) async fn open(
        &self,
        conn: &mut PgConnection,
        clock: &Clock,
        keyring: &Keyring,
        shard: ShardId,
        requests: &[ClaimRequest],
    ) -> Result<Option<Present>, sqlx::Error> {
        let rows = sqlx::query(
            "SELECT (SELECT key_id FROM vault.master_keys WHERE state = 'current') AS current_key, a.webhook_id, w.credential_id, url.salt AS url_salt, url.sealed AS url, token.sealed AS token, c.signing_secret,
                previous.sealed AS previous, headers.salt AS headers_salt, headers.sealed AS headers,
                (clock_timestamp() + $4)::timestamptz(3) AS present, leased.count AS leased
             FROM unnest($2::bigint[], $3::boolean[]) AS wanted (webhook_id, is_bounded)
             JOIN webhook_audience a ON a.shard_id = $1 AND a.webhook_id = wanted.webhook_id
             JOIN webhooks w ON w.shard_id = $1 AND w.id = wanted.webhook_id
             LEFT JOIN vault.texts url ON url.shard_id = $1 AND url.kind = 'webhook.url' AND url.id = a.webhook_id
             LEFT JOIN vault.texts token ON token.shard_id = $1 AND token.kind = 'webhook.token' AND token.id = a.webhook_id
             LEFT JOIN vault.texts previous ON previous.shard_id = $1 AND previous.id = coalesce(w.credential_id, w.id)
                AND previous.kind = CASE WHEN w.credential_id IS NULL THEN 'webhook.previous_token' ELSE 'credential.previous_secret' END
             LEFT JOIN vault.texts headers ON headers.shard_id = $1 AND headers.kind = 'webhook.headers' AND headers.id = a.webhook_id
             LEFT JOIN vault.credentials c ON c.credential_id = w.credential_id
             CROSS JOIN LATERAL
                (SELECT count(*) FROM delivery_state l WHERE wanted.is_bounded AND l.shard_id = $1
                    AND l.webhook_id = wanted.webhook_id AND l.leased_until > statement_timestamp() + $4) AS leased",
        )
        .bind(shard)
        .bind(requests.iter().map(|request| request.webhook_id).collect::<Vec<_>>())
        .bind(requests.iter().map(|request| request.most < usize::MAX).collect::<Vec<_>>())
        .bind(clock.ahead())
        .fetch_all(conn)
        .await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let at = first.try_get("present")?;
        let current: Option<&[u8]> = first.try_get("current_key")?;
        // A node without the current key can open some values and not others, so it leaves everything to other nodes.
        if !current.is_some_and(|id| KeyId::try_from(id).is_ok_and(|id| keyring.holds(id))) {
            return Err(sqlx::Error::Decode(Box::new(SealError::NotCurrent)));
        }
        let sealed = rows.iter().map(Sealed::from_row).collect::<Result<Vec<_>, _>>()?;
        let leased = rows.iter().map(|row| Ok((row.try_get("webhook_id")?, row.try_get::<i64, _>("leased")?)));
        let leased = leased.collect::<Result<Vec<(WebhookId, i64)>, sqlx::Error>>()?;
        let leased = leased.into_iter().map(|(webhook_id, count)| (webhook_id, usize::try_from(count).unwrap_or(usize::MAX)));
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() > Self::MAX_TARGETS {
            kept.clear();
        }
        let mut targets = HashMap::with_capacity(sealed.len());
        for sealed in sealed {
            let webhook_id = sealed.webhook_id;
            if let Some((same, target)) = kept.get(&webhook_id)
                && *same == sealed
            {
                targets.insert(webhook_id, target.clone());
                continue;
            }
            match sealed.open(keyring) {
                Ok(target) => {
                    let target = Arc::new(target);
                    kept.insert(webhook_id, (sealed, target.clone()));
                    targets.insert(webhook_id, target);
                }
                Err(error) => {
                    kept.remove(&webhook_id);
                    tracing::error!(webhook_id = webhook_id.0, %error, "failed to open a webhook's URL or secret; claiming no deliveries");
                }
            }
        }
        Ok(Some(Present { at, targets, leased: leased.collect() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_became_reserved_is_not_sent_and_hinders_no_delivery() {
        let header = |name: &str| WebhookHeader { name: name.to_owned(), value: Secret::new("v") };
        let sent = sendable(&[header("x-shop"), header("x-signature")]).unwrap();
        assert_eq!(format!("{sent:?}"), "{\"x-shop\"}");
    }
}
