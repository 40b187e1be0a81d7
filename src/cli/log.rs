//! `log`: reads and verifies the published transparency log. Only the entries need an operator token.

mod incident;
mod mirror;
mod proof;

use std::path::PathBuf;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use ledger_events::ShardId;
use reqwest::{Method, Url};
use serde_json::{Value, json};
use transparency_log::checkpoint::{Checkpoint, Opened, Trust};
use transparency_log::note::{Note, VerifierKey};
use transparency_log::quorum::Quorum;

use super::admin;
use super::client::{Body, Client};
use super::output::{Output, with_progress};
use super::quorum::{QuorumArgs, asking};
use crate::config::OperatorTokenSettings;
use crate::export::tiles;
use crate::ledger::FIRST_SHARD;
use crate::transparency::cosignature::witness;

#[derive(Args, Debug)]
pub struct LogArgs {
    /// URL of the service
    #[arg(long, env = "LEDGER_URL", value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: Url,
    /// Shard whose log to read
    #[arg(long, value_name = "ID", default_value_t = FIRST_SHARD)]
    shard: ShardId,
    #[command(subcommand)]
    what: Log,
}

#[derive(Subcommand, Debug)]
enum Log {
    /// Print the newest checkpoint, or the newest that a quorum cosigned; with --key, fails unless the key signed it
    Checkpoint {
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// Show the public keys of the log, and the witnesses whose cosignatures it accepts
    Keys,
    /// Prove that an event is in the log; fails unless the proof is valid and, with --key, leads to a signed checkpoint
    Inclusion {
        /// Position of the event in the log
        position: u64,
        /// Size of the tree to prove it in [default: the checkpoint's]
        #[arg(long, value_name = "SIZE", conflicts_with = "key")]
        size: Option<u64>,
        /// File with a signed checkpoint that you kept; proves the event in its tree [default: the newest]
        #[arg(long, value_name = "FILE", requires = "key")]
        checkpoint: Option<PathBuf>,
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// Prove that the log only grew between two sizes; fails unless the proof is valid and, with --key, both trees are
    /// signed
    Consistency {
        /// Size of the earlier tree
        #[arg(required_unless_present = "from_checkpoint")]
        from: Option<u64>,
        /// Size of the later tree [default: the checkpoint's]
        #[arg(conflicts_with = "key")]
        to: Option<u64>,
        /// File with a signed checkpoint that you kept, for the earlier tree
        #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "from")]
        from_checkpoint: Option<PathBuf>,
        /// File with a signed checkpoint that you kept, for the later tree [default: the newest]
        #[arg(long, value_name = "FILE", requires = "key")]
        checkpoint: Option<PathBuf>,
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// Copy the checkpoint and tiles into a directory; resumes an earlier copy, and fails unless the log continues it
    Mirror {
        /// Directory of the copy
        directory: PathBuf,
        /// Verifier key of the log, from a trusted source other than the log; fails unless it signed; repeat during a key
        /// handover
        #[arg(long, value_name = "KEY")]
        key: Vec<VerifierKey>,
        /// Also copy the entries, which are the events themselves; needs an auditor's or an admin's token
        #[arg(long)]
        entries: bool,
        #[command(flatten)]
        quorum: QuorumArgs,
        #[command(flatten)]
        operator_token: OperatorTokenSettings,
    },
    /// Record that signed events are lost, so that the log continues under another origin; connects to the database
    Incident(incident::IncidentArgs),
    /// Submit a checkpoint that a witness cosigned
    Cosign {
        /// File with the cosigned checkpoint
        file: PathBuf,
    },
}

/// Keys and witnesses that a checkpoint is verified with.
#[derive(Args, Debug)]
struct TrustArgs {
    /// Verifier key of the log, from a trusted source other than the log; repeat during a key handover
    #[arg(long, value_name = "KEY")]
    key: Vec<VerifierKey>,
    /// Verifier key of a trusted witness; may be repeated
    #[arg(long, value_name = "KEY", value_parser = witness, requires = "key")]
    witness: Vec<VerifierKey>,
    /// Number of these witnesses that must have cosigned each checkpoint
    #[arg(long, value_name = "COUNT", default_value_t = 0, requires = "key")]
    quorum: usize,
}

impl TrustArgs {
    fn trust(self) -> Trust {
        Trust { keys: self.key, witnesses: self.witness, quorum: self.quorum }
    }
}

pub async fn run(args: LogArgs, output: &Output) -> anyhow::Result<()> {
    if let Log::Incident(incident) = &args.what {
        return incident::run(args.shard, incident, output).await;
    }
    let client = Client::new(&args.url, None)?;
    let prefix = format!("/log/{}", args.shard);
    match args.what {
        Log::Checkpoint { trust } => checkpoint(&client, &prefix, &trust.trust(), output).await,
        Log::Keys => Ok(output.facts(&ask(&client, &format!("{prefix}/keys")).await?)?),
        Log::Inclusion { position, size, checkpoint, trust } => {
            let signed = proof::signed(&client, &prefix, &trust.trust(), checkpoint.as_deref()).await?;
            Ok(output.facts(&proof::inclusion(&client, &prefix, position, size, signed.as_ref()).await?)?)
        }
        Log::Consistency { from, to, from_checkpoint, checkpoint, trust } => {
            let trust = trust.trust();
            let signed = proof::signed(&client, &prefix, &trust, checkpoint.as_deref()).await?;
            let earlier = from_checkpoint.map(|path| proof::kept(&path, &trust)).transpose()?;
            let from =
                earlier.as_ref().map(|earlier| earlier.size).or(from).context("the size of the earlier tree is missing")?;
            let trees = [earlier.as_ref(), signed.as_ref()];
            Ok(output.facts(&proof::consistency(&client, &prefix, from, to, trees).await?)?)
        }
        Log::Mirror { directory, key, entries, quorum, operator_token } => {
            let quorum = if key.is_empty() { quorum.quorum() } else { quorum.of_named()? };
            let client = if entries { admin::client(&args.url, &operator_token)? } else { client };
            let note = client.bytes(&asking(&format!("{prefix}/checkpoint"), &quorum)).await?;
            let note = note.context("the log has no such checkpoint")?;
            let note = String::from_utf8(note).context("the checkpoint is not UTF-8 text")?;
            if !key.is_empty() {
                let trust = Trust { keys: key, witnesses: quorum.witnesses, quorum: quorum.count };
                open(&client, &prefix, &trust, &note).await?;
            }
            if quorum.count == 0 {
                let size = Checkpoint::parse(Note::parse(&note)?.text())?.size;
                tiles::not_smaller(&directory, size)?;
            }
            let copied = mirror::mirror(&client, &prefix, &note, &directory, entries).await?;
            Ok(output.facts(&json!({"directory": directory, "size": copied.size, "fetched": copied.fetched}))?)
        }
        Log::Incident(_) => Ok(()), // handled above
        Log::Cosign { file } => {
            let note = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let path = format!("{prefix}/cosignatures");
            let sent = client.send(Method::POST, &path, Some(Body::text(note)), &[]);
            Ok(output.facts(&with_progress("waiting for the response", sent).await?.data()?)?)
        }
    }
}

async fn ask(client: &Client, path: &str) -> anyhow::Result<Value> {
    with_progress("waiting for the response", client.json(Method::GET, path, None)).await
}

/// Fetches the newest checkpoint, or the newest that a quorum of witnesses cosigned. Does not verify it.
async fn newest(client: &Client, prefix: &str, trust: &Trust) -> anyhow::Result<String> {
    let path = asking(&format!("{prefix}/checkpoint"), &Quorum { count: trust.quorum, witnesses: trust.witnesses.clone() });
    let reply = with_progress("waiting for the response", client.send(Method::GET, &path, None, &[])).await?;
    if !reply.status.is_success() {
        reply.data()?;
        bail!("the log has no checkpoint yet");
    }
    Ok(reply.body)
}

/// Verifies a checkpoint from the service. If the trusted key belongs to an origin that has ended, the error says so.
async fn open(client: &Client, prefix: &str, trust: &Trust, note: &str) -> anyhow::Result<Opened> {
    match trust.open(note) {
        Ok(opened) => Ok(opened),
        Err(error) => match incident::ending(client, prefix, trust).await {
            Some(incident) => Err(error).context(incident),
            None => Err(error.into()),
        },
    }
}

async fn checkpoint(client: &Client, prefix: &str, trust: &Trust, output: &Output) -> anyhow::Result<()> {
    let note = newest(client, prefix, trust).await?;
    let opened = if trust.keys.is_empty() { None } else { Some(open(client, prefix, trust, &note).await?) };
    if !output.json {
        return Ok(output.line(note.trim_end())?);
    }
    let names = |keys: &[VerifierKey]| keys.iter().map(|key| key.name().to_owned()).collect::<Vec<_>>();
    let verified = opened.map(|opened| {
        let witnesses: Vec<VerifierKey> = opened.cosigned_by.into_iter().map(|(key, _)| key).collect();
        json!({"size": opened.checkpoint.size, "root": STANDARD.encode(opened.checkpoint.root),
            "signed_by": names(&opened.signed_by), "cosigned_by": names(&witnesses)})
    });
    Ok(output.json_line(&json!({"checkpoint": note, "verified": verified}))?)
}
