//! `log inclusion` and `log consistency`: fetch proofs from the service and verify them against signed checkpoints.

use std::path::Path;

use anyhow::{Context, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;
use transparency_log::checkpoint::{Checkpoint, Trust};
use transparency_log::merkle::{Hash, verify_consistency, verify_inclusion};

use super::{ask, newest, open};
use crate::cli::client::Client;

const NO_PROOF: &str = "the service returned something other than a proof";
const NOT_ASKED: &str = "the service returned a different proof than requested";

/// Returns the verified checkpoint that a proof must lead to: the one in `file`, or else the newest. Returns none if there
/// is no key to verify it with.
///
/// # Errors
/// If there is no checkpoint, or it fails verification.
pub async fn signed(client: &Client, prefix: &str, trust: &Trust, file: Option<&Path>) -> anyhow::Result<Option<Checkpoint>> {
    match file {
        _ if trust.keys.is_empty() => Ok(None),
        Some(path) => Ok(Some(kept(path, trust)?)),
        None => Ok(Some(open(client, prefix, trust, &newest(client, prefix, trust).await?).await?.checkpoint)),
    }
}

/// Reads and verifies a checkpoint from a file.
///
/// # Errors
/// If the file cannot be read, or the checkpoint fails verification.
pub fn kept(path: &Path, trust: &Trust) -> anyhow::Result<Checkpoint> {
    let note = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(trust.open(&note).with_context(|| path.display().to_string())?.checkpoint)
}

/// Fetches and verifies the proof that an event is in the tree of `signed`, or in the unsigned tree of `size`.
///
/// # Errors
/// If no response arrives, or it is not a valid proof for this tree.
pub async fn inclusion(
    client: &Client,
    prefix: &str,
    position: u64,
    size: Option<u64>,
    signed: Option<&Checkpoint>,
) -> anyhow::Result<Value> {
    let size = signed.map(|signed| signed.size).or(size);
    let asked = size.map(|size| format!("&size={size}")).unwrap_or_default();
    let data = ask(client, &format!("{prefix}/proof/inclusion?position={position}{asked}")).await?;
    let proof = Inclusion::deserialize(&data).context(NO_PROOF)?;
    ensure!(proof.position == position && size.is_none_or(|size| size == proof.size), NOT_ASKED);
    is_of(signed, proof.size, &proof.root)?;
    let index = position.checked_sub(1).context(NO_PROOF)?;
    verify_inclusion(&hash(&proof.leaf_hash)?, index, proof.size, &hashes(&proof.proof)?, &hash(&proof.root)?)?;
    Ok(data)
}

/// Fetches and verifies the proof that a tree extends an earlier one. Each tree must match its signed checkpoint, if given.
///
/// # Errors
/// If no response arrives, or it is not a valid proof for these trees.
pub async fn consistency(
    client: &Client,
    prefix: &str,
    from: u64,
    to: Option<u64>,
    [earlier, later]: [Option<&Checkpoint>; 2],
) -> anyhow::Result<Value> {
    let to = later.map(|later| later.size).or(to);
    let asked = to.map(|to| format!("&to={to}")).unwrap_or_default();
    let data = ask(client, &format!("{prefix}/proof/consistency?from={from}{asked}")).await?;
    let proof = Consistency::deserialize(&data).context(NO_PROOF)?;
    ensure!(proof.from == from && to.is_none_or(|to| to == proof.to), NOT_ASKED);
    is_of(earlier, proof.from, &proof.from_root)?;
    is_of(later, proof.to, &proof.to_root)?;
    let (from_root, to_root) = (hash(&proof.from_root)?, hash(&proof.to_root)?);
    verify_consistency(proof.from, &from_root, proof.to, &to_root, &hashes(&proof.proof)?)?;
    Ok(data)
}

/// Checks that the tree of a response matches the signed checkpoint, if there is one.
fn is_of(signed: Option<&Checkpoint>, size: u64, root: &str) -> anyhow::Result<()> {
    let Some(signed) = signed else { return Ok(()) };
    ensure!(
        signed.size == size && signed.root == hash(root)?,
        "the proof is for a tree of {size} events that differs from the signed checkpoint"
    );
    Ok(())
}

/// Fetches the hashes of a consistency proof between two sizes. The caller verifies them against the roots.
///
/// # Errors
/// If no response arrives, or it is not a proof.
pub async fn between(client: &Client, prefix: &str, from: u64, to: u64) -> anyhow::Result<Vec<Hash>> {
    let data = ask(client, &format!("{prefix}/proof/consistency?from={from}&to={to}")).await?;
    hashes(&Consistency::deserialize(&data).context(NO_PROOF)?.proof)
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

#[derive(Deserialize)]
struct Consistency {
    from: u64,
    from_root: String,
    to: u64,
    to_root: String,
    proof: Vec<String>,
}
