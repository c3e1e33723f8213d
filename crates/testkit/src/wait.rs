//! Waiting for a condition, never for a time.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::Instant;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Polls `condition` until it holds.
///
/// `condition` returns `Ok(value)` once it holds and `Err(what is still missing)`
/// until then; an error of the API counts as "not yet". After `timeout` the error
/// names `what` and the last thing that was missing.
pub async fn eventually<T, E, F, Fut>(what: &str, timeout: Duration, mut condition: F) -> Result<T>
where
    E: Debug,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let start = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let missing = match tokio::time::timeout(timeout.max(Duration::from_secs(1)), condition()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(missing)) => format!("{missing:?}"),
            Err(_) => "the check itself hangs".to_owned(),
        };
        if start.elapsed() >= timeout {
            bail!(
                "waited {:.1}s for: {what}; still: {missing}",
                start.elapsed().as_secs_f32()
            );
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// [`eventually`] for a plain yes or no.
pub async fn eventually_ok<F, Fut>(what: &str, timeout: Duration, mut condition: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = bool>,
{
    eventually(what, timeout, || {
        let check = condition();
        async move { if check.await { Ok(()) } else { Err("not so") } }
    })
    .await
}
