//! Why the service has switched a webhook off.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use crate::pages::parts::values::time;

/// A deactivation of a webhook by the service, as the API returns it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Deactivation {
    /// Time since which all attempts have failed, if that is the reason.
    failing_since: Option<DateTime<Utc>>,
    deactivated_at: DateTime<Utc>,
}

impl Deactivation {
    /// Says when the service acted, and why.
    pub fn told(&self) -> Markup {
        html! {
            "The service switched this webhook off at " (time(self.deactivated_at))
            @if let Some(since) = self.failing_since { ", because every delivery since " (time(since)) " has failed" }
            "."
        }
    }
}
