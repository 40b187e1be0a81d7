//! `/log`: the transparency log as C2SP `tlog-tiles` publishes it, one below `/log/<shard>` for each
//! shard; proofs for who keeps no tiles; and the witnesses' way in.
//!
//! Hashes are for everyone. Entries are for auditors (and admins): they are the events.

mod answers;

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::Utc;
use ledger_events::ShardId;
use ledger_events::merkle::Hash;
use ledger_events::tile::{FULL, Tile};
use poem::Request;
use poem_openapi::OpenApi;
use poem_openapi::param::{Path, Query};
use sha2::{Digest, Sha256};

use super::conditional::{Conditional, ETag, IfNoneMatch};
use super::error::{ApiError, Code};
use super::principal::{Auditor, Caller};
use super::reply::Reply;
use super::state::{ApiState, State, Tag, not_found};
use crate::access::limits::is_under;
use crate::ledger::reader;
use crate::transparency::cosignature::{self, CosignatureError, witness};
use crate::transparency::quorum::Quorum;
use crate::transparency::store::{self, Published};
use crate::transparency::{TreeError, incidents, proof};
use answers::{AcceptedCosignatures, ConsistencyProof, InclusionProof, LogKey, LogKeys, NoteText, Octets};

/// A tile never changes: one that is not full has its width in its path.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// The same of what only auditors see.
const THEIRS_FOR_EVER: &str = "private, max-age=31536000, immutable";
/// A checkpoint is asked for anew each time.
const NO_CACHE: &str = "no-cache";

/// Whether a path is one that takes an operator's token.
pub fn is_for_auditors(path: &str) -> bool {
    let below = path.strip_prefix("/log/").and_then(|rest| rest.split_once('/')).map(|(_, below)| below);
    below.is_some_and(|below| is_under(below, "tile/entries") || is_under(below, "tile/entries32"))
}

impl From<TreeError> for ApiError {
    fn from(error: TreeError) -> ApiError {
        match error {
            TreeError::Database(error) => error.into(),
            error => ApiError::internal(error),
        }
    }
}

fn base64(hashes: &[Hash]) -> Vec<String> {
    hashes.iter().map(|hash| STANDARD.encode(hash)).collect()
}

/// A shard that there is, as a path names it.
fn shard(state: &ApiState, named: i16) -> Result<ShardId, ApiError> {
    state.ledger.shards().find(|shard| *shard == named).ok_or_else(not_found)
}

async fn newest(state: &ApiState, shard: ShardId) -> Result<Published, ApiError> {
    store::newest(state.ledger.pool(), shard).await?.ok_or_else(not_found)
}

/// How many of which witnesses a caller asks for: of those that are configured now, if none is named.
pub fn quorum_of(state: &ApiState, count: Option<u32>, witnesses: &[String]) -> Result<Quorum, ApiError> {
    let keys = witnesses.iter().map(|key| witness(key));
    let named: Vec<_> = keys.collect::<Result<_, _>>().map_err(|problem| ApiError::invalid("witness", problem))?;
    let witnesses = if named.is_empty() { state.public_log.witnesses.to_vec() } else { named };
    let quorum = Quorum { count: count.unwrap_or_default().try_into().map_err(ApiError::internal)?, witnesses };
    match quorum.distinct() {
        most if quorum.count > most => {
            Err(ApiError::invalid("quorum", format!("must be at most {most}: so many witnesses count")))
        }
        _ => Ok(quorum),
    }
}

/// The size of a tree that was published: all of them begin the newest one.
fn within(newest: &Published, name: &str, size: Option<i64>, least: i64) -> Result<u64, ApiError> {
    let most = i64::try_from(newest.size).unwrap_or(i64::MAX);
    match size.unwrap_or(most) {
        size if (least..=most).contains(&size) => Ok(u64::try_from(size).unwrap_or_default()),
        _ => Err(ApiError::invalid(name, format!("must be from {least} to {most}, the size of the newest checkpoint"))),
    }
}

fn etag(bytes: &[u8]) -> ETag {
    ETag::named(&hex::encode(&Sha256::digest(bytes)[..16]))
}

/// An answer that is 304 for who has it.
fn conditional<R>(known: &IfNoneMatch, etag: ETag, cache_control: &'static str, reply: R) -> Conditional<R> {
    match known.has(&etag) {
        true => Conditional::not_modified(etag, cache_control),
        false => Conditional::modified(etag, cache_control, reply),
    }
}

/// What of a request's path follows a segment.
fn after<'a>(request: &'a Request, segment: &str) -> &'a str {
    request.uri().path().split_once(segment).map_or("", |(_, rest)| rest)
}

/// The entries of a bundle, each behind its length; of `bytes` bytes.
async fn bundle(state: &ApiState, shard: ShardId, place: &str, bytes: usize) -> Result<Vec<u8>, ApiError> {
    let tile = Tile::parse_entries(place).ok_or_else(not_found)?;
    let first = tile.index * u64::from(FULL);
    let size = newest(state, shard).await?.size;
    if first + u64::from(tile.width) > size {
        return Err(not_found());
    }
    let after = i64::try_from(first).unwrap_or(i64::MAX);
    let events = reader::stored_after(state.ledger.pool(), shard, after, tile.width.into()).await?;
    let is_whole = events.len() == usize::from(tile.width) && (after + 1..).zip(&events).all(|(at, event)| event.position == at);
    if !is_whole {
        return Err(ApiError::internal(format!("the log has not all events after {after}: run verify")));
    }
    let mut bundle = vec![];
    for event in &events {
        let entry = event.leaf().to_bytes();
        let length = u32::try_from(entry.len()).map_err(ApiError::internal)?.to_be_bytes();
        let (zeros, length) = length.split_at(4 - bytes);
        if zeros.iter().any(|byte| *byte != 0) {
            let message =
                "The bundle has an entry of more than 65,535 bytes: read it at tile/entries32, with lengths of four bytes.";
            return Err(not_found().message(message));
        }
        bundle.extend_from_slice(length);
        bundle.extend_from_slice(&entry);
    }
    Ok(bundle)
}

pub struct Log;

#[OpenApi(prefix_path = "/log", tag = "Tag::Log")]
impl Log {
    /// Get the newest checkpoint
    ///
    /// A C2SP `tlog-checkpoint`: origin, tree size and root, signed by the log, and by the witnesses
    /// that have cosigned it. The size of the tree is the position of its last event. Witnesses come
    /// some seconds after: with `quorum` it is the newest checkpoint that so many have cosigned by now,
    /// 404 if there is none.
    #[oai(path = "/:shard/checkpoint", method = "get", operation_id = "get_log_checkpoint")]
    async fn checkpoint(
        &self,
        state: State<'_>,
        /// Whose log; 1 unless there are several.
        shard: Path<i16>,
        /// How many witnesses must have cosigned it, at most as many as count; by default none.
        quorum: Query<Option<u32>>,
        /// A witness that counts, by its verifier key; may be repeated. By default each that is configured.
        witness: Query<Vec<String>>,
        /// The ETag of what you have: 304 if it is still so.
        #[oai(name = "If-None-Match")]
        known: IfNoneMatch,
    ) -> Result<Conditional<NoteText>, ApiError> {
        let shard = self::shard(&state, shard.0)?;
        let quorum = quorum_of(&state, quorum.0, &witness.0)?;
        let pool = state.ledger.pool();
        let newest = store::newest_cosigned(pool, shard, &quorum).await?.ok_or_else(|| match quorum.count {
            0 => not_found(),
            count => not_found().message(format!("No checkpoint has been cosigned by {count} of the witnesses.")),
        })?;
        let note = cosignature::with_cosignatures(pool, shard, &newest).await?;
        Ok(conditional(&known, etag(note.as_bytes()), NO_CACHE, NoteText(note)))
    }

    /// Get a tile of hashes
    ///
    /// As C2SP `tlog-tiles` has it: 256 hashes of 32 bytes, or the first `W` of a tile that was not
    /// full at the size of a checkpoint.
    #[oai(path = "/:shard/tile/*place", method = "get", operation_id = "get_log_tile")]
    async fn tile(
        &self,
        state: State<'_>,
        request: &Request,
        /// Whose log; 1 unless there are several.
        shard: Path<i16>,
        /// The ETag of what you have: 304 if it is still so.
        #[oai(name = "If-None-Match")]
        known: IfNoneMatch,
    ) -> Result<Conditional<Octets>, ApiError> {
        let shard = self::shard(&state, shard.0)?;
        let tile = Tile::parse(after(request, "/tile/")).ok_or_else(not_found)?;
        let mut found = store::tiles(state.ledger.pool(), shard, &BTreeSet::from([tile])).await?;
        let hashes = found.remove(&(tile.level, tile.index)).ok_or_else(not_found)?;
        let bytes = hashes.get(..usize::from(tile.width)).ok_or_else(not_found)?.as_flattened().to_vec();
        Ok(conditional(&known, etag(&bytes), FOR_EVER, Octets(bytes)))
    }

    /// Get a bundle of entries
    ///
    /// The canonical bytes of the events of a tile of level 0, each behind its length in two bytes,
    /// as C2SP `tlog-tiles` has it. For auditors and admins.
    #[oai(path = "/:shard/tile/entries/*place", method = "get", operation_id = "get_log_entries")]
    async fn entries(
        &self,
        _caller: Caller<Auditor>,
        state: State<'_>,
        request: &Request,
        /// Whose log; 1 unless there are several.
        shard: Path<i16>,
    ) -> Result<Conditional<Octets>, ApiError> {
        let shard = self::shard(&state, shard.0)?;
        let bytes = bundle(&state, shard, after(request, "/tile/entries/"), 2).await?;
        Ok(Conditional::modified(etag(&bytes), THEIRS_FOR_EVER, Octets(bytes)))
    }

    /// Get a bundle of entries, however long
    ///
    /// As `tile/entries`, with lengths of four bytes: for the bundles that have an event of more than
    /// 65,535 bytes, such as a delivery of thousands of vouchers. For auditors and admins.
    #[oai(path = "/:shard/tile/entries32/*place", method = "get", operation_id = "get_long_log_entries")]
    async fn long_entries(
        &self,
        _caller: Caller<Auditor>,
        state: State<'_>,
        request: &Request,
        /// Whose log; 1 unless there are several.
        shard: Path<i16>,
    ) -> Result<Conditional<Octets>, ApiError> {
        let shard = self::shard(&state, shard.0)?;
        let bytes = bundle(&state, shard, after(request, "/tile/entries32/"), 4).await?;
        Ok(Conditional::modified(etag(&bytes), THEIRS_FOR_EVER, Octets(bytes)))
    }

    /// Prove that an event is in the log
    #[oai(path = "/:shard/proof/inclusion", method = "get", operation_id = "prove_inclusion")]
    async fn inclusion(
        &self,
        state: State<'_>,
        /// Whose log; 1 unless there are several.
        shard: Path<i16>,
        /// The event's position.
        position: Query<i64>,
        /// Of the tree, from the position up to the newest checkpoint's, which is the default.
        size: Query<Option<i64>>,
    ) -> Result<Reply<InclusionProof>, ApiError> {
        let shard = self::shard(&state, shard.0)?;
        let newest = newest(&state, shard).await?;
        let position = within(&newest, "position", Some(position.0), 1)?;
        let position = i64::try_from(position).map_err(ApiError::internal)?;
        let size = within(&newest, "size", size.0, position)?;
        let pool = state.ledger.pool();
        let mut proved = proof::inclusions(pool, shard, &[position], size).await?;
        let proved = proved.pop().ok_or_else(not_found)?;
        let root = store::root_at(pool, shard, size).await?;
        Ok(Reply(InclusionProof {
            origin: newest.origin,
            size: i64::try_from(size).map_err(ApiError::internal)?,
            root: STANDARD.encode(root),
            position,
            leaf_hash: STANDARD.encode(proved.leaf_hash),
            proof: base64(&proved.proof),
        }))
    }

    /// Prove that the log has only grown
    #[oai(path = "/:shard/proof/consistency", method = "get", operation_id = "prove_consistency")]
    async fn consistency(
        &self,
        state: State<'_>,
        /// Whose log; 1 unless there are several.
        shard: Path<i16>,
        /// The size of the earlier tree, from 0.
        from: Query<i64>,
        /// The size of the later tree, up to the newest checkpoint's, which is the default.
        to: Query<Option<i64>>,
    ) -> Result<Reply<ConsistencyProof>, ApiError> {
        let shard = self::shard(&state, shard.0)?;
        let newest = newest(&state, shard).await?;
        let from = within(&newest, "from", Some(from.0), 0)?;
        let to = within(&newest, "to", to.0, i64::try_from(from).map_err(ApiError::internal)?)?;
        let pool = state.ledger.pool();
        let proof = proof::consistency(pool, shard, from, to).await?;
        Ok(Reply(ConsistencyProof {
            origin: newest.origin,
            from: i64::try_from(from).map_err(ApiError::internal)?,
            from_root: STANDARD.encode(store::root_at(pool, shard, from).await?),
            to: i64::try_from(to).map_err(ApiError::internal)?,
            to_root: STANDARD.encode(store::root_at(pool, shard, to).await?),
            proof: base64(&proof),
        }))
    }

    /// List the log's keys
    ///
    /// Believe a key because you have it from elsewhere, or because it has signed the same checkpoint
    /// as one that you believe: in a handover the old key and the new one sign together. After an incident
    /// that lost signed events the log goes on under another origin, and so under other keys.
    #[oai(path = "/:shard/keys", method = "get", operation_id = "list_log_keys")]
    async fn keys(
        &self,
        state: State<'_>,
        /// Whose log; 1 unless there are several.
        shard: Path<i16>,
    ) -> Result<Reply<LogKeys>, ApiError> {
        let shard = self::shard(&state, shard.0)?;
        let origin = newest(&state, shard).await?.origin;
        let keys = store::keys(state.ledger.pool(), shard).await?.into_iter();
        let keys = keys.map(|key| LogKey { verifier_key: key.verifier_key, since_size: key.since_size, since: key.since.into() });
        let witnesses = state.public_log.witnesses.iter().map(ToString::to_string).collect();
        let mut connection = state.ledger.pool().acquire().await?;
        let incidents = incidents::of(&mut connection, shard).await.map_err(ApiError::internal)?;
        let incidents = incidents.into_iter().map(Into::into).collect();
        Ok(Reply(LogKeys { origin, keys: keys.collect(), witnesses, incidents }))
    }

    /// Add a witness's cosignature
    ///
    /// The body is a checkpoint of this log with a cosignature (C2SP `tlog-cosignature`) of a witness
    /// whose key is configured here. The same again changes nothing; a newer one replaces it.
    /// 403 if no such witness has signed it, 404 if this log has not signed such a checkpoint.
    #[oai(path = "/:shard/cosignatures", method = "post", operation_id = "add_cosignatures")]
    async fn cosign(
        &self,
        state: State<'_>,
        /// Whose log; 1 unless there are several.
        shard: Path<i16>,
        note: NoteText,
    ) -> Result<Reply<AcceptedCosignatures>, ApiError> {
        let shard = self::shard(&state, shard.0)?;
        let witnesses = &state.public_log.witnesses;
        let accepted = cosignature::accept(state.ledger.pool(), shard, witnesses, &note.0, Utc::now()).await;
        let accepted = accepted.map_err(|error| match error {
            CosignatureError::Stranger => ApiError::new(Code::Forbidden).message("No witness that this log knows has signed it."),
            CosignatureError::Unknown => not_found().message("This log has signed no such checkpoint."),
            CosignatureError::Tree(error) => error.into(),
            error => ApiError::invalid("body", error.to_string()),
        })?;
        Ok(Reply(AcceptedCosignatures { witnesses: accepted.iter().map(|key| key.name().to_owned()).collect() }))
    }
}
