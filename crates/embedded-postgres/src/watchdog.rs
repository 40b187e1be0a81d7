//! The watchdog: a small shell process that ends the server when our process has ended, for whatever reason. It reads from
//! a pipe that only we hold open, so the kernel notifies it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};

use super::account::Account;
use super::{During, Error};

/// Shell script of the watchdog.
///
/// Arguments: the signal that ends the server, the postmaster's pid file, and the directories to remove afterwards. Each
/// line that it reads is the id of the process to end, or 0 for none. It stops waiting once the pid file is gone: in some
/// containers nobody reaps an ended process, which then looks alive to `kill -0`. It ignores the signals of a terminal or
/// service manager, which are meant for the program.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
pid=0
while read -r line; do pid=$line; done
signal=$1 pid_file=$2
shift 2
if [ "$pid" -gt 1 ]; then
    kill -s "$signal" "$pid" 2>/dev/null
    waited=0
    while [ -e "$pid_file" ] && kill -0 "$pid" 2>/dev/null; do
        waited=$((waited + 1))
        [ "$waited" -eq 600 ] && kill -s QUIT "$pid" 2>/dev/null
        [ "$waited" -gt 750 ] && break
        sleep 0.1
    done
fi
for directory; do
    for _ in 1 2 3 4 5; do
        rm -rf -- "$directory" 2>/dev/null && break
        sleep 1
    done
done
"#;

/// Instructions for the watchdog.
#[derive(Debug, Clone)]
pub(super) struct Duty {
    pub account: Account,
    /// Name under which the watchdog runs.
    pub name: String,
    /// Whether to end the server without a checkpoint, because its data is discarded.
    pub immediate: bool,
    pub remove: Vec<PathBuf>,
    pub pid_file: PathBuf,
}

/// The running watchdog. Dropping it makes it end the server.
#[derive(Debug)]
pub(super) struct Watchdog {
    duty: Duty,
    child: Child,
    pipe: Option<ChildStdin>,
    told: u32,
}

impl Watchdog {
    pub fn start(duty: Duty) -> Result<Watchdog, Error> {
        let mut child = duty
            .account
            .command(Path::new("/bin/sh"))
            .arg("-c")
            .arg(SCRIPT)
            .arg(&duty.name)
            .arg(if duty.immediate { "QUIT" } else { "INT" })
            .arg(&duty.pid_file)
            .args(&duty.remove)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .during(|| "start the watchdog (/bin/sh)".to_owned())?;
        let pipe = child.stdin.take();
        Ok(Watchdog { duty, child, pipe, told: 0 })
    }

    /// Tells the watchdog which process to end, 0 for none.
    pub fn watch(&mut self, pid: u32) -> Result<(), Error> {
        self.told = pid;
        let Some(pipe) = self.pipe.as_mut() else {
            return Ok(());
        };
        writeln!(pipe, "{pid}").during(|| "tell the watchdog".to_owned())
    }

    /// Starts another watchdog if this one was killed.
    pub fn keep(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        tracing::warn!("the watchdog of the embedded Postgres has ended; starting another");
        let told = self.told;
        match Watchdog::start(self.duty.clone()) {
            Ok(mut next) => match next.watch(told) {
                Ok(()) => *self = next,
                Err(error) => tracing::warn!(%error, "failed to start a watchdog for the embedded Postgres"),
            },
            Err(error) => tracing::warn!(%error, "failed to start a watchdog for the embedded Postgres"),
        }
    }

    /// Ends the watchdog after the server has ended, and waits until it has removed its directories.
    pub fn finish(mut self) {
        // If this fails, closing the pipe still ends it. Without a process to end, the watchdog only cleans up.
        let _ = self.watch(0);
        self.pipe = None;
        let _ = self.child.wait();
        for directory in &self.duty.remove {
            // The watchdog's user cannot remove a directory from a parent that belongs to root.
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}
