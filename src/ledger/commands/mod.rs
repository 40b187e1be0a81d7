//! Commands: the rows that each one reads, and how it decides.
//!
//! A new command is a file with a struct that implements [`Handler`], and a line in the list of [`commands!`].

mod accounts;
mod api_version;
mod approvals;
mod beneficiaries;
mod catalogue;
mod credentials;
mod erasure;
mod ip_blocks;
mod log;
mod low_balance;
mod operators;
mod orders;
mod payouts;
mod previous_secret;
mod purchases;
mod reconciliation;
mod replays;
mod shards;
mod users;
mod verification;
mod wallets;
mod webhooks;

use ledger_events::account::AccountStatus;
use ledger_events::{AccountId, ApprovalId, Rejection};

use super::batch::Batch;
use super::command_result::{ApprovalView, CommandResult};
use super::context::CommandContext;
use super::ids::NoIdLeft;
use super::keys::Owner;
use super::read_set::ReadSet;
pub use super::stock::NewVoucher;
use super::texts::{APPROVAL_NOTE, APPROVAL_REASON};
use crate::secrets::seal::{SealError, Secret, salted_hash};
pub use approvals::MoneyChange;
pub use operators::OwnChange;
pub use payouts::PayoutOutcome;
pub use webhooks::{CredentialLink, VisibleSecrets, WebhookChange};

/// The names that nearly every command uses.
mod prelude {
    pub use ledger_events::Rejection;

    pub(super) use super::{CommandError, Decided, Handler, Salted, approval_view, new_salt, require_active};
    pub use crate::ledger::batch::Batch;
    pub use crate::ledger::command_result::CommandResult;
    pub use crate::ledger::context::CommandContext;
    pub use crate::ledger::keys::Owner;
    pub use crate::ledger::read_set::ReadSet;
    pub use crate::secrets::seal::Secret;
}

/// A command. The writer decides it on the rows that it asks for, as they are at the head of the log.
pub trait Handler {
    /// Whether the command comes by the thousand: the writer decides it on cached rows while it writes the batch before.
    /// Everything that it appends must be in [`Batch::statement`].
    const IS_PIPELINED: bool = false;
    /// Whether the command needs a batch of its own: nothing else may be sealed under a key that it destroys.
    const IS_SOLITARY: bool = false;

    /// Asks for the rows and ids that [`Handler::decide`] uses.
    fn reads<'a>(&'a self, reads: &mut ReadSet<'a>);

    /// Appends the events that follow from the command. A refused command must leave no trace.
    ///
    /// # Errors
    /// [`CommandError::Rejected`] if a rule refuses the command, [`CommandError::Broken`] if the batch cannot go on.
    fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided;
}

/// Declares the commands.
macro_rules! commands {
    ($($area:ident::$command:ident),* $(,)?) => {
        $(pub use $area::$command;)*

        /// Any command.
        #[derive(Clone, Debug)]
        pub enum Command { $($command($command)),* }

        $(impl From<$command> for Command {
            fn from(command: $command) -> Command { Command::$command(command) }
        })*

        impl Command {
            /// Returns whether the writer may decide the command while it writes the batch before.
            pub fn is_pipelined(&self) -> bool {
                match self { $(Self::$command(_) => <$command as Handler>::IS_PIPELINED),* }
            }

            /// Returns whether the command needs a batch of its own.
            pub fn is_solitary(&self) -> bool {
                match self { $(Self::$command(_) => <$command as Handler>::IS_SOLITARY),* }
            }

            /// Returns the name of the command's span in a trace.
            pub(super) fn span_name(&self) -> &'static str {
                match self { $(Self::$command(_) => concat!("command ", stringify!($command))),* }
            }

            pub(super) fn reads<'a>(&'a self, reads: &mut ReadSet<'a>) {
                match self { $(Self::$command(command) => command.reads(reads)),* }
            }

            pub(super) fn decide(&self, batch: &mut Batch, context: &CommandContext<'_>) -> Decided {
                match self { $(Self::$command(command) => command.decide(batch, context)),* }
            }
        }
    };
}

commands! {
    accounts::CreateAccount,
    accounts::SetAccountStatus,
    accounts::SetDiscount,
    api_version::DeclareEmergencySunset,
    approvals::GrantApproval,
    approvals::RejectApproval,
    approvals::Supervise,
    approvals::WithdrawApproval,
    beneficiaries::AddBeneficiary,
    beneficiaries::DeleteBeneficiary,
    catalogue::AddCategory,
    catalogue::AddProduct,
    catalogue::ChangeProduct,
    catalogue::ExpireVouchers,
    catalogue::LoadVouchers,
    catalogue::SetProductImage,
    catalogue::SetProductSupplier,
    catalogue::SetStockThreshold,
    catalogue::SetVoucherExpiry,
    catalogue::TransferVouchers,
    catalogue::VoidVouchers,
    credentials::IssueCredential,
    credentials::RevokeCredential,
    credentials::RotateSigningSecret,
    credentials::SetHmacRequired,
    erasure::Erase,
    ip_blocks::LiftIpBlock,
    log::RecordLogIncident,
    low_balance::AnnounceLowBalance,
    low_balance::SetLowBalanceNotice,
    operators::AdmitOperatorUser,
    operators::ChangeOperatorUser,
    operators::CreateOperatorUser,
    operators::EnableOperatorTwoFactor,
    operators::IssueOperatorToken,
    operators::RemoveOperatorTwoFactor,
    operators::RemoveOperatorUser,
    operators::RevokeOperatorToken,
    orders::CancelOrder,
    orders::FulfilOrder,
    orders::PlaceOrder,
    orders::QuoteCharge,
    orders::RevealVouchers,
    payouts::CancelPayout,
    payouts::RequestPayout,
    payouts::SettlePayout,
    purchases::ReceivePurchase,
    purchases::RecordPurchase,
    purchases::RequestPurchase,
    reconciliation::DecideMatch,
    reconciliation::ImportStatement,
    reconciliation::RevokeMatchDecision,
    replays::AdvanceReplay,
    replays::CancelReplay,
    replays::RequestReplay,
    shards::AddShard,
    shards::SetShardDrain,
    users::AcceptInvitation,
    users::ChangeMemberRole,
    users::ChangeUser,
    users::CreateUser,
    users::DisableTwoFactor,
    users::EnableTwoFactor,
    users::EndSessions,
    users::InviteUser,
    users::RemoveMember,
    users::RemoveUser,
    users::RevokeInvitation,
    users::SetOwnPassword,
    users::SetSecurityPolicy,
    verification::StartVerification,
    verification::StopVerification,
    wallets::AdjustWallet,
    wallets::FundWallet,
    wallets::OpenWallet,
    webhooks::DeactivateWebhook,
    webhooks::DeleteWebhook,
    webhooks::RegisterWebhook,
    webhooks::RetryDelivery,
    webhooks::RotateWebhookToken,
    webhooks::TestWebhook,
    webhooks::UpdateWebhook,
}

/// An error that makes the whole batch unusable, as opposed to a refusal of one command. Nothing is written then, and
/// bisection finds the command.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    NoIdLeft(#[from] NoIdLeft),
}

/// A refusal of one command, or a batch that cannot go on.
#[derive(Debug)]
pub enum CommandError {
    Rejected(Rejection),
    Broken(DecideError),
}

pub(super) type Decided = Result<CommandResult, CommandError>;

impl From<Rejection> for CommandError {
    fn from(rejection: Rejection) -> CommandError {
        CommandError::Rejected(rejection)
    }
}

impl From<SealError> for CommandError {
    fn from(error: SealError) -> CommandError {
        CommandError::Broken(error.into())
    }
}

impl From<serde_json::Error> for CommandError {
    fn from(error: serde_json::Error) -> CommandError {
        CommandError::Broken(error.into())
    }
}

impl From<NoIdLeft> for CommandError {
    fn from(error: NoIdLeft) -> CommandError {
        CommandError::Broken(error.into())
    }
}

/// Returns the refusal of a field that names nothing.
fn unknown(field: &'static str) -> Rejection {
    Rejection::InvalidField { field, problem: "is unknown" }
}

/// Returns an approval with its texts. A command asks for the texts by asking for the approval.
fn approval_view(batch: &Batch, id: ApprovalId) -> Decided {
    let approval = batch.streams.approvals.find(id)?.clone();
    let (note, rejection_reason) = (batch.text(APPROVAL_NOTE, id.0)?, batch.text(APPROVAL_REASON, id.0)?);
    Ok(CommandResult::Approval(ApprovalView { approval, note, rejection_reason }))
}

/// Refuses every change by a suspended account.
#[track_caller]
fn require_active(batch: &Batch, id: AccountId) -> Result<(), Rejection> {
    match batch.streams.accounts.find(id)?.status {
        AccountStatus::Active => Ok(()),
        AccountStatus::Suspended => Err(Rejection::AccountSuspended),
    }
}

fn new_salt() -> Vec<u8> {
    rand::random::<[u8; 16]>().to_vec()
}

/// A text whose hash goes into an event. The vault keeps the text itself once the event is decided.
struct Salted<'a> {
    salt: Vec<u8>,
    text: &'a Secret,
}

impl<'a> Salted<'a> {
    fn new(text: &'a Secret) -> Salted<'a> {
        Salted { salt: new_salt(), text }
    }

    fn hash(&self) -> String {
        salted_hash(&self.salt, self.text.expose())
    }

    /// Keeps the text under the master key.
    fn keep(self, batch: &mut Batch, kind: &'static str, id: i64) -> Result<(), SealError> {
        batch.keep_text(kind, id, self.salt, self.text).map(drop)
    }

    /// Keeps the text under a person's data key.
    fn keep_for(self, batch: &mut Batch, owner: Owner, kind: &'static str, id: i64) -> Result<(), SealError> {
        batch.keep_text_of(owner, kind, id, self.salt, self.text).map(drop)
    }
}
