//! The console's frame: signing in, and the second factor.

use chrono::Utc;
use rewards_ledger::access::{Role, two_factor};
use rewards_ledger::secrets::seal::Secret;

use super::{check, in_browser};
use crate::support::browser::Browser;
use crate::support::node::{ConsoleUser, Node, PASSWORD};

/// Signs an operator in at the page that is open.
pub async fn sign_in(browser: &Browser, email: &str, code: &str) {
    browser.fill("Email", email).await;
    browser.fill("Password", PASSWORD).await;
    browser.fill("Code", code).await;
    browser.press("Sign in").await;
}

/// Opens the console as a new operator of this role. Returns the operator.
pub async fn enter(node: &Node, browser: &Browser, role: Role) -> ConsoleUser {
    let user = node.console_user(role).await;
    browser.open(&format!("{}/console", node.url())).await;
    sign_in(browser, &user.email, "").await;
    browser.find("//h1[text()='Overview']").await;
    user
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_signs_in_with_a_second_factor() {
    let node = Node::start().await;
    let user = node.console_user(Role::Finance).await;
    in_browser((390, 1_400), true, |browser| async move {
        browser.open(&format!("{}/console/account", node.url())).await;
        browser.sees("Sign in").await;
        check(&browser, "the console's login").await;
        sign_in(&browser, &user.email, "").await;
        browser.find("//h1[text()='Your sign-in']").await;
        check(&browser, "the operator's sign-in").await;
        browser.press("Enrol a second factor").await;
        let secret = browser.text("//dd//code").await;
        check(&browser, "the enrolment").await;
        browser.fill("Code", "000000").await;
        browser.press("Confirm").await;
        browser.find("//*[@role='alert']").await;
        browser.logs_refusal(400).await;
        browser.find("//a[text()='Open the authenticator app of this device'][starts-with(@href, 'otpauth://')]").await;
        browser.fill("Code", &code(&secret)).await;
        browser.press("Confirm").await;
        browser.sees("The second factor is enrolled.").await;
        check(&browser, "the recovery codes").await;
        let recovery = browser.text("(//main//li//code)[1]").await;
        let other_recovery = browser.text("(//main//li//code)[2]").await;
        browser.press("Sign out").await;
        sign_in(&browser, &user.email, "").await;
        browser.find("//*[@role='alert']").await;
        browser.logs_refusal(401).await;
        sign_in(&browser, &user.email, &recovery).await;
        browser.find("//h1[text()='Overview']").await;
        check(&browser, "the console's overview").await;
        browser.press("Your sign-in").await;
        browser.press("Remove the second factor").await;
        browser.fill("Code", &recovery).await;
        browser.click("//button[text()='Remove the second factor']").await;
        browser.find("//*[@role='alert']").await;
        browser.logs_refusal(400).await;
        check(&browser, "a code that is used").await;
        browser.fill("Code", &other_recovery).await;
        browser.click("//button[text()='Remove the second factor']").await;
        browser.sees("The change is saved.").await;
        browser.find("//dd[normalize-space()='not enrolled']").await;
        browser.press("Sign out").await;
        sign_in(&browser, &user.email, "").await;
        browser.find("//h1[text()='Overview']").await;
    })
    .await;
}

/// Returns the code that an authenticator app shows.
fn code(secret: &str) -> String {
    two_factor::code_at(&Secret::new(secret), Utc::now()).unwrap().expose().to_owned()
}
