//! Approvals of a second operator: movements of money above a limit wait for one.

mod grant;
mod reject;
mod supervise;
mod withdraw;

pub use grant::GrantApproval;
pub use reject::RejectApproval;
pub use supervise::{MoneyChange, Supervise};
pub use withdraw::WithdrawApproval;
