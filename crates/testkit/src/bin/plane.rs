//! Holds a control plane until it is interrupted, killed, or its standard input closes.
//!
//! ```text
//! cargo run -p sluice-testkit --bin plane              controllers and three fake nodes
//! cargo run -p sluice-testkit --bin plane -- bare      etcd and API server alone
//! cargo run -p sluice-testkit --bin plane -- detach    leaves the plane running in the background
//! ```

use std::io::Write;

use anyhow::{Result, bail};
use sluice_testkit::{Plane, PlaneOptions};

#[tokio::main]
async fn main() -> Result<()> {
    let mut options = PlaneOptions::with_nodes();
    let mut detach = false;
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "bare" => {
                options.controllers = false;
                options.nodes.clear();
            }
            "detach" => detach = true,
            other => bail!("unknown argument {other}; known are 'bare' and 'detach'"),
        }
    }
    let plane = Plane::start(options).await?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "export KUBECONFIG={}", plane.admin().path.display())?;
    writeln!(stdout, "{}", plane.kubectl().alias())?;
    writeln!(stdout, "folder: {}", plane.folder().display())?;
    if detach {
        writeln!(stdout, "end it with: kill {}", plane.detach().await?)?;
        return Ok(());
    }
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
