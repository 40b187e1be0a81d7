//! Suppliers in the settings: a file that describes each one's interface. Secrets stand in key files of their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::IpNet;
use ledger_events::{Currency, Money};
use serde::Deserialize;
use url::Url;
use webhook_client::address::{AddressFilter, check_url};

use crate::secrets::key_file::read_private;
use crate::secrets::seal::Secret;

/// Largest number of suppliers in a file.
const MAX_SUPPLIERS: usize = 100;
const MAX_NAME: usize = 40;
/// Longest pause before a purchase is asked about again. After a fault the pause is 2 seconds, doubled with each attempt.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Longest lifetime of a key, in hours: a year.
const MAX_KEY_HOURS: u64 = 8_760;

/// Suppliers, as their file describes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    supplier: Vec<Described>,
}

/// A supplier, as the file describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Described {
    pub(super) name: String,
    order_url: String,
    status_url: String,
    token_url: String,
    client_id: String,
    pub(super) client_secret_file: PathBuf,
    #[serde(default)]
    scopes: Vec<String>,
    #[serde(default = "sixty")]
    calls_per_minute: u32,
    #[serde(default = "twenty")]
    timeout_seconds: u64,
    #[serde(default = "thirty")]
    poll_seconds: u64,
    #[serde(default = "twenty_four")]
    key_hours: u64,
    #[serde(default)]
    refusal_statuses: Vec<u16>,
    #[serde(default)]
    daily_budget: BTreeMap<String, String>,
    ca_file: Option<PathBuf>,
    #[serde(default)]
    allowed_networks: Vec<String>,
    #[serde(default)]
    fields: Fields,
    pub(super) notice_secret_file: Option<PathBuf>,
    pub(super) notice: Option<NoticeFields>,
}

fn sixty() -> u32 {
    60
}

fn twenty() -> u64 {
    20
}

fn thirty() -> u64 {
    30
}

fn twenty_four() -> u64 {
    24
}

/// Names of the fields in requests, JSON pointers (RFC 6901) into answers, and the values of a status.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fields {
    /// Fields of the order: the supplier's product, the face value, the currency, the quantity, and the key.
    pub sku: String,
    pub denomination: String,
    pub currency: String,
    pub quantity: String,
    pub key: String,
    /// Places in an answer.
    pub status: String,
    pub reference: String,
    pub reason: String,
    pub unit_cost: String,
    pub cost_currency: String,
    pub vouchers: String,
    /// Places in each voucher of an answer.
    pub card_number: String,
    pub pin: String,
    pub claim_url: String,
    pub expires_on: String,
    /// Values of the status.
    pub fulfilled: Vec<String>,
    pub pending: Vec<String>,
    pub refused: Vec<String>,
    /// Reasons of a refusal with which the same request may succeed later.
    pub temporary_reasons: Vec<String>,
}

impl Fields {
    /// Returns the places in answers and in their vouchers.
    fn places(&self) -> [&str; 10] {
        [
            &self.status,
            &self.reference,
            &self.reason,
            &self.unit_cost,
            &self.cost_currency,
            &self.vouchers,
            &self.card_number,
            &self.pin,
            &self.claim_url,
            &self.expires_on,
        ]
    }
}

impl Default for Fields {
    fn default() -> Fields {
        let text = str::to_owned;
        Fields {
            sku: text("sku"),
            denomination: text("denomination"),
            currency: text("currency"),
            quantity: text("quantity"),
            key: text("idempotency_key"),
            status: text("/status"),
            reference: text("/id"),
            reason: text("/reason"),
            unit_cost: text("/unit_cost"),
            cost_currency: text("/currency"),
            vouchers: text("/vouchers"),
            card_number: text("/card_number"),
            pin: text("/pin"),
            claim_url: text("/claim_url"),
            expires_on: text("/expires_on"),
            fulfilled: vec![text("FULFILLED")],
            pending: vec![text("PENDING")],
            refused: vec![text("REFUSED")],
            temporary_reasons: vec![text("OUT_OF_STOCK")],
        }
    }
}

/// Names of the headers of a notice, and the place of the key in it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NoticeFields {
    pub(super) signature_header: String,
    pub(super) timestamp_header: String,
    /// JSON pointer (RFC 6901) to the idempotency key.
    pub(super) key: String,
}

impl Default for NoticeFields {
    fn default() -> NoticeFields {
        let text = str::to_owned;
        NoticeFields {
            signature_header: text("X-Signature"),
            timestamp_header: text("X-Timestamp"),
            key: text("/idempotency_key"),
        }
    }
}

/// A supplier with an interface over HTTP.
#[derive(Clone, Debug)]
pub struct SupplierSettings {
    pub name: String,
    pub order_url: Url,
    /// URL of the state of a purchase. `{key}` stands for the idempotency key.
    pub status_url: String,
    pub token_url: Url,
    pub client_id: String,
    pub client_secret: Secret,
    pub scopes: Vec<String>,
    /// Shortest time between two calls of all nodes. A call is a question, an order, or one after the other.
    pub interval: Duration,
    pub timeout: Duration,
    pub poll_every: Duration,
    /// Time for which the supplier sells once under a key. An older order is not sent again.
    pub key_lifetime: Duration,
    /// Statuses of HTTP, beside 2xx, with which the supplier refuses an order.
    pub refusal_statuses: Vec<u16>,
    /// Most money that may be spent on a day (UTC), by currency. A currency without a budget buys nothing.
    pub daily_budget: BTreeMap<Currency, Money>,
    pub ca_pem: Option<Vec<u8>>,
    pub allowed_networks: Vec<IpNet>,
    pub fields: Fields,
}

impl SupplierSettings {
    /// Returns the currencies with a budget, in the order of the budgets.
    pub fn funded(&self) -> Vec<Currency> {
        self.daily_budget.keys().copied().collect()
    }
}

/// A fault in the file of suppliers. It names the supplier and the field, and shows no secret.
#[derive(Debug, thiserror::Error)]
#[error("--suppliers-file (LEDGER_SUPPLIERS_FILE): {0}")]
pub struct SettingsError(pub(super) String);

/// Reads the suppliers from their file, with the secrets for calls. Relative names of secret files are relative to it.
///
/// # Errors
/// If the file or one that it names cannot be read, or if a field is invalid.
pub fn read(path: &Path) -> Result<Vec<SupplierSettings>, SettingsError> {
    described(path)?.into_iter().map(|described| checked(described, directory(path))).collect()
}

/// Reads the file of suppliers, without the files that it names.
///
/// # Errors
/// If the file cannot be read, has an unknown field, or has a name twice.
pub(super) fn described(path: &Path) -> Result<Vec<Described>, SettingsError> {
    let text =
        std::fs::read_to_string(path).map_err(|error| SettingsError(format!("cannot read {}: {error}", path.display())))?;
    let file: File = toml::from_str(&text).map_err(|error| SettingsError(format!("{}: {}", path.display(), error.message())))?;
    if file.supplier.len() > MAX_SUPPLIERS {
        return Err(SettingsError(format!("{}: more than {MAX_SUPPLIERS} suppliers", path.display())));
    }
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    for (index, Described { name, .. }) in file.supplier.iter().enumerate() {
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_plain) {
            return Err(SettingsError(format!("a supplier's name has 1 to {MAX_NAME} of a-z, 0-9, - and _; got {name:?}")));
        }
        if file.supplier[..index].iter().any(|other| other.name == *name) {
            return Err(SettingsError(format!("supplier {name}: the name is used twice")));
        }
    }
    Ok(file.supplier)
}

/// Returns the directory to which names in the file are relative.
pub(super) fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// Creates the fault of a supplier's field.
pub(super) fn fault(supplier: &str, field: &str, problem: &str) -> SettingsError {
    SettingsError(format!("supplier {supplier}: {field} {problem}"))
}

/// Reads a file that a field names.
pub(super) fn file(supplier: &str, field: &str, path: &Path) -> Result<Vec<u8>, SettingsError> {
    std::fs::read(path).map_err(|error| fault(supplier, field, &format!("cannot be read: {error}")))
}

/// Reads a secret from the key file that a field names.
///
/// # Errors
/// If the file cannot be read, or others can read or replace it.
pub(super) fn secret(supplier: &str, field: &str, path: &Path) -> Result<Secret, SettingsError> {
    let text = read_private(path, &format!("supplier {supplier}: {field}")).map_err(|error| SettingsError(error.to_string()))?;
    Ok(Secret::new(text.expose().trim()))
}

fn checked(described: Described, directory: &Path) -> Result<SupplierSettings, SettingsError> {
    let name = described.name;
    let fault = |field: &str, problem: &str| fault(&name, field, problem);
    let network =
        |text: &String| text.parse().map_err(|_| fault("allowed_networks", "must have networks such as \"10.1.0.0/16\""));
    let allowed_networks: Vec<IpNet> = described.allowed_networks.iter().map(network).collect::<Result<_, SettingsError>>()?;
    let filter = AddressFilter { allowed: allowed_networks.clone() };
    let url = |field: &str, text: &str| checked_url(text, &filter).map_err(|problem| fault(field, &problem));
    if !described.status_url.contains("{key}") {
        return Err(fault("status_url", "must contain {key}"));
    }
    url("status_url", &described.status_url.replace("{key}", "0"))?;
    let client_secret = secret(&name, "client_secret_file", &directory.join(&described.client_secret_file))?;
    let ca_pem = described.ca_file.as_deref().map(|path| file(&name, "ca_file", &directory.join(path))).transpose()?;
    // A file without a certificate would be read as no authority at all.
    if ca_pem.as_ref().is_some_and(|pem| !String::from_utf8_lossy(pem).contains("-----BEGIN CERTIFICATE-----")) {
        return Err(fault("ca_file", "has no certificate"));
    }
    if described.calls_per_minute == 0 || described.timeout_seconds == 0 || described.timeout_seconds > 25 {
        return Err(fault("calls_per_minute and timeout_seconds", "must be at least 1, and the timeout at most 25"));
    }
    if !(1..=LONGEST_PAUSE.as_secs()).contains(&described.poll_seconds) || !(1..=MAX_KEY_HOURS).contains(&described.key_hours) {
        return Err(fault("poll_seconds and key_hours", "must be at least 1, and at most 300 and 8760"));
    }
    if described.refusal_statuses.iter().any(|status| !(400..500).contains(status) || [401, 429].contains(status)) {
        return Err(fault("refusal_statuses", "must be from 400 to 499, without 401 and 429"));
    }
    if let Some(place) = described.fields.places().into_iter().find(|place| !place.starts_with('/')) {
        return Err(fault("fields", &format!("must have JSON pointers that begin with /, unlike {place:?}")));
    }
    let budget = |(currency, amount): (&String, &String)| {
        let currency: Currency = currency.parse().map_err(|problem: &str| fault("daily_budget", problem))?;
        let amount: Money = amount.parse().map_err(|_| fault("daily_budget", "must have amounts such as \"1000.00\""))?;
        Ok((currency, amount))
    };
    Ok(SupplierSettings {
        order_url: url("order_url", &described.order_url)?,
        token_url: url("token_url", &described.token_url)?,
        daily_budget: described.daily_budget.iter().map(budget).collect::<Result<_, SettingsError>>()?,
        ca_pem,
        client_secret,
        status_url: described.status_url,
        client_id: described.client_id,
        scopes: described.scopes,
        interval: Duration::from_secs(60) / described.calls_per_minute,
        timeout: Duration::from_secs(described.timeout_seconds),
        poll_every: Duration::from_secs(described.poll_seconds),
        key_lifetime: Duration::from_secs(described.key_hours * 3_600),
        refusal_statuses: described.refusal_statuses,
        allowed_networks,
        fields: described.fields,
        name,
    })
}

/// Checks a URL as the filter of outgoing requests does: HTTPS, and no literal address that is not public. Names are checked
/// when they are resolved.
fn checked_url(text: &str, filter: &AddressFilter) -> Result<Url, String> {
    let url = check_url(text).map_err(|refused| refused.to_string())?;
    let literal = match url.host() {
        Some(url::Host::Ipv4(ip)) => Some(ip.into()),
        Some(url::Host::Ipv6(ip)) => Some(ip.into()),
        _ => None,
    };
    match literal.map(|ip| filter.check(ip)) {
        Some(Err(refused)) => Err(refused.to_string()),
        _ => Ok(url),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_that_others_can_read_is_refused_without_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acme.secret");
        std::fs::write(&path, "hidden\n").unwrap();
        let read = |mode: u32| {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            secret("acme", "client_secret_file", &path).map_err(|error| error.to_string())
        };
        for mode in [0o600, 0o400] {
            assert_eq!(read(mode).unwrap().expose(), "hidden", "{mode:o}");
        }
        for mode in [0o644, 0o604, 0o602] {
            let expected = format!(
                "--suppliers-file (LEDGER_SUPPLIERS_FILE): supplier acme: client_secret_file: {0} is open to other users \
                 (mode {mode:04o}): chmod 600 {0}",
                path.display()
            );
            assert_eq!(read(mode).unwrap_err(), expected);
        }
        std::fs::remove_file(&path).unwrap();
        let missing = secret("acme", "notice_secret_file", &path).unwrap_err().to_string();
        assert!(missing.contains("supplier acme: notice_secret_file: ") && missing.contains("cannot be read"), "{missing}");
    }
}
