//! `/admin/v1/checkpoints`: the published checkpoints of the transparency log.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use poem_openapi::param::Query;
use poem_openapi::{Object, OpenApi};
use serde::Serialize;

use super::audit::position_before;
use crate::access::Operator;
use crate::api::error::ApiError;
use crate::api::page::Page;
use crate::api::principal::Caller;
use crate::api::reply::Reply;
use crate::api::scalars::Timestamp;
use crate::api::state::{State, Tag};
use crate::transparency::listing::{self, Checkpoint, Cosignature};

/// A checkpoint that the log has published.
#[derive(Object, Serialize)]
struct PublishedCheckpoint {
    /// Origin: the name of the log.
    origin: String,
    /// Number of events in the tree.
    size: i64,
    /// Root hash of the tree, in base64.
    root: String,
    /// Time at which the log signed the checkpoint.
    signed_at: Timestamp,
    /// Cosignatures of the checkpoint.
    cosignatures: Vec<CheckpointCosignature>,
}

/// A cosignature of a checkpoint.
#[derive(Object, Serialize)]
struct CheckpointCosignature {
    /// Verifier key of the witness.
    witness: String,
    /// Time that the witness has signed.
    cosigned_at: Timestamp,
}

/// A page of checkpoints, newest first.
#[derive(Object, Serialize)]
struct CheckpointPage {
    /// Checkpoints of this page.
    checkpoints: Vec<PublishedCheckpoint>,
    /// Value of `before` for the next page. Null at the end.
    next_before: Option<i64>,
}

impl PublishedCheckpoint {
    fn of(checkpoint: Checkpoint, cosignatures: &[Cosignature]) -> Self {
        let Checkpoint { origin, size, root, signed_at } = checkpoint;
        let own = cosignatures.iter().filter(|cosignature| cosignature.size == size && cosignature.origin == origin);
        let own = own.map(|Cosignature { witness, cosigned_at, .. }| CheckpointCosignature {
            witness: witness.clone(),
            cosigned_at: (*cosigned_at).into(),
        });
        Self { cosignatures: own.collect(), origin, size, root: STANDARD.encode(root), signed_at: signed_at.into() }
    }
}

pub struct Checkpoints;

#[OpenApi(prefix_path = "/admin/v1", tag = "Tag::Log")]
impl Checkpoints {
    /// List checkpoints
    ///
    /// Returns the checkpoints that a log has published, newest first, with the witnesses that have cosigned them. Checkpoints
    /// of one size stay on one page. `GET /log/:shard/checkpoint` returns the newest one with its signatures.
    #[oai(path = "/checkpoints", method = "get", operation_id = "list_checkpoints")]
    async fn list(
        &self,
        _caller: Caller<Operator>,
        state: State<'_>,
        /// Only checkpoints of trees smaller than this: `next_before` of the previous page.
        before: Query<Option<i64>>,
        /// Checkpoints per page, 1 to 100. Default: 20.
        limit: Query<Option<i64>>,
        /// Shard whose log to read. Default: the first shard.
        shard_id: Query<Option<i16>>,
    ) -> Result<Reply<CheckpointPage>, ApiError> {
        let limit = i64::try_from(Page::of(None, limit.0, 20, 100)?.limit).unwrap_or(20);
        let shard = state.shard_named(shard_id.0)?;
        let page = listing::page(state.ledger.pool(), shard, position_before(before.0)?, limit).await?;
        let shown = page.checkpoints.into_iter().map(|checkpoint| PublishedCheckpoint::of(checkpoint, &page.cosignatures));
        Ok(Reply(CheckpointPage { checkpoints: shown.collect(), next_before: page.next_before }))
    }
}
