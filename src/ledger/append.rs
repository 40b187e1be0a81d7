//! Appending to a batch in memory, and writing the batch: head, events, orders, movements and
//! answers with one statement.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::account::{evolve as evolve_account, evolve_credential};
use ledger_events::beneficiary::evolve as evolve_beneficiary;
use ledger_events::catalogue::{evolve as evolve_product, evolve_category};
use ledger_events::order::evolve as evolve_order;
use ledger_events::payout::evolve as evolve_payout;
use ledger_events::reconciliation::evolve as evolve_statement;
use ledger_events::replay::evolve as evolve_replay;
use ledger_events::user::evolve as evolve_user;
use ledger_events::wallet::evolve as evolve_wallet;
use ledger_events::webhook::evolve as evolve_webhook;
use ledger_events::{AccountId, Event, Metadata, Moment, Position, ShardId, UserId};
use ledger_projections::wallets::Transaction;
use ledger_projections::write::{Head, JsonText, Write};
use ledger_projections::{
    ProjectionError, accounts, beneficiaries, catalogue, orders, payouts, replays, row_type, statements, users, wallets, webhooks,
};
use sqlx::postgres::PgQueryResult;
use uuid::Uuid;

use super::batch::{Appended, Batch, NewCredential, SealedText, UserChange, answer_kind};
use super::ip_blocks;
use super::keys::{self, NewKey, Owner};
use super::operators;
use super::reader::Stored;
use super::stock;
use super::submission::{Idempotency, Origin};
use crate::secrets::seal::{DataKey, Private, SealError, salted_hash};

/// What belongs to every event of one command.
#[derive(Debug)]
pub struct Story<'a> {
    pub origin: &'a Origin,
    pub idempotency: Option<&'a Idempotency>,
    pub account_id: Option<AccountId>,
    pub correlation_id: Option<Uuid>,
    pub causation_id: Option<Uuid>,
}

impl Story<'_> {
    /// What goes on with an event after another one: of the story that has begun, or begins with it.
    pub fn after(self, cause: Uuid) -> Self {
        Story { correlation_id: self.correlation_id.or(Some(cause)), causation_id: Some(cause), ..self }
    }
}

/// Takes a state out of its map, evolves it, and puts it back.
macro_rules! evolve_in {
    ($map:expr, $touched:expr, $id:expr, $evolve:expr, $event:expr, $moment:expr) => {{
        let before = $map.remove(&$id);
        if let Some(after) = $evolve(before, $id, $event, $moment) {
            $map.insert($id, after);
        }
        $touched.insert($id);
    }};
}

impl Batch {
    /// Appends one event: gives it its place, evolves its stream's state, and remembers what has
    /// to be written. Returns the event's id.
    pub fn append(&mut self, stream_id: i64, event: impl Into<Event>, story: &Story<'_>) -> Uuid {
        let event = event.into();
        let event_id = self.next_event_id();
        let moment = Moment {
            position: self.end() + 1,
            event_id,
            version: self.version_of(stream_id, &event) + 1,
            recorded_at: self.recorded_at,
        };
        match &event {
            Event::Order(e) => evolve_in!(self.orders, self.touched.orders, stream_id, evolve_order, e, &moment),
            Event::Wallet(e) => {
                evolve_in!(self.wallets, self.touched.wallets, stream_id, evolve_wallet, e, &moment);
                if let Some(wallet) = self.wallets.get(&stream_id) {
                    self.transactions.extend(Transaction::of(wallet, e, &moment));
                }
            }
            Event::Webhook(e) => evolve_in!(self.webhooks, self.touched.webhooks, stream_id, evolve_webhook, e, &moment),
            Event::Replay(e) => evolve_in!(self.replays, self.touched.replays, stream_id, evolve_replay, e, &moment),
            Event::Account(e) => evolve_in!(self.accounts, self.touched.accounts, stream_id, evolve_account, e, &moment),
            Event::Credential(e) => {
                evolve_in!(self.credentials, self.touched.credentials, stream_id, evolve_credential, e, &moment)
            }
            Event::User(e) => evolve_in!(self.users, self.touched.users, stream_id, evolve_user, e, &moment),
            Event::Product(e) => evolve_in!(self.products, self.touched.products, stream_id, evolve_product, e, &moment),
            Event::Category(e) => evolve_in!(self.categories, self.touched.categories, stream_id, evolve_category, e, &moment),
            Event::IpBlock(_) | Event::ApiVersion(_) => {} // no state beside the event
            Event::Log(_) => self.log_version = moment.version,
            Event::Operator(_) => {
                if let Some(known) = self.operators.get_mut(&stream_id) {
                    known.version = moment.version;
                }
            }
            Event::Beneficiary(e) => {
                evolve_in!(self.beneficiaries, self.touched.beneficiaries, stream_id, evolve_beneficiary, e, &moment)
            }
            Event::Payout(e) => evolve_in!(self.payouts, self.touched.payouts, stream_id, evolve_payout, e, &moment),
            Event::Reconciliation(e) => {
                evolve_in!(self.statements, self.touched.statements, stream_id, evolve_statement, e, &moment)
            }
        }
        let metadata = Metadata {
            actor: story.origin.actor,
            account_id: story.account_id,
            request_id: story.origin.request_id.clone(),
            correlation_id: story.correlation_id.unwrap_or(event_id),
            causation_id: story.causation_id,
            idempotency_key_hash: story.idempotency.map(|i| hex::encode(i.key_hash)),
        };
        self.appended.push(Appended { moment, stream_id, event, metadata });
        event_id
    }

    fn version_of(&self, id: i64, event: &Event) -> i64 {
        let version = match event {
            Event::Order(_) => self.orders.get(&id).map(|s| s.version),
            Event::Wallet(_) => self.wallets.get(&id).map(|s| s.version),
            Event::Webhook(_) => self.webhooks.get(&id).map(|s| s.version),
            Event::Replay(_) => self.replays.get(&id).map(|s| s.version),
            Event::Account(_) => self.accounts.get(&id).map(|s| s.version),
            Event::Credential(_) => self.credentials.get(&id).map(|s| s.version),
            Event::User(_) => self.users.get(&id).map(|s| s.version),
            Event::Product(_) => self.products.get(&id).map(|s| s.version),
            Event::Category(_) => self.categories.get(&id).map(|s| s.version),
            Event::IpBlock(_) => None,
            Event::ApiVersion(_) => self.sunset.as_ref().map(|(version, _)| *version),
            Event::Log(_) => Some(self.log_version),
            Event::Operator(_) => self.operators.get(&id).map(|s| s.version),
            Event::Beneficiary(_) => self.beneficiaries.get(&id).map(|s| s.version),
            Event::Payout(_) => self.payouts.get(&id).map(|s| s.version),
            Event::Reconciliation(_) => self.statements.get(&id).map(|s| s.version),
        };
        version.unwrap_or_default()
    }

    /// Seals a text of somebody's for the vault, under the data key that is theirs, and returns the
    /// hash by which the log commits to it.
    pub fn keep_text_of(
        &mut self,
        owner: Owner,
        kind: &'static str,
        id: i64,
        salt: Vec<u8>,
        text: &Private,
    ) -> Result<String, SealError> {
        let key = self.data_key(owner)?;
        self.keep(Some(key), kind, id, salt, text)
    }

    /// The same of a text that is the service's own, under the master key.
    pub fn keep_text(&mut self, kind: &'static str, id: i64, salt: Vec<u8>, text: &Private) -> Result<String, SealError> {
        self.keep(None, kind, id, salt, text)
    }

    fn keep(
        &mut self,
        key: Option<Arc<DataKey>>,
        kind: &'static str,
        id: i64,
        salt: Vec<u8>,
        text: &Private,
    ) -> Result<String, SealError> {
        let hash = salted_hash(&salt, text.expose());
        let plain = text.expose().as_bytes();
        let sealed = match &key {
            Some(key) => key.seal(kind, id, plain)?,
            None => self.keyring.seal(kind, id, plain)?,
        };
        let text = SealedText { kind, id, salt, sealed, key };
        self.texts.insert((kind, id), text.clone());
        self.vault.texts.push(text);
        Ok(hash)
    }

    /// Somebody's data key, which [`Needs`](super::needs::Needs) has asked for; a new one if they have none.
    pub fn data_key(&mut self, owner: Owner) -> Result<Arc<DataKey>, SealError> {
        match self.data_keys.get(&owner) {
            Some(Some(key)) => Ok(key.clone()),
            Some(None) => {
                let key = Arc::new(self.new_data_key(owner)?);
                self.data_keys.insert(owner, Some(key.clone()));
                Ok(key)
            }
            None => Err(SealError::NoDataKey(format!("{owner:?}"))),
        }
    }

    /// The data key of somebody who is made by this batch.
    pub fn new_data_key(&mut self, owner: Owner) -> Result<DataKey, SealError> {
        let id = self.ids.data_keys.pop_front().ok_or_else(|| SealError::NoDataKey(format!("{owner:?}")))?;
        let (key, sealed) = self.keyring.new_data_key(id)?;
        self.vault.keys.push(NewKey { id, owner, sealed });
        Ok(key)
    }

    /// A text from the vault, if there is one.
    pub fn text(&self, kind: &'static str, id: i64) -> Result<Option<Private>, SealError> {
        self.sealed_text(kind, id).map(|text| text.open(&self.keyring)).transpose()
    }

    /// Whether there is nothing to write: every command was refused, or answered again.
    pub fn is_empty(&self) -> bool {
        self.appended.is_empty() && self.new_answers.is_empty() && self.vault.keys.is_empty()
    }

    /// Writes everything that was decided, under the head lock. The caller commits.
    pub async fn write(&self, conn: &mut PgConnection) -> Result<(), ProjectionError> {
        if !self.expired_answers.is_empty() {
            sqlx::query("DELETE FROM idempotency_keys WHERE shard_id = $1 AND key_hash = ANY($2)")
                .bind(self.shard)
                .bind(self.expired_answers.iter().map(|key| &key[..]).collect::<Vec<_>>())
                .execute(&mut *conn)
                .await?;
        }
        if self.statement()?.execute(&mut *conn).await?.is_none() {
            // It was locked where it stood: the database's clock was set forward meanwhile. It is to be run again.
            return Err(sqlx::Error::Protocol("the head does not stand where it was locked".into()).into());
        }
        let shard = self.shard;
        accounts::write(conn, shard, &pick(&self.touched.accounts, &self.accounts)).await?;
        accounts::write_credentials(conn, shard, &pick(&self.touched.credentials, &self.credentials)).await?;
        users::write(conn, shard, &pick(&self.touched.users, &self.users)).await?;
        catalogue::write(conn, shard, &pick(&self.touched.products, &self.products)).await?;
        catalogue::write_categories(conn, shard, &pick(&self.touched.categories, &self.categories)).await?;
        webhooks::write(conn, shard, &pick(&self.touched.webhooks, &self.webhooks)).await?;
        replays::write(conn, shard, &pick(&self.touched.replays, &self.replays)).await?;
        beneficiaries::write(conn, shard, &pick(&self.touched.beneficiaries, &self.beneficiaries)).await?;
        payouts::write(conn, shard, &pick(&self.touched.payouts, &self.payouts)).await?;
        statements::write(conn, shard, &pick(&self.touched.statements, &self.statements)).await?;
        self.write_vault(conn).await
    }

    /// One statement that writes what orders and movements of money bring along, if the head still
    /// stands where this batch began; for batches of [`super::Command::is_common`] commands that
    /// is everything.
    pub fn statement(&self) -> Result<Write, ProjectionError> {
        let from = Head { shard: self.shard, position: self.head, event_id: self.head_event, epoch: self.epoch };
        if self.is_empty() {
            return Ok(Write::looking_at(from));
        }
        let mut write = Write::moving_now(from, self.end(), self.recorded_at);
        let events = self.appended.iter().map(|e| EventRow::of(self.shard, e)).collect::<Result<Vec<_>, _>>()?;
        write.insert(EVENTS, &events, "");
        wallets::push(&mut write, self.shard, &pick(&self.touched.wallets, &self.wallets), &self.transactions);
        let (new, changed): (Vec<_>, Vec<_>) =
            pick(&self.touched.orders, &self.orders).into_iter().partition(|order| order.placed_position > self.head);
        orders::push(&mut write, self.shard, &new, &changed)?;
        keys::push(&mut write, self.shard, &self.vault.keys);
        self.push_texts(&mut write);
        stock::push_claims(&mut write, self.shard, &self.vault.claims);
        self.push_answers(&mut write)?;
        Ok(write)
    }

    fn push_texts(&self, write: &mut Write) {
        // A text that was given twice in one batch: the last one stands.
        let texts: HashMap<_, _> = self.vault.texts.iter().map(|t| ((t.kind, t.id), t)).collect();
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

    fn push_answers(&self, write: &mut Write) -> Result<(), ProjectionError> {
        let mut rows = Vec::with_capacity(self.new_answers.len());
        for key in &self.new_answers {
            let Some(answer) = self.answers.get(key) else { continue };
            let plain = answer.rendered.body.as_bytes();
            let sealed = match &answer.key {
                _ if !answer.rendered.is_secret => Ok(Cow::Borrowed(plain)),
                Some(data_key) => data_key.seal(&answer_kind(key), 0, plain).map(Cow::Owned),
                None => self.keyring.seal(&answer_kind(key), 0, plain).map(Cow::Owned),
            };
            let body = sealed.map_err(|e| sqlx::Error::Encode(Box::new(e)))?;
            rows.push(AnswerRow {
                shard_id: self.shard,
                key_hash: &key[..],
                fingerprint: &answer.fingerprint[..],
                status: i16::try_from(answer.rendered.status).unwrap_or_default(),
                body,
                is_sealed: answer.rendered.is_secret,
                created_at: self.recorded_at,
                key_id: answer.key.as_ref().map(|key| key.id),
                about: answer.about,
            });
        }
        write.insert(
            "idempotency_keys (shard_id, key_hash, fingerprint, status, body, is_sealed, created_at, key_id, about)",
            &rows,
            "",
        );
        Ok(())
    }

    async fn write_vault(&self, conn: &mut PgConnection) -> Result<(), ProjectionError> {
        let rows = &self.vault;
        for NewCredential { id, key_hash, secret_hash, mac } in &rows.credentials {
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
        for (id, sealed, mac) in &rows.signing_secrets {
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
        ip_blocks::end(conn, &rows.lifted).await?;
        operators::write(conn, &rows.operators).await?;
        for change in &rows.users {
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
                    keep_user_mac(conn, *id, mac).await?
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
        stock::insert(conn, self.shard, &rows.vouchers).await?;
        for erased in &rows.erased {
            erased.destroy(conn, self.shard).await?;
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

/// Appends events that are as another log has them: for an import.
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
    struct AnswerRow<'a> as "public.idempotency_key_row_2" {
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

fn pick<'a, T>(touched: &BTreeSet<i64>, states: &'a HashMap<i64, T>) -> Vec<&'a T> {
    touched.iter().filter_map(|id| states.get(id)).collect()
}
