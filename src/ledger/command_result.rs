//! Results of commands, as the writer returns them.

use chrono::{DateTime, Utc};
use ledger_events::account::{Account, Credential};
use ledger_events::approval::Approval;
use ledger_events::beneficiary::Beneficiary;
use ledger_events::catalogue::{Category, Product};
use ledger_events::order::Order;
use ledger_events::payout::Payout;
use ledger_events::placement::Quote;
use ledger_events::price::Price;
use ledger_events::purchase::Purchase;
use ledger_events::reconciliation::BankStatement;
use ledger_events::replay::Replay;
use ledger_events::user::User;
use ledger_events::wallet::Wallet;
use ledger_events::webhook::Webhook;
use ledger_events::{Currency, Money, Position, ProductId};
use ledger_projections::wallets::Transaction;
use uuid::Uuid;

use super::erasure::Erased;
use super::operator_users::OperatorUser;
use crate::secrets::seal::Secret;

/// The result of a command.
#[derive(Clone, Debug)]
pub enum CommandResult {
    Account(Account),
    Credential(Credential),
    /// `signing_secret` is present only if this command made it.
    Signing {
        credential: Credential,
        signing_secret: Option<Secret>,
        /// Time up to which deliveries are signed with the replaced secret, too.
        previous_until: Option<DateTime<Utc>>,
    },
    IpBlockLifted,
    EmergencySunset,
    /// The shard was added, or its drain is as wanted.
    ShardSet,
    VerificationStarted,
    VerificationStopped,
    /// `position` is that of the recorded incident.
    LogIncident {
        position: Position,
    },
    OperatorToken {
        id: i64,
    },
    OperatorUser(OperatorUser),
    User(User),
    Invitation {
        id: i64,
    },
    Wallet(Wallet),
    /// `is_new` is false if an earlier funding has the same reference and amount.
    Funding {
        transaction: Transaction,
        is_new: bool,
    },
    Transaction(Transaction),
    Category(Category),
    Product(Product),
    Stock(StockLoaded),
    StockVoided(StockVoided),
    StockExpiry(StockExpiry),
    StockTransferred(StockTransferred),
    /// A purchase, or none if nothing has to be bought.
    Purchase(Option<Box<Purchase>>),
    Charge(Charge),
    Order(Box<OrderView>),
    Webhook(WebhookView),
    /// A delivery of sample data, and the event that requested it.
    Test {
        delivery_id: i64,
        event_id: Uuid,
    },
    /// A delivery that will be tried again.
    Retry {
        delivery_id: i64,
    },
    Replay(Replay),
    Beneficiary(BeneficiaryView),
    Payout(PayoutView),
    Approval(ApprovalView),
    /// `is_new` is false if the file was imported before, and after a decision about a line.
    Statement {
        statement: BankStatement,
        is_new: bool,
    },
    Erased(Erased),
}

/// The price of an order that is not placed.
#[derive(Clone, Debug)]
pub struct Charge {
    pub product_id: ProductId,
    pub denomination: Money,
    pub quantity: i32,
    pub currency: Currency,
    pub price: Price,
    pub wallet_balance: Money,
    pub quoted_at: DateTime<Utc>,
}

impl Charge {
    pub fn of(quote: &Quote<'_>, denomination: Money, quantity: i32, quoted_at: DateTime<Utc>) -> Charge {
        Charge {
            product_id: quote.product.id,
            denomination,
            quantity,
            currency: quote.product.details.currency,
            price: quote.price,
            wallet_balance: quote.wallet.balance,
            quoted_at,
        }
    }
}

/// The outcome of a voucher upload.
#[derive(Clone, Debug, Default)]
pub struct StockLoaded {
    pub accepted: i32,
    pub duplicates: i32,
    /// Row of each duplicate.
    pub duplicate_rows: Vec<i64>,
    /// Row and reason of each rejected voucher.
    pub rejected: Vec<(i64, &'static str)>,
}

/// The outcome of a withdrawal of vouchers.
#[derive(Clone, Debug, Default)]
pub struct StockVoided {
    pub voided: i32,
    pub already_voided: i32,
    /// Reference and reason of each voucher that stays as it is.
    pub refused: Vec<(String, String)>,
}

/// The outcome of a transfer of vouchers to another product.
#[derive(Clone, Debug, Default)]
pub struct StockTransferred {
    pub transferred: i32,
    /// Number of vouchers that the other product has in its stock already.
    pub already_there: i32,
    /// Reference and reason of each voucher that stays as it is.
    pub refused: Vec<(String, String)>,
}

/// The outcome of setting the last day of vouchers.
#[derive(Clone, Debug, Default)]
pub struct StockExpiry {
    pub changed: i32,
    /// Number of vouchers that have this day already.
    pub unchanged: i32,
    /// Reference and reason of each voucher that stays as it is.
    pub refused: Vec<(String, String)>,
}

/// An order with its texts from the vault.
#[derive(Clone, Debug)]
pub struct OrderView {
    pub order: Order,
    pub metadata: Option<Secret>,
    pub cancel_reason: Option<Secret>,
    /// False if an earlier command with the same `client_reference` and payload made it.
    pub is_new: bool,
}

/// A webhook with its texts from the vault. The token is present only if this command made it.
#[derive(Clone, Debug)]
pub struct WebhookView {
    pub webhook: Webhook,
    pub name: Secret,
    pub url: Secret,
    pub token: Option<Secret>,
    /// Custom headers, as JSON.
    pub headers: Option<Secret>,
    /// Time up to which the token that this command replaced is valid, too.
    pub previous_until: Option<DateTime<Utc>>,
}

/// A beneficiary with the public details of the person.
#[derive(Clone, Debug)]
pub struct BeneficiaryView {
    pub beneficiary: Beneficiary,
    pub profile: Option<Secret>,
}

/// A payout with its text from the vault.
#[derive(Clone, Debug)]
pub struct PayoutView {
    pub payout: Payout,
    pub failure_reason: Option<Secret>,
    /// False if an earlier command with the same `client_reference` and payload made it.
    pub is_new: bool,
}

/// An approval with its texts from the vault.
#[derive(Clone, Debug)]
pub struct ApprovalView {
    pub approval: Approval,
    pub note: Option<Secret>,
    pub rejection_reason: Option<Secret>,
}
