//! Sign-ins with one click. Only the demo and a new sandbox on an embedded database have them.

use subtle::ConstantTimeEq;

use crate::secrets::seal::{Secret, random_secret};

/// The users whom the printed links sign in, as long as the program runs.
#[derive(Clone, Debug)]
pub struct OneClick {
    token: Secret,
    /// User of the account.
    pub client: Login,
    /// Operator of the service.
    pub operator: Login,
}

/// Email address and password of a user.
#[derive(Clone, Debug)]
pub struct Login {
    pub email: String,
    pub password: Secret,
}

impl OneClick {
    /// Makes up a token, and passwords for the users of a site.
    pub fn new(site: &str) -> OneClick {
        let login = |name: &str| Login { email: format!("{name}@{site}.example"), password: random_secret() };
        OneClick { token: random_secret(), client: login("owner"), operator: login("operator") }
    }

    /// Returns the paths that sign in the client's user and the operator.
    pub fn paths(&self) -> [String; 2] {
        ["portal", "console"].map(|pages| format!("/{pages}/demo?token={}", self.token.expose()))
    }

    /// Returns whether a link has the token of this run.
    pub fn admits(&self, token: &str) -> bool {
        self.token.expose().as_bytes().ct_eq(token.as_bytes()).into()
    }
}
