//! A network of machines: each is a network namespace with one cable to a bridge. Pulling the cable drops every packet.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::replicas::server_user;

/// First three bytes of every machine's address. The bridge, at which the test itself sits, has the last byte 1.
const SUBNET: &str = "10.90.0";

/// Returns the address of a machine.
pub fn address(number: u8) -> String {
    format!("{SUBNET}.{number}")
}

/// Moves this thread, and the threads and processes that it starts from now on, into a network of its own with a bridge.
pub fn enter() {
    unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace: the test runs as root");
    ip(&["link", "set", "lo", "up"]);
    ip(&["link", "add", "br0", "type", "bridge"]);
    ip(&["addr", "add", &format!("{}/24", address(1)), "dev", "br0"]);
    ip(&["link", "set", "br0", "up"]);
}

fn ip(arguments: &[&str]) {
    run(Command::new("ip").args(arguments));
}

fn run(command: &mut Command) {
    let done = command.stdin(Stdio::null()).output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A machine with an address of its own. Every process in it ends when it is dropped.
#[derive(Debug)]
pub struct Machine {
    pub number: u8,
    /// Process that keeps the namespace.
    holder: std::process::Child,
    /// Name that the kernel gives the namespace.
    namespace: String,
}

impl Machine {
    pub fn new(number: u8) -> Machine {
        let ours = namespace_of("thread-self").unwrap();
        let holder = Command::new("unshare").args(["--net", "sleep", "infinity"]).stdin(Stdio::null()).spawn().unwrap();
        let id = holder.id().to_string();
        let namespace = loop {
            match namespace_of(&id) {
                Some(namespace) if namespace != ours => break namespace,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        let machine = Machine { number, holder, namespace };
        let cable = machine.cable();
        ip(&["link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &id]);
        ip(&["link", "set", &cable, "master", "br0", "up"]);
        for arguments in [
            &["link", "set", "lo", "up"][..],
            &["addr", "add", &format!("{}/24", machine.address()), "dev", "eth0"],
            &["link", "set", "eth0", "up"],
        ] {
            run(machine.enter().arg("ip").args(arguments));
        }
        machine
    }

    pub fn address(&self) -> String {
        address(self.number)
    }

    fn cable(&self) -> String {
        format!("cable{}", self.number)
    }

    fn enter(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--net"]);
        command
    }

    /// Builds a command that runs in this machine, as this user.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.enter();
        command.arg("--").arg(program);
        command
    }

    /// Builds a command that runs in this machine, as the user of the database servers.
    pub fn server_command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.enter();
        if let Some(user) = server_user() {
            command.args(["--setuid", &user.uid.to_string(), "--setgid", &user.gid.to_string()]);
        }
        command.arg("--").arg(program);
        command
    }

    /// Drops every packet from and to this machine, or forwards them again.
    pub fn silence(&self, is_silent: bool) {
        ip(&["link", "set", &self.cable(), if is_silent { "down" } else { "up" }]);
    }

    /// Returns the processes in this machine.
    fn processes(&self) -> Vec<i32> {
        let numbers = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let ours = numbers.filter(|number| namespace_of(number).is_some_and(|namespace| namespace == self.namespace));
        let holder = self.holder.id().cast_signed();
        ours.filter_map(|number| number.parse().ok()).filter(|number| *number != holder).collect()
    }

    /// Sends a signal to each process in this machine.
    pub fn signal(&self, signal: Signal) {
        for process in self.processes() {
            _ = kill(Pid::from_raw(process), signal); // it may have ended meanwhile
        }
    }

    /// Sends a signal to each process whose command line has this text.
    pub fn signal_named(&self, text: &str, signal: Signal) {
        for process in self.processes() {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&line).contains(text) {
                _ = kill(Pid::from_raw(process), signal); // it may have ended meanwhile
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let mut seen = HashSet::new();
        // Processes that start others meanwhile are met in the next round.
        while self.processes().into_iter().any(|process| seen.insert(process)) {
            self.signal(Signal::SIGKILL);
            std::thread::sleep(Duration::from_millis(10));
        }
        _ = self.holder.kill(); // the namespace goes with its last process
        _ = self.holder.wait();
    }
}

fn namespace_of(process: &str) -> Option<String> {
    let link = std::fs::read_link(Path::new("/proc").join(process).join("ns/net")).ok()?;
    Some(link.to_string_lossy().into_owned())
}
