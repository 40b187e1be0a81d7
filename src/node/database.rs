//! Where the database is: at a URL, or in an embedded server, which is started here unless
//! another process runs it already.

use sqlx::postgres::PgConnectOptions;

use super::NodeError;
use crate::config::DatabaseSettings;
use crate::ledger::{self, SchemaError};
use crate::postgres::{self, Server, Settings};

/// A database that answers, or is expected to.
#[derive(Debug)]
pub struct Database {
    options: PgConnectOptions,
    migration: Option<PgConnectOptions>,
    is_embedded: bool,
    /// The embedded server, if it runs here.
    server: Option<Server>,
}

impl Database {
    /// Finds the database, and starts the embedded server if it is needed and nobody runs it.
    pub async fn open(settings: &DatabaseSettings) -> Result<Database, NodeError> {
        if let Some(found) = Database::find(settings).await? {
            return Ok(found);
        }
        let server = Server::start(Settings {
            programs: settings.postgres_programs.clone(),
            account: settings.postgres_account.clone(),
            ..Settings::new(&settings.data_dir)
        });
        Database::embedded(server.await?)
    }

    /// Finds the database without starting one: at the URL, or beside a running program.
    pub async fn find(settings: &DatabaseSettings) -> Result<Option<Database>, NodeError> {
        let migration = settings.migration_options()?;
        if let Some(options) = settings.options()? {
            return Ok(Some(Database { options, migration, is_embedded: false, server: None }));
        }
        let data_dir = settings.data_dir.clone();
        let running = tokio::task::spawn_blocking(move || postgres::running_url(&data_dir)).await;
        let running = running.map_err(|_| NodeError::Interrupted)??;
        let Some(url) = running else { return Ok(None) };
        Ok(Some(Database { options: url.parse()?, migration, is_embedded: true, server: None }))
    }

    /// On a server that runs already.
    pub fn embedded(server: Server) -> Result<Database, NodeError> {
        Ok(Database { options: server.url().parse()?, migration: None, is_embedded: true, server: Some(server) })
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
