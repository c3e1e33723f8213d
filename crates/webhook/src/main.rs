//! `sluice-webhook`: answers the API server's AdmissionReviews of batch Jobs and queues.

use anyhow::Context;
use clap::Parser;
use sluice_runtime::{shutdown, telemetry};
use sluice_webhook::Args;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    telemetry::init(args.log_format, &args.log_filter)?;
    let (_trigger, shutdown) = shutdown::on_signals().context("failed to install signal handlers")?;
    sluice_webhook::run(args.into_config()?, shutdown).await
}
