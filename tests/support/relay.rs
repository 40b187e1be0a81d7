//! A TCP relay in front of one or more servers. It can hold connections, as if the network stalled before the first byte,
//! and cut them. It counts them.

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
    /// Changes when the open connections are cut.
    cuts: watch::Sender<usize>,
    accepted: Arc<AtomicUsize>,
}

impl Relay {
    pub async fn before(target: SocketAddr) -> Relay {
        Relay::among(vec![target]).await
    }

    /// Starts a relay whose connections lead to each of the servers in turn.
    pub async fn among(targets: Vec<SocketAddr>) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = Relay {
            address: listener.local_addr().unwrap(),
            is_held: watch::Sender::new(false),
            cuts: watch::Sender::new(0),
            accepted: Arc::default(),
        };
        let (held, cuts, accepted) = (relay.is_held.clone(), relay.cuts.clone(), relay.accepted.clone());
        tokio::spawn(async move {
            while let Ok((mut inward, _)) = listener.accept().await {
                let target = targets[accepted.fetch_add(1, Ordering::SeqCst) % targets.len()];
                let (mut held, mut cuts) = (held.subscribe(), cuts.subscribe());
                tokio::spawn(async move {
                    if held.wait_for(|is_held| !is_held).await.is_ok()
                        && let Ok(mut outward) = TcpStream::connect(target).await
                    {
                        tokio::select! {
                            _ = tokio::io::copy_bidirectional(&mut inward, &mut outward) => {}
                            _ = cuts.changed() => {}
                        }
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

    /// Closes the open connections. New ones are accepted.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Returns the number of accepted connections.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}
