//! helm and what it installs, for tests of the chart itself.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use sluice_testkit::{ControlPlaneBinaries, Kubeconfig, Plane, repository};
use tokio::process::Command;

/// The Kubernetes version that `helm template` renders for.
const KUBE_VERSION: &str = "1.36.3";

/// helm, with or without a cluster.
pub(crate) struct Helm {
    program: PathBuf,
    environment: Vec<(&'static str, PathBuf)>,
}

/// What helm said.
pub(crate) struct HelmOutput {
    pub(crate) succeeded: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl HelmOutput {
    pub(crate) fn ok(self) -> Result<String> {
        if !self.succeeded {
            bail!("helm failed: {}{}", self.stderr, self.stdout);
        }
        Ok(self.stdout)
    }

    pub(crate) fn refused(self) -> Result<String> {
        if self.succeeded {
            bail!("helm did not refuse: {}", self.stdout);
        }
        Ok(self.stderr)
    }
}

impl Helm {
    /// helm for rendering alone.
    pub(crate) async fn offline() -> Result<Self> {
        let program = ControlPlaneBinaries::locate().await?.helm();
        let home = std::env::temp_dir();
        Ok(Self {
            program,
            environment: vec![("HOME", home), ("KUBECONFIG", PathBuf::from("/dev/null"))],
        })
    }

    /// helm as the administrator of `plane`.
    pub(crate) fn of(plane: &Plane) -> Self {
        Self {
            program: plane.binaries().helm(),
            environment: vec![
                ("HOME", plane.folder().join("home")),
                ("KUBECONFIG", plane.admin().path.clone()),
            ],
        }
    }

    /// Runs helm with `arguments`, in the folder of the charts.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Result<HelmOutput> {
        let output = Command::new(&self.program)
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(repository().join("charts"))
            .kill_on_drop(true)
            .output()
            .await
            .context("failed to run helm")?;
        Ok(HelmOutput {
            succeeded: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// The rendered manifest of release `name` in `namespace` with these `--set` values.
    pub(crate) async fn manifest(&self, name: &str, namespace: &str, values: &[&str]) -> Result<HelmOutput> {
        let mut arguments = vec![
            "template",
            name,
            "sluice",
            "--namespace",
            namespace,
            "--kube-version",
            KUBE_VERSION,
        ];
        arguments.extend(values.iter().flat_map(|value| ["--set", value]));
        self.run(&arguments).await
    }

    /// The rendered objects of release `name` in `namespace` with these `--set` values.
    pub(crate) async fn render(&self, name: &str, namespace: &str, values: &[&str]) -> Result<Vec<Value>> {
        objects(&self.manifest(name, namespace, values).await?.ok()?)
    }

    /// Lints the chart, warnings being errors.
    pub(crate) async fn lint(&self) -> Result<HelmOutput> {
        self.run(&["lint", "--strict", "--kube-version", KUBE_VERSION, "sluice"])
            .await
    }
}

/// The objects of a manifest of several YAML documents.
pub(crate) fn objects(manifest: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(manifest).context("the manifest is no YAML")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// The one object of this kind and name.
pub(crate) fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> Result<&'a Value> {
    let found: Vec<&Value> = objects
        .iter()
        .filter(|object| object["kind"] == kind && object["metadata"]["name"] == name)
        .collect();
    match found[..] {
        [one] => Ok(one),
        _ => bail!("{} objects are a {kind} named {name}", found.len()),
    }
}

/// The service account that the scheduler of release `sluice` runs as when it stands alone.
pub(crate) async fn scheduler_account(plane: &Plane, namespace: &str) -> Result<Kubeconfig> {
    plane.service_account(namespace, "sluice-scheduler").await
}
