//! Opens the database: at a URL, or in an embedded server. The embedded server is started here unless another process
//! already runs it.
//!
//! Only [`Database::open_or_create`] creates a ledger. A command with a wrong data directory fails with a clear error
//! instead of reading an empty ledger.

use embedded_postgres::{Address, Server, Settings, has_cluster, running};
use ledger_database::{PgConnectOptions, PgPool};

use super::NodeError;
use crate::config::DatabaseSettings;
use crate::embedded::{self, DATABASE, OWNER_ROLE, SERVICE_ROLE};
use crate::ledger::standby::Standby;
use crate::ledger::{self, SchemaError};

/// Connection options of a database, and the embedded server if it runs here.
#[derive(Debug)]
pub struct Database {
    /// Options of the service's login. On an embedded server, this login can become the runtime role and nothing else.
    options: PgConnectOptions,
    /// Options of the role that migrates, if it differs. On an embedded server this is the owner, used only for migrations
    /// and maintenance.
    migration: Option<PgConnectOptions>,
    /// Options of the standby for reads, if there is one.
    standby: Option<PgConnectOptions>,
    is_embedded: bool,
    /// Embedded server, if this process runs it.
    server: Option<Server>,
}

impl Database {
    /// Finds the database. Starts the embedded server if it is needed and no process runs it.
    ///
    /// # Errors
    /// [`NodeError::NoLedger`] if the data directory has no ledger. Nothing is created.
    pub async fn open(settings: &DatabaseSettings) -> Result<Database, NodeError> {
        match Database::find(settings).await? {
            Some(found) => Ok(found),
            None if has_cluster(&settings.data_dir)? => Database::start(settings).await,
            None => Err(NodeError::NoLedger(settings.data_dir.display().to_string())),
        }
    }

    /// Opens the database like [`Database::open`], but creates the data directory and the embedded server's cluster if they
    /// do not exist.
    pub async fn open_or_create(settings: &DatabaseSettings) -> Result<Database, NodeError> {
        match Database::find(settings).await? {
            Some(found) => Ok(found),
            None => Database::start(settings).await,
        }
    }

    /// Finds the database without starting one: at the URL, or in an embedded server that another process runs.
    pub async fn find(settings: &DatabaseSettings) -> Result<Option<Database>, NodeError> {
        let migration = settings.migration_options()?;
        if let Some(options) = settings.options()? {
            let standby = settings.read_options()?;
            return Ok(Some(Database { options, migration, standby, is_embedded: false, server: None }));
        }
        let data_dir = settings.data_dir.clone();
        let found = tokio::task::spawn_blocking(move || running(&data_dir)).await;
        let found = found.map_err(|_| NodeError::Interrupted)??;
        found.map(|address| Database::at(&address, None)).transpose()
    }

    async fn start(settings: &DatabaseSettings) -> Result<Database, NodeError> {
        let server = Server::start(Settings {
            programs: settings.postgres_programs.clone(),
            release: settings.postgres_release.clone(),
            account: settings.postgres_account.clone(),
            ..embedded::settings(&settings.data_dir)
        });
        Database::embedded(server.await?)
    }

    /// Wraps an embedded server that already runs.
    pub fn embedded(server: Server) -> Result<Database, NodeError> {
        Database::at(&server.address().clone(), Some(server))
    }

    fn at(address: &Address, server: Option<Server>) -> Result<Database, NodeError> {
        let options = |role| {
            address.url(role, DATABASE).parse::<PgConnectOptions>().map_err(|error| sqlx::Error::Configuration(error.into()))
        };
        let (options, migration) = (options(SERVICE_ROLE)?, Some(options(OWNER_ROLE)?));
        Ok(Database { options, migration, standby: None, is_embedded: true, server })
    }

    pub fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// Returns the connection options of the standby for reads, if there is one.
    pub fn standby(&self) -> Option<&PgConnectOptions> {
        self.standby.as_ref()
    }

    /// Returns the pool of a command that only reads. It leads to the standby, if there is one. `connect` makes the pool of
    /// connections to one server.
    pub async fn read_pool(&self, connect: impl Fn(&PgConnectOptions) -> PgPool) -> PgPool {
        let primary = connect(&self.options);
        match &self.standby {
            Some(standby) => Standby::command_pool(connect(standby), &primary).await,
            None => primary,
        }
    }

    pub fn is_embedded(&self) -> bool {
        self.is_embedded
    }

    /// Migrates the schema to this release.
    pub async fn migrate(&self) -> Result<(), NodeError> {
        Ok(ledger::migrate(self.migrating()).await?)
    }

    /// Returns the versions of the migrations that are not applied yet.
    pub async fn pending(&self) -> Result<Vec<i64>, NodeError> {
        Ok(ledger::pending(self.migrating()).await?)
    }

    /// Returns the connection options of the role that migrates and may swap tables.
    pub fn migrating(&self) -> &PgConnectOptions {
        self.migration.as_ref().unwrap_or(&self.options)
    }

    /// Migrates the schema if the role is allowed to. If it is not, the schema check that follows at startup reports any
    /// missing migration.
    pub async fn migrate_if_allowed(&self) -> Result<(), NodeError> {
        match self.migrate().await {
            Err(NodeError::Schema(error)) if self.migration.is_none() && is_forbidden(&error) => {
                tracing::debug!(%error, "skipped migrations: this role may not migrate");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Stops the embedded server, if this process runs it, and waits until it has ended.
    pub async fn close(self) -> Result<(), NodeError> {
        match self.server {
            Some(server) => Ok(server.stop().await?),
            None => Ok(()),
        }
    }
}

/// Returns whether a privilege is missing: the check before the first migration found that, or the database refused a
/// statement (SQLSTATE 42501).
fn is_forbidden(error: &SchemaError) -> bool {
    if matches!(error, SchemaError::Lacking { .. }) {
        return true;
    }
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(sqlx::Error::Database(refusal)) = error.downcast_ref() {
            return refusal.code().as_deref() == Some("42501");
        }
        source = error.source();
    }
    false
}
