//! The wallet stream: one wallet per account and currency. The balance never falls below zero.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::{AccountId, Currency, Moment, Money, OrderId, PayoutId, Rejection, TransactionId, WalletId};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WalletOpened {
    pub account_id: AccountId,
    pub currency: Currency,
}

/// An incoming amount from outside the ledger. Each funding reference is used only once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WalletFunded {
    pub transaction_id: TransactionId,
    pub amount: Money,
    pub balance_after: Money,
    pub reference: String,
    /// SHA-256 (hex) over a salt and the operator's note. The vault stores both.
    pub note_hash: Option<String>,
}

/// A payment for an order or a payout. Version 1 supports orders only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WalletDebited {
    pub transaction_id: TransactionId,
    pub amount: Money,
    pub balance_after: Money,
    /// One field in the payload: `order_id` or `payout_id`.
    #[serde(flatten)]
    pub purpose: Purpose,
    /// `reference_code` of the order or payout.
    pub reference: String,
}

/// A refund: for the undelivered part of a cancelled order, or for a payout that was not made. Version 1 supports
/// orders only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WalletRefunded {
    pub transaction_id: TransactionId,
    pub amount: Money,
    pub balance_after: Money,
    /// One field in the payload: `order_id` or `payout_id`.
    #[serde(flatten)]
    pub purpose: Purpose,
    /// `reference_code` of the order or payout.
    pub reference: String,
}

/// Order or payout that a wallet pays for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purpose {
    #[serde(rename = "order_id")]
    Order(OrderId),
    #[serde(rename = "payout_id")]
    Payout(PayoutId),
}

impl Purpose {
    /// Returns the category of the movement that pays for it.
    pub fn payment(self) -> &'static str {
        match self {
            Self::Order(_) => "ORDER",
            Self::Payout(_) => "PAYOUT",
        }
    }

    /// Returns the category of the movement that refunds it.
    pub fn refund(self) -> &'static str {
        match self {
            Self::Order(_) => "ORDER_REFUND",
            Self::Payout(_) => "PAYOUT_REFUND",
        }
    }

    fn order_id(self) -> Option<OrderId> {
        match self {
            Self::Order(id) => Some(id),
            Self::Payout(_) => None,
        }
    }
}

/// A correction of the balance, by an operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WalletAdjusted {
    pub transaction_id: TransactionId,
    pub direction: Direction,
    pub amount: Money,
    pub balance_after: Money,
    /// SHA-256 (hex) over a salt and the reason. The vault stores both.
    pub reason_hash: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Direction {
    Credit,
    Debit,
}

impl Direction {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Credit => "CREDIT",
            Self::Debit => "DEBIT",
        }
    }

    pub fn parse(text: &str) -> Option<Direction> {
        [Self::Credit, Self::Debit].into_iter().find(|direction| direction.as_str() == text)
    }
}

/// State of a wallet: the fold of its stream, and the row of the table `wallets`.
#[derive(Clone, Debug, PartialEq)]
pub struct Wallet {
    pub id: WalletId,
    pub version: i64,
    pub account_id: AccountId,
    pub currency: Currency,
    pub balance: Money,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum WalletCommand {
    Fund { amount: Money, reference: String, note_hash: Option<String> },
    Pay { amount: Money, purpose: Purpose, reference: String },
    Refund { amount: Money, purpose: Purpose, reference: String },
    Adjust { direction: Direction, amount: Money, reason_hash: String },
}

/// Decides a command. Each command makes one movement, with the id `transaction_id`.
///
/// # Errors
/// Rejects a debit that the balance does not cover, and a credit that does not fit into [`Money`].
pub fn decide(wallet: &Wallet, transaction_id: TransactionId, command: WalletCommand) -> Result<WalletEvent, Rejection> {
    let credited =
        |amount: Money| wallet.balance.checked_add(amount).map_err(|_| Rejection::Conflict("the balance would be out of range"));
    let debited = |amount: Money| match wallet.balance.checked_sub(amount) {
        Ok(balance) if balance >= Money::ZERO => Ok(balance),
        _ => Err(Rejection::InsufficientBalance),
    };
    Ok(match command {
        WalletCommand::Fund { amount, reference, note_hash } => {
            WalletFunded { transaction_id, amount, balance_after: credited(amount)?, reference, note_hash }.into()
        }
        WalletCommand::Pay { amount, purpose, reference } => {
            WalletDebited { transaction_id, amount, balance_after: debited(amount)?, purpose, reference }.into()
        }
        WalletCommand::Refund { amount, purpose, reference } => {
            WalletRefunded { transaction_id, amount, balance_after: credited(amount)?, purpose, reference }.into()
        }
        WalletCommand::Adjust { direction, amount, reason_hash } => {
            let balance_after = match direction {
                Direction::Credit => credited(amount)?,
                Direction::Debit => debited(amount)?,
            };
            WalletAdjusted { transaction_id, direction, amount, balance_after, reason_hash }.into()
        }
    })
}

/// Folds an event into the state. This is the only fold of the wallet stream. Returns `None` only before
/// `WalletOpened`.
///
/// Computes the balance from the amounts and ignores `balance_after`, so that `verify` can compare the two.
pub fn evolve(state: Option<Wallet>, id: WalletId, event: &WalletEvent, at: &Moment) -> Option<Wallet> {
    let mut wallet = match (state, event) {
        (None, WalletEvent::WalletOpened(opened)) => Wallet {
            id,
            version: at.version,
            account_id: opened.account_id,
            currency: opened.currency,
            balance: Money::ZERO,
            created_at: at.recorded_at,
            updated_at: at.recorded_at,
        },
        (None, _) => return None,
        (Some(wallet), _) => wallet,
    };
    if let Some(movement) = Movement::of(event) {
        let balance = match movement.direction {
            Direction::Credit => wallet.balance.checked_add(movement.amount),
            Direction::Debit => wallet.balance.checked_sub(movement.amount),
        };
        wallet.balance = balance.unwrap_or(wallet.balance);
    }
    wallet.version = at.version;
    wallet.updated_at = at.recorded_at;
    Some(wallet)
}

/// A movement of money, extracted from a wallet event: the row of the table `wallet_transactions`.
#[derive(Clone, Debug, PartialEq)]
pub struct Movement<'a> {
    pub transaction_id: TransactionId,
    pub direction: Direction,
    pub category: &'static str,
    pub amount: Money,
    pub balance_after: Money,
    /// Order or payout that the movement pays or refunds.
    pub purpose: Option<Purpose>,
    pub reference: Option<&'a str>,
}

impl Movement<'_> {
    /// All categories of movements.
    pub const CATEGORIES: [&'static str; 6] = ["FUNDING", "ORDER", "ORDER_REFUND", "ADJUSTMENT", "PAYOUT", "PAYOUT_REFUND"];

    pub fn order_id(&self) -> Option<OrderId> {
        self.purpose.and_then(Purpose::order_id)
    }

    /// Returns the movement of an event; `None` for `WalletOpened`.
    pub fn of(event: &WalletEvent) -> Option<Movement<'_>> {
        let (transaction_id, direction, category, amount, balance_after, purpose, reference) = match event {
            WalletEvent::WalletOpened(_) => return None,
            WalletEvent::WalletFunded(e) => {
                (e.transaction_id, Direction::Credit, "FUNDING", e.amount, e.balance_after, None, Some(&*e.reference))
            }
            WalletEvent::WalletDebited(e) => (
                e.transaction_id,
                Direction::Debit,
                e.purpose.payment(),
                e.amount,
                e.balance_after,
                Some(e.purpose),
                Some(&*e.reference),
            ),
            WalletEvent::WalletRefunded(e) => (
                e.transaction_id,
                Direction::Credit,
                e.purpose.refund(),
                e.amount,
                e.balance_after,
                Some(e.purpose),
                Some(&*e.reference),
            ),
            WalletEvent::WalletAdjusted(e) => {
                (e.transaction_id, e.direction, "ADJUSTMENT", e.amount, e.balance_after, None, None)
            }
        };
        Some(Movement { transaction_id, direction, category, amount, balance_after, purpose, reference })
    }
}

crate::codec::stream_events! {
    /// Events of a wallet.
    WalletEvent {
        WalletOpened = 1,
        WalletFunded = 1,
        WalletDebited = 2,
        WalletRefunded = 2,
        WalletAdjusted = 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn at(version: i64) -> Moment {
        Moment { position: version, event_id: Uuid::nil(), version, recorded_at: DateTime::UNIX_EPOCH }
    }

    fn opened() -> Wallet {
        let event = WalletOpened { account_id: AccountId(7), currency: "EUR".parse().unwrap() }.into();
        evolve(None, WalletId(5), &event, &at(1)).unwrap()
    }

    fn command(kind: u8, amount: Money) -> WalletCommand {
        match kind {
            0 => WalletCommand::Fund { amount, reference: "f".into(), note_hash: None },
            1 => WalletCommand::Pay { amount, purpose: Purpose::Order(OrderId(1)), reference: "o".into() },
            2 => WalletCommand::Refund { amount, purpose: Purpose::Payout(PayoutId(1)), reference: "p".into() },
            3 => WalletCommand::Adjust { direction: Direction::Credit, amount, reason_hash: "h".into() },
            _ => WalletCommand::Adjust { direction: Direction::Debit, amount, reason_hash: "h".into() },
        }
    }

    #[test]
    fn a_wallet_pays_down_to_zero_and_refuses_an_overdraft() {
        let money = |text: &str| text.parse::<Money>().unwrap();
        let funded = decide(&opened(), TransactionId(1), command(0, money("10.00"))).unwrap();
        let wallet = evolve(Some(opened()), WalletId(5), &funded, &at(2)).unwrap();
        assert_eq!(decide(&wallet, TransactionId(2), command(1, money("10.01"))), Err(Rejection::InsufficientBalance));
        let paid = decide(&wallet, TransactionId(2), command(1, money("10.00"))).unwrap();
        assert_eq!(evolve(Some(wallet), WalletId(5), &paid, &at(3)).unwrap().balance, Money::ZERO);
    }

    #[test]
    fn an_unknown_direction_is_no_direction() {
        let both = [Direction::Credit, Direction::Debit];
        assert_eq!(both.map(|direction| Direction::parse(direction.as_str())), both.map(Some));
        assert_eq!(Direction::parse("debit"), None);
    }

    proptest! {
        /// No sequence of commands overdraws the wallet, and every balance is the sum of its movements.
        #[test]
        fn overdraft_is_impossible(steps in prop::collection::vec((0u8..5, 1i64..5_000), 0..60)) {
            let mut wallet = opened();
            let mut cents = 0i64;
            for (id, (kind, amount)) in (1..).zip(steps) {
                match decide(&wallet, TransactionId(id), command(kind, Money::from_cents(amount).unwrap())) {
                    Ok(event) => {
                        cents += if matches!(kind, 1 | 4) { -amount } else { amount };
                        let movement = Movement::of(&event).unwrap();
                        let balance_after = movement.balance_after;
                        wallet = evolve(Some(wallet), WalletId(5), &event, &at(id + 1)).unwrap();
                        prop_assert_eq!(wallet.balance, balance_after);
                    }
                    Err(rejection) => {
                        prop_assert_eq!(rejection, Rejection::InsufficientBalance);
                        prop_assert!(cents < amount);
                    }
                }
                prop_assert!(cents >= 0);
                prop_assert_eq!(wallet.balance, Money::from_cents(cents).unwrap());
            }
        }
    }
}
