//! Settings that locate the database.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;
use embedded_postgres::PinnedRelease;
use ledger_database::PgConnectOptions;
use sqlx::postgres::PgSslMode;

use super::ConfigError;
use super::values::secret;
use crate::secrets::seal::Secret;

/// Settings that locate the database; shared by every command that needs one.
#[derive(Args, Clone, Debug)]
pub struct DatabaseSettings {
    /// URL of the Postgres database, which may name several hosts: postgres://h1,h2/db?target_session_attrs=read-write
    /// [default: an embedded Postgres in the data directory]
    #[arg(long, env = "DATABASE_URL", value_name = "URL", value_parser = secret, hide_default_value = true)]
    pub database_url: Option<Secret>,

    /// URL that leads straight to the database, if the database URL leads to a pooler in transaction mode, such as
    /// PgBouncer; the writer, LISTEN, locks and commands use it [default: the database URL]
    #[arg(long, env = "DIRECT_DATABASE_URL", value_name = "URL", value_parser = secret, hide_default_value = true)]
    pub direct_url: Option<Secret>,

    /// URL of a standby for the reads of lists, exports, statements and reports, and of commands; no read misses an event that
    /// the primary has, unless a command warns that the primary does not answer [default: none: the database URL]
    #[arg(long, env = "READ_DATABASE_URL", value_name = "URL", value_parser = secret, hide_default_value = true)]
    pub read_url: Option<Secret>,

    /// Allow a remote database without sslmode=verify-full; only on a network that nobody else uses
    #[arg(long, env = "LEDGER_ALLOW_PLAIN_DATABASE", value_name = "BOOL", value_parser = BoolishValueParser::new(),
        num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub allow_plain_database: bool,

    /// URL of the database with the role that migrates [default: the database URL]
    #[arg(long, env = "LEDGER_MIGRATION_URL", value_name = "URL", value_parser = secret, hide_default_value = true)]
    pub migration_url: Option<Secret>,

    /// Directory for the embedded Postgres, keys, and certificates
    #[arg(long, env = "LEDGER_DATA_DIR", value_name = "DIRECTORY", default_value_os_t = crate::embedded::default_data_dir())]
    pub data_dir: PathBuf,

    /// Directory with `postgres` and `initdb` [default: looked for, else downloaded]
    #[arg(long, env = "LEDGER_POSTGRES_PROGRAMS", value_name = "DIRECTORY")]
    pub postgres_programs: Option<PathBuf>,

    /// Postgres release to download if none is installed, with the SHA-256 digest of its archive [default: 17.11.0, for
    /// Linux with glibc and macOS]
    #[arg(long, env = "LEDGER_POSTGRES_RELEASE", value_name = "VERSION:DIGEST")]
    pub postgres_release: Option<PinnedRelease>,

    /// User that runs the embedded Postgres if this program runs as root [default: the cluster's owner, else postgres, else
    /// nobody]
    #[arg(long, env = "LEDGER_POSTGRES_ACCOUNT", value_name = "USER")]
    pub postgres_account: Option<String>,
}

impl DatabaseSettings {
    /// Returns the connection options of the database, or none for the embedded server.
    ///
    /// # Errors
    /// If the URL is not a Postgres URL, or leads to another machine without `sslmode=verify-full`. The message does not
    /// repeat the URL, because it may hold a password.
    pub fn options(&self) -> Result<Option<PgConnectOptions>, ConfigError> {
        let options = self.postgres_options(self.database_url.as_ref(), "--database-url", "DATABASE_URL")?;
        let direct = self.postgres_options(self.direct_url.as_ref(), "--direct-url", "DIRECT_DATABASE_URL")?;
        match (options, direct) {
            (Some(options), Some(direct)) => Ok(Some(options.pooled(direct))),
            (None, Some(_)) => Err(ConfigError("--direct-url (DIRECT_DATABASE_URL) needs --database-url (DATABASE_URL)".into())),
            (options, None) => Ok(options),
        }
    }

    /// Returns the connection options of the standby for reads, or none if `--read-url` is not set.
    ///
    /// # Errors
    /// See [`DatabaseSettings::options`]. Also if `--database-url` is not set.
    pub fn read_options(&self) -> Result<Option<PgConnectOptions>, ConfigError> {
        let options = self.postgres_options(self.read_url.as_ref(), "--read-url", "READ_DATABASE_URL")?;
        match options.is_some() && self.database_url.is_none() {
            true => Err(ConfigError("--read-url (READ_DATABASE_URL) needs --database-url (DATABASE_URL)".into())),
            false => Ok(options),
        }
    }

    /// Returns the connection options of the role that migrates, or none if `--migration-url` is not set.
    ///
    /// # Errors
    /// See [`DatabaseSettings::options`].
    pub fn migration_options(&self) -> Result<Option<PgConnectOptions>, ConfigError> {
        self.postgres_options(self.migration_url.as_ref(), "--migration-url", "LEDGER_MIGRATION_URL")
    }

    /// Parses and checks a database URL. Every setting that holds one goes through this function.
    fn postgres_options(
        &self,
        url: Option<&Secret>,
        flag: &str,
        variable: &str,
    ) -> Result<Option<PgConnectOptions>, ConfigError> {
        let Some(url) = url else { return Ok(None) };
        let options = postgres_options(url, flag, variable)?;
        let exposed = options.hosts().iter().find(|host| !is_protected(host));
        if let Some(host) = exposed.filter(|_| !self.allow_plain_database) {
            let host = host.get_host();
            return Err(ConfigError(format!(
                "{flag} ({variable}) leads to {host} without sslmode=verify-full, so anyone on the network path can read and \
                 change everything: add sslmode=verify-full to the URL (and sslrootcert=FILE for your own certificate \
                 authority), or pass --allow-plain-database (LEDGER_ALLOW_PLAIN_DATABASE)"
            )));
        }
        Ok(Some(options))
    }
}

/// Returns whether connections to a host are safe from anyone on the network path. Either it stays on this machine, or TLS verifies
/// the server's name. Any `sslmode` other than `verify-full` accepts a certificate of another server, or none.
fn is_protected(options: &sqlx::postgres::PgConnectOptions) -> bool {
    let host = options.get_host();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_local = options.get_socket().is_some()
        || host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback());
    is_local || matches!(options.get_ssl_mode(), PgSslMode::VerifyFull)
}

fn postgres_options(url: &Secret, flag: &str, variable: &str) -> Result<PgConnectOptions, ConfigError> {
    url.expose().parse::<PgConnectOptions>().map_err(|error| ConfigError(format!("{flag} ({variable}) {error}")))
}
