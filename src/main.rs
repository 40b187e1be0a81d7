//! The program `rewards-ledger`.

use std::process::ExitCode;

fn main() -> ExitCode {
    rewards_ledger::cli::main()
}
