//! Tables of the state of operations.

use maud::{Markup, html};

use super::{Endpoint, LowStock, Operations, Shard, rows_or};
use crate::pages::parts::table;
use crate::pages::parts::values::{badge, grouped, time, time_or_none};

fn number(number: i64) -> Markup {
    html! { (grouped(&number.to_string())) }
}

fn seconds(seconds: f64) -> Markup {
    html! { (format!("{seconds:.1}")) " s" }
}

/// Renders the shards with their last signs of life and their queues.
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
        vec![
            html! { "Shard " (shard.shard_id) },
            number(shard.head),
            time_or_none(shard.appended_at),
            time_or_none(shard.projected_at),
            time_or_none(shard.signed_at),
            number(shard.due_deliveries),
            number(shard.in_flight_deliveries),
            number(shard.expired_deliveries),
            number(shard.dead_deliveries),
            html! { @match shard.missing_deliveries { Some(missing) => (number(missing)), None => span.quiet { "not checked here" } } },
            time_or_none(shard.oldest_attempt_at),
        ]
    };
    table::table("Shards and their deliveries", &columns, &shards.iter().map(row).collect::<Vec<_>>())
}

/// Renders the lag of each projection.
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
                number(projection.position),
                number(projection.behind),
                seconds(projection.oldest_seconds),
            ]
        })
        .collect();
    table::table("Lag of the projections", &columns, &rows)
}

/// Renders the webhooks whose deliveries fail.
pub fn endpoints(endpoints: &[Endpoint]) -> Markup {
    let columns = [
        ("Webhook", false),
        ("Account", false),
        ("Deliveries that wait", true),
        ("Attempts so far", true),
        ("Next attempt", false),
    ];
    let row = |endpoint: &Endpoint| {
        vec![
            html! { a href={ "/console/replays?webhook_id=" (endpoint.webhook_id) } { "Webhook " (endpoint.webhook_id) } },
            html! { a href={ "/console/accounts/" (endpoint.account_id) } { "Account " (endpoint.account_id) } },
            html! { @if endpoint.waiting >= 1_000 { "at least " } (number(endpoint.waiting)) },
            html! { (endpoint.attempts) },
            time(endpoint.next_attempt_at),
        ]
    };
    table::table("Failing endpoints", &columns, &endpoints.iter().map(row).collect::<Vec<_>>())
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
