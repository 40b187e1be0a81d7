//! The pages: the client portal under `/portal`, and the operators' console under `/console`.
//!
//! A page is a client of this node's own API. It calls the same operations as a program does, as the user who is signed
//! in, through [`visit::Visit`]. So a page has the roles, the validation, the events and the actor of the API, and no other
//! way to a table: this module imports nothing of the ledger.
//!
//! | File | Contents |
//! |---|---|
//! | `site.rs` | the list of routes |
//! | `visit.rs`, `call.rs`, `form.rs` | a request, the calls of the API, the fields of a form |
//! | `progress.rs` | pages of long work, which show its progress before its outcome |
//! | `sign_in.rs` | signing in and out, for both kinds of pages |
//! | `parts/` | the design system: layout, tables, fields, badges, money, times |
//! | `shared/` | things that both kinds of pages show alike: orders, their stories, deliveries |
//! | `assets/` | the style sheet and the script |
//! | `portal/`, `console/` | one file per page or group of pages |

mod assets;
mod call;
mod console;
mod form;
mod one_click;
mod outcome;
mod parts;
mod portal;
mod progress;
mod shared;
mod sign_in;
mod site;
mod visit;

use std::sync::Arc;

use poem::http::Method;
use tokio_util::sync::CancellationToken;

use crate::access::one_click::OneClick;
use crate::api::{Inner, Pages, STARTS};
use crate::heartbeat::Heartbeats;
use outcome::redirect;

/// Properties of the service that decide which pages there are.
#[derive(Clone, Debug)]
pub struct PageSettings {
    /// Path of the start page, to which `/` and `/login` lead.
    pub start: &'static str,
    /// Whether the console offers a sign-in through OpenID Connect.
    pub has_open_id: bool,
    /// Service name in the headers of deliveries.
    pub service_name: Arc<str>,
    /// Users whom links sign in, in the demo.
    pub one_click: Option<OneClick>,
}

impl Default for PageSettings {
    fn default() -> PageSettings {
        PageSettings { start: "/portal", has_open_id: false, service_name: "SERVICE".into(), one_click: None }
    }
}

/// Builds all pages on top of the API. Their streams end when `stop` is cancelled.
pub fn build(api: Inner, settings: PageSettings, heartbeats: Heartbeats, stop: CancellationToken) -> Pages {
    let PageSettings { start, has_open_id, service_name, one_click } = settings;
    let site = one_click::add(site::Site::new(api), one_click);
    let site = STARTS.into_iter().fold(site, |site, path| site.get(path, move |_| std::future::ready(Ok(redirect(start)))));
    let site = portal::add(site, service_name.clone(), heartbeats, stop.clone());
    console::add(site, has_open_id, service_name, stop).finish()
}

/// Returns the routes of all pages and assets: paths as in an OpenAPI document, each with its methods.
pub fn routes() -> Vec<(String, Vec<Method>)> {
    build(Inner::closed(), PageSettings::default(), Heartbeats::default(), CancellationToken::new()).methods
}
