//! The promises about a wallet and its orders, as a sequential object.
//!
//! Fulfilment changes the status of an order by itself. That step is taken when a response shows it, for nothing else
//! depends on its time.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

use super::checker::{Specification, Verdict, check};
use super::history::{Operation, Place, Refusal, Request, Response, Seen, Status};

/// A wallet with its orders. States share what they have in common, because a search has many of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wallet {
    balance: i64,
    fundings: Rc<BTreeMap<String, Funding>>,
    orders: Rc<BTreeMap<u32, Order>>,
    /// Stored responses, by key. The number and the amount identify the body.
    placed: Rc<BTreeMap<String, Placed>>,
    /// Numbers and keys with a stored cancellation.
    cancelled: Rc<BTreeSet<(u32, String)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Funding {
    amount: i64,
    balance: i64,
    /// Unknown until a response names it.
    transaction: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Order {
    amount: i64,
    is_stocked: bool,
    status: Status,
    has_reference: bool,
    /// Unknown until a response names it.
    id: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Placed {
    number: u32,
    amount: i64,
    is_new: bool,
    /// Status in the stored response. Unknown if the request found an order whose status nobody was told.
    status: Option<Status>,
}

impl Specification for Wallet {
    type State = Wallet;
    type Operation = Operation;

    fn step(state: &Wallet, operation: &Operation) -> Option<Wallet> {
        let mut after = state.clone();
        let response = operation.answered.as_ref().map(|(_, response)| response);
        let is_possible = match (response, &operation.request) {
            // Nothing happened, whatever the state is.
            (Some(Response::Refused(Refusal::Unavailable | Refusal::InProgress)), _) => true,
            (_, Request::Fund { reference, amount }) => after.fund(reference, *amount, response),
            (_, Request::Place(place)) => after.place(place, response),
            (_, Request::Cancel { number, key }) => after.cancel(*number, key.as_deref(), response),
            (Some(Response::Balance(balance)), Request::Balance) => after.balance == *balance,
            (Some(Response::Order(seen)), Request::Order { number }) => seen.number == *number && after.shows(seen),
            (Some(Response::Refused(Refusal::NotFound)), Request::Order { number }) => !after.orders.contains_key(number),
            (Some(Response::Orders(seen)), Request::Orders) => {
                seen.len() == after.orders.len() && seen.iter().all(|seen| after.shows(seen)) && have_one_id_each(seen)
            }
            _ => false,
        };
        is_possible.then_some(after)
    }

    fn is_answered(operation: &Operation) -> bool {
        operation.answered.is_some()
    }

    /// Orders operations by real time. A read on a standby sees everything that was shown before it, or the change whose
    /// position it carries. It may also see a commit that the primary does not show yet, so a later read may be older.
    fn precedes(first: &Operation, second: &Operation) -> bool {
        let Some((answered, _)) = &first.answered else { return false };
        match second.sees {
            Some(seen) => *answered == seen,
            None => *answered < second.invoked && !(first.is_on_standby && second.request.is_read()),
        }
    }

    fn are_alike(first: &Operation, second: &Operation) -> bool {
        first.request == second.request
    }
}

impl Wallet {
    fn fund(&mut self, reference: &str, amount: i64, response: Option<&Response>) -> bool {
        let known = self.fundings.get(reference).copied();
        let mut funding = known.unwrap_or(Funding { amount, balance: self.balance + amount, transaction: None });
        let is_possible = match response {
            None => funding.amount == amount,
            Some(Response::Refused(Refusal::FundingConflict)) => return funding.amount != amount,
            Some(Response::Funded { is_new, transaction, balance }) => {
                let is_same = funding.transaction.is_none_or(|known| known == *transaction);
                funding.transaction = Some(*transaction);
                is_same && (known.is_none(), funding.amount, funding.balance) == (*is_new, amount, *balance)
            }
            Some(_) => false,
        };
        if is_possible && known != Some(funding) {
            self.balance += if known.is_none() { amount } else { 0 };
            Rc::make_mut(&mut self.fundings).insert(reference.to_owned(), funding);
        }
        is_possible
    }

    fn place(&mut self, place: &Place, response: Option<&Response>) -> bool {
        let stored = place.key.as_ref().and_then(|key| self.placed.get(key)).copied();
        if let Some(stored) = stored {
            return match (stored.number, stored.amount) == (place.number, place.amount) {
                true => self.answer(place, Some(stored), response),
                false => matches!(response, None | Some(Response::Refused(Refusal::KeyReused))),
            };
        }
        let (number, amount) = (place.number, place.amount);
        if let Some(order) = self.orders.get(&number) {
            // Only its reference leads to it. The plan gives every other order a number of its own.
            let is_led = order.has_reference && place.reference.is_some();
            return match order.amount == amount {
                true => is_led && self.answer(place, None, response),
                false => is_led && matches!(response, None | Some(Response::Refused(Refusal::ReferenceTaken))),
            };
        }
        if self.balance < amount {
            return matches!(response, None | Some(Response::Refused(Refusal::InsufficientBalance)));
        }
        let (is_stocked, has_reference) = (place.is_stocked, place.reference.is_some());
        let mut order = Order { amount, is_stocked, status: Status::Pending, has_reference, id: None };
        match response {
            None => {}
            Some(Response::Placed { is_new: true, is_replay: false, order: seen }) if !self.has_id(seen.id) => {
                order.id = Some(seen.id);
                if (seen.number, seen.amount, seen.refunded, seen.status) != (number, amount, 0, Status::Pending) {
                    return false;
                }
            }
            Some(_) => return false,
        }
        self.balance -= amount;
        self.put(number, order);
        self.store(place, Placed { number, amount, is_new: true, status: Some(Status::Pending) });
        true
    }

    /// Answers with an order that exists: with the stored response, or by its reference.
    fn answer(&mut self, place: &Place, stored: Option<Placed>, response: Option<&Response>) -> bool {
        let is_stored = stored.is_some();
        let mut stored = stored.unwrap_or(Placed { number: place.number, amount: place.amount, is_new: false, status: None });
        match response {
            None => {}
            Some(Response::Placed { is_new, is_replay, order }) => {
                let is_shown = match stored.status {
                    // The order may have changed since. Its id and its amount have not.
                    Some(status) => status == order.status && self.is(order),
                    None if is_stored => self.is(order),
                    None => self.shows(order),
                };
                stored.status = Some(order.status);
                if !is_shown || (order.number, *is_new, *is_replay) != (place.number, stored.is_new, is_stored) {
                    return false;
                }
            }
            Some(_) => return false,
        }
        self.store(place, stored);
        true
    }

    fn cancel(&mut self, number: u32, key: Option<&str>, response: Option<&Response>) -> bool {
        let is_stored = key.is_some_and(|key| self.cancelled.contains(&(number, key.to_owned())));
        let Some(order) = self.orders.get(&number).copied() else {
            return matches!(response, None | Some(Response::Refused(Refusal::NotFound)));
        };
        let is_final = matches!(order.status, Status::Delivered | Status::Cancelled);
        match response {
            Some(Response::Refused(Refusal::NotCancellable)) if !is_stored => {
                return is_final || order.proceeds(Status::Delivered).map(|order| self.put(number, order)).is_some();
            }
            None if is_final => return true,
            None => {}
            Some(Response::Cancelled { is_replay, order: seen }) => {
                let is_expected = (seen.number, seen.status, *is_replay) == (number, Status::Cancelled, is_stored);
                if !is_expected || (is_final && !is_stored) {
                    return false;
                }
            }
            Some(_) => return false,
        }
        if !is_stored {
            self.put(number, Order { status: Status::Cancelled, ..order });
            self.balance += order.amount;
            if let Some(key) = key {
                Rc::make_mut(&mut self.cancelled).insert((number, key.to_owned()));
            }
        }
        match response {
            Some(Response::Cancelled { order, .. }) => self.shows(order),
            _ => true,
        }
    }

    fn has_id(&self, id: i64) -> bool {
        self.orders.values().any(|order| order.id == Some(id))
    }

    fn put(&mut self, number: u32, order: Order) {
        if self.orders.get(&number) != Some(&order) {
            Rc::make_mut(&mut self.orders).insert(number, order);
        }
    }

    fn store(&mut self, place: &Place, stored: Placed) {
        if let Some(key) = &place.key
            && self.placed.get(key) != Some(&stored)
        {
            Rc::make_mut(&mut self.placed).insert(key.clone(), stored);
        }
    }

    /// Returns the order that has this number, id and amount. An id that was unknown is now known.
    fn identified(&self, seen: &Seen) -> Option<Order> {
        let order = self.orders.get(&seen.number).copied()?;
        let is_same = match order.id {
            Some(id) => id == seen.id,
            None => !self.has_id(seen.id),
        };
        (is_same && order.amount == seen.amount).then_some(Order { id: Some(seen.id), ..order })
    }

    /// Returns whether there is such an order, whatever its status.
    fn is(&mut self, seen: &Seen) -> bool {
        self.identified(seen).map(|order| self.put(seen.number, order)).is_some()
    }

    /// Returns whether an order looks like this, after fulfilment has done what it could.
    fn shows(&mut self, seen: &Seen) -> bool {
        let refunded = if seen.status == Status::Cancelled { seen.amount } else { 0 };
        let shown = self.identified(seen).filter(|_| seen.refunded == refunded).and_then(|order| order.proceeds(seen.status));
        shown.map(|order| self.put(seen.number, order)).is_some()
    }
}

impl Order {
    /// Lets fulfilment lead the order to this status, if it can.
    fn proceeds(self, status: Status) -> Option<Order> {
        let can = match (self.status, status) {
            (Status::Pending, Status::Delayed) => !self.is_stocked,
            (Status::Pending, Status::Delivered) => self.is_stocked,
            (before, after) => before == after,
        };
        can.then_some(Order { status, ..self })
    }
}

fn have_one_id_each(seen: &[Seen]) -> bool {
    let numbers: HashSet<u32> = seen.iter().map(|seen| seen.number).collect();
    numbers.len() == seen.len()
}

/// Checks a history: each wallet with its orders by itself, for no operation concerns two of them.
///
/// # Errors
/// The wallet that has no such order or needs too long a search, and why.
pub fn judge(operations: &[Operation]) -> Result<usize, String> {
    let mut wallets: BTreeMap<usize, Vec<Operation>> = BTreeMap::new();
    for operation in operations {
        wallets.entry(operation.wallet).or_default().push(operation.clone());
    }
    let mut visited = 0;
    for (wallet, operations) in wallets {
        match check::<Wallet>(&Wallet::default(), &operations) {
            Verdict::Linearizable { states } => visited += states,
            Verdict::Refused { explanation, .. } => return Err(format!("wallet {wallet} is not linearizable: {explanation}")),
            Verdict::Undecided { explanation } => return Err(format!("wallet {wallet} is undecided: {explanation}")),
        }
    }
    Ok(visited)
}
