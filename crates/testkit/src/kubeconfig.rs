//! Kubeconfig files of administrators, users and service accounts.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::config::{Config, KubeConfigOptions};
use serde_json::{Value, json};
use sluice_pki::Issued;

/// What a kubeconfig proves who it is with.
#[derive(Debug, Clone)]
pub enum Identity {
    /// A client certificate of the plane's authority.
    Certificate(Issued),
    /// A bearer token, as a service account has one.
    Token(String),
}

/// A kubeconfig file on disk.
#[derive(Debug, Clone)]
pub struct Kubeconfig {
    /// Where the file is.
    pub path: PathBuf,
    server: String,
    authority: String,
    identity: Identity,
}

impl Kubeconfig {
    /// Writes the kubeconfig for `server`, whose certificate `authority` (PEM) signed.
    pub fn write(path: &Path, server: &str, authority: &str, identity: Identity) -> Result<Self> {
        let config = Self {
            path: path.to_owned(),
            server: server.to_owned(),
            authority: authority.to_owned(),
            identity,
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // JSON is YAML too.
        std::fs::write(path, serde_json::to_vec_pretty(&config.content())?)
            .with_context(|| format!("failed to write {}", path.display()))?;
        Ok(config)
    }

    /// The same identity towards another server, such as a fault proxy.
    pub fn through(&self, path: &Path, server: &str, authority: &str) -> Result<Self> {
        Self::write(path, server, authority, self.identity.clone())
    }

    /// A client of this identity, bound to the calling runtime.
    pub async fn client(&self) -> Result<Client> {
        crate::plane::install_crypto_provider();
        let kubeconfig = kube::config::Kubeconfig::read_from(&self.path)?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        // A proxy of the machine must not come between a test and its plane.
        config.proxy_url = None;
        Ok(Client::try_from(config)?)
    }

    fn content(&self) -> Value {
        let user = match &self.identity {
            Identity::Certificate(pair) => json!({
                "client-certificate-data": STANDARD.encode(&pair.certificate),
                "client-key-data": STANDARD.encode(&pair.key),
            }),
            Identity::Token(token) => json!({ "token": token }),
        };
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "plane", "cluster": {
                "server": self.server,
                "certificate-authority-data": STANDARD.encode(&self.authority),
            }}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": "user"}}],
            "current-context": "plane",
        })
    }
}
