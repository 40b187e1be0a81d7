//! The secret before a rotation, for the time that its owner has chosen. Deliveries are signed with it, too, until then.

use serde::{Deserialize, Serialize};

use crate::secrets::seal::Secret;

/// Longest time for which the secret before a rotation stays valid, in hours.
pub const MAX_HOURS: i64 = 168;

/// A replaced secret, and the time up to which it signs deliveries.
#[derive(Clone, Debug)]
pub struct PreviousSecret {
    /// Unix seconds.
    pub until: i64,
    pub secret: Secret,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    until: i64,
    secret: String,
}

impl PreviousSecret {
    /// Returns the secret of a text, or `None` if it is not one of these texts.
    pub fn open(text: &Secret) -> Option<PreviousSecret> {
        let Stored { until, secret } = serde_json::from_str(text.expose()).ok()?;
        Some(PreviousSecret { until, secret: Secret::new(secret) })
    }

    /// Returns the text as which the vault seals it.
    ///
    /// # Errors
    /// An error of the serialization.
    pub fn text(&self) -> Result<Secret, serde_json::Error> {
        serde_json::to_string(&Stored { until: self.until, secret: self.secret.expose().to_owned() }).map(Secret::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_secret_and_its_end() {
        let text = PreviousSecret { until: 1_800_000_000, secret: Secret::new("old") }.text().unwrap();
        assert_eq!(text.expose(), r#"{"until":1800000000,"secret":"old"}"#);
        let opened = PreviousSecret::open(&text).unwrap();
        assert_eq!((opened.until, opened.secret.expose()), (1_800_000_000, "old"));
        assert!(PreviousSecret::open(&Secret::new("old")).is_none());
    }
}
