//! Sign-in, the own account and the team in the portal, with the mails that belong to them.

use chrono::{TimeDelta, Utc};
use rewards_ledger::access::two_factor::{RECOVERY_CODES, code_at};
use rewards_ledger::heartbeat::Heartbeat;
use rewards_ledger::mail::Mailer;
use rewards_ledger::secrets::seal::Secret;
use serde_json::{Value, json};

use super::{check, in_browser, lacks};
use crate::support::browser::Browser;
use crate::support::mail::SmtpServer;
use crate::support::node::{Node, PASSWORD, User};

const NEW_PASSWORD: &str = "a quite different one";

async fn with_owner() -> (Node, User) {
    let node = Node::sandbox().await;
    let setup = node.setup().await;
    let owner = node.user(setup.client.account_id, "owner").await;
    (node, owner)
}

/// Opens a page, and signs in on the way.
async fn sign_in(browser: &Browser, node: &Node, path: &str, email: &str, password: &str) {
    browser.open(&format!("{}{path}", node.url())).await;
    browser.fill("Email", email).await;
    browser.fill("Password", password).await;
    browser.press("Sign in").await;
}

async fn is_at(browser: &Browser, title: &str) {
    browser.find(&format!("//h1[text()=\"{title}\"]")).await;
}

/// Returns the code that an app shows this many steps from now.
fn code(secret: &str, steps: i32) -> String {
    code_at(&Secret::new(secret), Utc::now() + TimeDelta::seconds(30) * steps).unwrap().expose().to_owned()
}

/// Enrols in two-factor authentication from the page of it. Returns the secret and a recovery code. No later page shows them.
async fn enrol(browser: &Browser) -> (String, String) {
    is_at(browser, "Two-factor authentication").await;
    browser.press("Set up two-factor authentication").await;
    is_at(browser, "Set up two-factor authentication").await;
    browser.find("//*[@role='img']/*[local-name()='svg']").await;
    check(browser, "the enrolment").await;
    let secret = browser.text("//dl//code").await;
    browser.fill("Code", "12345a").await;
    browser.press("Confirm").await;
    browser.sees("must be 6 digits").await;
    assert_eq!(browser.text("//dl//code").await, secret, "the page keeps the enrolment");
    browser.logs_refusal(400).await;
    browser.fill("Code", &code(&secret, 0)).await;
    browser.press("Confirm").await;
    is_at(browser, "Your recovery codes").await;
    check(browser, "the recovery codes").await;
    let codes = "return [...document.querySelectorAll('main li code')].map((code) => code.textContent)";
    let codes: Vec<String> = serde_json::from_value(browser.run(codes).await).unwrap();
    assert_eq!(codes.len(), RECOVERY_CODES);
    browser.press("I have stored the codes").await;
    for (link, title) in [
        (None, "Your account"),
        (Some("Manage two-factor authentication"), "Two-factor authentication"),
        (Some("Back to your account"), "Your account"),
    ] {
        if let Some(link) = link {
            browser.press(link).await;
        }
        is_at(browser, title).await;
        for shown in codes.iter().chain([&secret]) {
            lacks(browser, shown, title).await;
        }
    }
    (secret, codes[0].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_enrols_signs_in_with_a_code_and_requires_it_of_the_other_owners() {
    let (node, owner) = with_owner().await;
    let other = node.user(owner.account_id, "owner").await;
    in_browser((1440, 1_600), true, |browser| async move {
        sign_in(&browser, &node, "/portal/account", &owner.email, PASSWORD).await;
        is_at(&browser, "Your account").await;
        check(&browser, "the account").await;
        browser.press("Set up two-factor authentication").await;
        let (secret, recovery_code) = enrol(&browser).await;
        browser.press("Team").await;
        is_at(&browser, "Team").await;
        browser.press("Require a second factor of owners").await;
        browser.sees("Owners need two-factor authentication.").await;
        check(&browser, "the team").await;
        browser.press("Let owners sign in without a second factor").await;
        browser.sees("Owners may sign in with a password alone.").await;
        browser.press("Require a second factor of owners").await;
        browser.sees("Owners need two-factor authentication.").await;
        browser.press("Sign out").await;

        sign_in(&browser, &node, "/portal/team", &owner.email, PASSWORD).await;
        browser.sees("A code of the second factor is required.").await;
        browser.logs_refusal(401).await;
        check(&browser, "the login with a code").await;
        let sign_in_with = async |code: &str| {
            browser.fill("Password", PASSWORD).await;
            browser.fill("Code", code).await;
            browser.press("Sign in").await;
        };
        sign_in_with(&recovery_code).await;
        is_at(&browser, "Team").await;
        browser.press("Sign out").await;
        sign_in(&browser, &node, "/portal/team", &owner.email, PASSWORD).await;
        browser.sees("A code of the second factor is required.").await;
        browser.logs_refusal(401).await;
        sign_in_with(&recovery_code).await;
        browser.sees("The code is wrong or was used before.").await;
        browser.logs_refusal(401).await;
        sign_in_with(&code(&secret, 1)).await;
        is_at(&browser, "Team").await;
        browser.press("Sign out").await;

        sign_in(&browser, &node, "/portal/orders", &other.email, PASSWORD).await;
        browser.sees("Your account requires two-factor authentication of its owners.").await;
        check(&browser, "the enrolment of an owner who must").await;
        browser.open(&format!("{}/portal/team", node.url())).await;
        let (_, recovery_code) = enrol(&browser).await;
        browser.press("Manage two-factor authentication").await;
        browser.sees("Recovery codes left").await;
        browser.press("Switch two-factor authentication off").await;
        browser.fill("Code", &recovery_code).await;
        browser.press("Switch off").await;
        browser.sees("Two-factor authentication is off.").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invited_person_chooses_a_password_and_resets_it_when_it_is_forgotten() {
    let (node, owner) = with_owner().await;
    let server = SmtpServer::start().await;
    in_browser((390, 2_400), true, |browser| async move {
        let (browser, mailed) = (&*browser, async || server.deliver(&node).await.pop().unwrap().token());
        sign_in(browser, &node, "/portal/team", &owner.email, PASSWORD).await;
        is_at(browser, "Team").await;
        browser.fill("Email", "grace@example.com").await;
        browser.click("//option[@value='operator']").await;
        browser.press("Send the invitation").await;
        browser.sees("The invitation is sent.").await;
        browser.press("Sign out").await;
        browser.open(&format!("{}/portal/accept-invitation?token={}", node.url(), mailed().await)).await;
        is_at(browser, "Accept the invitation").await;
        check(browser, "an invitation").await;
        browser.fill("New password", "password1").await;
        browser.press("Accept the invitation").await;
        browser.sees("is a common password").await;
        browser.fill("New password", PASSWORD).await;
        browser.press("Accept the invitation").await;
        browser.sees("Your login is ready.").await;

        browser.press("I forgot my password").await;
        is_at(browser, "Reset your password").await;
        browser.logs_refusal(400).await;
        check(browser, "the request of a reset").await;
        browser.fill("Email", "grace@example.com").await;
        browser.press("Send the link").await;
        browser.sees("a mail is on its way").await;
        let link = format!("{}/portal/reset-password?token={}", node.url(), mailed().await);
        for (is_first, outcome) in [(true, "The password is changed."), (false, "The link is not valid any more")] {
            browser.open(&link).await;
            is_at(browser, "Choose a new password").await;
            browser.fill("New password", NEW_PASSWORD).await;
            if is_first {
                check(browser, "the choice of a password").await;
            }
            browser.press("Set the new password").await;
            browser.sees(outcome).await;
        }
        sign_in(browser, &node, "/portal/team", "grace@example.com", NEW_PASSWORD).await;
        browser.sees("you need the role owner").await;
        browser.logs_refusal(401).await;
        check(browser, "the team of an operator").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_ends_sessions_changes_the_password_and_manages_the_team() {
    let (node, owner) = with_owner().await;
    let viewer = node.user(owner.account_id, "viewer").await;
    let server = SmtpServer::start().await;
    in_browser((1440, 1_600), true, |browser| async move {
        sign_in(&browser, &node, "/portal/account", &owner.email, PASSWORD).await;
        is_at(&browser, "Your account").await;
        browser.press("End").await;
        browser.sees("The session has ended.").await;
        node.bearer(&owner.access_token, "GET", "/client/api/sessions", Value::Null).await.refused(401, "E_INVALID_TOKEN");
        browser.fill("Present password", "not the password").await;
        browser.fill("New password", NEW_PASSWORD).await;
        browser.press("Change the password").await;
        browser.sees("is not the present password").await;
        browser.logs_refusal(400).await;
        check(&browser, "a refused password").await;
        browser.fill("Present password", PASSWORD).await;
        browser.fill("New password", NEW_PASSWORD).await;
        browser.press("Change the password").await;
        browser.sees("The password is changed.").await;
        let new = json!({"email": owner.email, "password": NEW_PASSWORD});
        node.anyone("POST", "/auth/login", new).await.data(200);

        browser.press("Team").await;
        browser.press(&viewer.email).await;
        is_at(&browser, &viewer.email).await;
        check(&browser, "a user").await;
        browser.click("//option[@value='operator']").await;
        browser.press("Change the role").await;
        browser.sees("The change is saved.").await;
        browser.press(&viewer.email).await;
        browser.press("Remove this user").await;
        browser.press("Remove the user").await;
        browser.sees("Removed.").await;
        browser.press(&owner.email).await;
        browser.press("Remove this user").await;
        browser.press("Remove the user").await;
        browser.sees("account needs an owner").await;
        browser.logs_refusal(409).await;

        browser.fill("Email", "grace@example.com").await;
        browser.press("Send the invitation").await;
        browser.sees("The invitation is sent.").await;
        let mailer = Mailer { keeps_sent: true, ..server.mailer(&node) };
        while mailer.send_due(&Heartbeat::default()).await.unwrap() > 0 {}
        browser.press("Mails that this service has sent").await;
        browser.sees("Invitation to").await;
        browser.sees("grace@example.com").await;
        check(&browser, "the outbox").await;
        browser.press("Team").await;
        browser.press("Revoke").await;
        browser.sees("The invitation is revoked.").await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outbox_is_a_page_of_sandboxes_and_of_owners() {
    let (node, owner) = with_owner().await;
    let viewer = node.user(owner.account_id, "viewer").await;
    let production = Node::start().await;
    let setup = production.setup().await;
    let elsewhere = production.user(setup.client.account_id, "owner").await;
    let http = reqwest::Client::new();
    for (node, user, status) in [(&node, &owner, 200), (&node, &viewer, 403), (&production, &elsewhere, 404)] {
        let request = http.get(format!("{}/portal/outbox", node.url())).header("Cookie", &user.cookie);
        assert_eq!(request.send().await.unwrap().status().as_u16(), status);
        let answer = node.bearer(&user.access_token, "GET", "/client/api/outbox", Value::Null).await;
        assert_eq!(answer.status, status);
    }
}
