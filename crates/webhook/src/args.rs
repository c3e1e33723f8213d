//! Flags, and what they become.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use sluice_admission::Settings;
use sluice_api::configuration::Configuration;
use sluice_api::duration::parse_duration;
use sluice_runtime::aggregation::StandIn;
use sluice_runtime::certificate::CertificateFiles;
use sluice_runtime::configuration::{self, LoadError};
use sluice_runtime::telemetry::LogFormat;

use crate::server::Limits;

/// The admission webhook of Sluice.
#[derive(Debug, Clone, Parser)]
#[command(name = "sluice-webhook", version)]
pub struct Args {
    /// Namespace that Sluice runs in; its Jobs are never managed
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAME")]
    pub namespace: String,

    /// Address and port for the API server's calls (TLS)
    #[arg(long, default_value = "0.0.0.0:9443", value_name = "ADDRESS:PORT")]
    pub bind_address: SocketAddr,

    /// Address and port for /healthz, /readyz and /metrics (plain HTTP)
    #[arg(long, default_value = "0.0.0.0:8081", value_name = "ADDRESS:PORT")]
    pub health_bind_address: SocketAddr,

    /// Serving certificate with its chain, PEM; read again when it changes
    #[arg(long, default_value = "/etc/sluice/tls/tls.crt", value_name = "FILE")]
    pub tls_cert_file: PathBuf,

    /// Private key of the serving certificate, PEM; read again when it changes
    #[arg(long, default_value = "/etc/sluice/tls/tls.key", value_name = "FILE")]
    pub tls_private_key_file: PathBuf,

    /// How often the certificate files are looked at
    #[arg(long, default_value = "2s", value_parser = parse_duration, value_name = "DURATION")]
    pub tls_reload_interval: Duration,

    /// Configuration file of kind Configuration (config.kueue.x-k8s.io); without one everything has its default
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Kubeconfig of the cluster; else KUBECONFIG, else the pod's service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// User that the scheduler writes as, whose updates are never changed; may be given more than once
    #[arg(long = "scheduler-user", value_name = "USER")]
    pub scheduler_users: Vec<String>,

    /// User who may repair Jobs by hand, whose updates are never changed; may be given more than once
    #[arg(long = "break-glass-user", value_name = "USER")]
    pub break_glass_users: Vec<String>,

    /// Group whose members may repair Jobs by hand; may be given more than once
    #[arg(long = "break-glass-group", value_name = "GROUP")]
    pub break_glass_groups: Vec<String>,

    /// Time to answer one review; keep it below the timeout of the webhook configurations
    #[arg(long, default_value = "1500ms", value_parser = parse_duration, value_name = "DURATION")]
    pub request_timeout: Duration,

    /// Reviews in work at once; more wait for their turn
    #[arg(long, default_value_t = 512, value_name = "N")]
    pub max_concurrent_reviews: usize,

    /// After SIGTERM: how long calls are still taken, not ready any more, until no client comes here any longer
    #[arg(long, default_value = "5s", value_parser = parse_duration, value_name = "DURATION")]
    pub drain_delay: Duration,

    /// After so long without a scheduler that serves it, the visibility API leads here, where discovery alone is answered, so
    /// that namespaces can be deleted; without this flag never
    #[arg(long, value_parser = parse_duration, value_name = "DURATION", requires = "service")]
    pub park_visibility_after: Option<Duration>,

    /// Name of the webhook's own Service, in --namespace
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,

    /// The authority of the webhook's own certificate, base64 of PEM; without it the API server does not check it there
    #[arg(long, value_name = "BASE64")]
    pub service_ca_bundle: Option<String>,

    /// Log format: text or json
    #[arg(long, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub log_format: LogFormat,

    /// Log filter, such as info or info,sluice_webhook=debug
    #[arg(long, env = "RUST_LOG", default_value = "info", value_name = "FILTER")]
    pub log_filter: String,
}

/// What the process works with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the API server calls.
    pub bind_address: SocketAddr,
    /// Where probes and metrics are served.
    pub health_bind_address: SocketAddr,
    /// The serving certificate.
    pub certificate: CertificateFiles,
    /// The file that was accepted. Nothing in it concerns the webhook so far; it is read so that a file that the scheduler
    /// would refuse stops an upgrade here, while old processes still serve.
    pub configuration: Configuration,
    /// The cluster; see [`Args::kubeconfig`].
    pub kubeconfig: Option<PathBuf>,
    /// Names that the rules need.
    pub settings: Settings,
    /// What a client may ask for.
    pub limits: Limits,
    /// How long calls are still taken after the end was asked for.
    pub drain_delay: Duration,
    /// After how long without a server the visibility API leads here; never if none.
    pub park_visibility: Option<(Duration, StandIn)>,
}

impl Args {
    /// The configuration that flags and file ask for.
    ///
    /// # Errors
    ///
    /// When the configuration file cannot be read or is wrong.
    pub fn into_config(self) -> Result<Config, LoadError> {
        let park_visibility = self.park_visibility_after.zip(self.service).map(|(after, name)| {
            let stand_in = StandIn {
                namespace: self.namespace.clone(),
                name,
                ca_bundle: self.service_ca_bundle,
            };
            (after, stand_in)
        });
        Ok(Config {
            configuration: configuration::load(self.config.as_deref())?,
            bind_address: self.bind_address,
            health_bind_address: self.health_bind_address,
            certificate: CertificateFiles {
                certificate: self.tls_cert_file,
                key: self.tls_private_key_file,
                interval: self.tls_reload_interval,
            },
            kubeconfig: self.kubeconfig,
            settings: Settings {
                own_namespace: self.namespace,
                scheduler_users: BTreeSet::from_iter(self.scheduler_users),
                break_glass_users: BTreeSet::from_iter(self.break_glass_users),
                break_glass_groups: BTreeSet::from_iter(self.break_glass_groups),
            },
            limits: Limits {
                request_timeout: self.request_timeout,
                concurrent_reviews: self.max_concurrent_reviews,
                ..Limits::default()
            },
            drain_delay: self.drain_delay,
            park_visibility,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_hold_together() {
        Args::command().debug_assert();
    }

    #[test]
    fn flags_become_the_configuration() {
        let args = Args::try_parse_from([
            "sluice-webhook",
            "--namespace=sluice-system",
            "--bind-address=127.77.0.5:443",
            "--health-bind-address=127.0.0.1:0",
            "--scheduler-user=a",
            "--scheduler-user=b",
            "--break-glass-group=admins",
            "--drain-delay=250ms",
            "--log-format=json",
        ])
        .unwrap();
        assert_eq!(args.log_format, LogFormat::Json);
        let config = args.into_config().unwrap();
        assert_eq!(config.bind_address, "127.77.0.5:443".parse().unwrap());
        assert_eq!(config.settings.own_namespace, "sluice-system");
        assert_eq!(config.settings.scheduler_users, ["a".to_owned(), "b".to_owned()].into());
        assert_eq!(config.settings.break_glass_groups, ["admins".to_owned()].into());
        assert_eq!(config.drain_delay, Duration::from_millis(250));
        assert_eq!(config.limits.request_timeout, Duration::from_millis(1500));
        assert_eq!(config.park_visibility, None);
    }

    #[test]
    fn whoever_stands_in_for_the_visibility_api_must_say_where_it_is() {
        let config = |flags: &[&str]| {
            let all = [
                &["sluice-webhook", "--namespace=a", "--park-visibility-after=20s"],
                flags,
            ]
            .concat();
            Args::try_parse_from(all).map(|args| args.into_config().unwrap().park_visibility)
        };
        assert!(config(&[]).is_err());
        let (after, stand_in) = config(&["--service=w", "--service-ca-bundle=YWJj"]).unwrap().unwrap();
        assert_eq!(after, Duration::from_secs(20));
        assert_eq!((&*stand_in.namespace, &*stand_in.name), ("a", "w"));
        assert_eq!(stand_in.ca_bundle.as_deref(), Some("YWJj"));
    }

    #[test]
    fn durations_are_written_as_in_go_and_never_negative() {
        let delay =
            |text: &str| Args::try_parse_from(["sluice-webhook", "--namespace=a", &format!("--drain-delay={text}")]);
        assert_eq!(delay("1m30s").unwrap().drain_delay, Duration::from_secs(90));
        assert!(delay("-1s").unwrap_err().to_string().contains("negative"));
        for text in ["soon", "1", "", "inf"] {
            assert!(delay(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_configuration_file_is_read_and_a_wrong_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        let config = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let flag = format!("--config={}", path.display());
            Args::try_parse_from(["sluice-webhook", "--namespace=a", &flag])
                .unwrap()
                .into_config()
        };
        let head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
        assert_eq!(config("").unwrap().configuration, Configuration::default());
        let fair = config(&format!(
            "{head}fairSharing: {{preemptionStrategies: [LessThanInitialShare]}}\n"
        ));
        assert!(fair.unwrap().configuration.fair_sharing.is_some());
        let error = config(&format!("{head}fairShare: {{}}\n")).unwrap_err().to_string();
        assert!(
            error.contains("line 3: fairShare is not known; did you mean fairSharing?"),
            "{error}"
        );
    }
}
