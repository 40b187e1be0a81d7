//! The frame of every page: head, navigation, notices, and the page of an error.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use poem::Response;
use poem::http::{HeaderValue, StatusCode, header};
use serde_json::Value;

use super::super::assets::{ICON_URL, SCRIPT_URL, STYLE_URL};
use super::super::call::Refusal;
use super::super::visit::Visit;
use crate::access::ClientIdentity;
use crate::access::limits::is_under;

/// Path of the page where a user enrols in two-factor authentication.
pub const ENROLMENT: &str = "/portal/account/two-factor";

/// The frame of the portal's pages, or of the console's.
struct Frame {
    name: &'static str,
    /// Path of the start page.
    start: &'static str,
    sign_out: &'static str,
    /// Path of the stream that says when a page should look again.
    live: &'static str,
    /// Entries of the navigation: path and name.
    entries: &'static [(&'static str, &'static str)],
}

static PORTAL: Frame =
    Frame { name: "Rewards Portal", start: "/portal", sign_out: "/portal/logout", live: "/portal/live", entries: PORTAL_ENTRIES };

static CONSOLE: Frame = Frame {
    name: "Rewards Console",
    start: "/console",
    sign_out: "/console/logout",
    live: "/console/live",
    entries: CONSOLE_ENTRIES,
};

fn frame(path: &str) -> &'static Frame {
    if is_under(path, CONSOLE.start) { &CONSOLE } else { &PORTAL }
}

const PORTAL_ENTRIES: &[(&str, &str)] = &[
    ("/portal", "Overview"),
    ("/portal/products", "Catalogue"),
    ("/portal/orders", "Orders"),
    ("/portal/wallets", "Wallets"),
    ("/portal/payouts", "Payouts"),
    ("/portal/webhooks", "Webhooks"),
    ("/portal/events", "Events"),
    ("/portal/api-keys", "API keys"),
    ("/portal/team", "Team"),
    ("/portal/account", "Account"),
];

const CONSOLE_ENTRIES: &[(&str, &str)] = &[
    ("/console", "Overview"),
    ("/console/search", "Search"),
    ("/console/accounts", "Accounts"),
    ("/console/orders", "Orders"),
    ("/console/products", "Products"),
    ("/console/purchases", "Purchases"),
    ("/console/payouts", "Payouts"),
    ("/console/approvals", "Approvals"),
    ("/console/reconciliation", "Reconciliation"),
    ("/console/bank-statements", "Bank statements"),
    ("/console/operations", "Operations"),
    ("/console/replays", "Replays"),
    ("/console/erasures", "Erasures"),
    ("/console/log", "Transparency log"),
    ("/console/audit-runs", "Verify and rebuild"),
    ("/console/ip-blocks", "Blocked addresses"),
    ("/console/operators", "Operators"),
    ("/console/audit", "Audit"),
    ("/console/account", "Your sign-in"),
];

/// Notices that a redirect can ask for, as `?done=<name>`, by name. The text of a query never reaches a page.
const DONE: &[(&str, &str)] = &[
    ("adjusted", "The balance is corrected."),
    ("approval-needed", "Nothing has moved yet. The amount is above the limit, so another operator must approve it."),
    ("approve", "Approved. The change is made."),
    ("cancelled", "The order is cancelled."),
    ("changed", "The change is saved."),
    ("created", "Created."),
    ("deleted", "Deleted."),
    ("ended", "The session has ended."),
    ("funded", "The wallet is funded."),
    ("imported", "The statement is imported. Its lines are matched with the ledger."),
    ("invitation-revoked", "The invitation is revoked."),
    ("invited", "The invitation is sent."),
    ("joined", "Your login is ready. Sign in with your password."),
    ("lifted", "The block is lifted."),
    ("notice", "The notice is saved. This page may show the amount before for some seconds."),
    ("password-changed", "The password is changed. Your other sessions have ended."),
    ("password-set", "The password is changed. Sign in with the new one."),
    ("payout-cancelled", "The payout is cancelled. Its amount is back in the wallet."),
    ("payout-requested", "The payout is requested. Its amount is debited from the wallet."),
    ("placed", "The order is placed."),
    ("purchase-closed", "The purchase is closed."),
    ("reject", "Rejected. Nothing has moved."),
    ("removed", "Removed."),
    ("replay-cancelled", "The replay is cancelled."),
    ("replayed", "The replay has started. Its deliveries are created step by step."),
    ("reset-requested", "If a user has this email address, a mail is on its way."),
    ("retried", "The delivery is queued again."),
    ("revoked", "The key is revoked."),
    ("sent", "Sent."),
    ("sessions-ended", "All sessions of the user have ended."),
    ("settled", "The payout is settled."),
    ("shard-added", "The shard is added. Every node works on it within a second."),
    ("signed-out", "You are signed out."),
    ("token-revoked", "The token is revoked."),
    ("two-factor-off", "Two-factor authentication is off."),
    ("two-factor-removed", "The second factor is removed."),
    ("verification-stopped", "The verification is stopped. Its work ends in a few seconds."),
    ("verifying", "The verification has started."),
    ("withdraw", "Withdrawn. Nothing has moved."),
];

/// Beginning of the content in a page.
const MAIN: &str = "<main id=\"main\" tabindex=\"-1\">";
/// End of the content in a page.
const MAIN_END: &str = "</main>";

/// Renders a page for the user who is signed in, and `?done=` as a notice.
pub fn page(visit: &Visit, title: &str, body: &Markup) -> Response {
    let done = DONE.iter().find(|(name, _)| *name == visit.query.value("done")).map(|(_, text)| *text);
    let content = html! {
        @if let Some(done) = done { p.notice.good role="status" { (done) } }
        (body)
    };
    respond(StatusCode::OK, &document(visit.path(), title, role(visit), &content))
}

/// Renders a page up to its content, which is sent later. [`rest`] renders what follows.
pub fn beginning(visit: &Visit, title: &str) -> String {
    let mut page = document(visit.path(), title, role(visit), &html! {}).into_string();
    page.truncate(page.find(MAIN).map_or(0, |at| at + MAIN.len()));
    page
}

/// Renders the outcome of a form as the content of a page whose beginning is sent already, and the end of the page. A redirect
/// becomes a link, which scripts follow.
pub async fn rest(title: &str, mut outcome: Response) -> String {
    let target = outcome.header(header::LOCATION).map(ToOwned::to_owned);
    let content = match target {
        Some(to) => html! {
            h1 { (title) }
            p.notice.good role="status" { "Done." }
            p { a.button href=(to) data-follow { "Continue" } }
        },
        None => {
            let page = outcome.take_body().into_string().await.unwrap_or_default();
            let content = page.split_once(MAIN).and_then(|(_, rest)| rest.rsplit_once(MAIN_END));
            PreEscaped(content.map_or_else(String::new, |(content, _)| content.to_owned()))
        }
    };
    format!("{}{MAIN_END}</body></html>", content.0)
}

/// Returns the role of the person who is signed in.
fn role(visit: &Visit) -> Option<&'static str> {
    if let Ok(operator) = visit.operator() {
        return Some(operator.role.as_str());
    }
    let ClientIdentity::User { role, .. } = visit.user().ok()?.identity else { return None };
    Some(role.as_str())
}

/// Renders a page of an error as text.
pub fn error_page(path: &str, status: StatusCode, error: &Value) -> String {
    let message = error["message"].as_str().unwrap_or("The page failed.");
    let title = match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::TOO_MANY_REQUESTS => "Too many requests",
        status if status.is_server_error() => "The service is not available",
        _ => "The request failed",
    };
    let body = html! {
        div.empty {
            p { (message) }
            p.quiet { "Code: " (error["code"].as_str().unwrap_or_default()) }
            p { a.button href=(frame(path).start) { "To the start page" } }
        }
    };
    document(path, title, None, &body).into_string()
}

/// Renders the mark of a page that shows changes while it is open. A page that answers a form has none, because its address
/// cannot be read again. The script ignores the mark of a page that refuses its address.
pub fn live(visit: &Visit) -> Markup {
    html! { @if visit.is_read() { div data-live=(frame(visit.path()).live) {} } }
}

/// Sets the status of a refusal on a page that shows it, and when to try again.
pub fn refused(mut page: Response, refusal: &Refusal) -> Response {
    page.set_status(refusal.status);
    if let Some(seconds) = refusal.retry_after {
        page.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    page
}

/// Answers a form that was sent before and created something whose secret is shown once. `list` is the path and the name of
/// the page where it stands.
pub fn sent_before(visit: &Visit, thing: &str, list: (&str, &str), refusal: &Refusal) -> Response {
    let body = html! {
        div.notice.wait role="alert" {
            p { "This form was already sent, and the " (thing) " was created. Its secret was shown only in the first answer." }
            p { "If you have not seen the secret, revoke the " (thing) " and create another one." }
        }
        p { a.button href=(list.0) { (list.1) } }
    };
    refused(page(visit, "This form was already sent", &body), refusal)
}

/// Renders the summary of a refusal above a form, if there is one. Problems of fields stand at their fields.
pub fn problem(refusal: Option<&Refusal>) -> Markup {
    html! {
        @if let Some(refusal) = refusal {
            div.notice.bad role="alert" {
                p { (refusal.message) }
                @for (_, problems) in refusal.messages.iter().filter(|(field, _)| *field == "body") {
                    @for problem in problems { p { (problem) } }
                }
            }
        }
    }
}

/// Builds a response with a page.
pub fn respond(status: StatusCode, markup: &Markup) -> Response {
    Response::builder().status(status).content_type("text/html; charset=utf-8").body(markup.0.clone())
}

fn document(path: &str, title: &str, role: Option<&str>, content: &Markup) -> Markup {
    let frame = frame(path);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · " (frame.name) }
                link rel="icon" href=(ICON_URL.as_str());
                link rel="stylesheet" href=(STYLE_URL.as_str());
                script src=(SCRIPT_URL.as_str()) defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header.top {
                    a.brand href=(frame.start) { (PreEscaped(BRAND)) span { (frame.name) } }
                    @if let Some(role) = role {
                        span.badge { (role) }
                        form method="post" action=(frame.sign_out) { button.plain { "Sign out" } }
                    }
                }
                @if role.is_some() {
                    nav.side aria-label="Pages" {
                        ul { @for (target, text) in frame.entries { li { (entry(path, frame.start, target, text)) } } }
                    }
                }
                (PreEscaped(MAIN))
                h1 { (title) }
                (content)
                (PreEscaped(MAIN_END))
            }
        }
    }
}

/// The mark beside the name. It is decoration.
const BRAND: &str = "<svg class=\"mark\" viewBox=\"0 0 32 32\" aria-hidden=\"true\"><rect width=\"32\" height=\"32\" rx=\"7\"/>\
    <path d=\"M9 10h14M9 16h14M9 22h9\"/></svg>";

fn entry(path: &str, start: &str, target: &str, text: &str) -> Markup {
    let is_here = path == target || (target != start && path.starts_with(&format!("{target}/")));
    html! {
        @if is_here { a href=(target) aria-current="page" { (text) } }
        @else { a href=(target) { (text) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_in_the_order_of_their_names() {
        assert!(DONE.is_sorted_by_key(|(name, _)| name));
        assert!(PORTAL_ENTRIES.iter().chain(CONSOLE_ENTRIES).all(|(path, _)| is_under(path, frame(path).start)));
    }
}
