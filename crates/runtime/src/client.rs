//! Connections to the API server: one client for watches, one for writes, one for each lease holder.
//!
//! Clients never share a connection pool, so that a burst of admissions cannot hold up the renewal of a lease.
//! None of them retries: a repeated write is the business of whoever decided on it, since only that
//! caller knows whether the decision still stands, and [`watch`](crate::watch) has its own back-off. (kube's
//! `default_retry` repeats 429, 503 and 504 up to 15 times over minutes.) kube speaks HTTP/1.1 only: one request in
//! flight is one connection, and finished connections wait in an unbounded pool to be used again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::header::USER_AGENT;
use http::{HeaderValue, Request, Uri};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

/// How long connecting (TCP) may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A peer that vanished without a word is noticed after about this, twice.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Shorter than the 90 s after which the API server closes an idle connection, or a write could be sent
/// into a connection that is being closed and its outcome be unknown for nothing.
const POOL_IDLE: Duration = Duration::from_secs(60);
/// Longer than the API server's own limit for a list (`--request-timeout`, 60 s).
const WATCH_RESPONSE: Duration = Duration::from_secs(65);

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The kubeconfig file cannot be read or used.
    #[error("failed to load the kubeconfig {path:?}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: kube::config::KubeconfigError,
    },
    /// `KUBECONFIG` is set and does not lead to a usable configuration.
    #[error("failed to load the kubeconfig named by KUBECONFIG")]
    Environment(#[source] kube::config::KubeconfigError),
    /// Neither a kubeconfig nor a pod's service account is there.
    #[error("failed to find a cluster: no --kubeconfig, no KUBECONFIG, and not in a pod")]
    InCluster(#[source] kube::config::InClusterError),
    /// The configuration asks for a proxy.
    #[error("failed to make a client: proxies are not supported (proxy-url {0})")]
    Proxy(Uri),
    /// The user agent is no valid header value.
    #[error("failed to use {0:?} as a user agent")]
    UserAgent(String),
    /// Certificates or credentials of the configuration cannot be used.
    #[error("failed to make a client")]
    Client(#[source] kube::Error),
}

/// Makes [`ring`](rustls::crypto::ring) the process's crypto provider; calling it again changes nothing.
pub fn install_crypto() {
    // An error means that a provider is installed already, and the tree contains no other.
    let _installed = rustls::crypto::ring::default_provider().install_default();
}

/// One cluster and identity, from which clients are made.
#[derive(Clone, Debug)]
pub struct Clients {
    config: Config,
}

impl Clients {
    /// Finds the cluster: the `kubeconfig` file if one is given, else `KUBECONFIG`, else the pod's service account.
    ///
    /// `user_agent` is what audit logs show, such as `sluice-scheduler/0.1.0`.
    ///
    /// # Errors
    ///
    /// No usable configuration, or one that needs a proxy.
    pub async fn load(kubeconfig: Option<&Path>, user_agent: &str) -> Result<Self, ClientError> {
        let options = KubeConfigOptions::default();
        let config = if let Some(path) = kubeconfig {
            let named = |source| ClientError::Kubeconfig {
                path: path.to_owned(),
                source,
            };
            let file = Kubeconfig::read_from(path).map_err(named)?;
            Config::from_custom_kubeconfig(file, &options).await.map_err(named)?
        } else if std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty()) {
            Config::from_kubeconfig(&options)
                .await
                .map_err(ClientError::Environment)?
        } else {
            Config::incluster().map_err(ClientError::InCluster)?
        };
        Self::new(config, user_agent)
    }

    /// Clients of a configuration made elsewhere.
    ///
    /// # Errors
    ///
    /// A configuration that needs a proxy, or a user agent that is no header value.
    pub fn new(mut config: Config, user_agent: &str) -> Result<Self, ClientError> {
        install_crypto();
        if let Some(proxy) = config.proxy_url.take() {
            return Err(ClientError::Proxy(proxy));
        }
        let value = HeaderValue::from_str(user_agent).map_err(|_| ClientError::UserAgent(user_agent.to_owned()))?;
        config.headers.push((USER_AGENT, value));
        Ok(Self { config })
    }

    /// Namespace of the pod, or of the kubeconfig's context; `default` if neither says.
    pub fn namespace(&self) -> &str {
        &self.config.default_namespace
    }

    /// The client for watches and lists: answers may take as long as the API server allows a list to take.
    ///
    /// Streaming lists through it are consistent: see [`consistent_streaming_list`].
    ///
    /// # Errors
    ///
    /// Unusable certificates or credentials.
    pub fn watch(&self) -> Result<Client, ClientError> {
        self.client(WATCH_RESPONSE)
    }

    /// A client whose every request ends within `timeout`, connecting included: for writes, leases and single reads.
    ///
    /// The timeout ends at the head of the answer; wrap the call in [`tokio::time::timeout`] where the body must
    /// count too. Call it once for each purpose: every call makes a connection pool of its own.
    ///
    /// # Errors
    ///
    /// Unusable certificates or credentials.
    pub fn write(&self, timeout: Duration) -> Result<Client, ClientError> {
        self.client(timeout)
    }

    fn client(&self, response_timeout: Duration) -> Result<Client, ClientError> {
        let config = &self.config;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // A guarded patch is several TLS records: with Nagle's algorithm the last one could wait for an acknowledgement.
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT.min(response_timeout)));
        tcp.set_keepalive(Some(KEEPALIVE));
        tcp.set_keepalive_interval(Some(KEEPALIVE / 3));
        tcp.set_keepalive_retries(Some(3));
        let tls = config
            .rustls_https_connector_with_connector(tcp)
            .map_err(ClientError::Client)?;
        let connections = HttpClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_max_idle_per_host(usize::MAX)
            .build::<_, Body>(tls);
        let service = ServiceBuilder::new()
            .map_request(consistent_streaming_list)
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer().map_err(ClientError::Client)?)
            .layer(config.extra_headers_layer().map_err(ClientError::Client)?)
            .map_err(BoxError::from)
            .timeout(response_timeout)
            .service(connections);
        Ok(Client::new(service, config.default_namespace.clone()))
    }
}

/// Asks for the most recent state where kube asks for any.
///
/// kube's watcher starts a streaming list at `resourceVersion=0`: "any version", which a lagging API server of
/// several may serve from a cache of minutes ago, so that a relist could go back in time. With an empty
/// version the API server first brings its cache up to what etcd holds (as client-go's reflector asks).
pub fn consistent_streaming_list<B>(mut request: Request<B>) -> Request<B> {
    let rewritten = request.uri().query().and_then(|query| {
        let pairs: Vec<&str> = query.split('&').collect();
        let streaming = pairs.contains(&"sendInitialEvents=true");
        (streaming && pairs.contains(&"resourceVersion=0")).then(|| {
            let kept: Vec<&str> = pairs.into_iter().filter(|pair| *pair != "resourceVersion=0").collect();
            format!("{}?{}", request.uri().path(), kept.join("&"))
        })
    });
    if let Some(path_and_query) = rewritten.and_then(|text| text.parse().ok()) {
        let mut parts = request.uri().clone().into_parts();
        parts.path_and_query = Some(path_and_query);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
