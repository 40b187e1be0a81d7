//! How hard a password or a token is to guess, by zxcvbn's estimate: it knows the common passwords, names and words, and what
//! people do to them.

use zxcvbn::{Score, zxcvbn};

/// Guesses that a token must be worth: 63 random bits. The estimate does not count much further.
const TOKEN_GUESSES_LOG10: f64 = 19.0;

/// Whether a password is on the common lists, close to one that is, or made of what the account itself tells, such as its
/// email: less than 10^6 guesses. At the rate that logins of one user are let through, as many take years.
pub fn is_weak_password(password: &str, about: &[&str]) -> bool {
    zxcvbn(password, about).score() < Score::Two
}

/// Whether a token that a person chose is easier to guess than a random one of 20 characters.
pub fn is_weak_token(token: &str) -> bool {
    zxcvbn(token, &[]).guesses_log10() < TOKEN_GUESSES_LOG10
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::seal::random_secret;

    #[test]
    fn common_passwords_and_what_is_close_to_them_are_weak() {
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
        // Of any length: only its beginning is looked at.
        assert!(is_weak_password(&"a".repeat(128), &[]));
    }

    #[test]
    fn a_token_is_random_or_long() {
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
