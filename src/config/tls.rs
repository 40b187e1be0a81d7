//! Settings of TLS.

use std::path::PathBuf;

use clap::Args;

use super::ConfigError;

/// Certificate and key with which the node terminates TLS itself.
#[derive(Args, Clone, Debug)]
pub struct TlsSettings {
    /// PEM file with the certificate chain of the listeners, which then speak TLS; read again when it changes [default: none:
    /// the listeners speak plain HTTP]
    #[arg(long, env = "LEDGER_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// PEM file with the certificate's private key, which only the service may read; read again when it changes [default:
    /// none; required with --tls-cert]
    #[arg(long, env = "LEDGER_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
}

impl TlsSettings {
    /// Returns the files of the certificate and of its key, if the listeners speak TLS.
    ///
    /// # Errors
    /// If only one of the two is set.
    pub fn files(&self) -> Result<Option<(PathBuf, PathBuf)>, ConfigError> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Ok(Some((cert.clone(), key.clone()))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(ConfigError("--tls-cert (LEDGER_TLS_CERT) needs --tls-key (LEDGER_TLS_KEY)".into())),
            (None, Some(_)) => Err(ConfigError("--tls-key (LEDGER_TLS_KEY) needs --tls-cert (LEDGER_TLS_CERT)".into())),
        }
    }
}
