//! Division of a node's database connections among its tasks, and the check that the database allows as many.

use ledger_database::{Connector, PgConnectOptions};
use tokio_util::sync::CancellationToken;

use crate::config::{Role, Roles};
use crate::ledger::ShardWatch;
use crate::ledger::connect::{
    ACCESS_CONNECTIONS, DELIVERY_CONNECTIONS, FURTHER_DELIVERY_CONNECTIONS, MAINTENANCE_CONNECTIONS, RUNTIME_ROLE,
    WORK_CONNECTIONS,
};

/// Connections of the writer per shard: one that writes, and one that reads ahead.
const WRITING: u32 = 2;
/// Connections for NOTIFY and for LISTEN, and a spare one for replacing a dead LISTEN connection.
const NEWS: u32 = 3;
/// Connections of the projector per shard: for deliveries, and for lists and totals.
const PROJECTING: u32 = 2;
/// Connection of the projector for the trees of all shards.
const TREES: u32 = 1;
/// Connections of the delivery worker per shard: for claims and for results.
const SENDING: u32 = 2;
/// Connection of fulfilment that moves vouchers between shards, if there are several.
const MOVING: u32 = 1;
/// Connections of the gate, for keys and rate limits.
const GATE: u32 = 1;
/// Connection of a verification that an operator starts.
const VERIFYING: u32 = 1;
/// Smallest pool for reading. With fewer connections, one slow request would block all others.
const MIN_READING: u32 = 2;

/// Reason why a node cannot start with its number of connections.
#[derive(Debug, thiserror::Error)]
pub enum BudgetError {
    #[error(
        "--database-connections (LEDGER_DATABASE_CONNECTIONS) is {given}, but a node with these roles on {shards} shard(s) needs {needed}"
    )]
    TooFew { given: u32, needed: u32, shards: u32 },
    #[error(
        "--database-connections (LEDGER_DATABASE_CONNECTIONS) is {given}, but the database takes {allowed} connections from this role: \
         raise max_connections, or lower the setting, to {needed} at least"
    )]
    TooMany { given: u32, allowed: i64, needed: u32 },
    #[error("failed to read the database's limit on connections: {0}")]
    Database(#[from] sqlx::Error),
}

/// Division of a node's connections to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Connections of all loops and pools, except the pool for reading.
    pub fixed: u32,
    /// Connections for the requests of clients and operators: the remainder.
    pub reading: u32,
}

impl Budget {
    /// Divides `given` connections among the roles of a node.
    ///
    /// # Errors
    /// Returns [`BudgetError::TooFew`] when fewer than the minimum remain for reading.
    pub fn share(given: u32, roles: &Roles, shards: u32) -> Result<Budget, BudgetError> {
        let fixed = fixed(roles, shards);
        match given.checked_sub(fixed) {
            Some(reading) if reading >= MIN_READING => Ok(Budget { fixed, reading }),
            _ => Err(BudgetError::TooFew { given, needed: fixed.saturating_add(MIN_READING), shards }),
        }
    }

    /// Divides the connections for the database's shards, and checks that the database allows `given` connections. Only
    /// logs a warning if other clients currently hold too many, because they may release them.
    ///
    /// # Errors
    /// Returns [`BudgetError`] when there are too few or too many connections, or when the database fails.
    pub async fn check(options: &PgConnectOptions, given: u32, roles: &Roles) -> Result<Budget, BudgetError> {
        let settings = [("role", RUNTIME_ROLE), ("statement_timeout", "10000")];
        let options = options.direct().application_name("rewards-ledger start").options(settings);
        let mut connection = Connector::new(options, std::time::Duration::from_secs(11)).connect().await?;
        let (shards, allowed, in_use): (i64, i64, i64) = sqlx::query_as(
            "SELECT (SELECT count(*) FROM log_head),
                least(current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
                        - coalesce(current_setting('reserved_connections', true)::bigint, 0),
                    (SELECT nullif(rolconnlimit, -1) FROM pg_roles WHERE rolname = session_user),
                    (SELECT nullif(datconnlimit, -1) FROM pg_database WHERE datname = current_database())),
                (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())",
        )
        .fetch_one(&mut connection)
        .await?;
        _ = connection.close().await; // on an error the server closes it anyway
        let shards = u32::try_from(shards).unwrap_or(u32::MAX);
        let budget = Budget::share(given, roles, shards)?;
        if i64::from(given) > allowed {
            return Err(BudgetError::TooMany { given, allowed, needed: budget.fixed + MIN_READING });
        }
        if i64::from(given) + in_use > allowed {
            tracing::warn!(
                database_connections = given,
                in_use,
                allowed,
                "the database may run out of connections: raise max_connections, or lower --database-connections"
            );
        }
        Ok(budget)
    }

    /// Logs a warning whenever shards are added whose connections exceed `given`, until stopped. The pool for reading shrinks
    /// only when the node starts again, which takes `needed` connections at least.
    pub async fn watch(self, given: u32, roles: Roles, mut shards: ShardWatch, stop: CancellationToken) {
        while stop.run_until_cancelled(shards.changed()).await.is_some() {
            let shards = u32::try_from(shards.current().len()).unwrap_or(u32::MAX);
            let fixed = fixed(&roles, shards);
            let (opened, needed) = (fixed.saturating_add(self.reading), fixed.saturating_add(MIN_READING));
            if opened > given {
                tracing::warn!(
                    database_connections = given,
                    opened,
                    needed,
                    shards,
                    "an added shard opens connections beyond --database-connections: raise it before the node starts again"
                );
            }
        }
    }
}

/// Returns the number of connections of all loops and pools, except the pool for reading.
fn fixed(roles: &Roles, shards: u32) -> u32 {
    let of = |role, connections| if roles.include(role) { connections } else { 0 };
    let of_each_shard = WRITING + of(Role::Projector, PROJECTING) + of(Role::Delivery, SENDING);
    let of_further = of(Role::Delivery, FURTHER_DELIVERY_CONNECTIONS).saturating_mul(shards.saturating_sub(1));
    let of_all = NEWS
        + MAINTENANCE_CONNECTIONS
        + WORK_CONNECTIONS
        + of(Role::Projector, TREES)
        + of(Role::Delivery, DELIVERY_CONNECTIONS)
        + of(Role::Fulfilment, if shards > 1 { MOVING } else { 0 })
        + of(Role::Api, ACCESS_CONNECTIONS + GATE + VERIFYING);
    of_each_shard.saturating_mul(shards).saturating_add(of_further).saturating_add(of_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_for_reading_gets_the_remaining_connections() {
        let all: Roles = "api,projector,fulfilment,delivery".parse().unwrap();
        let budget = |given, roles: &Roles, shards| Budget::share(given, roles, shards).map(|budget| budget.reading);
        assert_eq!(budget(40, &all, 1).unwrap(), 17);
        assert_eq!(budget(40, &all, 3).unwrap(), 2);
        assert_eq!(budget(25, &all, 1).unwrap(), 2);
        let told = budget(24, &all, 1).unwrap_err().to_string();
        assert!(told.contains("is 24") && told.contains("needs 25"), "{told}");
        let told = budget(40, &all, 4).unwrap_err().to_string();
        assert!(told.contains("on 4 shard(s) needs 47"), "{told}");
        let few: Roles = "fulfilment".parse().unwrap();
        assert_eq!(budget(40, &few, 1).unwrap(), 28);
    }
}
