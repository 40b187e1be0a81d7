//! Asking witnesses for their cosignatures (C2SP `tlog-witness`): each is sent every newest checkpoint
//! with the proof that it goes on from the last one that it has cosigned.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::Utc;
use ledger_database::PgPool;
use ledger_events::ShardId;
use reqwest::{StatusCode, Url};
use tokio_util::sync::CancellationToken;

use super::cosignature::{self, CosignatureError};
use super::note::VerifierKey;
use super::{TreeError, proof, store};
use crate::heartbeat::Heartbeat;

/// Witnesses are asked so often at most.
const EVERY: Duration = Duration::from_secs(2);
/// How long a witness may take over one answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// An answer is a few lines.
const MOST_ANSWER_BYTES: usize = 64 << 10;

/// Why a witness's word was not got.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    #[error("no answer: {0}")]
    Http(reqwest::Error),
    #[error("it answers {0}")]
    Status(StatusCode),
    #[error("its answer is too long")]
    Long,
    #[error("it has cosigned a tree of {0}, which is more than this log has: they are not the same log")]
    Ahead(u64),
    #[error("its signature is not taken: {0}")]
    Signature(#[from] CosignatureError),
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl From<sqlx::Error> for WitnessError {
    fn from(error: sqlx::Error) -> WitnessError {
        WitnessError::Tree(error.into())
    }
}

/// What a witness has cosigned under an origin, as far as this node knows.
type Known = HashMap<(usize, ShardId), (String, u64)>;

/// Asks every witness of the configuration.
#[derive(Debug)]
pub struct WitnessCaller {
    pool: PgPool,
    shards: Vec<ShardId>,
    /// Submission prefixes.
    urls: Vec<Url>,
    witnesses: std::sync::Arc<[VerifierKey]>,
    http: reqwest::Client,
    known: Known,
    heartbeat: Heartbeat,
}

impl WitnessCaller {
    /// # Errors
    /// When no HTTP client can be made.
    pub fn new(
        pool: PgPool,
        shards: Vec<ShardId>,
        urls: Vec<Url>,
        witnesses: std::sync::Arc<[VerifierKey]>,
    ) -> Result<WitnessCaller, reqwest::Error> {
        let http = reqwest::Client::builder().timeout(DEADLINE).redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(WitnessCaller { pool, shards, urls, witnesses, http, known: Known::new(), heartbeat: Heartbeat::default() })
    }

    /// The same, whose rounds are watched.
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

    /// Asks all witnesses about each shard's newest checkpoint, those that have not cosigned it yet; how
    /// many have now. All are asked about the same one, and at once, so that one checkpoint gets the
    /// cosignatures of all.
    pub async fn once(&mut self) -> usize {
        let mut cosigned = 0;
        for shard in self.shards.clone() {
            self.heartbeat.beat();
            let newest = match store::newest(&self.pool, shard).await {
                Ok(Some(newest)) => newest,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(shard, %error, "the newest checkpoint cannot be read; witnesses are asked later");
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
                        tracing::warn!(witness = self.urls[witness].as_str(), shard, %error, "a witness has not cosigned")
                    }
                }
            }
        }
        cosigned
    }

    /// The size that the witness has cosigned now; none if it had already.
    async fn ask(&self, witness: usize, shard: ShardId, newest: &store::Published) -> Result<Option<u64>, WitnessError> {
        let known = self.known.get(&(witness, shard)).filter(|(origin, _)| *origin == newest.origin);
        let old = known.map(|(_, size)| *size);
        if old.is_some_and(|old| old >= newest.size) {
            return Ok(None);
        }
        let mut old = old.unwrap_or_default();
        // The first answer may tell what the witness has; the second is about that.
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

    /// A witness that has cosigned more: another node may have asked it about what the log has by now.
    async fn ahead(&self, shard: ShardId, size: u64) -> Result<Option<u64>, WitnessError> {
        match store::newest(&self.pool, shard).await? {
            Some(newest) if newest.size >= size => Ok(None),
            _ => Err(WitnessError::Ahead(size)),
        }
    }

    /// One `add-checkpoint`.
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
        let mut answer = vec![];
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if answer.len() + chunk.len() > MOST_ANSWER_BYTES {
                return Err(WitnessError::Long);
            }
            answer.extend_from_slice(&chunk);
        }
        Ok((response.status(), String::from_utf8_lossy(&answer).into_owned()))
    }
}
