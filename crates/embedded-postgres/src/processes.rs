//! Finds and ends the processes of a cluster, including those of an earlier run.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Error;

const POLL: Duration = Duration::from_millis(20);

/// A running process with its command line. The server's own processes replace it with a title.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    pid: u32,
    command: String,
}

/// Criteria that identify the processes of a cluster.
#[derive(Debug, Clone)]
pub(super) struct ProcessCriteria {
    /// Server setting `cluster_name`, which is in the title of every server process.
    pub cluster_name: String,
    /// Path of the cluster, to recognise a server that was started by hand.
    pub pgdata: String,
    /// User id of the processes.
    pub uid: u32,
}

impl ProcessCriteria {
    fn fit(&self, process: &Process) -> bool {
        process.command.split(['\0', ' ', '=', ':']).any(|word| word == self.cluster_name)
            || process.command.split('\0').any(|word| word == self.pgdata)
    }

    /// Returns the ids of the cluster's running processes.
    pub fn processes(&self) -> Vec<u32> {
        running(self.uid).iter().filter(|process| is_postgres(process) && self.fit(process)).map(|process| process.pid).collect()
    }
}

fn is_postgres(process: &Process) -> bool {
    let first = process.command.split(['\0', ' ']).next().unwrap_or("");
    let name = first.rsplit('/').next().unwrap_or("");
    matches!(name, "postgres" | "postgres:" | "postmaster")
}

/// Ends leftover processes of an earlier run whose owner has died: a postmaster gracefully, or the backends that a killed
/// postmaster left behind. Also removes a stale `postmaster.pid` whose process id now belongs to an unrelated process,
/// because Postgres would refuse to start with it.
pub(super) fn end_leftovers(criteria: &ProcessCriteria, pgdata: &Path) -> Result<(), Error> {
    let stated = postmaster_pid(pgdata);
    let found = criteria.processes();
    if let Some(postmaster) = stated.filter(|pid| found.contains(pid)) {
        tracing::warn!(pid = postmaster, "stopping the Postgres of an earlier run");
        for (signal, patience) in [(Signal::SIGINT, 30), (Signal::SIGQUIT, 10)] {
            send(postmaster, signal);
            if wait_gone(criteria, Some(postmaster), Duration::from_secs(patience)) {
                break;
            }
        }
    }
    // Backends notice by themselves that their postmaster has ended, unless they are busy.
    let mut gone = wait_gone(criteria, None, Duration::from_secs(2));
    for signal in [Signal::SIGQUIT, Signal::SIGKILL] {
        if gone {
            break;
        }
        for pid in criteria.processes() {
            send(pid, signal);
        }
        gone = wait_gone(criteria, None, Duration::from_secs(5));
    }
    if !gone {
        let pids: Vec<String> = criteria.processes().iter().map(u32::to_string).collect();
        return Err(Error::Leftovers(pids.join(", ")));
    }
    if let Some(pid) = stated.filter(|pid| belongs_to_another_program(*pid)) {
        tracing::warn!(pid, "removing a stale postmaster.pid");
        // If this fails, Postgres reports why it does not start.
        let _ = std::fs::remove_file(pgdata.join("postmaster.pid"));
    }
    Ok(())
}

/// Waits until `pid`, or every process of the cluster, has ended.
fn wait_gone(criteria: &ProcessCriteria, pid: Option<u32>, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        let left = criteria.processes();
        let gone = match pid {
            Some(pid) => !left.contains(&pid),
            None => left.is_empty(),
        };
        if gone || Instant::now() > deadline {
            return gone;
        }
        std::thread::sleep(POLL);
    }
}

/// Sends a signal. It is not an error if the process has already ended.
pub(super) fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 1) {
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// Reads the process id from `postmaster.pid`.
fn postmaster_pid(pgdata: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(pgdata.join("postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok()
}

/// Returns whether `postmaster.pid` says that the postmaster `pid` accepts connections.
pub(super) fn is_ready(pgdata: &Path, pid: u32) -> bool {
    let Ok(text) = std::fs::read_to_string(pgdata.join("postmaster.pid")) else {
        return false;
    };
    let mut lines = text.lines();
    let stated = lines.next().and_then(|line| line.trim().parse().ok());
    stated == Some(pid) && lines.nth(6).is_some_and(|line| line.trim() == "ready")
}

#[cfg(target_os = "linux")]
fn belongs_to_another_program(pid: u32) -> bool {
    read_process(pid).is_some_and(|process| !is_postgres(&process))
}

#[cfg(not(target_os = "linux"))]
fn belongs_to_another_program(pid: u32) -> bool {
    listed().iter().any(|(_, process)| process.pid == pid && !is_postgres(process))
}

/// Returns the processes of a user. It reads /proc, because small containers have no `ps`. It reads the command line,
/// because root in a container may lack the right to trace, which other details (working directory, open files) require.
#[cfg(target_os = "linux")]
fn running(uid: u32) -> Vec<Process> {
    use std::os::unix::fs::MetadataExt;
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let owner = entry.metadata().ok()?.uid();
            if owner == uid { read_process(pid) } else { None }
        })
        .collect()
}

/// Reads a process. Returns none for a zombie: it has no command line, and counts as ended.
#[cfg(target_os = "linux")]
fn read_process(pid: u32) -> Option<Process> {
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).into_owned();
    (!command.is_empty()).then_some(Process { pid, command })
}

#[cfg(not(target_os = "linux"))]
fn running(uid: u32) -> Vec<Process> {
    listed().into_iter().filter(|(owner, _)| *owner == uid).map(|(_, process)| process).collect()
}

#[cfg(not(target_os = "linux"))]
fn listed() -> Vec<(u32, Process)> {
    let output = std::process::Command::new("ps")
        .args(["-axww", "-o", "uid=", "-o", "pid=", "-o", "command="])
        .stdin(std::process::Stdio::null())
        .output();
    let Ok(output) = output else {
        return Vec::new();
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let (uid, rest) = line.trim_start().split_once(' ')?;
            let (pid, command) = rest.trim_start().split_once(' ')?;
            let process = Process { pid: pid.parse().ok()?, command: command.trim().to_owned() };
            Some((uid.parse().ok()?, process))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_of_the_cluster_match() {
        let criteria = ProcessCriteria { cluster_name: "shop-1.23".to_owned(), pgdata: "/data/postgres".to_owned(), uid: 0 };
        let fits = |command: &str| {
            let process = Process { pid: 2, command: command.to_owned() };
            is_postgres(&process) && criteria.fit(&process)
        };
        assert!(fits("postgres: shop-1.23: checkpointer "));
        assert!(fits("/usr/lib/postgresql/15/bin/postgres\0-D\0/data/postgres\0"));
        assert!(fits("postgres\0-c\0cluster_name=shop-1.23\0"));
        assert!(!fits("postgres: shop-1.234: checkpointer "));
        assert!(!fits("vi\0/data/postgres\0"));
        assert!(!fits("/usr/bin/postgres\0-D\0/data/postgres2\0"));
    }
}
