//! The wallets in the reconciliation: their balances and the sums of their movements, each with its list.

use chrono::NaiveDate;
use maud::{Markup, html};
use serde::Deserialize;

use crate::pages::form::{Form, address};
use crate::pages::parts::table;
use crate::pages::parts::values::money;

/// Sums of a wallet, as `GET /admin/v1/reconciliation` returns them.
#[derive(Debug, Deserialize)]
pub struct Wallet {
    shard_id: i16,
    account_id: Option<i64>,
    wallet_id: i64,
    currency: Option<String>,
    opening_balance: String,
    funding: String,
    order_debits: String,
    order_refunds: String,
    payout_debits: String,
    payout_refunds: String,
    adjustments: String,
    closing_balance: String,
}

const COLUMNS: [(&str, bool); 10] = [
    ("Wallet", false),
    ("Account", false),
    ("Opening", true),
    ("Funding", true),
    ("Orders", true),
    ("Order refunds", true),
    ("Payouts", true),
    ("Payout refunds", true),
    ("Adjustments", true),
    ("Closing", true),
];

/// Renders as many wallets as fit into this number of bytes. The API has left out `left_out` more. Each sum leads to its
/// movements in the period (`from` and `to` of the form), and each balance to all movements until then.
pub fn section(wallets: &[Wallet], left_out: u64, most: usize, form: &Form) -> Markup {
    let all = wallets.len() as u64 + left_out;
    let rows = table::fitting(wallets.iter().map(|wallet| row(wallet, form)), most);
    html! {
        (table::table("Totals by wallet", &COLUMNS, &rows))
        @if all > rows.len() as u64 {
            p.quiet { "The page shows " (rows.len()) " of " (all) " wallets. The totals include all of them. Name an account to see its wallets." }
        }
    }
}

/// Returns the only wallet in a currency.
pub fn only_one<'a>(wallets: &'a [Wallet], currency: &str) -> Option<&'a Wallet> {
    let mut wallets = wallets.iter().filter(|wallet| wallet.currency.as_deref() == Some(currency));
    wallets.next().filter(|_| wallets.next().is_none())
}

impl Wallet {
    /// Returns the address of the wallet's events of a type in a period, from its first to its last day.
    pub fn events(&self, kind: &str, (from, to): (&str, &str)) -> String {
        let (shard, subject) = (self.shard_id.to_string(), format!("wallet/{}", self.wallet_id));
        address("/console/audit", &[("type", kind), ("from", from), ("to", to), ("subject", &subject), ("shard_id", &shard)])
    }
}

fn row(wallet: &Wallet, form: &Form) -> Vec<Markup> {
    let (from, to) = (form.value("from"), form.value("to"));
    let day_before = from.parse::<NaiveDate>().ok().and_then(|day| day.pred_opt());
    let day_before = day_before.map(|day| day.to_string()).unwrap_or_default();
    let of_period = |amount: &str, category: &str| sum(wallet, amount, &[("category", category), ("from", from), ("to", to)]);
    vec![
        html! { a href={ "/console/wallets/" (wallet.wallet_id) "?" (form.only(&["from", "to"])) } { "Wallet " (wallet.wallet_id) } },
        html! { @if let Some(account) = wallet.account_id { a href={ "/console/accounts/" (account) } { "Account " (account) } } @else { "–" } },
        sum(wallet, &wallet.opening_balance, &[("to", &day_before)]),
        of_period(&wallet.funding, "FUNDING"),
        of_period(&wallet.order_debits, "ORDER"),
        of_period(&wallet.order_refunds, "ORDER_REFUND"),
        of_period(&wallet.payout_debits, "PAYOUT"),
        of_period(&wallet.payout_refunds, "PAYOUT_REFUND"),
        of_period(&wallet.adjustments, "ADJUSTMENT"),
        sum(wallet, &wallet.closing_balance, &[("to", to)]),
    ]
}

/// Renders a sum, which leads to the movements of the wallet that these filters select. A sum of zero may be one of several
/// movements, too.
fn sum(wallet: &Wallet, amount: &str, filters: &[(&str, &str)]) -> Markup {
    let shown = money(amount, wallet.currency.as_deref().unwrap_or_default());
    html! { a href=(address(&format!("/console/wallets/{}", wallet.wallet_id), filters)) { (shown) } }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_sum_leads_to_its_movements() {
        let wallet = json!({"shard_id": 1, "account_id": 2, "wallet_id": 3, "currency": "EUR", "opening_balance": "1.00", "funding": "9.00",
            "order_debits": "4.00", "order_refunds": "0.00", "payout_debits": "0.00", "payout_refunds": "0.00",
            "adjustments": "-1.00", "closing_balance": "5.00"});
        let wallet: Wallet = serde_json::from_value(wallet).unwrap();
        let page = section(&[wallet], 0, 10_000, &Form::parse(b"from=2026-01-01&to=2026-01-31&account_id=2")).0;
        let of_period = "from=2026-01-01&amp;to=2026-01-31";
        for (query, amount) in [
            ("to=2025-12-31".to_owned(), "1.00"),
            (format!("category=FUNDING&amp;{of_period}"), "9.00"),
            (format!("category=ORDER&amp;{of_period}"), "4.00"),
            (format!("category=PAYOUT&amp;{of_period}"), "0.00"),
            (format!("category=ADJUSTMENT&amp;{of_period}"), "−1.00"),
            ("to=2026-01-31".to_owned(), "5.00"),
        ] {
            let link = format!("<a href=\"/console/wallets/3?{query}\"><span class=\"money\">{amount} ");
            assert!(page.contains(&link), "{link}: {page}");
        }
    }

    #[test]
    fn the_only_wallet_in_a_currency_leads_to_its_events() {
        let wallet = |id: i64, currency: &str| -> Wallet {
            let wallet = json!({"shard_id": 2, "account_id": id, "wallet_id": id, "currency": currency, "opening_balance": "0.00",
                "funding": "0.00", "order_debits": "0.00", "order_refunds": "0.00", "payout_debits": "0.00",
                "payout_refunds": "0.00", "adjustments": "0.00", "closing_balance": "0.00"});
            serde_json::from_value(wallet).unwrap()
        };
        let wallets = [wallet(3, "USD"), wallet(4, "EUR"), wallet(5, "USD")];
        let period = ("", "2026-01-31");
        let found = ["EUR", "USD", "GBP"].map(|currency| Some(only_one(&wallets, currency)?.events("WalletFunded", period)));
        let events = "/console/audit?type=WalletFunded&to=2026-01-31&subject=wallet%2F4&shard_id=2";
        assert_eq!(found, [Some(events.to_owned()), None, None]);
    }
}
