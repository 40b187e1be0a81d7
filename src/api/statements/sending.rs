//! Streaming of a statement, page by page, as JSON or CSV.

use std::io;

use chrono::{DateTime, SecondsFormat, Utc};
use futures::stream::try_unfold;
use ledger_database::PgPool;
use ledger_events::wallet::{Direction, Wallet};
use ledger_events::{Money as Amount, MoneyError};
use ledger_projections::totals::Sums;
use ledger_projections::wallets;
use poem::http::header;
use poem::web::Accept;
use poem::{Body, IntoResponse, Response};
use serde::Serialize;

use super::Period;
use crate::api::error::{ApiError, JSON};
use crate::api::scalars::{Money, Timestamp};
use crate::api::transactions::{Transaction, description};
use crate::ledger::reader::ReadError;
use crate::ledger::statement::WalletStatement;
use crate::spreadsheet::{self, inert};

/// First part of a statement's JSON, sent without its closing brace.
#[derive(Serialize)]
struct Head<'a> {
    #[serde(flatten)]
    of: Option<Of>,
    wallet_id: i64,
    currency: &'a str,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    opening_balance: Money,
}

/// Fields that only operators receive.
#[derive(Clone, Copy, Debug, Serialize)]
pub(in crate::api) struct Of {
    pub account_id: i64,
    /// `None` for the current state.
    pub as_of_position: Option<i64>,
}

/// Last part of a statement's JSON, sent without its opening brace.
#[derive(Serialize)]
struct Tail {
    total_credits: Money,
    total_debits: Money,
    total_refunds: Money,
    closing_balance: Money,
}

/// Sums of the transactions read so far.
#[derive(Clone, Copy, Debug)]
struct Totals {
    opening: Amount,
    credits: Amount,
    debits: Amount,
    refunds: Amount,
    /// Balance after the latest transaction.
    closing: Amount,
}

impl Totals {
    fn beginning_at(opening: Amount) -> Self {
        Self { opening, credits: Amount::ZERO, debits: Amount::ZERO, refunds: Amount::ZERO, closing: opening }
    }

    /// Builds totals from sums that were computed earlier.
    fn of(opening: Amount, sums: &Sums, closing: Amount) -> Result<Self, MoneyError> {
        Ok(Self {
            opening,
            credits: (sums.funding + sums.adjustment_credits).try_into()?,
            debits: (sums.debits() + sums.adjustment_debits).try_into()?,
            refunds: sums.refunds().try_into()?,
            closing,
        })
    }

    fn add(&mut self, movement: &wallets::Transaction) -> Result<(), MoneyError> {
        let total = match (movement.direction, movement.category) {
            (Direction::Debit, _) => &mut self.debits,
            (_, "ORDER_REFUND" | "PAYOUT_REFUND") => &mut self.refunds,
            _ => &mut self.credits,
        };
        *total = total.checked_add(movement.amount)?;
        self.closing = movement.balance_after;
        Ok(())
    }

    /// Returns whether the sums lead from the opening balance to the closing balance.
    fn add_up(&self) -> bool {
        let Self { opening, credits, debits, refunds, closing } = *self;
        let sum = opening.checked_add(credits).and_then(|sum| sum.checked_add(refunds)).and_then(|sum| sum.checked_sub(debits));
        sum == Ok(closing)
    }
}

/// Format of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::api) enum Form {
    Json,
    Csv,
}

impl Form {
    /// Returns the first format in `Accept` that is supported, or JSON if there is none.
    pub(in crate::api) fn wanted(accept: &Accept) -> Self {
        Self::first(accept).unwrap_or(Self::Json)
    }

    /// Returns the first format in `Accept` that is supported.
    pub(in crate::api) fn first(accept: &Accept) -> Option<Self> {
        accept.0.iter().find_map(|wish| match (wish.type_().as_str(), wish.subtype().as_str()) {
            _ if wish.get_param("q").is_some_and(|q| q.as_str().parse() == Ok(0.0_f32)) => None,
            ("text", "csv" | "*") => Some(Self::Csv),
            ("*" | "application", "*" | "json") => Some(Self::Json),
            _ => None,
        })
    }
}

/// A statement that is being sent.
#[derive(Debug)]
pub(in crate::api) struct Sending {
    form: Form,
    pool: PgPool,
    of: Option<Of>,
    movements: WalletStatement,
    from: Option<DateTime<Utc>>,
    to: Option<DateTime<Utc>>,
    totals: Totals,
    next: Part,
    is_first: bool,
    /// Whether the transactions are left out. The sums are then already known.
    is_totals_only: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Head,
    Movements,
    End,
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Csv(#[from] csv::Error),
    #[error(transparent)]
    Money(#[from] MoneyError),
    #[error("the movements of wallet {0} do not add up to its balance")]
    DoesNotAddUp(i64),
}

impl Sending {
    /// Starts a statement in the format that the caller accepts.
    pub(in crate::api) fn new(
        accept: &Accept,
        pool: &PgPool,
        movements: WalletStatement,
        (from, to): Period,
        of: Option<Of>,
    ) -> Self {
        let (form, totals) = (Form::wanted(accept), Totals::beginning_at(movements.opening));
        Self {
            form,
            pool: pool.clone(),
            of,
            movements,
            from,
            to,
            totals,
            next: Part::Head,
            is_first: true,
            is_totals_only: false,
        }
    }

    /// Leaves out the transactions. The sums come from daily totals, without reading each transaction.
    pub(in crate::api) async fn totals_only(mut self) -> Result<Self, ApiError> {
        let (sums, closing) = self.movements.totals(&self.pool).await?;
        self.totals = Totals::of(self.movements.opening, &sums, closing).map_err(ApiError::internal)?;
        if !self.totals.add_up() {
            return Err(ApiError::internal(SendError::DoesNotAddUp(self.movements.wallet.id.0)));
        }
        self.is_totals_only = true;
        Ok(self)
    }

    /// Returns the next part of the body, or `None` after the last one.
    async fn next(mut self) -> Result<Option<(Vec<u8>, Self)>, SendError> {
        let mut part = Vec::new();
        match self.next {
            Part::Head => {
                self.head(&mut part)?;
                self.next = Part::Movements;
                if self.is_totals_only {
                    self.tail(&mut part)?;
                    self.next = Part::End;
                }
            }
            Part::Movements => {
                let page = self.movements.next_page(&self.pool).await?;
                if page.is_empty() {
                    if !self.totals.add_up() {
                        return Err(SendError::DoesNotAddUp(self.movements.wallet.id.0));
                    }
                    self.tail(&mut part)?;
                    self.next = Part::End;
                }
                self.write(page, &mut part)?;
            }
            Part::End => return Ok(None),
        }
        Ok(Some((part, self)))
    }

    fn head(&self, out: &mut Vec<u8>) -> Result<(), SendError> {
        let (wallet, opening) = (&self.movements.wallet, self.movements.opening);
        match self.form {
            Form::Json => {
                out.extend_from_slice(br#"{"success":true,"data":"#);
                let (from, to) = (self.from.map(Into::into), self.to.map(Into::into));
                let currency = wallet.currency.as_str();
                let head = Head { of: self.of, wallet_id: wallet.id.0, currency, from, to, opening_balance: opening.into() };
                serde_json::to_writer(&mut *out, &head)?;
                out.pop();
                out.extend_from_slice(br#","transactions":["#);
            }
            Form::Csv => spreadsheet::rows(&mut *out, |csv| {
                csv.write_record(COLUMNS)?;
                csv.write_record(total("OPENING_BALANCE", None, Some(opening), wallet))
            })?,
        }
        Ok(())
    }

    fn write(&mut self, page: Vec<wallets::Transaction>, out: &mut Vec<u8>) -> Result<(), SendError> {
        for movement in &page {
            self.totals.add(movement)?;
        }
        match self.form {
            Form::Json => {
                for movement in page {
                    if !self.is_first {
                        out.push(b',');
                    }
                    self.is_first = false;
                    serde_json::to_writer(&mut *out, &Transaction::from(movement))?;
                }
            }
            Form::Csv => spreadsheet::rows(&mut *out, |csv| {
                page.into_iter().try_for_each(|movement| csv.write_record(row(movement).iter().map(|cell| cell.as_bytes())))
            })?,
        }
        Ok(())
    }

    fn tail(&self, out: &mut Vec<u8>) -> Result<(), SendError> {
        let Totals { credits, debits, refunds, closing, .. } = self.totals;
        match self.form {
            Form::Json => {
                out.extend_from_slice(b"],");
                let at = out.len();
                let tail = Tail {
                    total_credits: credits.into(),
                    total_debits: debits.into(),
                    total_refunds: refunds.into(),
                    closing_balance: closing.into(),
                };
                serde_json::to_writer(&mut *out, &tail)?;
                out.remove(at);
                out.push(b'}');
            }
            Form::Csv => spreadsheet::rows(&mut *out, |csv| {
                let wallet = &self.movements.wallet;
                csv.write_record(total("TOTAL_CREDITS", Some(credits), None, wallet))?;
                csv.write_record(total("TOTAL_DEBITS", Some(debits), None, wallet))?;
                csv.write_record(total("TOTAL_REFUNDS", Some(refunds), None, wallet))?;
                csv.write_record(total("CLOSING_BALANCE", None, Some(closing), wallet))
            })?,
        }
        Ok(())
    }
}

/// Columns of the CSV. `record` is `MOVEMENT`, or the name of a balance or sum.
const COLUMNS: [&str; 11] = [
    "record",
    "id",
    "created_at",
    "type",
    "category",
    "amount",
    "balance_after",
    "currency",
    "order_id",
    "reference",
    "description",
];

fn row(movement: wallets::Transaction) -> [String; 11] {
    let description = description(&movement);
    let text = |text: &str| inert(text).into_owned();
    [
        "MOVEMENT".to_owned(),
        movement.id.to_string(),
        movement.created_at.to_rfc3339_opts(SecondsFormat::Millis, true),
        movement.direction.as_str().to_owned(),
        movement.category.to_owned(),
        movement.amount.to_string(),
        movement.balance_after.to_string(),
        movement.currency.to_string(),
        movement.order_id.map(|id| id.to_string()).unwrap_or_default(),
        text(movement.reference.as_deref().unwrap_or_default()),
        text(&description),
    ]
}

fn total(record: &str, amount: Option<Amount>, balance: Option<Amount>, wallet: &Wallet) -> [String; 11] {
    let shown = |amount: Option<Amount>| amount.map(|amount| amount.to_string()).unwrap_or_default();
    let empty = String::new;
    let currency = wallet.currency.to_string();
    [record.to_owned(), empty(), empty(), empty(), empty(), shown(amount), shown(balance), currency, empty(), empty(), empty()]
}

impl IntoResponse for Sending {
    fn into_response(self) -> Response {
        let response = Response::builder();
        let response = match self.form {
            Form::Json => response.content_type(JSON),
            Form::Csv => {
                let name = format!("attachment; filename=\"statement-{}.csv\"", self.movements.wallet.id);
                response.content_type("text/csv; charset=utf-8; header=present").header(header::CONTENT_DISPOSITION, name)
            }
        };
        let wallet_id = self.movements.wallet.id;
        let parts = try_unfold(self, move |sending| async move {
            sending.next().await.map_err(|error| {
                // The status line is already sent, so an aborted body is the only way to report the error.
                tracing::error!(wallet_id = wallet_id.0, %error, "statement aborted");
                io::Error::other("the statement was aborted")
            })
        });
        // `Accept` selects between the two formats.
        response.header(header::VARY, "Accept").body(Body::from_bytes_stream(parts))
    }
}

#[cfg(test)]
mod tests {
    use poem::FromRequest;

    use super::*;

    #[tokio::test]
    async fn the_first_supported_format_is_used() {
        for (accept, form) in [
            ("", Form::Json),
            ("text/csv", Form::Csv),
            ("text/csv; charset=utf-8", Form::Csv),
            ("application/json, text/csv;q=0.5", Form::Json),
            ("application/json;q=0.4, text/csv;q=0.5", Form::Csv),
            ("text/csv;q=0", Form::Json),
            ("text/*", Form::Csv),
            ("*/*", Form::Json),
            ("image/png", Form::Json),
        ] {
            let request = poem::Request::builder().header("Accept", accept).finish();
            let wishes = Accept::from_request_without_body(&request).await.unwrap();
            assert_eq!(Form::wanted(&wishes), form, "{accept}");
        }
    }
}
