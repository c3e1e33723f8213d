//! Whom a server takes a client for: certificates that an authority signed, and the name in them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Why an authority for clients cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The text is no PEM.
    #[error("failed to read the authority's PEM: {0}")]
    Pem(String),
    /// No `CERTIFICATE` section holds a certificate that can be trusted.
    #[error("failed to find an authority: no usable CERTIFICATE section in the PEM")]
    Empty,
    /// The TLS library refuses it.
    #[error("failed to use the authority: {0}")]
    Verifier(String),
}

/// Why a client's certificate is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It showed none.
    #[error("the client showed no certificate")]
    Missing,
    /// Another authority signed it, it is not valid now, or it is not for clients.
    #[error("the client's certificate is not accepted: {0}")]
    Refused(rustls::Error),
    /// It has no common name.
    #[error("the client's certificate has no common name")]
    Nameless,
}

/// The authorities whose client certificates are taken.
#[derive(Debug, Clone)]
pub struct ClientAuthority {
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientAuthority {
    /// Reads the authorities from PEM.
    pub fn from_pem(pem: &[u8]) -> Result<Self, AuthorityError> {
        let certificates = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| AuthorityError::Pem(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(certificates);
        if usable == 0 {
            return Err(AuthorityError::Empty);
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| AuthorityError::Verifier(error.to_string()))?;
        Ok(Self { verifier })
    }

    /// The common name of the first certificate of `chain`, if an authority signed it and it is a client's at `now`.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: SystemTime) -> Result<String, ClientError> {
        let (leaf, intermediates) = chain.split_first().ok_or(ClientError::Missing)?;
        let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        self.verifier
            .verify_client_cert(leaf, intermediates, UnixTime::since_unix_epoch(since_epoch))
            .map_err(ClientError::Refused)?;
        common_name(leaf).ok_or(ClientError::Nameless)
    }
}

fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?.to_owned();
    Some(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Authority, Leaf, Usage};

    const DAY: Duration = Duration::from_secs(86_400);

    fn at(days: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + DAY * (20_000 + days)
    }

    fn leaf(authority: &Authority, usage: Usage) -> Vec<CertificateDer<'static>> {
        let issued = authority.issue(&Leaf {
            common_name: "front-proxy-client".to_owned(),
            organization: None,
            dns_names: vec![],
            ip_addresses: vec![],
            usage,
            not_before: at(1),
            not_after: at(10),
        });
        CertificateDer::pem_slice_iter(issued.unwrap().certificate.as_bytes())
            .collect::<Result<_, _>>()
            .unwrap()
    }

    #[test]
    fn a_clients_certificate_counts_from_its_authority_while_it_is_valid() {
        let authority = Authority::new("ca", at(0), at(100)).unwrap();
        let other = Authority::new("ca", at(0), at(100)).unwrap();
        let known = ClientAuthority::from_pem(authority.certificate().as_bytes()).unwrap();
        let chain = leaf(&authority, Usage::Client);
        assert_eq!(known.verify(&chain, at(5)).unwrap(), "front-proxy-client");
        assert!(matches!(known.verify(&[], at(5)), Err(ClientError::Missing)));
        for (chain, when) in [
            (leaf(&other, Usage::Client), at(5)),
            (leaf(&authority, Usage::Server), at(5)),
            (chain.clone(), at(0)),
            (chain, at(11)),
        ] {
            assert!(matches!(known.verify(&chain, when), Err(ClientError::Refused(_))));
        }
    }

    #[test]
    fn during_a_change_of_authorities_both_count() {
        let (old, new) = (
            Authority::new("old", at(0), at(100)).unwrap(),
            Authority::new("new", at(0), at(100)).unwrap(),
        );
        let bundle = format!("{}{}", old.certificate(), new.certificate());
        let known = ClientAuthority::from_pem(bundle.as_bytes()).unwrap();
        for authority in [&old, &new] {
            assert!(known.verify(&leaf(authority, Usage::Client), at(5)).is_ok());
        }
        assert!(matches!(ClientAuthority::from_pem(b""), Err(AuthorityError::Empty)));
    }
}
