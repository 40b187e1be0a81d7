//! `keys …`: rotates the master key, seals the ledger, and counts the values that are sealed under each key.

use std::io::IsTerminal;

use clap::{Args, Subcommand};
use ledger_projections::envelope::iso8601;
use serde_json::json;

use super::output::{Output, progress_bar, with_progress};
use crate::config::{DatabaseSettings, MasterKeySettings};
use crate::key_rotation::{self, RotationProgress};
use crate::ledger::connect;
use crate::node::{self, Database};
use crate::secrets::master_keys;
use crate::secrets::sealing;

#[derive(Args, Debug)]
pub struct KeysArgs {
    #[command(flatten)]
    database: DatabaseSettings,
    #[command(flatten)]
    master_key: MasterKeySettings,
    #[command(subcommand)]
    what: Keys,
}

#[derive(Subcommand, Debug)]
enum Keys {
    /// Make the first key of the key file current, and reseal all values under it while the service runs
    ///
    /// Before you run this, start every node with a key file that holds both keys. An interrupted run is resumed by the
    /// next one.
    Rotate,
    /// Add a MAC to every API key, token, password, and session, and refuse those without a MAC from now on
    ///
    /// Run this once no node of a release without MACs is left and `verify` finds no difference.
    Seal,
    /// List the known keys and the number of values sealed under each
    Status,
}

pub async fn run(args: KeysArgs, output: &Output) -> anyhow::Result<()> {
    let database = with_progress("starting the embedded Postgres", Database::open(&args.database)).await?;
    let done = on(&args, &database, output).await;
    database.close().await?;
    done
}

async fn on(args: &KeysArgs, database: &Database, output: &Output) -> anyhow::Result<()> {
    let keyring = node::keyring(&args.master_key, &args.database.data_dir, database.is_embedded())?;
    let pool = connect::without_timeout(database.options());
    crate::ledger::check_schema(&pool).await?;
    match args.what {
        Keys::Rotate => {
            let bar = std::io::stderr().is_terminal().then(|| progress_bar(0));
            let told = |RotationProgress { table, done, total }: RotationProgress| {
                if output.json {
                    // A closed stdout must not stop the rotation.
                    _ = output.json_line(&json!({"table": table, "resealed": done, "of": total}));
                } else if let Some(bar) = &bar {
                    bar.set_length(total.unsigned_abs());
                    bar.set_position(done.unsigned_abs());
                }
            };
            let rotated = key_rotation::rotate(&pool, &keyring, told).await;
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
            let rotated = rotated?;
            let retired: Vec<String> = rotated.retired.iter().map(ToString::to_string).collect();
            let facts = json!({"current": rotated.current.to_string(), "resealed": rotated.resealed, "retired": retired});
            match output.json {
                true => output.json_line(&facts)?,
                false => output.facts(&facts)?,
            }
        }
        Keys::Seal => {
            let sealed = with_progress("sealing", sealing::seal(&pool, &keyring)).await?;
            output.facts(&json!({
                "credentials": sealed.credentials, "operators": sealed.operators, "users": sealed.users,
                "sessions": sealed.sessions, "refresh_tokens": sealed.refresh_tokens,
            }))?;
            if !output.json {
                output.line("Rows without a MAC are refused from now on. Add the line `sealed` to the key file of every node, so that nobody with write access to the database can undo this.")?;
            }
        }
        Keys::Status => {
            master_keys::establish(&pool, &keyring).await?;
            let (known, mut counts) = key_rotation::status(&pool).await?;
            let mut keys = vec![];
            for key in &known {
                let id = key.id()?;
                let values = counts.remove(&id).unwrap_or_default();
                keys.push(json!({
                    "key_id": id.to_string(), "state": key.state, "in_file": keyring.holds(id), "values": values.values().sum::<i64>(),
                    "by_table": values, "created_at": iso8601(key.created_at),
                }));
            }
            for (id, values) in counts {
                let sum: i64 = values.values().sum();
                keys.push(json!({"key_id": id.to_string(), "state": "unknown", "in_file": keyring.holds(id), "values": sum,
                    "by_table": values, "created_at": null}));
            }
            output.facts(&json!({"keys": keys}))?;
        }
    }
    Ok(())
}
