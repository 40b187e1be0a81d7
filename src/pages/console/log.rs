//! The transparency log: its checkpoints with the witnesses' cosignatures, its keys, and the proof of an order's receipt.

use maud::{Markup, html};
use poem::Response;
use poem::http::StatusCode;

use super::checkpoints::{self, Checkpoints};
use super::parts::{key_name, position};
use super::proof::{self, Keys, Proof};
use crate::pages::call::Refusal;
use crate::pages::form::Form;
use crate::pages::outcome::PageResult;
use crate::pages::parts::fields::Filled;
use crate::pages::parts::values::{copyable, facts, time};
use crate::pages::parts::{layout, table};
use crate::pages::site::Site;
use crate::pages::visit::{Visit, corrected};

/// The parts of a checkpoint that a person reads. The page of a proof verifies signatures; this one only shows them.
#[derive(Debug, PartialEq, Eq)]
struct Checkpoint {
    origin: String,
    size: String,
    root: String,
    /// Names of those that have signed: the log and its witnesses.
    signers: Vec<String>,
}

impl Checkpoint {
    /// Reads a signed note: three lines, an empty one, and a line for each signature.
    fn read(note: &str) -> Option<Checkpoint> {
        let (text, signatures) = note.split_once("\n\n")?;
        let mut lines = text.lines().map(ToOwned::to_owned);
        let signers = signatures.lines().filter_map(|line| Some(line.strip_prefix("— ")?.split_once(' ')?.0.to_owned()));
        Some(Checkpoint { origin: lines.next()?, size: lines.next()?, root: lines.next()?, signers: signers.collect() })
    }

    fn is_signed_by(&self, verifier_key: &str) -> bool {
        self.signers.iter().any(|signer| signer == key_name(verifier_key))
    }
}

/// Everything that the page shows of a log.
struct Shown {
    shard: i16,
    keys: Keys,
    note: String,
    checkpoint: Checkpoint,
    published: Checkpoints,
}

pub fn add(site: Site) -> Site {
    site.get("/console/log", show).get("/console/log/proof", prove_order).post("/console/log/proof", prove_receipt)
}

/// Reads a log; `None` while it has no checkpoint.
async fn load(visit: &Visit, shard: &str) -> Result<Option<Shown>, Refusal> {
    let shard: i16 = shard.parse().map_err(|_| Refusal::of_field("shard", "must be the number of a shard"))?;
    let (keys, checkpoint) = (format!("/log/{shard}/keys"), format!("/log/{shard}/checkpoint"));
    match futures::try_join!(visit.get::<Keys>(&keys), visit.bytes(&checkpoint, "text/plain")) {
        Ok((keys, note)) => {
            let note = String::from_utf8_lossy(&note.into_bytes()).into_owned();
            let checkpoint = Checkpoint::read(&note).ok_or_else(|| Refusal::of_field("shard", "has an unreadable checkpoint"))?;
            let published = checkpoints::load(visit, shard).await?;
            Ok(Some(Shown { shard, keys, note, checkpoint, published }))
        }
        Err(refusal) if refusal.status == StatusCode::NOT_FOUND => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

fn shard(form: &Form) -> &str {
    form.text("shard").unwrap_or("1")
}

async fn show(visit: Visit) -> PageResult {
    visit.operator()?;
    match load(&visit, shard(&visit.query)).await {
        Ok(shown) => Ok(page(&visit, shown.as_ref(), &visit.query, None)),
        Err(refusal) => corrected(refusal, |refusal| layout::refused(page(&visit, None, &visit.query, Some(refusal)), refusal)),
    }
}

/// Proves the receipt of an order as the service issues it now.
async fn prove_order(visit: Visit) -> PageResult {
    visit.operator()?;
    let receipt = async {
        let order: i64 = visit.query.value("order_id").parse().map_err(|_| Refusal::of_field("order_id", "must be a number"))?;
        let receipt = visit.bytes(&format!("/admin/v1/orders/{order}/receipt"), "application/json").await;
        receipt.map_err(|refusal| match refusal.status {
            StatusCode::NOT_FOUND => Refusal::of_field("order_id", "is unknown"),
            _ => refusal,
        })
    };
    let proof = async { proof::prove(&visit, &receipt.await?.into_bytes()).await };
    proved(&visit, &visit.query, proof.await).await
}

/// Proves a receipt that was pasted or chosen as a file.
async fn prove_receipt(visit: Visit) -> PageResult {
    visit.operator()?;
    let file = visit.files.iter().find(|(name, content)| name == "file" && !content.is_empty());
    let receipt = file.map_or_else(|| visit.form.value("receipt").as_bytes(), |(_, content)| content);
    let proof = match receipt.is_empty() {
        true => Err(Refusal::of_field("receipt", "is required, or a file")),
        false => proof::prove(&visit, receipt).await,
    };
    proved(&visit, &visit.form, proof).await
}

/// Shows a proof, or the page of the log again if there is none.
async fn proved(visit: &Visit, form: &Form, proof: Result<Proof, Refusal>) -> PageResult {
    match proof {
        Ok(proof) => Ok(proof::page(visit, &proof)),
        Err(refusal) if !refusal.is_correctable() => Err(refusal.into()),
        Err(refusal) => {
            let shown = load(visit, "1").await?;
            Ok(layout::refused(page(visit, shown.as_ref(), form, Some(&refusal)), &refusal))
        }
    }
}

fn page(visit: &Visit, shown: Option<&Shown>, form: &Form, refusal: Option<&Refusal>) -> Response {
    let fields = Filled { form, refusal };
    let body = html! {
        (layout::problem(refusal))
        p { "A Merkle tree over the log proves that nobody has changed the past. " a href="/docs/guides/transparency" { "The transparency log" } }
        (table::filters("/console/log", &fields.input("shard", "Shard", "search", "")))
        @match shown {
            Some(shown) => (checkpoint(shown)),
            None => (table::empty("The log of this shard has no checkpoint yet. A node with the role projector signs it.", None)),
        }
        h2 { "Prove the receipt of an order" }
        div.grid {
            form.card method="get" action="/console/log/proof" {
                (fields.input("order_id", "Order number", "text", "The service issues its receipt, and this page verifies it."))
                button { "Prove the order" }
            }
            form.card method="post" action="/console/log/proof" enctype="multipart/form-data" {
                (fields.file("file", "Receipt as a file", ".json,application/json", ""))
                (fields.area("receipt", "Or its text", "The JSON of a receipt that somebody has sent."))
                button { "Prove the receipt" }
            }
        }
        @if let Some(shown) = shown { (checkpoints::past(&visit.query, shown.shard, &shown.published)) }
        h2 { "Verify everything" }
        p {
            a href="/console/audit-runs" { "Verify and rebuild" }
            " compares every table with the log, and shows the runs of the commands that do so."
        }
        ul {
            li { (copyable("rewards-ledger verify --receipt receipt.json --key 'VERIFIER KEY'")) " needs no database, and no trust in this page." }
        }
    };
    layout::page(visit, "Transparency log", &body)
}

/// Renders the number of events in a tree. It leads to the newest of them, whose position is that number.
fn newest(shard: i16, size: &str) -> Markup {
    size.parse::<i64>().map_or_else(|_| html! { (size) }, |size| position(shard, size))
}

fn checkpoint(Shown { shard, keys, note, checkpoint, .. }: &Shown) -> Markup {
    let witnesses: Vec<_> = keys
        .witnesses
        .iter()
        .map(|key| {
            let state = match checkpoint.is_signed_by(key) {
                true => html! { span class="badge good" { "Cosigned" } },
                false => html! { span class="badge wait" { "Not yet" } },
            };
            vec![html! { (key_name(key)) }, state, html! { code { (key) } }]
        })
        .collect();
    let own: Vec<_> = keys
        .keys
        .iter()
        .map(|key| vec![copyable(&key.verifier_key), position(*shard, key.since_size), time(key.since)])
        .collect();
    let incidents: Vec<_> = keys
        .incidents
        .iter()
        .map(|incident| {
            vec![
                time(incident.recorded_at),
                position(*shard, incident.position),
                html! { (incident.origin) },
                html! { (incident.next_origin) },
            ]
        })
        .collect();
    html! {
        (facts(&[
            ("Origin", html! { (checkpoint.origin) }),
            ("Events in the tree", newest(*shard, &checkpoint.size)),
            ("Root", copyable(&checkpoint.root)),
        ]))
        details { summary { "The signed note" } pre { (note) } }
        h2 { "Witnesses of the newest checkpoint" }
        @if witnesses.is_empty() { p.quiet { "No witness is configured. Witnesses keep the log from showing two stories to two people." } }
        @else { (table::table("Witnesses", &[("Witness", false), ("Newest checkpoint", false), ("Key", false)], &witnesses)) }
        h2 { "Keys" }
        (table::table("Keys of the log", &[("Verifier key", false), ("Since event", true), ("Since", false)], &own))
        @if !incidents.is_empty() {
            h2 { "Incidents" }
            (table::table("Incidents", &[("Recorded", false), ("Position", true), ("Origin that ended", false), ("Next origin", false)], &incidents))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read() {
        let note = "example.com/log/1\n12\ncm9vdA==\n\n— example.com/log/1 AAAA\n— witness.example BBBB\n";
        let read = Checkpoint::read(note).unwrap();
        assert_eq!((read.origin.as_str(), read.size.as_str(), read.root.as_str()), ("example.com/log/1", "12", "cm9vdA=="));
        assert_eq!(read.signers, ["example.com/log/1", "witness.example"]);
        assert!(read.is_signed_by("witness.example+1234+BASE64") && !read.is_signed_by("other+1234+BASE64"));
        assert_eq!(Checkpoint::read("no note"), None);
    }
}
