//! A log of many pages: an export streams it and needs only the memory of one page.

use std::time::Duration;

use rewards_ledger::export::{Manifest, line};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::support::postgres;
use crate::support::program::{DEADLINE, OPERATOR_TOKEN, Program, peak_memory};

/// Number of events, of two kilobytes each: a little more than ten pages.
const EVENTS: i64 = 50_001;

/// Fills the log with events whose content does not matter.
async fn fill(database_url: &str) -> i64 {
    let mut conn = PgConnection::connect(database_url).await.unwrap();
    let sql = format!(
        "INSERT INTO events (shard_id, position, event_id, stream_type, stream_id, version, type, schema_version, data, metadata, recorded_at)
         SELECT 1, position + n, gen_random_uuid(), 'category', 1000000 + n, 1, 'CategoryAdded', 1,
            json_build_object('pad', repeat(md5(n::text), 60)), '{{}}', recorded_at FROM log_head, generate_series(1, {EVENTS}) AS n;
         UPDATE log_head SET position = position + {EVENTS}"
    );
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
    sqlx::query_scalar("SELECT position FROM log_head").fetch_one(&mut conn).await.unwrap()
}

/// Exports this many events with the program. Returns the size of the file and the peak memory.
///
/// The peak memory is sampled until the program ends. Repeats an export of which no sample was taken after it had written
/// half of the file.
async fn exported(program: &Program, directory: &std::path::Path, upto: i64) -> (u64, u64) {
    loop {
        let (size, sampled_at, peak) = sampled(program, directory, upto).await;
        if sampled_at > size / 2 {
            return (size, peak);
        }
        remove(&directory.join(format!("{upto}.ndjson")));
    }
}

/// Removes an export and its manifest.
fn remove(path: &std::path::Path) {
    std::fs::remove_file(path).unwrap();
    std::fs::remove_file(format!("{}.manifest.json", path.display())).unwrap();
}

/// Exports once. Returns the size of the file, its size at the last sample, and the peak memory until then.
async fn sampled(program: &Program, directory: &std::path::Path, upto: i64) -> (u64, u64, u64) {
    let path = directory.join(format!("{upto}.ndjson"));
    let partial = directory.join(format!("{upto}.ndjson.partial"));
    let mut command = program.command();
    command.args(["events", "export", "--to", &upto.to_string(), "--out"]).arg(&path).kill_on_drop(true);
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let (id, mut sampled_at, mut peak) = (child.id().unwrap(), 0, 0);
    let ended = tokio::time::timeout(DEADLINE, async {
        loop {
            tokio::select! {
                ended = child.wait() => return ended.unwrap(),
                () = tokio::time::sleep(Duration::from_millis(5)) => {
                    let written = std::fs::metadata(&partial).map_or(0, |file| file.len());
                    if let Some(memory) = peak_memory(id) {
                        (sampled_at, peak) = (written.max(sampled_at), memory);
                    }
                }
            }
        }
    });
    assert!(ended.await.expect("in time").success());
    (std::fs::metadata(path).unwrap().len(), sampled_at, peak * 1024)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_export_continues_and_produces_the_same_file() {
    let (database, directory) = (postgres::database().await, tempfile::tempdir().unwrap());
    let program = Program::start(&database.url, &["--roles", "api"]).await;
    let head = fill(&database.url).await;
    let (whole, _) = exported(&program, directory.path(), head).await;
    let expected = std::fs::read(directory.path().join(format!("{head}.ndjson"))).unwrap();

    let path = directory.path().join("killed.ndjson");
    let partial = directory.path().join("killed.ndjson.partial");
    let (mut killed, mut written) = (0, 0);
    // Kill it repeatedly, each time as soon as it has written more, so that it finishes eventually.
    let ended = tokio::time::timeout(DEADLINE, async {
        loop {
            let mut command = program.command();
            command.args(["events", "export", "--to", &head.to_string(), "--out"]).arg(&path).kill_on_drop(true);
            let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
            let (before, kills_at) = (written, written + whole / 4);
            let ended = loop {
                written = std::fs::metadata(&partial).map_or(0, |file| file.len());
                if written > kills_at {
                    break None;
                }
                // The file's size is sampled, because the program is killed in the middle of writing.
                tokio::select! {
                    ended = child.wait() => break Some(ended.unwrap()),
                    () = tokio::time::sleep(Duration::from_millis(1)) => {}
                }
            };
            match ended {
                // The machine paused, and nothing saw the file grow.
                Some(ended) if killed == 0 && ended.success() => {
                    remove(&path);
                    written = 0;
                    continue;
                }
                Some(ended) => return ended,
                None => child.kill().await.unwrap(),
            }
            assert!(written > before, "written lines are not written again");
            killed += 1;
        }
    });
    assert!(ended.await.expect("in time").success());
    assert!(killed > 0, "it was killed while it wrote");
    assert!(std::fs::read(&path).unwrap() == expected, "the bytes are the same after {killed} kills");
    let manifest = Manifest::of(&path).unwrap().expect("a manifest");
    assert!(manifest.describes(&path).unwrap());
    assert_eq!((manifest.events, manifest.last), (u64::try_from(head).unwrap(), Some(head)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_log_takes_the_memory_of_a_page() {
    let (database, directory) = (postgres::database().await, tempfile::tempdir().unwrap());
    let program = Program::start(&database.url, &["--roles", "api"]).await;
    let head = fill(&database.url).await;

    let (small, least) = exported(&program, directory.path(), 10_000).await;
    let (large, most) = exported(&program, directory.path(), head).await;
    assert!(large > small + (60 << 20) && least > 0, "{small} {large} {least}");
    assert!(
        most < least + (large - small) / 3,
        "{} more bytes of export took {} more bytes of memory",
        large - small,
        most.saturating_sub(least)
    );

    // Over HTTP in parts: each position comes once and in order, with no more memory than one part needs.
    let address = format!("{}/admin/v1/events", program.url());
    let get = async |query: &str| {
        let request = reqwest::Client::new().get(format!("{address}{query}")).bearer_auth(OPERATOR_TOKEN);
        let response = request.send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.content_length()), (200, None), "the response is a stream");
        let (mut response, mut rest, mut bytes, mut last) = (response, vec![], 0, 0);
        while let Some(part) = response.chunk().await.unwrap() {
            rest.extend_from_slice(&part);
            let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            for text in std::str::from_utf8(&rest[..whole]).unwrap().lines() {
                assert_eq!(line::read(text).unwrap().position, last + 1);
                last += 1;
            }
            bytes += whole as u64;
            rest.drain(..whole);
        }
        assert!(rest.is_empty());
        (bytes, last)
    };
    assert_eq!(get("?to=10000").await, (small, 10_000));
    let before = peak_memory(program.id()).unwrap() * 1024;
    assert_eq!(get("").await, (large, head));
    let after = peak_memory(program.id()).unwrap() * 1024;
    assert!(
        after < before + (large - small) / 3,
        "{} more bytes of export took {} more bytes of memory",
        large - small,
        after - before
    );
}
