//! The certificate of the moment, for rustls.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::serving::ServingCertificate;

/// Answers each TLS handshake with the certificate that was put in last.
///
/// Replacing it touches no connection that is already open. Until one is put in, handshakes fail.
#[derive(Debug, Default)]
pub struct Resolver {
    current: ArcSwapOption<ServingCertificate>,
}

impl Resolver {
    /// A resolver without a certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves `certificate` from the next handshake on.
    pub fn replace(&self, certificate: ServingCertificate) {
        self.current.store(Some(Arc::new(certificate)));
    }

    /// The certificate that is served now.
    pub fn current(&self) -> Option<Arc<ServingCertificate>> {
        self.current.load_full()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current
            .load()
            .as_ref()
            .map(|certificate| certificate.certified_key())
    }
}
