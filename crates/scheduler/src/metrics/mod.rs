//! What operators see: Kueue's names, labels and buckets where the meaning is the same, ours under `sluice_`.

mod cohorts;
mod jobs;
mod queues;

use prometheus::Registry;
use sluice_index::{Notice, WriteKind};
use sluice_runtime::label_set;
use sluice_runtime::metrics::{Counter, Gauge, Histogram, NoLabels};

pub(crate) use cohorts::CohortSight;
use jobs::JobMetrics;
pub(crate) use queues::{Board, ClusterQueueSight, Sight};

label_set! { pub(crate) struct ResultLabels { result, replica_role } }
label_set! { pub(crate) struct WriteLabels { kind, outcome } }
label_set! { struct BuildLabels { git_version, git_commit, build_date, go_version, compiler, platform } }

/// Shows what this binary was built from. Whoever builds a release sets commit and date in the environment.
fn show_build(registry: &Registry) -> prometheus::Result<()> {
    let build = Gauge::<BuildLabels<'static>>::register(registry, "kueue_build_info", "1 for what this binary is.")?;
    // Platforms are written as Go writes them: so are those of nodes.
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let labels = BuildLabels {
        git_version: concat!("v", env!("CARGO_PKG_VERSION")),
        git_commit: option_env!("SLUICE_GIT_COMMIT").unwrap_or("unknown"),
        build_date: option_env!("SLUICE_BUILD_DATE").unwrap_or("unknown"),
        // Kueue's label; there is no Go in it.
        go_version: "",
        compiler: "rustc",
        platform: &format!("{}/{arch}", std::env::consts::OS),
    };
    build.set(&labels, 1.0);
    Ok(())
}

/// Every metric of the scheduler.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    pub(crate) attempts: Counter<ResultLabels<'static>>,
    pub(crate) attempt_seconds: Histogram<ResultLabels<'static>>,
    pub(crate) board: Board,
    jobs: JobMetrics,
    writes: Counter<WriteLabels<'static>>,
    write_seconds: Histogram<WriteLabels<'static>>,
    leader: Gauge<NoLabels<'static>>,
}

impl Metrics {
    pub(crate) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let default = || prometheus::DEFAULT_BUCKETS.to_vec();
        let r = registry;
        show_build(r)?;
        Ok(Self {
            attempts: Counter::register(
                r,
                "kueue_admission_attempts_total",
                "Scheduling passes by result: success if they admitted anything, else inadmissible.",
            )?,
            attempt_seconds: Histogram::register(
                r,
                "kueue_admission_attempt_duration_seconds",
                "Time that a scheduling pass took.",
                default(),
            )?,
            board: Board::register(r)?,
            jobs: JobMetrics::register(r)?,
            writes: Counter::register(
                r,
                "sluice_job_writes_total",
                "Patches of Jobs by what they were for and what came of them.",
            )?,
            write_seconds: Histogram::register(
                r,
                "sluice_job_write_duration_seconds",
                "Time that a patch of a Job took.",
                default(),
            )?,
            leader: Gauge::register(r, "sluice_leader", "1 while this replica decides.")?,
        })
    }

    /// Whether this replica decides.
    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(&NoLabels::default(), f64::from(u8::from(leads)));
        self.board.set_role(role(leads));
    }

    /// Counts what happened.
    pub(crate) fn count(&self, notice: &Notice, role: &str) {
        self.jobs.count(notice, role);
    }

    /// Counts a write and its duration.
    pub(crate) fn wrote(&self, kind: WriteKind, outcome: &str, seconds: f64) {
        let labels = WriteLabels {
            kind: kind.as_str(),
            outcome,
        };
        self.writes.inc(&labels);
        self.write_seconds.observe(&labels, seconds);
    }

    /// Drops the series of a deleted ClusterQueue.
    pub(crate) fn forget_cluster_queue(&self, name: &str) {
        self.board.forget_cluster_queue(name);
        self.jobs.forget_cluster_queue(name);
    }

    /// Drops the series of a deleted LocalQueue.
    pub(crate) fn forget_local_queue(&self, key: &sluice_engine::LocalQueueKey) {
        self.board.forget_local_queue(key);
        self.jobs.forget_local_queue(key);
    }
}

/// Value of the label `replica_role`.
pub(crate) fn role(leads: bool) -> &'static str {
    if leads { "leader" } else { "follower" }
}

#[cfg(test)]
mod tests;
