//! Certificate of the receiver: a private certificate authority and a leaf certificate for this machine.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use chrono::Datelike;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::ReceiverError;

/// Names and addresses of this machine.
const LOCAL_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
const VALID_YEARS: i32 = 10;

const CA_FILE: &str = "receiver-ca.pem";
const CHAIN_FILE: &str = "receiver-certificate.pem";
const KEY_FILE: &str = "receiver-key.pem";

/// A certificate, its key and the certificate authority that signed it, as PEM. The authority's key is discarded, so
/// trusting the authority means trusting this certificate only.
#[derive(Clone)]
pub struct Certificate {
    ca_pem: String,
    chain_pem: String,
    key_pem: String,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificate")
    }
}

impl Certificate {
    /// Generates a certificate for `localhost`, `127.0.0.1` and `::1`, valid for ten years.
    pub fn generate() -> Result<Certificate, ReceiverError> {
        let year = chrono::Utc::now().year();
        Self::generate_for(&LOCAL_NAMES, year - 1, year + VALID_YEARS)
    }

    /// Generates a certificate for other names, valid from 1 January of `first_year` until 1 January of `last_year`.
    pub fn generate_for(names: &[&str], first_year: i32, last_year: i32) -> Result<Certificate, ReceiverError> {
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::default();
        ca.distinguished_name = rcgen::DistinguishedName::new();
        ca.distinguished_name.push(DnType::CommonName, "Webhook receiver on this machine");
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        ca.not_before = date_time_ymd(first_year, 1, 1);
        ca.not_after = date_time_ymd(last_year, 1, 1);
        let ca_certificate = ca.self_signed(&ca_key)?;
        let issuer = Issuer::new(ca, ca_key);

        let key = KeyPair::generate()?;
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut leaf = CertificateParams::new(names)?;
        leaf.use_authority_key_identifier_extension = true;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.not_before = date_time_ymd(first_year, 1, 1);
        leaf.not_after = date_time_ymd(last_year, 1, 1);
        let leaf_certificate = leaf.signed_by(&key, &issuer)?;

        Ok(Certificate { ca_pem: ca_certificate.pem(), chain_pem: leaf_certificate.pem(), key_pem: key.serialize_pem() })
    }

    /// Loads the certificate from a directory, or generates one and saves it there. So its authority has to be trusted only
    /// once.
    pub fn load_or_generate(directory: &Path) -> Result<Certificate, ReceiverError> {
        if directory.join(KEY_FILE).exists() {
            return Self::load(directory);
        }
        let certificate = Self::generate()?;
        certificate.save(directory)?;
        Ok(certificate)
    }

    /// Loads the files that [`Certificate::save`] wrote.
    pub fn load(directory: &Path) -> Result<Certificate, ReceiverError> {
        let read = |name| std::fs::read_to_string(directory.join(name));
        let certificate = Certificate { ca_pem: read(CA_FILE)?, chain_pem: read(CHAIN_FILE)?, key_pem: read(KEY_FILE)? };
        certificate.server_config()?;
        Ok(certificate)
    }

    /// Writes three PEM files. Only the owner may read the key. The key is written last, so that an incomplete set is
    /// generated again.
    pub fn save(&self, directory: &Path) -> Result<(), ReceiverError> {
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join(CA_FILE), &self.ca_pem)?;
        std::fs::write(directory.join(CHAIN_FILE), &self.chain_pem)?;
        let unfinished = directory.join(format!("{KEY_FILE}.new"));
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&unfinished)?.write_all(self.key_pem.as_bytes())?;
        std::fs::rename(unfinished, directory.join(KEY_FILE))?;
        Ok(())
    }

    /// Returns the certificate of the authority, which senders have to trust.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Returns the TLS server configuration with this certificate, for a receiver of another kind.
    ///
    /// # Errors
    /// If the certificate and its key cannot be used.
    pub fn server_config(&self) -> Result<Arc<rustls::ServerConfig>, ReceiverError> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(self.chain_pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|_| ReceiverError::CertificateFile)?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(|_| ReceiverError::CertificateFile)?;
        // The provider is explicit, because a process may contain more than one.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}
