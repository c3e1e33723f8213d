//! Certificates of a plane and of the webhook behind it.

use std::net::IpAddr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

/// A certificate and its private key, both PEM.
#[derive(Debug, Clone)]
pub struct KeyPair {
    /// The certificate.
    pub certificate: String,
    /// The private key, PKCS#8.
    pub key: String,
}

impl KeyPair {
    /// Writes `NAME.crt` and `NAME.key` into `folder`.
    pub fn write(&self, folder: &Path, name: &str) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join(format!("{name}.crt")), &self.certificate)?;
        std::fs::write(folder.join(format!("{name}.key")), &self.key)?;
        Ok(())
    }
}

/// A certificate authority that lives as long as the plane.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    /// Makes an authority with a new key.
    pub fn new(common_name: &str) -> Result<Self> {
        let key = rcgen::KeyPair::generate()?;
        let mut params = parameters(common_name, &[])?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self {
            certificate,
            issuer: Issuer::new(params, key),
        })
    }

    /// The authority's certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A server certificate for `names`; an IP address in text form becomes an IP entry.
    pub fn server(&self, names: &[String]) -> Result<KeyPair> {
        let mut params = parameters(names.first().context("a server certificate needs a name")?, &[])?;
        params.subject_alt_names = names
            .iter()
            .map(|name| match name.parse::<IpAddr>() {
                Ok(address) => Ok(SanType::IpAddress(address)),
                Err(_) => name.as_str().try_into().map(SanType::DnsName),
            })
            .collect::<Result<_, _>>()?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(&params)
    }

    /// A client certificate: Kubernetes reads the user from the common name, the groups from the organisations.
    pub fn client(&self, user: &str, groups: &[&str]) -> Result<KeyPair> {
        let mut params = parameters(user, groups)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(&params)
    }

    fn issue(&self, params: &CertificateParams) -> Result<KeyPair> {
        let key = rcgen::KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(KeyPair {
            certificate,
            key: key.serialize_pem(),
        })
    }
}

fn parameters(common_name: &str, organisations: &[&str]) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    for organisation in organisations {
        name.push(DnType::OrganizationName, *organisation);
    }
    params.distinguished_name = name;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let now = OffsetDateTime::from_unix_timestamp(i64::try_from(seconds)?)?;
    params.not_before = now - Duration::hours(1);
    params.not_after = now + Duration::days(30);
    Ok(params)
}
