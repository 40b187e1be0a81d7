//! Three nodes behind HAProxy restart one by one under a load of every kind of request. One of them leads the shard, and the
//! others hand their orders to it. No request fails.

use std::net::TcpListener;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Stdio;

use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use webhook_client::receiver::ReceiverResponse;

use super::load::{FOR_ALL, Load, Shop};
use crate::support::program::{NODE_LISTEN, Program, run};
use crate::support::wait::until;
use crate::support::{postgres, repository, shop};

/// Number of the column with a server's state in HAProxy's statistics.
const STATUS: usize = 17;

/// Ports that no system gives to outgoing connections. Such a connection would keep a node from listening again.
const PORTS: Range<u16> = 20_000..30_000;

/// Returns different ports that nobody uses now.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = std::iter::repeat_with(|| TcpListener::bind(("127.0.0.1", rand::random_range(PORTS))));
    let mut listeners = listeners.take(1_000).flatten();
    std::array::from_fn(|_| listeners.next().expect("a free port")).map(|listener| listener.local_addr().unwrap().port())
}

/// HAProxy with the published sample, in front of nodes at these ports. It ends when this value is dropped.
struct Balancer {
    url: String,
    socket: PathBuf,
    _process: Child,
    _home: tempfile::TempDir,
}

impl Balancer {
    fn start(port: u16, nodes: &[u16]) -> Balancer {
        let home = tempfile::tempdir().unwrap();
        let (config, socket) = (home.path().join("haproxy.cfg"), home.path().join("socket"));
        let servers: Vec<String> = (1..).zip(nodes).map(|(n, port)| format!("server node{n} 127.0.0.1:{port} check")).collect();
        let changes = [
            ("global\n", format!("global\n    stats socket {} mode 600 level user\n", socket.display())),
            (
                "bind :443 ssl crt /etc/ssl/rewards-ledger/fullchain-and-key.pem alpn h2,http/1.1",
                format!("bind 127.0.0.1:{port}"),
            ),
            ("server node1 127.0.0.1:8080 check", servers.join("\n    ")),
        ];
        let sample = std::fs::read_to_string(repository("deploy/haproxy.cfg")).unwrap();
        let text = changes.into_iter().fold(sample, |text, (from, to)| {
            assert!(text.contains(from), "deploy/haproxy.cfg has no `{from}`");
            text.replace(from, &to)
        });
        std::fs::write(&config, text).unwrap();
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
        let mut command = Command::new("haproxy");
        command.arg("-db").arg("-q").arg("-f").arg(&config).env("PATH", path).stdin(Stdio::null()).kill_on_drop(true);
        let process = command.spawn().unwrap();
        Balancer { url: format!("http://127.0.0.1:{port}"), socket, _process: process, _home: home }
    }

    /// Waits until HAProxy sends requests to a node.
    async fn until_up(&self, node: usize) {
        let name = format!("rewards_ledger,node{},", node + 1);
        until("HAProxy sends requests to the node", async || {
            let Some(statistics) = self.statistics().await else { return false };
            let mut lines = statistics.lines().filter(|line| line.starts_with(&name));
            lines.next().and_then(|line| line.split(',').nth(STATUS)).is_some_and(|status| status == "UP")
        })
        .await;
    }

    async fn statistics(&self) -> Option<String> {
        let mut stream = UnixStream::connect(&self.socket).await.ok()?;
        stream.write_all(b"show stat\n").await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        Some(text)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_three_nodes_behind_haproxy_restart_one_by_one() {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
    if !std::env::split_paths(&path).any(|directory| directory.join("haproxy").exists()) {
        assert!(std::env::var_os("CI").is_none(), "the test of restarts cannot run: install haproxy");
        eprintln!("skipped the test of restarts: install haproxy");
        return;
    }
    let server = postgres::own_server(false).await;
    let (receiver, _received) = shop::receiver(|_| ReceiverResponse::Status(200)).await;
    let ca = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(ca.path(), receiver.ca_pem()).unwrap();
    let [front, ports @ ..] = free_ports::<4>();
    let balancer = Balancer::start(front, &ports);
    let mut nodes = vec![];
    for port in ports {
        let address = format!("127.0.0.1:{port}");
        let mut arguments = vec!["--listen", &address, "--shutdown-delay", "5s", "--public-url", &balancer.url];
        arguments.extend(["--trusted-proxies", "127.0.0.1/32", "--database-connections", "30"]);
        arguments.extend(["--webhook-ca-file", ca.path().to_str().unwrap(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"]);
        arguments.extend(FOR_ALL.into_iter().chain(NODE_LISTEN));
        nodes.push(Program::start(&server.url(), &arguments).await);
    }
    for node in 0..nodes.len() {
        balancer.until_up(node).await;
    }
    let customer = Shop::open(&nodes[0], &receiver.url()).await;
    let mut load = Load::balanced(&balancer.url, &customer, "balanced");
    load.go_round().await;

    for (number, node) in nodes.iter_mut().enumerate() {
        node.signal(Signal::SIGTERM);
        assert!(node.ended().await.success());
        load.go_round().await;
        node.restart().await;
        balancer.until_up(number).await;
        load.go_round().await;
        assert_eq!(load.failures(), Vec::<String>::new(), "node {} was restarted", number + 1);
    }
    assert_eq!(load.stop().await, Vec::<String>::new());
    let verified = run(nodes[0].command().arg("verify")).await;
    let (told, said) = (String::from_utf8_lossy(&verified.stdout), String::from_utf8_lossy(&verified.stderr));
    assert!(verified.status.success(), "{told}{said}");
    drop(nodes);
    server.stop().await.unwrap();
}
