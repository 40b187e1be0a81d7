//! The walk over a period's events. Compares every movement with its row, every order and payout with the business rules,
//! and every day with its row of totals. Keeps one page of events with its days, and the wallets, in memory.

use std::collections::{HashMap, HashSet};
use std::slice;

use chrono::NaiveDate;
use ledger_database::{PgConnection, PgPool};
use ledger_events::order::{Order, OrderEvent};
use ledger_events::payout::{Payout, PayoutEvent};
use ledger_events::wallet::{Direction, Movement, Purpose, Wallet, WalletEvent};
use ledger_events::{AccountId, Event, Id, Money, OrderId, PayoutId, Position, Recorded, ShardId, StreamType, WalletId};
use ledger_projections::totals::{Bounds, Day, Folded, Standing};
use ledger_projections::wallets::Transaction;
use ledger_projections::{state, totals, wallets};

use super::differing::{differing, differing_day};
use super::{Difference, DifferenceKind, Differences, ReconcileError};
use crate::audit::Progress;
use crate::audit::rules::{self, ExpectedMovement};
use crate::ledger::reader::{self, Stored};

/// Number of events in a page.
const PAGE_EVENTS: i64 = 5_000;
/// Number of positions per query, because one account's events may be far apart.
const WINDOW: i64 = 20_000;

/// Checks the events of a period, of one account or of all. Returns the number of events.
pub async fn walk(
    pool: &PgPool,
    shard: ShardId,
    account: Option<AccountId>,
    bounds: &Bounds,
    differences: &mut Differences,
    progress: &impl Fn(Progress),
) -> Result<i64, ReconcileError> {
    let mut walk = PeriodCheck::new(shard, account.as_ref().map(slice::from_ref), bounds, differences);
    let mut at = bounds.after;
    while at < bounds.upto {
        // A long walk does not keep a connection to itself: other reads may be waiting for one.
        let mut conn = pool.acquire().await?;
        let window = bounds.upto.min(at.saturating_add(WINDOW));
        let page = reader::money_events(&mut *conn, shard, account, at, window, PAGE_EVENTS).await?;
        let is_all = i64::try_from(page.len()).is_ok_and(|n| n < PAGE_EVENTS);
        let end = if is_all { window } else { page.last().map_or(window, |last| last.position) };
        walk.page(&mut conn, &page, (at, end)).await?;
        at = end;
        progress(Progress { stage: "reconcile", shard, done: at - bounds.after, total: bounds.upto - bounds.after });
    }
    let mut conn = pool.acquire().await?;
    walk.end(&mut conn).await
}

/// Checks the events of some accounts, given the positions of all their events in the period, in order. The cost does not
/// depend on the rest of the log.
pub async fn walk_over(
    pool: &PgPool,
    shard: ShardId,
    accounts: &[AccountId],
    positions: &[Position],
    bounds: &Bounds,
    differences: &mut Differences,
    progress: &impl Fn(Progress),
) -> Result<i64, ReconcileError> {
    let mut walk = PeriodCheck::new(shard, Some(accounts), bounds, differences);
    let mut at = bounds.after;
    let total = i64::try_from(positions.len()).unwrap_or(i64::MAX);
    for positions in positions.chunks(usize::try_from(PAGE_EVENTS).unwrap_or(usize::MAX)) {
        progress(Progress { stage: "reconcile", shard, done: walk.events, total });
        let mut conn = pool.acquire().await?;
        let page = reader::stored_at(&mut *conn, shard, positions).await?;
        let end = positions.last().copied().unwrap_or(at);
        walk.page(&mut conn, &page, (at, end)).await?;
        at = end;
    }
    let mut conn = pool.acquire().await?;
    // Rows of movements may have positions after the last event.
    walk.page(&mut conn, &[], (at, bounds.upto)).await?;
    walk.end(&mut conn).await
}

struct PeriodCheck<'a> {
    shard: ShardId,
    /// Accounts whose rows are compared. None for all.
    accounts: Option<&'a [AccountId]>,
    bounds: &'a Bounds,
    /// Movement that the previous event requires to follow it.
    expected: Option<ExpectedMovement>,
    /// Movements of the page that no event required: the index of each one's difference, and the order or payout that it names.
    unexpected: Vec<(usize, Purpose)>,
    /// State of each wallet after the log's movements so far.
    wallets: HashMap<WalletId, Wallet>,
    /// Movements of the days of the page that is being read.
    days: Folded,
    /// First day whose rows are not compared yet. Days that are only partly in the period are never compared.
    unchecked: NaiveDate,
    /// Number of events so far.
    events: i64,
    differences: &'a mut Differences,
}

impl<'a> PeriodCheck<'a> {
    fn new(
        shard: ShardId,
        accounts: Option<&'a [AccountId]>,
        bounds: &'a Bounds,
        differences: &'a mut Differences,
    ) -> PeriodCheck<'a> {
        PeriodCheck {
            shard,
            accounts,
            bounds,
            expected: None,
            unexpected: vec![],
            wallets: HashMap::new(),
            days: Folded::default(),
            unchecked: bounds.whole.0,
            events: 0,
            differences,
        }
    }

    async fn end(mut self, conn: &mut PgConnection) -> Result<i64, ReconcileError> {
        self.settle(None);
        self.check_days(conn, None).await?;
        Ok(self.events)
    }

    async fn page(
        &mut self,
        conn: &mut PgConnection,
        page: &[Stored],
        (after, upto): (Position, Position),
    ) -> Result<(), ReconcileError> {
        let shard = self.shard;
        self.events += i64::try_from(page.len()).unwrap_or(i64::MAX);
        let mut events = Vec::with_capacity(page.len());
        for stored in page {
            match stored.decode() {
                Ok(recorded) => events.push(recorded),
                Err(error) => self.differences.add(Difference {
                    kind: DifferenceKind::Unreadable,
                    shard_id: shard,
                    wallet_id: None,
                    order_id: None,
                    payout_id: None,
                    positions: vec![stored.position],
                    problem: error.to_string(),
                }),
            }
        }
        self.meet_wallets(conn, &events).await?;
        let (mut orders, mut payouts) = states_before(conn, shard, &events, after + 1).await?;
        let mut movements: HashMap<Position, Transaction> = HashMap::new();
        for recorded in &events {
            self.settle(Some(recorded));
            self.rules(recorded, &mut orders, &mut payouts);
            self.expected = ExpectedMovement::by(recorded);
            if let Event::Wallet(event) = &recorded.event {
                self.days.step(recorded);
                movements.extend(self.movement(recorded, event).map(|row| (recorded.moment.position, row)));
            }
        }
        self.locate_unexpected(conn).await?;
        // The last day of the page may continue on the next one.
        if let Some(last) = events.last() {
            self.check_days(conn, Some(last.moment.recorded_at.date_naive())).await?;
        }
        self.compare(conn, movements, (after, upto)).await
    }

    /// Loads the wallets whose streams began before the walk's first event.
    async fn meet_wallets(&mut self, conn: &mut PgConnection, events: &[Recorded]) -> Result<(), ReconcileError> {
        let mut unknown: HashMap<WalletId, i64> = HashMap::new();
        for recorded in events.iter().filter(|r| r.stream_type == StreamType::Wallet && r.moment.version > 1) {
            let id = WalletId(recorded.stream_id);
            if !self.wallets.contains_key(&id) {
                unknown.entry(id).or_insert(recorded.moment.version);
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let unknown: Vec<(WalletId, i64)> = unknown.into_iter().collect();
        for stored in reader::wallets_before(conn, self.shard, &unknown).await? {
            let recorded = stored.decode()?;
            let Event::Wallet(event) = &recorded.event else { continue };
            if stored.position > self.bounds.after {
                continue; // the walk reads this event itself
            }
            wallets::fold(&mut self.wallets, &recorded, event);
            let id = WalletId(recorded.stream_id);
            if let Some(wallet) = self.wallets.get_mut(&id) {
                if let Some(movement) = Movement::of(event) {
                    wallet.balance = movement.balance_after;
                }
                let Wallet { account_id, currency, balance, .. } = *wallet;
                let standing = Standing { account_id, currency, balance: balance.decimal() };
                self.days.standing.insert(id, standing);
            }
        }
        Ok(())
    }

    /// Checks that the required movement is the event at the next position, and that no other event looks like such a
    /// movement.
    fn settle(&mut self, next: Option<&Recorded>) {
        let moved = next.and_then(|next| match &next.event {
            Event::Wallet(WalletEvent::WalletDebited(e)) => Some((next, e.purpose, false)),
            Event::Wallet(WalletEvent::WalletRefunded(e)) => Some((next, e.purpose, true)),
            _ => None,
        });
        if let Some(expected) = self.expected.take() {
            let following = next.filter(|next| next.moment.position == expected.position + 1);
            if let Some(problem) = expected.unmet_by(following) {
                let positions = vec![expected.position, expected.position + 1];
                self.add(kind_of(expected.purpose, expected.is_refund), expected.purpose, positions, problem);
            }
            let is_it =
                moved.is_some_and(|(_, purpose, is_refund)| (purpose, is_refund) == (expected.purpose, expected.is_refund));
            if following.is_some() && is_it {
                return; // this is the required movement, correct or not
            }
        }
        let Some((recorded, purpose, is_refund)) = moved else { return };
        let Some(problem) = ExpectedMovement::unexpected(recorded) else { return };
        if self.differences.is_keeping() {
            self.unexpected.push((self.differences.differences.len(), purpose));
        }
        self.add(kind_of(purpose, is_refund), purpose, vec![recorded.moment.position], problem);
    }

    /// Adds the positions at which the orders and payouts of unexpected movements moved money. Looks them up together.
    async fn locate_unexpected(&mut self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        let unexpected = std::mem::take(&mut self.unexpected);
        if unexpected.is_empty() {
            return Ok(());
        }
        let (mut orders, mut payouts) = (vec![], vec![]);
        for (_, purpose) in &unexpected {
            match purpose {
                Purpose::Order(id) => orders.push(*id),
                Purpose::Payout(id) => payouts.push(*id),
            }
        }
        let mut moved: HashMap<Purpose, Vec<Position>> = HashMap::new();
        let found = reader::requiring_movements(conn, self.shard, orders, payouts).await?;
        for expected in found.iter().filter_map(|stored| ExpectedMovement::by(&stored.decode().ok()?)) {
            moved.entry(expected.purpose).or_default().extend([expected.position, expected.position + 1]);
        }
        for (index, purpose) in unexpected {
            if let Some(Difference { positions, .. }) = self.differences.differences.get_mut(index) {
                positions.extend(moved.get(&purpose).into_iter().flatten());
                positions.sort_unstable();
                positions.dedup();
            }
        }
        Ok(())
    }

    fn add(&mut self, kind: DifferenceKind, subject: Purpose, positions: Vec<Position>, problem: String) {
        let (order_id, payout_id) = match subject {
            Purpose::Order(id) => (Some(id), None),
            Purpose::Payout(id) => (None, Some(id)),
        };
        self.differences.add(Difference { kind, shard_id: self.shard, wallet_id: None, order_id, payout_id, positions, problem });
    }

    /// Checks that an order costs its price, that its refund follows the refund rule, and that a payout is refunded in
    /// full.
    fn rules(&mut self, recorded: &Recorded, orders: &mut HashMap<OrderId, Order>, payouts: &mut HashMap<PayoutId, Payout>) {
        let position = recorded.moment.position;
        match &recorded.event {
            Event::Order(event) => {
                let id = OrderId(recorded.stream_id);
                let before = orders.get(&id);
                let problem = match event {
                    OrderEvent::OrderPlaced(_) => {
                        rules::of_order(before, event).map(|problem| (DifferenceKind::OrderPrice, problem))
                    }
                    OrderEvent::OrderCancelled(_) => {
                        rules::of_order(before, event).map(|problem| (DifferenceKind::OrderRefund, problem))
                    }
                    _ => None,
                };
                if let Some((kind, problem)) = problem {
                    let placed = before.map(|order| order.placed_position);
                    self.add(kind, Purpose::Order(id), placed.into_iter().chain([position]).collect(), problem);
                }
                state::fold(orders, recorded);
            }
            Event::Payout(event) => {
                let id = PayoutId(recorded.stream_id);
                if let Some(problem) = rules::of_payout(payouts.get(&id), event) {
                    let kind = match event {
                        PayoutEvent::PayoutFailed(_) | PayoutEvent::PayoutCancelled(_) => DifferenceKind::PayoutRefund,
                        PayoutEvent::PayoutRequested(_) => DifferenceKind::PayoutDebit,
                        _ => DifferenceKind::Payout,
                    };
                    self.add(kind, Purpose::Payout(id), vec![position], problem);
                }
                state::fold(payouts, recorded);
            }
            _ => {}
        }
    }

    /// Applies a movement to its wallet. Returns the row that the movement should have.
    fn movement(&mut self, recorded: &Recorded, event: &WalletEvent) -> Option<Transaction> {
        let wallet_id = WalletId(recorded.stream_id);
        let before = self.wallets.get(&wallet_id).map_or(Money::ZERO, |wallet| wallet.balance);
        wallets::fold(&mut self.wallets, recorded, event);
        let wallet = self.wallets.get_mut(&wallet_id)?;
        let movement = Movement::of(event)?;
        let after = match movement.direction {
            Direction::Credit => before.checked_add(movement.amount),
            Direction::Debit => before.checked_sub(movement.amount),
        };
        if after != Ok(movement.balance_after) {
            let (id, said) = (movement.transaction_id, movement.balance_after);
            let problem = format!("transaction {id} of {} says the balance after {before} is {said}", movement.amount);
            let position = recorded.moment.position;
            let difference = Difference::of_wallet(DifferenceKind::BalanceAfter, self.shard, wallet_id, vec![position], problem);
            self.differences.add(difference);
        }
        // Continue from the balance that this event states, so that one error is reported only once.
        wallet.balance = movement.balance_after;
        Transaction::of(wallet, event, &recorded.moment)
    }

    /// Compares a page's movements with the rows at its positions.
    async fn compare(
        &mut self,
        conn: &mut PgConnection,
        mut movements: HashMap<Position, Transaction>,
        (after, upto): (Position, Position),
    ) -> Result<(), ReconcileError> {
        let rows = wallets::transactions_between(conn, self.shard, self.accounts, after, upto).await?;
        let mut add = |kind, wallet, position, problem| {
            self.differences.add(Difference::of_wallet(kind, self.shard, wallet, vec![position], problem));
        };
        for row in rows {
            let (id, position) = (row.id, row.position);
            match movements.remove(&position) {
                Some(movement) if movement == row => {}
                Some(movement) => {
                    let problem = format!("transaction {id} differs from the log: {}", differing(&row, &movement));
                    add(DifferenceKind::MovementDiffers, movement.wallet_id, position, problem);
                }
                None => {
                    let problem = format!("transaction {id} of {} is not in the log", row.amount);
                    add(DifferenceKind::MovementExtra, row.wallet_id, position, problem);
                }
            }
        }
        for (position, movement) in movements {
            let problem = format!("transaction {} of {} has no row", movement.id, movement.amount);
            add(DifferenceKind::MovementMissing, movement.wallet_id, position, problem);
        }
        Ok(())
    }

    /// Compares the rows of all days before the next event's day, or of all remaining days, with the current day. Nothing
    /// moved on the other days. Rows are selected by day, whatever else they contain.
    async fn check_days(&mut self, conn: &mut PgConnection, next: Option<NaiveDate>) -> Result<(), ReconcileError> {
        let mut days = std::mem::take(&mut self.days.days);
        if let Some(next) = next {
            self.days.days = days.extract_if(.., |(_, day), _| *day >= next).collect();
        }
        let end = next.unwrap_or(self.bounds.whole.1).min(self.bounds.whole.1);
        let from = self.unchecked;
        self.unchecked = from.max(end);
        // The projection has not processed all of this day, nor later ones.
        let unprojected = days.values().filter(|day| day.last_position > self.bounds.checkpoint).map(|day| day.day).min();
        let end = unprojected.map_or(end, |day| day.min(end));
        if from >= end {
            return Ok(());
        }
        let mut rows = totals::between(&mut *conn, self.shard, self.accounts, (from, end)).await?;
        let growing = if next.is_none() { self.growing(conn).await? } else { HashSet::new() };
        let is_settled = |day: &&Day| !growing.contains(&day.wallet_id);
        for walked in days.values().filter(|walked| (from..end).contains(&walked.day)) {
            let row = rows.remove(&(walked.wallet_id, walked.day));
            if is_settled(&walked) {
                self.add_day(walked, row.map_or(Some("there is no row".to_owned()), |row| differing_day(walked, &row)));
            }
        }
        let mut extra: Vec<Day> = rows.into_values().filter(|row| is_settled(&row)).collect();
        extra.sort_by_key(|row| (row.day, row.wallet_id));
        for row in extra {
            self.add_day(&row, Some("there is a row and no event".to_owned()));
        }
        Ok(())
    }

    /// Returns the wallets whose rows of the last day may already include events after the report's position.
    async fn growing(&self, conn: &mut PgConnection) -> Result<HashSet<WalletId>, ReconcileError> {
        let Bounds { upto, whole: (_, end_day), .. } = *self.bounds;
        let later = reader::stored_after(&mut *conn, self.shard, upto, 1).await?;
        if later.first().is_none_or(|later| later.recorded_at.date_naive() >= end_day) {
            return Ok(HashSet::new());
        }
        let projected = totals::checkpoint(&mut *conn, self.shard).await?;
        Ok(reader::wallets_between(conn, self.shard, (upto, projected)).await?)
    }

    fn add_day(&mut self, of: &Day, problem: Option<String>) {
        let Some(problem) = problem else { return };
        let mut positions = vec![of.first_position, of.last_position];
        positions.dedup();
        let problem = format!("the totals of {}: {problem}", of.day);
        let difference = Difference::of_wallet(DifferenceKind::DailyTotal, self.shard, of.wallet_id, positions, problem);
        self.differences.add(difference);
    }
}

/// Loads the orders and payouts that the rules need, in their state before a page. Those that begin within the page are
/// folded during it.
async fn states_before(
    conn: &mut PgConnection,
    shard: ShardId,
    events: &[Recorded],
    first: Position,
) -> Result<(HashMap<OrderId, Order>, HashMap<PayoutId, Payout>), ReconcileError> {
    let cancelled = ids(events, |event| matches!(event, Event::Order(OrderEvent::OrderCancelled(_))));
    let settled = ids(events, |event| matches!(event, Event::Payout(_)));
    let orders = reader::orders_before(&mut *conn, shard, &cancelled, first).await?;
    Ok((orders, reader::payouts_before(conn, shard, &settled, first).await?))
}

/// Returns the streams of the wanted events, without duplicates. The wanted events must be of one kind of stream.
fn ids<T: Id>(events: &[Recorded], is_wanted: fn(&Event) -> bool) -> Vec<T> {
    let mut ids: Vec<T> = events.iter().filter(|r| is_wanted(&r.event)).map(|r| T::new(r.stream_id)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn kind_of(purpose: Purpose, is_refund: bool) -> DifferenceKind {
    match (purpose, is_refund) {
        (Purpose::Order(_), false) => DifferenceKind::OrderDebit,
        (Purpose::Order(_), true) => DifferenceKind::OrderRefund,
        (Purpose::Payout(_), false) => DifferenceKind::PayoutDebit,
        (Purpose::Payout(_), true) => DifferenceKind::PayoutRefund,
    }
}
