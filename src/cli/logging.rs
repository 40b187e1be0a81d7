//! Sets up logging to stderr: text on a terminal, otherwise one JSON object per line. The audit log goes to a file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::IsTerminal;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{Directive, Targets};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use super::escape::Escaping;
use crate::api::audit_log;
use crate::api::edge::log_panics;
use crate::config::LogFormat;
use crate::telemetry::traces;

/// Default log filter of a node; `RUST_LOG` overrides it. 5xx responses and panics have log lines of their own, apart from
/// the access log with its one line per request.
pub const SERVICE: &str = "info,poem=warn,sqlx=warn,rustls_platform_verifier=off";
/// Default log filter of the demo, which prints its own progress.
pub const DEMO: &str = "error,rustls_platform_verifier=off";
/// Default log filter of the other commands, which report errors themselves.
pub const TOOL: &str = "warn,sqlx=error,reqwest_retry=off,rustls_platform_verifier=off";

/// Starts logging with `default` as the filter, unless `RUST_LOG` is set. `audit_file` is the file of the audit log, if it
/// has one.
///
/// # Errors
/// If `RUST_LOG` is not a valid filter, or the file cannot be opened.
pub fn start(default: &str, format: Option<LogFormat>, audit_file: Option<&Path>) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => {
            EnvFilter::try_new(&text).map_err(|error| anyhow::anyhow!("RUST_LOG cannot be {text:?}: {error}"))?
        }
        _ => EnvFilter::new(default),
    };
    // The audit log has its file.
    let filter = filter.add_directive(Directive::from_str("audit=off")?);
    let is_terminal = std::io::stderr().is_terminal();
    let is_coloured = anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never;
    let audited = audit_file.map(open).transpose()?.map(|file| {
        let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_level(false).with_writer(Arc::new(file));
        let lines = lines.map_event_format(|format| Traced(format, LogFormat::Json));
        lines.log_internal_errors(true).with_filter(Targets::new().with_target(audit_log::TARGET, Level::INFO))
    });
    let lines = tracing_subscriber::fmt::layer().with_writer(|| Escaping(std::io::stderr())).with_ansi(is_coloured);
    let lines = lines.log_internal_errors(true);
    let is_text = is_terminal || default != SERVICE;
    let lines = match format.unwrap_or(if is_text { LogFormat::Text } else { LogFormat::Json }) {
        LogFormat::Text => lines.map_event_format(|format| Traced(format.with_ansi(is_coloured), LogFormat::Text)).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).map_event_format(|format| Traced(format, LogFormat::Json)).boxed(),
    };
    match audited {
        // The filter of a single layer would not do: the verdict of `enabled!` stays for the thread's next event, because nothing
        // asks a filter that wants the event anyway. Two filters that differ are always asked.
        None => tracing_subscriber::registry().with(lines).with(filter).init(),
        Some(audited) => tracing_subscriber::registry().with(lines.with_filter(filter)).with(audited).init(),
    }
    log_panics();
    Ok(())
}

/// Opens the file of the audit log for appending. Only its owner can read a new one.
fn open(path: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    opened.map_err(|error| anyhow::anyhow!("--audit-log (LEDGER_AUDIT_LOG): cannot append to {path:?}: {error}"))
}

/// Format of log lines that adds the id of the trace that the current task works for, if there is one, at the end of the line.
struct Traced<F>(F, LogFormat);

impl<S, N, F> FormatEvent<S, N> for Traced<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let Traced(format, kind) = self;
        let Some(trace) = traces::current() else { return format.format_event(context, writer, event) };
        let mut line = String::new();
        format.format_event(context, Writer::new(&mut line), event)?;
        let (line, trace_id) = (line.trim_end_matches('\n'), trace.trace_id());
        match (kind, line.strip_suffix('}')) {
            (LogFormat::Json, Some(fields)) => writeln!(writer, "{fields},\"trace_id\":\"{trace_id}\"}}"),
            _ => writeln!(writer, "{line} trace_id={trace_id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;
    use crate::telemetry::traces::TraceParent;

    /// Returns two log lines: one outside of a trace, and one within.
    fn logged(format: LogFormat) -> Vec<String> {
        let mut file = tempfile::tempfile().unwrap();
        let builder = tracing_subscriber::fmt().with_writer(Arc::new(file.try_clone().unwrap())).with_ansi(false);
        // With only one subscriber, tracing lets whichever thread comes first decide whether a line is wanted.
        let _second = tracing::Dispatch::new(tracing_subscriber::registry());
        let log = || {
            tracing::info!(n = 1, "outside");
            let place = TraceParent::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
            traces::during(place, || tracing::info!(n = 2, "within"));
        };
        match format {
            LogFormat::Text => {
                let traced = builder.map_event_format(|f| Traced(f.with_ansi(false), LogFormat::Text));
                tracing::subscriber::with_default(traced.finish(), log);
            }
            LogFormat::Json => {
                let traced = builder.json().flatten_event(true).map_event_format(|f| Traced(f, LogFormat::Json));
                tracing::subscriber::with_default(traced.finish(), log);
            }
        }
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn lines_within_a_trace_end_with_its_id_and_others_are_unchanged() {
        let text = logged(LogFormat::Text);
        assert!(text[0].ends_with("outside n=1"), "{text:?}");
        assert!(text[1].ends_with("within n=2 trace_id=0af7651916cd43dd8448eb211c80319c"), "{text:?}");
        let json: Vec<serde_json::Value> =
            logged(LogFormat::Json).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&json[0]["message"], &json[0]["trace_id"]), (&"outside".into(), &serde_json::Value::Null));
        assert_eq!((&json[1]["n"], &json[1]["trace_id"]), (&2.into(), &"0af7651916cd43dd8448eb211c80319c".into()));
    }
}
