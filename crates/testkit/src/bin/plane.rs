//! Holds a control plane until it is interrupted, killed, or its standard input closes.
//!
//! ```text
//! cargo run -p sluice-testkit --bin plane              controllers and three fake nodes
//! cargo run -p sluice-testkit --bin plane -- bare      etcd and API server alone
//! ```

use std::io::Write;

use anyhow::{Result, bail};
use sluice_testkit::{Plane, PlaneOptions};

#[tokio::main]
async fn main() -> Result<()> {
    let options = match std::env::args().nth(1).as_deref() {
        None => PlaneOptions::with_nodes(),
        Some("bare") => PlaneOptions {
            controllers: false,
            ..PlaneOptions::default()
        },
        Some(other) => bail!("unknown argument {other}; it is 'bare' or nothing"),
    };
    let plane = Plane::start(options).await?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "export KUBECONFIG={}", plane.admin().path.display())?;
    writeln!(stdout, "kubectl is: {}", plane.kubectl().command_line())?;
    writeln!(stdout, "folder: {}", plane.folder().display())?;
    stdout.flush()?;
    let (closed, end) = tokio::sync::oneshot::channel();
    // A thread of its own: a blocking read must not hold up the end of the runtime.
    std::thread::spawn(move || closed.send(std::io::copy(&mut std::io::stdin(), &mut std::io::sink())));
    tokio::select! {
        end = end => drop(end?),
        interrupt = tokio::signal::ctrl_c() => interrupt?,
    }
    plane.shut_down()
}
