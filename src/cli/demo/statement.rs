//! The wallet's statement, computed from its movements and checked against its balance.

use anyhow::{Context, bail, ensure};
use ledger_events::Money;
use serde_json::{Value, json};

/// A wallet movement, as returned by the API.
#[derive(Clone, Debug, PartialEq)]
pub struct Movement {
    pub id: i64,
    /// `CREDIT` or `DEBIT`.
    pub direction: String,
    pub category: String,
    pub amount: Money,
    pub balance_after: Money,
    pub reference: String,
}

/// Statement of a wallet: opening + credits − debits + refunds = closing.
#[derive(Clone, Debug, PartialEq)]
pub struct DemoStatement {
    pub wallet_id: i64,
    pub currency: String,
    pub opening_balance: Money,
    pub total_credits: Money,
    pub total_debits: Money,
    pub total_refunds: Money,
    pub closing_balance: Money,
    /// Balance that the API reports for the wallet.
    pub wallet_balance: Money,
    /// Oldest first.
    pub movements: Vec<Movement>,
}

impl DemoStatement {
    /// Computes the statement over all movements of a wallet, from the API's responses.
    pub fn of(wallet: &Value, transactions: &[Value]) -> anyhow::Result<DemoStatement> {
        let mut movements = transactions.iter().map(Movement::read).collect::<anyhow::Result<Vec<_>>>()?;
        movements.sort_by_key(|movement| movement.id);
        let opening_balance = Money::ZERO;
        let (mut credits, mut debits, mut refunds) = (Money::ZERO, Money::ZERO, Money::ZERO);
        for movement in &movements {
            let total = match (movement.direction.as_str(), movement.category.as_str()) {
                ("CREDIT", "ORDER_REFUND" | "PAYOUT_REFUND") => &mut refunds,
                ("CREDIT", _) => &mut credits,
                ("DEBIT", _) => &mut debits,
                (other, _) => bail!("movement {} has the unknown type {other}", movement.id),
            };
            *total = total.checked_add(movement.amount)?;
        }
        let closing_balance = opening_balance.checked_add(credits)?.checked_sub(debits)?.checked_add(refunds)?;
        Ok(DemoStatement {
            wallet_id: wallet["id"].as_i64().context("the wallet has no id")?,
            currency: wallet["currency"].as_str().unwrap_or_default().to_owned(),
            opening_balance,
            total_credits: credits,
            total_debits: debits,
            total_refunds: refunds,
            closing_balance,
            wallet_balance: money(wallet, "balance")?,
            movements,
        })
    }

    /// Checks to the cent that each movement follows from the one before it, and that all together make the balance.
    pub fn check(&self) -> anyhow::Result<()> {
        let mut balance = self.opening_balance;
        for movement in &self.movements {
            balance = match movement.direction.as_str() {
                "CREDIT" => balance.checked_add(movement.amount)?,
                _ => balance.checked_sub(movement.amount)?,
            };
            let (id, after) = (movement.id, movement.balance_after);
            ensure!(
                balance == after,
                "not reconciled: after movement {id} the balance is {balance}, but the API reports {after}"
            );
        }
        let (closing, wallet) = (self.closing_balance, self.wallet_balance);
        ensure!(balance == closing, "not reconciled: the movements add up to {balance}, the totals to {closing}");
        ensure!(closing == wallet, "not reconciled: the closing balance is {closing}, but the wallet has {wallet}");
        Ok(())
    }

    pub fn as_json(&self) -> Value {
        let movements = self.movements.iter().map(|row| {
            json!({"id": row.id, "type": row.direction, "category": row.category, "amount": row.amount,
                   "balance_after": row.balance_after, "reference": row.reference})
        });
        json!({
            "kind": "statement", "wallet_id": self.wallet_id, "currency": self.currency,
            "opening_balance": self.opening_balance, "total_credits": self.total_credits, "total_debits": self.total_debits,
            "total_refunds": self.total_refunds, "closing_balance": self.closing_balance, "balance": self.wallet_balance,
            "is_reconciled": self.check().is_ok(), "movements": movements.collect::<Vec<_>>(),
        })
    }
}

impl Movement {
    fn read(row: &Value) -> anyhow::Result<Movement> {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        Ok(Movement {
            id: row["id"].as_i64().context("a movement has no id")?,
            direction: text("type"),
            category: text("category"),
            amount: money(row, "amount")?,
            balance_after: money(row, "balance_after")?,
            reference: text("reference"),
        })
    }
}

fn money(row: &Value, name: &str) -> anyhow::Result<Money> {
    let text = row[name].as_str().with_context(|| format!("{name} is not an amount"))?;
    text.parse().with_context(|| format!("{name} is not an amount"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn row(id: i64, kind: &str, category: &str, amount: &str, after: &str) -> Value {
        json!({"id": id, "type": kind, "category": category, "amount": amount, "balance_after": after, "reference": "r"})
    }

    fn statement(last_after: &str, balance: &str) -> DemoStatement {
        let rows = [
            row(3, "CREDIT", "ORDER_REFUND", "97.50", last_after),
            row(2, "DEBIT", "ORDER", "97.50", "402.50"),
            row(1, "CREDIT", "FUNDING", "500.00", "500.00"),
        ];
        DemoStatement::of(&json!({"id": 7, "currency": "USD", "balance": balance}), &rows).unwrap()
    }

    #[test]
    fn a_statement_adds_up_to_the_balance() {
        let statement = statement("500.00", "500.00");
        statement.check().unwrap();
        assert_eq!(statement.total_refunds.to_string(), "97.50");
        assert_eq!(statement.as_json()["closing_balance"], "500.00");
    }

    #[test]
    fn a_difference_of_one_cent_is_reported() {
        assert!(
            statement("500.00", "500.01")
                .check()
                .unwrap_err()
                .to_string()
                .contains("the closing balance is 500.00, but the wallet has 500.01")
        );
        assert!(
            statement("499.99", "500.00").check().unwrap_err().to_string().contains("after movement 3 the balance is 500.00")
        );
    }
}
