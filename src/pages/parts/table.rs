//! Tables, pages of lists, and their empty states.

use maud::{Markup, html};

use super::super::call::List;
use super::super::form::Form;

/// Number of entries on a full page: the default of the API's lists.
const PAGE_SIZE: usize = 20;

/// Bytes around the content of a cell, about.
const CELL_BYTES: usize = 60;

/// A column: its heading, and whether its values are numbers, which are aligned at the right.
pub type Column = (&'static str, bool);

/// A table. It scrolls sideways on a narrow screen, by keyboard too. `caption` names it for screen readers.
pub fn table(caption: &str, columns: &[Column], rows: &[Vec<Markup>]) -> Markup {
    html! {
        div.table role="region" aria-label=(caption) tabindex="0" {
            table {
                caption.unseen { (caption) }
                thead { tr { @for (name, is_number) in columns { th scope="col" .number[*is_number] { (name) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (cell, (name, is_number)) in row.iter().zip(columns) {
                                td .number[*is_number] data-name=(name) { (cell) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the first rows that take at most this many bytes of a page together. A page stays under 200 kB, whatever its texts are.
pub fn fitting(rows: impl Iterator<Item = Vec<Markup>>, most: usize) -> Vec<Vec<Markup>> {
    let mut taken = 0;
    rows.take_while(|row| {
        taken += row.iter().map(|cell| cell.0.len() + CELL_BYTES).sum::<usize>();
        taken <= most
    })
    .collect()
}

/// A place where nothing is yet: the reason, and what to do first.
pub fn empty(text: &str, action: Option<(&str, &str)>) -> Markup {
    html! {
        div.empty {
            p { (text) }
            @if let Some((target, name)) = action { p { a.button href=(target) { (name) } } }
        }
    }
}

/// Returns the address of another page of a list, with the query's other fields.
pub fn page_link(path: &str, query: &Form, place: Option<(&str, &str)>) -> String {
    let kept = query.pairs().iter().filter(|(name, value)| !["page", "before", "done"].contains(&&**name) && !value.is_empty());
    let mut encoded = url::form_urlencoded::Serializer::new(String::new());
    encoded.extend_pairs(kept.map(|(name, value)| (name.as_str(), value.as_str())).chain(place));
    format!("{path}?{}", encoded.finish())
}

/// Links to the pages of a list, with the query's other fields.
pub fn pager<T>(list: &List<T>, path: &str, query: &Form) -> Markup {
    pages_of(list, path, query, ("Newer", "Older"))
}

/// Links to the pages before and after this one, with these names.
pub fn pages_of<T>(list: &List<T>, path: &str, query: &Form, (before, after): (&str, &str)) -> Markup {
    let link = |page: u64| page_link(path, query, Some(("page", &page.to_string())));
    html! {
        nav.pager aria-label="Pages of the list" {
            span.quiet { (list.total) @if list.total == 1 { " entry" } @else { " entries" } ", page " (list.page) " of " (list.pages.max(1)) }
            @if list.page > 1 { a.button href=(link(list.page - 1)) rel="prev" { (before) } }
            @if list.page < list.pages { a.button href=(link(list.page + 1)) rel="next" { (after) } }
        }
    }
}

/// Links to the entries of a long list that are older than the last one of this page, and back to the newest ones.
pub fn pager_by_id<T>(list: &List<T>, path: &str, query: &Form, id: impl Fn(&T) -> i64) -> Markup {
    // A full page may be followed by another one.
    let last = list.items.last().filter(|_| list.items.len() == PAGE_SIZE).map(|item| id(item).to_string());
    let total = html! { (list.total) @if list.total == 1 { " entry" } @else { " entries" } };
    parts(path, query, &total, last.as_deref())
}

/// Links to the older part of a list, which begins before a key, and back to the newest part. `note` stands beside them.
pub fn parts(path: &str, query: &Form, note: &Markup, next_before: Option<&str>) -> Markup {
    html! {
        nav.pager aria-label="Pages of the list" {
            span.quiet { (note) }
            @if query.text("before").is_some() { a.button href=(page_link(path, query, None)) rel="first" { "Newest" } }
            @if let Some(before) = next_before { a.button href=(page_link(path, query, Some(("before", before)))) rel="next" { "Older" } }
        }
    }
}

/// A form of filters. With scripts it filters as one types; without, its button does.
pub fn filters(path: &str, fields: &Markup) -> Markup {
    html! { form.filters method="get" action=(path) data-filters { (fields) button { "Filter" } } }
}
