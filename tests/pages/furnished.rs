//! A node with something of every kind, in most of its states. Each text that a person can store tries to break out of the
//! pages that show it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::Utc;
use ledger_events::{OrderId, ProductId};
use rewards_ledger::access::{Role, blocks};
use rewards_ledger::heartbeat::Heartbeat;
use rewards_ledger::mail::Mailer;
use serde_json::{Value, json};
use webhook_client::receiver::ReceiverResponse;

use crate::api::routes::Things;
use crate::support::ledger;
use crate::support::mail::SmtpServer;
use crate::support::node::{Client, ConsoleUser, Node, PASSWORD, User, product};
use crate::support::shop::{self, DEADLINE, receiver};

/// A picture of one pixel.
pub const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// End of every hostile text: it ends an attribute, and opens an element with a script.
pub const ATTACK: &str = "\"'><img data-injected src=x onerror=window.injected=1>";

/// Texts that both kinds of pages show, by the field in which they are stored. No page shows the others, such as the values of
/// a webhook's headers.
pub const OF_BOTH: [&str; 16] = [
    "email",
    "url",
    "category",
    "product",
    "brand",
    "description",
    "terms",
    "key",
    "webhook",
    "reference",
    "cancellation",
    "metadata",
    "payout",
    "failure",
    "response",
    "funding",
];
pub const OF_PORTAL: [&str; 4] = ["beneficiary", "program", "invitation", "bank"];
pub const OF_CONSOLE: [&str; 19] = [
    "account",
    "note",
    "rejection",
    "token",
    "line",
    "text",
    "incoming",
    "operator",
    "sku",
    "invoice",
    "VCH 4",
    "VCH 5",
    "void",
    "transfer",
    "funding note",
    "adjustment",
    "BANKACCOUNT",
    "decision",
    "revocation",
];

/// Returns a text for a field that tries to run a script.
pub fn hostile(field: &str) -> String {
    format!("{field}{ATTACK}")
}

/// End of a hostile text where no white space is allowed.
const SPACELESS: &str = "\"'><img/data-injected/src=x/onerror=window.injected=1>";

/// Returns an email address that tries to run a script.
fn hostile_email(name: &str) -> String {
    format!("{name}{SPACELESS}@example.com")
}

/// The node, its people, and the ids of its things.
pub struct Furnished {
    pub node: Node,
    pub client: Client,
    /// A viewer, an operator and an owner, in this order.
    pub users: Vec<User>,
    /// An auditor, one of finance and an admin, in this order.
    pub operators: Vec<ConsoleUser>,
    /// Ids by the segment that they follow in a path.
    pub things: Things,
}

impl Furnished {
    pub async fn start() -> Furnished {
        let node = Node::supervised_sandbox("EUR=2000").await;
        let account = made(&node, "/accounts", json!({"name": hostile("account")})).await;
        let client = node.credential(account).await;
        let (mut users, mut operators) = (vec![], vec![]);
        for role in ["viewer", "operator", "owner"] {
            users.push(node.user(account, role).await);
        }
        for role in [Role::Auditor, Role::Finance, Role::Admin] {
            operators.push(node.console_user(role).await);
        }
        let mut things = Things::from([("accounts", account)]);
        for kind in ["team", "users"] {
            let user = json!({"email": hostile_email(&format!("{kind}-email")), "password": PASSWORD, "role": "viewer"});
            things.insert(kind, made(&node, &format!("/accounts/{account}/users"), user).await);
        }
        let operator = json!({"email": hostile_email("operator"), "password": PASSWORD, "role": "auditor"});
        things.insert("operators", made(&node, "/operators", operator).await);
        let mut furnished = Furnished { node, client, users, operators, things };
        furnished.catalogue().await;
        furnished.webhooks_and_orders().await;
        furnished.payouts().await;
        furnished.money().await;
        furnished.statement().await;
        furnished.access().await;
        furnished.audit_run().await;
        furnished.mails().await;
        furnished.node.project().await;
        furnished.node.publish().await;
        furnished
    }

    pub fn owner(&self) -> &User {
        &self.users[2]
    }

    pub fn admin(&self) -> &ConsoleUser {
        &self.operators[2]
    }

    /// Returns the id of a kind of thing.
    pub fn id(&self, kind: &str) -> i64 {
        self.things[kind]
    }

    /// A run of `verify` that found a difference.
    async fn audit_run(&mut self) {
        let run = "INSERT INTO audit_runs (kind, host, ended_at, outcome, found, summary, differences)
            VALUES ('verify', $1, now(), 'differences', 1, $2, ARRAY[$3]) RETURNING id";
        let run = sqlx::query_scalar(run).bind(hostile("host")).bind(hostile("summary")).bind(hostile("difference"));
        let id = run.fetch_one(self.node.ledger.pool()).await.unwrap();
        self.things.insert("audit-runs", id);
    }

    /// Makes a change as the account's API key.
    async fn by_client(&self, method: &str, path: &str, body: Value) -> Value {
        let answer = self.node.client(&self.client, method, path, body).await;
        assert!((200..300).contains(&answer.status), "{path}: {}", answer.text);
        let mut body = answer.json();
        if body["data"].is_null() { body } else { body["data"].take() }
    }

    /// A product with an image, stock, voided vouchers, a threshold and a discount.
    async fn catalogue(&mut self) {
        let (node, account) = (&self.node, self.id("accounts"));
        let category = made(node, "/categories", json!({"name": hostile("category")})).await;
        let mut new = product(&hostile("product"));
        for field in ["brand", "description", "terms"] {
            new[field] = hostile(field).into();
        }
        new["category_id"] = category.into();
        let id = made(node, "/products", new.clone()).await;
        let image = node.by_operator("PUT", &format!("/products/{id}/image")).header("Content-Type", "image/png");
        node.send(image.body(STANDARD.decode(PNG).unwrap())).await.data(200);
        let voucher = |number: i32| {
            json!({"card_number": hostile(&format!("card {number}")), "pin": hostile("pin"),
                "voucher_reference_number": hostile(&format!("VCH {number}")), "claim_url": format!("https://claim.example/?{SPACELESS}")})
        };
        let stock = json!({"denomination": "10.00", "cost": "9.25", "supplier_reference": hostile("invoice"), "vouchers": (1..=5).map(voucher).collect::<Vec<_>>()});
        node.operator("POST", &format!("/products/{id}/vouchers"), stock).await.data(200);
        // Its successor, to which a voucher moves.
        new["name"] = hostile("successor").into();
        let successor = made(node, "/products", new).await;
        let transfer = json!({"vouchers": [hostile("VCH 5")], "to_product_id": successor, "reason": hostile("transfer")});
        node.operator("POST", &format!("/products/{id}/vouchers/transfer"), transfer).await.data(200);
        let expiry = json!({"vouchers": [hostile("VCH 4")], "expires_on": "2027-12-31"});
        node.operator("POST", &format!("/products/{id}/vouchers/expiry"), expiry).await.data(200);
        let void = json!({"vouchers": [hostile("VCH 4")], "reason": hostile("void")});
        node.operator("POST", &format!("/products/{id}/vouchers/void"), void).await.data(200);
        let threshold = json!({"denomination": "10.00", "threshold": 50});
        node.operator("PUT", &format!("/products/{id}/stock-threshold"), threshold).await.data(200);
        let discount = json!({"product_id": id, "discount": "2.50"});
        node.operator("PUT", &format!("/accounts/{account}/discounts"), discount).await.data(200);
        let wallet = made(node, &format!("/accounts/{account}/wallets"), json!({"currency": "EUR"})).await;
        let funding = json!({"amount": "1000.00", "reference": hostile("funding"), "note": hostile("funding note")});
        node.operator("POST", &format!("/wallets/{wallet}/fund"), funding).await.data(201);
        self.things.extend([("products", id), ("successor", successor), ("wallets", wallet), ("categories", category)]);
    }

    /// Orders that are delivered, cancelled and delayed, deliveries that fail and deliveries that can be retried, and a
    /// running replay.
    async fn webhooks_and_orders(&mut self) {
        let (receiver, _arrived) = receiver(|_| ReceiverResponse::StatusWithBody(500, hostile("response"))).await;
        let events = json!(["order.created", "order.delivered", "order.partially_delivered", "order.cancelled"]);
        let headers = json!([{"name": "X-Shop", "value": hostile("header")}]);
        let hook = json!({"name": hostile("webhook"), "url": receiver.url(), "events": events, "headers": headers});
        let hook = self.by_client("POST", "/webhooks", hook).await["id"].as_i64().unwrap();
        let off = json!({"name": "Off", "url": receiver.url(), "events": events});
        let off = self.by_client("POST", "/webhooks", off).await["id"].as_i64().unwrap();
        let mut orders = vec![];
        for (number, quantity) in [(1, 1), (2, 1), (3, 5), (4, 2)] {
            let order = json!({"product_id": self.id("products"), "denomination": 10, "quantity": quantity,
                "client_reference": format!("{number} {}", hostile("reference")), "metadata": {"note": hostile("metadata")}});
            orders.push(self.by_client("POST", "/orders", order).await);
        }
        let id = |order: &Value| order["id"].as_i64().unwrap();
        let cancel = json!({"reason": hostile("cancellation")});
        self.by_client("POST", &format!("/orders/{}/cancel", id(&orders[1])), cancel).await;
        for order in [&orders[0], &orders[2]] {
            self.node.fulfil(id(order)).await;
        }
        self.by_client("GET", &format!("/orders/{}/vouchers", id(&orders[0])), Value::Null).await;
        self.node.project().await;
        shop::worker(&self.node.options, &receiver, DEADLINE).once().await.unwrap();
        for is_active in [false, true] {
            self.by_client("PUT", &format!("/webhooks/{off}"), json!({"is_active": is_active})).await;
            self.node.project().await;
        }
        let unreachable =
            json!({"name": "Far", "url": format!("https://shop.example/url{SPACELESS}"), "events": ["order.created"]});
        self.by_client("POST", "/webhooks", unreachable).await;
        let failed = format!("/webhooks/deliveries?status=failed&webhook_url_id={off}");
        let failed = self.by_client("GET", &failed, Value::Null).await["deliveries"][0]["id"].as_i64().unwrap();
        let replay = json!({"kind": "deliveries", "from_position": 1});
        let replay = self.node.operator("POST", &format!("/webhooks/{hook}/replays"), replay).await;
        let replay = replay.json()["data"]["replay"]["id"].as_i64().unwrap();
        self.things.extend([("webhooks", hook), ("off", off), ("deliveries", failed), ("replays", replay)]);
        self.purchase(id(&orders[2])).await;
        let transaction = orders[2]["transaction_id"].as_i64().unwrap();
        self.things.extend([("orders", id(&orders[2])), ("transactions", transaction)]);
        self.things.extend([("delivered", id(&orders[0])), ("waiting", id(&orders[3]))]);
    }

    /// A purchase of what an order lacks, about which the supplier has said nothing yet.
    async fn purchase(&mut self, order: i64) {
        let product = ProductId(self.id("products"));
        let purchase = ledger::buy(&self.node.ledger, OrderId(order), product, &hostile("sku")).await;
        self.things.insert("purchases", purchase.0);
    }

    /// A beneficiary, with payouts that are pending, paid and failed.
    async fn payouts(&mut self) {
        let ada = json!({"name": hostile("beneficiary"), "type": "BANK", "country": "DE", "currency": "EUR",
            "account_number": "DE89370400440532013000", "bank_code": "bank\"'><img data-injected src=x>"});
        let ada = self.by_client("POST", "/beneficiaries", ada).await["id"].as_i64().unwrap();
        let mut payouts = vec![];
        for number in 1..=3 {
            let payout = json!({"beneficiary_id": ada, "wallet_id": self.id("wallets"), "amount": "30.00",
                "client_reference": format!("{number} {}", hostile("payout"))});
            payouts.push(self.by_client("POST", "/payouts", payout).await["id"].as_i64().unwrap());
        }
        let failed = json!({"status": "FAILED", "failure_reason": hostile("failure")});
        for (payout, outcome) in [(payouts[0], failed), (payouts[1], json!({"status": "PAID"}))] {
            self.node.operator("PUT", &format!("/payouts/{payout}"), outcome).await.data(200);
        }
        self.things.extend([("beneficiaries", ada), ("payouts", payouts[2])]);
    }

    /// An adjustment, and approvals that wait and that are rejected.
    async fn money(&mut self) {
        let (node, wallet) = (&self.node, self.id("wallets"));
        let adjust = json!({"type": "CREDIT", "amount": "1.50", "reason": hostile("adjustment")});
        node.operator("POST", &format!("/wallets/{wallet}/adjust"), adjust).await.data(201);
        let mut approvals = vec![];
        for number in 1..=2 {
            let fund =
                json!({"amount": "2500.00", "reference": format!("{number} {}", hostile("incoming")), "note": hostile("note")});
            approvals
                .push(node.operator("POST", &format!("/wallets/{wallet}/fund"), fund).await.data(202)["id"].as_i64().unwrap());
        }
        let (path, reason) = (format!("/admin/v1/approvals/{}/reject", approvals[0]), json!({"reason": hostile("rejection")}));
        node.portal(&self.operators[1].cookie, node.url(), "POST", &path, reason).await.data(200);
        self.things.insert("approvals", approvals[1]);
    }

    /// A bank statement with a line whose decision was revoked and made again, and a line without a decision.
    async fn statement(&mut self) {
        let quoted = |text: &str| format!("\"{}\"", hostile(text).replace('"', "\"\""));
        let (today, line, text) = (Utc::now().date_naive(), quoted("line"), quoted("text"));
        let csv =
            format!("date,amount,currency,reference,text\n{today},5.00,EUR,{line},{text}\n{today},1000.00,EUR,{line},{text}\n");
        // Bank accounts are stored in capitals and without spaces.
        let account = [("account", format!("BANKACCOUNT{SPACELESS}"))];
        let import = self.node.by_operator("POST", "/reconciliation/statements").query(&account);
        let id = self.node.send(import.header("Content-Type", "text/csv").body(csv)).await.data(201)["id"].as_i64().unwrap();
        let decision = json!({"decision": "IGNORED", "reason": hostile("decision")});
        let revocation = json!({"reason": hostile("revocation")});
        for (change, body) in [("decide", decision.clone()), ("revoke", revocation), ("decide", decision)] {
            let path = format!("/reconciliation/statements/{id}/lines/1/{change}");
            self.node.operator("POST", &path, body).await.data(200);
        }
        self.things.extend([("bank-statements", id), ("lines", 2)]);
    }

    /// An API key, a token of a program, a session of another program, a blocked address, an invitation and an erasure.
    async fn access(&mut self) {
        let (node, account) = (&self.node, self.id("accounts"));
        let keys = format!("/accounts/{account}/credentials");
        let (key, other_key) = (json!({"name": hostile("key")}), json!({"name": "another key"}));
        let (key, other_key) = (made(node, &keys, key).await, made(node, &keys, other_key).await);
        let token = made(node, "/operator-tokens", json!({"name": hostile("token"), "role": "auditor"})).await;
        let login = json!({"email": self.owner().email, "password": PASSWORD}).to_string();
        let login = node.request("POST", "/auth/login").header("User-Agent", hostile("program")).body(login);
        node.send(login.header("Content-Type", "application/json")).await.data(200);
        let sessions = node.bearer(&self.owner().access_token, "GET", "/client/api/sessions", Value::Null).await.data(200);
        let sessions = sessions["sessions"].as_array().unwrap().clone();
        let other = sessions.iter().find(|session| session["is_current"] == false).expect("another session");
        let session = other["id"].as_i64().unwrap();
        blocks::start(node.ledger.pool(), [203, 0, 113, 7].into()).await.unwrap();
        let invited = json!({"email": hostile_email("invitation"), "role": "viewer"});
        let path = "/client/api/users/invitations";
        let invited = node.bearer(&self.owner().access_token, "POST", path, invited).await.data(201)["id"].as_i64().unwrap();
        let gone = node.user(account, "viewer").await;
        node.erase_user(gone.id).await;
        let things = [("api-keys", key), ("credentials", other_key), ("operator-tokens", token), ("sessions", session)];
        self.things.extend(things.into_iter().chain([("invitations", invited)]));
    }

    /// Sends the mails that are due, and keeps them for the outbox.
    async fn mails(&self) {
        let notice = format!("/client/api/wallets/{}/notice", self.id("wallets"));
        self.node.bearer(&self.owner().access_token, "PUT", &notice, json!({"below": "5000.00"})).await.data(200);
        self.node.project().await;
        let server = SmtpServer::start().await;
        let mailer = Mailer { keeps_sent: true, ..server.mailer(&self.node) };
        while mailer.send_due(&Heartbeat::default()).await.unwrap() > 0 {}
    }
}

/// Creates something as the operator of the configuration. Returns its id.
async fn made(node: &Node, path: &str, body: Value) -> i64 {
    node.operator("POST", path, body).await.data(201)["id"].as_i64().unwrap()
}
