//! A search for data that should be gone, in every table of every schema and in the server's files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rewards_ledger::secrets::seal::random_secret;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::support::node::Node;

/// Bytes that must not be found anywhere, keyed by a description.
#[derive(Debug, Default)]
pub struct Traces(pub BTreeMap<String, Vec<u8>>);

/// Connects as superuser.
pub async fn admin(node: &Node) -> PgConnection {
    node.options.connect().await.unwrap()
}

impl Traces {
    /// Takes the bytes from a query that returns a name and a value per row.
    pub async fn of(node: &Node, sql: &'static str) -> Traces {
        let found: Vec<(String, Vec<u8>)> = sqlx::query_as(sql).fetch_all(&mut admin(node).await).await.unwrap();
        let known = found.len();
        let traces = Traces(found.into_iter().collect());
        assert!(known > 0 && traces.0.len() == known, "{:?}", traces.0.keys());
        assert!(traces.0.values().all(|bytes| bytes.len() >= 16), "too short to be searched for");
        traces
    }

    /// Takes these texts in plain form.
    pub fn plain(texts: &[&str]) -> Traces {
        Traces(texts.iter().map(|text| ((*text).to_owned(), text.as_bytes().to_vec())).collect())
    }

    pub fn and(mut self, other: Traces) -> Traces {
        self.0.extend(other.0);
        self
    }

    /// Returns the traces that the server's files still contain.
    pub async fn in_files(&self, node: &Node) -> Vec<String> {
        sqlx::raw_sql("CHECKPOINT").execute(&mut admin(node).await).await.unwrap();
        let directory: String = sqlx::query_scalar(
            "SELECT current_setting('data_directory') || '/base/' || oid FROM pg_database WHERE datname = current_database()",
        )
        .fetch_one(&mut admin(node).await)
        .await
        .unwrap();
        let mut found = vec![];
        let mut files = 0;
        for entry in std::fs::read_dir(PathBuf::from(directory)).unwrap() {
            let path = entry.unwrap().path();
            // A file that VACUUM has just replaced may disappear.
            let Ok(content) = std::fs::read(&path) else { continue };
            files += 1;
            for (name, bytes) in &self.0 {
                if content.windows(bytes.len()).any(|window| window == bytes) {
                    found.push(name.clone());
                }
            }
        }
        assert!(files > 100, "{files}");
        found.sort();
        found.dedup();
        found
    }

    /// Returns the traces in the write-ahead log since the node's database was created.
    async fn in_wal(&self, node: &Node) -> Vec<String> {
        let mut conn = admin(node).await;
        // Write a known text, which flushes everything before it to disk. It is repeated, because a page may begin
        // within one copy.
        let known = random_secret();
        let write =
            format!("SET synchronous_commit = on; SELECT pg_logical_emit_message(true, '', repeat('{}', 3))", known.expose());
        sqlx::raw_sql(AssertSqlSafe(write)).execute(&mut conn).await.unwrap();
        let mut found = vec![];
        for (name, bytes) in self.0.iter().map(|(name, bytes)| (&**name, &**bytes)).chain([("known", known.expose().as_bytes())])
        {
            let is_there: bool = sqlx::query_scalar(
                "SELECT EXISTS (SELECT FROM pg_ls_waldir() AS wal,
                    pg_stat_file((SELECT format('base/%s/PG_VERSION', oid) FROM pg_database WHERE datname = current_database())) AS made
                 WHERE wal.modification >= made.modification
                    AND position($1 IN pg_read_binary_file('pg_wal/' || wal.name, 0, wal.size, true)) > 0)",
            )
            .bind(bytes)
            .fetch_one(&mut conn)
            .await
            .unwrap();
            if is_there {
                found.push(name.to_owned());
            }
        }
        assert_eq!(found.pop().as_deref(), Some("known"), "the search finds the known text");
        found
    }

    /// Returns the traces that any table still contains, as text or as bytes.
    pub async fn in_tables(&self, node: &Node) -> Vec<String> {
        let mut conn = admin(node).await;
        let tables: Vec<String> = sqlx::query_scalar(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname <> 'information_schema'
                AND (schemaname <> 'pg_catalog' OR tablename LIKE 'pg_statistic%')",
        )
        .fetch_all(&mut conn)
        .await
        .unwrap();
        assert!(tables.len() > 25, "{tables:?}");
        let mut found = vec![];
        for table in tables {
            for (name, bytes) in &self.0 {
                let sql = format!("SELECT count(*) FROM {table} AS t WHERE strpos(t::text, $1) > 0 OR strpos(t::text, $2) > 0");
                let rows: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
                    .bind(hex::encode(bytes))
                    .bind(
                        String::from_utf8(bytes.clone())
                            .ok()
                            .filter(|text| !text.contains('\0'))
                            .unwrap_or_else(|| hex::encode(bytes)),
                    )
                    .fetch_one(&mut conn)
                    .await
                    .unwrap();
                if rows > 0 {
                    found.push(format!("{name} in {table}"));
                }
            }
        }
        found
    }

    /// Checks that the search finds every trace. Otherwise a later search that finds nothing would prove nothing.
    pub async fn are_there(&self, node: &Node) {
        let all: Vec<String> = self.0.keys().cloned().collect();
        assert_eq!(self.in_files(node).await, all);
        let found = self.in_tables(node).await;
        let is_found = |name: &String| found.iter().any(|found| found.starts_with(&format!("{name} in ")));
        assert!(all.iter().all(is_found), "{found:?}");
    }

    /// Checks that the texts were only ever written sealed: the remaining write-ahead log reveals them only to a
    /// holder of the keys.
    pub async fn were_sealed(&self, node: &Node) {
        assert_eq!(self.in_wal(node).await, Vec::<String>::new());
    }

    pub async fn are_gone(&self, node: &Node) {
        assert_eq!(self.in_tables(node).await, Vec::<String>::new());
        assert_eq!(self.in_files(node).await, Vec::<String>::new());
    }
}
