//! The preview of a bulk order: problems by line, and totals by currency against the balances of wallets.

use std::collections::{BTreeMap, HashMap};

use ledger_events::{Money, price};
use maud::{Markup, html};

use super::lines::{Line, Problem};
use super::part::Part;
use crate::pages::form::Form;
use crate::pages::parts::table::{self, Column};
use crate::pages::parts::values::money;
use crate::pages::portal::overview::Wallet;
use crate::pages::portal::products::Product;

/// Largest number of bytes that the lines of the preview take on a page.
const MAX_BYTES: usize = 60_000;
const COLUMNS: [Column; 6] =
    [("Line", true), ("Product", false), ("Face value", true), ("Units", true), ("Amount", true), ("Your reference", false)];

/// Lines with their products and prices.
#[derive(Debug)]
pub struct Priced<'a> {
    lines: Vec<(&'a Line, &'a Product, Money)>,
    /// Totals by currency.
    totals: BTreeMap<&'a str, Money>,
}

/// Prices each line as the order would be priced now.
///
/// # Errors
/// The problems of the lines, in their order.
pub fn priced<'a>(lines: &'a [Line], products: &'a [Product]) -> Result<Priced<'a>, Vec<Problem>> {
    let products: HashMap<i64, &Product> = products.iter().map(|product| (product.id, product)).collect();
    let (mut found, mut problems, mut totals) = (vec![], vec![], BTreeMap::new());
    for (index, line) in lines.iter().enumerate() {
        match amount(line, products.get(&line.product_id).copied()) {
            Ok((product, amount)) => {
                let total: &mut Money = totals.entry(&*product.currency).or_insert(Money::ZERO);
                match total.checked_add(amount) {
                    Ok(sum) => *total = sum,
                    Err(_) => problems.push(Problem::of_line(index, "makes the total too large")),
                }
                found.push((line, product, amount));
            }
            Err(problem) => problems.push(Problem::of_line(index, problem)),
        }
    }
    if problems.is_empty() { Ok(Priced { lines: found, totals }) } else { Err(problems) }
}

fn amount<'a>(line: &Line, product: Option<&'a Product>) -> Result<(&'a Product, Money), String> {
    let product = product.ok_or_else(|| format!("product {} is not available", line.product_id))?;
    if !product.has(line.denomination) {
        return Err(format!("denomination of {} must be {} {}", product.name, product.face_values(), product.currency));
    }
    if line.quantity > product.max_quantity {
        return Err(format!("quantity of {} must be at most {}", product.name, product.max_quantity));
    }
    let price = price::price(line.denomination, line.quantity, product.discount);
    price.map(|price| (product, price.amount)).map_err(|_| "has too large an amount".to_owned())
}

impl Priced<'_> {
    /// Returns whether each total is covered by a wallet.
    pub fn is_covered(&self, wallets: &[Wallet]) -> bool {
        self.totals.iter().all(|(currency, total)| missing(currency, *total, wallets).is_none())
    }
}

/// Returns what a wallet lacks: the amount, or the wallet itself.
fn missing(currency: &str, total: Money, wallets: &[Wallet]) -> Option<Markup> {
    let Some(wallet) = wallets.iter().find(|wallet| wallet.currency == currency) else {
        return Some(html! { span.badge.bad { "You have no wallet in " (currency) } });
    };
    let balance: Money = wallet.balance.parse().unwrap_or(Money::ZERO);
    let lack = total.checked_sub(balance).ok().filter(|lack| lack.is_positive())?;
    Some(html! { span.badge.bad { "Missing: " (money(&lack.to_string(), currency)) } })
}

/// Renders totals and a part of the lines.
pub fn render(priced: &Priced<'_>, wallets: &[Wallet], part: &Part) -> Markup {
    let columns =
        [("Currency", false), ("Orders", true), ("Total", true), ("Wallet", false), ("Balance", true), ("Covered", false)];
    let total = |(currency, total): (&&str, &Money)| {
        let wallet = wallets.iter().find(|wallet| wallet.currency == **currency);
        vec![
            html! { (currency) },
            html! { (priced.lines.iter().filter(|(_, product, _)| product.currency == **currency).count()) },
            money(&total.to_string(), currency),
            html! { @if let Some(wallet) = wallet { a href={ "/portal/wallets/" (wallet.id) } { "Wallet " (wallet.id) } } @else { "–" } },
            html! {
                @match wallet {
                    Some(wallet) => a href={ "/portal/wallets/" (wallet.id) } { (money(&wallet.balance, currency)) },
                    None => "–",
                }
            },
            missing(currency, *total, wallets).unwrap_or_else(|| html! { span.badge.good { "Yes" } }),
        ]
    };
    html! {
        h2 { "Totals" }
        (table::table("Totals by currency", &columns, &priced.totals.iter().map(total).collect::<Vec<_>>()))
        h2 { "Orders" }
        (part.table("Orders to place", &COLUMNS))
    }
}

/// Returns the lines of the part that a form asks for.
pub fn part(priced: &Priced<'_>, form: &Form) -> Part {
    Part::of(form, &priced.lines, MAX_BYTES, |place, (line, product, amount)| {
        vec![
            html! { (place + 1) },
            html! { (product.name) },
            money(&line.denomination.to_string(), &product.currency),
            html! { (line.quantity) },
            money(&amount.to_string(), &product.currency),
            html! { (line.reference.as_deref().unwrap_or("–")) },
        ]
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn product(id: i64, currency: &str) -> Product {
        let fields = json!({
            "id": id, "name": "<b>Card</b>", "brand": "Acme", "country": "DE", "currency": currency, "denominations": ["10.00"],
            "min_denomination": null, "max_denomination": null, "discount": "2.50", "max_quantity": 5, "image_url": null,
            "description": "", "terms": ""
        });
        serde_json::from_value(fields).unwrap()
    }

    fn line(product_id: i64, denomination: &str, quantity: i32) -> Line {
        Line { product_id, denomination: denomination.parse().unwrap(), quantity, reference: None }
    }

    #[test]
    fn totals_are_by_currency() {
        let (lines, products) = ([line(1, "10", 2), line(2, "10", 1), line(1, "10", 1)], [product(1, "EUR"), product(2, "USD")]);
        let priced = priced(&lines, &products).unwrap();
        let totals: Vec<String> = priced.totals.iter().map(|(currency, total)| format!("{total} {currency}")).collect();
        assert_eq!(totals, ["29.25 EUR", "9.75 USD"]);
        let wallet = |balance: &str| Wallet { id: 3, currency: "EUR".to_owned(), balance: balance.to_owned() };
        let markup = render(&priced, &[wallet("20.00")], &part(&priced, &Form::default())).0;
        assert!(markup.contains("9.25") && markup.contains("You have no wallet in USD") && !markup.contains("<b>"), "{markup}");
        let rich = Wallet { id: 4, currency: "USD".to_owned(), balance: "9.75".to_owned() };
        assert!(priced.is_covered(&[wallet("29.25"), rich]) && !priced.is_covered(&[wallet("29.25")]));
    }

    #[test]
    fn the_preview_of_the_longest_texts_is_small() {
        let mut quotes = product(1, "EUR");
        quotes.name = "\"".repeat(200);
        let lines: Vec<Line> = (0..1_000).map(|_| Line { reference: Some("\"".repeat(100)), ..line(1, "10", 1) }).collect();
        let products = [quotes];
        let priced = priced(&lines, &products).unwrap();
        let part = part(&priced, &Form::default());
        let markup = render(&priced, &[], &part).0;
        assert!(markup.len() < 70_000 && markup.contains(" of 1000."), "{}", markup.len());
        assert!(part.buttons("/").0.contains("Next lines"));
    }

    #[test]
    fn lines_that_cannot_be_ordered_are_named() {
        let (lines, products) = ([line(1, "20", 1), line(1, "10", 6), line(9, "10", 1), line(1, "10", 1)], [product(1, "EUR")]);
        let problems = priced(&lines, &products).unwrap_err();
        let named: Vec<_> = problems.iter().map(|problem| (problem.line, problem.text.as_str())).collect();
        assert_eq!(
            named,
            [
                (Some(1), "denomination of <b>Card</b> must be 10.00 EUR"),
                (Some(2), "quantity of <b>Card</b> must be at most 5"),
                (Some(3), "product 9 is not available"),
            ]
        );
    }
}
