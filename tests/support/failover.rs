//! A failover that loses commits: a copy of the database replaces it, as an asynchronous standby would.

use ledger_database::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection};

/// A copy of a database that receives no further changes.
#[derive(Debug)]
pub struct Standby {
    primary: PgConnectOptions,
    copy: String,
}

impl Standby {
    /// Copies the database as it is now. Closes every connection to the database.
    pub async fn of(primary: &PgConnectOptions) -> Standby {
        let name = primary.get_database().unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let copy = format!("{name}_{}", now.as_nanos());
        run(
            primary,
            &[
                format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"),
                // This returns when no backend is left.
                format!("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'"),
                format!("CREATE DATABASE {copy} TEMPLATE {name}"),
                format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true"),
            ],
        )
        .await;
        Standby { primary: primary.clone(), copy }
    }

    /// Returns the options for a connection to the copy.
    pub fn options(&self) -> PgConnectOptions {
        self.primary.clone().database(&self.copy)
    }

    /// Replaces the database with the copy. New connections find the copy.
    pub async fn promote(self) {
        let (name, copy) = (self.primary.get_database().unwrap(), &self.copy);
        run(&self.primary, &[format!("DROP DATABASE {name} WITH (FORCE)"), format!("ALTER DATABASE {copy} RENAME TO {name}")])
            .await;
    }
}

async fn run(options: &PgConnectOptions, statements: &[String]) {
    let mut admin = options.clone().database("postgres").connect().await.unwrap();
    for statement in statements {
        sqlx::raw_sql(AssertSqlSafe(statement.clone())).execute(&mut admin).await.unwrap();
    }
    admin.close().await.unwrap();
}
