//! The project's own chores: generated files, and rules that no other tool checks.
//!
//! `cargo xtask crds` writes the chart's CRDs from the types of `sluice-api`; `cargo xtask crds --check` says whether
//! they are up to date. `cargo xtask tidy` checks which crate uses which, that pure crates stay pure, licences,
//! banned and doubled dependencies, and what may stand in a source file.

mod crds;
mod tidy;
mod workspace;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Chores of the Sluice workspace")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Write the chart's CRDs from the types of sluice-api
    Crds {
        /// Write nothing; fail if a file is stale, missing or left over
        #[arg(long)]
        check: bool,
    },
    /// Check the rules of the workspace
    Tidy,
}

fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let root = workspace::root()?;
    let findings = match arguments.chore {
        Chore::Crds { check: true } => crds::stale(&root)?,
        Chore::Crds { check: false } => {
            for path in crds::write(&root)? {
                say(&format!("wrote {path}"))?;
            }
            Vec::new()
        }
        Chore::Tidy => tidy::findings(&root)?,
    };
    for finding in &findings {
        say(finding)?;
    }
    if findings.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("{} to put right", findings.len()))?;
    Ok(ExitCode::FAILURE)
}

fn say(line: &str) -> anyhow::Result<()> {
    writeln!(std::io::stdout().lock(), "{line}")?;
    Ok(())
}
