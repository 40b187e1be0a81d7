//! What the writer answers: what a command did.

use chrono::{DateTime, Utc};
use ledger_events::account::{Account, Credential};
use ledger_events::beneficiary::Beneficiary;
use ledger_events::catalogue::{Category, Product};
use ledger_events::order::Order;
use ledger_events::payout::Payout;
use ledger_events::placement::Quote;
use ledger_events::price::Price;
use ledger_events::reconciliation::Statement;
use ledger_events::replay::Replay;
use ledger_events::user::User;
use ledger_events::wallet::Wallet;
use ledger_events::webhook::Webhook;
use ledger_events::{Currency, Money, Position, ProductId};
use ledger_projections::wallets::Transaction;
use uuid::Uuid;

use super::erasure::Erased;
use crate::secrets::seal::Private;

/// What a command did.
#[derive(Clone, Debug)]
pub enum Answer {
    Account(Account),
    Credential(Credential),
    /// The signing secret only if it was made now.
    Signing {
        credential: Credential,
        signing_secret: Option<Private>,
    },
    IpBlockLifted,
    EmergencySunset,
    /// At which position the incident stands.
    LogIncident {
        position: Position,
    },
    OperatorToken {
        id: i64,
    },
    User(User),
    Wallet(Wallet),
    /// `is_new` is false when the reference had brought the same amount before.
    Funding {
        transaction: Transaction,
        is_new: bool,
    },
    Transaction(Transaction),
    Category(Category),
    Product(Product),
    Stock(StockLoaded),
    Charge(Charge),
    Order(Box<OrderView>),
    Webhook(WebhookView),
    /// A test was asked for: its delivery, and its event.
    Test {
        delivery_id: i64,
        event_id: Uuid,
    },
    /// A delivery will be tried again.
    Retry {
        delivery_id: i64,
    },
    Replay(Replay),
    Beneficiary(BeneficiaryView),
    Payout(PayoutView),
    /// `is_new` is false when the file was imported before, and after a decision.
    Statement {
        statement: Statement,
        is_new: bool,
    },
    Erased(Erased),
}

/// What an order would cost.
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

#[derive(Clone, Debug, Default)]
pub struct StockLoaded {
    pub accepted: i32,
    pub duplicates: i32,
    pub rejected: Vec<(i64, &'static str)>,
}

/// An order with the texts that stand in the vault.
#[derive(Clone, Debug)]
pub struct OrderView {
    pub order: Order,
    pub metadata: Option<Private>,
    pub cancel_reason: Option<Private>,
    /// False when the same `client_reference` and payload had made it before.
    pub is_new: bool,
}

/// A webhook with the texts that stand in the vault; the token only right after registration.
#[derive(Clone, Debug)]
pub struct WebhookView {
    pub webhook: Webhook,
    pub name: Private,
    pub url: Private,
    pub token: Option<Private>,
}

/// A beneficiary with what is shown of the person.
#[derive(Clone, Debug)]
pub struct BeneficiaryView {
    pub beneficiary: Beneficiary,
    pub profile: Option<Private>,
}

/// A payout with the text that stands in the vault.
#[derive(Clone, Debug)]
pub struct PayoutView {
    pub payout: Payout,
    pub failure_reason: Option<Private>,
    /// False when the same `client_reference` and payload had made it before.
    pub is_new: bool,
}
