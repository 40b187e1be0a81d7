//! Rich histories for auditors: sound ones, and ones with known faults.

use std::sync::Arc;

use bank_statements::lines::Columns;
use chrono::SubsecRound;
use ledger_events::account::{AccountStatus, DiscountRule, LowBalanceReached};
use ledger_events::api_version::EmergencySunsetDeclared;
use ledger_events::catalogue::{ImageType, ProductChange, ProductImageSet, ProductSupplier};
use ledger_events::log::SignedTree;
use ledger_events::operator::OperatorRole;
use ledger_events::purchase::{PurchaseAnswer, PurchasePending, PurchaseRefused};
use ledger_events::reconciliation::{Decision, StatementFormat};
use ledger_events::replay::ReplayKind;
use ledger_events::restrictions::{Restrictions, Scope};
use ledger_events::user::UserRole;
use ledger_events::wallet::Direction;
use ledger_events::webhook::WebhookEventType;
use ledger_events::{AccountId, Actor, OrderId, Rejection, ReplayId, StatementId, TransactionId, UserId, WebhookId};
use rewards_ledger::access::two_factor;
use rewards_ledger::delivery::replay::Replayer;
use rewards_ledger::fulfilment::expiry;
use rewards_ledger::ledger::commands::{
    AcceptInvitation, ChangeOperatorUser, ChangeUser, CreateOperatorUser, CreateUser, DecideMatch, EnableOperatorTwoFactor,
    EnableTwoFactor, ImportStatement, InviteUser, IssueOperatorToken, MoneyChange, NewVoucher, PayoutOutcome, RecordLogIncident,
    RequestReplay, WebhookChange,
};
use rewards_ledger::ledger::eraser;
use rewards_ledger::ledger::erasure::Subject;
use rewards_ledger::ledger::moves::Move;
use rewards_ledger::ledger::projector::ProjectionStep;
use rewards_ledger::ledger::{Command, CommandResult, Origin, WriteError, commands, images};
use rewards_ledger::reconciliation::statements::{self, Source};
use rewards_ledger::secrets::seal::Secret;
use sha2::{Digest, Sha256};

use super::ledger::{details, execute, money, origin};
use super::shop::{SHARD, Shop};

const URL: &str = "https://example.com/hook";

/// Resources that a history leaves for further steps.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    delivered: OrderId,
    statement: StatementId,
    /// Webhook that is subscribed to all types and gets its deliveries.
    all: WebhookId,
    /// Webhook with a replay that has not ended.
    late: WebhookId,
    replay: ReplayId,
}

/// Builds a command that creates a user who cannot log in.
fn create_user(account_id: AccountId, email: &str) -> Command {
    Command::CreateUser(CreateUser {
        account_id,
        role: UserRole::Operator,
        email: Secret::new(email),
        email_lookup: super::ledger::keyring().fingerprint("user.email", email),
        password_hash: Secret::new("none"),
    })
}

impl Shop {
    /// Makes orders in all states (delivered, partially delivered, delayed, cancelled), webhooks that are created,
    /// changed and deleted, a suspended account, a discount and an image.
    pub async fn history(&self) -> Left {
        let (account, order) = (self.customer.account_id, |denomination, quantity| self.customer.order(denomination, quantity));
        self.run(commands::AddCategory { name: "Games".into(), parent_id: None }).await;
        let issue = commands::IssueCredential {
            account_id: self.customer.account_id,
            name: "key".into(),
            api_key: Secret::new("abcdefgh-rest"),
            api_secret: Secret::new("secret"),
            restrictions: Restrictions::default(),
        };
        let CommandResult::Credential(credential) = self.run(issue).await else { panic!() };
        let (account_id, credential_id) = (credential.account_id, credential.id);
        let new_secret = Secret::new("signing");
        let is_required = true;
        self.run(commands::SetHmacRequired { account_id, credential_id, is_required, new_secret: new_secret.clone() }).await;
        self.run(commands::RotateSigningSecret { account_id, credential_id, new_secret, previous_valid_hours: None }).await;
        let user_id = self.user(account_id, "a@example.com").await;
        self.user(account_id, "b@example.com").await;
        let change =
            ChangeUser { account_id, user_id, role: Some(UserRole::Owner), password_hash: Some(Secret::new("$argon2id$")) };
        self.run(Command::ChangeUser(change)).await;
        self.run(commands::EndSessions { account_id, user_id }).await;
        self.run(commands::RemoveUser { account_id, user_id }).await;
        let all = self.webhook_for(account, URL, &WebhookEventType::ALL).await.0;
        let some = self.webhook_for(account, URL, &[WebhookEventType::OrderDelivered]).await.0;
        let delivered = self.place(order("10.00", 2)).await;
        self.load("a", 5, None).await;
        self.fulfil(delivered).await;
        let rule = DiscountRule {
            product_id: Some(self.customer.product_id),
            category_id: None,
            discount: money("2.50").try_into().unwrap(),
        };
        self.run(commands::SetDiscount { account_id: self.customer.account_id, rule }).await;
        let partial = self.place(order("10.00", 5)).await;
        self.fulfil(partial).await;
        self.listens(some, false).await;
        let delayed = self.place(order("25.00", 1)).await;
        self.fulfil(delayed).await;
        for order_id in [partial, delayed] {
            self.run(commands::CancelOrder {
                account_id: Some(self.customer.account_id),
                order_id,
                reason: Some(Secret::new("why")),
            })
            .await;
        }
        self.run(commands::RevealVouchers { account_id: self.customer.account_id, order_id: delivered }).await;
        self.project().await;
        self.run(commands::DeleteWebhook { account_id: self.customer.account_id, webhook_id: some }).await;
        let CommandResult::Account(other) = self.run(commands::CreateAccount { name: "Other".into() }).await else { panic!() };
        self.suspend(other.id).await;
        self.payouts().await;
        for _ in 0..5 {
            self.place(order("25.00", 3)).await;
        }
        self.image().await;
        let statement = self.statement().await;
        self.project().await;
        self.run(commands::TestWebhook { account_id: account, webhook_id: all, event_type: None }).await;
        // A webhook with a replay of earlier events, of which one step of several is done.
        let late = self.webhook_for(account, URL, &[WebhookEventType::OrderCreated]).await.0;
        let replay = self.replay(late, 2).await;
        self.advance().await;
        Left { delivered, statement, all, late, replay }
    }

    /// Makes the history above and everything else that can happen in one log: every event in every version that can be read, but
    /// for those of [`Shop::moves`].
    pub async fn eventful(&self) {
        let left = self.history().await;
        let Left { all, late, .. } = left;
        for direction in [Direction::Credit, Direction::Debit] {
            let (wallet_id, amount, reason) = (self.customer.wallet_id, money("1.50"), Secret::new("a correction"));
            self.run(commands::AdjustWallet { wallet_id, direction, amount, reason }).await;
        }
        self.shelves().await;
        self.purchases().await;
        self.approvals().await;
        let (account_id, wallet_id) = (self.customer.account_id, self.customer.wallet_id);
        self.run(commands::SetLowBalanceNotice { account_id, wallet_id, below: Some(money("10.00")) }).await;
        let (currency, fell_at) = ("EUR".parse().unwrap(), chrono::Utc::now().trunc_subsecs(3));
        let reached =
            LowBalanceReached { wallet_id, currency, below: money("10.00"), balance: money("9.00"), position: 1, fell_at };
        self.run(commands::AnnounceLowBalance { account_id, reached }).await;
        self.access().await;
        self.shards().await;
        // Switching the webhook off fails its pending deliveries, which are then retried.
        self.listens(all, false).await;
        self.project().await;
        self.listens(all, true).await;
        let failed = "SELECT delivery_id FROM delivery_state WHERE webhook_id = $1 AND status = 'failed' ORDER BY 1 DESC LIMIT 2";
        let failed: Vec<i64> = sqlx::query_scalar(failed).bind(all).fetch_all(self.pool()).await.unwrap();
        assert_eq!(failed.len(), 2);
        for delivery_id in failed {
            self.run(commands::RetryDelivery { account_id: self.customer.account_id, delivery_id }).await;
        }
        // Replays that end by an operator, by completion, and because the webhook is switched off.
        self.run(commands::CancelReplay { replay_id: left.replay }).await;
        self.replay(all, 500).await;
        self.advance().await;
        self.replay(late, 1).await;
        self.deactivates(late).await;
        self.project().await;
        self.erasures(&left).await;
        self.project().await;
        // Rewrite the movements of orders in the version that they had before payouts existed.
        self.tamper("UPDATE events SET schema_version = 1 WHERE schema_version = 2 AND data->>'order_id' IS NOT NULL").await;
    }

    /// Expires and voids a voucher that no order has, moves one to another product, and sets a threshold for its stock.
    async fn shelves(&self) {
        let (product_id, denomination) = (self.customer.product_id, money("25.00"));
        let voucher = |number: &str, reference: &str| NewVoucher {
            row: 1,
            card_number: Secret::new(number),
            pin: None,
            claim_url: None,
            reference: Some(reference.to_owned()),
            expires_on: Some("2001-01-01".parse().unwrap()),
        };
        let load = |voucher| {
            let (cost, supplier_reference) = (Some(money("23.50")), Some("INV-7".to_owned()));
            commands::LoadVouchers { product_id, denomination, vouchers: vec![voucher], cost, supplier_reference }
        };
        self.run(load(voucher("6006-void", "VCH-void"))).await;
        let references = vec!["VCH-void".to_owned()];
        let expires_on = "2000-12-31".parse().unwrap();
        self.run(commands::SetVoucherExpiry { product_id, references: references.clone(), expires_on }).await;
        self.run(commands::VoidVouchers { product_id, references, reason: Secret::new("a wrong file") }).await;
        let CommandResult::Product(successor) = self.run(commands::AddProduct { details: details("Successor") }).await else {
            panic!()
        };
        let moved = voucher("6006-moved", "VCH-moved");
        self.run(load(NewVoucher { expires_on: None, ..moved })).await;
        let (references, to_product_id) = (vec!["VCH-moved".to_owned()], successor.id);
        self.run(commands::TransferVouchers { product_id, to_product_id, references, reason: Secret::new("a new product") })
            .await;
        self.run(load(voucher("6006-late", "VCH-late"))).await;
        let projector = self.projector();
        while projector.stock(SHARD).await.unwrap() != ProjectionStep::Idle {}
        assert_eq!(expiry::step(&self.ledger, SHARD).await.unwrap(), 1);
        self.run(commands::SetStockThreshold { product_id, denomination, least: Some(5) }).await;
    }

    /// Buys a voucher for an order that waits and is then cancelled. The supplier refuses it first, and accepts it before it delivers.
    async fn purchases(&self) {
        let (product_id, denomination) = (self.customer.product_id, money("10.00"));
        let supplier = ProductSupplier { name: "acme".to_owned(), sku: "SKU-10".to_owned() };
        self.run(commands::SetProductSupplier { product_id, supplier: Some(supplier) }).await;
        let order_id = self.order(2).await;
        self.fulfil(order_id).await;
        let request = commands::RequestPurchase {
            order_id,
            product_id,
            denomination,
            currency: "EUR".parse().unwrap(),
            supplier: "acme".to_owned(),
            sku: "SKU-10".to_owned(),
            budget: money("1000.00"),
        };
        let bought = async || {
            let CommandResult::Purchase(Some(purchase)) = self.run(request.clone()).await else { panic!("no purchase") };
            purchase.id
        };
        let purchase_id = bought().await;
        let refused = PurchaseRefused { reason: "OUT_OF_STOCK".to_owned(), may_succeed_later: true };
        self.run(commands::RecordPurchase { purchase_id, answer: PurchaseAnswer::Refused(refused), attempt: None }).await;
        let purchase_id = bought().await;
        let pending = PurchasePending { supplier_reference: Some("S-1".to_owned()) };
        self.run(commands::RecordPurchase { purchase_id, answer: PurchaseAnswer::Pending(pending), attempt: None }).await;
        let voucher = NewVoucher {
            row: 1,
            card_number: Secret::new("6006-bought"),
            pin: None,
            claim_url: None,
            reference: None,
            expires_on: None,
        };
        let (vouchers, cost, supplier_reference) = (vec![voucher], Some(money("9.50")), Some("S-1".to_owned()));
        let load = commands::LoadVouchers { product_id, denomination, vouchers, cost, supplier_reference };
        self.run(commands::ReceivePurchase { purchase_id, load, expired: 0 }).await;
        self.cancel(order_id).await;
    }

    /// Makes one approval of each kind and outcome: a granted funding, a rejected adjustment, a pending payout, a withdrawn
    /// adjustment.
    pub async fn approvals(&self) {
        let (wallet_id, amount) = (self.customer.wallet_id, money("2.00"));
        let fund = commands::FundWallet {
            account_id: None,
            wallet_id,
            amount,
            reference: "approved".to_owned(),
            note: Some(Secret::new("a note")),
        };
        let adjust = commands::AdjustWallet { wallet_id, direction: Direction::Credit, amount, reason: Secret::new("a mistake") };
        let to = self.beneficiary().await;
        let settle = commands::SettlePayout { payout_id: self.payout(to, "2.00").await, outcome: PayoutOutcome::Paid };
        let mut ids = vec![];
        let changes = [
            MoneyChange::Fund(fund),
            MoneyChange::Adjust(adjust.clone()),
            MoneyChange::Settle(settle),
            MoneyChange::Adjust(adjust),
        ];
        for change in changes {
            let limits = Arc::new("1.00".parse().unwrap());
            let CommandResult::Approval(view) = self.run(commands::Supervise { change, limits }).await else { panic!() };
            ids.push(view.approval.id);
        }
        let second = || Origin { actor: Actor::Operator(77), request_id: "test".to_owned() };
        let grant = commands::GrantApproval { approval_id: ids[0] };
        execute(&self.ledger, grant, second()).await.unwrap();
        let reject = commands::RejectApproval { approval_id: ids[1], reason: Some(Secret::new("no")) };
        execute(&self.ledger, reject, second()).await.unwrap();
        self.run(commands::WithdrawApproval { approval_id: ids[3] }).await;
    }

    /// Makes a restricted API key that is revoked, a revoked operator token, a blocked address, and an incident of the log.
    pub async fn access(&self) {
        let account_id = self.customer.account_id;
        let (api_key, api_secret) = (Secret::new("ijklmnop-rest"), Secret::new("secret"));
        let restrictions = Restrictions {
            scopes: Some([Scope::Read, Scope::Webhooks].into_iter().collect()),
            expires_at: Some(chrono::Utc::now().trunc_subsecs(3) + chrono::TimeDelta::days(1)),
            allowed_networks: vec!["203.0.113.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
        };
        let issue = commands::IssueCredential { account_id, name: "another".into(), api_key, api_secret, restrictions };
        let CommandResult::Credential(credential) = self.run(issue).await else { panic!() };
        self.run(commands::RevokeCredential { account_id, credential_id: credential.id }).await;
        for (name, is_revoked) in [("ada", true), ("grace", false)] {
            let token = IssueOperatorToken::of(name, OperatorRole::Finance, &Secret::new(name));
            let CommandResult::OperatorToken { id } = self.run(Command::IssueOperatorToken(token)).await else { panic!() };
            if is_revoked {
                self.run(commands::RevokeOperatorToken { id }).await;
            }
        }
        self.operator_users().await;
        let block = "INSERT INTO ip_blocks (ip, started_at, ends_at) VALUES ('192.0.2.1', now(), now() + interval '15 min')";
        sqlx::raw_sql(block).execute(self.pool()).await.unwrap();
        self.run(commands::LiftIpBlock { ip: "192.0.2.1".parse().unwrap() }).await;
        self.run(commands::StartVerification { run_id: 1 }).await;
        self.run(commands::StopVerification { run_id: 1 }).await;
        self.security().await;
        let day = |text: &str| text.parse().unwrap();
        self.run(commands::DeclareEmergencySunset(EmergencySunsetDeclared {
            deprecation_date: Some(day("2026-12-01")),
            sunset_date: day("2027-03-01"),
            reason: "The signing keys leaked.".into(),
        }))
        .await;
        let incident = RecordLogIncident {
            origin: "elsewhere.example.com/log/1".to_owned(),
            next_origin: "elsewhere.example.com/log/2".to_owned(),
            signed: Some(SignedTree { size: 500, root: "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=".to_owned() }),
            kept: None,
            refusal: "the log ends at position 450".to_owned(),
            reason: Secret::new("a disk failed"),
            known: 0,
        };
        let record = || Command::RecordLogIncident(incident.clone());
        self.run(record()).await;
        let again = self.ledger.execute(SHARD, record(), origin()).await;
        assert!(matches!(again, Err(WriteError::Rejected(Rejection::Conflict(_)))), "{again:?}");
    }

    /// Moves a voucher of 10.00 to the second shard and back, and derives what follows.
    pub async fn moves(&self) {
        let (product_id, denomination) = (self.customer.product_id, money("10.00"));
        for (from, to) in [(SHARD, 2), (2, SHARD)] {
            let wanted = Move { from, to, product_id, denomination, vouchers: 1 };
            assert_eq!(super::ledger::move_vouchers(&self.options, &wanted).await, 1);
        }
        for shard in [SHARD, 2] {
            self.project_in(shard).await;
        }
    }

    /// Adds a shard and drains it. It stays empty.
    async fn shards(&self) {
        self.run(commands::AddShard { shard_id: 2 }).await;
        self.run(commands::SetShardDrain { shard_id: 2, draining: true }).await;
    }

    /// Makes an operator's user whose second factor is removed, one whose second factor stays, one of the identity provider,
    /// and one who is removed.
    async fn operator_users(&self) {
        let hash = |text: &str| super::ledger::keyring().fingerprint("operator.email", text);
        let mut ids = vec![];
        for email in ["kim@example.com", "lee@example.com", "max@example.com"] {
            let (role, password_hash) = (OperatorRole::Finance, Secret::new("$argon2id$"));
            let create = CreateOperatorUser { email: Secret::new(email), email_lookup: hash(email), role, password_hash };
            let CommandResult::OperatorUser(user) = self.run(Command::CreateOperatorUser(create)).await else { panic!() };
            ids.push(user.id);
        }
        for id in &ids {
            let secret = two_factor::generate_secret();
            let recovery_codes = vec![hash("code")];
            let enable = EnableOperatorTwoFactor { id: *id, secret, step: 1, recovery_codes, session_id: 0 };
            self.run(Command::EnableOperatorTwoFactor(enable)).await;
        }
        self.run(commands::RemoveOperatorTwoFactor { id: ids[0] }).await;
        let change = ChangeOperatorUser { id: ids[0], role: Some(OperatorRole::Admin), password_hash: None, own: None };
        self.run(Command::ChangeOperatorUser(change)).await;
        self.run(commands::RemoveOperatorUser { id: ids[2] }).await;
        for role in [OperatorRole::Auditor, OperatorRole::Finance] {
            let admit = commands::AdmitOperatorUser { subject_lookup: hash("subject"), role, name: Secret::new("noa") };
            self.run(admit).await;
        }
    }

    /// Makes users with and without a second factor, a rule for owners that is set and lifted, and invitations that are open,
    /// accepted and revoked.
    async fn security(&self) {
        let account_id = self.customer.account_id;
        let user_id = self.user(account_id, "e@example.com").await;
        self.run(commands::ChangeMemberRole { account_id, user_id, role: UserRole::Owner }).await;
        self.enrol(user_id).await;
        for owners_need_two_factor in [true, false] {
            self.run(commands::SetSecurityPolicy { account_id, user_id, owners_need_two_factor }).await;
        }
        self.run(commands::DisableTwoFactor { account_id, user_id }).await;
        self.enrol(user_id).await;
        self.run(commands::SetOwnPassword { account_id, user_id, password_hash: Secret::new("none"), own: None }).await;
        for id in [1, 2, 3] {
            let (email, token, now) = (
                Secret::new(format!("{id}@example.com")),
                Secret::new(format!("token {id}")),
                chrono::Utc::now().trunc_subsecs(3),
            );
            let (role, expires_at) = (UserRole::Viewer, now + chrono::TimeDelta::days(7));
            let invite = InviteUser { account_id, id, role, email, token, invited_by: user_id, created_at: now, expires_at };
            self.run(invite).await;
        }
        let Command::CreateUser(new) = create_user(account_id, "2@example.com") else { panic!() };
        let CommandResult::User(new) = self.run(AcceptInvitation { invitation_id: 2, invited_by: user_id, new }).await else {
            panic!()
        };
        self.run(commands::RevokeInvitation { account_id, id: 3, user_id }).await;
        self.run(commands::RemoveMember { account_id, user_id: new.id }).await;
    }

    async fn enrol(&self, user_id: UserId) {
        let (account_id, secret) = (self.customer.account_id, Secret::new("GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"));
        self.run(EnableTwoFactor {
            account_id,
            user_id,
            secret,
            step: 1,
            recovery_codes: vec![[1; 32], [2; 32]],
            kept_session: 0,
        })
        .await;
    }

    /// Erases one subject of each kind. Of the statement it erases a line, and then the rest.
    async fn erasures(&self, left: &Left) {
        let beneficiary = self.beneficiary().await;
        let user = self.user(self.customer.account_id, "c@example.com").await;
        let (account, _) = self.account("Gone").await;
        self.user(account, "d@example.com").await;
        self.webhook_for(account, URL, &[WebhookEventType::OrderCreated]).await;
        self.suspend(account).await;
        let id = left.statement;
        for subject in [
            Subject::Order(left.delivered),
            Subject::Beneficiary(beneficiary),
            Subject::User(user),
            Subject::Account(account),
            Subject::Statement { id, line: Some(1) },
            Subject::Statement { id, line: None },
        ] {
            let reason = Secret::new("they asked for it");
            let report = eraser::erase(&self.ledger, subject, &reason, &origin(), |_| {}).await.unwrap();
            assert_eq!(report.events.len(), 1, "{subject:?}");
        }
    }

    async fn user(&self, account_id: AccountId, email: &str) -> UserId {
        let CommandResult::User(user) = self.run(create_user(account_id, email)).await else { panic!() };
        user.id
    }

    async fn suspend(&self, account_id: AccountId) {
        self.run(commands::SetAccountStatus { account_id, status: AccountStatus::Suspended }).await;
    }

    /// Switches a webhook off as the service does with one that only fails.
    async fn deactivates(&self, webhook_id: WebhookId) {
        let version =
            sqlx::query_scalar("SELECT version FROM webhooks WHERE id = $1").bind(webhook_id).fetch_one(self.pool()).await;
        let (account_id, failing_since) = (self.customer.account_id, chrono::Utc::now().trunc_subsecs(3));
        self.run(commands::DeactivateWebhook { account_id, webhook_id, version: version.unwrap(), failing_since }).await;
    }

    async fn listens(&self, webhook_id: WebhookId, is_active: bool) {
        let change = WebhookChange { is_active: Some(is_active), ..WebhookChange::default() };
        self.run(commands::UpdateWebhook { account_id: self.customer.account_id, webhook_id, change }).await;
    }

    /// Requests a replay of a webhook's missed events.
    async fn replay(&self, webhook_id: WebhookId, per_second: i32) -> ReplayId {
        let account_id = self.customer.account_id;
        let replay = RequestReplay { account_id, webhook_id, kind: ReplayKind::Missed, from: 1, per_second, only: None };
        let CommandResult::Replay(replay) = self.run(Command::RequestReplay(replay)).await else { panic!() };
        replay.id
    }

    /// Runs the due step of the only running replay.
    async fn advance(&self) {
        self.project().await;
        let replayer = Replayer { ledger: self.ledger.clone(), pool: self.pool().clone() };
        assert_eq!(replayer.once(SHARD).await.unwrap(), 1);
        self.project().await;
    }

    /// Imports a bank statement, with a decision that stands and one that was revoked.
    async fn statement(&self) -> StatementId {
        let day = chrono::Utc::now().date_naive();
        let csv = format!("date,amount,currency,reference\n{day},1.00,EUR,one\n{day},2.00,EUR,two\n");
        let lines = statements::read(csv.as_bytes(), &Source::Csv(&Columns::default())).unwrap();
        let keyring = super::ledger::keyring();
        let stored = statements::store(self.pool(), &keyring, csv.as_bytes(), StatementFormat::Csv, &lines, |_| {});
        let imported = stored.await.unwrap();
        let imported = self.run(Command::ImportStatement(ImportStatement(imported))).await;
        let CommandResult::Statement { statement, is_new: true } = imported else { panic!() };
        let statement_id = statement.id;
        for (line, decision) in [(1, Decision::Funding { transaction_id: TransactionId(1) }), (2, Decision::Ignored)] {
            let reason = Secret::new("because");
            self.run(Command::DecideMatch(DecideMatch { statement_id, line, decision, reason })).await;
        }
        self.run(commands::RevokeMatchDecision { statement_id, line: 2, reason: Secret::new("no") }).await;
        statement_id
    }

    /// Sets the product's image and changes the product.
    async fn image(&self) {
        let (product_id, bytes) = (self.customer.product_id, b"\xff\xd8\xff-an-image");
        let sha256: [u8; 32] = Sha256::digest(bytes).into();
        images::store(self.pool(), product_id, &sha256, bytes).await.unwrap();
        let image = ProductImageSet { sha256: hex::encode(sha256), content_type: ImageType::Jpeg, size: bytes.len() as i32 };
        self.run(commands::SetProductImage { product_id, image }).await;
        let change = ProductChange { terms: Some("None.".into()), ..ProductChange::default() };
        self.run(commands::ChangeProduct { product_id, change }).await;
    }

    /// Makes a paid, a failed, a cancelled and a pending payout to a beneficiary, who is then deleted.
    async fn payouts(&self) {
        let to = self.beneficiary().await;
        let [paid, failed, cancelled, _pending] = [
            self.payout(to, "30.00").await,
            self.payout(to, "40.00").await,
            self.payout(to, "50.00").await,
            self.payout(to, "60.00").await,
        ];
        let reason = Some(Secret::new("the account is closed"));
        for (payout_id, outcome) in [(paid, PayoutOutcome::Paid), (failed, PayoutOutcome::Failed { reason })] {
            self.run(commands::SettlePayout { payout_id, outcome }).await;
        }
        let account_id = self.customer.account_id;
        self.run(commands::CancelPayout { account_id, payout_id: cancelled }).await;
        self.run(commands::DeleteBeneficiary { account_id, beneficiary_id: to }).await;
    }
}
