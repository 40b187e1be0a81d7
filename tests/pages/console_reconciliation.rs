//! The reconciliation of a chosen period in the console, the ways from a sum to its movements and from a difference to its
//! events, and the progress of a long one.

use chrono::{Days, NaiveDate, Utc};
use rewards_ledger::access::Role;
use sqlx::AssertSqlSafe;

use super::console::enter;
use super::long_work::{HOLD, held_up, seen_in_other, waits_at};
use super::{check, in_browser, place};
use crate::support::browser::Browser;
use crate::support::node::Node;
use crate::support::relay::Relay;
use crate::support::tampering::{revealed, tamper};

/// Opens the comparison of every event in another window.
const COMPARE: &str = "window.other = window.open(document.querySelector('main a[href*=every_event]').href, 'other')";

/// Condition of an event that the comparison reads after its first page. The totals are read in a snapshot, which does not wait.
const LATER: &str = "position = 20001 AND current_setting('transaction_isolation') = 'read committed'";

/// Chooses a period, and waits for the page of it.
async fn choose(browser: &Browser, from: NaiveDate, to: NaiveDate) {
    // A field for a date takes the keys in the order of the browser's language.
    let fill =
        format!("document.querySelector('main #from').value = '{from}'; document.querySelector('main #to').value = '{to}'");
    browser.run(&fill).await;
    browser.press("Filter").await;
    browser.find(&format!("//main[.//input[@id='from'][@value='{from}']][.//input[@id='to'][@value='{to}']]")).await;
}

/// Compares every event in another window, and sees there how many of them are read, and then the outcome. The page of the totals
/// is open.
async fn compare_with_progress(browser: &Browser, node: &Node) {
    let waits = AssertSqlSafe(waits_at("events", LATER));
    sqlx::raw_sql(waits).execute(&mut node.admin().await).await.unwrap();
    let (step, mut holder) = held_up(browser, node, HOLD, COMPARE).await;
    let numbers = step.replace('\u{202f}', "");
    let (done, total) = numbers.strip_prefix("Events read: ").and_then(|numbers| numbers.split_once(" of ")).unwrap();
    let [done, total] = [done, total].map(|number| number.parse::<i64>().unwrap());
    assert!(0 < done && done < total && total > 20_001, "{step}");
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
    let compared = "page.querySelector('main')?.textContent.includes('Each movement, order and payout was compared')";
    seen_in_other(browser, compared).await;
    browser.run("window.other.close()").await;
}

/// Compares every event in another window, over a connection that breaks off in the middle. The page says so then, not before.
async fn compare_until_cut(browser: &Browser, node: &Node) {
    let relay = Relay::before(node.url().trim_start_matches("http://").parse().unwrap()).await;
    browser.open(&format!("http://{}/console/reconciliation", relay.address())).await;
    browser.sees("Only totals were compared").await;
    let (_, mut holder) = held_up(browser, node, HOLD, COMPARE).await;
    let overdue = "[...page.querySelectorAll('.overdue')].some((notice) =>
        notice.checkVisibility() && getComputedStyle(notice).visibility === 'visible')";
    // The node says every second that it still works.
    let works = "page.querySelectorAll('.overdue').length > 2 && !page.querySelector('.working + *')";
    seen_in_other(browser, &format!("{works} && !{overdue}")).await;
    relay.cut();
    seen_in_other(browser, overdue).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
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
        compare_with_progress(&browser, &node).await;
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
        compare_until_cut(&browser, &node).await;
    })
    .await;
}
