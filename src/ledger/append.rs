//! Appending to a batch in memory, and writing the batch: the events with one INSERT, the inline
//! projections likewise, the head last.

use ledger_events::account::{evolve as evolve_account, evolve_credential};
use ledger_events::beneficiary::evolve as evolve_beneficiary;
use ledger_events::catalogue::{evolve as evolve_product, evolve_category};
use ledger_events::order::evolve as evolve_order;
use ledger_events::payout::evolve as evolve_payout;
use ledger_events::wallet::evolve as evolve_wallet;
use ledger_events::webhook::evolve as evolve_webhook;
use ledger_events::{AccountId, Event, Metadata, Moment};
use ledger_projections::wallets::Transaction;
use ledger_projections::{ProjectionError, accounts, beneficiaries, catalogue, orders, payouts, wallets, webhooks};
use sqlx::PgConnection;
use uuid::Uuid;

use super::batch::{Appended, Batch, SealedText, answer_kind};
use super::command::{Idempotency, Origin};
use super::stock;
use crate::access::seal::{Private, SealError, salted_hash};

/// What belongs to every event of one command.
#[derive(Debug)]
pub struct Story<'a> {
    pub origin: &'a Origin,
    pub idempotency: Option<&'a Idempotency>,
    pub account_id: Option<AccountId>,
    pub correlation_id: Option<Uuid>,
    pub causation_id: Option<Uuid>,
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
            position: self.head + i64::try_from(self.appended.len()).unwrap_or(i64::MAX) + 1,
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
            Event::Account(e) => evolve_in!(self.accounts, self.touched.accounts, stream_id, evolve_account, e, &moment),
            Event::Credential(e) => {
                evolve_in!(self.credentials, self.touched.credentials, stream_id, evolve_credential, e, &moment)
            }
            Event::Product(e) => evolve_in!(self.products, self.touched.products, stream_id, evolve_product, e, &moment),
            Event::Category(e) => evolve_in!(self.categories, self.touched.categories, stream_id, evolve_category, e, &moment),
            Event::Beneficiary(e) => {
                evolve_in!(self.beneficiaries, self.touched.beneficiaries, stream_id, evolve_beneficiary, e, &moment)
            }
            Event::Payout(e) => evolve_in!(self.payouts, self.touched.payouts, stream_id, evolve_payout, e, &moment),
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
            Event::Account(_) => self.accounts.get(&id).map(|s| s.version),
            Event::Credential(_) => self.credentials.get(&id).map(|s| s.version),
            Event::Product(_) => self.products.get(&id).map(|s| s.version),
            Event::Category(_) => self.categories.get(&id).map(|s| s.version),
            Event::Beneficiary(_) => self.beneficiaries.get(&id).map(|s| s.version),
            Event::Payout(_) => self.payouts.get(&id).map(|s| s.version),
        };
        version.unwrap_or_default()
    }

    /// Seals a text for the vault, and returns the hash by which the log commits to it.
    pub fn keep_text(&mut self, kind: &'static str, id: i64, salt: Vec<u8>, text: &Private) -> Result<String, SealError> {
        let hash = salted_hash(&salt, text.expose());
        let sealed = self.keyring.seal(kind, id, text.expose().as_bytes())?;
        let text = SealedText { kind, id, salt, sealed };
        self.texts.insert((kind, id), text.clone());
        self.vault.texts.push(text);
        Ok(hash)
    }

    /// A text from the vault, if there is one.
    pub fn text(&self, kind: &'static str, id: i64) -> Result<Option<Private>, SealError> {
        self.texts.get(&(kind, id)).map(|text| self.keyring.open_text(kind, id, &text.sealed)).transpose()
    }

    /// Whether there is nothing to write: every command was refused, or answered again.
    pub fn is_empty(&self) -> bool {
        self.appended.is_empty() && self.new_answers.is_empty()
    }

    /// Writes everything that was decided. The caller commits.
    pub async fn write(&self, conn: &mut PgConnection) -> Result<(), ProjectionError> {
        if self.appended.is_empty() {
            // Nothing changed, but an answer may have to be kept.
            return self.write_answers(conn).await;
        }
        self.write_events(conn).await?;
        let shard = self.shard;
        accounts::write(conn, shard, &pick(&self.touched.accounts, &self.accounts)).await?;
        accounts::write_credentials(conn, shard, &pick(&self.touched.credentials, &self.credentials)).await?;
        catalogue::write(conn, shard, &pick(&self.touched.products, &self.products)).await?;
        catalogue::write_categories(conn, shard, &pick(&self.touched.categories, &self.categories)).await?;
        wallets::write(conn, shard, &pick(&self.touched.wallets, &self.wallets)).await?;
        wallets::write_transactions(conn, shard, &self.transactions).await?;
        let (new, changed): (Vec<_>, Vec<_>) =
            pick(&self.touched.orders, &self.orders).into_iter().partition(|order| order.placed_position > self.head);
        orders::write(conn, shard, &new, &changed).await?;
        webhooks::write(conn, shard, &pick(&self.touched.webhooks, &self.webhooks)).await?;
        beneficiaries::write(conn, shard, &pick(&self.touched.beneficiaries, &self.beneficiaries)).await?;
        payouts::write(conn, shard, &pick(&self.touched.payouts, &self.payouts)).await?;
        self.write_vault(conn).await?;
        self.write_answers(conn).await
    }

    async fn write_events(&self, conn: &mut PgConnection) -> Result<(), ProjectionError> {
        let events = &self.appended;
        let column = |value: fn(&Appended) -> i64| events.iter().map(value).collect::<Vec<_>>();
        let (types, versions): (Vec<&str>, Vec<i16>) = events.iter().map(|e| e.event.type_and_version()).unzip();
        sqlx::query(
            "WITH written AS (
                INSERT INTO events (shard_id, position, event_id, stream_type, stream_id, version, type, schema_version, data, metadata, recorded_at)
                SELECT $1, new.*, $11 FROM unnest($2::bigint[], $3::uuid[], $4::text[], $5::bigint[], $6::bigint[], $7::text[], $8::smallint[],
                    $9::json[], $10::json[]) AS new)
             UPDATE log_head SET position = $12, recorded_at = $11 WHERE shard_id = $1",
        )
        .bind(self.shard)
        .bind(column(|e| e.moment.position))
        .bind(events.iter().map(|e| e.moment.event_id).collect::<Vec<_>>())
        .bind(events.iter().map(|e| e.event.stream_type().as_str()).collect::<Vec<_>>())
        .bind(column(|e| e.stream_id))
        .bind(column(|e| e.moment.version))
        .bind(types)
        .bind(versions)
        .bind(events.iter().map(|e| e.event.payload()).collect::<Result<Vec<_>, _>>()?)
        .bind(events.iter().map(|e| serde_json::to_string(&e.metadata)).collect::<Result<Vec<_>, _>>()?)
        .bind(self.recorded_at)
        .bind(events.last().map_or(self.head, |e| e.moment.position))
        .execute(conn)
        .await?;
        Ok(())
    }

    async fn write_vault(&self, conn: &mut PgConnection) -> Result<(), ProjectionError> {
        let rows = &self.vault;
        if !rows.texts.is_empty() {
            // A text that was given twice in one batch: the last one stands.
            let texts: std::collections::HashMap<_, _> = rows.texts.iter().map(|t| ((t.kind, t.id), t)).collect();
            let texts: Vec<&SealedText> = texts.into_values().collect();
            sqlx::query(
                "INSERT INTO vault.texts (shard_id, kind, id, salt, sealed)
                 SELECT $1, new.* FROM unnest($2::text[], $3::bigint[], $4::bytea[], $5::bytea[]) AS new
                 ON CONFLICT (shard_id, kind, id) DO UPDATE SET salt = excluded.salt, sealed = excluded.sealed",
            )
            .bind(self.shard)
            .bind(texts.iter().map(|t| t.kind).collect::<Vec<_>>())
            .bind(texts.iter().map(|t| t.id).collect::<Vec<_>>())
            .bind(texts.iter().map(|t| &*t.salt).collect::<Vec<_>>())
            .bind(texts.iter().map(|t| &*t.sealed).collect::<Vec<_>>())
            .execute(&mut *conn)
            .await?;
        }
        for (id, key_hash, secret_hash) in &rows.credentials {
            sqlx::query("INSERT INTO vault.credentials (credential_id, key_hash, secret_hash) VALUES ($1, $2, $3)")
                .bind(id)
                .bind(&key_hash[..])
                .bind(&secret_hash[..])
                .execute(&mut *conn)
                .await?;
        }
        for (id, sealed) in &rows.signing_secrets {
            sqlx::query("UPDATE vault.credentials SET signing_secret = $2 WHERE credential_id = $1")
                .bind(id)
                .bind(&**sealed)
                .execute(&mut *conn)
                .await?;
        }
        stock::insert(conn, self.shard, &rows.vouchers).await?;
        stock::claim(conn, self.shard, &rows.claims).await?;
        Ok(())
    }

    async fn write_answers(&self, conn: &mut PgConnection) -> Result<(), ProjectionError> {
        if self.new_answers.is_empty() {
            return Ok(());
        }
        let mut bodies = Vec::with_capacity(self.new_answers.len());
        let answers: Vec<_> = self.new_answers.iter().filter_map(|key| Some((key, self.answers.get(key)?))).collect();
        for (key, answer) in &answers {
            let plain = answer.rendered.body.as_bytes();
            bodies.push(if answer.rendered.is_secret {
                self.keyring.seal(&answer_kind(key), 0, plain).map_err(|e| sqlx::Error::Encode(Box::new(e)))?
            } else {
                plain.to_vec()
            });
        }
        if !self.expired_answers.is_empty() {
            sqlx::query("DELETE FROM idempotency_keys WHERE shard_id = $1 AND key_hash = ANY($2)")
                .bind(self.shard)
                .bind(self.expired_answers.iter().map(|key| &key[..]).collect::<Vec<_>>())
                .execute(&mut *conn)
                .await?;
        }
        sqlx::query(
            "INSERT INTO idempotency_keys (shard_id, key_hash, fingerprint, status, body, is_sealed, created_at)
             SELECT $1, new.*, $7 FROM unnest($2::bytea[], $3::bytea[], $4::smallint[], $5::bytea[], $6::boolean[]) AS new",
        )
        .bind(self.shard)
        .bind(answers.iter().map(|(key, _)| &key[..]).collect::<Vec<_>>())
        .bind(answers.iter().map(|(_, a)| &a.fingerprint[..]).collect::<Vec<_>>())
        .bind(answers.iter().map(|(_, a)| i16::try_from(a.rendered.status).unwrap_or_default()).collect::<Vec<_>>())
        .bind(bodies)
        .bind(answers.iter().map(|(_, a)| a.rendered.is_secret).collect::<Vec<_>>())
        .bind(self.recorded_at)
        .execute(conn)
        .await?;
        Ok(())
    }
}

fn pick<'a, T>(touched: &std::collections::BTreeSet<i64>, states: &'a std::collections::HashMap<i64, T>) -> Vec<&'a T> {
    touched.iter().filter_map(|id| states.get(id)).collect()
}
