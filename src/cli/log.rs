//! `log`: the published transparency log. Nothing here needs a token, but for the entries.

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

use super::admin;
use super::client::{Body, Client};
use super::output::{Output, with_progress};
use super::quorum::{QuorumArgs, asking};
use crate::config::OperatorTokenSettings;
use crate::export::tiles;
use crate::ledger::FIRST_SHARD;
use crate::transparency::checkpoint::{Checkpoint, Opened, Trust};
use crate::transparency::cosignature::witness;
use crate::transparency::note::{Note, VerifierKey};
use crate::transparency::quorum::Quorum;

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
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// The log's public keys, and the witnesses that it takes cosignatures of
    Keys,
    /// Prove that an event is in the log; fails unless the proof holds, with a key in a tree that the log has signed
    Inclusion {
        position: u64,
        /// Of the tree [default: the checkpoint's]
        #[arg(long, value_name = "SIZE", conflicts_with = "key")]
        size: Option<u64>,
        /// A signed checkpoint that was kept: of its tree [default: the newest]
        #[arg(long, value_name = "FILE", requires = "key")]
        checkpoint: Option<PathBuf>,
        #[command(flatten)]
        trust: TrustArgs,
    },
    /// Prove that the log has only grown between two sizes; fails unless the proof holds, with a key between trees that the log has signed
    Consistency {
        #[arg(required_unless_present = "from_checkpoint")]
        from: Option<u64>,
        /// [default: the checkpoint's]
        #[arg(conflicts_with = "key")]
        to: Option<u64>,
        /// A signed checkpoint that was kept: from its tree on
        #[arg(long, value_name = "FILE", requires = "key", conflicts_with = "from")]
        from_checkpoint: Option<PathBuf>,
        /// A later one: up to its tree [default: the newest]
        #[arg(long, value_name = "FILE", requires = "key")]
        checkpoint: Option<PathBuf>,
        #[command(flatten)]
        trust: TrustArgs,
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
    /// Record that signed events are lost for good, so that the log goes on under another origin: directly on the database
    Incident(incident::IncidentArgs),
    /// Hand a witness's cosigned checkpoint to the log
    Cosign {
        /// The cosigned checkpoint
        file: PathBuf,
    },
}

/// Whom to believe about checkpoints.
#[derive(Args, Debug)]
struct TrustArgs {
    /// The log's verifier key, from elsewhere than the log; more than one of a handover
    #[arg(long, value_name = "KEY")]
    key: Vec<VerifierKey>,
    /// Verifier keys of witnesses that are believed
    #[arg(long, value_name = "KEY", value_parser = witness, requires = "key")]
    witness: Vec<VerifierKey>,
    /// How many of them must have cosigned each checkpoint
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
            let from = earlier.as_ref().map(|earlier| earlier.size).or(from).context("there is no size to begin with")?;
            let trees = [earlier.as_ref(), signed.as_ref()];
            Ok(output.facts(&proof::consistency(&client, &prefix, from, to, trees).await?)?)
        }
        Log::Mirror { directory, key, entries, quorum, operator_token } => {
            let quorum = if key.is_empty() { quorum.quorum() } else { quorum.of_named()? };
            let client = if entries { admin::client(&args.url, &operator_token)? } else { client };
            let note = client.bytes(&asking(&format!("{prefix}/checkpoint"), &quorum)).await?;
            let note = note.context("there is no such checkpoint")?;
            let note = String::from_utf8(note).context("the checkpoint is no text")?;
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
        Log::Incident(_) => Ok(()), // see above
        Log::Cosign { file } => {
            let note = std::fs::read_to_string(&file).with_context(|| format!("{} cannot be read", file.display()))?;
            let path = format!("{prefix}/cosignatures");
            let sent = client.send(Method::POST, &path, Some(Body::text(note)), &[]);
            Ok(output.facts(&with_progress("waiting for the answer", sent).await?.data()?)?)
        }
    }
}

async fn ask(client: &Client, path: &str) -> anyhow::Result<Value> {
    with_progress("waiting for the answer", client.json(Method::GET, path, None)).await
}

/// The newest checkpoint, or the newest that as many witnesses as are needed have cosigned; not opened yet.
async fn newest(client: &Client, prefix: &str, trust: &Trust) -> anyhow::Result<String> {
    let path = asking(&format!("{prefix}/checkpoint"), &Quorum { count: trust.quorum, witnesses: trust.witnesses.clone() });
    let reply = with_progress("waiting for the answer", client.send(Method::GET, &path, None, &[])).await?;
    if !reply.status.is_success() {
        reply.data()?;
        bail!("there is no checkpoint");
    }
    Ok(reply.body)
}

/// Opens the service's checkpoint. Where the trusted key is of an origin that has ended, the error says so.
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
