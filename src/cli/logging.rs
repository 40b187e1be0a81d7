//! Sets up logging to stderr: text on a terminal, otherwise one JSON object per line.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::escape::Escaping;
use crate::api::edge::log_panics;
use crate::config::LogFormat;

/// Default log filter of a node; `RUST_LOG` overrides it. 5xx responses and panics have log lines of their own, apart from
/// the access log with its one line per request.
pub const SERVICE: &str = "info,poem=warn,sqlx=warn,rustls_platform_verifier=off";
/// Default log filter of the demo, which prints its own progress.
pub const DEMO: &str = "error,rustls_platform_verifier=off";
/// Default log filter of the other commands, which report errors themselves.
pub const TOOL: &str = "warn,sqlx=error,reqwest_retry=off,rustls_platform_verifier=off";

/// Starts logging with `default` as the filter, unless `RUST_LOG` is set.
///
/// # Errors
/// If `RUST_LOG` is not a valid filter.
pub fn start(default: &str, format: Option<LogFormat>) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => {
            EnvFilter::try_new(&text).map_err(|error| anyhow::anyhow!("RUST_LOG cannot be {text:?}: {error}"))?
        }
        _ => EnvFilter::new(default),
    };
    let is_terminal = std::io::stderr().is_terminal();
    let is_coloured = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Escaping(std::io::stderr())).with_ansi(is_coloured);
    let is_text = is_terminal || default != SERVICE;
    match format.unwrap_or(if is_text { LogFormat::Text } else { LogFormat::Json }) {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    log_panics();
    Ok(())
}
