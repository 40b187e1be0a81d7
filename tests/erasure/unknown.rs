//! An erasure whose COMMIT gets no answer, with a database that stays unavailable.

use serde_json::{Value, json};
use sqlx::ConnectOptions;

use super::traces::Traces;
use super::{MARKER, beneficiary, erase, on, sound};
use crate::support::node::Node;
use crate::support::proxy::{NextCommit, Proxy};

/// In both cases, committed or not, the command ends, and following its instructions leaves nothing behind.
#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_with_an_unknown_outcome_prints_what_to_do() {
    let node = Node::start().await;
    let setup = node.setup().await;
    let (proxy, through) = Proxy::before(node.options.hosts()[0].to_url_lossy().as_str()).await;
    for (next, is_carried_out) in [(NextCommit::LosesItsAnswerForLong, true), (NextCommit::IsLostForLong, false)] {
        let id = beneficiary(&node, &setup, MARKER, &format!("{next:?}")).await;
        let head = node.head().await;
        proxy.set_away(false);
        proxy.set(next);
        let arguments = ["erase", "beneficiary", &id.to_string(), "--reason", "they asked for it", "--yes"];
        let (status, told, problem) = on(through.hosts()[0].to_url_lossy().as_str(), &arguments).await;
        assert_eq!((status, &*told), (Some(1), ""), "{problem}");
        let last = problem.lines().last().unwrap();
        let (unknown, to_do) = last.split_once(": run ").unwrap_or_else(|| panic!("{problem}"));
        assert_eq!(unknown, format!("error: it is not known whether beneficiary {id} was erased"));
        assert!(to_do.starts_with("the same command again when the database is back"), "{problem}");
        assert_eq!(node.head().await, head + i64::from(is_carried_out));

        let again = erase(&node, "beneficiary", id, &[]).await;
        let positions: &[i64] = if is_carried_out { &[] } else { &[head + 1] };
        assert_eq!(
            (&again["positions"], &again["rewritten"]),
            (&json!(positions), &json!(["public.idempotency_keys", "vault.data_keys", "vault.texts"]))
        );
        assert_eq!(node.head().await, head + 1, "it is one event");
        node.client(&setup.client, "GET", &format!("/beneficiaries/{id}"), Value::Null).await.refused(404, "E_NOT_FOUND");
        Traces::plain(&[MARKER]).are_gone(&node).await;
    }
    sound(&node).await;
}
