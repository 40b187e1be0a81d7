//! A node of the last release and a node of this build run side by side through the migration.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use sqlx::{Connection, PgConnection};
use tokio::process::Command;
use webhook_client::receiver::ReceiverResponse;

use super::expansion::last_release;
use super::load::{Load, Shop};
use crate::support::program::{NODE_LISTEN, Program, run};
use crate::support::wait::until;
use crate::support::{postgres, repository, shop};

/// Timeout for compiling the whole workspace while both processors are busy.
const TO_BUILD: Duration = Duration::from_secs(1_500);

/// Ample limits for the rules that the last release has.
const LAST_RELEASES_LIMITS: &str =
    "orders=1000000/60s,images=1000000/60s,general=1000000/1h,login=1000000/60s,refresh=1000000/60s,portal=1000000/1h";

/// Runs a command to its end. Returns its output, or the reason of the failure.
async fn output(command: &mut Command) -> Result<String, String> {
    let name = format!("{:?}", command.as_std().get_program());
    let ended = tokio::time::timeout(TO_BUILD, command.stdin(Stdio::null()).kill_on_drop(true).output()).await;
    let ended = ended.map_err(|_| format!("{name} took too long"))?.map_err(|error| format!("{name}: {error}"))?;
    match ended.status.success() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).trim().to_owned()),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&ended.stderr).trim())),
    }
}

fn git(arguments: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(repository("")).args(arguments);
    git
}

/// Compiles the program of the last release from this repository's history, beside the program under test and with
/// the libraries already compiled for it. Returns `None` without that history.
async fn program_of_last_release() -> Option<PathBuf> {
    let commit = last_release().commit;
    let known = output(&mut git(&["rev-parse", "--verify", "--quiet", &format!("{commit}^{{commit}}")])).await;
    if let Err(problem) = known {
        // Write past the captured output of the test, so that a skipped check is visible.
        let line = format!(
            "SKIPPED: no history with the last release ({commit}): {problem} (tests/rollout/expansion.rs checks its schema)\n"
        );
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        return None;
    }
    let this = Path::new(env!("CARGO_BIN_EXE_rewards-ledger"));
    let (profile, target) = (this.parent().unwrap(), this.ancestors().nth(2).unwrap());
    let name = format!("rewards-ledger-{commit}");
    let sources = target.join("last-release").join(&commit);
    if !sources.join("Cargo.toml").exists() {
        check_out(&commit, &name, &sources).await;
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // With the features of a test build.
    cargo.args(["test", "--locked", "--no-run", "--test", "none"]).current_dir(&sources).env("CARGO_TARGET_DIR", target);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    output(&mut cargo).await.unwrap_or_else(|problem| panic!("the last release does not build: {problem}"));
    Some(profile.join(name))
}

/// Puts the sources of a commit into a directory. Its packages get other names than this build's, because both share
/// a target directory.
async fn check_out(commit: &str, name: &str, sources: &Path) {
    let unpacked = tempfile::tempdir_in(prepared(sources.parent().unwrap())).unwrap();
    let archive = unpacked.path().join("archive.tar");
    output(git(&["archive", "--format=tar", "--output"]).arg(&archive).arg(commit)).await.unwrap();
    output(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(unpacked.path())).await.unwrap();
    std::fs::remove_file(&archive).unwrap();
    let edit = |file: &str, edit: &dyn Fn(String) -> String| {
        let path = unpacked.path().join(file);
        std::fs::write(&path, edit(std::fs::read_to_string(&path).unwrap())).unwrap();
    };
    let manifest: toml::Table = std::fs::read_to_string(unpacked.path().join("Cargo.toml")).unwrap().parse().unwrap();
    let version = manifest["workspace"]["package"]["version"].as_str().unwrap();
    let (was, is) = (format!("version = \"{version}\"\n"), format!("version = \"{version}-r{commit}\"\n"));
    edit("Cargo.toml", &|text| {
        let text =
            text.replacen(&was, &is, 1).replace("default-run = \"rewards-ledger\"\n", "autobins = false\nautotests = false\n");
        format!("{text}\n[[bin]]\nname = \"{name}\"\npath = \"src/main.rs\"\n\n[[test]]\nname = \"none\"\npath = \"none.rs\"\n")
    });
    std::fs::write(unpacked.path().join("none.rs"), "").unwrap();
    edit("Cargo.lock", &|text| {
        ["rewards-ledger", "ledger-events", "ledger-projections"].iter().fold(text, |text, package| {
            text.replace(&format!("name = \"{package}\"\n{was}"), &format!("name = \"{package}\"\n{is}"))
        })
    });
    // All of it or nothing appears. Another process may have been faster.
    if std::fs::rename(unpacked.path(), sources).is_ok() {
        _ = unpacked.keep();
    }
}

fn prepared(directory: &Path) -> &Path {
    std::fs::create_dir_all(directory).unwrap();
    directory
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_release_and_this_build_work_side_by_side_through_the_migration() {
    let Some(last) = program_of_last_release().await else { return };
    let server = postgres::own_server(false).await;
    let (receiver, _received) = shop::receiver(|_| ReceiverResponse::Status(200)).await;
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    let trust = ["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"];

    let old_arguments: Vec<&str> = trust.into_iter().chain(["--rate-limits", LAST_RELEASES_LIMITS]).collect();
    let mut old = Program::of(&last, &server.url(), &old_arguments).await;
    let customer = Shop::open(&old, &receiver.url()).await;
    let mut on_old = Load::start(&old, &customer, "old");
    on_old.go_round().await;

    // The schema expands while the old node runs.
    let migrated = run(old.command().args(["migrate", "--json"])).await;
    let (told, said) = (String::from_utf8_lossy(&migrated.stdout), String::from_utf8_lossy(&migrated.stderr));
    assert!(migrated.status.success(), "{told}{said}");
    on_old.go_round().await;
    assert_eq!(on_old.failures(), Vec::<String>::new(), "after the migration");

    // The nodes are replaced, one after another. The old one knows of no leader and writes its orders itself.
    let new = Program::start(&server.url(), &[&trust[..], &NODE_LISTEN].concat()).await;
    let mut on_new = Load::start(&new, &customer, "new");
    for _ in 0..3 {
        on_old.go_round().await;
        on_new.go_round().await;
        assert_eq!((on_old.failures(), on_new.failures()), (vec![], vec![]), "side by side");
    }
    assert_eq!(on_old.stop().await, Vec::<String>::new());
    old.signal(Signal::SIGTERM);
    assert!(old.ended().await.success());
    on_new.go_round().await;
    assert_eq!(on_new.stop().await, Vec::<String>::new());

    let stumbled: Vec<String> = [old.log(), new.log()]
        .iter()
        .flat_map(|log| log.lines())
        .filter(|line| line.contains("cached plan") || line.contains(r#""level":"ERROR""#))
        .map(str::to_owned)
        .collect();
    assert_eq!(stumbled, Vec::<String>::new());
    // The data written by both nodes agrees with the log.
    let mut admin = PgConnection::connect(&server.url()).await.unwrap();
    let projected =
        "SELECT (SELECT position FROM projection_checkpoints WHERE projection = 'deliveries') = (SELECT position FROM log_head)
        AND NOT EXISTS (SELECT FROM orders WHERE NOT is_queued AND status = 'PENDING')";
    until("all is projected", async || sqlx::query_scalar(projected).fetch_one(&mut admin).await.unwrap()).await;
    let verified = run(new.command().arg("verify")).await;
    let (told, said) = (String::from_utf8_lossy(&verified.stdout), String::from_utf8_lossy(&verified.stderr));
    assert!(verified.status.success(), "{told}{said}");
    drop((old, new));
    server.stop().await.unwrap();
}
