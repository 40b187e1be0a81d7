//! What auditors have to find sound, and what they have to find.

use ledger_events::account::DiscountRule;
use ledger_events::catalogue::{ImageType, ProductChange, ProductImageSet};
use ledger_events::reconciliation::{Decision, StatementFormat};
use ledger_events::replay::ReplayKind;
use ledger_events::user::UserRole;
use ledger_events::webhook::WebhookEventType;
use rewards_ledger::access::seal::Private;
use rewards_ledger::delivery::replay::Replayer;
use rewards_ledger::ledger::command::{
    ChangeUser, CreateUser, DecideMatch, ImportStatement, PayoutOutcome, RequestReplay, WebhookChange,
};
use rewards_ledger::ledger::{Answer, Command, images};
use rewards_ledger::reconciliation::lines::Columns;
use rewards_ledger::reconciliation::statements::{self, Source};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, PgConnection};

use super::ledger::money;
use super::shop::{SHARD, Shop};

const URL: &str = "https://example.com/hook";

/// A user who cannot log in.
fn create_user(account_id: i64, email: &str) -> Command {
    Command::CreateUser(CreateUser {
        account_id,
        role: UserRole::Operator,
        email: Private::new(email),
        email_lookup: super::ledger::keyring().fingerprint("user.email", email),
        password_hash: Private::new("none"),
    })
}

impl Shop {
    /// A bit of everything: delivered, partly delivered, delayed, cancelled; webhooks that come,
    /// change and go; a suspended account; a discount; an image.
    pub async fn history(&self) {
        let (account, order) = (self.customer.account_id, |denomination, quantity| self.customer.order(denomination, quantity));
        self.run(Command::AddCategory { name: "Games".into(), parent_id: None }).await;
        let issue = Command::IssueCredential {
            account_id: self.customer.account_id,
            name: "key".into(),
            api_key: Private::new("abcdefgh-rest"),
            api_secret: Private::new("secret"),
        };
        let Answer::Credential(credential) = self.run(issue).await else { panic!() };
        let (account_id, credential_id) = (credential.account_id, credential.id);
        let new_secret = Private::new("signing");
        let is_required = true;
        self.run(Command::SetHmacRequired { account_id, credential_id, is_required, new_secret: new_secret.clone() }).await;
        self.run(Command::RotateSigningSecret { account_id, credential_id, new_secret }).await;
        let Answer::User(user) = self.run(create_user(account_id, "a@example.com")).await else { panic!() };
        self.run(create_user(account_id, "b@example.com")).await;
        let change = ChangeUser {
            account_id,
            user_id: user.id,
            role: Some(UserRole::Owner),
            password_hash: Some(Private::new("$argon2id$")),
        };
        self.run(Command::ChangeUser(change)).await;
        self.run(Command::EndSessions { account_id, user_id: user.id }).await;
        self.run(Command::RemoveUser { account_id, user_id: user.id }).await;
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
        self.run(Command::SetDiscount { account_id: self.customer.account_id, rule }).await;
        let partial = self.place(order("10.00", 5)).await;
        self.fulfil(partial).await;
        let change = WebhookChange { is_active: Some(false), ..WebhookChange::default() };
        self.run(Command::UpdateWebhook { account_id: self.customer.account_id, webhook_id: some, change }).await;
        let delayed = self.place(order("25.00", 1)).await;
        self.fulfil(delayed).await;
        for order_id in [partial, delayed] {
            self.run(Command::CancelOrder {
                account_id: Some(self.customer.account_id),
                order_id,
                reason: Some(Private::new("why")),
            })
            .await;
        }
        self.run(Command::RevealVouchers { account_id: self.customer.account_id, order_id: delivered }).await;
        self.project().await;
        self.run(Command::DeleteWebhook { account_id: self.customer.account_id, webhook_id: some }).await;
        let Answer::Account(other) = self.run(Command::CreateAccount { name: "Other".into() }).await else { panic!() };
        let status = ledger_events::account::AccountStatus::Suspended;
        self.run(Command::SetAccountStatus { account_id: other.id, status }).await;
        self.payouts().await;
        for _ in 0..5 {
            self.place(order("25.00", 3)).await;
        }
        self.image().await;
        self.statement().await;
        self.project().await;
        self.run(Command::TestWebhook { account_id: account, webhook_id: all }).await;
        // One that is told of what was before it, one step of several.
        let late = self.webhook_for(account, URL, &[WebhookEventType::OrderCreated]).await.0;
        let replay = RequestReplay { account_id: account, webhook_id: late, kind: ReplayKind::Missed, from: 1, per_second: 2 };
        self.run(Command::RequestReplay(replay)).await;
        self.project().await;
        let replayer = Replayer { ledger: self.ledger.clone(), pool: self.pool().clone() };
        assert_eq!(replayer.once(SHARD).await.unwrap(), 1);
        self.project().await;
    }

    /// A bank's statement, with a decision that stands and one that was revoked.
    async fn statement(&self) {
        let day = chrono::Utc::now().date_naive();
        let csv = format!("date,amount,currency,reference\n{day},1.00,EUR,one\n{day},2.00,EUR,two\n");
        let lines = statements::read(csv.as_bytes(), &Source::Csv(&Columns::default())).unwrap();
        let keyring = super::ledger::keyring();
        let imported = statements::store(self.pool(), &keyring, csv.as_bytes(), StatementFormat::Csv, &lines).await.unwrap();
        let imported = self.run(Command::ImportStatement(ImportStatement(imported))).await;
        let Answer::Statement { statement, is_new: true } = imported else { panic!() };
        let statement_id = statement.id;
        for (line, decision) in [(1, Decision::Funding { transaction_id: 1 }), (2, Decision::Ignored)] {
            let reason = Private::new("because");
            self.run(Command::DecideMatch(DecideMatch { statement_id, line, decision, reason })).await;
        }
        self.run(Command::RevokeMatchDecision { statement_id, line: 2, reason: Private::new("no") }).await;
    }

    /// Gives the product an image, and changes the product.
    async fn image(&self) {
        let (product_id, bytes) = (self.customer.product_id, b"\xff\xd8\xff-an-image");
        let sha256: [u8; 32] = Sha256::digest(bytes).into();
        images::store(self.pool(), product_id, &sha256, bytes).await.unwrap();
        let image = ProductImageSet { sha256: hex::encode(sha256), content_type: ImageType::Jpeg, size: bytes.len() as i32 };
        self.run(Command::SetProductImage { product_id, image }).await;
        let change = ProductChange { terms: Some("None.".into()), ..ProductChange::default() };
        self.run(Command::ChangeProduct { product_id, change }).await;
    }

    /// A paid, a failed, a cancelled and a pending payout, to a beneficiary that is deleted then.
    async fn payouts(&self) {
        let to = self.beneficiary().await;
        let [paid, failed, cancelled, _pending] = [
            self.payout(to, "30.00").await,
            self.payout(to, "40.00").await,
            self.payout(to, "50.00").await,
            self.payout(to, "60.00").await,
        ];
        let reason = Some(Private::new("the account is closed"));
        for (payout_id, outcome) in [(paid, PayoutOutcome::Paid), (failed, PayoutOutcome::Failed { reason })] {
            self.run(Command::SettlePayout { payout_id, outcome }).await;
        }
        let account_id = self.customer.account_id;
        self.run(Command::CancelPayout { account_id, payout_id: cancelled }).await;
        self.run(Command::DeleteBeneficiary { account_id, beneficiary_id: to }).await;
    }

    /// What a superuser can do to the tables, past the triggers.
    pub async fn tamper(&self, sql: &str) {
        tamper(&mut self.admin().await, sql).await;
    }
}

/// The same over a superuser's connection.
pub async fn tamper(admin: &mut PgConnection, sql: &str) {
    let script = format!(
        "BEGIN; ALTER TABLE events DISABLE TRIGGER ALL; {sql}; ALTER TABLE events ENABLE ALWAYS TRIGGER events_append_only; ALTER TABLE events ENABLE ALWAYS TRIGGER events_no_truncate; COMMIT"
    );
    sqlx::raw_sql(AssertSqlSafe(script)).execute(admin).await.unwrap();
}

/// SQL of a superuser: so many more events of an order, as if its codes had been read so often.
pub fn revealed(order: i64, count: i64) -> String {
    format!(
        "INSERT INTO events (shard_id, position, event_id, stream_type, stream_id, version, type, schema_version, data, metadata, recorded_at)
         SELECT 1, h.position + n, gen_random_uuid(), 'order', {order}, last.version + n, 'VouchersRevealed', 1, '{{\"units\":1}}', placed.metadata, h.recorded_at
         FROM log_head h, generate_series(1, {count}) AS n,
            (SELECT max(version) AS version FROM events WHERE stream_type = 'order' AND stream_id = {order}) AS last,
            (SELECT metadata FROM events WHERE stream_type = 'order' AND stream_id = {order} AND version = 1) AS placed
         WHERE h.shard_id = 1;
         UPDATE log_head SET position = position + {count} WHERE shard_id = 1"
    )
}
