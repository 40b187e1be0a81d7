//! Sign-ins of operators in the console: a lost second factor, a new password, other sessions, and an identity provider. Also the
//! tokens of programs.

use rewards_ledger::access::{Role, two_factor};
use rewards_ledger::ledger::commands;
use rewards_ledger::secrets::seal::Secret;
use serde_json::{Value, json};

use super::console::{enter, sign_in};
use super::{check, in_browser, lacks};
use crate::support::ledger::run;
use crate::support::node::{Node, PASSWORD};
use crate::support::open_id::Provider;

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_helps_an_operator_who_has_lost_the_second_factor_and_the_password() {
    const NEW_PASSWORD: &str = "a quite different one";
    let node = Node::start().await;
    let kim = node.console_user(Role::Finance).await;
    let (id, secret) = (kim.id, two_factor::generate_secret());
    run(&node.ledger, commands::EnableOperatorTwoFactor { id, secret, step: 1, recovery_codes: vec![], session_id: 0 }).await;
    in_browser((390, 2_000), true, |browser| async move {
        browser.open(&format!("{}/console", node.url())).await;
        sign_in(&browser, &kim.email, "").await;
        browser.find("//*[@role='alert']").await;
        browser.logs_refusal(401).await;
        enter(&node, &browser, Role::Admin).await;
        browser.open(&format!("{}/console/operators/{}", node.url(), kim.id)).await;
        browser.sees("Enrolled").await;
        browser.click("//summary[text()='Remove the second factor']").await;
        check(&browser, "the removal of a second factor").await;
        browser.click("//button[text()='Remove the second factor']").await;
        browser.sees("The second factor is removed.").await;
        browser.sees("Not enrolled").await;
        browser.click("//summary[text()='Set a password']").await;
        browser.fill("New password", "password1").await;
        browser.click("//button[text()='Set the password']").await;
        browser.sees("is a common password").await;
        browser.logs_refusal(400).await;
        check(&browser, "a refused password of an operator").await;
        browser.fill("New password", NEW_PASSWORD).await;
        browser.click("//button[text()='Set the password']").await;
        browser.sees("The change is saved.").await;
        browser.press("Sign out").await;
        sign_in(&browser, &kim.email, "").await;
        browser.find("//*[@role='alert']").await;
        browser.logs_refusal(401).await;
        browser.fill("Email", &kim.email).await;
        browser.fill("Password", NEW_PASSWORD).await;
        browser.press("Sign in").await;
        browser.find("//h1[text()='Overview']").await;

        let elsewhere = node.console_login(&kim.email, NEW_PASSWORD, None).await.cookie();
        browser.press("Your sign-in").await;
        browser.fill("Present password", "not the password").await;
        browser.fill("New password", PASSWORD).await;
        browser.press("Change the password").await;
        browser.sees("is not the present password").await;
        browser.logs_refusal(400).await;
        check(&browser, "a refused password, and another session").await;
        browser.press("End").await;
        browser.sees("The session has ended.").await;
        node.portal(&elsewhere, node.url(), "GET", "/admin/auth/session", Value::Null).await.refused(401, "E_UNAUTHORIZED");
        browser.fill("Present password", NEW_PASSWORD).await;
        browser.fill("New password", PASSWORD).await;
        browser.press("Change the password").await;
        browser.sees("The password is changed.").await;
        node.console_login(&kim.email, PASSWORD, None).await.data(200);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_issues_a_token_that_is_shown_once_and_revokes_it() {
    let node = Node::start().await;
    in_browser((1440, 1_600), true, |browser| async move {
        enter(&node, &browser, Role::Admin).await;
        browser.open(&format!("{}/console/operator-tokens", node.url())).await;
        browser.sees("No token was issued yet.").await;
        browser.press("New token").await;
        browser.fill("Name", "Nightly report").await;
        browser.click("//select[@id='role']/option[@value='auditor']").await;
        browser.press("Create the token").await;
        browser.find("//h1[text()='The new token']").await;
        browser.sees("it is never shown again").await;
        check(&browser, "the token of a program").await;
        let shown = browser.text("//dd//code").await;
        let token = Secret::new(&*shown);
        node.operator_with(&token, "GET", "/accounts", Value::Null).await.data(200);
        browser.press("All tokens").await;
        browser.find("//h1[text()='Tokens of programs']").await;
        lacks(&browser, &shown, "the list of tokens").await;
        check(&browser, "the tokens of programs").await;
        browser.press("Nightly report").await;
        browser.find("//h1[text()='Audit']").await;
        lacks(&browser, &shown, "the audit of a token").await;
        browser.open(&format!("{}/console/audit?type=OperatorTokenIssued", node.url())).await;
        browser.find("//td//a[text()='OperatorTokenIssued']").await;
        browser.press("OperatorTokenIssued").await;
        browser.sees("OperatorTokenIssued at position").await;
        lacks(&browser, &shown, "the event of a token").await;
        browser.open(&format!("{}/console/operator-tokens", node.url())).await;
        browser.press("Revoke").await;
        browser.press("Revoke the token").await;
        browser.find("//td[@data-name='Status']//span[text()='Revoked']").await;
        node.operator_with(&token, "GET", "/accounts", Value::Null).await.refused(401, "E_UNAUTHORIZED");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_signs_in_through_the_identity_provider() {
    let Some(mut provider) = Provider::start().await else { return };
    let node = provider.node().await;
    provider.account(json!({"sub": "subject-7", "email": "ada@example.com", "rewards_ledger_role": "finance"})).await;
    in_browser((1440, 1_600), true, |browser| async move {
        browser.open(&format!("{}/console/login", node.url())).await;
        check(&browser, "the login with an identity provider").await;
        browser.press("Sign in with your organisation").await;
        browser.find("//h1[text()='Overview']").await;
        browser.find("//header//span[text()='finance']").await;
        browser.press("Your sign-in").await;
        browser.sees("your organisation").await;
        browser.sees("Change your password there.").await;
        check(&browser, "the sign-in of an identity provider").await;
        let operators = node.operator("GET", "/operators", Value::Null).await.data(200);
        assert_eq!(operators["operators"][0]["email"], "ada@example.com");
    })
    .await;
}
