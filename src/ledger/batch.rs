//! What a batch of commands is decided on: loaded under the head lock with one statement per
//! table, then changed in memory by each command in turn, so that each sees those before it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use chrono::{DateTime, Utc};
use ledger_events::account::{Account, Credential};
use ledger_events::beneficiary::Beneficiary;
use ledger_events::catalogue::{Category, Product};
use ledger_events::order::Order;
use ledger_events::payout::Payout;
use ledger_events::reconciliation::Statement;
use ledger_events::replay::Replay;
use ledger_events::user::User;
use ledger_events::wallet::Wallet;
use ledger_events::webhook::{Retryable, Webhook};
use ledger_events::{
    AccountId, BeneficiaryId, CategoryId, CredentialId, Currency, Event, Metadata, Moment, Money, OrderId, PayoutId, Position,
    ProductId, ReplayId, ShardId, StatementId, UserId, WalletId, WebhookId,
};
use ledger_projections::wallets::Transaction;
use ledger_projections::{
    accounts, beneficiaries, catalogue, deliveries, orders, payouts, replays, statements, users, wallets, webhooks,
};
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::command::{Rendered, Submission};
use super::erasure::{Erasable, orphans};
use super::keys::{self, DataKeys, NewKey, Owner};
use super::memory::{Memory, Recent};
use super::needs::Needs;
use super::reader;
use super::stock::{self, Shelves, Voucher};
use super::texts::{self, CANCEL_REASON, FAILURE_REASON, METADATA, VaultError};
use crate::access::seal::{DataKey, Keyring, Private, SealError};
use crate::access::{blocks, operators};

/// A text in the vault, sealed.
#[derive(Clone, Debug)]
pub struct SealedText {
    pub kind: &'static str,
    pub id: i64,
    pub salt: Vec<u8>,
    pub sealed: Vec<u8>,
    /// Whose data it is; none: the service's own, or from before there were data keys.
    pub key: Option<Arc<DataKey>>,
}

impl SealedText {
    pub fn open(&self, keyring: &Keyring) -> Result<Private, SealError> {
        keyring.open_text_under(self.key.as_deref(), self.kind, self.id, &self.sealed)
    }
}

/// An answer under an idempotency key.
#[derive(Debug)]
pub struct StoredAnswer {
    pub fingerprint: [u8; 32],
    pub rendered: Rendered,
    /// What it is sealed under, if it shows somebody's data.
    pub key: Option<Arc<DataKey>>,
    /// The id of what it shows then.
    pub about: Option<i64>,
}

/// An event that is about to be written.
#[derive(Debug)]
pub struct Appended {
    pub moment: Moment,
    pub stream_id: i64,
    pub event: Event,
    pub metadata: Metadata,
}

/// What becomes of how a user logs in.
#[derive(Debug)]
pub enum UserChange {
    Admit { id: UserId, email_lookup: [u8; 32], password_hash: Private },
    Password { id: UserId, password_hash: Private },
    EndSessions(UserId),
    Remove(UserId),
}

/// Rows that the commands' secrets become.
#[derive(Debug, Default)]
pub struct VaultRows {
    pub texts: Vec<SealedText>,
    pub keys: Vec<NewKey>,
    pub credentials: Vec<(CredentialId, [u8; 32], [u8; 32])>,
    pub signing_secrets: Vec<(CredentialId, Vec<u8>)>,
    pub lifted: Vec<IpAddr>,
    /// In the order in which they were decided.
    pub operators: Vec<operators::Change>,
    /// In the order in which they were decided: a removed user's email is free again.
    pub users: Vec<UserChange>,
    pub vouchers: Vec<stock::NewRow>,
    pub claims: Vec<(i64, OrderId)>,
    pub erased: Vec<Erasable>,
}

#[derive(Debug)]
pub struct Batch {
    pub shard: ShardId,
    pub keyring: Arc<Keyring>,
    pub head: Position,
    pub epoch: i64,
    /// When the head was locked, by this node's clock.
    pub locked_at: Instant,
    /// When everything in this batch is recorded: never before what the log holds.
    pub recorded_at: DateTime<Utc>,
    pub ids: super::needs::Ids,

    pub accounts: HashMap<AccountId, Account>,
    pub credentials: HashMap<CredentialId, Credential>,
    pub data_keys: DataKeys,
    pub signing_secrets: HashMap<CredentialId, Vec<u8>>,
    pub ip_blocks: HashMap<IpAddr, i64>,
    /// Operators' tokens, by their ids.
    pub operators: HashMap<i64, operators::Known>,
    pub users: HashMap<UserId, User>,
    /// Who has an email, by its keyed hash: of those that the batch asks for.
    pub user_of: HashMap<[u8; 32], UserId>,
    pub products: HashMap<ProductId, Product>,
    pub categories: HashMap<CategoryId, Category>,
    pub wallets: HashMap<WalletId, Wallet>,
    pub orders: HashMap<OrderId, Order>,
    pub webhooks: HashMap<WebhookId, Webhook>,
    pub replays: HashMap<ReplayId, Replay>,
    /// The request's event and the last one of each replay that goes on.
    pub replay_stories: HashMap<ReplayId, (Uuid, Uuid)>,
    /// Deliveries that are to be retried, with their account and webhook.
    pub retryable: HashMap<i64, (AccountId, WebhookId, Retryable)>,
    /// What there is to erase of the subject that the batch is about.
    pub erasable: Option<Erasable>,
    pub beneficiaries: HashMap<BeneficiaryId, Beneficiary>,
    pub payouts: HashMap<PayoutId, Payout>,
    pub statements: HashMap<StatementId, Statement>,
    /// How many lines the vault has of the files that are imported, by their fingerprints.
    pub kept_lines: HashMap<String, i64>,
    pub wallet_of: HashMap<(AccountId, Currency), WalletId>,
    /// Accounts all of whose wallets are here.
    pub wallets_known_of: HashSet<AccountId>,
    pub order_of: HashMap<(AccountId, String), OrderId>,
    pub payout_of: HashMap<(AccountId, String), PayoutId>,
    pub fundings: HashMap<String, Transaction>,
    pub texts: HashMap<(&'static str, i64), SealedText>,
    pub answers: HashMap<[u8; 32], StoredAnswer>,
    /// Keys whose day has passed: they may stand for a new request.
    pub expired_answers: Vec<[u8; 32]>,
    /// The vouchers that each order to be fulfilled gets, the oldest order first.
    pub allocated: HashMap<OrderId, Vec<Voucher>>,
    pub shelves: Shelves,
    pub nobody_waits_for: HashSet<(ProductId, Money)>,
    /// What the batch before this one, which is being written, leaves to it.
    recent: Recent,
    pub known_vouchers: stock::Known,

    pub appended: Vec<Appended>,
    pub transactions: Vec<Transaction>,
    pub new_answers: Vec<[u8; 32]>,
    pub vault: VaultRows,
    pub touched: Touched,
}

/// Whose rows changed.
#[derive(Debug, Default)]
pub struct Touched {
    pub accounts: BTreeSet<AccountId>,
    pub credentials: BTreeSet<CredentialId>,
    pub users: BTreeSet<UserId>,
    pub products: BTreeSet<ProductId>,
    pub categories: BTreeSet<CategoryId>,
    pub wallets: BTreeSet<WalletId>,
    pub orders: BTreeSet<OrderId>,
    pub webhooks: BTreeSet<WebhookId>,
    pub replays: BTreeSet<ReplayId>,
    pub beneficiaries: BTreeSet<BeneficiaryId>,
    pub payouts: BTreeSet<PayoutId>,
    pub statements: BTreeSet<StatementId>,
}

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
        let (head, epoch, recorded_at) = begin(conn).await?;
        let memory = memory.still_exact_at(head, epoch, recorded_at);
        let mut batch = Batch::recall(shard, keyring, memory, Recent::default());
        batch.fetch(conn, Needs::of(submissions)).await?;
        Ok(batch)
    }

    /// Whether stock has to be read that a batch in flight may be claiming. Nothing else does: the
    /// rows that it changes are remembered, all others are in the tables as it found them.
    pub fn lacks_stock(&self, needs: &Needs<'_>) -> bool {
        !needs.fulfil.iter().all(|id| self.orders.contains_key(id))
            || !wanted(&self.in_line(&needs.fulfil)).iter().all(|(pair, wanted)| {
                self.nobody_waits_for.contains(pair) && self.shelves.get(pair).is_some_and(|shelf| shelf.suffices(*wanted))
            })
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
            batch.replays.extend(loaded.into_iter().map(|r| (r.id, r)));
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
            batch.ip_blocks = blocks::lock(conn, &needs.ip_blocks).await?;
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

    /// A batch that begins with what is remembered, which is exact.
    pub fn recall(shard: ShardId, keyring: Arc<Keyring>, memory: Memory, recent: Recent) -> Batch {
        Batch {
            shard,
            keyring,
            head: memory.position,
            epoch: memory.epoch,
            locked_at: Instant::now(),
            recorded_at: memory.recorded_at,
            ids: memory.ids,
            accounts: memory.accounts,
            credentials: memory.credentials,
            users: memory.users,
            data_keys: memory.data_keys,
            products: memory.products,
            wallets: memory.wallets,
            wallets_known_of: memory.wallets_known_of,
            wallet_of: memory.wallet_of,
            orders: memory.orders,
            shelves: memory.shelves,
            nobody_waits_for: memory.nobody_waits_for,
            recent,
            signing_secrets: HashMap::new(),
            ip_blocks: HashMap::new(),
            operators: HashMap::new(),
            user_of: HashMap::new(),
            categories: HashMap::new(),
            webhooks: HashMap::new(),
            replays: HashMap::new(),
            replay_stories: HashMap::new(),
            retryable: HashMap::new(),
            erasable: None,
            beneficiaries: HashMap::new(),
            payouts: HashMap::new(),
            statements: HashMap::new(),
            kept_lines: HashMap::new(),
            order_of: HashMap::new(),
            payout_of: HashMap::new(),
            fundings: HashMap::new(),
            texts: HashMap::new(),
            answers: HashMap::new(),
            expired_answers: vec![],
            allocated: HashMap::new(),
            known_vouchers: stock::Known::default(),
            appended: vec![],
            transactions: vec![],
            new_answers: vec![],
            vault: VaultRows::default(),
            touched: Touched::default(),
        }
    }

    /// The position of this batch's last event, or of what was there before.
    pub fn end(&self) -> Position {
        self.head + i64::try_from(self.appended.len()).unwrap_or(i64::MAX)
    }

    /// What is worth remembering once this batch is written, and what until then.
    pub fn into_memory(self) -> (Memory, Recent) {
        let end = self.end();
        let mut ids = self.ids;
        ids.vouchers.clear(); // a voucher's id tells which stock is newer
        let memory = Memory {
            position: end,
            epoch: self.epoch,
            recorded_at: self.recorded_at,
            ids,
            accounts: self.accounts,
            credentials: self.credentials,
            users: self.users,
            // That there is none may change without an event.
            data_keys: self.data_keys.into_iter().filter(|(_, key)| key.is_some()).collect(),
            // Another shard's log tells of the catalogue: only the first one's writer knows when it changed.
            products: if self.shard == super::FIRST_SHARD { self.products } else { HashMap::new() },
            wallets: self.wallets,
            wallets_known_of: self.wallets_known_of,
            wallet_of: self.wallet_of,
            orders: self.orders,
            shelves: self.shelves,
            nobody_waits_for: self.nobody_waits_for,
        };
        (memory.bounded(&self.touched), Recent { answers: self.answers, order_of: self.order_of, texts: self.texts })
    }

    /// The answer under an idempotency key.
    pub fn answer(&self, key: &[u8; 32]) -> Option<&StoredAnswer> {
        self.answers.get(key).or_else(|| self.recent.answers.get(key))
    }

    /// The order that an account placed under a `client_reference`.
    pub fn order_under(&self, account: AccountId, reference: &str) -> Option<OrderId> {
        let key = (account, reference.to_owned());
        self.order_of.get(&key).or_else(|| self.recent.order_of.get(&key)).copied()
    }

    /// A text of the vault, sealed.
    pub fn sealed_text(&self, kind: &'static str, id: i64) -> Option<&SealedText> {
        self.texts.get(&(kind, id)).or_else(|| self.recent.texts.get(&(kind, id)))
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

    /// The orders among these that wait for vouchers, the oldest first.
    fn in_line(&self, fulfil: &[OrderId]) -> Vec<Waiting> {
        let orders = fulfil.iter().filter_map(|id| self.orders.get(id));
        let mut waiting: Vec<_> = orders.filter(|order| order.is_waiting()).map(Waiting::of).collect();
        waiting.sort_unstable_by_key(|order| order.placed_position);
        waiting.dedup_by_key(|order| order.id);
        waiting
    }

    /// Allocates the stock to the orders of the batch, the oldest first; nobody is served before an
    /// older order that waits for the same vouchers outside of the batch.
    async fn load_stock(&mut self, conn: &mut PgConnection, fulfil: &[OrderId]) -> Result<(), sqlx::Error> {
        let mut waiting = self.in_line(fulfil);
        let wanted = wanted(&waiting);
        let today = self.recorded_at.date_naive();
        stock::fill(conn, self.shard, &mut self.shelves, &wanted, today).await?;
        let unsure: Vec<_> = wanted.keys().filter(|pair| !self.nobody_waits_for.contains(*pair)).copied().collect();
        if !unsure.is_empty() {
            let (products, denominations): (Vec<_>, Vec<_>) = unsure.iter().map(|(p, d)| (*p, d.decimal())).unzip();
            let lines = orders::first_in_line(conn, self.shard, &products, &denominations, fulfil).await?;
            self.nobody_waits_for.extend(unsure);
            for (product, denomination, first) in lines {
                let denomination = Money::try_from(denomination).map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
                self.nobody_waits_for.remove(&(product, denomination));
                waiting.retain(|order| order.pair != (product, denomination) || order.placed_position < first);
            }
        }
        for order in waiting {
            if let Some(shelf) = self.shelves.get_mut(&order.pair) {
                self.allocated.insert(order.id, shelf.take(order.missing));
            }
        }
        Ok(())
    }

    /// Puts back what was allocated to orders that could not use it.
    pub fn put_back_stock(&mut self) {
        let unused = std::mem::take(&mut self.allocated);
        let mut back: HashMap<_, Vec<Voucher>> = HashMap::new();
        for (id, vouchers) in unused {
            if let Some(order) = self.orders.get(&id) {
                back.entry(pair(order)).or_default().extend(vouchers);
            }
        }
        for (pair, vouchers) in back {
            if let Some(shelf) = self.shelves.get_mut(&pair) {
                shelf.put_back(vouchers);
            }
        }
    }

    /// The id of the next event. UUIDv7 of the recorded time.
    pub fn next_event_id(&self) -> Uuid {
        let millis = u64::try_from(self.recorded_at.timestamp_millis()).unwrap_or_default();
        Uuid::new_v7(uuid::Timestamp::from_unix(
            uuid::NoContext,
            millis / 1000,
            u32::try_from(millis % 1000).unwrap_or_default() * 1_000_000,
        ))
    }
}

/// `key_hash, fingerprint, status, body, is_sealed`, whether it has expired, and its data key.
type AnswerRow = (Vec<u8>, Vec<u8>, i16, Vec<u8>, bool, bool, Option<i64>, Option<Vec<u8>>);

/// Begins the transaction, locks the head, and only then looks at the clock: all in one round
/// trip. The shard is the connection's setting.
async fn begin(conn: &mut PgConnection) -> Result<(Position, i64, DateTime<Utc>), sqlx::Error> {
    let rows = sqlx::raw_sql(
        "BEGIN;
         SELECT FROM log_head WHERE shard_id = current_setting('ledger.shard')::smallint FOR UPDATE;
         SELECT position, epoch, greatest(clock_timestamp()::timestamptz(3), recorded_at) AS recorded_at
         FROM log_head WHERE shard_id = current_setting('ledger.shard')::smallint",
    )
    .fetch_all(conn)
    .await?;
    let row = rows.last().ok_or(sqlx::Error::RowNotFound)?;
    Ok((row.try_get("position")?, row.try_get("epoch")?, row.try_get("recorded_at")?))
}

/// What an order's vouchers are of.
pub fn pair(order: &Order) -> (ProductId, Money) {
    (order.placed.product_id, order.placed.denomination)
}

/// An order that waits for vouchers.
struct Waiting {
    id: OrderId,
    pair: (ProductId, Money),
    placed_position: Position,
    missing: usize,
}

impl Waiting {
    fn of(order: &Order) -> Waiting {
        let missing = usize::try_from(order.undelivered_quantity()).unwrap_or_default();
        Waiting { id: order.id, pair: pair(order), placed_position: order.placed_position, missing }
    }
}

fn wanted(waiting: &[Waiting]) -> HashMap<(ProductId, Money), i64> {
    let mut wanted = HashMap::new();
    for order in waiting {
        *wanted.entry(order.pair).or_default() += i64::try_from(order.missing).unwrap_or(i64::MAX);
    }
    wanted
}

fn missing<T>(wanted: &HashSet<i64>, known: &HashMap<i64, T>) -> Vec<i64> {
    wanted.iter().copied().filter(|id| !known.contains_key(id)).collect()
}

/// What a sealed answer is bound to: its key.
pub fn answer_kind(key_hash: &[u8; 32]) -> String {
    format!("idempotency.{}", hex::encode(key_hash))
}

fn list<T: Copy>(set: &HashSet<T>) -> Vec<T> {
    set.iter().copied().collect()
}
