//! The list of orders: with its filters, and as CSV.

use std::{future, io};

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use futures::{StreamExt, stream};
use maud::{Markup, html};
use poem::{Body, Response};

use crate::pages::call::{List, Refusal};
use crate::pages::form::Form;
use crate::pages::outcome::{PageResult, file};
use crate::pages::parts::fields::Filled;
use crate::pages::parts::period::{PERIOD, day_fields, filters, period, rfc3339};
use crate::pages::parts::values::{badge, money, time, words};
use crate::pages::parts::{layout, table};
use crate::pages::shared::order::{Order, STATUSES};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};
use crate::spreadsheet::{self, inert};

/// Filters of the list that are those of the API.
const FILTERS: [&str; 4] = ["status", "product_id", "reference_code", "client_reference"];
/// Largest number of orders in a call for a CSV.
const IN_CALL: usize = 100;
const COLUMNS: [&str; 14] = [
    "id",
    "reference_code",
    "client_reference",
    "status",
    "product_id",
    "product_name",
    "currency",
    "denomination",
    "quantity",
    "discount",
    "amount",
    "refunded_amount",
    "delivered_quantity",
    "created_at",
];

pub fn add(site: Site) -> Site {
    site.get("/portal/orders", list).get("/portal/orders.csv", download)
}

async fn list(visit: Visit) -> PageResult {
    visit.user()?;
    let filters = match filters(&visit.query, &FILTERS) {
        Ok(filters) => filters,
        Err(refusal) => return corrected(refusal, |refusal| layout::refused(page(&visit, None, Some(refusal)), refusal)),
    };
    let number = visit.query.only(&["page"]);
    match visit.list::<Order>(&format!("/api/v1/orders?{filters}&{number}"), "orders").await {
        Ok(orders) => Ok(page(&visit, Some(&orders), None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, None, Some(refusal)), refusal)),
    }
}

fn page(visit: &Visit, orders: Option<&List<Order>>, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form: &visit.query, refusal };
    let statuses: Vec<(&str, String)> =
        std::iter::once(("", "Any".to_owned())).chain(STATUSES.map(|status| (status, words(status)))).collect();
    let kept = visit.query.only(&[&FILTERS[..], &PERIOD[..]].concat());
    let is_whole = visit.query.only(&[&FILTERS[..], &["from", "to"][..]].concat()).is_empty();
    let body = html! {
        (layout::live(visit))
        (layout::problem(refusal))
        p.actions {
            a.button href="/portal/products" { "Order" }
            a.button.plain href="/portal/orders/bulk" { "Order many at once" }
        }
        (table::filters("/portal/orders", &html! {
            (fields.select("status", "Status", &statuses, ""))
            (fields.input("reference_code", "Reference", "search", ""))
            (fields.input("client_reference", "Your reference", "search", ""))
            (fields.input("product_id", "Product number", "search", ""))
            (day_fields(&fields))
        }))
        @if let Some(orders) = orders {
            @if orders.items.is_empty() { (nothing(is_whole)) }
            @else {
                (rows("Orders", &orders.items))
                (table::pager(orders, "/portal/orders", &visit.query))
                p { a href={ "/portal/orders.csv?" (kept) } { "Download as CSV" } " " span.quiet { "All orders of this list." } }
            }
        }
    };
    layout::page(visit, "Orders", &body)
}

fn nothing(is_whole_list: bool) -> Markup {
    match is_whole_list {
        true => table::empty("You have not ordered anything yet.", Some(("/portal/products", "Browse the catalogue"))),
        false => table::empty("No order matches these filters.", Some(("/portal/orders", "Show all orders"))),
    }
}

/// A table of orders. Each one leads to its page.
pub fn rows(caption: &str, orders: &[Order]) -> Markup {
    let columns = [("Order", false), ("Placed", false), ("Product", false), ("Units", true), ("Amount", true), ("Status", false)];
    let row = |order: &Order| {
        vec![
            html! { a href={ "/portal/orders/" (order.id) } { (order.reference_code) } },
            time(order.created_at),
            html! { (order.product_name) },
            html! { a href={ "/portal/orders/" (order.id) "#story" } { (order.quantity) } },
            html! { a href={ "/portal/transactions/" (order.transaction_id) } { (money(&order.amount, &order.currency)) } },
            badge(&order.status),
        ]
    };
    table::table(caption, &columns, &orders.iter().map(row).collect::<Vec<_>>())
}

/// Part of a list that a call reads for a CSV: a page of the orders that were placed before a time. With page numbers alone, a
/// part would skip orders when others leave the list meanwhile, such as that of pending ones.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    before: Option<DateTime<Utc>>,
    page: u64,
    /// Orders that earlier parts had, of the last millisecond before the time. This part may have them again.
    had: Vec<i64>,
}

impl Part {
    /// Returns the address of the part of a filtered list.
    fn address(&self, query: &Form) -> Result<String, Refusal> {
        let [from, _] = period(query)?;
        let mut fields = url::form_urlencoded::Serializer::new(query.only(&FILTERS));
        for (name, at) in [("created_from", from), ("created_to", self.before)] {
            fields.extend_pairs(at.map(|at| (name, rfc3339(at))));
        }
        Ok(format!("/api/v1/orders?{}&limit={IN_CALL}&page={}", fields.finish(), self.page))
    }

    /// Removes the orders that earlier parts had, and returns the next part, if there is one.
    fn take(self, orders: &mut Vec<Order>) -> Option<Part> {
        let is_full = orders.len() == IN_CALL;
        let last = orders.last()?.created_at;
        orders.retain(|order| !self.had.contains(&order.id));
        let before = Some(last + TimeDelta::milliseconds(1));
        let of_last = orders.iter().filter(|order| order.created_at == last).map(|order| order.id);
        let next = match before == self.before {
            // More orders of one millisecond than fit into a call.
            true => Part { before, page: self.page + 1, had: self.had.into_iter().chain(of_last).collect() },
            false => Part { before, page: 1, had: of_last.collect() },
        };
        is_full.then_some(next)
    }
}

async fn read(visit: &Visit, part: &Part) -> Result<Vec<Order>, Refusal> {
    Ok(visit.list::<Order>(&part.address(&visit.query)?, "orders").await?.items)
}

/// Sends all orders of the filtered list as CSV, the newest first, call by call. A call that fails after the first one breaks the
/// download off, so that nobody takes the part for the whole.
async fn download(visit: Visit) -> PageResult {
    visit.user()?;
    let [_, before] = period(&visit.query)?;
    let part = Part { before, page: 1, had: vec![] };
    let mut orders = read(&visit, &part).await?;
    let next = part.take(&mut orders);
    let begin = future::ready(csv(&orders, true));
    let rest = stream::try_unfold((visit, next), |(visit, part)| async move {
        let Some(part) = part else { return Ok(None) };
        let mut orders = read(&visit, &part).await.map_err(|refusal| {
            tracing::warn!(code = refusal.code, "a download of orders broke off");
            io::Error::other(refusal.message)
        })?;
        let next = part.take(&mut orders);
        Ok(Some((csv(&orders, false)?, (visit, next))))
    });
    let body = Body::from_bytes_stream(stream::once(begin).chain(rest));
    Ok(file("orders.csv", "text/csv; charset=utf-8; header=present", body))
}

fn csv(orders: &[Order], is_first: bool) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    spreadsheet::rows(&mut text, |csv| {
        if is_first {
            csv.write_record(COLUMNS)?;
        }
        orders.iter().try_for_each(|order| {
            csv.write_record([
                &*order.id.to_string(),
                &*order.reference_code,
                &*inert(order.client_reference.as_deref().unwrap_or_default()),
                &*order.status,
                &*order.product_id.to_string(),
                &*inert(&order.product_name),
                &*order.currency,
                &*order.denomination,
                &*order.quantity.to_string(),
                &*order.discount,
                &*order.amount,
                &*order.refunded_amount,
                &*order.delivered_quantity.to_string(),
                &*order.created_at.to_rfc3339_opts(SecondsFormat::Millis, true),
            ])
        })
    })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::shared::order::tests::order;

    #[test]
    fn a_csv_has_no_formulas() {
        let text = String::from_utf8(csv(&[order(1)], true).unwrap()).unwrap();
        let row = text.lines().nth(1).unwrap();
        assert_eq!(row, "1,ORD-0000000001,'=1+1,PENDING,7,\"Card, blue\",EUR,10.00,3,0.00,30.00,0.00,1,2026-01-31T12:00:00.000Z");
        assert_eq!(csv(&[], false).unwrap(), b"");
    }

    /// Reads a list part by part, as the API returns it. Returns the ids of the orders in the CSV.
    fn taken(list: &[Order]) -> Vec<i64> {
        let (mut ids, mut part) = (vec![], Some(Part { before: None, page: 1, had: vec![] }));
        while let Some(now) = part {
            let fitting = list.iter().filter(|order| now.before.is_none_or(|before| order.created_at < before));
            let skipped = (usize::try_from(now.page).unwrap() - 1) * IN_CALL;
            let on_page = fitting.skip(skipped).take(IN_CALL);
            let mut orders: Vec<Order> = on_page.map(|one| Order { created_at: one.created_at, ..order(one.id) }).collect();
            part = now.take(&mut orders);
            ids.extend(orders.iter().map(|order| order.id));
        }
        ids
    }

    #[test]
    fn each_order_is_in_the_csv_once_however_many_were_placed_in_one_millisecond() {
        let start = order(0).created_at;
        for (count, in_one) in [(0, 1), (99, 1), (100, 1), (250, 1), (250, 3), (450, 150), (450, 1_000)] {
            let ids: Vec<i64> = (0..count).rev().collect();
            let at = |id: i64| start + TimeDelta::milliseconds(id / in_one);
            let list: Vec<Order> = ids.iter().map(|id| Order { created_at: at(*id), ..order(*id) }).collect();
            assert_eq!(taken(&list), ids, "{count} orders, {in_one} in a millisecond");
        }
    }

    #[test]
    fn a_part_is_read_with_the_filters_of_the_list() {
        let before = Some("2026-01-31T12:00:00.001Z".parse().unwrap());
        let part = Part { before, page: 2, had: vec![] };
        let address = part.address(&Form::parse(b"status=PENDING&from=2026-01-01&to=2026-01-31&page=7")).unwrap();
        let expected = "status=PENDING&created_from=2026-01-01T00%3A00%3A00Z&created_to=2026-01-31T12%3A00%3A00.001Z";
        assert_eq!(address, format!("/api/v1/orders?{expected}&limit=100&page=2"));
    }
}
