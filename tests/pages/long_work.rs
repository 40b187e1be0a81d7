//! Long work in another window: a transaction holds it up until the window shows a step of it.

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::support::browser::Browser;
use crate::support::node::Node;
use crate::support::wait::until;

/// Begins long work in another window, which `begin` opens as `window.other`, while a transaction that begins with `hold` holds
/// the work up. Waits until the window shows a bar with a value. Returns the text of that step, and the connection whose
/// transaction is open.
///
/// WebDriver waits until a page is complete, so it cannot look at the progress in its own window.
pub async fn held_up(browser: &Browser, node: &Node, hold: &str, begin: &str) -> (String, PgConnection) {
    let mut holder = node.admin().await;
    sqlx::raw_sql(AssertSqlSafe(hold.to_owned())).execute(&mut holder).await.unwrap();
    browser.run(begin).await;
    let text = "[...page.querySelectorAll('.step')].find((step) =>
        step.checkVisibility() && step.querySelector('progress[value]'))?.querySelector('p').textContent";
    (seen_in_other(browser, text).await.as_str().unwrap().to_owned(), holder)
}

/// Sends the form that is open into another window, while a transaction that begins with `hold` holds the upload up. Ends the
/// transaction once the window shows a bar with a value, and returns the text of that step.
pub async fn upload_under(browser: &Browser, node: &Node, hold: &str) -> String {
    let send = "window.other = window.open('', 'other');
        const form = document.querySelector('main form.card'); form.target = 'other'; form.requestSubmit()";
    let (shown, mut holder) = held_up(browser, node, hold, send).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    shown
}

/// SQL for a superuser after which the service waits for [`HOLD`] when it reads or writes a row of a table that meets this
/// condition.
pub fn waits_at(table: &str, condition: &str) -> String {
    format!(
        "ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
         CREATE POLICY waits ON {table}
            USING (CASE WHEN {condition} THEN pg_advisory_xact_lock_shared(7) IS NOT NULL ELSE true END)"
    )
}

/// SQL that begins a transaction for which the service waits, as [`waits_at`] says.
pub const HOLD: &str = "BEGIN; SELECT pg_advisory_xact_lock(7)";

/// Waits until an expression about `page`, the document of the other window, is true. Returns its value. A browser without
/// scripts runs no timers, so the test asks again and again.
pub async fn seen_in_other(browser: &Browser, expression: &str) -> Value {
    let (script, mut seen) = (format!("const page = window.other.document; return {expression}"), Value::Null);
    until("the other window shows it", async || {
        seen = browser.run(&script).await;
        !matches!(seen, Value::Null | Value::Bool(false))
    })
    .await;
    seen
}
