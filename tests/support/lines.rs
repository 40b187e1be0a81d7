//! Log lines of a test. The test runs on a single thread, so that everything this thread logs belongs to it.

use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The lines that this thread logs, until this is dropped.
pub struct Logged {
    lines: Lines,
    _logging: DefaultGuard,
    // With only one subscriber, tracing lets whichever thread comes first decide whether a line is wanted, and that
    // thread may belong to another test.
    _second: Dispatch,
}

impl Logged {
    /// Begins to keep the lines that pass a filter.
    pub fn begin(filter: &str) -> Logged {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().json().with_env_filter(filter).with_writer(move || writer.clone());
        let _logging = tracing::subscriber::set_default(subscriber.finish());
        Logged { lines, _logging, _second: Dispatch::new(tracing_subscriber::registry()) }
    }

    /// Returns the lines since the last call, and their text.
    pub fn take(&self) -> (Vec<Value>, String) {
        let text = String::from_utf8(std::mem::take(&mut *self.lines.0.lock().unwrap())).unwrap();
        (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), text)
    }
}
