//! Reader for ISO 20022 camt.053 bank-to-customer statements, versions 001.02 and later. The elements that it reads have
//! had the same names and places in all versions. It ignores namespaces.

use chrono::NaiveDate;
use rust_decimal::Decimal;

use crate::amount;
use crate::lines::{self, BankLine, Direction, IsCurrency, LineError};
use crate::xml::{Element, XmlError, each};

/// Path from the document's root to a statement, and the parts of a statement that are read: its account and its
/// bookings.
const STATEMENT: [&str; 3] = ["Document", "BkToCstmrStmt", "Stmt"];
const PARTS: [&str; 2] = ["Acct", "Ntry"];
/// Placeholder that banks write when nobody gave a reference.
const NOT_PROVIDED: &str = "NOTPROVIDED";

/// Parses a document into its booked lines, one for each payment of a batch. Skips pending and informational entries.
///
/// # Errors
/// See [`LineError`].
pub fn lines(text: &str, is_currency: IsCurrency) -> Result<Vec<BankLine>, LineError> {
    let (mut lines, mut entries) = (vec![], 0);
    // The account precedes the bookings. A statement without an account must not inherit the account of the previous one.
    let mut account_of = (0, None);
    let is_statement = each(text.trim_start_matches('\u{feff}'), &STATEMENT, &PARTS, |statement, part| {
        if part.name == "Acct" {
            account_of = (statement, account(&part));
            return Ok(());
        }
        entries += 1;
        let of_entry = of_entry(&part, is_currency).map_err(|problem| LineError::Row { row: entries, problem })?;
        let account = if account_of.0 == statement { account_of.1.clone() } else { None };
        lines.extend(of_entry.into_iter().map(|line| BankLine { account: account.clone(), ..line }));
        lines::bounded(&lines)
    })?;
    if !is_statement {
        return Err(LineError::File("is not a camt.053 document: BkToCstmrStmt with Stmt is missing"));
    }
    lines::numbered(lines)
}

impl From<XmlError> for LineError {
    fn from(error: XmlError) -> LineError {
        LineError::Xml(error)
    }
}

/// Returns an account's IBAN, or its other identification.
fn account(element: &Element) -> Option<String> {
    let id = element.text_at(&["Id", "IBAN"]).or_else(|| element.text_at(&["Id", "Othr", "Id"]));
    id.and_then(lines::account)
}

fn of_entry(entry: &Element, is_currency: IsCurrency) -> Result<Vec<BankLine>, &'static str> {
    // The status is a text up to version 001.07, and a code inside the element in later versions.
    let status = entry.text_at(&["Sts", "Cd"]).or_else(|| entry.text_at(&["Sts"]));
    if status.is_some_and(|status| status != "BOOK") {
        return Ok(vec![]);
    }
    let (amount, currency) = money(entry.at(&["Amt"]).ok_or("has no Amt")?, is_currency)?;
    if amount.is_zero() {
        return Ok(vec![]);
    }
    let direction = direction(entry)?.ok_or("has no CdtDbtInd")?;
    let booked_on = day(entry, "BookgDt").or_else(|| day(entry, "ValDt")).ok_or("has no BookgDt and no ValDt")?;
    let is_reversal = matches!(entry.text_at(&["RvslInd"]), Some("true" | "1"));
    let whole = BankLine {
        number: 0,
        booked_on,
        amount,
        currency,
        direction,
        is_reversal,
        references: references(entry, &["AcctSvcrRef"]),
        text: entry.text_at(&["AddtlNtryInf"]).map(str::to_owned),
        account: None,
    };
    let details: Vec<&Element> = entry.all("NtryDtls").flat_map(|details| details.all("TxDtls")).collect();
    let parts = details.iter().map(|details| part(details, &whole, is_currency)).collect::<Result<Vec<_>, _>>()?;
    if let [(only, _)] = &*parts {
        // A single payment: the booked amount is the entry's.
        return Ok(vec![BankLine { amount, ..only.clone() }]);
    }
    if parts.is_empty() || parts.iter().any(|(_, has_amount)| !has_amount) {
        // Not every payment has an amount: the whole entry becomes one line with every reference in it.
        let references = whole.references.iter().cloned().chain(parts.into_iter().flat_map(|(part, _)| part.references));
        return Ok(vec![BankLine { references: distinct(references), ..whole }]);
    }
    let signed = |line: &BankLine| if line.direction == direction { line.amount } else { -line.amount };
    if parts.iter().map(|(part, _)| signed(part)).sum::<Decimal>() != amount {
        return Err("has payments that do not add up to its Amt");
    }
    Ok(parts.into_iter().map(|(part, _)| part).filter(|part| !part.amount.is_zero()).collect())
}

/// Reads one payment of an entry. The flag tells whether it states its own amount.
fn part(details: &Element, whole: &BankLine, is_currency: IsCurrency) -> Result<(BankLine, bool), &'static str> {
    let said = details.at(&["Amt"]).or_else(|| details.at(&["AmtDtls", "TxAmt", "Amt"]));
    let said = said
        .map(|said| money(said, is_currency))
        .transpose()?
        .filter(|(_, currency)| *currency == whole.currency)
        .map(|(amount, _)| amount);
    let mut found = references(details, &[]);
    if let Some(refs) = details.at(&["Refs"]) {
        found.extend(references(refs, &["EndToEndId", "TxId", "InstrId", "AcctSvcrRef", "UETR", "PmtInfId", "ClrSysRef"]));
    }
    let remittance = details.at(&["RmtInf"]);
    let structured = remittance.into_iter().flat_map(|remittance| remittance.all("Strd"));
    found.extend(structured.filter_map(|strd| strd.text_at(&["CdtrRefInf", "Ref"])).map(str::to_owned));
    let unstructured = remittance.into_iter().flat_map(|remittance| remittance.all("Ustrd")).map(|text| text.text.as_str());
    let text: Vec<&str> = unstructured.chain(details.text_at(&["AddtlTxInf"])).filter(|text| !text.is_empty()).collect();
    let line = BankLine {
        amount: said.unwrap_or(whole.amount),
        direction: direction(details)?.unwrap_or(whole.direction),
        references: distinct(found.into_iter().chain(whole.references.iter().cloned())),
        text: if text.is_empty() { whole.text.clone() } else { Some(text.join(" ")) },
        ..whole.clone()
    };
    Ok((line, said.is_some()))
}

fn references(element: &Element, names: &[&str]) -> Vec<String> {
    let texts = names.iter().filter_map(|name| element.text_at(&[name]));
    texts.filter(|text| *text != NOT_PROVIDED).map(str::to_owned).collect()
}

/// Removes duplicates, keeping the order.
fn distinct(references: impl Iterator<Item = String>) -> Vec<String> {
    let mut distinct: Vec<String> = vec![];
    for reference in references {
        if !distinct.contains(&reference) {
            distinct.push(reference);
        }
    }
    distinct
}

fn money(element: &Element, is_currency: IsCurrency) -> Result<(Decimal, String), &'static str> {
    let currency = element.currency.as_deref().ok_or("has an Amt without its Ccy")?;
    let currency = lines::currency(currency, is_currency)?;
    let amount = amount::parse(&element.text).ok_or("has an Amt that is not an amount of at most two decimals")?;
    if amount < Decimal::ZERO { Err("has an Amt below zero") } else { Ok((amount, currency)) }
}

fn direction(element: &Element) -> Result<Option<Direction>, &'static str> {
    match element.text_at(&["CdtDbtInd"]) {
        Some("CRDT") => Ok(Some(Direction::Credit)),
        Some("DBIT") => Ok(Some(Direction::Debit)),
        Some(_) => Err("has a CdtDbtInd other than CRDT and DBIT"),
        None => Ok(None),
    }
}

fn day(element: &Element, name: &str) -> Option<NaiveDate> {
    let text = element.text_at(&[name, "Dt"]).or_else(|| element.text_at(&[name, "DtTm"]))?;
    text.get(..10)?.parse().ok()
}

#[cfg(test)]
mod tests;
