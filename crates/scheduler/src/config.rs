//! Flags, and what they mean once checked.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use sluice_api::configuration::Configuration;
use sluice_runtime::certificate::CertificateFiles;
use sluice_runtime::configuration;
use sluice_runtime::lease::LeaseName;
use sluice_runtime::telemetry::LogFormat;

use crate::visibility::VisibilityConfig;

/// How often the certificate's files are looked at.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(2);

/// Queues batch Jobs and admits them when quota allows.
#[derive(Debug, Parser)]
#[command(name = "sluice-scheduler", version)]
pub struct Flags {
    /// Sluice's own namespace: its Jobs are never managed, and its ConfigMap of opt-ins lives here.
    #[arg(long, env = "POD_NAMESPACE", default_value = "sluice-system")]
    namespace: String,
    /// Name of this replica in leases and logs; a random part is added.
    #[arg(long, env = "POD_NAME")]
    identity: Option<String>,
    /// Configuration file of kind Configuration (config.kueue.x-k8s.io); without one everything has its default.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Kubeconfig file; else KUBECONFIG, else the pod's service account.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Where /healthz, /readyz and /metrics are served, in plain HTTP.
    #[arg(long, default_value = "0.0.0.0:8081")]
    health_bind_address: SocketAddr,
    /// Whether the visibility API (visibility.kueue.x-k8s.io) is served.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    visibility: bool,
    /// Where the visibility API is served, over TLS, for the API server's front proxy.
    #[arg(long, default_value = "0.0.0.0:8082")]
    visibility_bind_address: SocketAddr,
    /// Name of the Service that leads there, in --namespace.
    #[arg(long, value_name = "NAME", default_value = "sluice-visibility")]
    visibility_service: String,
    /// Certificate chain for that, PEM; without one the process makes its own, which nobody can check.
    #[arg(long, value_name = "FILE", requires = "visibility_tls_private_key_file")]
    visibility_tls_cert_file: Option<PathBuf>,
    /// Private key for that, PEM.
    #[arg(long, value_name = "FILE", requires = "visibility_tls_cert_file")]
    visibility_tls_private_key_file: Option<PathBuf>,
    /// The Lease that makes one replica of the cluster the leader.
    #[arg(long, default_value = "sluice-scheduler")]
    lease_name: String,
    /// Namespace of that Lease.
    #[arg(long, default_value = "kube-system")]
    lease_namespace: String,
    /// How long a lease holds without being renewed (Go duration).
    #[arg(long, default_value = "15s", value_parser = duration)]
    lease_duration: Duration,
    /// A leader that could not renew for this long stops leading (Go duration).
    #[arg(long, default_value = "10s", value_parser = duration)]
    lease_renew_deadline: Duration,
    /// Pause between attempts to take or renew the lease (Go duration).
    #[arg(long, default_value = "2s", value_parser = duration)]
    lease_retry_period: Duration,
    /// Leases (namespace/name) that must be held too, so that two systems never queue the same Jobs. By default Kueue's own.
    #[arg(long, default_value = "kueue-system/c1f6bfd2.kueue.x-k8s.io", value_parser = lease_name)]
    guard_lease: Vec<LeaseName>,
    /// Name of the Term object that fences the writes of ended reigns.
    #[arg(long, default_value = sluice_api::term::TERM_NAME)]
    term_name: String,
    /// Patches of Jobs under way at once.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    write_concurrency: u16,
    /// Records everything that the scheduling engine is told and decides in this file, up to 1 GiB, to be replayed.
    #[arg(long, value_name = "FILE")]
    record_events: Option<PathBuf>,
    /// Log lines for people (text) or for collectors (json).
    #[arg(long, default_value = "text")]
    log_format: LogFormat,
    /// Which log lines are written, such as `info` or `sluice_scheduler=debug`.
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    log_filter: String,
}

/// What the process runs with.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) namespace: String,
    pub(crate) pod_name: Option<String>,
    pub(crate) configuration: Configuration,
    pub(crate) kubeconfig: Option<PathBuf>,
    pub(crate) health_bind_address: SocketAddr,
    /// None: it is not served.
    pub(crate) visibility: Option<VisibilityConfig>,
    pub(crate) lease_name: String,
    pub(crate) lease_namespace: String,
    pub(crate) lease_duration: Duration,
    pub(crate) lease_renew_deadline: Duration,
    pub(crate) lease_retry_period: Duration,
    pub(crate) guard_leases: Vec<LeaseName>,
    pub(crate) term_name: String,
    pub(crate) write_concurrency: usize,
    pub(crate) record_events: Option<PathBuf>,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Which log lines are written.
    pub log_filter: String,
}

impl Config {
    /// Longest that one write may take: a fifth of the lease, 3 s of the default 15 s.
    pub(crate) fn write_timeout(&self) -> Duration {
        self.lease_duration / 5
    }

    /// Least that must be left of the lease when a write is sent: a third of it, 5 s of the default 15 s.
    pub(crate) fn write_margin(&self) -> Duration {
        self.lease_duration / 3
    }
}

impl TryFrom<Flags> for Config {
    type Error = anyhow::Error;

    fn try_from(flags: Flags) -> Result<Self> {
        ensure!(
            flags.lease_duration > flags.lease_renew_deadline && flags.lease_renew_deadline > flags.lease_retry_period,
            "the lease times must fall: --lease-duration ({:?}) > --lease-renew-deadline ({:?}) > --lease-retry-period ({:?})",
            flags.lease_duration,
            flags.lease_renew_deadline,
            flags.lease_retry_period,
        );
        ensure!(
            !flags.lease_retry_period.is_zero(),
            "--lease-retry-period must be more than zero"
        );
        let certificate = flags
            .visibility_tls_cert_file
            .zip(flags.visibility_tls_private_key_file)
            .map(|(certificate, key)| CertificateFiles {
                certificate,
                key,
                interval: CERTIFICATE_INTERVAL,
            });
        let visibility = flags.visibility.then(|| VisibilityConfig {
            address: flags.visibility_bind_address,
            certificate,
            service: format!("{}.{}.svc", flags.visibility_service, flags.namespace),
        });
        Ok(Self {
            visibility,
            configuration: configuration::load(flags.config.as_deref())?,
            namespace: flags.namespace,
            pod_name: flags.identity,
            kubeconfig: flags.kubeconfig,
            health_bind_address: flags.health_bind_address,
            lease_name: flags.lease_name,
            lease_namespace: flags.lease_namespace,
            lease_duration: flags.lease_duration,
            lease_renew_deadline: flags.lease_renew_deadline,
            lease_retry_period: flags.lease_retry_period,
            guard_leases: flags.guard_lease,
            term_name: flags.term_name,
            write_concurrency: usize::from(flags.write_concurrency),
            record_events: flags.record_events,
            log_format: flags.log_format,
            log_filter: flags.log_filter,
        })
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed: kube::core::Duration = text
        .parse()
        .map_err(|error| format!("{error}; write it like 15s or 1m30s"))?;
    if parsed.is_negative() {
        return Err("it must not be negative".to_owned());
    }
    Ok(parsed.into())
}

fn lease_name(text: &str) -> Result<LeaseName, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => Ok(LeaseName::new(namespace, name)),
        _ => Err("write it as namespace/name".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(arguments: &[&str]) -> Result<Config> {
        Flags::try_parse_from([&["sluice-scheduler"], arguments].concat())?.try_into()
    }

    #[test]
    fn the_defaults_are_client_gos_lease_times_and_leave_room_for_a_write() {
        let config = config(&[]).unwrap();
        assert_eq!(config.lease_duration, Duration::from_secs(15));
        assert_eq!(config.write_timeout(), Duration::from_secs(3));
        assert_eq!(config.write_margin(), Duration::from_secs(5));
    }

    #[test]
    fn lease_times_that_cannot_work_are_refused_with_their_names() {
        let error = config(&["--lease-duration=2s", "--lease-renew-deadline=2s"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("--lease-renew-deadline"), "{error}");
        assert!(config(&["--lease-duration=fast"]).is_err());
        assert!(config(&["--lease-retry-period=-1s"]).is_err());
    }

    #[test]
    fn the_visibility_api_is_served_where_kueue_serves_it_unless_it_is_turned_off() {
        let served = config(&[]).unwrap().visibility.unwrap();
        assert_eq!(served.address.port(), 8082);
        assert_eq!(served.service, "sluice-visibility.sluice-system.svc");
        assert!(served.certificate.is_none());
        assert!(config(&["--visibility=false"]).unwrap().visibility.is_none());
        assert!(config(&["--visibility-tls-cert-file=tls.crt"]).is_err());
    }

    #[test]
    fn a_configuration_file_is_read_and_a_wrong_one_stops_the_start_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        let with_file = |text: &str| {
            std::fs::write(&path, text).unwrap();
            config(&[&format!("--config={}", path.display())])
        };
        let head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
        let waits = with_file(&format!("{head}waitForPodsReady: {{timeout: 90s}}\n")).unwrap();
        let wait = waits.configuration.wait_for_pods_ready.unwrap();
        assert_eq!(wait.timeout, Duration::from_secs(90));
        let error = with_file(&format!("{head}waitForPods: {{}}\n")).unwrap_err();
        assert!(format!("{error:#}").contains("line 3"), "{error:#}");
        assert!(config(&["--config=no-such-file"]).is_err());
        assert_eq!(config(&[]).unwrap().configuration, Configuration::default());
    }
}
