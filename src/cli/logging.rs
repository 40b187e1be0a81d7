//! The log's set-up: text on a terminal, else one JSON object a line, always on stderr.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::escape::Escaping;
use crate::api::edge::log_panics;
use crate::config::LogFormat;

/// What a node logs unless `RUST_LOG` says otherwise. What answers 5xx or panics is logged by
/// others than the access log, which is one line a request.
pub const SERVICE: &str = "info,poem=warn,sqlx=warn,rustls_platform_verifier=off";
/// The demo tells its own story.
pub const DEMO: &str = "error,rustls_platform_verifier=off";
/// Commands say what went wrong themselves.
pub const TOOL: &str = "warn,sqlx=error,reqwest_retry=off,rustls_platform_verifier=off";

/// Starts logging, with `default` as the filter where `RUST_LOG` is not set.
///
/// # Errors
/// When `RUST_LOG` is no filter.
pub fn start(default: &str, format: Option<LogFormat>) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => {
            EnvFilter::try_new(&text).map_err(|error| anyhow::anyhow!("RUST_LOG cannot be {text:?}: {error}"))?
        }
        _ => EnvFilter::new(default),
    };
    let is_terminal = std::io::stderr().is_terminal();
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Escaping(std::io::stderr())).with_ansi(is_terminal);
    let is_text = is_terminal || default != SERVICE;
    match format.unwrap_or(if is_text { LogFormat::Text } else { LogFormat::Json }) {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    log_panics();
    Ok(())
}
