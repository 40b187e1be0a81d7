//! Requests cosignatures from witnesses (C2SP `tlog-witness`). Each witness receives every newest checkpoint with a
//! consistency proof from the last one that it has cosigned.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::Utc;
use ledger_database::PgPool;
use ledger_events::ShardId;
use reqwest::{StatusCode, Url};
use tokio_util::sync::CancellationToken;
use transparency_log::note::VerifierKey;

use super::cosignature::{self, CosignatureError};
use super::{TreeError, proof, store};
use crate::heartbeat::Heartbeat;
use crate::ledger::ShardWatch;
use crate::response_body;

/// Interval between two rounds of requests.
const EVERY: Duration = Duration::from_secs(2);
/// Timeout of one request to a witness.
const DEADLINE: Duration = Duration::from_secs(10);
/// Limit on the response of a witness. A valid one has only a few lines.
const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Reason why a witness's cosignature could not be obtained.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    #[error("no response: {0}")]
    Http(reqwest::Error),
    #[error("the witness responded with {0}")]
    Status(StatusCode),
    #[error("the response is too long")]
    Long,
    #[error("the witness has cosigned a tree of {0} events, more than this log has: it follows a different log")]
    Ahead(u64),
    #[error("its signature was rejected: {0}")]
    Signature(#[from] CosignatureError),
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl From<sqlx::Error> for WitnessError {
    fn from(error: sqlx::Error) -> WitnessError {
        WitnessError::Tree(error.into())
    }
}

/// Origin and size that each witness has last cosigned for each shard, as far as this node knows.
type CosignedSizes = HashMap<(usize, ShardId), (String, u64)>;

/// Client that sends checkpoints to all configured witnesses.
#[derive(Debug)]
pub struct WitnessCaller {
    pool: PgPool,
    shards: ShardWatch,
    /// Submission prefix of each witness; `/add-checkpoint` is appended to it.
    urls: Vec<Url>,
    witnesses: std::sync::Arc<[VerifierKey]>,
    http: reqwest::Client,
    known: CosignedSizes,
    heartbeat: Heartbeat,
}

impl WitnessCaller {
    /// Builds the HTTP client, which follows no redirects.
    ///
    /// # Errors
    /// Returns an error when the HTTP client cannot be built.
    pub fn new(
        pool: PgPool,
        shards: ShardWatch,
        urls: Vec<Url>,
        witnesses: std::sync::Arc<[VerifierKey]>,
    ) -> Result<WitnessCaller, reqwest::Error> {
        let http = reqwest::Client::builder().timeout(DEADLINE).redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(WitnessCaller { pool, shards, urls, witnesses, http, known: CosignedSizes::new(), heartbeat: Heartbeat::default() })
    }

    /// Sets the heartbeat that every round signals.
    pub fn watched(self, heartbeat: Heartbeat) -> WitnessCaller {
        WitnessCaller { heartbeat, ..self }
    }

    pub async fn run(mut self, stop: CancellationToken) {
        let mut due = tokio::time::interval(EVERY);
        due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while stop.run_until_cancelled(due.tick()).await.is_some() {
            _ = stop.run_until_cancelled(self.once()).await;
        }
    }

    /// Sends each shard's newest checkpoint to all witnesses that have not cosigned it yet. Returns the number of new
    /// cosignatures. All witnesses receive the same checkpoint at the same time, so that one checkpoint collects the
    /// cosignatures of all.
    pub async fn once(&mut self) -> usize {
        let mut cosigned = 0;
        for shard in self.shards.current() {
            self.heartbeat.beat();
            let newest = match store::newest(&self.pool, shard).await {
                Ok(Some(newest)) => newest,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(shard, %error, "failed to read the newest checkpoint; retrying in the next round");
                    continue;
                }
            };
            let asked = (0..self.urls.len()).map(|witness| self.ask(witness, shard, &newest));
            for (witness, answer) in futures::future::join_all(asked).await.into_iter().enumerate() {
                match answer {
                    Ok(Some(size)) => {
                        self.known.insert((witness, shard), (newest.origin.clone(), size));
                        cosigned += 1;
                    }
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(witness = self.urls[witness].as_str(), shard, %error, "failed to get the cosignature of a witness")
                    }
                }
            }
        }
        cosigned
    }

    /// Returns the size that the witness has now cosigned, or none if it had cosigned it before.
    async fn ask(&self, witness: usize, shard: ShardId, newest: &store::Published) -> Result<Option<u64>, WitnessError> {
        let known = self.known.get(&(witness, shard)).filter(|(origin, _)| *origin == newest.origin);
        let old = known.map(|(_, size)| *size);
        if old.is_some_and(|old| old >= newest.size) {
            return Ok(None);
        }
        let mut old = old.unwrap_or_default();
        // The first response may state the size that the witness has cosigned. The second request starts from that size.
        for _ in 0..2 {
            let (status, answer) = self.send(witness, shard, old, newest).await?;
            match status {
                StatusCode::OK => {
                    let note = format!("{}{answer}", newest.note);
                    cosignature::accept(&self.pool, shard, &self.witnesses, &note, Utc::now()).await?;
                    return Ok(Some(newest.size));
                }
                StatusCode::CONFLICT => match answer.trim_end().parse::<u64>() {
                    Ok(size) if size > newest.size => return self.ahead(shard, size).await,
                    Ok(size) if size != old => old = size,
                    _ => return Err(WitnessError::Status(status)),
                },
                status => return Err(WitnessError::Status(status)),
            }
        }
        Err(WitnessError::Status(StatusCode::CONFLICT))
    }

    /// Handles a witness that has cosigned a larger tree. Another node may have submitted a checkpoint in the meantime.
    async fn ahead(&self, shard: ShardId, size: u64) -> Result<Option<u64>, WitnessError> {
        match store::newest(&self.pool, shard).await? {
            Some(newest) if newest.size >= size => Ok(None),
            _ => Err(WitnessError::Ahead(size)),
        }
    }

    /// Sends one `add-checkpoint` request.
    async fn send(
        &self,
        witness: usize,
        shard: ShardId,
        old: u64,
        newest: &store::Published,
    ) -> Result<(StatusCode, String), WitnessError> {
        let proof = proof::consistency(&self.pool, shard, old, newest.size).await?;
        let lines: String = proof.iter().map(|hash| STANDARD.encode(hash) + "\n").collect();
        let body = format!("old {old}\n{lines}\n{}", newest.note);
        let url = format!("{}/add-checkpoint", self.urls[witness].as_str().trim_end_matches('/'));
        let failed = |error: reqwest::Error| WitnessError::Http(error.without_url());
        let mut response = self.http.post(url).header("Content-Type", "text/plain").body(body).send().await.map_err(failed)?;
        let answer = response_body::up_to(MAX_ANSWER_BYTES, &mut response).await.map_err(failed)?.ok_or(WitnessError::Long)?;
        Ok((response.status(), String::from_utf8_lossy(&answer).into_owned()))
    }
}
