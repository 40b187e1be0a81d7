//! The program itself, run as its users run it.

mod audit;
mod audit_log;
mod catalogue;
mod demo;
mod embedded;
mod forward;
mod help;
mod lost;
mod operators;
mod payouts;
mod profiles;
mod promises;
mod remote;
mod repeated;
mod roles;
mod sandbox;
mod secrets;
mod serve;
mod terminal;
mod tokens;
mod webhooks;

use std::process::Output;

use crate::support::program::{program, run};
use crate::support::wait::until;

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Creates a directory that the embedded server's user can enter as well.
fn directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
    directory
}

/// Waits until the portal's page of sent mails shows all these texts to the user of this cookie.
async fn outbox_shows(base: &str, cookie: &str, texts: &[&str]) {
    let http = reqwest::Client::new();
    until(&format!("the outbox shows {texts:?}"), async || {
        let page = http.get(format!("{base}/portal/outbox")).header("Cookie", cookie).send().await.unwrap();
        assert_eq!((page.status().as_u16(), page.url().path()), (200, "/portal/outbox"));
        let page = page.text().await.unwrap();
        texts.iter().all(|text| page.contains(*text))
    })
    .await;
}
