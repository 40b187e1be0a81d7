//! Tables of the state of operations.

use maud::{Markup, html};

use super::{DueEndpoint, Endpoint, FailedEndpoint, KnownNode, LowStock, Operations, Shard, rows_or};
use crate::pages::console::parts::{audit_of, deliveries_of_shard, deliveries_of_webhook, position};
use crate::pages::parts::table;
use crate::pages::parts::values::{badge, counted, grouped, time, time_or_none};

/// Number at which the API stops to count the deliveries of a webhook.
const COUNTED: i64 = 1_000;
/// Number of webhooks at which the API cuts its lists.
const MAX_WEBHOOKS: usize = 50;

fn number(number: i64) -> Markup {
    html! { (grouped(&number.to_string())) }
}

/// Renders a number of a shard's deliveries, which leads to them.
fn leading(value: i64, target: &str) -> Markup {
    html! {
        a href=(target) {
            @if value >= super::COUNTED { "at least " }
            (number(value))
        }
    }
}

/// Renders a number of a webhook's deliveries, which leads to them.
fn at_least(value: i64, target: &str) -> Markup {
    html! {
        a href=(target) {
            @if value >= COUNTED { "at least " }
            (number(value))
        }
    }
}

/// Returns the address of the deliveries to a webhook that have failed for good.
fn failed_for_good(account: i64, webhook: i64) -> String {
    format!("/console/accounts/{account}/deliveries?webhook_url_id={webhook}&status=failed")
}

fn seconds(seconds: f64) -> Markup {
    html! { (format!("{seconds:.1}")) " s" }
}

/// Renders the shards with the times of their last progress and their queues. A shard leads to the audit of its log.
pub fn shards(shards: &[Shard]) -> Markup {
    let columns = [
        ("Shard", false),
        ("Last position", true),
        ("Last event", false),
        ("Last projection", false),
        ("Last checkpoint", false),
        ("Due", true),
        ("In flight", true),
        ("Without outcome", true),
        ("Failed for good", true),
        ("Missing", true),
        ("Attempts kept since", false),
    ];
    let row = |shard: &Shard| {
        let of_state = |value: i64, part: &str| leading(value, &deliveries_of_shard(Some(shard.shard_id), part));
        vec![
            html! { a href=(audit_of("shard_id", &shard.shard_id.to_string())) { "Shard " (shard.shard_id) } },
            position(shard.shard_id, shard.head),
            time_or_none(shard.appended_at),
            time_or_none(shard.projected_at),
            time_or_none(shard.signed_at),
            of_state(shard.due_deliveries, "due"),
            of_state(shard.in_flight_deliveries, "in_flight"),
            of_state(shard.expired_deliveries, "without_outcome"),
            of_state(shard.dead_deliveries, "failed"),
            // A verification names them.
            html! {
                @match shard.missing_deliveries {
                    Some(missing) => (leading(missing, "/console/audit-runs")),
                    None => span.quiet { "not checked here" }
                }
            },
            time_or_none(shard.oldest_attempt_at),
        ]
    };
    table::table("Shards and their deliveries", &columns, &shards.iter().map(row).collect::<Vec<_>>())
}

/// Renders the lag of each projection. The number of events behind leads to the first of them.
pub fn projections(shards: &[Shard]) -> Markup {
    let columns =
        [("Projection", false), ("Shard", false), ("Position", true), ("Events behind", true), ("Oldest waits for", true)];
    let rows: Vec<_> = shards
        .iter()
        .flat_map(|shard| shard.projections.iter().map(move |projection| (shard.shard_id, projection)))
        .map(|(shard, projection)| {
            vec![
                html! { (projection.name) },
                html! { "Shard " (shard) },
                position(shard, projection.position),
                counted(projection.behind, &format!("/console/events/{shard}/{}", projection.position + 1)),
                seconds(projection.oldest_seconds),
            ]
        })
        .collect();
    table::table("Lag of the projections", &columns, &rows)
}

/// Returns whether an attempt without a response ended at its deadline. The reason is then like "no answer within 30 s".
fn is_timeout(error: &str) -> bool {
    error.contains(" within ") && error.ends_with(" s")
}

/// Renders the webhooks whose deliveries fail, with a mark at those that hang.
pub fn endpoints(endpoints: &[Endpoint]) -> Markup {
    let columns = [
        ("Webhook", false),
        ("Account", false),
        ("Deliveries that wait", true),
        ("Most attempts of a delivery", true),
        ("Next attempt", false),
        ("Latest attempt", false),
        ("Took", true),
        ("Response", false),
    ];
    let row = |endpoint: &Endpoint| {
        vec![
            html! { a href={ "/console/replays?webhook_id=" (endpoint.webhook_id) } { "Webhook " (endpoint.webhook_id) } },
            html! { a href={ "/console/accounts/" (endpoint.account_id) } { "Account " (endpoint.account_id) } },
            at_least(endpoint.waiting, &deliveries_of_webhook(endpoint.webhook_id, "retries")),
            html! { a href=(deliveries_of_webhook(endpoint.webhook_id, "retries")) { (endpoint.attempts) } },
            time(endpoint.next_attempt_at),
            time_or_none(endpoint.attempted_at),
            html! { @match endpoint.response_time_ms { Some(took) => { (number(took)) " ms" }, None => "–" } },
            html! {
                @match (endpoint.response_status, &endpoint.error) {
                    (Some(status), _) => { "Status " (status) },
                    (None, Some(error)) => { @if is_timeout(error) { span.badge.wait { "Hangs" } " " } (error) },
                    (None, None) => "–",
                }
            },
        ]
    };
    table::table("Hanging and failing endpoints", &columns, &endpoints.iter().map(row).collect::<Vec<_>>())
}

/// Renders the webhooks with due deliveries.
pub fn due_endpoints(endpoints: &[DueEndpoint]) -> Markup {
    let columns = [("Webhook", false), ("Account", false), ("Due deliveries", true)];
    let row = |endpoint: &DueEndpoint| {
        let &DueEndpoint { webhook_id, account_id, due } = endpoint;
        vec![
            html! { a href={ "/console/replays?webhook_id=" (webhook_id) } { "Webhook " (webhook_id) } },
            html! { a href={ "/console/accounts/" (account_id) } { "Account " (account_id) } },
            at_least(due, &deliveries_of_webhook(webhook_id, "due")),
        ]
    };
    let rows: Vec<_> = endpoints.iter().map(row).collect();
    html! {
        (rows_or("No delivery is due that is not in flight.", "Due deliveries", &columns, &rows))
        (those_with_the_most(rows.len()))
    }
}

/// Renders the webhooks with deliveries that have failed for good.
pub fn failed_endpoints(endpoints: &[FailedEndpoint]) -> Markup {
    let columns = [("Webhook", false), ("Account", false), ("Failed for good", true), ("In 24 hours", true), ("Latest", false)];
    // The API looks at the latest failures of all webhooks together.
    let is_cut = endpoints.iter().map(|endpoint| endpoint.failed).sum::<i64>() > COUNTED;
    let row = |endpoint: &FailedEndpoint| {
        let &FailedEndpoint { webhook_id, account_id, failed, failed_in_all, failed_at } = endpoint;
        vec![
            html! { a href={ "/console/replays?webhook_id=" (webhook_id) } { "Webhook " (webhook_id) } },
            html! { a href={ "/console/accounts/" (account_id) } { "Account " (account_id) } },
            at_least(failed_in_all, &failed_for_good(account_id, webhook_id)),
            html! { a href=(deliveries_of_webhook(webhook_id, "failed_lately")) { @if is_cut { "at least " } (number(failed)) } },
            time(failed_at),
        ]
    };
    let rows: Vec<_> = endpoints.iter().map(row).collect();
    html! {
        (rows_or("No delivery has failed for good.", "Deliveries that failed for good", &columns, &rows))
        (those_with_the_most(rows.len()))
    }
}

/// Says that a list of webhooks may have been cut.
fn those_with_the_most(rows: usize) -> Markup {
    html! { @if rows >= MAX_WEBHOOKS { p.quiet { "The " (MAX_WEBHOOKS) " webhooks with the most are shown." } } }
}

/// Renders all nodes.
fn all_nodes(nodes: &[KnownNode]) -> Markup {
    let columns = [
        ("Host", false),
        ("Version", false),
        ("Roles", false),
        ("Started", false),
        ("Last heartbeat", false),
        ("Stalled loops", false),
        ("State", false),
    ];
    let row = |node: &KnownNode| {
        vec![
            html! { (node.host) },
            html! { (node.version) },
            html! { (node.roles.join(", ")) },
            time(node.started_at),
            time(node.beat_at),
            html! { @if node.stalled_loops.is_empty() { span.quiet { "–" } } @else { (node.stalled_loops.join(", ")) } },
            badge(&node.condition),
        ]
    };
    let rows: Vec<_> = nodes.iter().map(row).collect();
    rows_or("No node has had a heartbeat in the last hour.", "All nodes", &columns, &rows)
}

/// Renders the loops of this node, and what the database knows of all nodes.
pub fn nodes(state: &Operations) -> Markup {
    let loops: Vec<_> = state
        .node
        .loops
        .iter()
        .map(|one| {
            let status = html! { @if one.is_stalled { span class="badge bad" { "Stalled" } } @else { span class="badge good" { "Alive" } } };
            vec![html! { (one.name) }, seconds(one.heartbeat_age_seconds), status]
        })
        .collect();
    let connections: Vec<_> =
        state.connections.iter().map(|task| vec![html! { (task.name) }, number(task.connections)]).collect();
    let signers: Vec<_> = state
        .signers
        .iter()
        .map(|signer| {
            let state = html! { @match &signer.refusal { Some(reason) => { "Refuses: " (reason) }, None => (badge("ready")) } };
            vec![html! { (signer.host) }, html! { "Shard " (signer.shard_id) }, time(signer.compared_at), state]
        })
        .collect();
    let of_loops = [("Loop", false), ("Time since its round began", true), ("State", false)];
    let of_signers = [("Host", false), ("Shard", false), ("Compared with the database", false), ("State", false)];
    html! {
        (all_nodes(&state.nodes))
        h3 { "Loops of the node that shows this page" }
        (rows_or("This node runs no loops.", "Loops of this node", &of_loops, &loops))
        div.grid {
            div {
                h3 { "Connections to the database" }
                p.quiet { "A node has one connection per shard for its writer: their number is that of the nodes." }
                (rows_or("No connection is visible.", "Connections by task", &[("Task", false), ("Connections", true)], &connections))
            }
            div {
                h3 { "Nodes that sign the log" }
                (rows_or("No node has signed the log yet.", "Signing nodes", &of_signers, &signers))
            }
        }
    }
}

/// Renders the active blocks of addresses.
pub fn blocks(state: &Operations) -> Markup {
    let rows: Vec<_> = state
        .ip_blocks
        .iter()
        .map(|block| vec![html! { code { (block.ip) } }, time(block.started_at), time(block.ends_at)])
        .collect();
    html! {
        (rows_or("No address is blocked.", "Blocked addresses", &[("Address", false), ("Since", false), ("Until", false)], &rows))
        @if state.ip_block_count > i64::try_from(rows.len()).unwrap_or(i64::MAX) {
            p.quiet { "The newest of " (state.ip_block_count) " blocks are shown." }
        }
    }
}

/// Renders the denominations with low stock.
pub fn low_stock(low: &[LowStock]) -> Markup {
    let row = |low: &LowStock| {
        let link = html! { a href={ "/console/products/" (low.product_id) "/stock" } { "Product " (low.product_id) } };
        vec![link, html! { (grouped(&low.denomination)) }]
    };
    let rows: Vec<_> = low.iter().map(row).collect();
    rows_or("No stock is below its threshold.", "Low stock", &[("Product", false), ("Denomination", true)], &rows)
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::*;

    #[test]
    fn numbers_lead_to_the_events_and_deliveries_behind_them() {
        let failed_at = DateTime::<Utc>::UNIX_EPOCH;
        let failed = FailedEndpoint { webhook_id: 3, account_id: 5, failed: 1_001, failed_in_all: 1_000, failed_at };
        let markup = failed_endpoints(&[failed]).0;
        assert!(markup.contains("/console/accounts/5/deliveries?webhook_url_id=3&amp;status=failed"), "{markup}");
        assert!(markup.contains("at least "), "{markup}");
        assert!(failed_endpoints(&[]).0.contains("No delivery has failed"));
        let due = due_endpoints(&[DueEndpoint { webhook_id: 3, account_id: 5, due: 7 }]).0;
        assert!(due.contains("/console/webhooks/3/queue?part=due"), "{due}");
        let projection = super::super::Projection { name: "deliveries".to_owned(), position: 8, behind: 1, oldest_seconds: 2.0 };
        let shard = Shard {
            shard_id: 1,
            head: 9,
            appended_at: None,
            projected_at: None,
            signed_at: None,
            waiting_commands: 0,
            projections: vec![projection],
            unqueued_orders: 0,
            out_of_stock_orders: 0,
            due_deliveries: 0,
            in_flight_deliveries: 0,
            expired_deliveries: 0,
            dead_deliveries: 0,
            missing_deliveries: None,
            oldest_attempt_at: None,
        };
        let of_shard = std::slice::from_ref(&shard);
        assert!(shards(of_shard).0.contains("/console/events/1/9") && projections(of_shard).0.contains("/console/events/1/8"));
        assert!(projections(of_shard).0.contains("<a href=\"/console/events/1/9\">1</a>"), "the first event that waits");
        assert!(shards(of_shard).0.contains("/console/queue?part=without_outcome&amp;shard_id=1"));
    }

    #[test]
    fn an_endpoint_that_hangs_is_marked() {
        let at = DateTime::<Utc>::UNIX_EPOCH;
        let rendered = |response_status: Option<i16>, error: &str| {
            let (attempted_at, response_time_ms, error) = (Some(at), Some(2_000), Some(error.to_owned()));
            let (webhook_id, account_id, waiting, attempts, next_attempt_at) = (3, 5, 1, 1, at);
            endpoints(&[Endpoint {
                webhook_id,
                account_id,
                waiting,
                attempts,
                next_attempt_at,
                attempted_at,
                response_status,
                response_time_ms,
                error,
            }])
            .0
        };
        assert!(rendered(None, "no answer within 30 s").contains("Hangs"));
        assert!(!rendered(None, "connection closed before an answer").contains("Hangs"));
        assert!(!rendered(Some(500), "HTTP 500").contains("Hangs"));
    }

    #[test]
    fn a_lost_node_stands_out() {
        let at = DateTime::<Utc>::UNIX_EPOCH;
        let node = KnownNode {
            host: "<b>".to_owned(),
            version: "1".to_owned(),
            roles: vec!["api".to_owned()],
            condition: "lost".to_owned(),
            stalled_loops: vec!["writer 1".to_owned()],
            started_at: at,
            beat_at: at,
        };
        let markup = all_nodes(&[node]).0;
        assert!(markup.contains("badge bad") && markup.contains("writer 1") && !markup.contains("<b>"), "{markup}");
    }
}
