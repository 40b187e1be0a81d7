//! The tree's tables: tiles, right edge, checkpoints, keys and cosignatures.

use std::collections::{BTreeSet, HashMap, HashSet};

use chrono::{DateTime, Utc};
use ledger_database::FromRow;
use ledger_database::{PgConnection, PgPool};
use ledger_events::{Position, ShardId};
use sqlx::PgExecutor;
use transparency_log::checkpoint::Checkpoint;
use transparency_log::merkle::{Hash, MerkleError, Node};
use transparency_log::note::VerifierKey;
use transparency_log::quorum::Quorum;
use transparency_log::tile::{Edge, FULL, Tile};

use super::TreeError;

pub use crate::ledger::backlog::TREE as PROJECTION;

/// A signed checkpoint as the database stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub origin: String,
    pub size: u64,
    pub root: Hash,
    /// Signed note with the log's own signatures only, without cosignatures.
    pub note: String,
    pub signed_at: DateTime<Utc>,
}

/// A public key that has signed at least one checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct PublishedKey {
    pub verifier_key: String,
    /// Size of the first tree that the key signed.
    pub since_size: i64,
    pub since: DateTime<Utc>,
}

/// Converts a size for the database: sizes are positions, which are `bigint`.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn size(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

/// Splits bytes into hashes of 32 bytes. Drops an incomplete last hash.
fn hashes(bytes: &[u8]) -> Vec<Hash> {
    bytes.as_chunks::<32>().0.to_vec()
}

/// Returns the position of the log's head, and its epoch.
pub async fn head(db: impl PgExecutor<'_>, shard: ShardId) -> Result<(Position, i64), sqlx::Error> {
    sqlx::query_as("SELECT position, epoch FROM log_head WHERE shard_id = $1").bind(shard).fetch_one(db).await
}

/// Returns the size of the tree according to its checkpoint row, and according to its full tiles.
pub async fn grown(db: impl PgExecutor<'_>, shard: ShardId) -> Result<(u64, u64), sqlx::Error> {
    let (grown, tiles): (Option<i64>, Option<i64>) = sqlx::query_as(
        "SELECT (SELECT position FROM projection_checkpoints WHERE shard_id = $1 AND projection = $2),
            (SELECT max(index) FROM log_tiles WHERE shard_id = $1 AND level = 0)",
    )
    .bind(shard)
    .bind(PROJECTION)
    .fetch_one(db)
    .await?;
    Ok((grown.map_or(0, size), tiles.map_or(0, |index| size(index).saturating_add(1).saturating_mul(u64::from(FULL)))))
}

/// Locks the tree for this transaction and returns its size. Returns none if another node holds the lock.
pub async fn hold(conn: &mut PgConnection, shard: ShardId) -> Result<Option<u64>, sqlx::Error> {
    let held: Option<Position> = sqlx::query_scalar(
        "SELECT position FROM projection_checkpoints WHERE shard_id = $1 AND projection = $2 FOR UPDATE SKIP LOCKED",
    )
    .bind(shard)
    .bind(PROJECTION)
    .fetch_optional(&mut *conn)
    .await?;
    if held.is_some() {
        return Ok(held.map(size));
    }
    let made = sqlx::query("INSERT INTO projection_checkpoints (shard_id, projection) VALUES ($1, $2) ON CONFLICT DO NOTHING")
        .bind(shard)
        .bind(PROJECTION)
        .execute(conn)
        .await?;
    Ok((made.rows_affected() == 1).then_some(0))
}

/// Returns the right edge of the tree of this size, or none if the table holds the edge of another size.
pub async fn edge(db: impl PgExecutor<'_>, shard: ShardId, tree_size: u64) -> Result<Option<Edge>, sqlx::Error> {
    let found: Vec<(i16, Vec<u8>)> =
        sqlx::query_as("SELECT level, hashes FROM log_edges WHERE shard_id = $1").bind(shard).fetch_all(db).await?;
    let mut rows = <[Vec<Hash>; Tile::MAX_LEVEL as usize + 1]>::default();
    for (level, bytes) in found {
        if let Some(row) = usize::try_from(level).ok().and_then(|level| rows.get_mut(level)) {
            *row = hashes(&bytes);
        }
    }
    Ok(Edge::new(tree_size, rows))
}

/// Writes the growth of one step: new full tiles, changed rows of the edge, and the new size.
pub async fn write(
    conn: &mut PgConnection,
    shard: ShardId,
    before: &Edge,
    after: &Edge,
    full: &[(Tile, Vec<Hash>)],
) -> Result<(), sqlx::Error> {
    let (mut levels, mut indexes, mut tiles) = (vec![], vec![], vec![]);
    for (tile, hashes) in full {
        levels.push(i16::from(tile.level));
        indexes.push(number(tile.index));
        tiles.push(hashes.as_flattened().to_vec());
    }
    if !tiles.is_empty() {
        sqlx::query("INSERT INTO log_tiles (shard_id, level, index, hashes) SELECT $1, * FROM unnest($2::smallint[], $3::bigint[], $4::bytea[])")
            .bind(shard)
            .bind(levels)
            .bind(indexes)
            .bind(tiles)
            .execute(&mut *conn)
            .await?;
    }
    let (mut levels, mut indexes, mut rows) = (vec![], vec![], vec![]);
    for (level, (row, known)) in (0_i16..).zip(after.rows().iter().zip(before.rows())) {
        if row != known {
            levels.push(level);
            indexes.push(number(after.size() >> (8 * level) >> 8));
            rows.push(row.as_flattened().to_vec());
        }
    }
    sqlx::query(
        "INSERT INTO log_edges (shard_id, level, index, hashes) SELECT $1, * FROM unnest($2::smallint[], $3::bigint[], $4::bytea[])
         ON CONFLICT (shard_id, level) DO UPDATE SET index = EXCLUDED.index, hashes = EXCLUDED.hashes",
    )
    .bind(shard)
    .bind(levels)
    .bind(indexes)
    .bind(rows)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "UPDATE projection_checkpoints SET position = $3, updated_at = clock_timestamp() WHERE shard_id = $1 AND projection = $2",
    )
    .bind(shard)
    .bind(PROJECTION)
    .bind(number(after.size()))
    .execute(conn)
    .await?;
    Ok(())
}

/// Stores a signed checkpoint, and those of its keys that have not signed before.
pub async fn publish(
    conn: &mut PgConnection,
    shard: ShardId,
    checkpoint: &Checkpoint,
    note: &str,
    keys: &[VerifierKey],
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO log_checkpoints (shard_id, size, origin, root, note) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
    )
    .bind(shard)
    .bind(number(checkpoint.size))
    .bind(&checkpoint.origin)
    .bind(&checkpoint.root[..])
    .bind(note)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "INSERT INTO log_keys (shard_id, verifier_key, since_size) SELECT $1, key, $3 FROM unnest($2::text[]) AS key
         ON CONFLICT DO NOTHING",
    )
    .bind(shard)
    .bind(keys.iter().map(ToString::to_string).collect::<Vec<_>>())
    .bind(number(checkpoint.size))
    .execute(conn)
    .await?;
    Ok(())
}

type Row = (String, i64, Vec<u8>, String, DateTime<Utc>);

fn published((origin, tree_size, root, note, signed_at): Row) -> Published {
    Published { origin, size: size(tree_size), root: hashes(&root).first().copied().unwrap_or_default(), note, signed_at }
}

/// Returns the newest checkpoint, or none if nothing was signed yet.
pub async fn newest(db: impl PgExecutor<'_>, shard: ShardId) -> Result<Option<Published>, sqlx::Error> {
    let found: Option<Row> = sqlx::query_as(
        "SELECT origin, size, root, note, signed_at FROM log_checkpoints WHERE shard_id = $1 ORDER BY size DESC, signed_at DESC LIMIT 1",
    )
    .bind(shard)
    .fetch_optional(db)
    .await?;
    Ok(found.map(published))
}

/// Returns whether the database has a checkpoint under this origin.
pub async fn has_signed(db: impl PgExecutor<'_>, shard: ShardId, origin: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM log_checkpoints WHERE shard_id = $1 AND origin = $2)")
        .bind(shard)
        .bind(origin)
        .fetch_one(db)
        .await
}

/// Number of cosignatures per query in [`newest_cosigned`].
const PAGE_COSIGNATURES: i64 = 1_000;
/// Largest number of cosignatures that [`newest_cosigned`] examines. Two witnesses produce about that many in a day.
const MAX_COSIGNATURES: usize = 100_000;

/// Returns the newest checkpoint that a quorum has cosigned, or simply the newest one if no cosignature is required.
/// Witnesses are asked every few seconds, but checkpoints are signed more often, so a busy log's newest checkpoint has no
/// cosignature yet. Examines the newest 100,000 cosignatures under the log's current origin, newest first.
pub async fn newest_cosigned(pool: &PgPool, shard: ShardId, quorum: &Quorum) -> Result<Option<Published>, sqlx::Error> {
    let newest = newest(pool, shard).await?;
    if quorum.count == 0 {
        return Ok(newest);
    }
    let Some(Published { origin, .. }) = newest.filter(|_| quorum.can_be_met()) else { return Ok(None) };
    let witnesses: Vec<String> = quorum.witnesses.iter().map(ToString::to_string).collect();
    let (mut before, mut seen) = ((i64::MAX, String::new()), 0);
    let (mut at, mut keys) = (None, HashSet::new());
    while seen < MAX_COSIGNATURES {
        let page: Vec<(i64, String)> = sqlx::query_as(
            "SELECT size, witness FROM log_cosignatures WHERE shard_id = $1 AND origin = $2 AND size <= $3 AND (size, witness) < ($3, $4)
                AND witness = ANY($5) ORDER BY size DESC, witness DESC LIMIT $6",
        )
        .bind(shard)
        .bind(&origin)
        .bind(before.0)
        .bind(&before.1)
        .bind(&witnesses)
        .bind(PAGE_COSIGNATURES)
        .fetch_all(pool)
        .await?;
        let Some(last) = page.last().cloned() else { return Ok(None) };
        (before, seen) = (last, seen + page.len());
        for (tree_size, witness) in page {
            if at != Some(tree_size) {
                (at, keys) = (Some(tree_size), HashSet::new());
            }
            // A verifier key ends in 44 characters of base64 that are the key. One key under two names counts as one
            // witness.
            keys.insert(witness[witness.len().saturating_sub(44)..].to_owned());
            if keys.len() >= quorum.count {
                return checkpoint(pool, shard, &origin, size(tree_size)).await;
            }
        }
    }
    Ok(None)
}

/// Returns, for each of these sizes, the first checkpoint of an origin with at least that size and at most `upto`. The
/// result is ordered by size, without duplicates.
pub async fn checkpoints_at(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    origin: &str,
    sizes: &[u64],
    upto: u64,
) -> Result<Vec<Published>, sqlx::Error> {
    let found: Vec<Row> = sqlx::query_as(
        "SELECT DISTINCT ON (c.size) c.origin, c.size, c.root, c.note, c.signed_at FROM unnest($3::bigint[]) AS wanted (size)
         CROSS JOIN LATERAL (SELECT origin, size, root, note, signed_at FROM log_checkpoints WHERE shard_id = $1 AND origin = $2
            AND size >= wanted.size AND size <= $4 ORDER BY size LIMIT 1) AS c ORDER BY c.size",
    )
    .bind(shard)
    .bind(origin)
    .bind(sizes.iter().map(|size| number(*size)).collect::<Vec<_>>())
    .bind(number(upto))
    .fetch_all(db)
    .await?;
    Ok(found.into_iter().map(published).collect())
}

/// Returns the checkpoint of an origin with exactly this size.
pub async fn checkpoint(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    origin: &str,
    tree_size: u64,
) -> Result<Option<Published>, sqlx::Error> {
    let found: Option<Row> = sqlx::query_as(
        "SELECT origin, size, root, note, signed_at FROM log_checkpoints WHERE shard_id = $1 AND size = $2 AND origin = $3",
    )
    .bind(shard)
    .bind(number(tree_size))
    .bind(origin)
    .fetch_optional(db)
    .await?;
    Ok(found.map(published))
}

/// Returns a page of checkpoints after a size and origin, in that order.
pub async fn checkpoints_after(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    after: (i64, &str),
    limit: i64,
) -> Result<Vec<Published>, sqlx::Error> {
    let found: Vec<Row> = sqlx::query_as(
        "SELECT origin, size, root, note, signed_at FROM log_checkpoints WHERE shard_id = $1 AND (size, origin) > ($2, $3)
         ORDER BY size, origin LIMIT $4",
    )
    .bind(shard)
    .bind(after.0)
    .bind(after.1)
    .bind(limit)
    .fetch_all(db)
    .await?;
    Ok(found.into_iter().map(published).collect())
}

/// Returns every key that has ever signed, oldest first.
pub async fn keys(db: impl PgExecutor<'_>, shard: ShardId) -> Result<Vec<PublishedKey>, sqlx::Error> {
    sqlx::query_as(
        "SELECT verifier_key, since_size, since FROM log_keys WHERE shard_id = $1 ORDER BY since, since_size, verifier_key",
    )
    .bind(shard)
    .fetch_all(db)
    .await
}

/// Returns a checkpoint's cosignatures as signature lines of a note.
pub async fn cosignatures(db: impl PgExecutor<'_>, shard: ShardId, of: &Published) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT signature FROM log_cosignatures WHERE shard_id = $1 AND size = $2 AND origin = $3 ORDER BY witness",
    )
    .bind(shard)
    .bind(number(of.size))
    .bind(&of.origin)
    .fetch_all(db)
    .await
}

/// Stores a witness's cosignature of a checkpoint, unless a newer one of that witness is stored.
pub async fn cosign(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    of: &Published,
    witness: &VerifierKey,
    signature: &str,
    at: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO log_cosignatures (shard_id, size, origin, witness, signature, cosigned_at) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (shard_id, size, origin, witness) DO UPDATE SET signature = EXCLUDED.signature, cosigned_at = EXCLUDED.cosigned_at
         WHERE log_cosignatures.cosigned_at < EXCLUDED.cosigned_at",
    )
    .bind(shard)
    .bind(number(of.size))
    .bind(&of.origin)
    .bind(witness.to_string())
    .bind(signature)
    .bind(at)
    .execute(db)
    .await?;
    Ok(())
}

/// Returns tiles by level and index, each with all the hashes that it has now.
pub async fn tiles(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    wanted: &BTreeSet<Tile>,
) -> Result<HashMap<(u8, u64), Vec<Hash>>, sqlx::Error> {
    let levels: Vec<i16> = wanted.iter().map(|tile| i16::from(tile.level)).collect();
    let indexes: Vec<i64> = wanted.iter().map(|tile| number(tile.index)).collect();
    // A tile moves from the edge to the full tiles, so one statement must read both tables.
    let found: Vec<(i16, i64, Vec<u8>)> = sqlx::query_as(
        "SELECT w.level, w.index, coalesce(t.hashes, e.hashes) FROM unnest($2::smallint[], $3::bigint[]) AS w (level, index)
         LEFT JOIN log_tiles t ON t.shard_id = $1 AND t.level = w.level AND t.index = w.index
         LEFT JOIN log_edges e ON e.shard_id = $1 AND e.level = w.level AND e.index = w.index
         WHERE coalesce(t.hashes, e.hashes) IS NOT NULL",
    )
    .bind(shard)
    .bind(levels)
    .bind(indexes)
    .fetch_all(db)
    .await?;
    Ok(found
        .into_iter()
        .map(|(level, index, bytes)| ((u8::try_from(level).unwrap_or_default(), size(index)), hashes(&bytes)))
        .collect())
}

/// Computes a value, such as a root or a proof, from hashes of perfect subtrees of the tree at a size. Runs `with` twice:
/// the first run collects the nodes that it needs, then one statement reads their tiles.
///
/// # Errors
/// Returns the errors of `with`, and [`TreeError::Missing`] when a tile is missing.
pub async fn compute<T>(
    db: impl PgExecutor<'_>,
    shard: ShardId,
    tree_size: u64,
    with: impl Fn(&mut dyn FnMut(Node) -> Result<Hash, TreeError>) -> Result<T, TreeError> + Send + Sync,
) -> Result<T, TreeError> {
    let mut wanted = BTreeSet::new();
    with(&mut |node| {
        wanted.insert(Tile::holding(node, tree_size));
        Ok(Hash::default())
    })?;
    let tiles = if wanted.is_empty() { HashMap::new() } else { tiles(db, shard, &wanted).await? };
    with(&mut |node| {
        let tile = Tile::holding(node, tree_size);
        let hashes = tiles.get(&(tile.level, tile.index)).and_then(|hashes| hashes.get(..usize::from(tile.width)));
        hashes.and_then(|hashes| Tile::hash(node, hashes)).ok_or_else(|| TreeError::Missing(tile.path()))
    })
}

/// Returns the root of the tree at an earlier or the current size.
pub async fn root_at(db: impl PgExecutor<'_>, shard: ShardId, tree_size: u64) -> Result<Hash, TreeError> {
    compute(db, shard, tree_size, |read| transparency_log::merkle::root(tree_size, read)).await
}

impl From<MerkleError> for TreeError {
    fn from(error: MerkleError) -> TreeError {
        TreeError::Proof(error)
    }
}
