//! The reconciliation of a chosen period in the console, and the ways from a sum to its movements and from a difference to its
//! events.

use chrono::{Days, NaiveDate, Utc};
use rewards_ledger::access::Role;
use sqlx::AssertSqlSafe;

use super::console::enter;
use super::{check, in_browser, place};
use crate::support::browser::Browser;
use crate::support::node::Node;
use crate::support::tampering::{revealed, tamper};

/// Chooses a period, and waits for the page of it.
async fn choose(browser: &Browser, from: NaiveDate, to: NaiveDate) {
    // A field for a date takes the keys in the order of the browser's language.
    let fill =
        format!("document.querySelector('main #from').value = '{from}'; document.querySelector('main #to').value = '{to}'");
    browser.run(&fill).await;
    browser.press("Filter").await;
    browser.find(&format!("//main[.//input[@id='from'][@value='{from}']][.//input[@id='to'][@value='{to}']]")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_difference_of_a_chosen_period_leads_to_its_events() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let order = place(&node, &setup).await;
    let payment = "SELECT position FROM events WHERE type = 'WalletDebited' AND data->>'order_id' = $1";
    let payment: i64 = sqlx::query_scalar(payment).bind(order.to_string()).fetch_one(&mut node.admin().await).await.unwrap();
    let day = |text: &str| text.parse::<NaiveDate>().unwrap();
    in_browser((1440, 2_400), true, |browser| async move {
        enter(&node, &browser, Role::Auditor).await;
        browser.press("Reconciliation").await;
        browser.sees("No differences").await;
        let to_events = format!(
            "starts-with(@href, '/console/audit?type=WalletDebited&from=') and contains(@href, '&subject=wallet%2F{}')",
            setup.wallet_id
        );
        browser.click(&format!("//main//tr[td[1]='EUR']/td[@data-name='Debits']/a[{to_events}][.='10.00 EUR']")).await;
        browser.find("//main//tbody[count(tr)=1]//a[.='WalletDebited']").await;
        browser.press("Reconciliation").await;
        browser.sees("No differences").await;
        browser.click(&format!("//main//tr[td[1]='Wallet {}']/td[@data-name='Orders']/a[.='10.00 EUR']", setup.wallet_id)).await;
        browser.find(&format!("//main//tbody[count(tr)=1]//a[@href='/console/orders/{order}']")).await;
        browser.press("Reconciliation").await;
        browser.sees("No differences").await;
        let cheaper = format!(
            r#"UPDATE events SET data = regexp_replace(data::text, '"amount":"[^"]*"', '"amount":"9.00"')::json
               WHERE position = {payment}"#
        );
        tamper(&mut node.admin().await, &cheaper).await;
        choose(&browser, day("2020-01-01"), day("2020-01-31")).await;
        browser.sees("No differences").await;
        browser.sees("No wallet existed in this period").await;
        check(&browser, "a reconciliation of a period before the first wallet").await;

        let today = Utc::now().date_naive();
        choose(&browser, today - Days::new(1), today + Days::new(1)).await;
        browser.sees("Differences found").await;
        check(&browser, "a reconciliation with differences").await;
        let debit = "//main//tr[td[@data-name='Difference'][normalize-space()='Order debit']]";
        browser.find(&format!("{debit}//a[@href='/console/orders/{order}']")).await;
        browser.click(&format!("{debit}//a[@href='/console/events/1/{payment}']")).await;
        browser.find(&format!("//h1[text()='WalletDebited at position {payment}']")).await;
        browser.sees("9.00").await;

        // In a long period, the totals of a wallet lead to the events of its account.
        let mut admin = node.admin().await;
        sqlx::raw_sql(AssertSqlSafe(revealed(order, 20_001))).execute(&mut admin).await.unwrap();
        // The totals agree, so only the comparison of every event finds the wrong debit of the order.
        browser.press("Reconciliation").await;
        browser.sees("Only totals were compared").await;
        browser.sees("No differences").await;
        browser.press("Check every event").await;
        browser.sees("Each movement, order and payout was compared").await;
        browser.find(&format!("{debit}//a[@href='/console/events/1/{payment}']")).await;
        let raise = format!("UPDATE wallet_transactions SET balance_after = balance_after + 1 WHERE position = {payment}");
        tamper(&mut admin, &raise).await;
        browser.press("Reconciliation").await;
        browser.sees("Only totals were compared").await;
        let account = format!("//main//tr[td[1]='Account {}']", setup.client.account_id);
        browser.find(&format!("{account}[td[@data-name='Checked']='All its events in the period']")).await;
        let row = "//main//tr[td[@data-name='Difference'][normalize-space()='Movement differs']]";
        browser.find(&format!("{row}//a[@href='/console/events/1/{payment}']")).await;
        check(&browser, "a reconciliation of a long period with differences").await;
    })
    .await;
}
