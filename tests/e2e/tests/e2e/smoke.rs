//! The shortest whole way: a Job is created, held, admitted, run and finished, with a referee watching.

use anyhow::{Result, ensure};
use sluice_e2e::jobs::{Stage, record, stage};
use sluice_testkit::{Referee, eventually};

use crate::world::{PATIENCE, world};

#[tokio::test]
async fn a_second_job_waits_for_the_quota_of_the_first_and_the_referee_agrees() -> Result<()> {
    let world = world().await?;
    let team = world.team("smoke", "1").await?;
    let referee = Referee::start(&world.plane).await?;

    team.create("first", 1, "1s").await?;
    team.until("first", Stage::Running).await?;
    team.create("second", 1, "0s").await?;
    let second = team.get("second").await?;
    ensure!(stage(&second) == Stage::Held && record(&second)?.is_none(), "{second:?}");
    team.until("first", Stage::Completed).await?;
    team.until("second", Stage::Completed).await?;

    let writes = eventually("two writes are in the audit log", PATIENCE, || async {
        let writes = world.job_writes("smoke")?;
        ensure!(writes.len() >= 2, "{writes:?}");
        anyhow::Ok(writes)
    })
    .await?;
    ensure!(writes.len() == 2 && writes.iter().all(|write| write.verb == "patch" && write.succeeded()), "{writes:?}");

    let verdict = referee.settled().await;
    ensure!(verdict.admissions["smoke/first"] == 1 && verdict.admissions["smoke/second"] == 1, "{verdict:?}");
    let peak = &verdict.peaks[&("smoke".to_owned(), "any".to_owned(), "cpu".to_owned())];
    ensure!((peak.used.as_str(), peak.quota.as_deref()) == ("1", Some("1")), "{peak:?}");
    Ok(())
}
