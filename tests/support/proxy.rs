//! A TCP proxy in front of Postgres that can cut a connection around a COMMIT.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What happens to the next COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum NextCommit {
    Passes = 0,
    /// It reaches the server, and its answer is lost.
    LosesItsAnswer = 1,
    /// It never reaches the server.
    IsLost = 2,
}

/// The proxy; it ends with the runtime.
#[derive(Clone, Debug)]
pub struct Proxy {
    pub address: SocketAddr,
    next: Arc<AtomicU8>,
    cuts: Arc<AtomicUsize>,
}

impl Proxy {
    pub async fn start(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy { address: listener.local_addr().unwrap(), next: Arc::default(), cuts: Arc::default() };
        let accepting = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server).await.unwrap();
                tokio::spawn(accepting.clone().relay(client, server));
            }
        });
        proxy
    }

    pub fn set(&self, next: NextCommit) {
        self.next.store(next as u8, Ordering::SeqCst);
    }

    /// How many connections were cut.
    pub fn cuts(&self) -> usize {
        self.cuts.load(Ordering::SeqCst)
    }

    async fn relay(self, client: TcpStream, server: TcpStream) {
        let (mut client_read, mut client_write) = client.into_split();
        let (mut server_read, mut server_write) = server.into_split();
        let answers = tokio::spawn(async move {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(n @ 1..) = server_read.read(&mut buffer).await {
                if client_write.write_all(&buffer[..n]).await.is_err() {
                    return;
                }
            }
        });
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = client_read.read(&mut buffer).await {
            // A simple query of its own: the writer sends COMMIT in no other way.
            if buffer[..n].windows(7).any(|w| w == b"COMMIT\0") {
                let next = self.next.swap(NextCommit::Passes as u8, Ordering::SeqCst);
                if next != NextCommit::Passes as u8 {
                    self.cuts.fetch_add(1, Ordering::SeqCst);
                    answers.abort();
                    _ = answers.await; // both halves of the client's connection are dropped now
                    if next == NextCommit::LosesItsAnswer as u8 {
                        server_write.write_all(&buffer[..n]).await.unwrap();
                        // The server commits before it notices that nobody listens.
                        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                    }
                    return;
                }
            }
            if server_write.write_all(&buffer[..n]).await.is_err() {
                return;
            }
        }
        answers.abort();
    }
}
