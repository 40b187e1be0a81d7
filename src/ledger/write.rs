//! Writing of a batch: the head, events, orders, movements and responses with one statement, and the rest one by one.

use std::borrow::Cow;
use std::collections::HashMap;

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::{Position, ShardId, UserId};
use ledger_projections::write::{JsonText, Write};
use ledger_projections::{ProjectionError, orders, row_type, wallets};
use sqlx::postgres::PgQueryResult;
use uuid::Uuid;

use super::batch::{Appended, Batch, NewCredential, UserChange};
use super::head::{self, Head};
use super::ip_blocks;
use super::keys;
use super::operators;
use super::outbox;
use super::reader::Stored;
use super::stock;
use super::texts::response_kind;
use super::user_security;

impl Batch {
    /// Writes the batch under the head lock. The caller commits.
    pub async fn write(&self, conn: &mut PgConnection) -> Result<(), ProjectionError> {
        if !self.expired_keys.is_empty() {
            sqlx::query("DELETE FROM idempotency_keys WHERE shard_id = $1 AND key_hash = ANY($2)")
                .bind(self.shard)
                .bind(self.expired_keys.iter().map(|key| &key[..]).collect::<Vec<_>>())
                .execute(&mut *conn)
                .await?;
        }
        if self.statement()?.execute(&mut *conn).await?.is_none() {
            // The head is locked where it stood, so the database's clock was set forward meanwhile. The batch runs again.
            return Err(sqlx::Error::Protocol("the head does not stand where it was locked".into()).into());
        }
        self.streams.write(conn, self.shard).await?;
        head::add(conn, self.pending.events.iter().filter_map(|e| head::added(e.stream_id, &e.event)).collect()).await?;
        self.write_credentials(conn).await?;
        ip_blocks::end(conn, &self.pending.lifted_ips).await?;
        operators::write(conn, self.shard, &self.pending.operators).await?;
        self.write_users(conn).await?;
        user_security::write(conn, &self.pending.user_security).await?;
        outbox::insert(conn, &self.pending.mails).await?;
        stock::insert(conn, self.shard, &self.pending.vouchers).await?;
        stock::void(conn, self.shard, &self.pending.voided, self.head.recorded_at).await?;
        stock::transfer(conn, self.shard, &self.pending.transferred).await?;
        stock::set_expiry(conn, self.shard, &self.pending.expiries).await?;
        stock::expire(conn, self.shard, &self.pending.expired, self.head.recorded_at).await?;
        for erased in &self.pending.erased {
            erased.destroy(conn, self.shard).await?;
        }
        Ok(())
    }

    /// Builds the statement that writes events, orders, movements, texts, data keys, voucher claims and responses, if the head
    /// still stands where this batch began.
    pub fn statement(&self) -> Result<Write, ProjectionError> {
        let (shard, head) = (self.shard, &self.head);
        let from = Head { shard, position: head.position, event_id: head.last_event, epoch: head.epoch };
        let mut write = match self.is_empty() {
            true => from.check(),
            false => from.advance_if_recent(self.end(), head.recorded_at),
        };
        // They were read without a lock. After a failover, the head may stand where it stood before they were stored.
        let repeated: Vec<&[u8]> = self.repeated.iter().map(|key| &key[..]).collect();
        write.require(
            &repeated,
            "(key_hash) JOIN idempotency_keys k ON k.shard_id = current_setting('ledger.shard')::smallint AND k.key_hash = r.key_hash",
        );
        if self.is_empty() {
            return Ok(write);
        }
        let events = self.pending.events.iter().map(|e| EventRow::of(shard, e)).collect::<Result<Vec<_>, _>>()?;
        write.insert(EVENTS, &events, "");
        wallets::push(&mut write, shard, &self.streams.wallets.touched(), &self.pending.transactions);
        let (new, changed): (Vec<_>, Vec<_>) =
            self.streams.orders.touched().into_iter().partition(|order| order.placed_position > head.position);
        orders::push(&mut write, shard, &new, &changed)?;
        keys::push(&mut write, shard, &self.pending.keys);
        self.push_texts(&mut write);
        stock::push_claims(&mut write, shard, &self.pending.claims);
        self.push_responses(&mut write)?;
        Ok(write)
    }

    fn push_texts(&self, write: &mut Write) {
        // A batch may keep a text twice: the last one counts.
        let texts: HashMap<_, _> = self.pending.texts.iter().map(|t| ((t.kind, t.id), t)).collect();
        let texts: Vec<_> = texts
            .into_values()
            .map(|text| TextRow {
                shard_id: self.shard,
                kind: text.kind,
                id: text.id,
                salt: &text.salt,
                sealed: &text.sealed,
                key_id: text.key.as_ref().map(|key| key.id),
            })
            .collect();
        write.insert(
            "vault.texts (shard_id, kind, id, salt, sealed, key_id)",
            &texts,
            "ON CONFLICT (shard_id, kind, id) DO UPDATE SET salt = excluded.salt, sealed = excluded.sealed, key_id = excluded.key_id",
        );
    }

    fn push_responses(&self, write: &mut Write) -> Result<(), ProjectionError> {
        let mut rows = Vec::with_capacity(self.pending.responses.len());
        for key in &self.pending.responses {
            let Some(record) = self.responses.get(key) else { continue };
            let plain = record.response.body.as_bytes();
            let sealed = match &record.key {
                _ if !record.response.is_secret => Ok(Cow::Borrowed(plain)),
                Some(data_key) => data_key.seal(&response_kind(key), 0, plain).map(Cow::Owned),
                None => self.keyring.seal(&response_kind(key), 0, plain).map(Cow::Owned),
            };
            let body = sealed.map_err(|e| sqlx::Error::Encode(Box::new(e)))?;
            rows.push(ResponseRow {
                shard_id: self.shard,
                key_hash: &key[..],
                fingerprint: &record.fingerprint[..],
                status: i16::try_from(record.response.status).unwrap_or_default(),
                body,
                is_sealed: record.response.is_secret,
                created_at: self.head.recorded_at,
                key_id: record.key.as_ref().map(|key| key.id),
                about: record.about,
            });
        }
        write.insert(
            "idempotency_keys (shard_id, key_hash, fingerprint, status, body, is_sealed, created_at, key_id, about)",
            &rows,
            "",
        );
        Ok(())
    }

    async fn write_credentials(&self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        for NewCredential { id, key_hash, secret_hash, mac } in &self.pending.credentials {
            sqlx::query("INSERT INTO vault.credentials (credential_id, key_hash, secret_hash) VALUES ($1, $2, $3)")
                .bind(id)
                .bind(&key_hash[..])
                .bind(&secret_hash[..])
                .execute(&mut *conn)
                .await?;
            sqlx::query("INSERT INTO vault.credential_macs (credential_id, mac) VALUES ($1, $2)")
                .bind(id)
                .bind(&mac[..])
                .execute(&mut *conn)
                .await?;
        }
        for (id, sealed, mac) in &self.pending.signing_secrets {
            sqlx::query("UPDATE vault.credentials SET signing_secret = $2 WHERE credential_id = $1")
                .bind(id)
                .bind(&**sealed)
                .execute(&mut *conn)
                .await?;
            sqlx::query(
                "INSERT INTO vault.credential_macs (credential_id, secret_mac) VALUES ($1, $2)
                 ON CONFLICT (credential_id) DO UPDATE SET secret_mac = excluded.secret_mac",
            )
            .bind(id)
            .bind(&mac[..])
            .execute(&mut *conn)
            .await?;
        }
        Ok(())
    }

    async fn write_users(&self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        for change in &self.pending.users {
            match change {
                UserChange::Admit { id, email_lookup, password_hash, mac } => {
                    sqlx::query("INSERT INTO vault.users (user_id, email_lookup, password_hash) VALUES ($1, $2, $3)")
                        .bind(id)
                        .bind(&email_lookup[..])
                        .bind(password_hash.expose())
                        .execute(&mut *conn)
                        .await?;
                    keep_user_mac(conn, *id, mac).await?
                }
                UserChange::Password { id, password_hash, mac } => {
                    sqlx::query("UPDATE vault.users SET password_hash = $2 WHERE user_id = $1")
                        .bind(id)
                        .bind(password_hash.expose())
                        .execute(&mut *conn)
                        .await?;
                    user_security::end_resets(conn, *id).await?;
                    keep_user_mac(conn, *id, mac).await?
                }
                UserChange::EndOtherSessions { id, kept } => {
                    let end = "UPDATE vault.sessions SET revoked_at = clock_timestamp()
                               WHERE user_id = $1 AND id <> $2 AND revoked_at IS NULL";
                    sqlx::query(end).bind(id).bind(kept).execute(&mut *conn).await?
                }
                UserChange::EndSessions(id) => {
                    let end =
                        "UPDATE vault.sessions SET revoked_at = clock_timestamp() WHERE user_id = $1 AND revoked_at IS NULL";
                    sqlx::query(end).bind(id).execute(&mut *conn).await?
                }
                UserChange::Remove(id) => {
                    sqlx::query("DELETE FROM vault.users WHERE user_id = $1").bind(id).execute(&mut *conn).await?
                }
            };
        }
        Ok(())
    }
}

async fn keep_user_mac(conn: &mut PgConnection, id: UserId, mac: &[u8; 32]) -> Result<PgQueryResult, sqlx::Error> {
    sqlx::query(
        "INSERT INTO vault.user_macs (user_id, mac) VALUES ($1, $2) ON CONFLICT (user_id) DO UPDATE SET mac = excluded.mac",
    )
    .bind(id)
    .bind(&mac[..])
    .execute(conn)
    .await
}

const EVENTS: &str =
    "events (shard_id, position, event_id, stream_type, stream_id, version, type, schema_version, data, metadata, recorded_at)";

/// Appends events as another log has them, for an import.
pub fn push_stored(write: &mut Write, events: &[Stored]) {
    let rows: Vec<EventRow<'_>> = events.iter().map(EventRow::of_stored).collect();
    write.insert(EVENTS, &rows, "");
}

row_type! {
    struct EventRow<'a> as "public.event_row" {
        shard_id: ShardId,
        position: Position,
        event_id: Uuid,
        stream_type: &'a str,
        stream_id: i64,
        version: i64,
        r#type: &'a str,
        schema_version: i16,
        data: JsonText<'a>,
        metadata: JsonText<'a>,
        recorded_at: DateTime<Utc>,
    }
}

impl<'a> EventRow<'a> {
    fn of(shard_id: ShardId, appended: &'a Appended) -> Result<EventRow<'a>, serde_json::Error> {
        let (r#type, schema_version) = appended.event.type_and_version();
        Ok(EventRow {
            shard_id,
            position: appended.moment.position,
            event_id: appended.moment.event_id,
            stream_type: appended.event.stream_type().as_str(),
            stream_id: appended.stream_id,
            version: appended.moment.version,
            r#type,
            schema_version,
            data: JsonText(appended.event.payload()?.into()),
            metadata: JsonText(serde_json::to_string(&appended.metadata)?.into()),
            recorded_at: appended.moment.recorded_at,
        })
    }

    fn of_stored(stored: &'a Stored) -> EventRow<'a> {
        EventRow {
            shard_id: stored.shard_id,
            position: stored.position,
            event_id: stored.event_id,
            stream_type: &stored.stream_type,
            stream_id: stored.stream_id,
            version: stored.version,
            r#type: &stored.event_type,
            schema_version: stored.schema_version,
            data: JsonText(Cow::Borrowed(&stored.data)),
            metadata: JsonText(Cow::Borrowed(&stored.metadata)),
            recorded_at: stored.recorded_at,
        }
    }
}

row_type! {
    struct TextRow<'a> as "public.vault_text_row_2" {
        shard_id: ShardId,
        kind: &'a str,
        id: i64,
        salt: &'a [u8],
        sealed: &'a [u8],
        key_id: Option<i64>,
    }
}

row_type! {
    struct ResponseRow<'a> as "public.idempotency_key_row_2" {
        shard_id: ShardId,
        key_hash: &'a [u8],
        fingerprint: &'a [u8],
        status: i16,
        body: Cow<'a, [u8]>,
        is_sealed: bool,
        created_at: DateTime<Utc>,
        key_id: Option<i64>,
        about: Option<i64>,
    }
}
