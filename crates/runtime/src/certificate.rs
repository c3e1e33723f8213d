//! The serving certificate on disk, read again when it changes.
//!
//! The files are read and compared, not watched: the kubelet swaps a mounted Secret by renaming a directory beside it,
//! which a watch on the file itself never sees.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sluice_pki::{ReadError, Resolver, ServingCertificate};
use tokio::time::MissedTickBehavior;

/// Where the certificate is.
#[derive(Debug, Clone)]
pub struct CertificateFiles {
    /// The certificate chain, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
    /// How often to look.
    pub interval: Duration,
}

#[derive(Debug, thiserror::Error)]
enum LoadError {
    #[error("failed to read {}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("failed to use {}", path.display())]
    Read { path: PathBuf, source: ReadError },
}

type Bytes = (Vec<u8>, Vec<u8>);

/// What a look at the files found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// A new certificate, which is served from now on; when it expires.
    New {
        /// Seconds since the Unix epoch.
        expires: u64,
    },
    /// Nothing usable.
    Failed,
}

/// Keeps `resolver` at what the files say, for ever, and tells of each look that found something new or nothing usable.
///
/// Files that are missing, half written or do not belong together change nothing: what is served stays, and they are
/// looked at again.
pub async fn keep_loaded(files: CertificateFiles, resolver: Arc<Resolver>, tell: impl Fn(Look) + Send) {
    let mut ticks = tokio::time::interval(files.interval.max(Duration::from_millis(10)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen: Option<Bytes> = None;
    let mut complaint = String::new();
    loop {
        ticks.tick().await;
        match load(&files, seen.as_ref()).await {
            Ok(None) => complaint.clear(),
            Ok(Some((bytes, certificate))) => {
                tracing::info!(
                    serial = certificate.serial(),
                    names = certificate.names().join(","),
                    expires = unix_seconds(certificate.not_after()),
                    "serving a new certificate"
                );
                tell(Look::New {
                    expires: unix_seconds(certificate.not_after()),
                });
                resolver.replace(certificate);
                seen = Some(bytes);
                complaint.clear();
            }
            Err(error) => {
                tell(Look::Failed);
                // Once an error, not once a tick: between two halves of a swap it lasts one tick.
                let text = chain(&error);
                if text != complaint {
                    tracing::warn!(
                        error = text,
                        serving = resolver.current().is_some(),
                        "the certificate is not usable"
                    );
                    complaint = text;
                }
            }
        }
    }
}

/// For readiness: whether a certificate is served that clients accept now.
///
/// # Errors
///
/// What is missing.
pub fn check(resolver: &Resolver, now: SystemTime) -> Result<String, String> {
    let certificate = resolver.current().ok_or("no certificate is loaded yet")?;
    if now < certificate.not_before() {
        return Err("the certificate is not valid yet".to_owned());
    }
    match certificate.not_after().duration_since(now) {
        Ok(left) => Ok(format!("valid for {} s", left.as_secs())),
        Err(_) => Err("the certificate has expired".to_owned()),
    }
}

async fn load(
    files: &CertificateFiles,
    seen: Option<&Bytes>,
) -> Result<Option<(Bytes, ServingCertificate)>, LoadError> {
    let bytes = (read(&files.certificate).await?, read(&files.key).await?);
    if seen == Some(&bytes) {
        return Ok(None);
    }
    let certificate = ServingCertificate::from_pem(&bytes.0, &bytes.1).map_err(|source| LoadError::Read {
        path: files.certificate.clone(),
        source,
    })?;
    Ok(Some((bytes, certificate)))
}

async fn read(path: &PathBuf) -> Result<Vec<u8>, LoadError> {
    tokio::fs::read(path).await.map_err(|source| LoadError::Io {
        path: path.clone(),
        source,
    })
}

fn chain(error: &LoadError) -> String {
    let source = std::error::Error::source(error)
        .map(|source| format!(": {source}"))
        .unwrap_or_default();
    format!("{error}{source}")
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
