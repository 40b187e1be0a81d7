//! `/log`: the transparency log in the form of C2SP `tlog-tiles`, one log under `/log/<shard>` for each shard. Also proofs
//! for clients that keep no tiles, and an endpoint for witnesses to add cosignatures.
//!
//! Hashes are public. Entries are the events themselves, so only auditors and admins can read them.

mod answers;

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::Utc;
use ledger_database::replanned;
use ledger_events::ShardId;
use poem::Request;
use poem_openapi::OpenApi;
use poem_openapi::param::{Path, Query};
use sha2::{Digest, Sha256};
use transparency_log::merkle::Hash;
use transparency_log::quorum::Quorum;
use transparency_log::tile::{FULL, Tile};

use super::conditional::{Conditional, ETag, IfNoneMatch};
use super::error::{ApiError, Code};
use super::principal::{Auditor, Caller};
use super::reply::Reply;
use super::state::{ApiState, State, Tag, not_found};
use crate::access::limits::is_under;
use crate::ledger::reader;
use crate::transparency::cosignature::{self, CosignatureError, witness};
use crate::transparency::store::{self, Published};
use crate::transparency::{TreeError, incidents, proof};
use answers::{AcceptedCosignatures, ConsistencyProof, InclusionProof, LogKey, LogKeys, NoteText, Octets};

/// `Cache-Control` for tiles. They never change, because a partial tile has its width in its path.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// `Cache-Control` for entries, which hold what accounts did.
const NO_STORE: &str = "no-store";
/// `Cache-Control` for checkpoints, which caches must revalidate each time.
const NO_CACHE: &str = "no-cache";

/// Returns whether a path requires an operator token. Under `/log`, only those of entries do.
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

/// Returns the shard that a path names.
///
/// # Errors
/// 404 if it does not exist.
fn shard(state: &ApiState, named: i16) -> Result<ShardId, ApiError> {
    if state.ledger.shards().contains(&named) { Ok(named) } else { Err(not_found()) }
}

async fn newest(state: &ApiState, shard: ShardId) -> Result<Published, ApiError> {
    store::newest(state.ledger.pool(), shard).await?.ok_or_else(not_found)
}

/// Builds the quorum that a caller requests. Without named witnesses, the configured ones count.
///
/// # Errors
/// 400 for a malformed witness key, or for a count larger than the number of distinct witnesses.
pub fn quorum_of(state: &ApiState, count: Option<u32>, witnesses: &[String]) -> Result<Quorum, ApiError> {
    let keys = witnesses.iter().map(|key| witness(key));
    let named: Vec<_> =
        keys.collect::<Result<_, _>>().map_err(|problem| ApiError::invalid("witness", format!("is {problem}")))?;
    let witnesses = if named.is_empty() { state.public_log.witnesses.to_vec() } else { named };
    let quorum = Quorum { count: count.unwrap_or_default().try_into().map_err(ApiError::internal)?, witnesses };
    match quorum.distinct() {
        most if quorum.count > most => {
            Err(ApiError::invalid("quorum", format!("must be at most {most}, the number of witnesses that count")))
        }
        _ => Ok(quorum),
    }
}

/// Validates a tree size or position between `least` and the newest checkpoint's size, which is the default. Every
/// published tree is a prefix of the newest one.
///
/// # Errors
/// 400 naming the parameter if it is out of range.
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

/// Returns a response that is 304 if the caller's cached copy is current.
fn conditional<R>(known: &IfNoneMatch, etag: ETag, cache_control: &'static str, reply: R) -> Conditional<R> {
    match known.has(&etag) {
        true => Conditional::not_modified(etag, cache_control),
        false => Conditional::modified(etag, cache_control, reply),
    }
}

/// Returns the rest of a request's path after a segment.
fn after<'a>(request: &'a Request, segment: &str) -> &'a str {
    request.uri().path().split_once(segment).map_or("", |(_, rest)| rest)
}

/// Returns the entries of a bundle, each prefixed with its length in `bytes` big-endian bytes.
///
/// # Errors
/// 404 if the tile does not exist, or if an entry's length does not fit. 500 if the log has a gap.
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
        return Err(ApiError::internal(format!("the log is missing events after position {after}; run verify")));
    }
    let mut bundle = vec![];
    for event in &events {
        let entry = event.leaf().to_bytes();
        let length = u32::try_from(entry.len()).map_err(ApiError::internal)?.to_be_bytes();
        let (zeros, length) = length.split_at(4 - bytes);
        if zeros.iter().any(|byte| *byte != 0) {
            let message =
                "The bundle has an entry of more than 65,535 bytes. Read it at tile/entries32, which has four-byte lengths.";
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
    /// Retrieve the newest checkpoint
    ///
    /// Returns a C2SP `tlog-checkpoint`: origin, tree size and root hash, signed by the log and cosigned by witnesses.
    /// The tree size is the position of the last event in the tree. Witnesses cosign some seconds after the log signs.
    /// With `quorum`, the response is the newest checkpoint that enough witnesses have cosigned, or 404 if there is none.
    #[oai(path = "/:shard/checkpoint", method = "get", operation_id = "get_log_checkpoint")]
    async fn checkpoint(
        &self,
        state: State<'_>,
        /// Number of the shard whose log to read. 1 unless the service has several shards.
        shard: Path<i16>,
        /// Number of witnesses that must have cosigned the checkpoint, from 0 to the number of witnesses that count.
        /// Default: 0.
        quorum: Query<Option<u32>>,
        /// Verifier key of a witness that counts towards the quorum. Repeat it for several. Default: all configured
        /// witnesses.
        witness: Query<Vec<String>>,
        /// `ETag` of your cached copy. The response is 304 if the copy is current.
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

    /// Retrieve a tile of hashes
    ///
    /// Returns a tile in the format of C2SP `tlog-tiles`: 256 hashes of 32 bytes each. For a partial tile of width `W`,
    /// which ends a tree at a checkpoint, it returns the first `W` hashes.
    #[oai(path = "/:shard/tile/*place", method = "get", operation_id = "get_log_tile")]
    async fn tile(
        &self,
        state: State<'_>,
        request: &Request,
        /// Number of the shard whose log to read. 1 unless the service has several shards.
        shard: Path<i16>,
        /// `ETag` of your cached copy. The response is 304 if the copy is current.
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

    /// Retrieve a bundle of entries
    ///
    /// Returns the canonical bytes of the events of one level-0 tile, in the format of C2SP `tlog-tiles`. A two-byte
    /// big-endian length precedes each event. Requires an auditor or admin.
    #[oai(path = "/:shard/tile/entries/*place", method = "get", operation_id = "get_log_entries")]
    async fn entries(
        &self,
        _caller: Caller<Auditor>,
        state: State<'_>,
        request: &Request,
        /// Number of the shard whose log to read. 1 unless the service has several shards.
        shard: Path<i16>,
    ) -> Result<Conditional<Octets>, ApiError> {
        let shard = self::shard(&state, shard.0)?;
        let bytes = bundle(&state, shard, after(request, "/tile/entries/"), 2).await?;
        Ok(Conditional::modified(etag(&bytes), NO_STORE, Octets(bytes)))
    }

    /// Retrieve a bundle of long entries
    ///
    /// Returns the same events as `tile/entries`, with four-byte big-endian lengths. Use it for bundles with an event of
    /// more than 65,535 bytes, such as a delivery of thousands of vouchers. Requires an auditor or admin.
    #[oai(path = "/:shard/tile/entries32/*place", method = "get", operation_id = "get_long_log_entries")]
    async fn long_entries(
        &self,
        _caller: Caller<Auditor>,
        state: State<'_>,
        request: &Request,
        /// Number of the shard whose log to read. 1 unless the service has several shards.
        shard: Path<i16>,
    ) -> Result<Conditional<Octets>, ApiError> {
        let shard = self::shard(&state, shard.0)?;
        let bytes = bundle(&state, shard, after(request, "/tile/entries32/"), 4).await?;
        Ok(Conditional::modified(etag(&bytes), NO_STORE, Octets(bytes)))
    }

    /// Prove that an event is in the log
    ///
    /// Returns a Merkle inclusion proof (RFC 9162, 2.1.3) for the event at a position, in the tree of a given size.
    #[oai(path = "/:shard/proof/inclusion", method = "get", operation_id = "prove_inclusion")]
    async fn inclusion(
        &self,
        state: State<'_>,
        /// Number of the shard whose log to read. 1 unless the service has several shards.
        shard: Path<i16>,
        /// Position of the event in the log, starting at 1.
        position: Query<i64>,
        /// Size of the tree, from `position` to the size of the newest checkpoint. Default: the newest checkpoint's size.
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
    ///
    /// Returns a Merkle consistency proof (RFC 9162, 2.1.4): the tree of size `to` begins with the tree of size `from`.
    #[oai(path = "/:shard/proof/consistency", method = "get", operation_id = "prove_consistency")]
    async fn consistency(
        &self,
        state: State<'_>,
        /// Number of the shard whose log to read. 1 unless the service has several shards.
        shard: Path<i16>,
        /// Size of the earlier tree, at least 0.
        from: Query<i64>,
        /// Size of the later tree, from `from` to the size of the newest checkpoint. Default: the newest checkpoint's size.
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
    /// Returns the keys that sign the log's checkpoints, the configured witnesses, and recorded incidents.
    ///
    /// Trust a key if you have it from another source, or if it signed the same checkpoint as a key that you trust.
    /// During a handover, the old and the new key sign together. After an incident that lost signed events, the log
    /// continues under a new origin, and so with new keys.
    #[oai(path = "/:shard/keys", method = "get", operation_id = "list_log_keys")]
    async fn keys(
        &self,
        state: State<'_>,
        /// Number of the shard whose log to read. 1 unless the service has several shards.
        shard: Path<i16>,
    ) -> Result<Reply<LogKeys>, ApiError> {
        let shard = self::shard(&state, shard.0)?;
        let origin = newest(&state, shard).await?.origin;
        let keys = store::keys(state.ledger.pool(), shard).await?.into_iter();
        let keys = keys.map(|key| LogKey { verifier_key: key.verifier_key, since_size: key.since_size, since: key.since.into() });
        let witnesses = state.public_log.witnesses.iter().map(ToString::to_string).collect();
        let find = async || incidents::of(&mut *state.ledger.pool().acquire().await?, shard).await;
        let incidents = replanned(find).await?;
        let incidents = incidents.into_iter().map(Into::into).collect();
        Ok(Reply(LogKeys { origin, keys: keys.collect(), witnesses, incidents }))
    }

    /// Add a witness's cosignature
    ///
    /// The body is a checkpoint of this log with a cosignature (C2SP `tlog-cosignature`) by a witness whose key is
    /// configured here. Sending the same cosignature again changes nothing; a newer one replaces it. Returns 403 if no
    /// configured witness has signed the checkpoint, and 404 if this log has not signed it.
    #[oai(path = "/:shard/cosignatures", method = "post", operation_id = "add_cosignatures")]
    async fn cosign(
        &self,
        state: State<'_>,
        /// Number of the shard whose log to read. 1 unless the service has several shards.
        shard: Path<i16>,
        note: NoteText,
    ) -> Result<Reply<AcceptedCosignatures>, ApiError> {
        let shard = self::shard(&state, shard.0)?;
        let witnesses = &state.public_log.witnesses;
        let accepted = cosignature::accept(state.ledger.pool(), shard, witnesses, &note.0, Utc::now()).await;
        let accepted = accepted.map_err(|error| match error {
            CosignatureError::Stranger => {
                ApiError::new(Code::Forbidden).message("No configured witness has signed the checkpoint.")
            }
            CosignatureError::Unknown => not_found().message("This log has not signed this checkpoint."),
            CosignatureError::Tree(error) => error.into(),
            error => ApiError::invalid("body", format!("cannot be accepted: {error}")),
        })?;
        Ok(Reply(AcceptedCosignatures { witnesses: accepted.iter().map(|key| key.name().to_owned()).collect() }))
    }
}
