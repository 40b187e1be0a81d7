//! Strength of passwords and tokens, by zxcvbn's estimate. It knows common passwords, names and words, and the ways in which
//! people vary them.

use zxcvbn::{Score, zxcvbn};

/// Minimum strength of a token, as log10 of the guesses: 63 random bits. The estimate does not go much higher.
const TOKEN_GUESSES_LOG10: f64 = 19.0;

/// Returns whether a password takes fewer than 10^6 guesses. Such a password is common, close to a common one, or made of
/// data in `about`, such as the email. Under the rate limit of failed logins, 10^6 guesses take years.
pub fn is_weak_password(password: &str, about: &[&str]) -> bool {
    zxcvbn(password, about).score() < Score::Two
}

/// Returns whether a token chosen by a person is easier to guess than 20 random characters.
pub fn is_weak_token(token: &str) -> bool {
    zxcvbn(token, &[]).guesses_log10() < TOKEN_GUESSES_LOG10
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::seal::random_secret;

    #[test]
    fn common_passwords_and_their_variants_are_weak() {
        for weak in [
            "password",
            "12345678",
            "qwertyuiop",
            "iloveyou",
            "Passw0rd!",
            "P@ssword1",
            "drowssap",
            "letmein123",
            "trustno1!",
            "aaaaaaaa",
            "abcdefgh",
            "hunter2hunter2",
            "",
            "jo@example.com",
        ] {
            assert!(is_weak_password(weak, &["jo@example.com", "jo", "example.com", "example"]), "{weak}");
        }
        for strong in ["correct horse battery staple", "a quite different one", "kd93jf0q", "x7$Kq29!", "漢字かな交じり文です"]
        {
            assert!(!is_weak_password(strong, &["jo@example.com", "jo", "example.com", "example"]), "{strong}");
        }
        // Length alone does not help: the estimate reads only the beginning of a long password.
        assert!(is_weak_password(&"a".repeat(128), &[]));
    }

    #[test]
    fn a_token_that_is_not_random_is_weak() {
        for weak in [
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "0123456789abcdef",
            "0123456789abcdef0123456789abcdef",
            "changemechangemechangeme",
            "abcdefghijklmnopqrstuvwxyz123456",
            "operator-token",
            "super-secret-token",
            "benchmark-operator-token",
        ] {
            assert!(is_weak_token(weak), "{weak}");
        }
        for _ in 0..32 {
            let token = random_secret();
            assert!(!is_weak_token(token.expose()));
            assert!(!is_weak_token(&token.expose()[..32]), "128 random bits");
        }
    }
}
