//! Asking for a checkpoint that witnesses have cosigned.

use clap::Args;

use super::WrongUse;
use crate::transparency::cosignature::witness;
use crate::transparency::note::VerifierKey;
use crate::transparency::quorum::Quorum;

#[derive(Args, Clone, Debug)]
pub struct QuorumArgs {
    /// Take the newest checkpoint that so many witnesses have cosigned, instead of the newest
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    quorum: usize,
    /// A witness that counts, by its verifier key; may be repeated [default: each that the service knows; who reads a database names them]
    #[arg(long = "witness", value_name = "KEY", value_parser = witness, requires = "quorum")]
    witnesses: Vec<VerifierKey>,
}

impl QuorumArgs {
    /// Whether any was given.
    pub fn is_wanted(&self) -> bool {
        self.quorum > 0 || !self.witnesses.is_empty()
    }

    pub fn quorum(&self) -> Quorum {
        Quorum { count: self.quorum, witnesses: self.witnesses.clone() }
    }

    /// For what reads a database: that has cosignatures of whoever was once configured, and nobody says which of them
    /// still count.
    ///
    /// # Errors
    /// When fewer witnesses are named than must have cosigned.
    pub fn of_named(&self) -> Result<Quorum, WrongUse> {
        let quorum = self.quorum();
        if !quorum.can_be_met() {
            return Err(WrongUse(format!("--quorum is {}, and --witness names {}", quorum.count, quorum.distinct())));
        }
        Ok(quorum)
    }
}

/// A path that asks for a quorum, where one is wanted.
pub fn asking(path: &str, quorum: &Quorum) -> String {
    if quorum.count == 0 {
        return path.to_owned();
    }
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("quorum", &quorum.count.to_string());
    query.extend_pairs(quorum.witnesses.iter().map(|key| ("witness", key.to_string())));
    format!("{path}?{}", query.finish())
}
