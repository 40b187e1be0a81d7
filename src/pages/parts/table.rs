//! Tables, pages of lists, and their empty states.

use maud::{Markup, html};

use super::super::call::List;
use super::super::form::Form;

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

/// A place where nothing is yet: the reason, and what to do first.
pub fn empty(text: &str, action: Option<(&str, &str)>) -> Markup {
    html! {
        div.empty {
            p { (text) }
            @if let Some((target, name)) = action { p { a.button href=(target) { (name) } } }
        }
    }
}

/// Links to the pages of a list, with the query's other fields.
pub fn pager<T>(list: &List<T>, path: &str, query: &Form) -> Markup {
    let link = |page: u64| {
        let kept = query.pairs().iter().filter(|(name, value)| name != "page" && name != "done" && !value.is_empty());
        let mut encoded = url::form_urlencoded::Serializer::new(String::new());
        let number = page.to_string();
        encoded.extend_pairs(kept.map(|(name, value)| (name.as_str(), value.as_str())));
        format!("{path}?{}", encoded.append_pair("page", &number).finish())
    };
    html! {
        nav.pager aria-label="Pages of the list" {
            span.quiet { (list.total) @if list.total == 1 { " entry" } @else { " entries" } ", page " (list.page) " of " (list.pages.max(1)) }
            @if list.page > 1 { a.button href=(link(list.page - 1)) rel="prev" { "Newer" } }
            @if list.page < list.pages { a.button href=(link(list.page + 1)) rel="next" { "Older" } }
        }
    }
}

/// A form of filters. With scripts it filters as one types; without, its button does.
pub fn filters(path: &str, fields: &Markup) -> Markup {
    html! { form.filters method="get" action=(path) data-filters { (fields) button { "Filter" } } }
}
