//! A TCP relay in front of one or more servers. It can hold connections, as if the network stalled before the first byte,
//! and counts them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A relay, which ends with the runtime.
#[derive(Clone, Debug)]
pub struct Relay {
    address: SocketAddr,
    is_held: watch::Sender<bool>,
    accepted: Arc<AtomicUsize>,
}

impl Relay {
    pub async fn before(target: SocketAddr) -> Relay {
        Relay::among(vec![target]).await
    }

    /// Starts a relay whose connections lead to each of the servers in turn.
    pub async fn among(targets: Vec<SocketAddr>) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay =
            Relay { address: listener.local_addr().unwrap(), is_held: watch::Sender::new(false), accepted: Arc::default() };
        let (held, accepted) = (relay.is_held.clone(), relay.accepted.clone());
        tokio::spawn(async move {
            while let Ok((mut inward, _)) = listener.accept().await {
                let target = targets[accepted.fetch_add(1, Ordering::SeqCst) % targets.len()];
                let mut held = held.subscribe();
                tokio::spawn(async move {
                    if held.wait_for(|is_held| !is_held).await.is_ok()
                        && let Ok(mut outward) = TcpStream::connect(target).await
                    {
                        _ = tokio::io::copy_bidirectional(&mut inward, &mut outward).await;
                    }
                });
            }
        });
        relay
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL to register for a webhook.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    /// While held, connections are accepted and nothing is forwarded.
    pub fn hold(&self, is_held: bool) {
        self.is_held.send_replace(is_held);
    }

    /// Returns the number of accepted connections.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}
