//! Audit of the log stream by stream. Folds each stream again, with the same fold and statements that wrote the tables,
//! into temporary tables of the same names, and compares them.
//!
//! Each page reads the next events in the order of streams, and the rows of these streams, in one snapshot. A row is
//! written in the same transaction as its events, so the comparison is valid under concurrent writes. Memory holds one
//! page, and the stream that continues in the next page.

use std::collections::HashMap;

use ledger_database::PgConnection;
use ledger_events::approval::Approval;
use ledger_events::order::{Order, OrderEvent};
use ledger_events::payout::Payout;
use ledger_events::reconciliation::BankStatement;
use ledger_events::{
    AccountId, ApprovalId, BeneficiaryId, CategoryId, CredentialId, Event, Id, OrderId, PayoutId, Position, ProductId,
    PurchaseId, Recorded, ReplayId, ShardId, StatementId, StreamType, TransactionId, UserId, WalletId, WebhookId,
};
use ledger_projections::state::{State, Upsert, fold};
use ledger_projections::wallets::Transaction;
use ledger_projections::{ProjectionError, orders, totals, wallets};

use super::tables::{Rows, Table, table};
use super::{
    AuditError, Counts, Difference, Findings, Progress, images, operator_users, operators, rules, second_factors, secrets,
    vouchers,
};
use crate::ledger::FIRST_SHARD;
use crate::ledger::reader::Stored;
use crate::secrets::seal::Keyring;

const PAGE_EVENTS: i64 = 5_000;

/// States of the streams in the current page.
#[derive(Default)]
struct Folded {
    orders: HashMap<OrderId, Order>,
    wallets: HashMap<WalletId, ledger_events::wallet::Wallet>,
    webhooks: HashMap<WebhookId, ledger_events::webhook::Webhook>,
    replays: HashMap<ReplayId, ledger_events::replay::Replay>,
    accounts: HashMap<AccountId, ledger_events::account::Account>,
    credentials: HashMap<CredentialId, ledger_events::account::Credential>,
    users: HashMap<UserId, ledger_events::user::User>,
    products: HashMap<ProductId, ledger_events::catalogue::Product>,
    categories: HashMap<CategoryId, ledger_events::catalogue::Category>,
    purchases: HashMap<PurchaseId, ledger_events::purchase::Purchase>,
    shards: HashMap<i64, ledger_events::shard::Shard>,
    beneficiaries: HashMap<BeneficiaryId, ledger_events::beneficiary::Beneficiary>,
    payouts: HashMap<PayoutId, Payout>,
    statements: HashMap<StatementId, BankStatement>,
    approvals: HashMap<ApprovalId, Approval>,
    operators: HashMap<i64, operators::TokenState>,
    operator_users: HashMap<i64, operator_users::UserState>,
    commitments: HashMap<i64, secrets::Commitments>,
    totals: totals::Folded,
    /// Events that the daily totals have not included yet, of wallets whose stream continues in the next page.
    ahead: Vec<Recorded>,
    transactions: Vec<Transaction>,
    /// Expected refunds: stream id, position of the cancelling event, and the wallet that paid.
    refunds: Vec<(i64, Position, WalletId)>,
}

/// Returns the table with the fold of a stream type, or none if there is no such table.
fn table_of(stream: StreamType) -> Option<&'static Table> {
    table(match stream {
        StreamType::Order => "orders",
        StreamType::Wallet => "wallets",
        StreamType::Webhook => "webhooks",
        StreamType::Replay => "webhook_replays",
        StreamType::Account => "accounts",
        StreamType::Credential => "credentials",
        StreamType::User => "users",
        StreamType::Product => "products",
        StreamType::Category => "categories",
        StreamType::IpBlock | StreamType::Operator | StreamType::ApiVersion | StreamType::Log | StreamType::Verification => {
            return None;
        }
        StreamType::Purchase => "purchases",
        StreamType::Shard => "shards",
        StreamType::Beneficiary => "beneficiaries",
        StreamType::Payout => "payouts",
        StreamType::Reconciliation => "bank_statements",
        StreamType::Approval => "approvals",
    })
}

/// Folds and compares all streams of a type.
pub async fn check(
    conn: &mut PgConnection,
    (shard, stream): (ShardId, StreamType),
    keyring: Option<&Keyring>,
    counts: &mut Counts,
    findings: &mut Findings,
    progress: &impl Fn(Progress),
) -> Result<(), AuditError> {
    let mut folded = Folded::default();
    let mut walk = StreamCheck { shard, stream, at: (i64::MIN, 0), streams: 0 };
    let (mut compared, mut done) = (i64::MIN, 0);
    loop {
        sqlx::raw_sql("BEGIN ISOLATION LEVEL REPEATABLE READ; TRUNCATE orders, wallets, wallet_transactions, webhooks, webhook_subscriptions, webhook_deactivations, webhook_replays, accounts, credentials, credential_restrictions, users, products, categories, beneficiaries, payouts, purchases, shards, bank_statements, approvals, daily_totals")
            .execute(&mut *conn)
            .await?;
        let page = page(conn, shard, stream, walk.at).await?;
        let totalled = totals::checkpoint(&mut *conn, shard).await?;
        for recorded in std::mem::take(&mut folded.ahead) {
            folded.total(recorded, totalled);
        }
        for stored in &page {
            walk.step(stored, &mut folded, totalled, findings);
        }
        // The last stream of a full page may continue in the next one.
        let is_last = i64::try_from(page.len()).is_ok_and(|n| n < PAGE_EVENTS);
        let to = if is_last { i64::MAX } else { walk.at.0 - 1 };
        let unfinished = if is_last { Folded::default() } else { folded.split_off(walk.at.0) };
        folded.write(conn, shard).await?;
        folded.compare(conn, (shard, stream), (compared, to), findings).await?;
        folded.compare_secrets(conn, (shard, stream), (compared, to), keyring, findings).await?;
        if stream == StreamType::Wallet {
            counts.transactions += u64::try_from(folded.transactions.len()).unwrap_or_default();
        }
        if stream == StreamType::Order {
            counts.vouchers += vouchers::check(conn, shard, (OrderId(compared), OrderId(to)), &folded.orders, findings).await?;
        }
        refunds(conn, shard, stream, &folded.refunds, findings).await?;
        sqlx::raw_sql("COMMIT").execute(&mut *conn).await?;
        done += i64::try_from(page.len()).unwrap_or_default();
        progress(Progress { stage: stream.as_str(), shard, done, total: done });
        if is_last {
            counts.streams += walk.streams;
            return Ok(());
        }
        (folded, compared) = (unfinished, to);
    }
}

/// State of the walk from one event to the next, stream by stream.
struct StreamCheck {
    shard: ShardId,
    stream: StreamType,
    /// Id and version of the last event.
    at: (i64, i64),
    /// Number of streams so far.
    streams: u64,
}

impl StreamCheck {
    /// Folds the next event, and reports its problems.
    fn step(&mut self, stored: &Stored, folded: &mut Folded, totalled: Position, findings: &mut Findings) {
        let (shard, position) = (self.shard, stored.position);
        let is_new = stored.stream_id != self.at.0;
        self.streams += u64::from(is_new);
        let expected = if is_new { 1 } else { self.at.1 + 1 };
        if stored.version != expected {
            let (stream, id, found) = (self.stream.to_string(), stored.stream_id, stored.version);
            findings.add(Difference::Version { shard, stream, id, position, found, expected });
        }
        self.at = (stored.stream_id, stored.version);
        // The walk over the positions reports unreadable events.
        let Ok(recorded) = stored.decode() else { return };
        secrets::fold(&mut folded.commitments, &recorded);
        if let Some(problem) = folded.step(&recorded) {
            findings.add(Difference::Rule { shard, stream: self.stream.as_str(), id: recorded.stream_id, position, problem });
        }
        folded.total(recorded, totalled);
    }
}

async fn page(
    conn: &mut PgConnection,
    shard: ShardId,
    stream: StreamType,
    after: (i64, i64),
) -> Result<Vec<Stored>, sqlx::Error> {
    sqlx::query_as(
        "SELECT shard_id, position, event_id, stream_type, stream_id, version, type, schema_version, data::text AS data, metadata::text AS metadata, recorded_at
         FROM events WHERE shard_id = $1 AND stream_type = $2 AND (stream_id, version) > ($3, $4) ORDER BY stream_id, version LIMIT $5",
    )
    .bind(shard)
    .bind(stream.as_str())
    .bind(after.0)
    .bind(after.1)
    .bind(PAGE_EVENTS)
    .fetch_all(conn)
    .await
}

impl Folded {
    /// Folds one event. Returns the problem if the event breaks a rule.
    fn step(&mut self, recorded: &Recorded) -> Option<String> {
        let id = recorded.stream_id;
        match &recorded.event {
            Event::Order(event) => {
                let before = self.orders.get(&OrderId(id));
                let problem = rules::of_order(before, event);
                if let (Some(order), OrderEvent::OrderCancelled(e)) = (before, event)
                    && e.transaction_id.is_some()
                {
                    self.refunds.push((id, recorded.moment.position, order.placed.wallet_id));
                }
                fold(&mut self.orders, recorded);
                problem
            }
            Event::Wallet(event) => {
                let is_first = !self.wallets.contains_key(&WalletId(id));
                self.transactions.extend(wallets::fold(&mut self.wallets, recorded, event));
                rules::of_wallet(is_first, event, self.wallets.get(&WalletId(id)))
            }
            Event::Webhook(_) => fold_or_report(&mut self.webhooks, recorded),
            Event::Replay(_) => fold_or_report(&mut self.replays, recorded),
            Event::Account(_) => fold_or_report(&mut self.accounts, recorded),
            Event::Credential(_) => fold_or_report(&mut self.credentials, recorded),
            Event::User(_) => fold_or_report(&mut self.users, recorded),
            Event::Product(event) if recorded.shard_id != FIRST_SHARD => {
                (!event.is_of_stock()).then(|| "changes a product in another shard than the first one".to_owned())
            }
            Event::Product(_) => fold_or_report(&mut self.products, recorded),
            Event::Category(_) => fold_or_report(&mut self.categories, recorded),
            Event::Reconciliation(_) => fold_or_report(&mut self.statements, recorded),
            Event::IpBlock(_) | Event::ApiVersion(_) | Event::Log(_) | Event::Verification(_) => None,
            Event::Operator(event) => operators::fold(&mut self.operators, recorded, event).or(operator_users::fold(
                &mut self.operator_users,
                recorded,
                event,
            )),
            Event::Beneficiary(event) => {
                let problem = rules::of_beneficiary(self.beneficiaries.get(&BeneficiaryId(id)), event);
                fold(&mut self.beneficiaries, recorded);
                problem
            }
            Event::Purchase(_) => fold_or_report(&mut self.purchases, recorded),
            Event::Shard(_) => fold_or_report(&mut self.shards, recorded),
            Event::Approval(_) => fold_or_report(&mut self.approvals, recorded),
            Event::Payout(event) => {
                let problem = rules::of_payout(self.payouts.get(&PayoutId(id)), event);
                fold(&mut self.payouts, recorded);
                if let Some(payout) = self.payouts.get(&PayoutId(id)).filter(|payout| payout.refund_transaction_id.is_some()) {
                    self.refunds.push((id, recorded.moment.position, payout.requested.wallet_id));
                }
                problem
            }
        }
    }

    /// Adds a wallet's event to its day, if the daily totals include it.
    fn total(&mut self, recorded: Recorded, totalled: Position) {
        match &recorded.event {
            Event::Wallet(_) if recorded.moment.position <= totalled => self.totals.step(&recorded),
            Event::Wallet(_) => self.ahead.push(recorded),
            _ => {}
        }
    }

    /// Removes one stream's state and returns it, for the next page.
    fn split_off(&mut self, id: i64) -> Folded {
        fn one<K: Id, T>(map: &mut HashMap<K, T>, id: i64) -> HashMap<K, T> {
            map.remove_entry(&K::new(id)).into_iter().collect()
        }
        Folded {
            orders: one(&mut self.orders, id),
            wallets: one(&mut self.wallets, id),
            webhooks: one(&mut self.webhooks, id),
            replays: one(&mut self.replays, id),
            accounts: one(&mut self.accounts, id),
            credentials: one(&mut self.credentials, id),
            users: one(&mut self.users, id),
            products: one(&mut self.products, id),
            categories: one(&mut self.categories, id),
            purchases: one(&mut self.purchases, id),
            shards: one(&mut self.shards, id),
            beneficiaries: one(&mut self.beneficiaries, id),
            payouts: one(&mut self.payouts, id),
            statements: one(&mut self.statements, id),
            approvals: one(&mut self.approvals, id),
            operators: one(&mut self.operators, id),
            operator_users: one(&mut self.operator_users, id),
            commitments: one(&mut self.commitments, id),
            totals: self.totals.split_off(WalletId(id)),
            ahead: self.ahead.extract_if(.., |recorded| recorded.stream_id == id).collect(),
            transactions: vec![],
            refunds: vec![],
        }
    }

    /// Compares the rows of these streams with the temporary tables.
    async fn compare(
        &self,
        conn: &mut PgConnection,
        (shard, stream): (ShardId, StreamType),
        range: (i64, i64),
        findings: &mut Findings,
    ) -> Result<(), AuditError> {
        let (from, upto) = (range.0.to_string(), range.1.to_string());
        let between = || Rows::Between(&from, Some(&upto));
        let ids: Vec<String> = self.transactions.iter().map(|t| t.id.to_string()).collect();
        let mut compared: Vec<(&Table, Rows)> = table_of(stream).map(|table| (table, between())).into_iter().collect();
        if stream == StreamType::Wallet {
            let find = |name| table(name).ok_or(AuditError::Broken);
            compared.push((find("wallet_transactions")?, Rows::Keys(&ids)));
            compared.push((find(totals::NAME)?, between()));
        }
        if stream == StreamType::Webhook {
            compared.push((table("webhook_subscriptions").ok_or(AuditError::Broken)?, between()));
            compared.push((table("webhook_deactivations").ok_or(AuditError::Broken)?, between()));
        }
        if stream == StreamType::Credential {
            compared.push((table("credential_restrictions").ok_or(AuditError::Broken)?, between()));
        }
        for (table, rows) in compared {
            let differing = table.differing(conn, "pg_temp", shard, rows).await?;
            findings.extend(differing.into_iter().map(Difference::Row));
        }
        match stream {
            StreamType::Operator if shard == FIRST_SHARD => {
                Ok(operators::check(conn, shard, range, &self.operators, findings).await?)
            }
            StreamType::Product => Ok(images::check(conn, shard, &self.products, findings).await?),
            _ => Ok(()),
        }
    }

    /// Compares the values that grant access, and their MACs.
    async fn compare_secrets(
        &self,
        conn: &mut PgConnection,
        (shard, stream): (ShardId, StreamType),
        range: (i64, i64),
        keyring: Option<&Keyring>,
        findings: &mut Findings,
    ) -> Result<(), AuditError> {
        let streams = secrets::Streams { shard, range, logged: &self.commitments };
        if stream == StreamType::Operator && shard == FIRST_SHARD {
            operator_users::check(conn, streams, &self.operator_users, keyring, findings).await?;
        }
        match (stream, keyring) {
            (StreamType::Credential, _) => secrets::credentials(conn, streams, &self.credentials, keyring, findings).await?,
            (StreamType::User, _) => {
                secrets::users(conn, streams, &self.users, keyring, findings).await?;
                second_factors::users(conn, streams, &self.users, keyring, findings).await?;
            }
            (StreamType::Account, _) => second_factors::policies(conn, streams, &self.accounts, findings).await?,
            (StreamType::Webhook, _) => secrets::webhooks(conn, streams, &self.webhooks, keyring, findings).await?,
            (StreamType::Operator, Some(keyring)) if shard == FIRST_SHARD => {
                secrets::operators(conn, streams, keyring, findings).await?;
            }
            _ => {}
        }
        Ok(())
    }

    async fn write(&self, conn: &mut PgConnection, shard: ShardId) -> Result<(), ProjectionError> {
        orders::write(conn, shard, &self.orders.values().collect::<Vec<_>>(), &[]).await?;
        wallets::write(conn, shard, &self.wallets.values().collect::<Vec<_>>(), &self.transactions).await?;
        totals::write(conn, shard, self.totals.days.values()).await?;
        write_all(conn, shard, &self.webhooks).await?;
        write_all(conn, shard, &self.replays).await?;
        write_all(conn, shard, &self.purchases).await?;
        write_all(conn, shard, &self.shards).await?;
        write_all(conn, shard, &self.beneficiaries).await?;
        write_all(conn, shard, &self.payouts).await?;
        write_all(conn, shard, &self.statements).await?;
        write_all(conn, shard, &self.approvals).await?;
        write_all(conn, shard, &self.accounts).await?;
        write_all(conn, shard, &self.credentials).await?;
        write_all(conn, shard, &self.users).await?;
        write_all(conn, shard, &self.products).await?;
        write_all(conn, shard, &self.categories).await
    }
}

async fn write_all<S: Upsert + Sync>(
    conn: &mut PgConnection,
    shard: ShardId,
    states: &HashMap<S::Id, S>,
) -> Result<(), ProjectionError> {
    S::write(conn, shard, &states.values().collect::<Vec<_>>()).await
}

/// Folds an event. Returns a problem if its stream has not begun.
fn fold_or_report<S: State>(states: &mut HashMap<S::Id, S>, recorded: &Recorded) -> Option<String> {
    fold(states, recorded);
    let is_known = states.contains_key(&S::Id::new(recorded.stream_id));
    (!is_known).then(|| format!("begins with {}", recorded.event.type_and_version().0))
}

/// Checks that refunds go to the wallet that paid.
async fn refunds(
    conn: &mut PgConnection,
    shard: ShardId,
    stream: StreamType,
    refunds: &[(i64, Position, WalletId)],
    findings: &mut Findings,
) -> Result<(), sqlx::Error> {
    if refunds.is_empty() {
        return Ok(());
    }
    let next: Vec<Position> = refunds.iter().map(|(_, cancelled, _)| cancelled + 1).collect();
    let wallets: Vec<(Position, WalletId)> = sqlx::query_as(
        "SELECT position, stream_id FROM events WHERE shard_id = $1 AND position = ANY($2) AND stream_type = 'wallet'",
    )
    .bind(shard)
    .bind(next)
    .fetch_all(conn)
    .await?;
    let wallets: HashMap<Position, WalletId> = wallets.into_iter().collect();
    for (id, position, paid_from) in refunds {
        // The walk over the positions checks that a refund exists.
        if let Some(wallet) = wallets.get(&(position + 1)).filter(|wallet| *wallet != paid_from) {
            let problem = format!("its refund went to wallet {wallet}, but it was paid from wallet {paid_from}");
            findings.add(Difference::Rule { shard, stream: stream.as_str(), id: *id, position: *position, problem });
        }
    }
    Ok(())
}

/// Finds rows of movements without an event in the log, page by page.
pub async fn extra_transactions(conn: &mut PgConnection, shard: ShardId, findings: &mut Findings) -> Result<(), AuditError> {
    let Some(table) = table("wallet_transactions") else { return Ok(()) };
    let mut after = table.before_all();
    loop {
        let to = table.page_end(conn, "public", shard, &after, PAGE_EVENTS).await?;
        let extra: Vec<TransactionId> = sqlx::query_scalar(
            "SELECT t.id FROM public.wallet_transactions t
             LEFT JOIN events e ON e.shard_id = t.shard_id AND e.position = t.position AND e.stream_type = 'wallet' AND e.stream_id = t.wallet_id
                AND e.data->>'transaction_id' = t.id::text
             WHERE t.shard_id = $1 AND t.id > $2::text::bigint AND t.id <= $3::text::bigint AND e.position IS NULL ORDER BY t.id",
        )
        .bind(shard)
        .bind(&after)
        .bind(to.clone().unwrap_or_else(|| i64::MAX.to_string()))
        .fetch_all(&mut *conn)
        .await?;
        for id in extra {
            let problem = super::RowProblem::Extra;
            findings.add(Difference::Row(super::RowDifference {
                table: table.name,
                shard,
                key: id.to_string(),
                part: String::new(),
                problem,
            }));
        }
        match to {
            Some(to) => after = to,
            None => return Ok(()),
        }
    }
}
