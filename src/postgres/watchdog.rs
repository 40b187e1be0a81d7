//! The watchdog: a small shell process that ends the server when our process has ended, however
//! that came about. It reads from a pipe that only we hold open, so the kernel tells it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};

use super::account::Account;
use super::{During, Error};

/// Arguments: the signal that ends the server; the postmaster's pid file, which goes with it (an
/// ended process that nobody reaps, as in some containers, looks alive to `kill -0`); the
/// directories to remove afterwards. Each line read is the process to end, 0 for none. It ignores the signals of a terminal or a
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

/// How the watchdog ends the server.
#[derive(Debug, Clone)]
pub(super) struct Duty {
    pub account: Account,
    /// A throw-away server need not write anything out.
    pub immediate: bool,
    pub remove: Vec<PathBuf>,
    pub pid_file: PathBuf,
}

/// The running watchdog; dropped, it does its duty.
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
            .arg("rewards-ledger-watchdog")
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

    /// Names the process to end, 0 for none.
    pub fn watch(&mut self, pid: u32) -> Result<(), Error> {
        self.told = pid;
        let Some(pipe) = self.pipe.as_mut() else {
            return Ok(());
        };
        writeln!(pipe, "{pid}").during(|| "tell the watchdog".to_owned())
    }

    /// Starts a new one if somebody has ended it.
    pub fn keep(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        tracing::warn!("the watchdog of the embedded Postgres has ended; starting another");
        let told = self.told;
        match Watchdog::start(self.duty.clone()) {
            Ok(mut next) => match next.watch(told) {
                Ok(()) => *self = next,
                Err(error) => tracing::warn!(%error, "the embedded Postgres has no watchdog"),
            },
            Err(error) => tracing::warn!(%error, "the embedded Postgres has no watchdog"),
        }
    }

    /// Ends it after the server has been ended, and waits for it to remove what it has to.
    pub fn finish(mut self) {
        // Its pipe is closed in any case; without a process to end it only cleans up.
        let _ = self.watch(0);
        self.pipe = None;
        let _ = self.child.wait();
        for directory in &self.duty.remove {
            // As its user it cannot remove the directory itself from a place of root's.
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}
