//! How much of the machine's memory the server takes.

use std::path::Path;

const MIB: u64 = 1024 * 1024;
/// Where control groups are, what begins the line of this process's own, and what has the limit: version 2 and 1.
const CGROUPS: [(&str, &str, &str); 2] =
    [("/sys/fs/cgroup", "0::/", "memory.max"), ("/sys/fs/cgroup/memory", ":memory:/", "memory.limit_in_bytes")];

/// `shared_buffers`: an eighth of the memory, from 128 MB to 1 GB. With less than the pages that are written again
/// and again, the writer itself has to write others to disk before it can go on.
pub fn shared_buffers() -> String {
    buffers_of(memory())
}

fn buffers_of(memory: u64) -> String {
    format!("{}MB", (memory / 8 / MIB).clamp(128, 1024))
}

/// Bytes that this process and its children may have: the machine's, or less in a container.
fn memory() -> u64 {
    let machine = nix::sys::sysinfo::sysinfo().map_or(0, |info| info.ram_total());
    cgroup_limit().map_or(machine, |limit| limit.min(machine))
}

/// The least that a control group around this process sets.
fn cgroup_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = CGROUPS.iter().filter_map(|(root, begin, file)| {
        let own = groups.lines().find_map(|line| Some(line.split_once(begin)?.1))?;
        let limit = |group: &Path| std::fs::read_to_string(group.join(file)).ok()?.trim().parse().ok();
        Path::new(root).join(own).ancestors().take_while(|group| group.starts_with(root)).filter_map(limit).min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_within_bounds() {
        for (memory, buffers) in
            [(0, "128MB"), (1024 * MIB, "128MB"), (2048 * MIB, "256MB"), (4097 * MIB, "512MB"), (64 * 1024 * MIB, "1024MB")]
        {
            assert_eq!(buffers_of(memory), buffers, "{memory}");
        }
    }

    #[test]
    fn the_machine_has_some() {
        assert!(memory() > 128 * MIB, "{}", memory());
    }
}
