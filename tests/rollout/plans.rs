//! No read fails because a migration has outdated its plans.

use reqwest::Method;
use rewards_ledger::pages;
use sqlx::Executor;

use crate::api::routes::{Who, path, table};
use crate::pages::every_page::NO_PAGES;
use crate::pages::furnished::Furnished;

/// Changes the collation of every column with text, as `migrate --contract` does for some of them. Prepared statements that
/// return such a column fail then.
const CHANGE: &str = r#"
    DO $$ DECLARE one record; BEGIN
        FOR one IN SELECT format('ALTER TABLE %I.%I %s', n.nspname, t.relname, string_agg(format('ALTER COLUMN %I TYPE text COLLATE %I',
                a.attname, CASE o.collname WHEN 'C' THEN 'POSIX' ELSE 'C' END), ', ')) AS statement
            FROM pg_attribute a JOIN pg_class t ON t.oid = a.attrelid JOIN pg_namespace n ON n.oid = t.relnamespace
            JOIN pg_collation o ON o.oid = a.attcollation
            WHERE n.nspname IN ('public', 'vault') AND t.relkind IN ('r', 'p') AND NOT t.relispartition AND a.atttypid = 'text'::regtype
                AND a.attnum > 0 AND a.attinhcount = 0 AND a.attgenerated = '' AND t.relname <> '_sqlx_migrations'
            GROUP BY n.nspname, t.relname
        LOOP EXECUTE one.statement; END LOOP;
    END $$"#;

#[tokio::test(flavor = "multi_thread")]
async fn no_read_fails_after_a_migration_has_outdated_its_plans() {
    let furnished = Furnished::start().await;
    let node = &furnished.node;
    let mut admin = node.admin().await;
    let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let mut reads = vec![];
    for row in table().iter().filter(|row| row.method() == "GET") {
        let cookie = match row.who {
            Who::Anyone => "",
            Who::Client(_) | Who::Portal(_) => &furnished.owner().cookie,
            Who::Operators(_) | Who::Console => &furnished.admin().cookie,
        };
        reads.push((row.path(&furnished.things), cookie));
    }
    for (route, methods) in pages::routes() {
        if methods.contains(&Method::GET) && !NO_PAGES.contains(&&*route) {
            let cookie = if route.starts_with("/portal") { &furnished.owner().cookie } else { &furnished.admin().cookie };
            reads.push((path(&route, &furnished.things), cookie));
        }
    }
    let mut failed = vec![];
    for (path, cookie) in reads {
        let read = async || {
            let answer = http.get(format!("{}{path}", node.url())).header("Cookie", cookie).send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        };
        if path.ends_with("/receipt") {
            node.publish().await; // a read of vouchers before it is an event
        }
        // The second read usually uses the connection of the first one, which has prepared its statements.
        let (before, text) = read().await;
        assert!(before < 500 && before != 401, "{path}: {before} {text}");
        admin.execute(CHANGE).await.unwrap();
        let (after, text) = read().await;
        if after != before {
            failed.push(format!("{path}: {before}, then {after} {text}"));
        }
    }
    assert_eq!(failed, Vec::<String>::new());
}
