//! Loading what a batch lacks: one statement per table.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use ledger_database::PgConnection;
use ledger_events::order::Order;
use ledger_events::payout::Payout;
use ledger_events::wallet::Wallet;
use ledger_events::{AccountId, CredentialId, ShardId, StreamType, UserId};
use ledger_projections::{
    accounts, beneficiaries, catalogue, deliveries, orders, payouts, replays, statements, users, wallets, webhooks,
};
use sqlx::Row;

use super::{Batch, StoredAnswer, answer_kind};
use crate::ledger::erasure::{Erasable, orphans};
use crate::ledger::keys::{self, Owner};
use crate::ledger::memory::{Memory, Recent, Standing};
use crate::ledger::needs::Needs;
use crate::ledger::reader;
use crate::ledger::stock;
use crate::ledger::submission::{Rendered, Submission};
use crate::ledger::sunset;
use crate::ledger::texts::{self, CANCEL_REASON, FAILURE_REASON, METADATA, VaultError};
use crate::ledger::{ip_blocks, operators};
use crate::secrets::seal::Keyring;

impl Batch {
    /// Locks the head and loads everything that these commands need and that is not remembered.
    /// Begins the transaction.
    pub async fn load(
        conn: &mut PgConnection,
        shard: ShardId,
        keyring: Arc<Keyring>,
        memory: Memory,
        submissions: &[Submission],
    ) -> Result<Batch, sqlx::Error> {
        let (head, now) = begin(conn).await?;
        let memory = memory.still_exact_at(head);
        let mut batch = Batch::recall(shard, keyring, memory, Recent::default(), now);
        batch.fetch(conn, Needs::of(submissions)).await?;
        Ok(batch)
    }

    /// Loads what these commands need and what is not there yet. What was changed in memory stays
    /// as it is.
    pub async fn fetch(&mut self, conn: &mut PgConnection, mut needs: Needs<'_>) -> Result<(), sqlx::Error> {
        let shard = self.shard;
        let batch = self;
        batch.ids.refill(conn, &needs.counts).await?;

        needs.keys.retain(|key| batch.answer(key).is_none());
        if !needs.keys.is_empty() {
            batch.load_answers(conn, &needs.keys).await?;
        }
        let orders = missing(&needs.orders, &batch.orders);
        if !orders.is_empty() {
            batch.keep_orders(orders::load(conn, shard, &orders).await?);
        }
        for order in needs.cancelled.iter().filter_map(|id| batch.orders.get(id)) {
            needs.wallets.insert(order.placed.wallet_id);
            needs.accounts.insert(order.placed.account_id);
            needs.data_keys.insert(Owner::Account(order.placed.account_id));
        }
        if !needs.references.is_empty() {
            let (of, references): (Vec<AccountId>, Vec<&str>) = needs.references.iter().copied().unzip();
            let known = orders::load_by_client_reference(conn, shard, &of, &references).await?;
            needs.texts.extend(known.iter().flat_map(|order| [(METADATA, order.id), (CANCEL_REASON, order.id)]));
            // An answer that shows its texts again is sealed, too.
            needs.data_keys.extend(known.iter().map(|order| Owner::Account(order.placed.account_id)));
            batch.keep_orders(known);
        }
        batch.load_payouts(conn, &mut needs).await?;
        let accounts = missing(&needs.accounts, &batch.accounts);
        if !accounts.is_empty() {
            batch.accounts.extend(accounts::load(conn, shard, &accounts).await?.into_iter().map(|a| (a.id, a)));
        }
        let credentials = missing(&needs.credentials, &batch.credentials);
        if !credentials.is_empty() {
            let loaded = accounts::load_credentials(conn, shard, &credentials).await?;
            batch.credentials.extend(loaded.into_iter().map(|c| (c.id, c)));
        }
        let users = missing(&needs.users, &batch.users);
        if !users.is_empty() {
            batch.users.extend(users::load(conn, shard, &users).await?.into_iter().map(|u| (u.id, u)));
        }
        if !needs.emails.is_empty() {
            batch.load_emails(conn, &needs.emails).await?;
        }
        let products = missing(&needs.products, &batch.products);
        if !products.is_empty() {
            batch.products.extend(catalogue::load(conn, &products).await?.into_iter().map(|p| (p.id, p)));
        }
        if !needs.categories.is_empty() {
            let loaded = catalogue::load_categories(conn, &list(&needs.categories)).await?;
            batch.categories = loaded.into_iter().map(|c| (c.id, c)).collect();
        }
        needs.wallets_of.retain(|account| !batch.wallets_known_of.contains(account));
        if !needs.wallets_of.is_empty() {
            batch.keep_wallets(wallets::load_of_accounts(conn, shard, &list(&needs.wallets_of)).await?);
            batch.wallets_known_of.extend(&needs.wallets_of);
        }
        let wallets = missing(&needs.wallets, &batch.wallets);
        if !wallets.is_empty() {
            batch.keep_wallets(wallets::load(conn, shard, &wallets).await?);
        }
        let noted = needs.noted.iter().filter_map(|id| batch.wallets.get(id));
        needs.data_keys.extend(noted.map(|wallet| Owner::Account(wallet.account_id)));
        needs.data_keys.retain(|owner| !batch.data_keys.contains_key(owner));
        if !needs.data_keys.is_empty() {
            let owners: Vec<Owner> = needs.data_keys.iter().copied().collect();
            let loaded = keys::load(&mut *conn, &batch.keyring, shard, &owners).await;
            batch.data_keys.extend(loaded.map_err(VaultError::into_database)?);
        }
        if !needs.fundings.is_empty() {
            let known = wallets::load_fundings(conn, shard, &needs.fundings).await?;
            batch.fundings = known.into_iter().filter_map(|t| Some((t.reference.clone()?, t))).collect();
        }
        if !needs.webhooks_of.is_empty() {
            let loaded = webhooks::load_of_accounts(conn, shard, &list(&needs.webhooks_of)).await?;
            batch.webhooks = loaded.into_iter().map(|w| (w.id, w)).collect();
        }
        if !needs.replays.is_empty() {
            let loaded = replays::load(conn, shard, &list(&needs.replays)).await?;
            batch.replays = loaded.into_iter().map(|r| (r.id, r)).collect();
            batch.replay_stories = reader::replay_stories(conn, shard, &list(&needs.replays)).await?;
        }
        if !needs.running_replays_of.is_empty() {
            let loaded = replays::load_running(conn, shard, &list(&needs.running_replays_of)).await?;
            let ids: Vec<_> = loaded.iter().map(|replay| replay.id).collect();
            batch.replays.extend(loaded.into_iter().map(|r| (r.id, r)));
            batch.replay_stories.extend(reader::replay_stories(conn, shard, &ids).await?);
        }
        if !needs.statements.is_empty() {
            let loaded = statements::load(conn, shard, &list(&needs.statements)).await?;
            batch.statements.extend(loaded.into_iter().map(|s| (s.id, s)));
        }
        if !needs.decided.is_empty() {
            let loaded = statements::load_by_decision(conn, shard, &needs.decided).await?;
            batch.statements.extend(loaded.into_iter().map(|s| (s.id, s)));
        }
        if !needs.fingerprints.is_empty() {
            let loaded = statements::load_by_fingerprint(conn, shard, &needs.fingerprints).await?;
            batch.statements.extend(loaded.into_iter().map(|s| (s.id, s)));
            batch.kept_lines = orphans::kept(conn, shard, &needs.fingerprints).await?;
        }
        if !needs.retried.is_empty() {
            let mut later = HashMap::new();
            for (id, account, webhook, delivery, version) in deliveries::retryable(conn, shard, &needs.retried).await? {
                if let Entry::Vacant(unread) = later.entry(webhook) {
                    unread.insert(reader::webhook_events_after(&mut *conn, shard, webhook, version).await?);
                }
                batch.retryable.insert(id, (account, webhook, delivery.after(&later[&webhook])));
            }
        }
        if !needs.ip_blocks.is_empty() {
            batch.ip_blocks = ip_blocks::lock(conn, &needs.ip_blocks).await?;
        }
        if needs.sunset {
            batch.sunset = sunset::load(conn, shard).await?;
        }
        if needs.log {
            batch.log_version = reader::last_version(&mut *conn, shard, StreamType::Log.as_str(), shard.into()).await?;
        }
        let operators = missing(&needs.operators, &batch.operators);
        if !operators.is_empty() {
            batch.operators.extend(operators::lock(conn, shard, &operators).await?);
        }
        if !needs.signing_secrets.is_empty() {
            batch.load_signing_secrets(conn, &list(&needs.signing_secrets)).await?;
        }
        if !needs.texts.is_empty() {
            let texts = texts::sealed(&mut *conn, &batch.keyring, shard, &needs.texts).await;
            let texts = texts.map_err(VaultError::into_database)?;
            batch.texts.extend(texts.into_iter().map(|text| ((text.kind, text.id), text)));
        }
        if !needs.vouchers.is_empty() {
            batch.known_vouchers = stock::known(conn, shard, &batch.keyring, &needs.vouchers).await?;
        }
        if !needs.fulfil.is_empty() {
            batch.load_stock(conn, &needs.fulfil).await?;
        }
        if let Some((subject, part)) = needs.erased {
            let erasable = Erasable::load(&mut *conn, &batch.keyring, shard, subject, part).await;
            let erasable = erasable.map_err(VaultError::into_database)?;
            let known = users::load(&mut *conn, shard, &erasable.users).await?;
            batch.users.extend(known.into_iter().map(|user| (user.id, user)));
            let known = beneficiaries::load(conn, shard, &erasable.beneficiaries).await?;
            batch.beneficiaries.extend(known.into_iter().map(|beneficiary| (beneficiary.id, beneficiary)));
            batch.erasable = Some(erasable);
        }
        Ok(())
    }

    fn keep_orders(&mut self, orders: Vec<Order>) {
        for order in orders {
            if let Some(reference) = &order.placed.client_reference {
                self.order_of.insert((order.placed.account_id, reference.clone()), order.id);
            }
            self.orders.entry(order.id).or_insert(order);
        }
    }

    fn keep_wallets(&mut self, wallets: Vec<Wallet>) {
        for wallet in wallets {
            self.wallet_of.insert((wallet.account_id, wallet.currency), wallet.id);
            self.wallets.entry(wallet.id).or_insert(wallet);
        }
    }

    /// Whom payouts go to, and those that exist; finds out which wallets they have debited.
    async fn load_payouts(&mut self, conn: &mut PgConnection, needs: &mut Needs<'_>) -> Result<(), sqlx::Error> {
        if !needs.beneficiaries.is_empty() {
            let loaded = beneficiaries::load(conn, self.shard, &missing(&needs.beneficiaries, &self.beneficiaries)).await?;
            self.beneficiaries.extend(loaded.into_iter().map(|b| (b.id, b)));
        }
        if !needs.payouts.is_empty() {
            let loaded = payouts::load(conn, self.shard, &missing(&needs.payouts, &self.payouts)).await?;
            self.keep_payouts(loaded);
            for payout in needs.payouts.iter().filter_map(|id| self.payouts.get(id)) {
                needs.wallets.insert(payout.requested.wallet_id);
                needs.data_keys.insert(Owner::Beneficiary(payout.requested.beneficiary_id));
            }
        }
        if !needs.payout_references.is_empty() {
            let (of, references): (Vec<AccountId>, Vec<&str>) = needs.payout_references.iter().copied().unzip();
            let known = payouts::load_by_client_reference(conn, self.shard, &of, &references).await?;
            needs.texts.extend(known.iter().map(|payout| (FAILURE_REASON, payout.id)));
            needs.data_keys.extend(known.iter().map(|payout| Owner::Beneficiary(payout.requested.beneficiary_id)));
            self.keep_payouts(known);
        }
        Ok(())
    }

    fn keep_payouts(&mut self, payouts: Vec<Payout>) {
        for payout in payouts {
            if let Some(reference) = &payout.requested.client_reference {
                self.payout_of.insert((payout.requested.account_id, reference.clone()), payout.id);
            }
            self.payouts.entry(payout.id).or_insert(payout);
        }
    }

    async fn load_answers(&mut self, conn: &mut PgConnection, keys: &[[u8; 32]]) -> Result<(), sqlx::Error> {
        let stored: Vec<AnswerRow> = sqlx::query_as(
            "SELECT k.key_hash, k.fingerprint, k.status, k.body, k.is_sealed, k.created_at <= $3::timestamptz - interval '24 hours',
                k.key_id, d.sealed
             FROM unnest($2::bytea[]) AS wanted (key_hash) JOIN idempotency_keys k ON k.shard_id = $1 AND k.key_hash = wanted.key_hash
             LEFT JOIN vault.data_keys d ON d.shard_id = $1 AND d.id = k.key_id",
        )
        .bind(self.shard)
        .bind(keys.iter().map(|k| &k[..]).collect::<Vec<_>>())
        .bind(self.recorded_at)
        .fetch_all(conn)
        .await?;
        for (key_hash, fingerprint, status, body, is_sealed, is_expired, key_id, key) in stored {
            let damaged = |what: &'static str| sqlx::Error::Decode(what.into());
            let key_hash: [u8; 32] = key_hash.try_into().map_err(|_| damaged("an idempotency key's hash is not 32 bytes"))?;
            if is_expired {
                self.expired_answers.push(key_hash);
                continue;
            }
            let fingerprint: [u8; 32] = fingerprint.try_into().map_err(|_| damaged("a fingerprint is not 32 bytes"))?;
            let key = keys::beside(&self.keyring, key_id, key.as_deref()).map_err(VaultError::into_database)?.map(Arc::new);
            let body = if is_sealed {
                let opened = self.keyring.open_under(key.as_deref(), &answer_kind(&key_hash), 0, &body);
                opened.map_err(|e| sqlx::Error::Decode(Box::new(e)))?.to_vec()
            } else {
                body
            };
            let body = String::from_utf8(body).map_err(|_| damaged("a stored answer is not text"))?;
            let rendered = Rendered { status: u16::try_from(status).unwrap_or(500), body, is_secret: is_sealed };
            self.answers.insert(key_hash, StoredAnswer { fingerprint, rendered, key, about: None });
        }
        Ok(())
    }

    async fn load_signing_secrets(&mut self, conn: &mut PgConnection, credentials: &[CredentialId]) -> Result<(), sqlx::Error> {
        let known: Vec<(CredentialId, Vec<u8>)> =
            sqlx::query_as("SELECT credential_id, signing_secret FROM vault.credentials WHERE credential_id = ANY($1) AND signing_secret IS NOT NULL")
                .bind(credentials)
                .fetch_all(conn)
                .await?;
        self.signing_secrets.extend(known);
        Ok(())
    }

    async fn load_emails(&mut self, conn: &mut PgConnection, lookups: &[[u8; 32]]) -> Result<(), sqlx::Error> {
        let known: Vec<(Vec<u8>, UserId)> =
            sqlx::query_as("SELECT email_lookup, user_id FROM vault.users WHERE email_lookup = ANY($1)")
                .bind(lookups.iter().map(|lookup| &lookup[..]).collect::<Vec<_>>())
                .fetch_all(conn)
                .await?;
        self.user_of.extend(known.into_iter().filter_map(|(lookup, id)| Some((lookup.try_into().ok()?, id))));
        Ok(())
    }
}

/// `key_hash, fingerprint, status, body, is_sealed`, whether it has expired, and its data key.
type AnswerRow = (Vec<u8>, Vec<u8>, i16, Vec<u8>, bool, bool, Option<i64>, Option<Vec<u8>>);

/// Begins the transaction, locks the head, and only then looks at the clock: all in one round
/// trip. The shard is the connection's setting. Returns where the head stands, and the clock.
async fn begin(conn: &mut PgConnection) -> Result<(Standing, DateTime<Utc>), sqlx::Error> {
    let rows = sqlx::raw_sql(
        "BEGIN;
         SELECT FROM log_head WHERE shard_id = current_setting('ledger.shard')::smallint FOR UPDATE;
         SELECT position, epoch, greatest(now, recorded_at) AS recorded_at, now,
            (SELECT event_id FROM events e WHERE e.shard_id = h.shard_id AND e.position = h.position) AS last_event
         FROM log_head h CROSS JOIN (SELECT clock_timestamp()::timestamptz(3) AS now OFFSET 0) AS clock
         WHERE shard_id = current_setting('ledger.shard')::smallint",
    )
    .fetch_all(conn)
    .await?;
    let row = rows.last().ok_or(sqlx::Error::RowNotFound)?;
    let head = Standing {
        position: row.try_get("position")?,
        last_event: row.try_get("last_event")?,
        epoch: row.try_get("epoch")?,
        recorded_at: row.try_get("recorded_at")?,
    };
    Ok((head, row.try_get("now")?))
}

fn missing<T>(wanted: &HashSet<i64>, known: &HashMap<i64, T>) -> Vec<i64> {
    wanted.iter().copied().filter(|id| !known.contains_key(id)).collect()
}

fn list<T: Copy>(set: &HashSet<T>) -> Vec<T> {
    set.iter().copied().collect()
}
