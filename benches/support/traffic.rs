//! A relay between a node and its database that counts the traffic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use sqlx::postgres::PgConnectOptions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

#[derive(Debug, Default)]
struct Counts {
    to: AtomicU64,
    from: AtomicU64,
    round_trips: AtomicU64,
}

/// A relay, which ends with the runtime.
#[derive(Debug)]
pub struct Traffic {
    /// URL of the database through the relay.
    pub url: String,
    counts: Arc<Counts>,
}

impl Traffic {
    pub async fn before(url: &str) -> Result<Traffic> {
        let options: PgConnectOptions = url.parse()?;
        let server =
            options.get_socket().context("the server listens on a socket")?.join(format!(".s.PGSQL.{}", options.get_port()));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut through: reqwest::Url = url.parse()?;
        through.set_host(Some("127.0.0.1"))?;
        through.set_port(Some(listener.local_addr()?.port())).map_err(|()| anyhow::anyhow!("a URL with a port"))?;
        let counts = Arc::new(Counts::default());
        let counted = counts.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = UnixStream::connect(&server).await {
                    tokio::spawn(relay(client, server, counted.clone()));
                }
            }
        });
        Ok(Traffic { url: through.into(), counts })
    }

    /// Returns how often the node sent something after the database had sent something, over all connections.
    pub fn round_trips(&self) -> u64 {
        self.counts.round_trips.load(Ordering::Relaxed)
    }

    pub fn bytes_to_database(&self) -> u64 {
        self.counts.to.load(Ordering::Relaxed)
    }

    pub fn bytes_from_database(&self) -> u64 {
        self.counts.from.load(Ordering::Relaxed)
    }
}

async fn relay(mut client: TcpStream, mut server: UnixStream, counts: Arc<Counts>) {
    _ = client.set_nodelay(true);
    let (mut asking, mut answering) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let mut was_answered = true;
    loop {
        tokio::select! {
            read = client.read(&mut asking) => {
                let Ok(n @ 1..) = read else { return };
                counts.round_trips.fetch_add(u64::from(was_answered), Ordering::Relaxed);
                was_answered = false;
                counts.to.fetch_add(n as u64, Ordering::Relaxed);
                if server.write_all(&asking[..n]).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut answering) => {
                let Ok(n @ 1..) = read else { return };
                was_answered = true;
                counts.from.fetch_add(n as u64, Ordering::Relaxed);
                if client.write_all(&answering[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
}
