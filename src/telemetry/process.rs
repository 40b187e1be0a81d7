//! Metrics of the process, under the names that Prometheus' own libraries give them, and of its build.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

/// Profile with which this program was built.
pub(super) const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

/// Returns the host name of this machine; empty if it has none.
pub fn host() -> String {
    nix::unistd::gethostname().map_or_else(|_| String::new(), |name| name.to_string_lossy().into_owned())
}

/// Collector of what the system knows about this process. It asks only when somebody asks for the metrics.
#[derive(Debug)]
struct Process {
    /// Time when the node started, in Unix seconds.
    started: f64,
}

/// Registers the metrics of the process and of its build, which have no prefix and the prefix of the service.
pub(super) fn register(root: &mut Registry) {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    root.register_collector(Box::new(Process { started }));
    let labels = vec![
        ("version", env!("CARGO_PKG_VERSION")),
        ("profile", PROFILE),
        ("arch", std::env::consts::ARCH),
        ("os", std::env::consts::OS),
    ];
    root.register("ledger_build", "Version and build of this node", Info::new(labels));
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let mut gauge = |name: &str, help: &str, unit: Option<&Unit>, value: Option<f64>| {
            let Some(value) = value else { return Ok(()) };
            let gauge = ConstGauge::new(value);
            gauge.encode(encoder.encode_descriptor(name, help, unit, gauge.metric_type())?)
        };
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kibibytes = |name| number_after(&status, name).map(|kibibytes| kibibytes * 1024.0);
        let descriptors = std::fs::read_dir("/proc/self/fd").ok().map(|open| open.count() as f64);
        let limit = getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| soft as f64);
        gauge("process_resident_memory", "Resident memory size", Some(&Unit::Bytes), kibibytes("VmRSS:"))?;
        gauge("process_virtual_memory", "Virtual memory size", Some(&Unit::Bytes), kibibytes("VmSize:"))?;
        gauge("process_threads", "Threads of the process", None, number_after(&status, "Threads:"))?;
        gauge("process_open_fds", "Open file descriptors", None, descriptors)?;
        gauge("process_max_fds", "Maximum number of open file descriptors", None, limit)?;
        gauge("process_start_time", "Start of the process since the Unix epoch", Some(&Unit::Seconds), Some(self.started))?;
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Ok(()) };
        let seconds = |time: TimeVal| time.num_microseconds() as f64 / 1e6;
        let cpu = ConstCounter::new(seconds(usage.user_time()) + seconds(usage.system_time()));
        let help = "User and system CPU time";
        cpu.encode(encoder.encode_descriptor("process_cpu", help, Some(&Unit::Seconds), cpu.metric_type())?)
    }
}

/// Returns the number in the line of a file of /proc that begins with `name`.
fn number_after(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_and_its_build_are_described() {
        let mut registry = Registry::default();
        register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {text}"));
            line.trim().parse().unwrap()
        };
        assert!(value("process_cpu_seconds_total ") > 0.0, "{text}");
        assert!(value("process_resident_memory_bytes ") > 1e6, "{text}");
        assert!(value("process_open_fds ") > 2.0 && value("process_max_fds ") > value("process_open_fds "), "{text}");
        assert!(value("process_threads ") >= 1.0 && value("process_start_time_seconds ") > 1.7e9, "{text}");
        assert!(text.contains(&format!("ledger_build_info{{version=\"{}\",", env!("CARGO_PKG_VERSION"))), "{text}");
    }
}
