//! No page runs a statement per row.

mod addresses;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use chrono::{TimeDelta, Utc};
use ledger_events::account::DiscountRule;
use ledger_events::beneficiary::BeneficiaryKind;
use ledger_events::catalogue::{Denominations, ProductDetails};
use ledger_events::operator::OperatorRole;
use ledger_events::replay::ReplayKind;
use ledger_events::restrictions::Restrictions;
use ledger_events::user::UserRole;
use ledger_events::wallet::Direction;
use ledger_events::webhook::WebhookEventType;
use ledger_events::{UserId, WebhookId};
use rewards_ledger::access::Role;
use rewards_ledger::heartbeat::Heartbeat;
use rewards_ledger::ledger::commands::{
    AddBeneficiary, AdjustWallet, CreateOperatorUser, CreateUser, InviteUser, IssueCredential, IssueOperatorToken, MoneyChange,
    RegisterWebhook, RequestPayout, RequestReplay, Supervise,
};
use rewards_ledger::ledger::{Command, CommandResult, commands};
use rewards_ledger::mail::Mailer;
use rewards_ledger::secrets::seal::Secret;
use serde_json::json;
use webhook_client::receiver::{Receiver, ReceiverResponse};

use crate::api::routes::{Things, path};
use crate::support::ledger::{self, Customer, keyring, money, run};
use crate::support::mail::SmtpServer;
use crate::support::node::{ConsoleUser, Node, User};
use crate::support::proxy::Proxy;
use crate::support::shop::{DEADLINE, receiver, worker};
use crate::support::tampering::tamper;
use addresses::{addresses, has_list};

/// Numbers of rows of every list. With two, the page of the audit would already be full.
const FEW: usize = 1;
const MANY: usize = 40;
/// Number of webhooks with many rows. An account has at most 20.
const MANY_WEBHOOKS: usize = 18;
/// Largest number of statements that a page runs more with many rows. Orders and deliveries are counted in blocks, and a longer
/// list has a block more. A statement per row would be at least the number of webhooks.
const MORE: usize = 4;
/// Fewest rows that a page has more with many rows, so that a statement per row would be found.
const MORE_ROWS: usize = 2 * MORE;
/// Largest number of times that each page is read. Other tasks of the node may run statements during a reading.
const READS: usize = 8;
/// Number of times that the smallest number of statements of a page is counted before its reading ends. Two equal counts may both
/// contain statements of another task.
const SMALLEST_COUNTS: usize = 3;
/// Connections over which pages read.
const READERS: [&str; 2] = ["rewards-ledger", "rewards-ledger access"];

/// Returns the number of rows of tables, items of lists and cards on a page.
fn rows(page: &str) -> usize {
    ["<tr>", "<li", "<section"].iter().map(|row| page.matches(row).count()).sum()
}

struct World {
    node: Node,
    proxy: Proxy,
    receiver: Receiver,
    mails: SmtpServer,
    customer: Customer,
    owner: User,
    admin: ConsoleUser,
}

impl World {
    async fn open() -> World {
        let (node, proxy) = Node::sandbox_behind_a_proxy().await;
        let customer = Customer::with(&node.ledger, "1000000.00").await;
        let owner = node.user(customer.account_id.0, "owner").await;
        let admin = node.console_user(Role::Admin).await;
        // Every other webhook answers with a failure, the first one among them.
        let respond = |path: &str| if path.ends_with(['0', '2', '4', '6', '8']) { 500 } else { 200 };
        let (receiver, _arrived) = receiver(move |received| ReceiverResponse::Status(respond(&received.path))).await;
        World { node, proxy, receiver, mails: SmtpServer::start().await, customer, owner, admin }
    }

    async fn run(&self, command: impl Into<Command>) -> CommandResult {
        run(&self.node.ledger, command).await
    }

    /// Adds a row with each of these numbers to every list. Returns the ids of the last ones, by the segment that they follow
    /// in a path.
    async fn grow(&self, rows: Range<usize>) -> Things {
        let mut things = Things::from([
            ("accounts", self.customer.account_id.0),
            ("wallets", self.customer.wallet_id.0),
            ("ordered", self.customer.product_id.0),
            ("team", self.owner.id),
            ("users", self.owner.id),
            ("operators", self.admin.id),
            ("lines", 1),
            ("events", 1),
            ("{shard}", 5),
        ]);
        let last = rows.end - 1;
        let lines: String = rows.clone().map(|row| format!("2026-01-31,{row}.50,EUR,wire {row}\n")).collect();
        for row in rows {
            self.people(row).await;
            things.extend(self.catalogue(row).await);
            things.extend(self.webhooks(row).await);
            things.extend(self.movements(row).await);
            if row < last {
                self.import(&format!("2026-01-30,{row}.50,EUR,x\n")).await;
            }
            // Each time the log has another checkpoint.
            self.node.publish().await;
        }
        things.insert("bank-statements", self.import(&lines).await);
        things.insert("products", self.stock(last + 1).await);
        let run = "INSERT INTO audit_runs (kind, host, ended_at, outcome, found, differences)
            SELECT 'verify', 'here', now(), 'differences', $1, array_fill('a difference'::text, ARRAY[$1::int])
            FROM generate_series(1, $1) RETURNING id";
        let runs: Vec<i64> = sqlx::query_scalar(run).bind(last as i64 + 1).fetch_all(self.node.ledger.pool()).await.unwrap();
        things.insert("audit-runs", runs[0]);
        self.node.project().await;
        self.node.publish().await;
        // The payments of all orders but the last name another order, so each is a difference of the reconciliation.
        let misdirected = r#"UPDATE events SET data = regexp_replace(data::text, '"order_id":[0-9]+', '"order_id":1000000')::json
            WHERE type = 'WalletDebited' AND position < (SELECT max(position) FROM events WHERE type = 'OrderPlaced')"#;
        tamper(&mut self.node.admin().await, misdirected).await;
        things.insert("deliveries", self.attempts(last + 1).await);
        // The invitations.
        let mailer = Mailer { keeps_sent: true, ..self.mails.mailer(&self.node) };
        while mailer.send_due(&Heartbeat::default()).await.unwrap() > 0 {}
        things.insert("head", self.node.head().await);
        things
    }

    /// Attempts every delivery that is due. Returns a delivery with this number of attempts.
    async fn attempts(&self, count: usize) -> i64 {
        let worker = worker(&self.node.options, &self.receiver, DEADLINE);
        while worker.once().await.unwrap().claimed > 0 {}
        let latest = "SELECT delivery_id FROM delivery_attempts ORDER BY delivery_id DESC LIMIT 1";
        let delivery: i64 = sqlx::query_scalar(latest).fetch_one(self.node.ledger.pool()).await.unwrap();
        let further =
            "INSERT INTO delivery_attempts (shard_id, delivery_id, webhook_id, request_id, attempt, claimed_at, started_at,
                finished_at, response_status, response_time_ms, error, url_hash, secret_hash)
            SELECT shard_id, delivery_id, webhook_id, gen_random_uuid(), attempt, claimed_at, started_at, finished_at, response_status,
                response_time_ms, error, url_hash, secret_hash
            FROM (SELECT * FROM delivery_attempts WHERE delivery_id = $1 LIMIT 1) AS first, generate_series(2, $2)";
        sqlx::query(further).bind(delivery).bind(count as i64).execute(&mut self.node.admin().await).await.unwrap();
        delivery
    }

    async fn import(&self, lines: &str) -> i64 {
        let import = self.node.by_operator("POST", "/reconciliation/statements").header("Content-Type", "text/csv");
        let import = import.body(format!("date,amount,currency,reference\n{lines}"));
        self.node.send(import).await.data(201)["id"].as_i64().unwrap()
    }

    /// A product with vouchers of this number of face values. Returns its id.
    async fn stock(&self, values: usize) -> i64 {
        let (min, max) = (money("1.00"), money("100.00"));
        let details = ProductDetails { denominations: Denominations::Range { min, max }, ..ledger::details("Stocked") };
        let CommandResult::Product(product) = self.run(commands::AddProduct { details }).await else { panic!() };
        let path = format!("/products/{}/vouchers", product.id);
        for value in 1..=values {
            let voucher = json!({"card_number": format!("card {value}"), "pin": null, "voucher_reference_number": format!("{values}-{value}")});
            let stock = json!({"denomination": format!("{value}.00"), "vouchers": [voucher]});
            self.node.operator("POST", &path, stock).await.data(200);
        }
        product.id.0
    }

    /// An account, a user, an invitation, an operator, a token, a session of the admin, a blocked address, and an erasure.
    async fn people(&self, row: usize) {
        let account_id = self.customer.account_id;
        self.run(commands::CreateAccount { name: format!("Acme {row}") }).await;
        let hash = |purpose: &str, text: &str| keyring().fingerprint(purpose, text);
        let email = format!("{row}@example.com");
        let (password_hash, role) = (Secret::new("none"), UserRole::Viewer);
        for (number, email) in [(0, email.clone()), (1, format!("gone-{email}"))] {
            let (email_lookup, password_hash) = (hash("user.email", &email), password_hash.clone());
            let user = CreateUser { account_id, role, email: Secret::new(email), email_lookup, password_hash };
            let CommandResult::User(user) = self.run(Command::CreateUser(user)).await else { panic!() };
            if number == 1 {
                self.node.erase_user(user.id.0).await;
            }
        }
        let (id, now) = (1_000 + row as i64, Utc::now());
        let (email_of_guest, token) = (Secret::new(format!("guest-{email}")), Secret::new(format!("token {row}")));
        let (invited_by, expires_at) = (UserId(self.owner.id), now + TimeDelta::days(7));
        self.run(InviteUser { account_id, id, role, email: email_of_guest, token, invited_by, created_at: now, expires_at })
            .await;
        let (email_lookup, role) = (hash("operator.email", &email), OperatorRole::Auditor);
        let operator = CreateOperatorUser { email: Secret::new(email), email_lookup, role, password_hash };
        self.run(Command::CreateOperatorUser(operator)).await;
        let token = IssueOperatorToken::of(&format!("program {row}"), role, &Secret::new(format!("secret {row}")));
        self.run(Command::IssueOperatorToken(token)).await;
        let session = "INSERT INTO vault.console_sessions (id, operator_id, secret_hash, expires_at, mac)
            VALUES (nextval('vault.console_session_ids'), $1, '', now() + interval '8 h', '')";
        sqlx::query(session).bind(self.admin.id).execute(&mut self.node.admin().await).await.unwrap();
        let block = "INSERT INTO ip_blocks (ip, started_at, ends_at) VALUES ($1::inet, now(), now() + interval '15 min')";
        sqlx::query(block).bind(format!("192.0.2.{row}")).execute(&mut self.node.admin().await).await.unwrap();
    }

    /// A category, a product with a discount, and an API key.
    async fn catalogue(&self, row: usize) -> Things {
        let account_id = self.customer.account_id;
        self.run(commands::AddCategory { name: format!("Category {row}"), parent_id: None }).await;
        let product = ledger::product(&self.node.ledger, &format!("Card {row}")).await;
        let rule = DiscountRule { product_id: Some(product), category_id: None, discount: money("2.50").try_into().unwrap() };
        self.run(commands::SetDiscount { account_id, rule }).await;
        let issue = IssueCredential {
            account_id,
            name: format!("key {row}"),
            api_key: Secret::new(format!("{row:08}-rest")),
            api_secret: Secret::new("secret"),
            restrictions: Restrictions::default(),
        };
        let CommandResult::Credential(key) = self.run(issue).await else { panic!() };
        Things::from([("products", product.0), ("api-keys", key.id.0), ("credentials", key.id.0)])
    }

    /// A webhook of the receiver, and a replay of the first one that is cancelled.
    async fn webhooks(&self, row: usize) -> Things {
        let account_id = self.customer.account_id;
        if row < MANY_WEBHOOKS {
            let register = RegisterWebhook {
                account_id,
                name: Secret::new(format!("hook {row}")),
                url: Secret::new(format!("{}/{row}", self.receiver.url())),
                events: vec![WebhookEventType::OrderCreated],
                headers: None,
                credential_id: None,
                new_secret: Secret::new("signing"),
            };
            self.run(Command::RegisterWebhook(register)).await;
        }
        let first = "SELECT min(id) FROM webhooks";
        let webhook_id = WebhookId(sqlx::query_scalar(first).fetch_one(self.node.ledger.pool()).await.unwrap());
        let replay = RequestReplay { account_id, webhook_id, kind: ReplayKind::Missed, from: 1, per_second: 1, only: None };
        let CommandResult::Replay(replay) = self.run(Command::RequestReplay(replay)).await else { panic!() };
        self.run(commands::CancelReplay { replay_id: replay.id }).await;
        Things::from([("webhooks", webhook_id.0)])
    }

    /// A wallet, a session, an order with a purchase, a payout to a beneficiary, and an approval that waits.
    async fn movements(&self, row: usize) -> Things {
        let Customer { account_id, wallet_id, .. } = self.customer;
        let letter = |number: usize| char::from(b'A' + u8::try_from(number % 26).unwrap());
        let currency = format!("X{}{}", letter(row / 26), letter(row)).parse().unwrap();
        self.run(commands::OpenWallet { account_id, currency }).await;
        self.node.again(&self.owner).await;
        let CommandResult::Order(view) = self.run(Command::PlaceOrder(self.customer.order("10.00", 1))).await else { panic!() };
        self.node.fulfil(view.order.id.0).await;
        let purchase = ledger::buy(&self.node.ledger, view.order.id, self.customer.product_id, "SKU").await;
        let add = AddBeneficiary {
            account_id,
            kind: BeneficiaryKind::Bank,
            country: "DE".to_owned(),
            currency: "EUR".parse().unwrap(),
            profile: Secret::new(format!(r#"{{"name":"Ada {row}","account_last4":"3000","bank_code":null}}"#)),
            account_number: Secret::new("DE89370400440532013000"),
        };
        let CommandResult::Beneficiary(ada) = self.run(Command::AddBeneficiary(add)).await else { panic!() };
        let beneficiary_id = ada.beneficiary.id;
        let pay = RequestPayout { account_id, beneficiary_id, wallet_id, amount: money("1.00"), client_reference: None };
        let CommandResult::Payout(payout) = self.run(Command::RequestPayout(pay)).await else { panic!() };
        let (direction, amount) = (Direction::Credit, money("2.00"));
        let change = MoneyChange::Adjust(AdjustWallet { wallet_id, direction, amount, reason: Secret::new("r") });
        let supervise = Supervise { change, limits: Arc::new("1.00".parse().unwrap()) };
        let CommandResult::Approval(approval) = self.run(supervise).await else { panic!() };
        Things::from([
            ("orders", view.order.id.0),
            ("transactions", view.order.placed.transaction_id.0),
            ("beneficiaries", beneficiary_id.0),
            ("payouts", payout.payout.id.0),
            ("approvals", approval.approval.id.0),
            ("purchases", purchase.0),
        ])
    }

    /// Returns the number of statements that each page runs, and the number of its rows, by address with names in braces.
    async fn statements(&self, things: &Things) -> BTreeMap<String, (usize, usize)> {
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let mut found = BTreeMap::new();
        for named in addresses() {
            let (route, query) = named.split_once('?').unwrap_or((&*named, ""));
            let query =
                things.iter().fold(query.to_owned(), |query, (kind, id)| query.replace(&format!("{{{kind}}}"), &id.to_string()));
            let address = format!("{}{}?{query}", self.node.url(), path(route, things));
            let cookie = if route.starts_with("/portal") { &self.owner.cookie } else { &self.admin.cookie };
            let (mut least, mut times, mut shown) = (usize::MAX, 0, 0);
            for _ in 0..READS {
                let before = self.proxy.statements(&READERS);
                let answer = http.get(&address).header("Cookie", cookie).send().await.unwrap();
                let status = answer.status().as_u16();
                assert!(matches!(status, 200 | 303), "{address}: {status} {}", answer.text().await.unwrap());
                shown = rows(&answer.text().await.unwrap());
                let count = self.proxy.statements(&READERS) - before;
                if count < least {
                    (least, times) = (count, 0);
                }
                times += usize::from(count == least);
                if times == SMALLEST_COUNTS {
                    break;
                }
            }
            found.insert(named, (least, shown));
        }
        found
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_runs_no_statement_per_row() {
    let world = World::open().await;
    let few = world.statements(&world.grow(0..FEW).await).await;
    let many = world.statements(&world.grow(FEW..MANY).await).await;
    assert!(few["/portal/orders"].0 > 0 && few["/console/orders"].0 > 0, "nothing was counted: {few:?}");
    // A page whose list does not grow would not show a statement per row.
    let lists = few.iter().filter(|(page, _)| has_list(page));
    let short = lists.filter(|(page, (_, rows))| many[*page].1 < rows + MORE_ROWS);
    let short: Vec<_> = short.map(|(page, (_, rows))| (page, rows, many[page].1)).collect();
    assert!(short.is_empty(), "page, few rows, and not many more: {short:#?}");
    let growing = few.iter().filter(|(page, (count, _))| many[*page].0 > count + MORE);
    let growing: Vec<_> = growing.map(|(page, (count, _))| (page, count, many[page].0)).collect();
    assert!(growing.is_empty(), "page, statements with few rows, and with many: {growing:#?}");
}
