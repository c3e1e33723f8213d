//! One control plane: its folder, its network, its processes.

mod components;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use sluice_pki::Authority;

use crate::audit::Audit;
use crate::binaries::ControlPlaneBinaries;
use crate::certificates;
use crate::kubeconfig::{Identity, Kubeconfig};
use crate::kubectl::Kubectl;
use crate::nodes::FakeNode;
use crate::processes::{Exit, Signal};
use crate::supervisor::{Program, Supervisor};
use crate::wait::eventually;

const START_TIMEOUT: Duration = Duration::from_secs(90);

/// What a plane has beyond etcd and the API server.
#[derive(Debug, Clone)]
pub struct PlaneOptions {
    /// Fake nodes. With any, kube-scheduler binds pods and kwok runs them.
    pub nodes: Vec<FakeNode>,
    /// The controllers of a batch cluster.
    pub controllers: bool,
    /// More controllers, by the names kube-controller-manager knows.
    pub more_controllers: Vec<String>,
    /// Feature gates of every Kubernetes component.
    pub feature_gates: BTreeMap<String, bool>,
    /// More arguments of the API server.
    pub apiserver_arguments: Vec<String>,
    /// Leave folder and logs behind; the variable `SLUICE_TESTKIT_KEEP` does the same.
    pub keep_folder: bool,
}

impl Default for PlaneOptions {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            controllers: true,
            more_controllers: Vec::new(),
            feature_gates: BTreeMap::new(),
            apiserver_arguments: Vec::new(),
            keep_folder: std::env::var_os("SLUICE_TESTKIT_KEEP").is_some(),
        }
    }
}

impl PlaneOptions {
    /// Controllers and three large fake nodes.
    pub fn with_nodes() -> Self {
        Self {
            nodes: FakeNode::several(3),
            ..Self::default()
        }
    }
}

/// A running control plane.
///
/// Dropping it ends every process and removes the folder; so does the end of this process.
pub struct Plane {
    root: PathBuf,
    supervisor: Supervisor,
    binaries: ControlPlaneBinaries,
    authority: Authority,
    admin: Kubeconfig,
    programs: Mutex<BTreeMap<String, Program>>,
    next_port: AtomicU16,
    kept: bool,
}

/// rustls needs one process-wide provider; the first caller wins.
pub(crate) fn install_crypto_provider() {
    // An error says that a provider is there already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

impl Plane {
    /// Starts a plane and waits until it serves, its controllers act and its nodes run pods.
    pub async fn start(options: PlaneOptions) -> Result<Self> {
        install_crypto_provider();
        let binaries = ControlPlaneBinaries::locate().await?;
        let root = tempfile::Builder::new().prefix("sluice-plane-").tempdir()?.keep();
        for folder in ["logs", "pki", "kubeconfigs", "home"] {
            std::fs::create_dir_all(root.join(folder))?;
        }
        let supervisor = match Supervisor::start(&binaries.control_plane(), &root) {
            Ok(supervisor) => supervisor,
            Err(error) => {
                // Nobody else would remove it; the first error is the one to tell.
                let _ = std::fs::remove_dir_all(&root);
                return Err(error);
            }
        };
        let authority = certificates::authority("sluice-plane")?;
        let server = format!("https://{}", address(supervisor.network(), 6443));
        let admin = Kubeconfig::write(
            &root.join("kubeconfigs/admin"),
            &server,
            authority.certificate(),
            Identity::Certificate(certificates::client(
                &authority,
                "kubernetes-admin",
                &["system:masters"],
            )?),
        )?;
        let plane = Self {
            root,
            supervisor,
            binaries,
            authority,
            admin,
            programs: Mutex::default(),
            next_port: AtomicU16::new(20_000),
            kept: options.keep_folder,
        };
        if options.keep_folder {
            plane.supervisor.keep().await?;
        }
        if let Err(error) = plane.bring_up(&options).await {
            let tails = plane.log_tails(15);
            return Err(error.context(format!("the control plane did not start\n{tails}")));
        }
        Ok(plane)
    }

    async fn bring_up(&self, options: &PlaneOptions) -> Result<()> {
        self.write_pki()?;
        let client = self.client().await?;
        self.start_program(self.etcd()).await?;
        self.start_program(self.apiserver(options)).await?;
        self.until_ready(&client).await?;
        if options.controllers {
            self.start_program(self.controller_manager(options)?).await?;
        }
        if !options.nodes.is_empty() {
            self.start_program(self.scheduler(options)?).await?;
            self.start_program(self.kwok()?).await?;
            self.add_nodes(&options.nodes).await?;
        }
        if options.controllers {
            self.probe_controllers(&client, !options.nodes.is_empty()).await?;
        }
        Ok(())
    }

    /// Folder of the plane: `logs/`, `kubeconfigs/`, `pki/`.
    pub fn folder(&self) -> &Path {
        &self.root
    }

    /// Number of the plane's network, unique on this machine.
    pub fn network(&self) -> u8 {
        self.supervisor.network()
    }

    /// `https://` address of the API server.
    pub fn server(&self) -> String {
        format!("https://{}", address(self.network(), 6443))
    }

    /// The authority that signed the API server's certificate and client certificates.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The administrator's kubeconfig.
    pub fn admin(&self) -> &Kubeconfig {
        &self.admin
    }

    /// An administrator's client, bound to the calling runtime: make one in each test.
    pub async fn client(&self) -> Result<Client> {
        self.admin.client().await
    }

    /// kubectl as administrator.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl {
            argv: self.binaries.argv("kubectl"),
            kubeconfig: self.admin.path.clone(),
            home: self.root.join("home"),
        }
    }

    /// The programs of the plane.
    pub fn binaries(&self) -> &ControlPlaneBinaries {
        &self.binaries
    }

    /// The API server's audit log.
    pub fn audit(&self) -> Audit {
        Audit::new(self.root.join("audit.log"))
    }

    /// A loopback address that nobody else uses while the plane runs.
    pub fn free_address(&self) -> SocketAddr {
        address(self.network(), self.next_port.fetch_add(1, Ordering::Relaxed))
    }

    /// A kubeconfig for a user with a client certificate, as a person has one.
    pub fn user(&self, user: &str, groups: &[&str]) -> Result<Kubeconfig> {
        Kubeconfig::write(
            &self.root.join("kubeconfigs").join(user.replace([':', '/'], "_")),
            &self.server(),
            self.authority.certificate(),
            Identity::Certificate(certificates::client(&self.authority, user, groups)?),
        )
    }

    /// A kubeconfig for a service account that exists, with a token of its own.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Kubeconfig> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, namespace);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(86_400),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let token = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("failed to get a token for {namespace}/{name}"))?
            .status
            .and_then(|status| status.token)
            .context("the answer to a token request has no token")?;
        Kubeconfig::write(
            &self.root.join("kubeconfigs").join(format!("{namespace}_{name}")),
            &self.server(),
            self.authority.certificate(),
            Identity::Token(token),
        )
    }

    /// Adds fake nodes to a plane that was started with some.
    pub async fn add_nodes(&self, nodes: &[FakeNode]) -> Result<()> {
        let api: Api<Node> = Api::all(self.client().await?);
        for node in nodes {
            api.create(&PostParams::default(), &serde_json::from_value(node.object())?)
                .await
                .with_context(|| format!("failed to create node {}", node.name))?;
        }
        Ok(())
    }

    /// Starts any program under the supervisor; its output goes to `logs/NAME.log`.
    pub async fn start_process(&self, name: &str, argv: &[String], env: &BTreeMap<String, String>) -> Result<u32> {
        let program = Program {
            argv: argv.to_vec(),
            env: env.clone(),
            ..self.program(name)
        };
        self.start_program(program).await
    }

    /// Sends a signal to a child's process group.
    pub async fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        self.supervisor.signal(name, signal).await
    }

    /// SIGKILL, and waits until the child is gone.
    pub async fn kill(&self, name: &str) -> Result<Exit> {
        self.signal(name, Signal::Kill).await?;
        self.wait_exit(name, Duration::from_secs(10)).await
    }

    /// Waits until the child is gone.
    pub async fn wait_exit(&self, name: &str, timeout: Duration) -> Result<Exit> {
        self.supervisor.wait_exit(name, timeout).await
    }

    /// How the child ended, None while it runs.
    pub fn exit(&self, name: &str) -> Option<Exit> {
        self.supervisor.exit(name)
    }

    /// Starts a child again as it was started, after its end.
    pub async fn restart(&self, name: &str) -> Result<u32> {
        let program = self
            .programs()
            .get(name)
            .cloned()
            .with_context(|| format!("no child was ever named {name}"))?;
        self.supervisor.spawn(&program).await
    }

    /// Where the output of a child goes.
    pub fn log(&self, name: &str) -> PathBuf {
        self.root.join("logs").join(format!("{name}.log"))
    }

    /// Up to `lines` lines of every log, for the message of a failing test: first what ended, by its error; then the ends
    /// of the others.
    pub fn log_tails(&self, lines: usize) -> String {
        let names: Vec<String> = self.programs().keys().cloned().collect();
        let (ended, running): (Vec<_>, Vec<_>) = names.iter().partition(|name| self.exit(name).is_some());
        let mut tails = String::new();
        for (names, part) in [(ended, last_words as fn(&str, usize) -> String), (running, tail)] {
            for name in names {
                let log = std::fs::read_to_string(self.log(name)).unwrap_or_default();
                let _ = writeln!(tails, "--- {name}\n{}", part(&log, lines));
            }
        }
        if self.kept {
            let _ = writeln!(tails, "--- all logs are in {}", self.root.join("logs").display());
        } else {
            tails.push_str("--- the logs go with the plane; SLUICE_TESTKIT_KEEP=1 keeps them\n");
        }
        tails
    }

    /// Lets the plane run on after this process; `kill PID` of the returned supervisor ends it.
    pub async fn detach(&self) -> Result<u32> {
        self.supervisor.detach().await?;
        Ok(self.supervisor.pid())
    }

    /// Ends every process and removes the folder.
    pub fn shut_down(&self) -> Result<()> {
        self.supervisor.shut_down()
    }

    pub(crate) async fn start_program(&self, program: Program) -> Result<u32> {
        self.programs().insert(program.name.clone(), program.clone());
        self.supervisor.spawn(&program).await
    }

    pub(crate) fn program(&self, name: &str) -> Program {
        Program {
            name: name.to_owned(),
            log: self.log(name),
            ..Program::default()
        }
    }

    fn programs(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Program>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until_ready(&self, client: &Client) -> Result<()> {
        eventually("the API server is ready", START_TIMEOUT, || async {
            if let Some(ended) = self.ended() {
                return Ok(Err(ended));
            }
            let request = http::Request::get("/readyz").body(Vec::new())?;
            client.request_text(request).await?;
            anyhow::Ok(Ok(()))
        })
        .await?
        .map_err(|ended| anyhow!("{ended} ended"))
    }

    /// A program of the plane that does not run any more.
    fn ended(&self) -> Option<String> {
        self.programs().keys().find(|name| self.exit(name).is_some()).cloned()
    }

    /// A Job that must be acted on: by the Job controller at least, by scheduler and nodes if there are any.
    async fn probe_controllers(&self, client: &Client, runs: bool) -> Result<()> {
        let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
        let probe: Job = serde_json::from_value(json!({
            "metadata": {"name": "testkit-probe"},
            "spec": {
                "suspend": !runs,
                "template": {"spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "probe", "image": "probe"}],
                }},
            },
        }))?;
        eventually("a Job can be created", START_TIMEOUT, || async {
            match jobs.create(&PostParams::default(), &probe).await {
                Err(error) if !is_conflict(&error) => Err(error),
                _ => Ok(()),
            }
        })
        .await?;
        let wanted = if runs { "Complete" } else { "Suspended" };
        eventually(&format!("the probing Job is {wanted}"), START_TIMEOUT, || async {
            if let Some(ended) = self.ended() {
                return Ok(Err(ended));
            }
            let job = jobs.get("testkit-probe").await?;
            let conditions = job.status.and_then(|status| status.conditions).unwrap_or_default();
            let reached = conditions
                .iter()
                .any(|condition| condition.type_ == wanted && condition.status == "True");
            if reached {
                Ok(Ok(()))
            } else {
                bail!("conditions are {conditions:?}")
            }
        })
        .await?
        .map_err(|ended| anyhow!("{ended} ended"))?;
        jobs.delete("testkit-probe", &DeleteParams::background()).await?;
        eventually("the probing Job is gone", START_TIMEOUT, || async {
            match jobs.get_opt("testkit-probe").await? {
                None => Ok(()),
                Some(job) => bail!("{} is still there", job.name_any()),
            }
        })
        .await
    }
}

/// The last lines of a log.
fn tail(log: &str, lines: usize) -> String {
    let all: Vec<&str> = log.lines().collect();
    let begin = all.len().saturating_sub(lines);
    all.get(begin..).unwrap_or_default().join("\n")
}

/// What a program said as it ended: its last error from the first line on, if it told one, else its last lines.
fn last_words(log: &str, lines: usize) -> String {
    let all: Vec<&str> = log.lines().collect();
    let begins = |line: &&str| line.starts_with("Error: ") || line.contains("panicked at");
    match all.iter().rposition(begins).and_then(|begin| all.get(begin..)) {
        Some(error) => error.iter().take(lines).copied().collect::<Vec<_>>().join("\n"),
        None => tail(log, lines),
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Address of a process of plane `network`.
fn address(network: u8, port: u16) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(127, 78, network, 1), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_a_program_begin_with_its_error() {
        let log = "up\nError: first\nup again\nthread 'main' panicked at x.rs:1\nwhy\n0: frame\n1: frame\n";
        assert_eq!(last_words(log, 2), "thread 'main' panicked at x.rs:1\nwhy");
        assert_eq!(
            last_words("a\nError: b\n\nCaused by:\n    c\n", 9),
            "Error: b\n\nCaused by:\n    c"
        );
        assert_eq!(last_words("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a\n", 2), "a");
    }
}
