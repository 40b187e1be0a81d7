//! The proof of a receipt, step by step: the signatures of the checkpoint, the place of each event in the tree, the whole story
//! of the order, and the log of today.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use poem::Response;
use serde::Deserialize;
use transparency_log::checkpoint::{Opened, Trust};
use transparency_log::merkle::{Hash, verify_consistency};
use transparency_log::note::VerifierKey;

use super::parts::position;
use crate::pages::call::Refusal;
use crate::pages::parts::timeline::Tone;
use crate::pages::parts::values::{grouped, time};
use crate::pages::parts::{layout, table};
use crate::pages::visit::Visit;
use crate::transparency::receipt::{Checked, Receipt};

/// Keys of a log, as `GET /log/:shard/keys` returns them.
#[derive(Debug, Deserialize)]
pub struct Keys {
    pub origin: String,
    pub keys: Vec<Key>,
    pub witnesses: Vec<String>,
    pub incidents: Vec<Incident>,
}

#[derive(Debug, Deserialize)]
pub struct Key {
    pub verifier_key: String,
    pub since_size: i64,
    pub since: DateTime<Utc>,
}

#[derive(Debug, Deserialize)]
pub struct Incident {
    pub position: i64,
    pub recorded_at: DateTime<Utc>,
    pub origin: String,
    pub next_origin: String,
}

/// A proof that the log has only grown, as `GET /log/:shard/proof/consistency` returns it.
#[derive(Debug, Deserialize)]
struct Consistency {
    from: u64,
    from_root: String,
    to: u64,
    to_root: String,
    proof: Vec<String>,
}

/// A receipt as the API returns it, with its wrapper.
#[derive(Deserialize)]
struct Wrapped {
    data: Receipt,
}

/// A step of a proof.
#[derive(Debug)]
struct Step {
    tone: Tone,
    title: &'static str,
    detail: Markup,
}

/// A receipt with the steps of its proof. The last step is the one that failed, if any did.
#[derive(Debug)]
pub struct Proof {
    receipt: Receipt,
    steps: Vec<Step>,
}

impl Proof {
    fn is_proven(&self) -> bool {
        self.steps.iter().all(|step| step.tone != Tone::Bad)
    }

    fn add(&mut self, tone: Tone, title: &'static str, detail: Markup) {
        self.steps.push(Step { tone, title, detail });
    }
}

/// Reads a receipt: its file, or the whole response of the API.
fn read(text: &[u8]) -> Result<Receipt, Refusal> {
    let whole = serde_json::from_slice::<Wrapped>(text).map(|wrapped| wrapped.data);
    whole.or_else(|_| serde_json::from_slice(text)).map_err(|error| {
        // The position alone: the text may be anything.
        let (line, column) = (error.line(), error.column());
        Refusal::of_field("receipt", &format!("is no receipt: the problem is at line {line}, column {column}"))
    })
}

/// Proves a receipt with the keys that this service publishes.
///
/// # Errors
/// A refusal if the text is no receipt, or if the log cannot be read. A receipt that proves nothing is no error.
pub async fn prove(visit: &Visit, text: &[u8]) -> Result<Proof, Refusal> {
    let receipt = read(text)?;
    let keys: Keys = visit.get(&format!("/log/{}/keys", receipt.shard_id)).await?;
    let parsed = |keys: &mut dyn Iterator<Item = &String>| keys.filter_map(|key| key.parse::<VerifierKey>().ok()).collect();
    let trust = Trust {
        keys: parsed(&mut keys.keys.iter().map(|key| &key.verifier_key)),
        witnesses: parsed(&mut keys.witnesses.iter()),
        quorum: 0,
    };
    let mut proof = Proof { receipt, steps: vec![] };
    let Some(checked) = check(&mut proof, &trust) else { return Ok(proof) };
    let tree = &checked.opened.checkpoint;
    if tree.origin == keys.origin {
        let path = format!("/log/{}/proof/consistency?from={}", proof.receipt.shard_id, tree.size);
        let consistency = visit.get::<Consistency>(&path).await;
        compare(&mut proof, &checked, consistency);
    } else {
        let detail = html! { "The receipt is of the origin " (tree.origin) ", which an incident has ended. The log goes on as " (keys.origin) "." };
        proof.add(Tone::Wait, "The log of today has another origin", detail);
    }
    Ok(proof)
}

/// Adds the steps that need the receipt alone. Returns `None` if one of them fails.
fn check(proof: &mut Proof, trust: &Trust) -> Option<Checked> {
    match trust.open(&proof.receipt.checkpoint) {
        Ok(opened) => proof.add(Tone::Good, "The log has signed the checkpoint", signatures(&opened)),
        Err(error) => {
            proof.add(Tone::Bad, "The checkpoint is not signed by this log", html! { (error.to_string()) });
            return None;
        }
    }
    match proof.receipt.check(trust) {
        Ok(checked) => {
            let events = html! {
                "Each of the " (checked.events) " events has a path of hashes from its bytes to the root of the tree. "
                "The readable fields say what the bytes say."
            };
            proof.add(Tone::Good, "Every event is in the tree", events);
            let story = html! {
                "No event of order " (checked.order_id.0) " up to position " (checked.last) " is missing, and no movement that they name. "
                "Later events are possible."
            };
            proof.add(Tone::Good, "The story is whole", story);
            Some(checked)
        }
        Err(error) => {
            proof.add(Tone::Bad, "The events are not proven", html! { (error.to_string()) });
            None
        }
    }
}

fn signatures(opened: &Opened) -> Markup {
    let names = |keys: &mut dyn Iterator<Item = &VerifierKey>| keys.map(VerifierKey::name).collect::<Vec<_>>().join(", ");
    html! {
        "A tree of " (grouped(&opened.checkpoint.size.to_string())) " events with the root " code { (STANDARD.encode(opened.checkpoint.root)) }
        ", signed by " (names(&mut opened.signed_by.iter())) ". "
        @if opened.cosigned_by.is_empty() { "No witness of this service has cosigned this checkpoint." }
        @else { "Cosigned by " (names(&mut opened.cosigned_by.iter().map(|(key, _)| key))) "." }
    }
}

/// Adds the comparison with the log of today.
fn compare(proof: &mut Proof, checked: &Checked, consistency: Result<Consistency, Refusal>) {
    let tree = &checked.opened.checkpoint;
    let consistency = match consistency {
        Ok(consistency) => consistency,
        Err(refusal) => {
            let detail = html! { "The tree of " (tree.size) " events cannot be compared: " (refusal.message) };
            return proof.add(Tone::Bad, "The log of today does not continue the tree", detail);
        }
    };
    let hash = |text: &String| STANDARD.decode(text).ok().and_then(|bytes| Hash::try_from(bytes).ok());
    let hashes: Option<Vec<Hash>> = consistency.proof.iter().map(hash).collect();
    let is_same = hash(&consistency.from_root) == Some(tree.root) && consistency.from == tree.size;
    let root = hash(&consistency.to_root).unwrap_or_default();
    let continues =
        hashes.is_some_and(|hashes| verify_consistency(tree.size, &tree.root, consistency.to, &root, &hashes).is_ok());
    match is_same && continues {
        true => {
            let detail = html! { "The tree has " (grouped(&consistency.to.to_string())) " events now, and it begins with that of the receipt." };
            proof.add(Tone::Good, "The log of today continues the tree", detail);
        }
        false => {
            let detail = html! { "The log shows another story than the receipt. Keep the receipt, and run " code { "rewards-ledger verify" } "." };
            proof.add(Tone::Bad, "The log of today does not continue the tree", detail);
        }
    }
}

/// Renders a proof: its result, its steps, and its events.
pub fn page(visit: &Visit, proof: &Proof) -> Response {
    let order = proof.receipt.order_id.0;
    let body = html! {
        @if proof.is_proven() {
            p.notice.good role="status" { "Proven: the receipt of order " (order) " is true to the log." }
        } @else {
            p.notice.bad role="alert" { "Not proven: the last step fails." }
        }
        h2 { "Steps" }
        ol.timeline aria-label="Steps of the proof" {
            @for step in &proof.steps {
                li .good[step.tone == Tone::Good] .bad[step.tone == Tone::Bad] .wait[step.tone == Tone::Wait] {
                    div { strong { (step.title) } }
                    div { (step.detail) }
                }
            }
        }
        h2 { "Events of the receipt" }
        (events(&proof.receipt))
        h2 { "Without trust in this page" }
        p { "This page takes the keys from the service itself. Somebody who has a key from elsewhere runs "
            code { "rewards-ledger verify --receipt receipt.json --key 'VERIFIER KEY'" } "." }
        p.actions {
            a href="/console/log" { "Transparency log" }
            a href={ "/console/orders/" (order) } { "Order " (order) }
        }
    };
    layout::page(visit, &format!("Proof of order {order}"), &body)
}

fn events(receipt: &Receipt) -> Markup {
    let columns = [
        ("Position", true),
        ("Event", false),
        ("Stream", false),
        ("Version", true),
        ("Recorded", false),
        ("Hashes in the path", true),
    ];
    let rows: Vec<_> = receipt
        .events
        .iter()
        .take(MAX_SHOWN)
        .map(|proved| {
            let event = &proved.event;
            vec![
                position(receipt.shard_id, event.position),
                html! { (event.event_type) },
                html! { (event.stream_type) " " (event.stream_id) },
                html! { (event.version) },
                time(event.recorded_at),
                html! { (proved.proof.len()) },
            ]
        })
        .collect();
    html! {
        (table::table("Events of the receipt", &columns, &rows))
        @if receipt.events.len() > MAX_SHOWN { p.quiet { "The first " (MAX_SHOWN) " of " (receipt.events.len()) " events are shown." } }
    }
}

/// Number of events on the page. All of them are proven.
const MAX_SHOWN: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_no_receipt_is_refused_with_its_place() {
        let refusal = read(b"{\n\"format\": 7}").unwrap_err();
        assert_eq!(refusal.messages["receipt"], ["is no receipt: the problem is at line 2, column 11"]);
        let receipt =
            r#"{"format":"rewards-ledger-receipt/1","order_id":7,"shard_id":1,"checkpoint":"","verifier_keys":[],"events":[]}"#;
        assert_eq!(read(receipt.as_bytes()).unwrap().order_id.0, 7);
        assert_eq!(read(format!("{{\"success\":true,\"data\":{receipt}}}").as_bytes()).unwrap().order_id.0, 7);
    }

    #[test]
    fn a_checkpoint_without_a_trusted_signature_proves_nothing() {
        let receipt =
            r#"{"format":"rewards-ledger-receipt/1","order_id":7,"shard_id":1,"checkpoint":"x","verifier_keys":[],"events":[]}"#;
        let mut proof = Proof { receipt: read(receipt.as_bytes()).unwrap(), steps: vec![] };
        assert!(check(&mut proof, &Trust::default()).is_none());
        assert!(!proof.is_proven() && proof.steps[0].tone == Tone::Bad);
    }
}
