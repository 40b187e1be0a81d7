//! Logins of the embedded server: authentication rules of the socket, and the roles.
//!
//! The kernel tells the server which user a connection comes from (peer authentication), so there is no password. The
//! rules are files of the data directory, not of the cluster. They are rewritten at every start, and so also apply to a
//! cluster that an earlier release created.

use std::io::Write;
use std::path::Path;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::account::{self, Account};
use super::{During, Error, Names};

/// Writes the authentication rules: the mapped users may log in as the owner and as the service. All other logins are
/// rejected.
pub(super) fn write_rules(hba: &Path, ident: &Path, account: &Account, names: &Names) -> Result<(), Error> {
    let (map, Names { owner, service, .. }) = (names.map(), names);
    let rules = format!(
        "# Written at every start.\n\
         local all \"{owner}\",\"{service}\" peer map={map}\n\
         local replication \"{owner}\" peer map={map}\n"
    );
    let mut users = vec![account::name_of(0), account.name.clone(), account::own_name()];
    users.sort();
    users.dedup();
    let lines = users.iter().flat_map(|user| {
        let user = user.replace('"', "\"\"");
        [owner, service].map(|role| format!("{map} \"{user}\" \"{role}\"\n"))
    });
    let users: String = std::iter::once("# Written at every start.\n".to_owned()).chain(lines).collect();
    write_for(account, hba, &rules)?;
    write_for(account, ident, &users)
}

/// Writes a file atomically, readable only by the server's user.
fn write_for(account: &Account, path: &Path, text: &str) -> Result<(), Error> {
    let what = || format!("write {}", path.display());
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::Builder::new().prefix("postgres.new.").tempfile_in(directory).during(what)?;
    file.write_all(text.as_bytes()).during(what)?;
    account.give(file.path())?;
    file.persist(path).map_err(|refused| refused.error).during(what)?;
    Ok(())
}

/// Creates the database and the service's login, if they do not exist. The login can become the runtime role and nothing
/// else. Removes the owner's password, which an earlier release set.
pub(super) async fn prepare_roles(owner_url: &str, names: &Names) -> Result<(), Error> {
    let Names { database, owner, service, runtime, .. } = names;
    let mut connection = PgConnection::connect(owner_url).await?;
    let roles = format!(
        "DO $$ BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{runtime}') THEN
                CREATE ROLE \"{runtime}\" NOLOGIN;
            END IF;
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{service}') THEN
                CREATE ROLE \"{service}\";
            END IF;
            ALTER ROLE \"{service}\" LOGIN NOINHERIT NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS PASSWORD NULL;
            ALTER ROLE \"{owner}\" PASSWORD NULL;
            IF NOT pg_has_role('{service}', '{runtime}', 'MEMBER') THEN
                GRANT \"{runtime}\" TO \"{service}\";
            END IF;
        END $$"
    );
    sqlx::raw_sql(AssertSqlSafe(roles)).execute(&mut connection).await?;
    let exists: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(database)
        .fetch_one(&mut connection)
        .await?;
    if !exists {
        // CREATE DATABASE cannot run in a transaction.
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE \"{database}\""))).execute(&mut connection).await?;
    }
    connection.close().await?;
    Ok(())
}
