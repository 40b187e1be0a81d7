//! STAND-IN for what other branches bring. To merge: delete this file and its line in `lib.rs`,
//! and turn every `use crate::stand_in::…` (marked STAND-IN) into the path named there.

/// `crate::api`
pub mod api {
    use std::sync::Arc;

    use crate::access::seal::Keyring;
    use crate::access::{Credentials, Operators};
    use crate::ledger::Ledger;
    use crate::telemetry::Metrics;

    #[derive(Clone, Debug)]
    pub struct ApiState {
        pub ledger: Ledger,
        pub credentials: Credentials,
        pub operators: Operators,
        pub keyring: Arc<Keyring>,
        pub metrics: Metrics,
        pub public_url: String,
    }

    #[poem::handler]
    async fn slow() -> &'static str {
        tokio::time::sleep(std::time::Duration::from_millis(800)).await;
        "answered"
    }

    pub fn app(_state: ApiState) -> impl poem::Endpoint {
        poem::Route::new().at("/healthz", poem::endpoint::make_sync(|_| "ok")).at("/slow", slow)
    }

    pub fn documents() -> Vec<(&'static str, String)> {
        vec![("client.json", "{}\n".to_owned())]
    }
}

/// `crate::delivery::worker`
pub mod worker {
    use std::sync::Arc;
    use std::time::Duration;

    use ledger_events::ShardId;
    use sqlx::PgPool;
    use tokio::sync::Notify;
    use tokio_util::sync::CancellationToken;

    use crate::access::seal::Keyring;
    use crate::delivery::sender::Sender;
    use crate::telemetry::Metrics;

    #[derive(Clone, Debug)]
    pub struct WorkerSettings {
        pub retry_base: Duration,
        pub deadline: Duration,
        pub max_in_flight: usize,
        pub max_in_flight_per_webhook: usize,
    }

    #[derive(Debug)]
    pub struct Worker {
        pub pool: PgPool,
        pub shards: Vec<ShardId>,
        pub keyring: Arc<Keyring>,
        pub sender: Arc<Sender>,
        pub settings: WorkerSettings,
        pub metrics: Metrics,
        pub made: Arc<Notify>,
    }

    impl Worker {
        pub async fn run(self, stop: CancellationToken) {
            stop.cancelled().await;
        }
    }
}

/// `crate::fulfilment`
pub mod fulfilment {
    use tokio_util::sync::CancellationToken;

    use crate::ledger::Ledger;
    use crate::telemetry::Metrics;

    #[derive(Debug)]
    pub struct Fulfilment;

    impl Fulfilment {
        pub fn new(_ledger: Ledger, _metrics: Metrics) -> Fulfilment {
            Fulfilment
        }

        pub async fn run(self, stop: CancellationToken) {
            stop.cancelled().await;
        }
    }
}
