//! Webhooks that only fail: their deactivation, the mail to the owners, and what the pages say.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rewards_ledger::audit::{Rebuild, rebuild, verify};
use rewards_ledger::delivery::failing::Deactivator;
use rewards_ledger::delivery::replay::Replayer;
use rewards_ledger::delivery::worker::{Round, Worker};
use rewards_ledger::heartbeat::Heartbeat;
use rewards_ledger::ledger::FIRST_SHARD;
use rewards_ledger::ledger::commands::DeactivateWebhook;
use serde_json::{Value, json};
use webhook_client::receiver::{Receiver, ReceiverResponse};

use crate::support::ledger::origin;
use crate::support::mail::SmtpServer;
use crate::support::node::{Node, Setup, User};
use crate::support::shop::{DEADLINE, receiver, worker};

const DAY: Duration = Duration::from_secs(24 * 3_600);
const FIVE_DAYS: Duration = Duration::from_secs(5 * 24 * 3_600);

/// A node, and a webhook whose endpoint answers 500 or 200.
struct World {
    node: Node,
    setup: Setup,
    owner: User,
    webhook: i64,
    worker: Worker,
    works: Arc<AtomicBool>,
    receiver: Receiver,
}

impl World {
    async fn open() -> World {
        let node = Node::start().await;
        let setup = node.setup().await;
        let works = Arc::<AtomicBool>::default();
        let is_up = works.clone();
        let respond = move |_: &_| ReceiverResponse::Status(if is_up.load(Ordering::Relaxed) { 200 } else { 500 });
        let (receiver, _) = receiver(respond).await;
        let hook = json!({"name": "Shop", "url": receiver.url(), "events": ["order.created"]});
        let webhook = node.client(&setup.client, "POST", "/webhooks", hook).await.json()["id"].as_i64().unwrap();
        let owner = node.user(setup.client.account_id, "owner").await;
        let worker = worker(&node.options, &receiver, DEADLINE);
        World { node, setup, owner, webhook, worker, works, receiver }
    }

    /// Places an order, and attempts its delivery once.
    async fn attempt(&self, works: bool) {
        self.works.store(works, Ordering::Relaxed);
        let order = json!({"product_id": self.setup.product_id, "denomination": 10, "quantity": 1});
        self.node.client(&self.setup.client, "POST", "/orders", order).await.data(201);
        self.node.project().await;
        let outcome = (usize::from(works), usize::from(!works));
        let Round { delivered, failed, .. } = self.worker.once().await.unwrap();
        assert_eq!((delivered, failed), outcome);
    }

    /// Runs a round of a node. Returns how many webhooks it has deactivated.
    async fn round_of(&self, node: &Node, after: Duration) -> usize {
        let (ledger, pool) = (node.ledger.clone(), node.ledger.maintenance().clone());
        let deactivator = Deactivator { ledger, pool, after, metrics: node.metrics.clone() };
        deactivator.once(FIRST_SHARD, &Heartbeat::default()).await.unwrap()
    }

    async fn round(&self, after: Duration) -> usize {
        self.round_of(&self.node, after).await
    }

    /// Lets the webhook fail until nodes know it.
    async fn failing(&self) {
        for _ in 0..2 {
            self.attempt(false).await;
            assert_eq!(self.round(FIVE_DAYS).await, 0, "it has failed for a moment only");
        }
        assert_eq!(self.count(FAILING).await, 1);
    }

    async fn shown(&self) -> Value {
        self.node.client(&self.setup.client, "GET", &format!("/webhooks/{}", self.webhook), Value::Null).await.data(200)
    }

    async fn change(&self, body: Value) -> Value {
        self.node.client(&self.setup.client, "PUT", &format!("/webhooks/{}", self.webhook), body).await.data(200)
    }

    async fn sql(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut self.node.admin().await).await.unwrap();
    }

    async fn count(&self, sql: &'static str) -> i64 {
        super::count(self.node.ledger.pool(), sql).await
    }

    /// Lets the webhook have failed for six days. The latest failure stays where it is.
    async fn age(&self) {
        self.sql("UPDATE webhook_failures SET failing_from = failing_from - interval '6 days', from_day = from_day - 6").await;
    }

    /// Lets the webhook fail for days, and a round deactivate it.
    async fn deactivated(&self) {
        self.failing().await;
        self.age().await;
        assert_eq!(self.round(FIVE_DAYS).await, 1);
    }

    /// Returns a page as a user's browser gets it.
    async fn page(&self, path: &str, cookie: &str) -> String {
        let request = reqwest::Client::new().get(format!("{}{path}", self.node.url())).header("Cookie", cookie);
        request.send().await.unwrap().error_for_status().unwrap().text().await.unwrap()
    }
}

const FAILING: &str = "SELECT count(*) FROM webhook_failures WHERE failing_from IS NOT NULL";
const DEACTIVATIONS: &str = "SELECT count(*) FROM events WHERE type = 'WebhookUpdated' AND data->'deactivation' IS NOT NULL";

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_only_failed_for_the_time_is_deactivated_and_its_owners_get_a_mail() {
    let world = World::open().await;
    let second = world.node.user(world.setup.client.account_id, "owner").await;
    world.node.user(world.setup.client.account_id, "operator").await;
    let server = SmtpServer::start().await;
    world.attempt(true).await;
    world.attempt(false).await;
    assert_eq!(world.round(FIVE_DAYS).await, 0);
    assert_eq!(world.count(FAILING).await, 0, "a success and a failure say nothing about what came last");
    world.attempt(false).await;
    assert_eq!(world.round(FIVE_DAYS).await, 0, "it has failed for a moment only");
    assert_eq!(world.shown().await["deactivation"], Value::Null);
    world.age().await;
    assert_eq!(world.round(7 * DAY).await, 0);
    assert_eq!(world.round(FIVE_DAYS).await, 1);

    let shown = world.shown().await;
    let deactivation = &shown["deactivation"];
    assert_eq!((&shown["is_active"], &deactivation["reason"]), (&json!(false), &json!("failing")));
    assert_eq!(deactivation["deactivated_at"], shown["updated_at"]);
    let days = |time: &Value| time.as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    assert_eq!((days(&deactivation["deactivated_at"]) - days(&deactivation["failing_since"])).num_days(), 6);
    let metadata: Value = sqlx::query_scalar("SELECT metadata FROM events WHERE data->'deactivation' IS NOT NULL")
        .fetch_one(world.node.ledger.pool())
        .await
        .unwrap();
    assert_eq!((&metadata["actor"], &metadata["request_id"]), (&json!("service"), &json!("failing webhooks")));
    world.node.project().await;
    assert_eq!(
        world.count("SELECT count(*) FROM delivery_state WHERE status = 'pending'").await,
        0,
        "as when it is switched off"
    );
    let metrics = world.node.metrics.scrape(rewards_ledger::ledger::backlog::query(world.node.ledger.pool())).await.unwrap();
    assert!(metrics.contains("ledger_webhooks_deactivated_total 1\n"), "{metrics}");

    let mails = server.deliver(&world.node).await;
    let mut to: Vec<&str> = mails.iter().map(|mail| &*mail.to).collect();
    let mut owners = [&*world.owner.email, &*second.email];
    to.sort_unstable();
    owners.sort_unstable();
    assert_eq!(to, owners);
    let text = mails[0].text.replace("=\n", "");
    for part in ["Shop", "was switched off", &format!("/portal/webhooks/{}\n", world.webhook)] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains(&world.receiver.url()), "{text}");
    assert_eq!(world.round(Duration::ZERO).await, 0);
    assert_eq!(server.deliver(&world.node).await, []);
    assert_eq!(world.count(DEACTIVATIONS).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_is_switched_on_again_has_the_whole_time_again() {
    let world = World::open().await;
    world.deactivated().await;
    let renamed = world.change(json!({"name": "Till"})).await;
    assert_eq!((&renamed["is_active"], &renamed["deactivation"]["reason"]), (&json!(false), &json!("failing")));
    // Another round may or may not see the webhook while it is off.
    for sees_it_off in [false, true] {
        if sees_it_off {
            assert_eq!(world.round(FIVE_DAYS).await, 0);
        }
        let on = world.change(json!({"is_active": true})).await;
        assert_eq!((&on["is_active"], &on["deactivation"]), (&json!(true), &Value::Null));
        world.age().await;
        assert_eq!(world.round(FIVE_DAYS).await, 0);
        assert_eq!(world.count(FAILING).await, 0, "the failures from before do not count");
        world.attempt(false).await;
        assert_eq!(world.round(FIVE_DAYS).await, 0);
        assert_eq!(world.count(FAILING).await, 1);
        world.age().await;
        assert_eq!(world.round(FIVE_DAYS).await, 1);
    }
    world.change(json!({"is_active": true})).await;
    let off = world.change(json!({"is_active": false})).await;
    assert_eq!(off["deactivation"], Value::Null, "a request did it");
    assert_eq!(world.count(DEACTIVATIONS).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_success_a_change_and_silence_protect_a_webhook() {
    let world = World::open().await;
    world.failing().await;
    world.age().await;
    world.attempt(true).await;
    assert_eq!(world.round(FIVE_DAYS).await, 0, "a success");
    assert_eq!(world.count(FAILING).await, 0);

    world.failing().await;
    world.age().await;
    world.change(json!({"name": "Till"})).await;
    assert_eq!(world.round(FIVE_DAYS).await, 0, "a change");
    assert_eq!(world.count(FAILING).await, 0);

    world.failing().await;
    world.age().await;
    world.sql("UPDATE webhook_failures SET failed_at = failed_at - interval '25 hours'").await;
    world.attempt(false).await;
    assert_eq!(world.round(FIVE_DAYS).await, 0, "two failures with a day of silence between them");
    assert_eq!(world.count(FAILING).await, 0);
    world.failing().await;
    world.age().await;
    assert_eq!(world.round(FIVE_DAYS).await, 1, "only failures");
}

/// Days that are counted no more, and old successes, say nothing about a webhook that fails now.
#[tokio::test(flavor = "multi_thread")]
async fn old_days_do_not_count() {
    let world = World::open().await;
    world.attempt(false).await;
    assert_eq!(world.round(FIVE_DAYS).await, 0);
    world.attempt(true).await;
    world.sql("UPDATE delivery_days SET day = day - 390; UPDATE webhook_failures SET from_day = from_day - 390").await;
    assert_eq!(world.round(FIVE_DAYS).await, 0, "it has just worked");
    let recent = "SELECT count(*) FROM webhook_failures WHERE from_day >= current_date - 2 AND delivered = 0 AND failed = 0";
    assert_eq!(world.count(recent).await, 1, "its counts begin again");
    world.failing().await;
    world.age().await;
    world.sql("DELETE FROM delivery_days WHERE day < current_date - 30").await;
    assert_eq!(world.round(FIVE_DAYS).await, 1);
}

/// A clock that jumps ahead, or back and then ahead, makes a webhook older by the time of a round.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_deactivates_nothing() {
    let world = World::open().await;
    world.failing().await;
    for jump in [
        "UPDATE webhook_failure_time SET seen_at = seen_at - interval '6 days'",
        "UPDATE webhook_failure_time SET seen_at = seen_at + interval '6 days'",
    ] {
        world.sql(jump).await;
        world.attempt(false).await;
        assert_eq!(world.round(DAY).await, 0, "{jump}");
        let old = "SELECT count(*) FROM webhook_failures, webhook_failure_time WHERE observed - failing_from > interval '1 hour'";
        assert_eq!((world.count(FAILING).await, world.count(old).await), (1, 0), "{jump}");
    }
    // A row that was written while the clock was ahead does not keep the webhook from being judged.
    world.sql("UPDATE webhook_failures SET from_day = from_day + 30").await;
    assert_eq!(world.round(DAY).await, 0);
    world.failing().await;
    world.age().await;
    assert_eq!(world.round(DAY).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deactivation_ends_replays_and_a_later_one_delivers_what_was_missed() {
    let world = World::open().await;
    world.failing().await;
    let path = format!("/webhooks/{}/replays", world.webhook);
    let replay = async |only: &str| {
        let request = json!({"since": "2026-01-01T00:00:00Z", "only": only});
        world.node.client(&world.setup.client, "POST", &path, request).await
    };
    replay("missed").await.data(201);
    world.age().await;
    assert_eq!(world.round(FIVE_DAYS).await, 1);
    let replays = world.node.client(&world.setup.client, "GET", &path, Value::Null).await.data(200)["replays"].clone();
    assert_eq!(replays[0]["status"], "FAILED", "{replays}");
    replay("missed").await.refused(409, "E_WEBHOOK_INACTIVE");

    let order = json!({"product_id": world.setup.product_id, "denomination": 10, "quantity": 1});
    world.node.client(&world.setup.client, "POST", "/orders", order).await.data(201);
    world.node.project().await;
    world.change(json!({"is_active": true})).await;
    replay("missed").await.data(201);
    world.node.project().await;
    let replayer = Replayer { ledger: world.node.ledger.clone(), pool: world.node.ledger.pool().clone() };
    replayer.once(FIRST_SHARD).await.unwrap();
    world.node.project().await;
    world.works.store(true, Ordering::Relaxed);
    let Round { delivered, failed, .. } = world.worker.once().await.unwrap();
    assert_eq!((delivered, failed), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_make_one_event_and_one_mail() {
    let world = World::open().await;
    let other = world.node.beside(crate::support::node::AMPLE_LIMITS.parse().unwrap()).await;
    let version = async || {
        let version = sqlx::query_scalar("SELECT version FROM webhooks").fetch_one(world.node.ledger.pool()).await;
        version.unwrap()
    };
    let late = DeactivateWebhook {
        account_id: ledger_events::AccountId(world.setup.client.account_id),
        webhook_id: ledger_events::WebhookId(world.webhook),
        version: version().await,
        failing_since: chrono::Utc::now(),
    };
    world.change(json!({"name": "Till"})).await;
    assert!(world.node.ledger.execute(FIRST_SHARD, late.clone(), origin()).await.is_err(), "it was changed meanwhile");
    assert_eq!(world.shown().await["is_active"], true);

    world.failing().await;
    world.age().await;
    // Both nodes have judged the webhook before either acts.
    let judged = DeactivateWebhook { version: version().await, ..late };
    let [one, two] = [&world.node, &other].map(|node| node.ledger.execute(FIRST_SHARD, judged.clone(), origin()));
    let (one, two) = tokio::join!(one, two);
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
    let (one, two) = tokio::join!(world.round_of(&world.node, FIVE_DAYS), world.round_of(&other, FIVE_DAYS));
    assert_eq!((one, two), (0, 0));
    assert_eq!(world.count(DEACTIVATIONS).await, 1);
    assert_eq!(world.count("SELECT count(*) FROM vault.mails").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deactivation_is_verified_and_rebuilt() {
    let world = World::open().await;
    world.deactivated().await;
    world.node.project().await;
    let deactivation = world.shown().await["deactivation"].clone();
    let report = verify(&world.node.options, |_| {}).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.differences);
    world.sql("DELETE FROM webhook_deactivations").await;
    let report = verify(&world.node.options, |_| {}).await.unwrap();
    let found: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
    assert!(found.len() == 1 && found[0].contains("webhook_deactivations 1 is missing"), "{found:#?}");
    rebuild(&world.node.options, Rebuild::parse("webhooks").unwrap(), |_| {}).await.unwrap();
    assert_eq!(world.shown().await["deactivation"], deactivation);
    assert!(verify(&world.node.options, |_| {}).await.unwrap().is_clean());

    // A node of an earlier release switches the webhook on without this table.
    world.sql("UPDATE webhooks SET is_active = true").await;
    assert_eq!(world.shown().await["deactivation"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_say_why_a_webhook_is_off_and_what_to_do() {
    let world = World::open().await;
    let (portal, console) = (format!("/portal/webhooks/{}", world.webhook), format!("/console/webhooks/{}", world.webhook));
    let operator = world.node.console_user(rewards_ledger::access::Role::Auditor).await;
    let said = "has failed.";
    world.failing().await;
    assert!(!world.page(&portal, &world.owner.cookie).await.contains(said));
    world.age().await;
    assert_eq!(world.round(FIVE_DAYS).await, 1);
    let page = world.page(&portal, &world.owner.cookie).await;
    for text in [said, "after failures", "repair it", "Switch on", &format!("{portal}/replays")] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(world.page("/portal/webhooks", &world.owner.cookie).await.contains("after failures"));
    let overview = world.page("/portal", &world.owner.cookie).await;
    assert!(overview.contains("1 webhook was switched off, because all deliveries failed"), "{overview}");
    assert!(!overview.contains("webhook is switched off"), "{overview}");
    let page = world.page(&console, &operator.cookie).await;
    assert!(page.contains(said) && page.contains("after failures"), "{page}");
}
