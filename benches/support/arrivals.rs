//! A receiver that counts deliveries and measures the latency from an event's commit to its arrival.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, ensure};
use webhook_client::receiver::{Certificate, Received, Receiver, ReceiverResponse, ReceiverSettings};

/// Behaviour of the endpoints. Each endpoint has a path of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    Well,
    /// Five of every hundred endpoints answer 500, and one never answers.
    SomeFailSomeHang,
}

#[derive(Debug, Default)]
struct Seen {
    good: AtomicU64,
    first: Mutex<Option<Instant>>,
    latencies: Mutex<Vec<Duration>>,
}

#[derive(Debug)]
pub struct Arrivals {
    /// One receiver per endpoint, each on its own port, so that a sender treats them as unrelated.
    receivers: Vec<Receiver>,
    /// An additional receiver whose arrivals are not counted.
    aside: Receiver,
    seen: Arc<Seen>,
    ca: tempfile::NamedTempFile,
    behaviour: Behaviour,
}

impl Arrivals {
    pub async fn start(behaviour: Behaviour, endpoints: usize) -> Result<Arrivals> {
        let seen = Arc::new(Seen::default());
        let certificate = Certificate::generate()?;
        let receiver = async || -> Result<Receiver> {
            let counted = seen.clone();
            let settings = ReceiverSettings {
                listen: "127.0.0.1:0".parse()?,
                service_name: "SERVICE".to_owned(),
                certificate: certificate.clone(),
                respond: Arc::new(move |received| answer(received, &counted, behaviour)),
            };
            let (receiver, channel) = Receiver::start(settings).await?;
            drop(channel);
            Ok(receiver)
        };
        let mut receivers = Vec::with_capacity(endpoints);
        for _ in 0..endpoints {
            receivers.push(receiver().await?);
        }
        let aside = receiver().await?;
        let ca = tempfile::NamedTempFile::new()?;
        std::fs::write(ca.path(), certificate.ca_pem())?;
        Ok(Arrivals { receivers, aside, seen, ca, behaviour })
    }

    /// Returns the URL of an endpoint. Its path identifies the endpoint.
    pub fn url(&self, endpoint: usize) -> String {
        format!("{}/{endpoint}", self.receivers[endpoint % self.receivers.len()].url())
    }

    /// Returns the URL of an endpoint that never answers.
    pub fn hanging_url(&self) -> String {
        format!("{}/hang", self.aside.url())
    }

    /// Returns the URL of an endpoint that answers everything with a success and counts nothing.
    pub fn aside_url(&self) -> String {
        format!("{}/aside", self.aside.url())
    }

    pub fn endpoints(&self) -> usize {
        self.receivers.len()
    }

    pub fn ca_pem(&self) -> &str {
        self.receivers[0].ca_pem()
    }

    /// Returns the arguments with which a node can reach the receivers.
    pub fn reach(&self) -> [&str; 4] {
        ["--webhook-ca-file", self.ca.path().to_str().unwrap_or_default(), "--webhook-allow-nets", "127.0.0.0/8,::1/128"]
    }

    /// Returns how many of these deliveries get a success, if they are spread evenly over the endpoints.
    pub fn answered_of(&self, deliveries: u64) -> u64 {
        let not_answered = match self.behaviour {
            Behaviour::Well => 0,
            Behaviour::SomeFailSomeHang => (0..self.endpoints()).filter(|n| n % 100 < 6).count() as u64,
        };
        deliveries - not_answered * (deliveries / self.endpoints() as u64)
    }

    /// Returns the number of deliveries that were answered with a success.
    pub fn good(&self) -> u64 {
        self.seen.good.load(Ordering::Relaxed)
    }

    pub async fn until(&self, count: u64, patience: Duration) -> Result<()> {
        let started = Instant::now();
        while self.good() < count {
            ensure!(started.elapsed() < patience, "{} of {count} arrived", self.good());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    pub fn since_first(&self) -> Option<Duration> {
        self.seen.first.lock().unwrap_or_else(PoisonError::into_inner).map(|first| first.elapsed())
    }

    /// Resets the counter and the latencies.
    pub fn forget(&self) {
        self.seen.good.store(0, Ordering::Relaxed);
        self.seen.latencies.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns the latency of each delivery, from the time in its event to its arrival, in the order of arrival.
    pub fn latencies(&self) -> Vec<Duration> {
        self.seen.latencies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn answer(received: &Received, seen: &Seen, behaviour: Behaviour) -> ReceiverResponse {
    match received.path.as_str() {
        "/hang" => return ReceiverResponse::Hang,
        "/aside" => return ReceiverResponse::Status(200),
        _ => {}
    }
    if behaviour == Behaviour::SomeFailSomeHang {
        let endpoint: usize = received.path.trim_start_matches('/').parse().unwrap_or_default();
        match endpoint % 100 {
            0 => return ReceiverResponse::Hang,
            1..6 => return ReceiverResponse::Status(500),
            _ => {}
        }
    }
    if seen.good.fetch_add(1, Ordering::Relaxed) == 0 {
        *seen.first.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
    if let Some(created_at) = created_at(&received.body) {
        let latency = received.received_at.duration_since(created_at).unwrap_or_default();
        seen.latencies.lock().unwrap_or_else(PoisonError::into_inner).push(latency);
    }
    ReceiverResponse::Status(200)
}

/// Reads the envelope's `created_at`: the time when its event was decided, under the lock on the log head and just
/// before its commit.
fn created_at(body: &[u8]) -> Option<SystemTime> {
    let envelope: serde_json::Value = serde_json::from_slice(body).ok()?;
    let moment: chrono::DateTime<chrono::Utc> = envelope["created_at"].as_str()?.parse().ok()?;
    Some(moment.into())
}
