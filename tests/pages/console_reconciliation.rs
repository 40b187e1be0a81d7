//! The reconciliation of a chosen period in the console, and the ways from a sum to its movements and from a difference to its
//! events.

use chrono::{Days, NaiveDate, Utc};
use rewards_ledger::access::Role;

use super::console::enter;
use super::{check, in_browser, place};
use crate::support::browser::Browser;
use crate::support::node::Node;
use crate::support::tampering::tamper;

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
        browser.find("//main//tr[td[1]='EUR']/td[@data-name='Debits']/a[@href='#wallets'][.='10.00 EUR']").await;
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
        let row = "//main//tr[td[@data-name='Difference'][normalize-space()='Order debit']]";
        browser.find(&format!("{row}//a[@href='/console/orders/{order}']")).await;
        browser.click(&format!("{row}//a[@href='/console/events/1/{payment}']")).await;
        browser.find(&format!("//h1[text()='WalletDebited at position {payment}']")).await;
        browser.sees("9.00").await;
    })
    .await;
}
