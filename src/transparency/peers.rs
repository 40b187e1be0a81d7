//! The other nodes that sign the same log. Reads their open refusals, and whether they have compared their states with the
//! current database server.

use ledger_database::FromRow;
use ledger_database::PgConnection;
use ledger_events::ShardId;
use transparency_log::merkle::Hash;
use uuid::Uuid;

use super::Refusal;
use super::signer_state::Remembered;

/// A signing node, identified by the id of its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub node: Uuid,
    /// Host name of the node. Only people read it.
    pub host: String,
}

/// A refusal to sign that the node has not withdrawn.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Recorded {
    pub origin: String,
    pub node: Uuid,
    pub host: String,
    pub reason: String,
    /// Position of the log's head when the node refused.
    pub head: i64,
    /// Size of the tree that the node remembered; none if it remembered none. `root` is that tree's root.
    pub size: Option<i64>,
    pub root: Option<Hash>,
    /// `log_head.epoch` that the node remembered.
    pub epoch: Option<i64>,
    pub refused_at: chrono::DateTime<chrono::Utc>,
}

impl Recorded {
    /// Returns the tree that the node remembered when it refused, or none if it remembered none.
    pub fn remembered(&self) -> Option<Remembered> {
        let size = u64::try_from(self.size?).ok()?;
        Some(Remembered { size, root: self.root?, epoch: self.epoch? })
    }
}

/// One row of the query in [`Peers::read`]: the current server, then a signer's node id and host. The last column tells
/// whether it has compared its state with that server.
type SignerRow = (String, Option<Uuid>, Option<String>, Option<bool>);

/// The signers of a shard's log, as the database records them.
#[derive(Debug)]
pub struct Peers {
    /// Identifies the server process and the database. The value changes after a failover or a restore.
    server: String,
    /// Whether the database records that this node has compared its state with the current server.
    is_known: bool,
    /// Other nodes that have not compared their states with the current server.
    pub unheard: Vec<Identity>,
    /// Open refusals of all nodes under any origin, including this one's.
    refusals: Vec<Recorded>,
}

impl Peers {
    /// Reads the signers and refusals of a shard from the database.
    pub async fn read(conn: &mut PgConnection, shard: ShardId, me: &Identity) -> Result<Peers, sqlx::Error> {
        let rows: Vec<SignerRow> = sqlx::query_as(
            "SELECT present.server, s.node, s.host, s.server = present.server
             FROM (SELECT pg_postmaster_start_time()::text || '/' || oid AS server FROM pg_database WHERE datname = current_database()) AS present
             LEFT JOIN log_signers s ON s.shard_id = $1",
        )
        .bind(shard)
        .fetch_all(&mut *conn)
        .await?;
        let server = rows.first().map(|row| row.0.clone()).ok_or(sqlx::Error::RowNotFound)?;
        let (mut is_known, mut unheard) = (false, vec![]);
        for (_, node, host, is_current) in rows {
            let (Some(node), Some(host), Some(is_current)) = (node, host, is_current) else { continue };
            match node == me.node {
                true => is_known = is_current,
                false if !is_current => unheard.push(Identity { node, host }),
                false => {}
            }
        }
        let refusals = refusals(conn, shard).await?;
        Ok(Peers { server, is_known, unheard, refusals })
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the refusal of another node, if there is one.
    pub fn refusal(&self, me: &Identity) -> Option<Refusal> {
        let other = self.refusals.iter().find(|refusal| refusal.node != me.node)?;
        Some(Refusal::Elsewhere { node: other.node, host: other.host.clone(), reason: other.reason.clone() })
    }

    /// Returns the refusals of this node that it has not withdrawn.
    pub fn own_refusals(&self, me: &Identity) -> impl Iterator<Item = &Recorded> {
        self.refusals.iter().filter(|refusal| refusal.node == me.node)
    }

    /// Records, for the other nodes, that this node has compared its state with the current server.
    pub async fn appear(&self, conn: &mut PgConnection, shard: ShardId, me: &Identity) -> Result<(), sqlx::Error> {
        if self.is_known {
            return Ok(());
        }
        sqlx::query(
            "INSERT INTO log_signers (shard_id, node, host, server) VALUES ($1, $2, $3, $4)
             ON CONFLICT (shard_id, node) DO UPDATE SET host = EXCLUDED.host, server = EXCLUDED.server, compared_at = EXCLUDED.compared_at",
        )
        .bind(shard)
        .bind(me.node)
        .bind(&me.host)
        .bind(&self.server)
        .execute(conn)
        .await?;
        Ok(())
    }

    /// Stops waiting for the nodes that have not compared their states: deletes their records.
    pub async fn give_up(&self, conn: &mut PgConnection, shard: ShardId) -> Result<(), sqlx::Error> {
        let unheard: Vec<Uuid> = self.unheard.iter().map(|peer| peer.node).collect();
        sqlx::query("DELETE FROM log_signers WHERE shard_id = $1 AND node = ANY($2) AND server <> $3")
            .bind(shard)
            .bind(unheard)
            .bind(&self.server)
            .execute(conn)
            .await?;
        Ok(())
    }
}

/// Returns the open refusals under any origin, oldest first. A new origin does not end a refusal: only the node that refused,
/// or an incident that was recorded since.
pub async fn refusals(conn: &mut PgConnection, shard: ShardId) -> Result<Vec<Recorded>, sqlx::Error> {
    // The trigger `refuse_checkpoint`, the metric (`backlog::sample`) and the list of signers have the same condition.
    sqlx::query_as(
        "SELECT origin, node, host, reason, head, size, root, epoch, refused_at FROM log_refusals r
         WHERE shard_id = $1 AND withdrawn_at IS NULL
           AND NOT EXISTS (SELECT FROM events e WHERE e.shard_id = r.shard_id AND e.stream_type = 'log' AND e.stream_id = r.shard_id
                AND e.type = 'LogIncidentRecorded' AND (e.position > r.head OR e.data ->> 'origin' = r.origin))
         ORDER BY refused_at, node",
    )
    .bind(shard)
    .fetch_all(conn)
    .await
}

/// Records a refusal of this node, on disk when this returns. The refusal stays open until the node withdraws it. While
/// it is open, the tree that was recorded first stays, because the node may have lost its state since.
pub async fn refuse(
    conn: &mut PgConnection,
    shard: ShardId,
    origin: &str,
    me: &Identity,
    refusal: &Refusal,
    remembered: Option<&Remembered>,
) -> Result<(), sqlx::Error> {
    let mut tx = conn.begin().await?;
    // The projector otherwise commits asynchronously, because the log can reproduce its tables. It cannot reproduce this
    // row.
    sqlx::raw_sql("SET LOCAL synchronous_commit = on").execute(&mut *tx).await?;
    sqlx::query(
        "INSERT INTO log_refusals AS known (shard_id, origin, node, host, reason, head, size, root, epoch)
         SELECT $1, $2, $3, $4, $5, h.position, $6, $7, $8 FROM log_head h WHERE h.shard_id = $1
         ON CONFLICT (shard_id, origin, node) DO UPDATE
         SET host = EXCLUDED.host, reason = EXCLUDED.reason, head = EXCLUDED.head, withdrawn_at = NULL,
             size = CASE WHEN known.withdrawn_at IS NULL AND known.size IS NOT NULL THEN known.size ELSE EXCLUDED.size END,
             root = CASE WHEN known.withdrawn_at IS NULL AND known.size IS NOT NULL THEN known.root ELSE EXCLUDED.root END,
             epoch = CASE WHEN known.withdrawn_at IS NULL AND known.size IS NOT NULL THEN known.epoch ELSE EXCLUDED.epoch END,
             refused_at = CASE WHEN known.withdrawn_at IS NULL THEN known.refused_at ELSE EXCLUDED.refused_at END
         WHERE known.withdrawn_at IS NOT NULL
            OR known.reason <> EXCLUDED.reason
            OR (known.size IS NULL AND EXCLUDED.size IS NOT NULL)",
    )
    .bind(shard)
    .bind(origin)
    .bind(me.node)
    .bind(&me.host)
    .bind(refusal.to_string())
    .bind(remembered.map(|known| i64::try_from(known.size).unwrap_or(i64::MAX)))
    .bind(remembered.map(|known| &known.root[..]))
    .bind(remembered.map(|known| known.epoch))
    .execute(&mut *tx)
    .await?;
    tx.commit().await
}

/// Withdraws this node's refusals, because the log agrees with the node's state after all.
pub async fn withdraw(conn: &mut PgConnection, shard: ShardId, me: &Identity) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE log_refusals SET withdrawn_at = clock_timestamp()
         WHERE shard_id = $1 AND node = $2 AND withdrawn_at IS NULL",
    )
    .bind(shard)
    .bind(me.node)
    .execute(conn)
    .await?;
    Ok(())
}
