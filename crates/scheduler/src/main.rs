//! `sluice-scheduler`: see the library.

use clap::Parser;
use sluice_scheduler::{Config, Flags, run};

fn main() -> anyhow::Result<()> {
    let config = Config::try_from(Flags::parse())?;
    sluice_runtime::telemetry::init(config.log_format, &config.log_filter)?;
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(run(config))
}
