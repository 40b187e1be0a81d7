//! The quickstart and the guides by task: their commands, run word by word as one script with the program on the `PATH`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use ledger_events::webhook::WebhookEventType;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use poem::endpoint::make_sync;
use poem::listener::TcpAcceptor;
use tokio::process::Command;

use super::snippets::blocks;
use crate::support::program::DEADLINE;
use crate::support::repository;
use crate::support::wait::until;

/// Ports for the nodes of the guides. The kernel gives them to nobody else, because they are below those that it chooses from.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// The directory that a guide's commands ran in, with their output.
struct Walked {
    directory: tempfile::TempDir,
}

impl Walked {
    /// Returns a file of the run, or of the directory that the guide made for itself.
    fn file(&self, name: &str) -> String {
        let made = std::fs::read_dir(self.directory.path().join("tmp")).unwrap().map(|entry| entry.unwrap().path());
        let paths = [self.directory.path().join(name)].into_iter().chain(made.map(|path| path.join(name)));
        paths.into_iter().find_map(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
    }

    /// Returns the output and the errors of the commands.
    fn out(&self) -> String {
        self.file("stdout") + &self.file("stderr")
    }
}

/// Returns an address on which nobody listens.
fn free_address() -> String {
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports = std::iter::repeat_with(|| rand::random_range(PORTS));
    format!("127.0.0.1:{}", ports.take(100).find(is_free).expect("a free port"))
}

/// Runs the commands of a guide in `docs/`.
async fn walk(guide: &str) -> Walked {
    let text = std::fs::read_to_string(repository("docs").join(guide)).unwrap();
    run(guide, &blocks(&text, "sh").concat()).await
}

/// Runs the commands of a guide as a person would, with an own home directory. Every command must succeed, and the guide must
/// end what it started, and leave nothing outside the directory that it made.
async fn run(guide: &str, commands: &str) -> Walked {
    let directory = tempfile::tempdir().unwrap();
    // The embedded server's user enters it as well.
    let made = directory.path().join("tmp");
    std::fs::create_dir(&made).unwrap();
    for path in [directory.path(), &made] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o711)).unwrap();
    }
    assert!(commands.contains("rewards-ledger serve"), "{guide}");
    std::fs::write(directory.path().join("guide.sh"), format!("set -eu\n{commands}")).unwrap();

    let address = free_address();
    let program = Path::new(env!("CARGO_BIN_EXE_rewards-ledger")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([program.to_owned()].into_iter().chain(std::env::split_paths(&path))).unwrap();
    let mut command = Command::new("sh");
    command.arg("guide.sh").current_dir(directory.path()).env("PATH", path).env("HOME", directory.path());
    let is_setting = |name: &str| name.starts_with("LEDGER_") || ["DATABASE_URL", "XDG_CONFIG_HOME", "RUST_LOG"].contains(&name);
    for (name, _) in std::env::vars().filter(|(name, _)| is_setting(name)) {
        command.env_remove(name);
    }
    command
        .env("TMPDIR", &made)
        .env("LEDGER_LISTEN", &address)
        .env("LEDGER_URL", format!("http://{address}"))
        .env("PWD", directory.path());
    let output = |name: &str| std::fs::File::create(directory.path().join(name)).unwrap();
    command.stdin(Stdio::null()).stdout(output("stdout")).stderr(output("stderr")).process_group(0);
    let mut shell = command.spawn().unwrap();
    let group = Pid::from_raw(shell.id().unwrap().try_into().unwrap());
    let done = tokio::time::timeout(DEADLINE, shell.wait()).await;
    let walked = Walked { directory };
    let all = || ["stdout", "stderr", "sandbox.log"].map(|name| walked.file(name)).join("\n");
    let Ok(done) = done else {
        killpg(group, Signal::SIGKILL).unwrap();
        panic!("{guide} did not end in time: {}", all());
    };
    let done = done.unwrap();
    // A signal arrives as long as one process of the group is left.
    let left = killpg(group, Signal::SIGTERM).is_ok();
    if left {
        until("everything has stopped", async || killpg(group, None).is_err()).await;
    }
    assert!(done.success(), "{guide}: {}", all());
    assert!(!left, "{guide} leaves something running");
    assert!(walked.file("sandbox.log").contains("\"stopped\""), "{guide}: {}", all());
    assert!(!walked.directory.path().join(".local").exists(), "{guide} uses the default data directory");
    walked
}

#[tokio::test]
async fn the_quickstart_leads_from_nothing_to_a_verified_webhook_in_ten_commands() {
    let walked = walk("quickstart.md").await;
    let commands = std::fs::read_to_string(repository("docs/quickstart.md")).unwrap();
    assert_eq!(blocks(&commands, "sh").len(), 10);
    assert!(walked.out().contains("profile sandbox"), "{}", walked.out());
    for part in [r#""balance":"1000.00""#, "Coffee Card", r#""amount":"50.00""#, "idempotent-replayed: true", "OrderPlaced"] {
        assert!(walked.out().contains(part), "{part} is not in {}", walked.out());
    }
    let out = walked.out();
    let verified: Vec<&str> = out.lines().filter(|line| line.contains(r#""signature":"verified""#)).collect();
    assert!(verified.iter().any(|line| line.contains("order.delivered")), "{}", walked.out());
    let settings = walked.directory.path().join(".config/rewards-ledger/client.toml");
    assert_eq!(settings.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let secret: serde_json::Value = serde_json::from_str(&walked.file("sandbox.json")).unwrap();
    for name in ["api_secret", "webhook_token", "portal_password", "console_password"] {
        let secret = secret[name].as_str().unwrap();
        assert!(!walked.file("sandbox.log").contains(secret) && !walked.out().contains(secret), "{name} is in the log");
    }
}

/// The first steps of the README end with a command that listens until it is interrupted, and nothing stops the sandbox. Here one
/// event is enough.
#[tokio::test]
async fn the_first_steps_of_the_readme_place_an_order_and_send_a_webhook() {
    let text = std::fs::read_to_string(repository("README.md")).unwrap();
    let steps = text.split("## First steps").nth(1).unwrap().split("\n## ").next().unwrap();
    let steps = blocks(steps, "sh").concat();
    let (build, steps) = steps.split_once('\n').unwrap();
    assert!(build.starts_with("cargo build --release && export PATH="), "{build}");
    let (steps, listen) = steps.trim_end().rsplit_once('\n').unwrap();
    let (listen, _) = listen.split_once('#').unwrap();
    assert!(listen.starts_with("rewards-ledger listen --forward-to http://localhost:3000/hook"), "{listen}");
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/hook", socket.local_addr().unwrap());
    let accepting = poem::Server::new_with_acceptor(TcpAcceptor::from_tokio(socket).unwrap()).run(make_sync(|_| ()));
    let target_serves = tokio::spawn(accepting);
    let listen = listen.replace("http://localhost:3000/hook", &target);
    let steps =
        format!("chmod 711 .\nexport LEDGER_DATA_DIR=\"$PWD/tmp/ledger\"\n{steps}\n{listen} --count 1\nkill $! && wait $!\n");
    let walked = run("README.md", &steps).await;
    for part in [r#""amount":"50.00""#, "order.delivered", "order.created"] {
        assert!(walked.out().contains(part), "{part} is not in {}", walked.out());
    }
    target_serves.abort();
}

#[tokio::test]
async fn the_guide_to_bulk_orders_places_each_order_once() {
    let walked = walk("guides/bulk-orders.md").await;
    let placed = walked.file("first.json");
    assert_eq!(placed.lines().filter(|line| line.contains(r#""success":true"#)).count(), 3, "{placed}");
    assert!(walked.out().contains("GIFT-2026-002") && !walked.out().contains("GIFT-2026-003"), "{}", walked.out());
}

#[tokio::test]
async fn the_guide_for_machines_behind_a_firewall_forwards_signed_events() {
    let walked = walk("guides/behind-a-firewall.md").await;
    let received = walked.file("received.txt");
    let types: Vec<&str> = received.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(types, ["order.created", "order.pending", "order.delivered", "order.created"], "{received}");
    assert!(walked.out().contains("order.cancelled"), "{}", walked.out());
}

#[tokio::test]
async fn the_guide_to_going_live_restricts_signs_and_revokes_keys() {
    let walked = walk("guides/go-live.md").await;
    for code in ["E_INSUFFICIENT_SCOPE", "E_HMAC_SIGNATURE_REQUIRED", "E_UNAUTHORIZED"] {
        assert_eq!(walked.out().matches(code).count(), 1, "{code}: {}", walked.out());
    }
    for event_type in WebhookEventType::ALL.map(WebhookEventType::as_str) {
        assert!(walked.out().contains(event_type), "{event_type}: {}", walked.out());
    }
}

#[tokio::test]
async fn the_guide_to_reconciliation_finds_nothing_that_differs() {
    let walked = walk("guides/reconcile-a-month.md").await;
    let report: serde_json::Value = serde_json::from_str(&walked.file("month.json")).unwrap();
    assert_eq!(report["found"], 0, "{report:#}");
    assert!(walked.file("month.csv").contains("50.00"), "{}", walked.file("month.csv"));
}

#[tokio::test]
async fn the_guide_to_proofs_ends_with_a_receipt_that_cannot_be_forged() {
    let walked = walk("guides/prove-an-order.md").await;
    assert_ne!(walked.file("receipt.json"), walked.file("forged.json"));
    assert!(walked.out().contains("order 1"), "{}", walked.out());
}
