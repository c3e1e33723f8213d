//! Does once more what `sluice-scheduler --record-events FILE` recorded: `cargo run -p sluice-scheduler --example replay -- FILE`.

use std::fs::File;
use std::io::{BufReader, Write};

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let path = std::env::args_os().nth(1).context("usage: replay FILE")?;
    let file = File::open(&path).with_context(|| format!("failed to open {}", path.display()))?;
    let replayed = sluice_scheduler::replay(BufReader::new(file))?;
    writeln!(
        std::io::stdout(),
        "{} events and {} passes: the same {} decisions",
        replayed.events,
        replayed.passes,
        replayed.actions
    )?;
    Ok(())
}
