//! Custom headers of a webhook, as the vault seals them: one JSON text.

use serde::{Deserialize, Serialize};

use crate::secrets::seal::Secret;

/// A custom header. Its value may be a secret.
#[derive(Clone, Debug)]
pub struct WebhookHeader {
    /// Name in lower case.
    pub name: String,
    pub value: Secret,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    name: String,
    value: String,
}

/// Returns the text of headers.
///
/// # Errors
/// An error of the serialization.
pub fn text(headers: &[WebhookHeader]) -> Result<Secret, serde_json::Error> {
    let stored = |header: &WebhookHeader| Stored { name: header.name.clone(), value: header.value.expose().to_owned() };
    serde_json::to_string(&headers.iter().map(stored).collect::<Vec<_>>()).map(Secret::new)
}

/// Returns the headers of a text, or `None` if it is not one of headers.
pub fn open(text: &Secret) -> Option<Vec<WebhookHeader>> {
    let stored: Vec<Stored> = serde_json::from_str(text.expose()).ok()?;
    Some(stored.into_iter().map(|Stored { name, value }| WebhookHeader { name, value: Secret::new(value) }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_survive_as_text() {
        let headers = [WebhookHeader { name: "authorization".into(), value: Secret::new("Bearer \"ä\"") }];
        let opened = open(&text(&headers).unwrap()).unwrap();
        assert_eq!((&*opened[0].name, opened[0].value.expose()), ("authorization", "Bearer \"ä\""));
        assert!(open(&Secret::new("no")).is_none());
        assert!(!format!("{headers:?}").contains("Bearer"));
    }
}
