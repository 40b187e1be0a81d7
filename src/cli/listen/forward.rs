//! `listen --forward-to URL`: pulls the account's events from a service, and sends them as webhooks to a URL near this
//! machine. The service needs no way to reach it. Pulled events have no signature of their own, so this program signs each.
//! With a signing secret, it verifies each page of them first.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use chrono::{DateTime, Utc};
use clap::Args;
use clap::builder::PossibleValuesParser;
use ledger_events::webhook::WebhookEventType;
use owo_colors::OwoColorize;
use reqwest::{StatusCode, Url};
use rewards_ledger_client::webhook::{Verifier, WebhookError};
use rewards_ledger_client::{Error, ListEventsQuery, Reply};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use webhook_client::custom::CustomHeaders;
use webhook_client::sender::{Delivery, DeliveryHeaders};

use super::Shown;
use super::certificates::lasting_problem;
use crate::cli::client::{Caller, Client, failure};
use crate::cli::output::Output;
use crate::cli::private;
use crate::cli::profiles::{self, ClientArgs};
use crate::secrets::seal::{Secret, random_secret};

/// Seconds that a request waits for an event: the longest that the service allows.
const WAIT_SECONDS: i64 = 30;
/// Maximum number of events in one response.
const PAGE_EVENTS: i64 = 100;
/// Timeout of an attempt, as the service's own deliveries have.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(30);
/// First and longest pause before a retry. Each pause is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Webhook ID of forwarded events, which no webhook has.
const NO_WEBHOOK: i64 = 0;
/// Problem of a page without a signature.
const UNSIGNED: &str = "the events have no signature, so they are not forwarded (the API key has no signing secret, the node is \
                        of an earlier build, or a proxy has removed it; without a signing secret, events are not verified)";

#[derive(Args, Debug)]
#[command(next_help_heading = "Forwarding")]
pub struct ForwardArgs {
    /// Pull the account's events with an API key, sign each with --secret, and send them to this URL, for example
    /// http://localhost:3000/hook; needs no webhook; with a signing secret, only events that the service has signed with it
    #[arg(long, value_name = "URL", value_parser = target)]
    pub forward_to: Option<Url>,
    /// Forward the events since this time, for example 2026-11-01T00:00:00Z [default: goes on where the last run ended; in
    /// the first run, from now on]
    #[arg(long, value_name = "TIME", requires = "forward_to")]
    since: Option<DateTime<Utc>>,
    /// Forward only events of these types, comma-separated [default: all]
    #[arg(long, value_name = "TYPES", value_delimiter = ',', requires = "forward_to",
        value_parser = PossibleValuesParser::new(WebhookEventType::ALL.map(WebhookEventType::as_str)))]
    types: Vec<String>,
    /// Exit after this many events [default: runs until it is interrupted]
    #[arg(long, value_name = "COUNT", requires = "forward_to", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Reads a URL of plain HTTP or HTTPS.
fn target(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("{error}"))?;
    if matches!(url.scheme(), "http" | "https") { Ok(url) } else { Err("must start with http:// or https://".to_owned()) }
}

#[derive(Deserialize)]
struct Page {
    data: PageData,
}

#[derive(Deserialize)]
struct PageData {
    events: Vec<Box<RawValue>>,
    /// Value of `X-Event-Sequence` for each event. Nodes of earlier builds send none.
    #[serde(default)]
    sequences: Vec<i64>,
    cursor: String,
    has_more: bool,
}

/// Fields of an envelope that the headers repeat.
#[derive(Deserialize)]
struct Named {
    event_id: String,
    event_type: String,
    created_at: DateTime<Utc>,
}

/// An event of a page.
struct Pulled<'a> {
    /// Envelope, byte for byte.
    envelope: &'a RawValue,
    named: Named,
    sequence: Option<i64>,
}

impl PageData {
    /// Returns the events at or after a time. The service returns earlier ones, too, while the time is in the future.
    fn since(&self, since: Option<DateTime<Utc>>) -> anyhow::Result<Vec<Pulled<'_>>> {
        let mut events = vec![];
        for (index, envelope) in self.events.iter().enumerate() {
            let named: Named = serde_json::from_str(envelope.get()).context("an event has no envelope")?;
            if since.is_none_or(|since| named.created_at >= since) {
                events.push(Pulled { envelope, named, sequence: self.sequences.get(index).copied() });
            }
        }
        Ok(events)
    }
}

/// Progress through the events: everything up to the cursor is forwarded, and a number of events after it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Progress {
    /// Cursor of the last whole page. `None` before the first one is complete.
    cursor: Option<String>,
    /// Time at which the forwarding begins. `None` stands for the beginning of the log.
    #[serde(default)]
    since: Option<DateTime<Utc>>,
    /// Number of forwarded events after the cursor, or after the beginning if there is no cursor.
    forwarded: usize,
}

/// Pulls events, and sends each until the target accepts it.
struct Forwarder<'a> {
    service: Client,
    /// Verifies pages with the secret that signs the requests, if one does.
    verifier: Option<Verifier>,
    http: reqwest::Client,
    headers: DeliveryHeaders,
    target: Url,
    secret: Secret,
    args: &'a ForwardArgs,
    output: &'a Output,
    /// File that keeps the progress.
    file: PathBuf,
}

/// Forwards events until as many as wanted are sent.
///
/// # Errors
/// If the service refuses the credentials, a certificate is refused for a lasting reason, the signature of a page is missing
/// or wrong, or the progress cannot be kept.
pub async fn run(
    args: &ForwardArgs,
    target: &Url,
    client: ClientArgs,
    (secret, service_name): (Option<Secret>, &str),
    output: &Output,
) -> anyhow::Result<()> {
    let service = client.service()?;
    let known = service.known_client()?;
    // A delivery follows no redirect, and a target near this machine is behind no proxy.
    let http = reqwest::Client::builder().timeout(ATTEMPT_DEADLINE).redirect(reqwest::redirect::Policy::none()).no_proxy();
    let is_own = secret.is_none();
    let secret = secret.unwrap_or_else(random_secret);
    let (key, signing_secret) = match &service.caller {
        Some(Caller::Client { api_key, signing_secret, .. }) => (api_key.as_str(), signing_secret.as_ref()),
        _ => bail!("an API key is needed"),
    };
    let forwarder = Forwarder {
        service: known,
        verifier: signing_secret.map(|secret| Verifier::new(secret.expose())),
        http: http.build()?,
        headers: DeliveryHeaders::new(service_name)?,
        target: target.clone(),
        secret,
        args,
        output,
        file: progress_file(&[service.url.as_str(), key, target.as_str(), &args.types.join(",")])?,
    };
    forwarder.introduce(&service.url, is_own)?;
    forwarder.run().await
}

/// Returns the file that keeps the progress of one forwarding: of one key, to one target, of these types.
fn progress_file(parts: &[&str]) -> anyhow::Result<PathBuf> {
    let digest = Sha256::digest(parts.join("\n"));
    Ok(profiles::directory()?.join("forwarding").join(format!("{}.json", hex::encode(&digest[..8]))))
}

impl Forwarder<'_> {
    fn introduce(&self, service: &Url, is_own_secret: bool) -> std::io::Result<()> {
        if self.output.json {
            let secret = is_own_secret.then(|| self.secret.expose());
            return self
                .output
                .json_line(&json!({"forward_to": self.target.as_str(), "url": service.as_str(), "secret": secret}));
        }
        self.output.line(format!("{}  {} to {}", "forwarding".dimmed(), service, self.target.as_str().bold()))?;
        if is_own_secret {
            let secret = self.secret.expose();
            self.output.line(format!("{}      {secret}  (signs what is forwarded; --secret sets another)", "secret".dimmed()))?;
        }
        self.output.line("")
    }

    async fn run(&self) -> anyhow::Result<()> {
        let mut progress = self.begin().await?;
        let mut sent = 0;
        loop {
            let page = self.page(&progress).await?;
            let events = page.since(progress.since)?;
            for event in events.iter().skip(progress.forwarded) {
                let (attempt, status) = self.send(event).await?;
                progress.forwarded += 1;
                self.keep(&progress)?;
                self.print(event, attempt, &Ok(status), None)?;
                sent += 1;
                if self.args.count == Some(sent) {
                    return Ok(());
                }
            }
            // The last run may have read a longer page.
            progress.forwarded = progress.forwarded.saturating_sub(events.len());
            progress.cursor = Some(page.cursor);
            self.keep(&progress)?;
            if !page.has_more {
                tracing::debug!("all events are forwarded; waiting for the next");
            }
        }
    }

    /// Returns the progress to go on from: the given time, that of the last run, or the present on the first run.
    async fn begin(&self) -> anyhow::Result<Progress> {
        let progress = if self.args.since.is_some() {
            Progress { since: self.args.since, ..Progress::default() }
        } else if self.file.exists() {
            let text = crate::config::read_private(&self.file, "the progress of the forwarding")?;
            return serde_json::from_str(text.expose()).with_context(|| format!("{} is damaged", self.file.display()));
        } else {
            Progress { cursor: Some(self.present().await?), ..Progress::default() }
        };
        self.keep(&progress)?;
        Ok(progress)
    }

    fn keep(&self, progress: &Progress) -> anyhow::Result<()> {
        private::write(&self.file, &serde_json::to_string(progress)?)
    }

    /// Pulls the events after the cursor, or before the first cursor those since the time. Waits for one if there is none.
    async fn page(&self, progress: &Progress) -> anyhow::Result<PageData> {
        let query = ListEventsQuery {
            after: progress.cursor.clone(),
            since: progress.since.filter(|_| progress.cursor.is_none()),
            wait: Some(WAIT_SECONDS),
            types: Some(self.args.types.join(",")).filter(|types| !types.is_empty()),
            limit: Some(PAGE_EVENTS),
        };
        self.pull(&query).await
    }

    /// Returns the cursor after the latest event.
    async fn present(&self) -> anyhow::Result<String> {
        let query = ListEventsQuery { after: Some("latest".to_owned()), ..Default::default() };
        Ok(self.pull(&query).await?.cursor)
    }

    /// Sends a request until the service answers it. A service that is down or busy is asked again, but not one whose certificate
    /// is refused for a lasting reason.
    async fn pull(&self, query: &ListEventsQuery) -> anyhow::Result<PageData> {
        let mut pauses = Pauses::default();
        loop {
            // Typed events would lose the bytes of their envelopes.
            let (problem, asked) = match self.service.calls().list_events(query).reply().await {
                Ok(reply) => match self.verify(&reply) {
                    Ok(()) => {
                        let page: Page =
                            serde_json::from_slice(&reply.body).context("the service returned something other than events")?;
                        return Ok(page.data);
                    }
                    // The response was on its way for long, for example because this machine slept.
                    Err(WebhookError::Timestamp) => (WebhookError::Timestamp.to_string(), None),
                    Err(WebhookError::Missing(header)) => bail!("{UNSIGNED}: the header {header} is missing"),
                    Err(error) => bail!("the events cannot be verified, so they are not forwarded: {error}"),
                },
                Err(error) => passing(error)?,
            };
            let pause = asked.unwrap_or_else(|| pauses.pause());
            anstream::eprintln!("{}; asking again in {} s", crate::cli::escape::value(&problem), pause.as_secs_f32());
            tokio::time::sleep(pause).await;
        }
    }

    /// Verifies the signature of a page, if requests are signed. An attacker who can change a page can also remove its
    /// signature, so a missing one is an error, too.
    fn verify(&self, reply: &Reply) -> Result<(), WebhookError> {
        self.verifier.as_ref().map_or(Ok(()), |verifier| verifier.verify_bytes(&reply.headers, &reply.body))
    }

    /// Sends an event until the target accepts it with a status from 200 to 299, and prints each failure. Returns the number
    /// of attempts and the status.
    async fn send(&self, event: &Pulled<'_>) -> anyhow::Result<(u32, u16)> {
        let (mut pauses, mut attempt) = (Pauses::default(), 0);
        loop {
            attempt += 1;
            let request_id = uuid::Uuid::new_v4().to_string();
            let (timestamp, body) = (Utc::now().timestamp(), event.envelope.get().as_bytes().to_vec());
            let delivery = Delivery {
                url: self.target.as_str(),
                webhook_id: NO_WEBHOOK,
                event_id: &event.named.event_id,
                event_type: &event.named.event_type,
                sequence: event.sequence,
                request_id: &request_id,
                secret: self.secret.expose(),
                previous_secret: None,
                timestamp,
                traceparent: None,
                custom_headers: CustomHeaders::none(),
                body: body.clone().into(),
            };
            let headers = self.headers.sign(&delivery).map_err(anyhow::Error::msg)?;
            let sent = self.http.post(self.target.clone()).headers(headers).body(body).send().await;
            if let Some(reason) = sent.as_ref().err().and_then(|error| lasting_problem(error)) {
                bail!("{} cannot be reached: {reason}", self.target);
            }
            let outcome = match &sent {
                Ok(reply) => Ok(reply.status().as_u16()),
                Err(error) if error.is_timeout() => Err(format!("no answer within {} s", ATTEMPT_DEADLINE.as_secs())),
                Err(error) if error.is_connect() => Err("cannot connect".to_owned()),
                Err(_) => Err("the connection broke off".to_owned()),
            };
            if let Ok(status @ 200..=299) = outcome {
                return Ok((attempt, status));
            }
            let pause = pauses.pause();
            self.print(event, attempt, &outcome, Some(pause))?;
            tokio::time::sleep(pause).await;
        }
    }

    fn print(
        &self,
        event: &Pulled<'_>,
        attempt: u32,
        outcome: &Result<u16, String>,
        pause: Option<Duration>,
    ) -> std::io::Result<()> {
        let (named, body) = (&event.named, serde_json::from_str::<serde_json::Value>(event.envelope.get()).ok());
        if self.output.json {
            return self.output.json_line(&json!({
                "event_type": named.event_type, "event_id": named.event_id, "attempt": attempt, "status": outcome.as_ref().ok(),
                "error": outcome.as_ref().err(), "is_forwarded": pause.is_none(), "body": body,
            }));
        }
        let told = outcome.as_ref().map_or_else(Clone::clone, u16::to_string);
        let told = match pause {
            None => told,
            Some(pause) => format!("{told}; again in {} s", pause.as_secs_f32()),
        };
        let (event_type, event_id) = (Some(named.event_type.as_str()), Some(named.event_id.as_str()));
        let outcome = crate::cli::events::by_outcome(pause.is_none(), &told);
        Shown { at: Utc::now(), event_type, event_id, outcome, body: body.as_ref() }.print(self.output)
    }
}

/// Pauses before retries.
#[derive(Default)]
struct Pauses {
    last: Option<Duration>,
}

impl Pauses {
    fn pause(&mut self) -> Duration {
        let next = self.last.map_or(FIRST_PAUSE, |last| (last * 2).min(MAX_PAUSE));
        self.last = Some(next);
        next
    }
}

/// Returns the text of an error that may pass by itself, and the pause that the service asks for.
///
/// # Errors
/// The given one, if it lasts.
fn passing(error: Error) -> anyhow::Result<(String, Option<Duration>)> {
    let (is_passing, asked) = match &error {
        Error::Api(refusal) => (is_temporary(refusal.status), refusal.retry_after),
        Error::Connection { .. } => (true, None),
        _ => (false, None),
    };
    let lasting = lasting_problem(&error).map(|reason| format!("the service cannot be reached: {reason}"));
    let error = failure(error);
    match lasting {
        Some(lasting) => Err(error.context(lasting)),
        None if is_passing => Ok((format!("{error:#}"), asked)),
        None => Err(error),
    }
}

/// Returns whether a status says nothing about the request itself, so that it can be repeated.
fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::REQUEST_TIMEOUT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut pauses = Pauses::default();
        let first: Vec<u128> = (0..9).map(|_| pauses.pause().as_millis()).collect();
        assert_eq!(first, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
    }

    fn page(data: serde_json::Value) -> PageData {
        serde_json::from_value(data).unwrap()
    }

    #[test]
    fn events_before_the_time_are_left_out_and_the_others_keep_their_sequence() {
        let event = |id: &str, time: &str| json!({"event_id": id, "event_type": "order.created", "created_at": time});
        let events = json!([event("a", "2026-01-31T12:00:00.000Z"), event("b", "2026-01-31T12:00:01.000Z")]);
        let found = |page: &PageData, since: Option<&str>| -> Vec<(String, Option<i64>)> {
            let events = page.since(since.map(|since| since.parse().unwrap())).unwrap();
            events.into_iter().map(|event| (event.named.event_id, event.sequence)).collect()
        };
        let current = page(json!({"events": events, "sequences": [5, 8], "cursor": "c", "has_more": false}));
        let second = ("b".to_owned(), Some(8));
        assert_eq!(found(&current, None), [("a".to_owned(), Some(5)), second.clone()]);
        assert_eq!(found(&current, Some("2026-01-31T13:00:01+01:00")), [second]);
        assert_eq!(found(&current, Some("2026-01-31T12:00:02Z")), []);
        let earlier_build = page(json!({"events": events, "cursor": "c", "has_more": false}));
        assert_eq!(found(&earlier_build, Some("2026-01-31T12:00:01Z")), [("b".to_owned(), None)]);
    }

    #[test]
    fn the_progress_of_an_earlier_build_is_read() {
        let read = |text| serde_json::from_str::<Progress>(text).unwrap();
        assert_eq!(read(r#"{"cursor": null, "forwarded": 2}"#), Progress { forwarded: 2, ..Progress::default() });
    }

    #[test]
    fn events_are_forwarded_over_http_alone() {
        assert!(target("http://localhost:3000/hook").is_ok() && target("https://example.com").is_ok());
        assert!(target("ftp://localhost").is_err() && target("localhost:3000").is_err());
    }
}
