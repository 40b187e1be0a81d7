//! The ledger's settings of the embedded Postgres, for use without `DATABASE_URL`.

use std::path::PathBuf;

use embedded_postgres::{Error, Hints, Names, Settings};

use crate::ledger::connect::RUNTIME_ROLE;

/// Superuser role that owns the cluster and the ledger's database.
pub const OWNER_ROLE: &str = "ledger_owner";

/// Role that the service logs in as. It can become the runtime role and nothing else.
pub const SERVICE_ROLE: &str = "ledger_service";

/// Name of the ledger's database.
pub const DATABASE: &str = "ledger";

const PROGRAM: &str = "rewards-ledger";

/// Returns the settings of a durable server in `data_dir`.
pub fn settings(data_dir: impl Into<PathBuf>) -> Settings {
    Settings { hints: hints(), ..Settings::new(data_dir, names()) }
}

/// Returns the settings of a server in a new temporary directory; see [`Settings::temporary`].
///
/// # Errors
/// If no temporary directory can be created that the server's user can reach.
pub fn temporary(durable: bool) -> Result<Settings, Error> {
    Ok(Settings { hints: hints(), ..Settings::temporary(durable, names())? })
}

/// Returns the default data directory; see [`embedded_postgres::default_data_dir`].
pub fn default_data_dir() -> PathBuf {
    embedded_postgres::default_data_dir(PROGRAM)
}

fn names() -> Names {
    Names {
        program: PROGRAM.to_owned(),
        database: DATABASE.to_owned(),
        owner: OWNER_ROLE.to_owned(),
        service: SERVICE_ROLE.to_owned(),
        runtime: RUNTIME_ROLE.to_owned(),
    }
}

fn hints() -> Hints {
    Hints {
        alternative: Some("set DATABASE_URL".to_owned()),
        release: Some("--postgres-release VERSION:DIGEST (LEDGER_POSTGRES_RELEASE)".to_owned()),
    }
}
