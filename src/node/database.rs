//! Where the database is: at a URL, or in an embedded server, which is started here unless
//! another process runs it already.
//!
//! Only [`Database::open_or_create`] makes a ledger: a command that was given another data
//! directory than it should have been says so, instead of answering from an empty one.

use sqlx::postgres::PgConnectOptions;

use super::NodeError;
use crate::config::DatabaseSettings;
use crate::ledger::{self, SchemaError};
use crate::postgres::{self, Address, DATABASE, Server, Settings};

/// A database that answers, or is expected to.
#[derive(Debug)]
pub struct Database {
    /// Of an embedded server: under a login that can become the runtime role and nothing else.
    options: PgConnectOptions,
    /// Of an embedded server: under its owner, which is used to migrate and for maintenance alone.
    migration: Option<PgConnectOptions>,
    is_embedded: bool,
    /// The embedded server, if it runs here.
    server: Option<Server>,
}

impl Database {
    /// Finds the database, and starts the embedded server if it is needed and nobody runs it.
    ///
    /// # Errors
    /// [`NodeError::NoLedger`] when the data directory has none: nothing is created.
    pub async fn open(settings: &DatabaseSettings) -> Result<Database, NodeError> {
        match Database::find(settings).await? {
            Some(found) => Ok(found),
            None if postgres::has_cluster(&settings.data_dir)? => Database::start(settings).await,
            None => Err(NodeError::NoLedger(settings.data_dir.display().to_string())),
        }
    }

    /// Like [`Database::open`], and makes the data directory and the embedded server's cluster if
    /// they are absent.
    pub async fn open_or_create(settings: &DatabaseSettings) -> Result<Database, NodeError> {
        match Database::find(settings).await? {
            Some(found) => Ok(found),
            None => Database::start(settings).await,
        }
    }

    /// Finds the database without starting one: at the URL, or beside a running program.
    pub async fn find(settings: &DatabaseSettings) -> Result<Option<Database>, NodeError> {
        let migration = settings.migration_options()?;
        if let Some(options) = settings.options()? {
            return Ok(Some(Database { options, migration, is_embedded: false, server: None }));
        }
        let data_dir = settings.data_dir.clone();
        let running = tokio::task::spawn_blocking(move || postgres::running(&data_dir)).await;
        let running = running.map_err(|_| NodeError::Interrupted)??;
        running.map(|address| Database::at(&address, None)).transpose()
    }

    async fn start(settings: &DatabaseSettings) -> Result<Database, NodeError> {
        let server = Server::start(Settings {
            programs: settings.postgres_programs.clone(),
            release: settings.postgres_release.clone(),
            account: settings.postgres_account.clone(),
            ..Settings::new(&settings.data_dir)
        });
        Database::embedded(server.await?)
    }

    /// On a server that runs already.
    pub fn embedded(server: Server) -> Result<Database, NodeError> {
        Database::at(&server.address().clone(), Some(server))
    }

    fn at(address: &Address, server: Option<Server>) -> Result<Database, NodeError> {
        let options = address.service_url().parse()?;
        let migration = Some(address.owner_url(DATABASE).parse()?);
        Ok(Database { options, migration, is_embedded: true, server })
    }

    pub fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    pub fn is_embedded(&self) -> bool {
        self.is_embedded
    }

    /// Brings the schema up to this program's.
    pub async fn migrate(&self) -> Result<(), NodeError> {
        Ok(ledger::migrate(self.migrating()).await?)
    }

    /// The migrations that are not applied yet.
    pub async fn pending(&self) -> Result<Vec<i64>, NodeError> {
        Ok(ledger::pending(self.migrating()).await?)
    }

    /// Under the role that migrates, and may swap tables.
    pub fn migrating(&self) -> &PgConnectOptions {
        self.migration.as_ref().unwrap_or(&self.options)
    }

    /// The same where the role may. Where it may not, the check that follows at start says
    /// whether anything is missing.
    pub async fn migrate_if_allowed(&self) -> Result<(), NodeError> {
        match self.migrate().await {
            Err(NodeError::Schema(error)) if self.migration.is_none() && is_forbidden(&error) => {
                tracing::debug!(%error, "this role may not migrate");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Ends the embedded server, if it was started here, and waits for its end.
    pub async fn close(self) -> Result<(), NodeError> {
        match self.server {
            Some(server) => Ok(server.stop().await?),
            None => Ok(()),
        }
    }
}

/// Whether the database refused for want of a privilege.
fn is_forbidden(error: &SchemaError) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(sqlx::Error::Database(refusal)) = error.downcast_ref() {
            return refusal.code().as_deref() == Some("42501");
        }
        source = error.source();
    }
    false
}
