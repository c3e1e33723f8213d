//! A certificate authority for development clusters and tests, and the leaves it issues.

use std::net::IpAddr;
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};
use time::OffsetDateTime;

/// Why a certificate could not be issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The validity ends before it begins.
    #[error("failed to issue {name:?}: its validity ends before it begins")]
    EmptyValidity {
        /// The common name asked for.
        name: String,
    },
    /// A DNS name holds characters that no certificate can.
    #[error("failed to issue {name:?}: {dns_name:?} is no DNS name")]
    DnsName {
        /// The common name asked for.
        name: String,
        /// The DNS name at fault.
        dns_name: String,
    },
    /// Key or certificate could not be made or read.
    #[error("failed to issue {name:?}: {source}")]
    Crypto {
        /// The common name asked for.
        name: String,
        /// What the certificate library says.
        source: rcgen::Error,
    },
}

/// What a leaf certificate is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// A TLS server.
    Server,
    /// A TLS client.
    Client,
    /// Both ends, as etcd's members need.
    Both,
}

/// A leaf certificate to issue.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// Common name; Kubernetes reads it as the user's name in a client certificate.
    pub common_name: String,
    /// Organization; Kubernetes reads it as the user's group in a client certificate. One at most: the certificate
    /// library keeps a single value per kind of name.
    pub organization: Option<String>,
    /// DNS names the certificate stands for.
    pub dns_names: Vec<String>,
    /// Addresses the certificate stands for.
    pub ip_addresses: Vec<IpAddr>,
    /// Server, client or both.
    pub usage: Usage,
    /// First instant of its validity.
    pub not_before: SystemTime,
    /// Last instant of its validity.
    pub not_after: SystemTime,
}

/// A certificate and its private key in PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate, a `CERTIFICATE` section.
    pub certificate: String,
    /// The key, a PKCS#8 `PRIVATE KEY` section.
    pub key: String,
}

impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A key in a log is a key lost.
        f.debug_struct("Issued")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// A self-signed certificate authority with its key (ECDSA P-256).
pub struct Authority {
    name: String,
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes a new authority with a new key. It may sign leaves, no further authorities.
    pub fn new(common_name: &str, not_before: SystemTime, not_after: SystemTime) -> Result<Self, IssueError> {
        let mut params = params(common_name, None, not_before, not_after)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let failed = |source| IssueError::Crypto {
            name: common_name.to_owned(),
            source,
        };
        let key = generate(common_name)?;
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        Ok(Self {
            name: common_name.to_owned(),
            certificate,
            issuer: Issuer::new(params, key),
        })
    }

    /// Takes up an authority whose certificate and key were stored as PEM.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, IssueError> {
        let name = "stored authority";
        let failed = |source| IssueError::Crypto {
            name: name.to_owned(),
            source,
        };
        let key = KeyPair::from_pem(key).map_err(failed)?;
        let issuer = Issuer::from_ca_cert_pem(certificate, key).map_err(failed)?;
        Ok(Self {
            name: name.to_owned(),
            certificate: certificate.to_owned(),
            issuer,
        })
    }

    /// The authority's certificate in PEM: what a client must trust, and a webhook configuration's `caBundle`.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The authority's private key in PEM.
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Issues a leaf with a new key.
    pub fn issue(&self, leaf: &Leaf) -> Result<Issued, IssueError> {
        let name = &leaf.common_name;
        let mut params = params(name, leaf.organization.as_deref(), leaf.not_before, leaf.not_after)?;
        for dns_name in &leaf.dns_names {
            let checked = dns_name.as_str().try_into().map_err(|_| IssueError::DnsName {
                name: name.clone(),
                dns_name: dns_name.clone(),
            })?;
            params.subject_alt_names.push(SanType::DnsName(checked));
        }
        params
            .subject_alt_names
            .extend(leaf.ip_addresses.iter().copied().map(SanType::IpAddress));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match leaf.usage {
            Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Both => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        let key = generate(name)?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .map_err(|source| IssueError::Crypto {
                name: name.clone(),
                source,
            })?;
        Ok(Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn generate(name: &str) -> Result<KeyPair, IssueError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|source| IssueError::Crypto {
        name: name.to_owned(),
        source,
    })
}

fn params(
    common_name: &str,
    organization: Option<&str>,
    not_before: SystemTime,
    not_after: SystemTime,
) -> Result<CertificateParams, IssueError> {
    if not_after <= not_before {
        return Err(IssueError::EmptyValidity {
            name: common_name.to_owned(),
        });
    }
    let mut params = CertificateParams::default();
    // The library's own validity runs to the year 4096, so both ends are always set.
    params.not_before = OffsetDateTime::from(not_before);
    params.not_after = OffsetDateTime::from(not_after);
    params.distinguished_name = rcgen::DistinguishedName::new();
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, common_name);
    Ok(params)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{CertificateError, RootCertStore};

    use super::*;
    use crate::tests_support::{DAY, at, authority, webhook_leaf};

    fn verify(authority: &Authority, leaf: &Issued, name: &str, now: u64) -> Result<(), rustls::Error> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .unwrap();
        let leaf = CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now));
        verifier.verify_server_cert(&leaf, &[], &name, &[], now).map(|_| ())
    }

    #[test]
    fn a_leaf_is_trusted_under_each_of_its_names_and_no_other() {
        let authority = authority();
        let leaf = authority.issue(&webhook_leaf(0, DAY)).unwrap();
        for name in ["sluice-webhook.sluice-system.svc", "127.0.0.1", "::1"] {
            verify(&authority, &leaf, name, DAY / 2).unwrap();
        }
        assert!(verify(&authority, &leaf, "other.sluice-system.svc", DAY / 2).is_err());
    }

    #[test]
    fn a_leaf_is_not_trusted_outside_its_validity() {
        let authority = authority();
        let leaf = authority.issue(&webhook_leaf(DAY, 2 * DAY)).unwrap();
        let name = "sluice-webhook.sluice-system.svc";
        verify(&authority, &leaf, name, DAY + 1).unwrap();
        let early = verify(&authority, &leaf, name, DAY - 1).unwrap_err();
        let is_early = matches!(
            early,
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }
            )
        );
        assert!(is_early, "{early}");
        let late = verify(&authority, &leaf, name, 2 * DAY + 1).unwrap_err();
        let is_late = matches!(
            late,
            rustls::Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. })
        );
        assert!(is_late, "{late}");
    }

    #[test]
    fn a_leaf_of_another_authority_of_the_same_name_is_not_trusted() {
        let leaf = authority().issue(&webhook_leaf(0, DAY)).unwrap();
        assert!(verify(&authority(), &leaf, "sluice-webhook.sluice-system.svc", DAY / 2).is_err());
    }

    #[test]
    fn a_stored_authority_issues_leaves_that_the_first_certificate_vouches_for() {
        let first = authority();
        let again = Authority::from_pem(first.certificate(), &first.key()).unwrap();
        let leaf = again.issue(&webhook_leaf(0, DAY)).unwrap();
        verify(&first, &leaf, "sluice-webhook.sluice-system.svc", DAY / 2).unwrap();
    }

    #[test]
    fn a_client_certificate_does_not_pass_for_a_server() {
        let authority = authority();
        let leaf = authority
            .issue(&Leaf {
                usage: Usage::Client,
                ..webhook_leaf(0, DAY)
            })
            .unwrap();
        assert!(verify(&authority, &leaf, "sluice-webhook.sluice-system.svc", DAY / 2).is_err());
    }

    #[test]
    fn user_and_group_of_a_client_certificate_are_in_its_subject() {
        let leaf = Leaf {
            common_name: "jane".to_owned(),
            organization: Some("system:masters".to_owned()),
            usage: Usage::Client,
            ..webhook_leaf(0, DAY)
        };
        let issued = authority().issue(&leaf).unwrap();
        let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert_eq!(parsed.subject().to_string(), "O=system:masters, CN=jane");
    }

    #[test]
    fn an_empty_validity_and_a_name_outside_ascii_are_refused() {
        let authority = authority();
        let err = authority.issue(&webhook_leaf(DAY, DAY)).unwrap_err();
        assert!(matches!(err, IssueError::EmptyValidity { .. }), "{err}");
        assert!(matches!(
            Authority::new("x", at(1), at(0)).unwrap_err(),
            IssueError::EmptyValidity { .. }
        ));
        let err = authority
            .issue(&Leaf {
                dns_names: vec!["größe".to_owned()],
                ..webhook_leaf(0, DAY)
            })
            .unwrap_err();
        assert!(matches!(err, IssueError::DnsName { .. }), "{err}");
    }

    #[test]
    fn a_key_never_shows_in_debug_output() {
        let issued = authority().issue(&webhook_leaf(0, DAY)).unwrap();
        assert!(!format!("{issued:?}").contains("PRIVATE KEY"));
    }
}
