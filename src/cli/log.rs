//! `log`: the published transparency log. Nothing here needs a token, but for the entries.

mod mirror;

use std::path::PathBuf;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use ledger_events::ShardId;
use ledger_events::merkle::{Hash, verify_consistency, verify_inclusion};
use reqwest::{Method, Url};
use serde::Deserialize;
use serde_json::{Value, json};

use super::admin;
use super::client::{Body, Client};
use super::output::{Output, with_progress};
use super::quorum::{QuorumArgs, asking};
use crate::config::OperatorTokenSettings;
use crate::export::tiles;
use crate::ledger::FIRST_SHARD;
use crate::transparency::checkpoint::{Checkpoint, Trust};
use crate::transparency::cosignature::{Quorum, witness};
use crate::transparency::note::{Note, VerifierKey};

#[derive(Args, Debug)]
pub struct LogArgs {
    /// Where the service is
    #[arg(long, env = "LEDGER_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: Url,
    /// Whose log, where there are several
    #[arg(long, value_name = "ID", default_value_t = FIRST_SHARD)]
    shard: ShardId,
    #[command(subcommand)]
    what: Log,
}

#[derive(Subcommand, Debug)]
enum Log {
    /// Print the newest checkpoint, or the newest that a quorum has cosigned; with a key, fails unless it is signed by it
    Checkpoint {
        /// The log's verifier key, from elsewhere than the log; more than one of a handover
        #[arg(long, value_name = "KEY")]
        key: Vec<VerifierKey>,
        /// Verifier keys of witnesses that are believed
        #[arg(long, value_name = "KEY", value_parser = witness, requires = "key")]
        witness: Vec<VerifierKey>,
        /// How many of them must have cosigned
        #[arg(long, value_name = "COUNT", default_value_t = 0, requires = "key")]
        quorum: usize,
    },
    /// The log's public keys, and the witnesses that it takes cosignatures of
    Keys,
    /// Prove that an event is in the log; fails unless the proof holds
    Inclusion {
        position: i64,
        /// Of the tree [default: the newest checkpoint's]
        #[arg(long, value_name = "SIZE")]
        size: Option<i64>,
    },
    /// Prove that the log has only grown between two sizes; fails unless the proof holds
    Consistency {
        from: i64,
        /// [default: the newest checkpoint's]
        to: Option<i64>,
    },
    /// Copy checkpoint and tiles into a directory, as they are served; goes on where it was, and fails unless the log does
    Mirror {
        directory: PathBuf,
        /// The log's verifier key, from elsewhere than the log: fails unless it has signed; more than one of a handover
        #[arg(long, value_name = "KEY")]
        key: Vec<VerifierKey>,
        /// The entries too, with an auditor's or an admin's token: the events themselves
        #[arg(long)]
        entries: bool,
        #[command(flatten)]
        quorum: QuorumArgs,
        #[command(flatten)]
        operator_token: OperatorTokenSettings,
    },
    /// Hand a witness's cosigned checkpoint to the log
    Cosign {
        /// The cosigned checkpoint
        file: PathBuf,
    },
}

pub async fn run(args: LogArgs, output: &Output) -> anyhow::Result<()> {
    let client = Client::new(&args.url, None)?;
    let prefix = format!("/log/{}", args.shard);
    match args.what {
        Log::Checkpoint { key, witness, quorum } => {
            checkpoint(&client, &prefix, Trust { keys: key, witnesses: witness, quorum }, output).await
        }
        Log::Keys => Ok(output.facts(&ask(&client, &format!("{prefix}/keys")).await?)?),
        Log::Inclusion { position, size } => {
            let size = size.map(|size| format!("&size={size}")).unwrap_or_default();
            let data = ask(&client, &format!("{prefix}/proof/inclusion?position={position}{size}")).await?;
            Inclusion::deserialize(&data).context(NO_PROOF)?.check()?;
            Ok(output.facts(&data)?)
        }
        Log::Consistency { from, to } => {
            let to = to.map(|to| format!("&to={to}")).unwrap_or_default();
            let data = ask(&client, &format!("{prefix}/proof/consistency?from={from}{to}")).await?;
            Consistency::deserialize(&data).context(NO_PROOF)?.check()?;
            Ok(output.facts(&data)?)
        }
        Log::Mirror { directory, key, entries, quorum, operator_token } => {
            let quorum = if key.is_empty() { quorum.quorum() } else { quorum.of_named()? };
            let client = if entries { admin::client(&args.url, &operator_token)? } else { client };
            let note = client.bytes(&asking(&format!("{prefix}/checkpoint"), &quorum)).await?;
            let note = note.context("there is no such checkpoint")?;
            let note = String::from_utf8(note).context("the checkpoint is no text")?;
            if !key.is_empty() {
                Trust { keys: key, witnesses: quorum.witnesses, quorum: quorum.count }.open(&note)?;
            }
            if quorum.count == 0 {
                let size = Checkpoint::parse(Note::parse(&note)?.text())?.size;
                tiles::not_smaller(&directory, size)?;
            }
            let copied = mirror::mirror(&client, &prefix, &note, &directory, entries).await?;
            Ok(output.facts(&json!({"directory": directory, "size": copied.size, "fetched": copied.fetched}))?)
        }
        Log::Cosign { file } => {
            let note = std::fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
            let path = format!("{prefix}/cosignatures");
            let sent = client.send(Method::POST, &path, Some(Body::text(note)), &[]);
            Ok(output.facts(&with_progress("waiting for the answer", sent).await?.data()?)?)
        }
    }
}

const NO_PROOF: &str = "the service answers with something else than a proof";

async fn ask(client: &Client, path: &str) -> anyhow::Result<Value> {
    with_progress("waiting for the answer", client.json(Method::GET, path, None)).await
}

async fn checkpoint(client: &Client, prefix: &str, trust: Trust, output: &Output) -> anyhow::Result<()> {
    let path = asking(&format!("{prefix}/checkpoint"), &Quorum { count: trust.quorum, witnesses: trust.witnesses.clone() });
    let reply = with_progress("waiting for the answer", client.send(Method::GET, &path, None, &[])).await?;
    if !reply.status.is_success() {
        reply.data()?;
        bail!("there is no checkpoint");
    }
    let opened = if trust.keys.is_empty() { None } else { Some(trust.open(&reply.body)?) };
    if !output.json {
        return Ok(output.line(reply.body.trim_end())?);
    }
    let names = |keys: &[VerifierKey]| keys.iter().map(|key| key.name().to_owned()).collect::<Vec<_>>();
    let verified = opened.map(|opened| {
        let witnesses: Vec<VerifierKey> = opened.cosigned_by.into_iter().map(|(key, _)| key).collect();
        json!({"size": opened.checkpoint.size, "root": STANDARD.encode(opened.checkpoint.root),
            "signed_by": names(&opened.signed_by), "cosigned_by": names(&witnesses)})
    });
    Ok(output.json_line(&json!({"checkpoint": reply.body, "verified": verified}))?)
}

fn hash(text: &str) -> anyhow::Result<Hash> {
    STANDARD.decode(text).ok().and_then(|bytes| bytes.try_into().ok()).context(NO_PROOF)
}

fn hashes(texts: &[String]) -> anyhow::Result<Vec<Hash>> {
    texts.iter().map(|text| hash(text)).collect()
}

#[derive(Deserialize)]
struct Inclusion {
    size: u64,
    root: String,
    position: u64,
    leaf_hash: String,
    proof: Vec<String>,
}

impl Inclusion {
    fn check(&self) -> anyhow::Result<()> {
        let index = self.position.checked_sub(1).context(NO_PROOF)?;
        verify_inclusion(&hash(&self.leaf_hash)?, index, self.size, &hashes(&self.proof)?, &hash(&self.root)?)?;
        Ok(())
    }
}

#[derive(Deserialize)]
struct Consistency {
    from: u64,
    from_root: String,
    to: u64,
    to_root: String,
    proof: Vec<String>,
}

impl Consistency {
    fn check(&self) -> anyhow::Result<()> {
        verify_consistency(self.from, &hash(&self.from_root)?, self.to, &hash(&self.to_root)?, &hashes(&self.proof)?)?;
        Ok(())
    }
}
