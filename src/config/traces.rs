//! Settings of traces.

use std::path::PathBuf;

use clap::Args;
use url::Url;

use super::ConfigError;
use crate::access::open_id::is_loopback;
use crate::telemetry::traces::{TraceError, TraceSettings as Exported, Traces};

/// Export of traces to an OpenTelemetry collector.
#[derive(Args, Clone, Debug)]
pub struct TraceSettings {
    /// URL of an OpenTelemetry collector, to which the node sends its traces by OTLP over HTTP, as <URL>/v1/traces; https,
    /// except on this machine [default: none: no traces]
    #[arg(long, env = "LEDGER_OTLP_ENDPOINT", value_name = "URL", value_parser = collector)]
    pub otlp_endpoint: Option<String>,

    /// PEM file of certificates to trust for the collector, in addition to the platform's [default: none]
    #[arg(long, env = "LEDGER_OTLP_CA_FILE", value_name = "FILE")]
    pub otlp_ca_file: Option<PathBuf>,

    /// Share of the traces that begin at this node and are sent; a request with a traceparent header keeps its caller's
    /// decision
    #[arg(long, env = "LEDGER_OTLP_SAMPLE", value_name = "RATIO", default_value = "1", value_parser = ratio)]
    pub otlp_sample: f64,
}

impl TraceSettings {
    /// Starts to export traces, if a collector is configured.
    ///
    /// # Errors
    /// If the file of certificates cannot be read or has none, or if the exporter cannot be created.
    pub fn start(&self) -> Result<Traces, ConfigError> {
        let Some(endpoint) = self.otlp_endpoint.clone() else { return Ok(Traces::default()) };
        let read = |path: &PathBuf| {
            std::fs::read(path)
                .map_err(|error| ConfigError(format!("--otlp-ca-file (LEDGER_OTLP_CA_FILE): cannot read {path:?}: {error}")))
        };
        let ca_pem = self.otlp_ca_file.as_ref().map(read).transpose()?;
        Traces::start(&Exported { endpoint, ca_pem, sample: self.otlp_sample }).map_err(|error| {
            let setting = match error {
                TraceError::Authorities => "--otlp-ca-file (LEDGER_OTLP_CA_FILE)",
                TraceError::Client(_) | TraceError::Exporter(_) => "--otlp-endpoint (LEDGER_OTLP_ENDPOINT)",
            };
            ConfigError(format!("{setting}: {error}"))
        })
    }
}

/// Parses the URL of a collector. No message repeats it, because it may contain a password.
fn collector(text: &str) -> Result<String, String> {
    let url = Url::parse(text).map_err(|_| "expected a URL such as https://otel.example.com:4318")?;
    if !matches!(url.scheme(), "http" | "https") || url.query().is_some() || url.fragment().is_some() {
        return Err("expected an http or https URL without a query".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL has no place for a password: put the collector's key into OTEL_EXPORTER_OTLP_HEADERS".to_owned());
    }
    if url.scheme() == "http" && !is_loopback(&url) {
        return Err("would send traces unencrypted: use https, or a collector on this machine".to_owned());
    }
    Ok(text.trim_end_matches('/').to_owned())
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "expected a number from 0 to 1, such as 0.1".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn traces_stay_on_this_machine_or_are_encrypted() {
        for url in ["http://127.0.0.1:4318", "http://[::1]:4318/", "http://localhost:4318", "https://otel.example.com/otlp/"] {
            assert_eq!(collector(url).unwrap(), url.trim_end_matches('/'));
        }
        for url in [
            "otel:4318",
            "http://otel:4318",
            "http://192.0.2.1:4318",
            "grpc://localhost:4317",
            "https://otel.example.com?key=hidden",
            "https://user:hidden@otel.example.com",
        ] {
            let refused = collector(url).unwrap_err();
            assert!(!refused.contains("hidden") && !refused.contains("192.0.2.1"), "{refused}");
        }
    }

    #[tokio::test]
    async fn the_file_of_authorities_holds_certificates() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let start = |path: &Path| {
            let endpoint = Some("https://localhost:4318".to_owned());
            TraceSettings { otlp_endpoint: endpoint, otlp_ca_file: Some(path.to_owned()), otlp_sample: 1.0 }.start().map(drop)
        };
        std::fs::write(file.path(), "-----BEGIN PRIVATE KEY-----\naGlkZGVu\n-----END PRIVATE KEY-----\n").unwrap();
        assert_eq!(
            start(file.path()).unwrap_err().to_string(),
            "--otlp-ca-file (LEDGER_OTLP_CA_FILE): the file has no certificate in PEM"
        );
        let refused = start(Path::new("/nowhere/ca.pem")).unwrap_err().to_string();
        assert!(refused.starts_with("--otlp-ca-file (LEDGER_OTLP_CA_FILE): cannot read \"/nowhere/ca.pem\": "), "{refused}");
    }

    #[test]
    fn a_share_is_a_number_from_0_to_1() {
        assert_eq!(["0", "0.25", "1", "1e-3"].map(|text| ratio(text).unwrap()), [0.0, 0.25, 1.0, 0.001]);
        for text in ["", "-0.1", "1.1", "NaN", "inf", "10%"] {
            assert!(ratio(text).is_err(), "{text}");
        }
    }
}
