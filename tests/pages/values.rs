//! Values on pages: times with UTC on hover, and amounts that stand in columns.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

use super::crawl::attributes;

/// Elements without an end.
const VOID: [&str; 4] = ["br", "hr", "img", "input"];

/// Elements that show a text as a program reads it or as a person types it: codes, payloads, and fields.
const VERBATIM: [&str; 3] = ["code", "pre", "textarea"];

/// Text below a field, which says what to type. Its times are examples.
const HINT: &str = "class=\"hint\"";

/// Page with the mails as they were sent. The times in their texts are in UTC, and no script changes them.
const OUTBOX: &str = "/portal/outbox";

/// Returns the name of an element from its tag.
pub fn name_of(tag: &str) -> &str {
    tag.split(' ').next().unwrap_or(tag)
}

/// Returns the content of a page, without its head and its navigation.
fn main_of(page: &str) -> &str {
    page.split_once("<main").and_then(|(_, rest)| rest.split("</main>").next()).unwrap_or_default()
}

/// Returns the texts of some markup, each with the tags of the elements around it, outermost first.
pub fn texts(markup: &str) -> Vec<(Vec<&str>, &str)> {
    let mut open: Vec<&str> = vec![];
    let mut texts = vec![];
    for (tag, text) in markup.split('<').skip(1).filter_map(|part| part.split_once('>')) {
        if let Some(name) = tag.strip_prefix('/') {
            let opened = open.iter().rposition(|tag| name_of(tag) == name);
            open.truncate(opened.unwrap_or(open.len()));
        } else if !tag.ends_with('/') && !VOID.contains(&name_of(tag)) {
            open.push(tag);
        }
        if !text.is_empty() {
            texts.push((open.clone(), text));
        }
    }
    texts
}

/// Returns whether a text has the form of a pattern, in which each 0 stands for any digit.
fn is_like(text: &[u8], pattern: &[u8]) -> bool {
    text.iter().zip(pattern).all(|(byte, wanted)| if *wanted == b'0' { byte.is_ascii_digit() } else { byte == wanted })
}

/// Returns whether a text has a time, such as `2026-11-28 12:34` or `2026-11-28T12:34:56Z`.
fn has_time(text: &str) -> bool {
    let is_time = |part: &[u8]| is_like(part, b"0000-00-00 00:00") || is_like(part, b"0000-00-00T00:00");
    let around = |colon: usize| text.as_bytes().get(colon.checked_sub(13)?..colon + 3);
    text.match_indices(':').filter_map(|(colon, _)| around(colon)).any(is_time)
}

/// Returns whether an element has an exact time for scripts, shows it in UTC without them, and has it in UTC on hover.
fn is_complete(tag: &str, text: &str) -> bool {
    let value = |name: &str| attributes(tag, name).pop().unwrap_or_default();
    let exact = value("datetime");
    let until = |end: usize| format!("{} UTC", exact.get(..end).unwrap_or_default().replace('T', " "));
    exact.parse::<DateTime<Utc>>().is_ok() && value("title") == until(19) && text == until(16)
}

/// Returns the texts of a page that have a time outside a complete element for it.
fn bare_times<'a>(path: &str, page: &'a str) -> Vec<&'a str> {
    let is_bare = |open: &[&str], text: &str| {
        if let Some(time) = open.iter().find(|tag| name_of(tag) == "time") {
            return !is_complete(time, text);
        }
        let is_exempt = |tag: &&str| VERBATIM.contains(&name_of(tag)) || tag.contains(HINT);
        has_time(text) && path != OUTBOX && !open.iter().any(is_exempt)
    };
    texts(main_of(page)).into_iter().filter(|(open, text)| is_bare(open, text)).map(|(_, text)| text).collect()
}

/// Returns whether a text is an amount of money, with or without its currency.
fn is_amount(text: &str) -> bool {
    let text = text.trim().replace('\u{202f}', "");
    let (amount, currency) = text.split_once(' ').unwrap_or((text.as_str(), "EUR"));
    let Some((whole, rest)) = amount.trim_start_matches('−').split_once('.') else { return false };
    let are_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_currency = currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_uppercase());
    is_currency && are_digits(whole) && rest.len() == 2 && are_digits(rest)
}

/// Returns the amounts of a page that stand alone in a cell without the class that aligns it.
fn unaligned(page: &str) -> Vec<String> {
    let cells = main_of(page).split("<td").skip(1).filter_map(|rest| rest.split("</td>").next()?.split_once('>'));
    let texts = cells.map(|(tag, content)| {
        let text: String = content.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect();
        (tag, text)
    });
    texts.filter(|(tag, text)| is_amount(text) && !tag.contains("class=\"number\"")).map(|(_, text)| text).collect()
}

/// Checks that each time on these pages has UTC on hover, and that the amounts of their tables stand in columns.
pub fn are_right(pages: &BTreeMap<String, String>) {
    let mut wrong = BTreeSet::new();
    for (path, page) in pages {
        wrong.extend(bare_times(path, page).into_iter().map(|text| format!("{path}: no UTC on hover of {text}")));
        wrong.extend(unaligned(page).into_iter().map(|amount| format!("{path}: {amount} is not aligned")));
    }
    assert_eq!(wrong, BTreeSet::new());
    for kind in ["<time ", "<td class=\"number\" data-name=\"Amount\">"] {
        assert!(pages.values().any(|page| page.contains(kind)), "no page has {kind}");
    }
}

#[test]
fn a_time_without_utc_and_an_amount_out_of_its_column_are_found() {
    let main = |content: &str| format!("<title>2026-11-28 12:34</title><main id=\"main\">{content}</main>");
    let time = |title: &str| format!("<time datetime=\"2026-11-28T12:34:56.789Z\" title=\"{title}\">2026-11-28 12:34 UTC</time>");
    let bare = |content: &str| bare_times("/portal", &main(content)).len();
    assert_eq!(bare(&format!("<p>Since <br>{}.</p>", time("2026-11-28 12:34:56 UTC"))), 0);
    assert_eq!(bare(&time("2026-11-28 12:34")), 1);
    assert_eq!(bare("<p>2026-11-28 12:34 UTC</p><pre>a</pre>2026-11-28T12:34:56Z<input>at 2026-11-28 12:34"), 3);
    assert_eq!(bare("<p>2026-11-28</p><pre>2026-11-28T12:34:56Z</pre><p class=\"hint\">Such as 2026-01-31 12:00.</p>"), 0);
    assert!(bare_times(OUTBOX, &main("<p>2026-11-28 12:34 UTC</p>")).is_empty());

    let amount = "<span class=\"money\">−1\u{202f}234.50 <span class=\"currency\">EUR</span></span>";
    assert!(unaligned(&main(&format!("<td class=\"number\" data-name=\"Amount\">{amount}</td>"))).is_empty());
    assert_eq!(unaligned(&main(&format!("<td class=\"\" data-name=\"Amount\">{amount}</td><td>10.00</td>"))).len(), 2);
    assert!(unaligned(&main("<td>12</td><td>10.00, 25.00 EUR</td><td>203.0.113.7</td><td>2.50 %</td>")).is_empty());
}
