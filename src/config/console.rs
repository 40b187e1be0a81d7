//! Settings of the operators' console, and of the identity provider that its people sign in with.

use std::path::PathBuf;

use clap::Args;

use super::values::url;
use super::{ConfigError, read_private};
use crate::access::open_id::OpenIdSettings;
use crate::secrets::seal::Secret;

/// Environment variable that holds the client secret itself, as an alternative to a file.
pub const CLIENT_SECRET_VARIABLE: &str = "LEDGER_OIDC_CLIENT_SECRET";

/// Settings of the console.
#[derive(Args, Clone, Debug)]
pub struct ConsoleSettings {
    /// URL at which operators reach the console [default: with --operator-listen http://<operator-listen>, else the public
    /// URL]
    #[arg(long, env = "LEDGER_CONSOLE_URL", value_name = "URL", value_parser = url)]
    pub console_url: Option<String>,

    /// Issuer URL of the OpenID Connect provider with which operators sign in [default: none: with passwords only]
    #[arg(long, env = "LEDGER_OIDC_ISSUER", value_name = "URL", value_parser = issuer)]
    pub oidc_issuer: Option<String>,

    /// Client id at the OpenID Connect provider [default: none]
    #[arg(long, env = "LEDGER_OIDC_CLIENT_ID", value_name = "ID")]
    pub oidc_client_id: Option<String>,

    /// File with the client secret; or set LEDGER_OIDC_CLIENT_SECRET to the secret itself [default: none: a public client]
    #[arg(long, env = "LEDGER_OIDC_CLIENT_SECRET_FILE", value_name = "FILE")]
    pub oidc_client_secret_file: Option<PathBuf>,

    /// Claim of the ID token with the operator's role: admin, finance, or auditor
    #[arg(long, env = "LEDGER_OIDC_ROLE_CLAIM", value_name = "CLAIM", default_value = "rewards_ledger_role")]
    pub oidc_role_claim: String,

    /// PEM file of certificates to trust for the OpenID Connect provider, in addition to the platform's [default: none]
    #[arg(long, env = "LEDGER_OIDC_CA_FILE", value_name = "FILE")]
    pub oidc_ca_file: Option<PathBuf>,
}

impl ConsoleSettings {
    /// Checks the settings against each other.
    ///
    /// # Errors
    /// If only one of issuer and client id is set.
    pub fn check(&self) -> Result<(), ConfigError> {
        match (&self.oidc_issuer, &self.oidc_client_id) {
            (Some(_), None) => Err(ConfigError("--oidc-issuer needs --oidc-client-id".into())),
            (None, Some(_)) => Err(ConfigError("--oidc-client-id needs --oidc-issuer".into())),
            _ => Ok(()),
        }
    }

    /// Returns the settings of the identity provider, if one is configured.
    ///
    /// # Errors
    /// If a file cannot be read, or others can read the client secret.
    pub fn open_id(&self, console_url: &str) -> Result<Option<OpenIdSettings>, ConfigError> {
        let Some((issuer, client_id)) = self.oidc_issuer.clone().zip(self.oidc_client_id.clone()) else { return Ok(None) };
        let secret = match &self.oidc_client_secret_file {
            Some(path) => Some(read_private(path, "--oidc-client-secret-file (LEDGER_OIDC_CLIENT_SECRET_FILE)")?),
            None => std::env::var(CLIENT_SECRET_VARIABLE).ok().map(Secret::new),
        };
        let read = |path: &PathBuf| {
            std::fs::read(path)
                .map_err(|error| ConfigError(format!("--oidc-ca-file (LEDGER_OIDC_CA_FILE): cannot read {path:?}: {error}")))
        };
        Ok(Some(OpenIdSettings {
            issuer,
            client_id,
            client_secret: secret.map(|secret| Secret::new(secret.expose().trim())),
            role_claim: self.oidc_role_claim.clone(),
            ca_pem: self.oidc_ca_file.as_ref().map(read).transpose()?,
            console_url: console_url.to_owned(),
        }))
    }
}

/// Parses an issuer. It stays as it is written, because an ID token names it exactly so.
fn issuer(text: &str) -> Result<String, String> {
    url(text).map(|_| text.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_client_secret_that_others_can_read_is_refused_without_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("oidc.secret");
        std::fs::write(&path, "hidden\n").unwrap();
        let settings = ConsoleSettings {
            console_url: None,
            oidc_issuer: Some("https://id.example".to_owned()),
            oidc_client_id: Some("ledger".to_owned()),
            oidc_client_secret_file: Some(path.clone()),
            oidc_role_claim: "rewards_ledger_role".to_owned(),
            oidc_ca_file: None,
        };
        let read = |mode: u32| {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            settings.open_id("https://console.example").map_err(|error| error.to_string())
        };
        let secret = read(0o600).unwrap().unwrap().client_secret.unwrap();
        assert_eq!(secret.expose(), "hidden");
        let expected = format!(
            "--oidc-client-secret-file (LEDGER_OIDC_CLIENT_SECRET_FILE): {0} is open to other users (mode 0644): chmod 600 {0}",
            path.display()
        );
        assert_eq!(read(0o644).unwrap_err(), expected);
    }
}
