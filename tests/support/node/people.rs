//! People and programs that use a node: operators, accounts with their API keys, and users.

use rewards_ledger::access::Role;
use rewards_ledger::access::sessions::Login;
use rewards_ledger::ledger::commands::{Command, IssueOperatorToken};
use rewards_ledger::secrets::seal::{Secret, random_secret};
use serde_json::{Value, json};

use super::{Node, TestResponse, product};
use crate::support::ledger::run;

/// An API key and its secret.
#[derive(Clone, Debug)]
pub struct Client {
    pub account_id: i64,
    pub credential_id: i64,
    pub key: String,
    pub secret: String,
}

/// A user of an account, with the session of a login.
#[derive(Clone, Debug)]
pub struct User {
    pub id: i64,
    pub account_id: i64,
    pub email: String,
    pub access_token: String,
    pub refresh_token: String,
    /// Cookie header value, as a browser sends it.
    pub cookie: String,
}

/// An operator's user, with a session of the console.
#[derive(Clone, Debug)]
pub struct ConsoleUser {
    pub id: i64,
    pub email: String,
    /// Cookie header value, as a browser sends it.
    pub cookie: String,
}

/// Password of every user.
pub const PASSWORD: &str = "correct horse battery staple";

/// An account that can order. It has a credential, a wallet in EUR with 1,000.00, a product with the face values
/// 10.00 and 25.00, and three vouchers of 10.00.
#[derive(Debug)]
pub struct Setup {
    pub client: Client,
    pub wallet_id: i64,
    pub product_id: i64,
}

impl Node {
    /// Creates an operator with this role and returns its token.
    pub async fn token(&self, role: Role) -> Secret {
        let token = random_secret();
        run(&self.ledger, Command::IssueOperatorToken(IssueOperatorToken::of(role.as_str(), role, &token))).await;
        token
    }

    /// Creates an operator's user with this role, who has signed in.
    pub async fn console_user(&self, role: Role) -> ConsoleUser {
        let email = format!("{}@example.com", random_secret().expose());
        let user = json!({"email": email, "password": PASSWORD, "role": role.as_str()});
        let created = self.operator("POST", "/operators", user).await.data(201);
        let signed_in = self.console_login(&email, PASSWORD, None).await;
        signed_in.data(200);
        ConsoleUser { id: created["id"].as_i64().unwrap(), email, cookie: signed_in.cookie() }
    }

    /// Signs in to the console.
    pub async fn console_login(&self, email: &str, password: &str, otp: Option<&str>) -> TestResponse {
        self.anyone("POST", "/admin/auth/login", json!({"email": email, "password": password, "otp": otp})).await
    }

    pub async fn account(&self, name: &str) -> Client {
        let account = self.operator("POST", "/accounts", json!({"name": name})).await.data(201);
        self.credential(account["id"].as_i64().unwrap()).await
    }

    pub async fn credential(&self, account_id: i64) -> Client {
        self.restricted(account_id, json!({})).await
    }

    /// Issues an API key with these restrictions.
    pub async fn restricted(&self, account_id: i64, mut restrictions: Value) -> Client {
        restrictions["name"] = json!("main");
        let issued = self.operator("POST", &format!("/accounts/{account_id}/credentials"), restrictions).await.data(201);
        let text = |name: &str| issued[name].as_str().unwrap().to_owned();
        Client { account_id, credential_id: issued["id"].as_i64().unwrap(), key: text("api_key"), secret: text("api_secret") }
    }

    /// Creates a user of an account, with a session that was started without the login API.
    pub async fn user(&self, account_id: i64, role: &str) -> User {
        let email = format!("{}@example.com", random_secret().expose());
        let user = json!({"email": email, "password": PASSWORD, "role": role});
        let created = self.operator("POST", &format!("/accounts/{account_id}/users"), user).await.data(201);
        self.session(created["id"].as_i64().unwrap(), account_id, &email).await
    }

    /// Starts another session of the user.
    pub async fn again(&self, user: &User) -> User {
        self.session(user.id, user.account_id, &user.email).await
    }

    async fn session(&self, id: i64, account_id: i64, email: &str) -> User {
        let login = Login::new(email, Secret::new(PASSWORD), [127, 0, 0, 1].into());
        let (granted, cookie) = self.sessions.log_in(login).await.unwrap();
        User {
            id,
            account_id,
            email: email.to_owned(),
            access_token: granted.access_token.expose().to_owned(),
            refresh_token: granted.refresh_token.expose().to_owned(),
            cookie: format!("__Host-portal={}", cookie.expose()),
        }
    }

    /// Opens a wallet with 1,000 EUR. Returns its id.
    pub async fn wallet(&self, account_id: i64) -> i64 {
        let path = format!("/accounts/{account_id}/wallets");
        let wallet = self.operator("POST", &path, json!({"currency": "EUR"})).await.data(201);
        let wallet_id = wallet["id"].as_i64().unwrap();
        let funding = json!({"amount": "1000.00", "reference": format!("opening of {wallet_id}")});
        self.operator("POST", &format!("/wallets/{wallet_id}/fund"), funding).await.data(201);
        wallet_id
    }

    pub async fn setup(&self) -> Setup {
        let client = self.account("Acme").await;
        let wallet_id = self.wallet(client.account_id).await;
        let product = self.operator("POST", "/products", product("Acme Card")).await.data(201);
        let product_id = product["id"].as_i64().unwrap();
        let vouchers: Vec<Value> = (1..=3).map(|n| json!({"card_number": format!("card-{n}"), "pin": "pin-1"})).collect();
        let stock = json!({"denomination": "10.00", "vouchers": vouchers});
        self.operator("POST", &format!("/products/{product_id}/vouchers"), stock).await.data(200);
        Setup { client, wallet_id, product_id }
    }
}
