//! Check before the first migration: the role has what the migrations need, without being a superuser.

use ledger_database::PgConnectOptions;
use sqlx::Connection;

use super::SchemaError;

/// Query that returns what the role lacks, each with the statement that grants it.
const LACKING: &str = "
    WITH me AS (SELECT rolname, rolsuper, rolcreaterole FROM pg_roles WHERE rolname = current_user)
    SELECT format('CREATE on the database (GRANT CREATE ON DATABASE %I TO %I)', current_database(), rolname) FROM me
        WHERE NOT has_database_privilege(current_database(), 'CREATE')
    UNION ALL
    SELECT format('CREATE on the schema public (GRANT CREATE ON SCHEMA public TO %I)', rolname) FROM me
        WHERE NOT has_schema_privilege('public', 'CREATE')
    UNION ALL
    SELECT format('the role ledger_runtime (CREATE ROLE ledger_runtime NOLOGIN, or ALTER ROLE %I CREATEROLE)', rolname) FROM me
        WHERE NOT rolsuper AND NOT rolcreaterole AND NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'ledger_runtime')
    UNION ALL
    SELECT format('the right to grant ledger_runtime (GRANT ledger_runtime TO %I WITH ADMIN OPTION)', me.rolname) FROM me, pg_roles r
        WHERE r.rolname = 'ledger_runtime' AND NOT me.rolsuper AND NOT pg_has_role(r.oid, 'MEMBER WITH ADMIN OPTION')
          AND NOT (me.rolcreaterole AND current_setting('server_version_num')::int < 160000)";

/// Checks that the role may migrate an empty database.
///
/// # Errors
/// Returns [`SchemaError::Lacking`] with everything that is missing.
pub async fn check(options: &PgConnectOptions) -> Result<(), SchemaError> {
    let mut connection = options.clone().application_name("rewards-ledger migrate").connect().await?;
    let lacking: Vec<String> = sqlx::query_scalar(LACKING).fetch_all(&mut connection).await?;
    let role: String = sqlx::query_scalar("SELECT current_user::text").fetch_one(&mut connection).await?;
    connection.close().await?;
    match lacking.is_empty() {
        true => Ok(()),
        false => Err(SchemaError::Lacking { role, lacking: lacking.join("; ") }),
    }
}
