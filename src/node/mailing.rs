//! The loop of a node that sends mails to users.

use std::sync::Arc;

use super::Node;
use crate::config::{Config, Role};
use crate::mail::{Mailer, Sender, Site};
use crate::secrets::seal::Keyring;
use crate::telemetry::Metrics;

impl Node {
    /// Starts the loop that sends mails, on nodes that also send webhooks.
    pub(super) fn start_mail(
        &self,
        config: &Config,
        sender: Sender,
        portal_url: &str,
        keyring: &Arc<Keyring>,
        metrics: &Metrics,
    ) {
        if config.roles.include(Role::Delivery) {
            let site = Site { portal_url: portal_url.to_owned() };
            let (pool, sender, keeps_sent) = (self.ledger.maintenance().clone(), Arc::new(sender), config.keeps_sent_mails());
            let shards = self.ledger.shard_watch().clone();
            let mailer = Mailer { pool, shards, keyring: keyring.clone(), sender, site, keeps_sent, metrics: metrics.clone() };
            self.roles.spawn(mailer.run(self.ledger.heartbeats().background("mail"), self.stop_roles.clone()));
        }
    }
}
