//! Sizes the server's shared memory by the memory of the machine or container.

use std::path::Path;

const MIB: u64 = 1024 * 1024;
/// For control groups version 2 and 1: mount point, separator before the path in `/proc/self/cgroup`, and limit file.
const CGROUPS: [(&str, &str, &str); 2] =
    [("/sys/fs/cgroup", "0::/", "memory.max"), ("/sys/fs/cgroup/memory", ":memory:/", "memory.limit_in_bytes")];

/// Returns the setting `shared_buffers`: one eighth of the memory, from 128 MB to 1 GB. If the frequently written pages do
/// not fit, each statement must first write other pages to disk itself.
pub fn shared_buffers() -> String {
    buffers_of(memory())
}

fn buffers_of(memory: u64) -> String {
    format!("{}MB", (memory / 8 / MIB).clamp(128, 1024))
}

/// Returns the memory in bytes that this process and its children may use: the machine's, or a container's lower limit.
fn memory() -> u64 {
    let machine = nix::sys::sysinfo::sysinfo().map_or(0, |info| info.ram_total());
    cgroup_limit().map_or(machine, |limit| limit.min(machine))
}

/// Returns the lowest memory limit of the control groups that contain this process.
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
    fn shared_buffers_are_one_eighth_of_memory_within_bounds() {
        for (memory, buffers) in
            [(0, "128MB"), (1024 * MIB, "128MB"), (2048 * MIB, "256MB"), (4097 * MIB, "512MB"), (64 * 1024 * MIB, "1024MB")]
        {
            assert_eq!(buffers_of(memory), buffers, "{memory}");
        }
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(memory() > 128 * MIB, "{}", memory());
    }
}
