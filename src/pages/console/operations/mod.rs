//! The state of operations: alerts, shards, queues, loops, endpoints that hang or fail, replays, and plots of the throughput.

mod plots;
mod shards;
mod tables;

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde::Deserialize;

use super::replays::{self, Replay};
use super::{erasures, parts};
use crate::pages::call::Refusal;
use crate::pages::outcome::PageResult;
use crate::pages::parts::values::{figure, grouped};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::Visit;

/// The state of operations, as `GET /admin/v1/operations` returns it.
#[derive(Debug, Deserialize)]
struct Operations {
    node: Node,
    nodes: Vec<KnownNode>,
    minutes: Vec<Minute>,
    connections: Vec<Connections>,
    signers: Vec<Signer>,
    shards: Vec<Shard>,
    endpoints: Vec<Endpoint>,
    due_endpoints: Vec<DueEndpoint>,
    failed_endpoints: Vec<FailedEndpoint>,
    days: Vec<Day>,
    replays: Vec<Replay>,
    unwiped_tables: Vec<String>,
    ip_block_count: i64,
    ip_blocks: Vec<IpBlock>,
    low_stock: Vec<LowStock>,
    alerts: Vec<Alert>,
}

#[derive(Debug, Deserialize)]
struct Node {
    problem: Option<String>,
    loops: Vec<Loop>,
}

#[derive(Debug, Deserialize)]
struct KnownNode {
    host: String,
    version: String,
    roles: Vec<String>,
    condition: String,
    stalled_loops: Vec<String>,
    started_at: DateTime<Utc>,
    beat_at: DateTime<Utc>,
}

#[derive(Debug, Deserialize)]
struct Loop {
    name: String,
    heartbeat_age_seconds: f64,
    is_stalled: bool,
}

#[derive(Debug, Deserialize)]
struct Minute {
    minute: DateTime<Utc>,
    requests: i64,
    failed_requests: i64,
    events: i64,
    delivered_attempts: i64,
    failed_attempts: i64,
    average_ms: Option<i64>,
    longest_ms: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct Connections {
    name: String,
    connections: i64,
}

#[derive(Debug, Deserialize)]
struct Signer {
    shard_id: i16,
    host: String,
    compared_at: DateTime<Utc>,
    refusal: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Shard {
    shard_id: i16,
    head: i64,
    appended_at: Option<DateTime<Utc>>,
    projected_at: Option<DateTime<Utc>>,
    signed_at: Option<DateTime<Utc>>,
    waiting_commands: i64,
    projections: Vec<Projection>,
    unqueued_orders: i64,
    out_of_stock_orders: i64,
    due_deliveries: i64,
    in_flight_deliveries: i64,
    expired_deliveries: i64,
    dead_deliveries: i64,
    missing_deliveries: Option<i64>,
    oldest_attempt_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Deserialize)]
struct Projection {
    name: String,
    position: i64,
    behind: i64,
    oldest_seconds: f64,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    webhook_id: i64,
    account_id: i64,
    waiting: i64,
    attempts: i16,
    next_attempt_at: DateTime<Utc>,
    attempted_at: Option<DateTime<Utc>>,
    response_status: Option<i16>,
    response_time_ms: Option<i64>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct DueEndpoint {
    webhook_id: i64,
    account_id: i64,
    due: i64,
}

#[derive(Debug, Deserialize)]
struct FailedEndpoint {
    webhook_id: i64,
    account_id: i64,
    failed: i64,
    failed_in_all: i64,
    failed_at: DateTime<Utc>,
}

#[derive(Debug, Deserialize)]
struct Day {
    day: String,
    attempts: i64,
    delivered: i64,
    average_ms: Option<i64>,
    longest_ms: i64,
}

#[derive(Debug, Deserialize)]
struct IpBlock {
    ip: String,
    started_at: DateTime<Utc>,
    ends_at: DateTime<Utc>,
}

#[derive(Debug, Deserialize)]
struct LowStock {
    product_id: i64,
    denomination: String,
}

#[derive(Debug, Deserialize)]
struct Alert {
    name: String,
    severity: String,
    summary: String,
}

/// Number at which the API stops to count a queue.
const COUNTED: i64 = 10_001;
/// Orders that fulfilment has not taken up.
const PENDING_ORDERS: &str = "/console/orders?status=PENDING";

pub fn add(site: Site) -> Site {
    shards::add(site.get("/console/operations", show))
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    show_with(&visit, None).await
}

/// Renders the page, with the refusal of a change of the shards.
async fn show_with(visit: &Visit, refusal: Option<&Refusal>) -> PageResult {
    let state: Operations = visit.get("/admin/v1/operations").await?;
    let shards = shards::section(visit).await?;
    let body = html! {
        (layout::live(visit))
        (layout::problem(refusal))
        p.actions {
            // Only browsers without scripts need it.
            a.button.plain href="/console/operations" data-reload { "Reload" }
            a href="/console/attempts" { "Delivery attempts" }
            a href="/console/replays" { "Replays" }
            a href="/console/erasures" { "Erasures" }
            a href="/console/log" { "Transparency log" }
            a href="/console/audit-runs" { "Verify and rebuild" }
        }
        (content(&state, &shards))
    };
    let page = layout::page(visit, "Operations", &body);
    Ok(match refusal {
        Some(refusal) => layout::refused(page, refusal),
        None => page,
    })
}

/// Renders the state, with the section of the shards. Each number leads to what it counts. The commands that wait lead nowhere,
/// because they are not events yet.
fn content(state: &Operations, shards: &Markup) -> Markup {
    // A queue is counted up to a limit.
    let sum = |value: fn(&Shard) -> i64, limit: i64| {
        let sum: i64 = state.shards.iter().map(value).sum();
        let is_limited = state.shards.iter().any(|shard| value(shard) >= limit);
        html! { @if is_limited { "at least " } (grouped(&sum.to_string())) }
    };
    let leading = |value: fn(&Shard) -> i64, target: &str| html! { a href=(target) { (sum(value, COUNTED)) } };
    html! {
        (alerts(state))
        div.figures #queues {
            (figure("Events", &html! { a href=(audit_of(&state.shards)) { (sum(|shard| shard.head, i64::MAX)) } }))
            (figure("Commands that wait", &sum(|shard| shard.waiting_commands, i64::MAX)))
            (figure("Orders to take up", &leading(|shard| shard.unqueued_orders, PENDING_ORDERS)))
            (figure("Orders without stock", &html! {
                (sum(|shard| shard.out_of_stock_orders, COUNTED)) " "
                small {
                    "(" a href="/console/orders?status=DELAYED" { "delayed" } " or "
                    a href="/console/orders?status=PARTIALLY_DELIVERED" { "delivered in part" } ")"
                }
            }))
            (figure("Deliveries due", &leading(|shard| shard.due_deliveries, &parts::deliveries_of_shard(None, "due"))))
            (figure("Deliveries in flight", &leading(|shard| shard.in_flight_deliveries, &parts::deliveries_of_shard(None, "in_flight"))))
            (figure("Deliveries failed for good", &leading(|shard| shard.dead_deliveries, &parts::deliveries_of_shard(None, "failed"))))
        }
        h2 #shards { "Shards" }
        (tables::shards(&state.shards))
        (shards)
        section #projections { (tables::projections(&state.shards)) }
        h2 #throughput { "Throughput and latency" }
        (plots::minutes(&state.minutes))
        (plots::days(&state.days))
        h2 { "Hanging and failing endpoints" }
        @if state.endpoints.is_empty() { p.quiet { "No webhook has a failed attempt that waits to be repeated." } }
        @else { (tables::endpoints(&state.endpoints)) }
        h3 { "Due deliveries by webhook" }
        (tables::due_endpoints(&state.due_endpoints))
        h3 { "Deliveries that failed for good by webhook" }
        (tables::failed_endpoints(&state.failed_endpoints))
        h2 { "Work in progress" }
        @if state.replays.is_empty() { p.quiet { "No replay is running." } }
        @else { (replays::rows("Running replays", &state.replays, false)) }
        (erasures::unwiped(&state.unwiped_tables))
        h2 #nodes { "Nodes" }
        (tables::nodes(state))
        h2 { "Blocks and stock" }
        (tables::blocks(state))
        section #low-stock { (tables::low_stock(&state.low_stock)) }
    }
}

/// Returns the address of all events: the audit of the only shard, or the table of the shards, whose rows lead to their audits.
fn audit_of(shards: &[Shard]) -> String {
    if let [shard] = shards { parts::audit_of("shard_id", &shard.shard_id.to_string()) } else { "#shards".to_owned() }
}

/// Returns the address of what an alert of `deploy/alerts.yml` is about. A few alerts are about what only metrics show.
fn cause_of(alert: &str) -> Option<&'static str> {
    Some(match alert {
        "LedgerTreeRefused" | "LedgerMasterKeyUnusable" | "LedgerLoopStalled" | "LedgerHandoversUnknown" | "LedgerDown" => {
            "#nodes"
        }
        // The numbers of a shard lead to its own deliveries.
        "LedgerDeliveryMissing" | "LedgerDeliveryHealthUnknown" | "LedgerDeliveriesPile" | "LedgerHeadAheadOfClock" => "#shards",
        "LedgerRequestsFail" => "#throughput",
        "LedgerProjectionBehind" => "#projections",
        // The orders without stock are in two lists, to which their figure leads.
        "LedgerQueueFills" | "LedgerOutOfStock" => "#queues",
        "LedgerOrdersWait" => PENDING_ORDERS,
        "LedgerStockLow" => "#low-stock",
        "LedgerSupplierFails" | "LedgerSupplierOverdue" => "/console/purchases",
        _ => return None,
    })
}

/// Renders an alert. Its summary leads to what it is about.
fn alert(alert: &Alert) -> Markup {
    html! {
        div.notice .bad[alert.severity == "page"] .wait[alert.severity != "page"] {
            p {
                strong { (alert.name) } " "
                @match cause_of(&alert.name) { Some(cause) => a href=(cause) { (alert.summary) }, None => (alert.summary) }
            }
        }
    }
}

/// Renders the alerts that hold, the readiness of the node first.
fn alerts(state: &Operations) -> Markup {
    html! {
        @if let Some(problem) = &state.node.problem {
            div.notice.bad { p { strong { "This node is not ready. " } a href="#nodes" { (problem) } } }
        }
        section #alerts {
            @for alert in &state.alerts { (self::alert(alert)) }
            @if state.alerts.is_empty() && state.node.problem.is_none() {
                p.notice.good { "No condition of an alert holds, as far as this node and the database know." }
            }
        }
    }
}

/// Renders a table, or a sentence if it has no rows.
fn rows_or(nothing: &str, caption: &str, columns: &[table::Column], rows: &[Vec<Markup>]) -> Markup {
    html! { @if rows.is_empty() { p.quiet { (nothing) } } @else { (table::table(caption, columns, rows)) } }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    /// Alerts about what only metrics show: the times of requests, the lock of the head, and jumps of a clock.
    const OF_METRICS: [&str; 3] = ["LedgerClockJumped", "LedgerHeadHeld", "LedgerRequestsSlow"];

    #[test]
    fn each_alert_leads_to_what_it_is_about() {
        let file = include_str!("../../../../deploy/alerts.yml");
        let names: BTreeSet<&str> = file.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
        let without_place: Vec<&str> = names.iter().copied().filter(|name| cause_of(name).is_none()).collect();
        assert_eq!((without_place.as_slice(), names.len() > 10), (OF_METRICS.as_slice(), true));
        let empty = json!({"node": {"problem": null, "loops": []}, "nodes": [], "minutes": [], "connections": [], "signers": [],
            "shards": [], "endpoints": [], "due_endpoints": [], "failed_endpoints": [], "days": [], "replays": [],
            "unwiped_tables": [], "ip_block_count": 0, "ip_blocks": [], "low_stock": [], "alerts": []});
        let page = content(&serde_json::from_value(empty).unwrap(), &html! {}).0;
        for place in names.into_iter().filter_map(cause_of) {
            let is_on = |id: &str| page.contains(&format!(" id=\"{id}\""));
            assert!(place.strip_prefix('#').is_none_or(is_on), "{place}");
        }
        let low = Alert { name: "LedgerStockLow".to_owned(), severity: "warn".to_owned(), summary: "<b>".to_owned() };
        let markup = alert(&low).0;
        assert!(markup.contains("<a href=\"#low-stock\">&lt;b&gt;</a>") && markup.contains("notice wait"), "{markup}");
    }
}
