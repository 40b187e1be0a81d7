//! The supervisor thread owns a running postmaster. It restarts the postmaster if it dies, and ends it on request. It is a
//! thread and not a task, so that the server outlives any async runtime.

use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::cluster::Cluster;
use super::files::OwnerLock;
use super::processes::send;
use super::watchdog::Watchdog;
use super::{During, Error};

const LOOK: Duration = Duration::from_millis(100);
const LOOK_WHILE_ENDING: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// State shared by the supervisor thread and the [`super::Server`].
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    told: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    pid: u32,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stop(&self) {
        self.lock().stopping = true;
        self.told.notify_all();
    }

    pub fn is_stopping(&self) -> bool {
        self.lock().stopping
    }

    /// Returns the postmaster's process id, or 0 while there is none.
    pub fn pid(&self) -> u32 {
        self.lock().pid
    }

    fn set_pid(&self, pid: u32) {
        self.lock().pid = pid;
    }

    /// Waits for `pause` or until a stop is requested. Returns whether to stop.
    fn wait(&self, pause: Duration) -> bool {
        let (state, _) =
            self.told.wait_timeout_while(self.lock(), pause, |state| !state.stopping).unwrap_or_else(PoisonError::into_inner);
        state.stopping
    }
}

/// Everything that the supervisor thread owns while the server runs.
#[derive(Debug)]
pub(super) struct Running {
    pub cluster: Cluster,
    pub child: Child,
    pub watchdog: Watchdog,
    pub lock: OwnerLock,
    pub shared: Arc<Shared>,
}

impl Running {
    pub fn supervise(self) -> Result<JoinHandle<Result<(), Error>>, Error> {
        self.shared.set_pid(self.child.id());
        std::thread::Builder::new()
            .name("embedded-postgres".to_owned())
            .spawn(move || self.run())
            .during(|| "start a thread".to_owned())
    }

    fn run(mut self) -> Result<(), Error> {
        let ended = self.watch();
        self.shared.set_pid(0);
        self.watchdog.finish();
        // Only now may another program own the data directory.
        drop(self.lock);
        ended
    }

    /// Keeps the server running until a stop is requested, then ends it.
    fn watch(&mut self) -> Result<(), Error> {
        loop {
            if self.shared.wait(LOOK) {
                return self.end();
            }
            self.watchdog.keep();
            let ended = self.child.try_wait().during(|| "wait for postgres".to_owned())?;
            if let Some(status) = ended {
                self.shared.set_pid(0);
                let log: PathBuf = self.cluster.log();
                tracing::warn!(%status, log = %log.display(), "Postgres ended unexpectedly; restarting it");
                if !self.restart() {
                    return Ok(());
                }
            }
        }
    }

    /// Restarts the server with exponential backoff. Returns false if a stop was requested meanwhile.
    fn restart(&mut self) -> bool {
        let mut pause = Duration::from_millis(100);
        loop {
            if self.shared.is_stopping() {
                return false;
            }
            self.watchdog.keep();
            let shared = Arc::clone(&self.shared);
            let given_up = move || shared.is_stopping();
            match self.cluster.launch(&mut self.watchdog, &given_up) {
                Ok(child) => {
                    tracing::warn!(pid = child.id(), "Postgres restarted");
                    self.shared.set_pid(child.id());
                    self.child = child;
                    return true;
                }
                Err(Error::Stopped) => return false,
                Err(error) => tracing::warn!(%error, "failed to restart Postgres; retrying"),
            }
            if self.shared.wait(pause) {
                return false;
            }
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Ends the server with a fast shutdown, and with stronger signals if that takes too long. A throwaway server skips the
    /// fast shutdown, because its checkpoint is not worth the time.
    fn end(&mut self) -> Result<(), Error> {
        let steps: &[(Signal, u64)] = if self.cluster.durable {
            &[(Signal::SIGINT, 120), (Signal::SIGQUIT, 10), (Signal::SIGKILL, 10)]
        } else {
            &[(Signal::SIGQUIT, 10), (Signal::SIGKILL, 10)]
        };
        for (signal, patience) in steps {
            send(self.child.id(), *signal);
            let deadline = Instant::now() + Duration::from_secs(*patience);
            while Instant::now() < deadline {
                let ended = self.child.try_wait().during(|| "wait for postgres".to_owned())?;
                if ended.is_some() {
                    return Ok(());
                }
                std::thread::sleep(LOOK_WHILE_ENDING);
            }
            tracing::warn!(%signal, "Postgres did not end in time after the signal");
        }
        Err(Error::Leftovers(self.child.id().to_string()))
    }
}
