//! A certificate chain with its key, read from PEM and checked before anything is served with it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Why a certificate and its key cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The certificate file holds no `CERTIFICATE` section.
    #[error("failed to find a certificate: no CERTIFICATE section in the PEM")]
    NoCertificate,
    /// The certificate file is no PEM.
    #[error("failed to read the certificate's PEM: {0}")]
    CertificatePem(String),
    /// A `CERTIFICATE` section holds something else.
    #[error("failed to parse the certificate: {0}")]
    Certificate(String),
    /// The key file holds no private key in PKCS#8, PKCS#1 or SEC1 form.
    #[error("failed to find a private key: no PRIVATE KEY section in the PEM")]
    NoKey,
    /// The key file is no PEM.
    #[error("failed to read the private key's PEM: {0}")]
    KeyPem(String),
    /// The private key is of a kind that cannot be used, or does not belong to the certificate.
    #[error("failed to pair the private key with the certificate: {0}")]
    Key(#[from] rustls::Error),
}

/// A certificate chain and the private key that belongs to its first certificate.
#[derive(Debug, Clone)]
pub struct ServingCertificate {
    key: Arc<CertifiedKey>,
    not_before: SystemTime,
    not_after: SystemTime,
    names: Vec<String>,
    serial: String,
}

impl ServingCertificate {
    /// Reads a PEM chain (leaf first) and a PEM key, and checks that they belong together.
    ///
    /// An expired certificate is no error here: serving it gives the client a clear answer, and the caller
    /// knows the time. See [`Self::not_after`].
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, ReadError> {
        let chain = CertificateDer::pem_slice_iter(certificate)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|err| ReadError::CertificatePem(err.to_string()))?;
        let leaf = chain.first().ok_or(ReadError::NoCertificate)?;
        let facts = Facts::of(leaf)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|err| match err {
            rustls::pki_types::pem::Error::NoItemsFound => ReadError::NoKey,
            other => ReadError::KeyPem(other.to_string()),
        })?;
        let key = CertifiedKey::from_der(chain, key, &ring::default_provider())?;
        Ok(Self {
            key: Arc::new(key),
            not_before: facts.not_before,
            not_after: facts.not_after,
            names: facts.names,
            serial: facts.serial,
        })
    }

    /// The instant before which no client accepts the leaf certificate.
    pub fn not_before(&self) -> SystemTime {
        self.not_before
    }

    /// The instant after which no client accepts the leaf certificate.
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// DNS names and IP addresses of the leaf, in the order of the certificate.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The leaf's serial number in hexadecimal, which tells one issue of a certificate from the next.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// What rustls signs handshakes with.
    pub fn certified_key(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.key)
    }
}

struct Facts {
    not_before: SystemTime,
    not_after: SystemTime,
    names: Vec<String>,
    serial: String,
}

impl Facts {
    fn of(leaf: &CertificateDer<'_>) -> Result<Self, ReadError> {
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|err| ReadError::Certificate(err.to_string()))?;
        let alternatives = parsed
            .subject_alternative_name()
            .map_err(|err| ReadError::Certificate(err.to_string()))?;
        let names = alternatives
            .map(|extension| extension.value.general_names.iter().filter_map(name_of).collect())
            .unwrap_or_default();
        Ok(Self {
            not_before: instant(parsed.validity().not_before.timestamp()),
            not_after: instant(parsed.validity().not_after.timestamp()),
            names,
            serial: parsed.raw_serial_as_string(),
        })
    }
}

fn name_of(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(dns) => Some((*dns).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes)
                .ok()
                .map(|b| std::net::Ipv4Addr::from(b).to_string()),
            16 => <[u8; 16]>::try_from(*bytes)
                .ok()
                .map(|b| std::net::Ipv6Addr::from(b).to_string()),
            _ => None,
        },
        _ => None,
    }
}

/// Seconds since 1970 as an instant; dates that the platform cannot hold stop at 1970.
fn instant(unix_seconds: i64) -> SystemTime {
    let magnitude = Duration::from_secs(unix_seconds.unsigned_abs());
    let moved = if unix_seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(magnitude)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(magnitude)
    };
    moved.unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests_support::{DAY, at, authority, webhook_leaf};

    #[test]
    fn a_chain_and_its_key_are_read_with_names_and_validity() {
        let issued = authority().issue(&webhook_leaf(0, DAY)).unwrap();
        let read = ServingCertificate::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes()).unwrap();
        assert_eq!(read.not_before(), at(0));
        assert_eq!(read.not_after(), at(DAY));
        assert_eq!(read.names(), ["sluice-webhook.sluice-system.svc", "127.0.0.1", "::1"]);
        assert!(!read.serial().is_empty());
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let authority = authority();
        let one = authority.issue(&webhook_leaf(0, DAY)).unwrap();
        let other = authority.issue(&webhook_leaf(0, DAY)).unwrap();
        let err = ServingCertificate::from_pem(one.certificate.as_bytes(), other.key.as_bytes()).unwrap_err();
        assert!(matches!(err, ReadError::Key(_)), "{err}");
        assert!(err.to_string().contains("pair the private key"), "{err}");
    }

    #[test]
    fn a_half_written_or_missing_file_gets_its_own_answer() {
        let issued = authority().issue(&webhook_leaf(0, DAY)).unwrap();
        let (certificate, key) = (issued.certificate.as_bytes(), issued.key.as_bytes());
        let read = |certificate: &[u8], key: &[u8]| ServingCertificate::from_pem(certificate, key).unwrap_err();

        assert!(matches!(read(b"", key), ReadError::NoCertificate));
        assert!(matches!(read(key, key), ReadError::NoCertificate));
        let half = certificate.len() / 2;
        assert!(matches!(read(&certificate[..half], key), ReadError::CertificatePem(_)));
        assert!(matches!(read(certificate, b""), ReadError::NoKey));
        assert!(matches!(read(certificate, certificate), ReadError::NoKey));
        let half = key.len() / 2;
        assert!(matches!(read(certificate, &key[..half]), ReadError::KeyPem(_)));
        let garbage = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(matches!(read(garbage, key), ReadError::Certificate(_)));
    }
}
