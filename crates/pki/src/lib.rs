//! Certificates: what a server shows, and who issued it.
//!
//! ```text
//! PEM (certificate, key) -> ServingCertificate -> Resolver -> rustls
//! Authority -> Issued (PEM) -> files, a Secret, a kubeconfig
//! PEM (authorities) + a client's chain -> ClientAuthority -> the client's name
//! ```
//!
//! [`Resolver`] hands rustls the certificate of the moment: a new one takes effect with the next handshake and
//! no connection is dropped. [`Authority`] issues certificates for development clusters and tests.
//!
//! This crate never reads a file, a clock or the network. It does draw randomness, for keys alone.

mod authority;
mod client;
mod resolver;
mod serving;

pub use authority::{Authority, IssueError, Issued, Leaf, Usage};
pub use client::{AuthorityError, ClientAuthority, ClientError};
pub use resolver::Resolver;
pub use serving::{ReadError, ServingCertificate};

#[cfg(test)]
mod tests_support {
    use std::time::{Duration, SystemTime};

    use crate::{Authority, Leaf, Usage};

    pub(crate) const DAY: u64 = 86_400;

    pub(crate) fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    pub(crate) fn authority() -> Authority {
        Authority::new("sluice test authority", at(0), at(10 * DAY)).unwrap()
    }

    pub(crate) fn webhook_leaf(not_before: u64, not_after: u64) -> Leaf {
        Leaf {
            common_name: "sluice-webhook".to_owned(),
            organization: None,
            dns_names: vec!["sluice-webhook.sluice-system.svc".to_owned()],
            ip_addresses: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
            usage: Usage::Server,
            not_before: at(not_before),
            not_after: at(not_after),
        }
    }
}
