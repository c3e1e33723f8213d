//! The chart, rendered by the real helm.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::process::Command;

use crate::binaries::{ControlPlaneBinaries, repository};

/// Name of the release.
pub(crate) const RELEASE: &str = "sluice";
/// Namespace of the release.
pub(crate) const NAMESPACE: &str = "sluice-system";

/// The objects of a release.
#[derive(Debug, Clone)]
pub struct Chart {
    objects: Vec<Value>,
}

/// A container of one of the chart's Deployments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// `command` and `args`.
    pub argv: Vec<String>,
    /// Variables with a plain value.
    pub env: Vec<(String, String)>,
    /// Variables taken from a field of the pod: name and field path.
    pub fields: Vec<(String, String)>,
    /// Service account of its pod.
    pub service_account: String,
    /// `spec.replicas` of its Deployment.
    pub replicas: u64,
}

impl Chart {
    /// `helm template` of charts/sluice with `values`, as `sluice` in `sluice-system`.
    pub async fn render(binaries: &ControlPlaneBinaries, values: &Value, scratch: &Path) -> Result<Self> {
        let file = scratch.join("values.json");
        std::fs::write(&file, serde_json::to_vec_pretty(values)?)?;
        let output = Command::new(binaries.helm())
            .args(["template", RELEASE])
            .arg(repository().join("charts/sluice"))
            .args([
                "--namespace",
                NAMESPACE,
                "--include-crds",
                "--kube-version",
                "1.36.3",
                "--values",
            ])
            .arg(&file)
            .env("HOME", scratch)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("failed to run helm")?;
        if !output.status.success() {
            bail!("helm template failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Self::parse(&String::from_utf8(output.stdout)?)
    }

    fn parse(manifests: &str) -> Result<Self> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(manifests).map_err(|error| anyhow::anyhow!("unreadable chart: {error}"))?;
        Ok(Self {
            objects: documents.into_iter().filter(Value::is_object).collect(),
        })
    }

    /// Every object, in helm's order of installation.
    pub fn objects(&self) -> &[Value] {
        &self.objects
    }

    /// Objects of a kind.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// Names of the objects of a kind.
    pub fn names(&self, kind: &str) -> Vec<String> {
        self.of_kind(kind)
            .filter_map(|object| object["metadata"]["name"].as_str())
            .map(str::to_owned)
            .collect()
    }

    /// The container `name`, of whichever Deployment has it.
    pub fn container(&self, name: &str) -> Result<Container> {
        for deployment in self.of_kind("Deployment") {
            let pod = &deployment["spec"]["template"]["spec"];
            let containers = pod["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
            let Some(container) = containers.iter().find(|container| container["name"] == name) else {
                continue;
            };
            let env = container["env"].as_array().map(Vec::as_slice).unwrap_or_default();
            let pairs = |value: fn(&Value) -> Option<&str>| {
                env.iter()
                    .filter_map(|variable| Some((variable["name"].as_str()?.to_owned(), value(variable)?.to_owned())))
                    .collect()
            };
            return Ok(Container {
                argv: [&container["command"], &container["args"]]
                    .into_iter()
                    .flat_map(strings)
                    .collect(),
                env: pairs(|variable| variable["value"].as_str()),
                fields: pairs(|variable| variable["valueFrom"]["fieldRef"]["fieldPath"].as_str()),
                service_account: pod["serviceAccountName"].as_str().unwrap_or("default").to_owned(),
                replicas: deployment["spec"]["replicas"].as_u64().unwrap_or(1),
            });
        }
        bail!("the chart has no container named {name}")
    }
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}
