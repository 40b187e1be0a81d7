//! Arguments that ask for a checkpoint with cosignatures of witnesses.

use clap::Args;
use transparency_log::note::VerifierKey;
use transparency_log::quorum::Quorum;

use super::WrongUse;
use crate::transparency::cosignature::witness;

#[derive(Args, Clone, Debug)]
pub struct QuorumArgs {
    /// Use the newest checkpoint that at least this many witnesses cosigned, instead of the newest one
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    quorum: usize,
    /// Verifier key of a witness that counts; may be repeated; required for commands that read a database [default: each
    /// that the service knows]
    #[arg(long = "witness", value_name = "KEY", value_parser = witness, requires = "quorum")]
    witnesses: Vec<VerifierKey>,
}

impl QuorumArgs {
    /// Returns whether any of the arguments was given.
    pub fn is_wanted(&self) -> bool {
        self.quorum > 0 || !self.witnesses.is_empty()
    }

    pub fn quorum(&self) -> Quorum {
        Quorum { count: self.quorum, witnesses: self.witnesses.clone() }
    }

    /// Returns the quorum for commands that read a database. The database has cosignatures of every witness that was ever
    /// configured, and does not know which of them still count. So the arguments must name the witnesses.
    ///
    /// # Errors
    /// If the arguments name fewer witnesses than must have cosigned.
    pub fn of_named(&self) -> Result<Quorum, WrongUse> {
        let quorum = self.quorum();
        if !quorum.can_be_met() {
            return Err(WrongUse(format!("--quorum is {}, but --witness gives {}", quorum.count, quorum.distinct())));
        }
        Ok(quorum)
    }
}

/// Adds the query parameters of a quorum to a path, if there is one.
pub fn asking(path: &str, quorum: &Quorum) -> String {
    if quorum.count == 0 {
        return path.to_owned();
    }
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("quorum", &quorum.count.to_string());
    query.extend_pairs(quorum.witnesses.iter().map(|key| ("witness", key.to_string())));
    format!("{path}?{}", query.finish())
}
