//! The mails that a sandbox or the demo has sent. Other nodes have no such page.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use crate::pages::call::List;
use crate::pages::outcome::{PageResult, Stop};
use crate::pages::parts::values::{facts, time};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// A mail, as `GET /client/api/outbox` returns it.
#[derive(Debug, Deserialize)]
struct Mail {
    sent_at: DateTime<Utc>,
    to: String,
    subject: String,
    text: String,
}

pub fn add(site: Site) -> Site {
    site.get("/portal/outbox", show)
}

async fn show(visit: Visit) -> PageResult {
    if !visit.shows_outbox() {
        return Err(Stop::NotFound);
    }
    visit.user()?;
    let mails: List<Mail> = visit.list("/client/api/outbox", "mails").await?;
    let body = html! {
        p { "What this service has sent to the people of your account. Reload the page to see more." }
        @if mails.items.is_empty() {
            (table::empty("No mail yet. Invite a person, and the mail appears here.", Some(("/portal/team", "Team"))))
        }
        @for mail in &mails.items { (shown(mail)) }
    };
    Ok(layout::page(&visit, "Outbox", &body))
}

fn shown(mail: &Mail) -> Markup {
    html! {
        section.card {
            h2 { (mail.subject) }
            (facts(&[("To", html! { (mail.to) }), ("Sent", time(mail.sent_at))]))
            @for line in mail.text.lines() {
                @if line.starts_with("https://") || line.starts_with("http://") { p { a href=(line) { (line) } } }
                @else if !line.is_empty() { p { (line) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_of_a_mail_is_a_link_and_its_words_are_no_markup() {
        let text = "<b>Hello</b>\n\nhttps://pay.example/portal/reset-password?token=ab12\n".to_owned();
        let mail = Mail { sent_at: DateTime::default(), to: "jo@example.com".into(), subject: "<i>".into(), text };
        let markup = shown(&mail).0;
        assert!(markup.contains("<a href=\"https://pay.example/portal/reset-password?token=ab12\">"), "{markup}");
        assert!(!markup.contains("<b>") && !markup.contains("<i>"), "{markup}");
    }
}
