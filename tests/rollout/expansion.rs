//! Migrations since the last release only expand the schema, so that nodes of that release continue to work.

use std::collections::{BTreeMap, BTreeSet};

use ledger_database::PgConnectOptions;
use rewards_ledger::ledger;
use rewards_ledger::ledger::schema::migrate_to;
use serde::Deserialize;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

use crate::support::postgres;

/// Contents of `last_release.toml`.
#[derive(Debug, Deserialize)]
pub struct LastRelease {
    pub commit: String,
    pub schema: i64,
    read_whole: BTreeSet<String>,
    harmless: BTreeMap<String, String>,
}

pub fn last_release() -> LastRelease {
    toml::from_str(include_str!("last_release.toml")).unwrap()
}

/// A schema element that a node relies on: its kind, its table or type, and a description that is equal if the
/// element is unchanged.
type Relied = (String, String, String);

/// The description of an added column contains `required` if an insert that does not name it fails.
const RELIED_ON: &str = "
    SELECT 'column', r.oid::regclass::text, format('%s %s %s%s', a.attname, format_type(a.atttypid, a.atttypmod),
        coalesce(nullif(a.attcollation, 0)::regcollation::text, '-'),
        CASE WHEN a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' THEN ' required' ELSE '' END)
    FROM pg_class r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE r.relkind IN ('r', 'c') AND r.relnamespace::regnamespace::text IN ('public', 'vault')
    UNION ALL
    SELECT 'constraint', conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace::regnamespace::text IN ('public', 'vault') AND conrelid <> 0 AND contype <> 'n'
    UNION ALL
    SELECT 'unique index', i.indrelid::regclass::text, regexp_replace(pg_get_indexdef(i.indexrelid), ' INDEX \\S+ ON ', ' INDEX ON ')
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indisunique AND c.relnamespace::regnamespace::text IN ('public', 'vault')
    UNION ALL
    SELECT 'trigger', tgrelid::regclass::text, tgname::text FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL
    SELECT 'function', oid::regprocedure::text, pg_get_function_result(oid) FROM pg_proc
    WHERE pronamespace::regnamespace::text IN ('public', 'vault')
    UNION ALL
    SELECT 'sequence', oid::regclass::text, '' FROM pg_class
    WHERE relkind = 'S' AND relnamespace::regnamespace::text IN ('public', 'vault')
    UNION ALL
    SELECT 'privilege', c.oid::regclass::text, p.privilege FROM pg_class c
    CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS p (privilege)
    WHERE c.relkind = 'r' AND c.relnamespace::regnamespace::text IN ('public', 'vault')
      AND has_table_privilege('ledger_runtime', c.oid, p.privilege)";

async fn relied_on(admin: &mut PgConnection) -> BTreeSet<Relied> {
    sqlx::query_as(RELIED_ON).fetch_all(admin).await.unwrap().into_iter().collect()
}

/// Returns the reason why nodes of the last release cannot work with an added element, if there is one.
fn problem((kind, of, what): &Relied, release: &LastRelease) -> Option<&'static str> {
    match kind.as_str() {
        _ if release.harmless.contains_key(&format!("{kind} {of} {what}")) => None,
        "column" if release.read_whole.contains(of) => {
            Some("the last release prepares SELECT * from this table: make a new table")
        }
        "column" if what.ends_with(" required") => Some("the last release inserts without it: give it a default"),
        "constraint" | "unique index" | "trigger" => {
            Some("it may refuse what the last release writes: last_release.toml says if not")
        }
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_since_the_last_release_only_expand() {
    let server = postgres::own_server(false).await;
    let options: PgConnectOptions = server.url().parse().unwrap();
    let release = last_release();
    migrate_to(release.schema, &options).await.unwrap();
    let mut admin = PgConnection::connect(&server.url()).await.unwrap();
    let before = relied_on(&mut admin).await;
    let of_before: BTreeSet<&String> = before.iter().map(|(_, of, _)| of).collect();
    for table in &release.read_whole {
        admin.execute(AssertSqlSafe(format!("PREPARE whole_{table} AS SELECT * FROM {table}"))).await.unwrap();
    }
    ledger::migrate(&options).await.unwrap();
    for table in &release.read_whole {
        let read = admin.execute(AssertSqlSafe(format!("EXECUTE whole_{table}"))).await;
        assert!(read.is_ok(), "a statement of the last release fails: {table}: {read:?}");
    }
    let after = relied_on(&mut admin).await;
    let gone: Vec<&Relied> = before.difference(&after).collect();
    assert_eq!(gone, Vec::<&Relied>::new(), "the last release relies on it");
    let added = after.difference(&before).filter(|(_, of, _)| of_before.contains(of));
    let problems: Vec<_> = added.filter_map(|added| Some((problem(added, &release)?, added))).collect();
    assert!(problems.is_empty(), "{problems:#?}");
    server.stop().await.unwrap();
}
