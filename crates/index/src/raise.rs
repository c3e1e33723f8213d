//! From an admission of the engine to the record and the plan that its patch is built from.

use sluice_api::labels;
use sluice_engine::{Admission, Name, PodSetAssignment, Time};
use sluice_jobs::patch::{self, AdmissionPlan};
use sluice_jobs::record::{PodSetRecord, Record, Requeue, State};
use sluice_jobs::requests;
use sluice_jobs::view::JobView;

use crate::lower::{self, quantity_of, timestamp};
use crate::standing::recorded;
use crate::{Index, Reign};

impl Index {
    /// The record of an admission. What outlives an admission is taken from the record before it.
    pub(crate) fn admission_record(&self, job: &JobView, admission: &Admission, reign: Reign, now: Time) -> Record {
        let queued_at = lower::queued_at(job, recorded(job).ours().as_deref());
        let new = Record::new(job.uid(), reign.term, State::Admitted);
        let earlier = recorded(job).ours().map_or_else(|| new.clone(), |record| *record);
        Record {
            cluster_queue: admission.queue.to_string(),
            local_queue: admission.local_queue.name.to_string(),
            pod_sets: admission.pod_sets.iter().map(pod_set_record).collect(),
            admitted_at: Some(timestamp(now)),
            queued_at: Some(timestamp(queued_at)),
            resource_versions: self.objects.versions(admission),
            requeue: earlier.requeue.map(|requeue| Requeue { at: None, ..requeue }),
            accumulated_seconds: earlier.accumulated_seconds,
            evictions: earlier.evictions,
            extra: earlier.extra,
            ..new
        }
    }

    /// What an admission does to the pod template.
    pub(crate) fn admission_plan(&self, job: &JobView, admission: &Admission) -> AdmissionPlan {
        let mut plan = AdmissionPlan::default();
        for flavor in flavors_of(admission) {
            self.objects.add_flavor_to(&mut plan, flavor);
        }
        let pods = admission
            .pod_sets
            .iter()
            .map(|set| set.count)
            .fold(0, i64::saturating_add);
        plan.parallelism = Some(pods).filter(|pods| *pods < requests::pods_count(&job.spec));
        plan.labels = patch::pod_labels(&admission.local_queue.name, &admission.queue);
        if job.label(labels::QUEUE_NAME).is_none() {
            plan.queue_label = Some(admission.local_queue.name.to_string());
        }
        plan
    }
}

fn pod_set_record(set: &PodSetAssignment) -> PodSetRecord {
    let usage = set.usage.iter();
    PodSetRecord {
        name: set.name.to_string(),
        count: set.count,
        flavors: set
            .flavors
            .iter()
            .map(|(resource, flavor)| (resource.to_string(), flavor.to_string()))
            .collect(),
        usage: usage
            .map(|(resource, amount)| (resource.to_string(), quantity_of(resource, *amount).to_string()))
            .collect(),
        ..PodSetRecord::default()
    }
}

/// The flavors of an admission, each once, in the order of the resources.
pub(crate) fn flavors_of(admission: &Admission) -> Vec<&Name> {
    let mut flavors: Vec<&Name> = Vec::new();
    for (_, flavor) in admission.pod_sets.iter().flat_map(|set| &set.flavors) {
        if !flavors.contains(&flavor) {
            flavors.push(flavor);
        }
    }
    flavors
}
