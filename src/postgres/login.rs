//! Who may log in, and as which role: the rules of the socket, and the service's login.
//!
//! The kernel tells the server which user a connection comes from (peer authentication), so there
//! is no password. The rules are files of the data directory, not of the cluster: they are written
//! anew at every start, and also hold for a cluster that an earlier release made.

use std::io::Write;
use std::path::Path;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::account::{self, Account};
use super::{DATABASE, During, Error, OWNER_ROLE, SERVICE_ROLE};
use crate::ledger::connect::RUNTIME_ROLE;

/// The name of the mapping from users of the system to roles.
const MAP: &str = "rewards_ledger";

/// Writes the rules of authentication: the users in the map may log in as the owner and as the
/// service, nobody else as anybody.
pub(super) fn write_rules(hba: &Path, ident: &Path, account: &Account) -> Result<(), Error> {
    let rules = format!(
        "# Written at every start.\n\
         local all {OWNER_ROLE},{SERVICE_ROLE} peer map={MAP}\n\
         local replication {OWNER_ROLE} peer map={MAP}\n"
    );
    let mut users = vec![account::name_of(0), account.name.clone(), account::own_name()];
    users.sort();
    users.dedup();
    let lines = users.iter().flat_map(|user| {
        let user = user.replace('"', "\"\"");
        [OWNER_ROLE, SERVICE_ROLE].map(|role| format!("{MAP} \"{user}\" {role}\n"))
    });
    let map: String = std::iter::once("# Written at every start.\n".to_owned()).chain(lines).collect();
    write_for(account, hba, &rules)?;
    write_for(account, ident, &map)
}

/// Writes a file that only the server's user can read; whole or not at all.
fn write_for(account: &Account, path: &Path, text: &str) -> Result<(), Error> {
    let what = || format!("write {}", path.display());
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::Builder::new().prefix("postgres.new.").tempfile_in(directory).during(what)?;
    file.write_all(text.as_bytes()).during(what)?;
    account.give(file.path())?;
    file.persist(path).map_err(|refused| refused.error).during(what)?;
    Ok(())
}

/// Makes what the ledger's roles need, where it is not there yet: the database, and the service's
/// login, which can become [`RUNTIME_ROLE`] and nothing else. An owner of an earlier release loses
/// its password.
pub(super) async fn prepare_roles(owner_url: &str) -> Result<(), Error> {
    let mut connection = PgConnection::connect(owner_url).await?;
    let roles = format!(
        "DO $$ BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{RUNTIME_ROLE}') THEN
                CREATE ROLE {RUNTIME_ROLE} NOLOGIN;
            END IF;
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{SERVICE_ROLE}') THEN
                CREATE ROLE {SERVICE_ROLE};
            END IF;
            ALTER ROLE {SERVICE_ROLE} LOGIN NOINHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD NULL;
            ALTER ROLE {OWNER_ROLE} PASSWORD NULL;
            IF NOT pg_has_role('{SERVICE_ROLE}', '{RUNTIME_ROLE}', 'MEMBER') THEN
                GRANT {RUNTIME_ROLE} TO {SERVICE_ROLE};
            END IF;
        END $$"
    );
    sqlx::raw_sql(AssertSqlSafe(roles)).execute(&mut connection).await?;
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(DATABASE)
        .fetch_one(&mut connection)
        .await?;
    if !exists {
        // Never part of a transaction.
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {DATABASE}"))).execute(&mut connection).await?;
    }
    connection.close().await?;
    Ok(())
}
