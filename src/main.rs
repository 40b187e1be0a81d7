//! Entry point of the `rewards-ledger` binary.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Allocator of the process. A request makes hundreds of small allocations; with mimalloc, a node spends one sixth
/// less time on an order than with the system allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    rewards_ledger::cli::main()
}
