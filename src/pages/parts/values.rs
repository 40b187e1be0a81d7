//! Values: statuses, money, times, codes to copy.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use maud::{Markup, html};

/// Number of characters of a text in a list. The page of what is listed has all of them.
pub const MAX_LISTED: usize = 160;

/// Returns the first `most` characters of a text that can be long.
pub fn beginning(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// A status as a coloured word. The word says everything; the colour only helps.
pub fn badge(status: &str) -> Markup {
    let class = match status {
        "DELIVERED" | "delivered" | "PAID" | "ACTIVE" | "active" | "MATCHED" | "COMPLETED" | "ready" | "clean" | "open" => {
            "badge good"
        }
        "CANCELLED" | "failed" | "FAILED" | "revoked" | "SUSPENDED" | "inactive" | "deleted" | "lost" | "interrupted"
        | "differences" | "unannounced" => "badge bad",
        "DELAYED" | "PARTIALLY_DELIVERED" | "pending" | "PENDING" | "RUNNING" | "running" | "expired" | "draining" => {
            "badge wait"
        }
        _ => "badge",
    };
    html! { span class=(class) { (words(status)) } }
}

/// Returns a constant of the API as words: `PARTIALLY_DELIVERED` is `Partially delivered`.
pub fn words(constant: &str) -> String {
    let lower = constant.to_ascii_lowercase().replace(['_', '-'], " ");
    let mut letters = lower.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

/// An amount with its currency, with thousands set apart. The page aligns amounts by their last digit.
pub fn money(amount: &str, currency: &str) -> Markup {
    html! { span.money { (grouped(amount)) " " span.currency { (currency) } } }
}

/// Returns an amount with narrow spaces between groups of three digits.
pub fn grouped(amount: &str) -> String {
    let (sign, digits) = amount.strip_prefix('-').map_or(("", amount), |digits| ("−", digits));
    let (whole, rest) = digits.find('.').map_or((digits, ""), |at| digits.split_at(at));
    let mut out = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out + rest
}

/// A number that leads to what it counts. Nothing leads to nothing, so 0 is no link.
pub fn counted(count: impl Into<i128>, target: &str) -> Markup {
    let count = count.into();
    html! { @if count == 0 { "0" } @else { a href=(target) { (grouped(&count.to_string())) } } }
}

/// A time. The server writes UTC; the script shows the viewer's time zone and keeps UTC as the title.
pub fn time(at: DateTime<Utc>) -> Markup {
    let utc = at.format("%Y-%m-%d %H:%M:%S UTC").to_string();
    html! { time datetime=(at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)) title=(utc) { (at.format("%Y-%m-%d %H:%M")) " UTC" } }
}

pub fn time_or_none(at: Option<DateTime<Utc>>) -> Markup {
    html! { @if let Some(at) = at { (time(at)) } @else { span.quiet { "–" } } }
}

/// A code with a button that copies it, for browsers with scripts.
pub fn copyable(text: &str) -> Markup {
    html! { span.copy { code { (text) } button.plain type="button" data-copy=(text) hidden { "Copy" } } }
}

/// A list of terms with their values.
pub fn facts(rows: &[(&str, Markup)]) -> Markup {
    html! { dl.facts { @for (term, value) in rows { div { dt { (term) } dd { (value) } } } } }
}

/// A number that stands out, with its name.
pub fn figure(name: &str, value: &Markup) -> Markup {
    html! { div.figure { span.quiet { (name) } strong { (value) } } }
}

/// Secrets that are shown once, each with its name.
pub fn once(secrets: &[(&str, &str)]) -> Markup {
    let rows: Vec<(&str, Markup)> = secrets.iter().map(|(name, secret)| (*name, copyable(secret))).collect();
    html! {
        p.notice.wait role="status" { "Store this now. It is gone when you leave this page, and it is never shown again." }
        div.card { (facts(&rows)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_grouped_by_thousands() {
        for (amount, shown) in [
            ("0.00", "0.00"),
            ("999.99", "999.99"),
            ("1000.00", "1\u{202f}000.00"),
            ("-1234567.80", "−1\u{202f}234\u{202f}567.80"),
            ("12", "12"),
        ] {
            assert_eq!(grouped(amount), shown);
        }
    }

    #[test]
    fn a_number_leads_to_what_it_counts() {
        assert_eq!(counted(1_234, "/x?a=1&b=2").0, "<a href=\"/x?a=1&amp;b=2\">1\u{202f}234</a>");
        assert_eq!(counted(0_u64, "/x").0, "0");
    }

    #[test]
    fn constants_become_words() {
        assert_eq!(words("PARTIALLY_DELIVERED"), "Partially delivered");
        assert_eq!(words(""), "");
    }

    #[test]
    fn text_is_escaped() {
        let attack = "<script>alert(1)</script>\" onclick=\"x";
        for markup in [badge(attack), copyable(attack), money("1.00", attack)] {
            assert!(!markup.0.contains("<script>") && !markup.0.contains("onclick=\"x"), "{}", markup.0);
        }
    }
}
