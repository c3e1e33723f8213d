//! The client side of the control-plane binary's `supervise` sub-command.
//!
//! It talks from plain threads: a plane is shared by tests whose async runtimes
//! come and go. The supervisor sees its standard input close when this process
//! is gone, whatever ended it, and takes the children with it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use tokio::sync::{oneshot, watch};

use crate::processes::{Exit, Signal};

const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// A program to start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Program {
    /// Name by which the child is signalled later.
    pub(crate) name: String,
    /// Program and arguments.
    pub(crate) argv: Vec<String>,
    /// Variables added to the supervisor's environment.
    pub(crate) env: BTreeMap<String, String>,
    /// File that standard output and error are appended to.
    pub(crate) log: PathBuf,
}

#[derive(Serialize)]
struct Line<'a> {
    id: u64,
    op: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    argv: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    log: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    signal: &'a str,
}

impl<'a> Line<'a> {
    fn new(op: &'a str) -> Self {
        Self {
            id: 0,
            op,
            name: "",
            argv: &[],
            env: Vec::new(),
            log: "",
            signal: "",
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Told {
    Exit {
        exit: String,
        pid: u32,
        code: i32,
        #[serde(default)]
        signal: Option<String>,
    },
    Network {
        network: u8,
    },
    Reply {
        id: u64,
        #[serde(default)]
        pid: u32,
        #[serde(default)]
        error: Option<String>,
    },
}

type Reply = Result<u32, String>;

#[derive(Default)]
struct State {
    waiting: BTreeMap<u64, oneshot::Sender<Reply>>,
    /// Per child: None while it runs, how it ended afterwards.
    children: BTreeMap<String, watch::Sender<Option<Exit>>>,
    next: u64,
    closed: bool,
    detached: bool,
}

pub(crate) struct Supervisor {
    process: Mutex<Child>,
    stdin: Mutex<Option<ChildStdin>>,
    state: Arc<Mutex<State>>,
    network: u8,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of another test must not hide behind a poisoned lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Supervisor {
    /// Starts a supervisor that owns `root` and removes it at the end.
    pub(crate) fn start(binary: &Path, root: &Path) -> Result<Self> {
        let mut process = Command::new(binary)
            .arg("supervise")
            .arg("--root")
            .arg(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C in a terminal reaches the test's group; the supervisor learns of
            // its end by stdin and must not die before the children.
            .process_group(0)
            .spawn()
            .with_context(|| format!("failed to start {}", binary.display()))?;
        let stdin = process.stdin.take();
        let stdout = process.stdout.take().context("the supervisor has no standard output")?;
        let state = Arc::new(Mutex::new(State::default()));
        let mut lines = BufReader::new(stdout);
        let network = first_line(&mut lines)?;
        let told = Arc::clone(&state);
        std::thread::Builder::new()
            .name("supervisor".to_owned())
            .spawn(move || listen(lines, &told))
            .context("failed to start a thread")?;
        Ok(Self {
            process: Mutex::new(process),
            stdin: Mutex::new(stdin),
            state,
            network,
        })
    }

    /// The number of the plane, unique on this machine while the supervisor runs.
    pub(crate) fn network(&self) -> u8 {
        self.network
    }

    /// Process id of the supervisor itself.
    pub(crate) fn pid(&self) -> u32 {
        lock(&self.process).id()
    }

    /// Starts `program`; returns its process id.
    pub(crate) async fn spawn(&self, program: &Program) -> Result<u32> {
        {
            let children = &mut lock(&self.state).children;
            if children
                .get(&program.name)
                .is_some_and(|child| child.borrow().is_none())
            {
                bail!("{} runs already", program.name);
            }
            // Registered first: a child may end before the reply is read.
            children.insert(program.name.clone(), watch::Sender::new(None));
        }
        let line = Line {
            name: &program.name,
            argv: &program.argv,
            env: program
                .env
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect(),
            log: program.log.to_str().context("the log's path is not UTF-8")?,
            ..Line::new("start")
        };
        let started = self.ask(line).await;
        if started.is_err() {
            lock(&self.state).children.remove(&program.name);
        }
        started.with_context(|| format!("failed to start {}", program.name))
    }

    /// Sends `signal` to the process group of the child `name`.
    pub(crate) async fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let line = Line {
            name,
            signal: signal.name(),
            ..Line::new("signal")
        };
        self.ask(line)
            .await
            .with_context(|| format!("failed to signal {name}"))
            .map(drop)
    }

    /// Leaves the folder behind when the plane ends.
    pub(crate) async fn keep(&self) -> Result<()> {
        self.ask(Line::new("keep")).await.map(drop)
    }

    /// Lets the plane outlive this process; SIGTERM to the supervisor ends it.
    pub(crate) async fn detach(&self) -> Result<()> {
        self.ask(Line::new("detach")).await?;
        lock(&self.state).detached = true;
        Ok(())
    }

    /// How the child ended, None while it runs; None too for a name never started.
    pub(crate) fn exit(&self, name: &str) -> Option<Exit> {
        lock(&self.state)
            .children
            .get(name)
            .and_then(|child| child.borrow().clone())
    }

    /// Waits until the child is gone.
    pub(crate) async fn wait_exit(&self, name: &str, timeout: Duration) -> Result<Exit> {
        let mut exit = lock(&self.state)
            .children
            .get(name)
            .with_context(|| format!("no child was ever named {name}"))?
            .subscribe();
        let gone = tokio::time::timeout(timeout, exit.wait_for(Option::is_some))
            .await
            .with_context(|| format!("{name} still runs after {timeout:?}"))?
            .context("the supervisor is gone")?;
        gone.clone().with_context(|| format!("{name} ended without a status"))
    }

    /// Closes the supervisor's standard input and waits until children and folder are gone.
    pub(crate) fn shut_down(&self) -> Result<()> {
        if lock(&self.state).detached {
            bail!("the plane is detached; end it with: kill {}", self.pid());
        }
        drop(lock(&self.stdin).take());
        let status = lock(&self.process)
            .wait()
            .context("failed to wait for the supervisor")?;
        if !status.success() {
            bail!("the supervisor ended with {status}");
        }
        Ok(())
    }

    async fn ask(&self, mut line: Line<'_>) -> Result<u32> {
        let (tell, told) = oneshot::channel();
        {
            let mut state = lock(&self.state);
            if state.closed {
                bail!("the supervisor is gone");
            }
            state.next += 1;
            line.id = state.next;
            state.waiting.insert(line.id, tell);
        }
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        lock(&self.stdin)
            .as_mut()
            .context("the plane is shut down")?
            .write_all(&bytes)
            .context("failed to write to the supervisor")?;
        tokio::time::timeout(REPLY_TIMEOUT, told)
            .await
            .context("the supervisor does not answer")?
            .context("the supervisor is gone")?
            .map_err(|error| anyhow!(error))
    }
}

fn first_line(lines: &mut BufReader<ChildStdout>) -> Result<u8> {
    let mut line = String::new();
    lines
        .read_line(&mut line)
        .context("failed to read from the supervisor")?;
    match serde_json::from_str(&line) {
        Ok(Told::Network { network }) => Ok(network),
        _ => bail!("the supervisor did not start: {line:?}"),
    }
}

fn listen(lines: BufReader<ChildStdout>, state: &Mutex<State>) {
    for line in lines.lines() {
        let Ok(line) = line else { break };
        let mut state = lock(state);
        match serde_json::from_str(&line) {
            Ok(Told::Exit {
                exit,
                pid,
                code,
                signal,
            }) => {
                if let Some(child) = state.children.get(&exit) {
                    child.send_replace(Some(Exit {
                        pid,
                        code,
                        signal: signal.filter(|name| !name.is_empty()),
                    }));
                }
            }
            Ok(Told::Reply { id, pid, error }) => {
                if let Some(waiting) = state.waiting.remove(&id) {
                    // The asker may have given up.
                    let _ = waiting.send(error.map_or(Ok(pid), Err));
                }
            }
            Ok(Told::Network { .. }) | Err(_) => {}
        }
    }
    let mut state = lock(state);
    state.closed = true;
    state.waiting.clear();
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // The supervisor finishes on its own, or stays because it is detached; a drop has nobody to report to.
        let _ = self.shut_down();
    }
}
