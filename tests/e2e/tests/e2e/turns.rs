//! The plane of the scenarios that have a Configuration of their own.
//!
//! One Configuration is in force at a time. Whoever wants the same joins; whoever wants another waits until all have
//! left, and then starts the scheduler anew.

use std::time::Duration;

use anyhow::{Context, Result};
use sluice_testkit::{SchedulerOptions, Signal, WebhookOptions};
use tokio::sync::{OnceCell, RwLock, RwLockReadGuard};

use crate::world::{World, shared_world};

/// Longest that a scheduler takes to end in good order.
const END: Duration = Duration::from_secs(30);

/// What is in force.
#[derive(Default)]
struct InForce {
    config: String,
    scheduler: String,
    /// How many schedulers there have been.
    count: u32,
}

/// A place on the plane, as long as it is held.
pub(crate) struct Turn {
    pub(crate) world: &'static World,
    _in_force: RwLockReadGuard<'static, Option<InForce>>,
}

/// Waits until this Configuration is in force, and keeps it so.
pub(crate) async fn take(config: &str) -> Result<Turn> {
    static IN_FORCE: RwLock<Option<InForce>> = RwLock::const_new(None);
    let world = plane().await?;
    let is_ours = |now: &Option<InForce>| now.as_ref().is_some_and(|now| now.config == config);
    let now = IN_FORCE.read().await;
    if is_ours(&now) {
        return Ok(Turn { world, _in_force: now });
    }
    drop(now);
    let mut now = IN_FORCE.write().await;
    if !is_ours(&now) {
        *now = Some(replace(world, config, now.take()).await?);
    }
    Ok(Turn {
        world,
        _in_force: now.downgrade(),
    })
}

async fn plane() -> Result<&'static World> {
    static PLANE: OnceCell<World> = OnceCell::const_new();
    PLANE
        .get_or_try_init(|| async {
            let world = shared_world().await?;
            world.sluice.start_webhook(WebhookOptions::default()).await?;
            Ok(world)
        })
        .await
}

/// Ends the scheduler that there is and starts one with this Configuration.
async fn replace(world: &World, config: &str, old: Option<InForce>) -> Result<InForce> {
    let old = old.unwrap_or_default();
    if !old.scheduler.is_empty() {
        world.plane.signal(&old.scheduler, Signal::Term).await?;
        world.plane.wait_exit(&old.scheduler, END).await?;
    }
    let count = old.count + 1;
    let file = world.plane.folder().join(format!("config-{count}.yaml"));
    std::fs::write(&file, config).with_context(|| format!("failed to write {}", file.display()))?;
    let options = SchedulerOptions {
        name: format!("sluice-scheduler-configured-{count}"),
        arguments: vec![format!("--config={}", file.display())],
        ..SchedulerOptions::default()
    };
    world.sluice.start_scheduler(options).await?;
    let scheduler = world.sluice.until_leading().await?;
    Ok(InForce {
        config: config.to_owned(),
        scheduler,
        count,
    })
}
