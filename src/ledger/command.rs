//! What the writer can be asked.

use std::net::IpAddr;

use chrono::NaiveDate;
use ledger_events::account::{AccountStatus, DiscountRule};
use ledger_events::api_version::EmergencySunsetDeclared;
use ledger_events::beneficiary::BeneficiaryKind;
use ledger_events::catalogue::{ProductChange, ProductDetails, ProductImageSet};
use ledger_events::log::SignedTree;
use ledger_events::operator::OperatorRole;
use ledger_events::reconciliation::{Decision, StatementImported};
use ledger_events::replay::ReplayKind;
use ledger_events::user::UserRole;
use ledger_events::wallet::Direction;
use ledger_events::webhook::WebhookEventType;
use ledger_events::{
    AccountId, BeneficiaryId, CategoryId, CredentialId, Currency, Money, OrderId, PayoutId, Position, ProductId, ReplayId,
    StatementId, UserId, WalletId, WebhookId,
};
use uuid::Uuid;

use super::erasure::{Part, Subject};
use super::operators;
use crate::secrets::seal::Private;

/// A command, imperative. Every one is decided on what the writer reads under the head lock.
#[derive(Clone, Debug)]
pub enum Command {
    CreateAccount {
        name: String,
    },
    SetAccountStatus {
        account_id: AccountId,
        status: AccountStatus,
    },
    SetDiscount {
        account_id: AccountId,
        rule: DiscountRule,
    },
    IssueCredential {
        account_id: AccountId,
        name: String,
        api_key: Private,
        api_secret: Private,
    },
    RevokeCredential {
        account_id: AccountId,
        credential_id: CredentialId,
    },
    /// Whether the credential's requests must be signed. Where it has no signing secret yet, the new
    /// one becomes it.
    SetHmacRequired {
        account_id: AccountId,
        credential_id: CredentialId,
        is_required: bool,
        new_secret: Private,
    },
    /// For those of the account: the new secret takes the place of the signing secret, if any.
    RotateSigningSecret {
        account_id: AccountId,
        credential_id: CredentialId,
        new_secret: Private,
    },
    CreateUser(CreateUser),
    ChangeUser(ChangeUser),
    EndSessions {
        account_id: AccountId,
        user_id: UserId,
    },
    RemoveUser {
        account_id: AccountId,
        user_id: UserId,
    },
    /// Somebody may run the service from now on.
    IssueOperatorToken(IssueOperatorToken),
    /// And may not any more.
    RevokeOperatorToken {
        id: i64,
    },
    /// Signed events of the transparency log are lost, and it goes on under another origin.
    RecordLogIncident(RecordLogIncident),
    /// Ends the block of an IP that logged in too often.
    LiftIpBlock {
        ip: IpAddr,
    },
    /// Records why the client API's version ends earlier than promised.
    DeclareEmergencySunset(EmergencySunsetDeclared),
    OpenWallet {
        account_id: AccountId,
        currency: Currency,
    },
    /// `account_id` is none for operators: any account's wallet.
    FundWallet {
        account_id: Option<AccountId>,
        wallet_id: WalletId,
        amount: Money,
        reference: String,
        note: Option<Private>,
    },
    AdjustWallet {
        wallet_id: WalletId,
        direction: Direction,
        amount: Money,
        reason: Private,
    },
    AddCategory {
        name: String,
        parent_id: Option<CategoryId>,
    },
    AddProduct {
        details: ProductDetails,
    },
    ChangeProduct {
        product_id: ProductId,
        change: ProductChange,
    },
    /// The bytes are stored before.
    SetProductImage {
        product_id: ProductId,
        image: ProductImageSet,
    },
    LoadVouchers {
        product_id: ProductId,
        denomination: Money,
        vouchers: Vec<NewVoucher>,
    },
    /// What an order of this would cost. Changes nothing.
    QuoteCharge {
        account_id: AccountId,
        product_id: ProductId,
        denomination: Money,
        quantity: i32,
    },
    PlaceOrder(PlaceOrder),
    /// `account_id` is none for operators: any account's order.
    CancelOrder {
        account_id: Option<AccountId>,
        order_id: OrderId,
        reason: Option<Private>,
    },
    /// Take up an order and allocate what stock there is.
    FulfilOrder {
        order_id: OrderId,
    },
    RevealVouchers {
        account_id: AccountId,
        order_id: OrderId,
    },
    RegisterWebhook(RegisterWebhook),
    UpdateWebhook {
        account_id: AccountId,
        webhook_id: WebhookId,
        change: WebhookChange,
    },
    RotateWebhookToken {
        account_id: AccountId,
        webhook_id: WebhookId,
        new_token: Private,
    },
    DeleteWebhook {
        account_id: AccountId,
        webhook_id: WebhookId,
    },
    TestWebhook {
        account_id: AccountId,
        webhook_id: WebhookId,
    },
    RetryDelivery {
        account_id: AccountId,
        delivery_id: i64,
    },
    /// By operators, like the other commands about replays: a suspended account's, too.
    RequestReplay(RequestReplay),
    /// A step that the replay's job has prepared.
    AdvanceReplay(AdvanceReplay),
    CancelReplay {
        replay_id: ReplayId,
    },
    AddBeneficiary(AddBeneficiary),
    DeleteBeneficiary {
        account_id: AccountId,
        beneficiary_id: BeneficiaryId,
    },
    RequestPayout(RequestPayout),
    CancelPayout {
        account_id: AccountId,
        payout_id: PayoutId,
    },
    /// What became of a payout, as an operator knows.
    SettlePayout {
        payout_id: PayoutId,
        outcome: PayoutOutcome,
    },
    /// Destroys what there is of a subject's personal data. Decided in a batch of its own.
    Erase {
        subject: Subject,
        reason: Private,
        /// What of an account is erased by this step.
        part: Part,
    },
    /// The lines are stored before.
    ImportStatement(ImportStatement),
    DecideMatch(DecideMatch),
    RevokeMatchDecision {
        statement_id: StatementId,
        line: i32,
        reason: Private,
    },
}

#[derive(Clone, Debug)]
pub struct ImportStatement(pub StatementImported);

/// What a line of a statement is; that the funding or payout exists is known before.
#[derive(Clone, Debug)]
pub struct DecideMatch {
    pub statement_id: StatementId,
    pub line: i32,
    pub decision: Decision,
    pub reason: Private,
}

#[derive(Clone, Debug)]
pub struct RequestReplay {
    pub account_id: AccountId,
    pub webhook_id: WebhookId,
    pub kind: ReplayKind,
    /// The first position that is looked at.
    pub from: Position,
    /// Deliveries made in a second, at most.
    pub per_second: i32,
}

/// Everything from `at` up to `next` was looked at, and these events are to be delivered.
#[derive(Clone, Debug)]
pub struct AdvanceReplay {
    pub account_id: AccountId,
    pub replay_id: ReplayId,
    pub at: Position,
    pub next: Position,
    pub events: Vec<Uuid>,
}

#[derive(Clone, Debug)]
pub struct AddBeneficiary {
    pub account_id: AccountId,
    pub kind: BeneficiaryKind,
    /// ISO 3166-1 alpha-2.
    pub country: String,
    pub currency: Currency,
    /// What is shown of the person: JSON of the API's making.
    pub profile: Private,
    pub account_number: Private,
}

#[derive(Clone, Debug)]
pub struct RequestPayout {
    pub account_id: AccountId,
    pub beneficiary_id: BeneficiaryId,
    pub wallet_id: WalletId,
    pub amount: Money,
    pub client_reference: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PayoutOutcome {
    Paid,
    Failed { reason: Option<Private> },
}

impl Command {
    /// The commands that come by the thousand: decided on what the writer remembers while the
    /// batch before them is written. All that they write is in [`super::batch::Batch::statement`].
    pub fn is_common(&self) -> bool {
        matches!(self, Self::PlaceOrder(_) | Self::FulfilOrder { .. })
    }

    /// Whether it is to be decided alone: nothing else of its batch may be sealed under a key that
    /// it destroys.
    pub fn is_alone(&self) -> bool {
        matches!(self, Self::Erase { .. })
    }
}

#[derive(Clone, Debug)]
pub struct CreateUser {
    pub account_id: AccountId,
    pub role: UserRole,
    pub email: Private,
    /// Keyed hash of the email in lower case: one user has it.
    pub email_lookup: [u8; 32],
    /// argon2id, as a PHC string.
    pub password_hash: Private,
}

/// What is none stays. A change ends the user's sessions.
#[derive(Clone, Debug)]
pub struct ChangeUser {
    pub account_id: AccountId,
    pub user_id: UserId,
    pub role: Option<UserRole>,
    /// argon2id, as a PHC string.
    pub password_hash: Option<Private>,
}

#[derive(Clone, Debug)]
pub struct PlaceOrder {
    pub account_id: AccountId,
    pub product_id: ProductId,
    pub denomination: Money,
    pub quantity: i32,
    pub client_reference: Option<String>,
    /// A JSON object's text.
    pub metadata: Option<Private>,
}

#[derive(Clone, Debug)]
pub struct RegisterWebhook {
    pub account_id: AccountId,
    pub name: Private,
    pub url: Private,
    pub events: Vec<WebhookEventType>,
    pub credential_id: Option<CredentialId>,
    /// The token if it is a standalone one, and the credential's signing secret if that has none.
    pub new_secret: Private,
}

/// What to change; what is absent stays.
#[derive(Clone, Debug, Default)]
pub struct WebhookChange {
    pub name: Option<Private>,
    pub url: Option<Private>,
    pub events: Option<Vec<WebhookEventType>>,
    pub is_active: Option<bool>,
    pub link: Option<CredentialLink>,
    /// Signing secrets that the caller may see. A linked webhook shows its credential's secret to its URL, so only a caller
    /// who may see that secret changes the URL.
    pub visible: VisibleSecrets,
}

/// Signing secrets of an account's credentials that a caller may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VisibleSecrets {
    #[default]
    None,
    Only(CredentialId),
    All,
}

impl VisibleSecrets {
    pub fn contains(self, credential: CredentialId) -> bool {
        match self {
            VisibleSecrets::All => true,
            VisibleSecrets::Only(own) => own == credential,
            VisibleSecrets::None => false,
        }
    }
}

/// The credential whose signing secret becomes a webhook's token.
#[derive(Clone, Debug)]
pub struct CredentialLink {
    pub credential_id: CredentialId,
    /// The credential's signing secret if it has none.
    pub new_secret: Private,
}

/// A token for an operator. The token itself stays with who made it.
#[derive(Clone, Debug)]
pub struct IssueOperatorToken {
    /// Whose it is.
    pub name: Private,
    pub role: OperatorRole,
    pub token_hash: [u8; 32],
}

impl IssueOperatorToken {
    pub fn of(name: &str, role: OperatorRole, token: &Private) -> IssueOperatorToken {
        IssueOperatorToken { name: Private::new(name), role, token_hash: operators::hash(token.expose()) }
    }
}

/// A voucher to add to the stock.
#[derive(Clone, Debug)]
pub struct NewVoucher {
    /// Where it stood in what was uploaded, for naming it in an answer.
    pub row: i64,
    pub card_number: Private,
    pub pin: Option<Private>,
    pub claim_url: Option<Private>,
    /// Made from the voucher's own id when absent.
    pub reference: Option<String>,
    pub expires_on: Option<NaiveDate>,
}

/// An incident of the shard's transparency log, as an operator has found it.
#[derive(Clone, Debug)]
pub struct RecordLogIncident {
    pub origin: String,
    pub next_origin: String,
    pub signed: Option<SignedTree>,
    pub kept: Option<SignedTree>,
    pub refusal: String,
    pub reason: Private,
    /// How many incidents the operator knows of: another one that was recorded meanwhile is a conflict.
    pub known: i64,
}
