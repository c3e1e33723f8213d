//! The plane's own kubectl, never the one in PATH.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Runs kubectl as one identity.
#[derive(Debug, Clone)]
pub struct Kubectl {
    pub(crate) argv: Vec<String>,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) home: PathBuf,
}

/// What kubectl said.
#[derive(Debug, Clone)]
pub struct KubectlOutput {
    /// The arguments it was given.
    pub arguments: String,
    /// Exit code; -1 when a signal ended it.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error; the API server's warnings are here.
    pub stderr: String,
}

impl KubectlOutput {
    /// Whether the exit code is 0.
    pub fn succeeded(&self) -> bool {
        self.code == 0
    }

    /// Standard output of a kubectl that must have succeeded.
    pub fn ok(self) -> Result<String> {
        if self.succeeded() {
            return Ok(self.stdout);
        }
        bail!(
            "kubectl {} ended with {}: {}{}",
            self.arguments,
            self.code,
            self.stderr,
            self.stdout
        )
    }

    /// Standard error of a kubectl that must have been refused.
    pub fn refused(self) -> Result<String> {
        if !self.succeeded() {
            return Ok(self.stderr);
        }
        bail!("kubectl {} was not refused: {}", self.arguments, self.stdout)
    }

    /// Standard output, read as JSON, of a kubectl that must have succeeded.
    pub fn json(self) -> Result<Value> {
        let text = self.ok()?;
        serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))
    }
}

impl Kubectl {
    /// Runs kubectl with `arguments`, feeding it `stdin`.
    ///
    /// The error is about starting it; what it answered, a refusal too, is in the output.
    pub async fn run<S: AsRef<str>>(&self, arguments: &[S], stdin: &str) -> Result<KubectlOutput> {
        let mut command = self.command(arguments)?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().context("failed to start kubectl")?;
        if let Some(mut pipe) = child.stdin.take() {
            // It may end without reading; its exit code tells the rest.
            let _ = pipe.write_all(stdin.as_bytes()).await;
        }
        let output = child.wait_with_output().await.context("failed to wait for kubectl")?;
        Ok(KubectlOutput {
            arguments: join(arguments),
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// `run` for a line of arguments without quoting: `kubectl.line("get jobs -n a")`.
    pub async fn line(&self, arguments: &str) -> Result<KubectlOutput> {
        self.run(&arguments.split_whitespace().collect::<Vec<_>>(), "").await
    }

    /// `kubectl apply -f -` of `manifest` (YAML or JSON); must succeed.
    pub async fn apply(&self, manifest: &str) -> Result<String> {
        self.run(&["apply", "-f", "-"], manifest).await?.ok()
    }

    /// `kubectl create -f -` of `manifest` (YAML or JSON); must succeed.
    pub async fn create(&self, manifest: &str) -> Result<String> {
        self.run(&["create", "-f", "-"], manifest).await?.ok()
    }

    /// `kubectl get ARGUMENTS -o json`; must succeed.
    pub async fn get(&self, arguments: &str) -> Result<Value> {
        self.line(&format!("get {arguments} -o json")).await?.json()
    }

    /// A line for a shell, after which `kubectl` is this one.
    pub fn alias(&self) -> String {
        format!("alias kubectl='{}'", self.argv.join(" "))
    }

    /// The same kubectl as another identity.
    #[must_use]
    pub fn with(&self, kubeconfig: &Path) -> Self {
        Self {
            kubeconfig: kubeconfig.to_owned(),
            ..self.clone()
        }
    }

    fn command<S: AsRef<str>>(&self, arguments: &[S]) -> Result<Command> {
        let (program, first) = self.argv.split_first().context("no kubectl")?;
        let mut command = Command::new(program);
        command
            .args(first)
            .args(arguments.iter().map(AsRef::as_ref))
            .env("KUBECONFIG", &self.kubeconfig)
            // Discovery cache and preferences of the machine's user stay out.
            .env("HOME", &self.home)
            .kill_on_drop(true);
        Ok(command)
    }
}

fn join<S: AsRef<str>>(arguments: &[S]) -> String {
    arguments.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" ")
}
