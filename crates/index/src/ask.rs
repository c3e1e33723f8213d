//! What a Job asks of the engine while it waits, what it holds while it runs, and why it must not be considered.

use std::collections::BTreeMap;

use sluice_engine::{Amount, Charge, ChargedUnit, Gate, LocalQueueKey, Name, Phase, PodSetSpec, Time, Uid, UnitSpec};
use sluice_jobs::partial::{self, PartialError};
use sluice_jobs::patch::POD_SET;
use sluice_jobs::priority::{self, Priority, PriorityError};
use sluice_jobs::record::{PodsReady, Record};
use sluice_jobs::requests::{self, RequestsError};
use sluice_jobs::view::JobView;
use sluice_jobs::{gates, limits, unsupported};

use crate::Index;
use crate::lower::{amount_of_text, local_queue_of, queued_at, time_of};
use crate::standing::SetAside;

impl Index {
    pub(crate) fn unit_spec(
        &self,
        uid: Uid,
        job: &JobView,
        record: Option<&Record>,
        set_aside: Option<SetAside>,
    ) -> UnitSpec {
        let asked = Asked {
            priority: priority::resolve(job, &self.objects),
            amounts: requests::job_requests(job, None),
            min_count: partial::min_count(job),
        };
        let gate = gate(job, set_aside, &asked);
        let (per_pod, count) = asked.amounts.unwrap_or_default();
        let per_pod = per_pod
            .into_iter()
            .map(|(resource, amount)| (Name::from(resource), Amount::new(amount)))
            .collect();
        let aside = self.units.get(&uid).and_then(|unit| unit.aside.as_ref());
        let back_off = record.and_then(|record| record.requeue.as_ref()?.at).map(time_of);
        let ran = record.map_or(0, |record| record.accumulated_seconds);
        UnitSpec {
            uid,
            local_queue: local_queue_of(job),
            priority: asked.priority.map_or(0, |priority| priority.value),
            queued_at: queued_at(job, record),
            pod_sets: vec![PodSetSpec {
                name: POD_SET.into(),
                count,
                min_count: asked.min_count.ok().flatten(),
                per_pod,
                constraints: crate::objects::constraints(job, record).into(),
            }],
            gate,
            not_before: aside.map(|aside| aside.until).max(back_off),
            runs_at_most_ms: limits::runs_at_most_ms(job, ran),
        }
    }

    /// The spec of a Job that runs already, with all the pods that it has.
    pub(crate) fn running_spec(&self, uid: Uid, job: &JobView) -> UnitSpec {
        let mut spec = self.unit_spec(uid, job, None, None);
        for set in &mut spec.pod_sets {
            set.min_count = None;
        }
        spec
    }

    /// What a Job holds by its record, `pods` of the pods of which it may still have. `readiness` says when its pods were
    /// ready; see [`Index::readiness`].
    pub(crate) fn charged_unit(&self, uid: Uid, job: &JobView, record: &Record, hold: Held) -> ChargedUnit {
        let Held { pods, phase, readiness } = hold;
        let running = matches!(phase, Phase::Admitted);
        ChargedUnit {
            uid,
            queue: record.cluster_queue.as_str().into(),
            local_queue: LocalQueueKey::new(job.namespace(), record.local_queue.as_str()),
            priority: priority::resolve(job, &self.objects).map_or(0, |priority| priority.value),
            queued_at: queued_at(job, Some(record)),
            reserved_at: record.admitted_at.map_or(Time(0), time_of),
            deadlines: if running {
                self.deadlines(job, record, readiness)
            } else {
                Vec::new()
            },
            ends_at: ends_at(job, record),
            pods_ready: !running || self.configuration.wait_for_pods_ready.is_none() || readiness.is_some(),
            charges: charges(record, pods),
            phase,
        }
    }
}

/// How a Job holds what its record says.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    /// The pods that it may still have.
    pub(crate) pods: i64,
    pub(crate) phase: Phase,
    pub(crate) readiness: Option<PodsReady>,
}

/// When what a Job holds is free again at the latest, if that is known.
fn ends_at(job: &JobView, record: &Record) -> Option<Time> {
    match &record.eviction {
        Some(stopped) => Some(Time(time_of(stopped.at).0.saturating_add(limits::grace_ms(job)))),
        None => limits::ends_at(job, record).map(time_of),
    }
}

fn charges(record: &Record, pods: i64) -> Vec<Charge> {
    let mut charges = Vec::new();
    for set in &record.pod_sets {
        for (resource, total) in &set.usage {
            let Some(flavor) = set.flavors.get(resource) else {
                continue;
            };
            charges.push(Charge {
                flavor: flavor.as_str().into(),
                resource: resource.as_str().into(),
                amount: share(amount_of_text(resource, total), pods, set.count),
            });
        }
    }
    charges
}

/// `total` of `count` pods, as `pods` of them hold it; rounded up.
fn share(total: Amount, pods: i64, count: i64) -> Amount {
    if count <= 0 || pods >= count {
        return total;
    }
    let count = i128::from(count);
    let part = i128::from(total.get())
        .saturating_mul(i128::from(pods.max(0)))
        .saturating_add(count - 1)
        / count;
    Amount::new(i64::try_from(part).unwrap_or(i64::MAX))
}

/// What a Job asks for, as far as it can be made out.
struct Asked {
    priority: Result<Priority, PriorityError>,
    amounts: Result<(BTreeMap<String, i64>, i64), RequestsError>,
    min_count: Result<Option<i64>, PartialError>,
}

fn gate(job: &JobView, set_aside: Option<SetAside>, asked: &Asked) -> Option<Gate> {
    let gate = |reason: &str, message: String| {
        Some(Gate {
            reason: reason.into(),
            message: message.into(),
        })
    };
    match set_aside {
        Some(SetAside::Held) => {
            return gate(
                "OnHold",
                "its owner suspended it while it ran; set spec.suspend to false, or remove the annotation \
                 sluice.internal/hold, to queue it again"
                    .to_owned(),
            );
        }
        Some(SetAside::Deactivated) => {
            let why = job.annotation(sluice_api::annotations::DEACTIVATED).unwrap_or_default();
            return gate(
                "Deactivated",
                format!(
                    "it was deactivated ({why}); remove the annotation sluice.internal/deactivated to queue it again"
                ),
            );
        }
        None => {}
    }
    let unsupported = unsupported::unsupported(job);
    if !unsupported.is_empty() {
        return gate(
            "Unsupported",
            format!(
                "it asks for what Sluice does not support yet: {}",
                unsupported.join(", ")
            ),
        );
    }
    if let Some(message) = broken(job, asked) {
        return gate("Misconfigured", message);
    }
    let gates = gates::admission_gates(job);
    if !gates.is_empty() {
        return gate(
            "AdmissionGated",
            format!(
                "it is held back by {}, which must take its name out of the annotation {}",
                gates.join(", "),
                sluice_api::annotations::ADMISSION_GATED_BY
            ),
        );
    }
    None
}

/// What a Job asks for that makes no sense.
fn broken(job: &JobView, asked: &Asked) -> Option<String> {
    let limit = limits::max_execution_seconds(job);
    let errors = [
        asked.priority.as_ref().err().map(ToString::to_string),
        asked.amounts.as_ref().err().map(ToString::to_string),
        asked.min_count.as_ref().err().map(ToString::to_string),
        limit.err().map(|error| error.to_string()),
    ];
    errors.into_iter().flatten().next()
}
