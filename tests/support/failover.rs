//! A failover that loses commits: a copy of the database takes its place, as an asynchronous standby does.

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};

/// A copy of a database that hears nothing more of it.
#[derive(Debug)]
pub struct Standby {
    primary: PgConnectOptions,
    copy: String,
}

impl Standby {
    /// A copy of the database as it is now. Cuts every connection to the database.
    pub async fn of(primary: &PgConnectOptions) -> Standby {
        let name = primary.get_database().unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let copy = format!("{name}_{}", now.as_nanos());
        run(
            primary,
            &[
                format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false"),
                // No backend is left when this returns.
                format!("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'"),
                format!("CREATE DATABASE {copy} TEMPLATE {name}"),
                format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true"),
            ],
        )
        .await;
        Standby { primary: primary.clone(), copy }
    }

    /// How to connect to the copy.
    pub fn options(&self) -> PgConnectOptions {
        self.primary.clone().database(&self.copy)
    }

    /// Puts the copy in the place of the database: whoever connects to that from now on finds the copy.
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
