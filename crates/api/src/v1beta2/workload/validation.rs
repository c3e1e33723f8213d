//! What the schema of a Workload cannot say.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Container;
use sluice_quantity::Quantity;

use super::{Admission, PodSet, PodSetTopologyRequest, Workload, WorkloadStatus};
use crate::annotations::ELASTIC_JOB;
use crate::conditions::TRUE;
use crate::conditions::workload::QUOTA_RESERVED;
use crate::v1beta2::CheckState;
use crate::v1beta2::validation::{Findings, Problem, Violation};
use crate::{QuantityText, RESOURCE_PODS};

impl Workload {
    /// Whether the workload holds quota.
    pub fn is_reserved(&self) -> bool {
        self.status.as_ref().is_some_and(WorkloadStatus::is_reserved)
    }

    /// Whether a workload may shrink or grow while it runs.
    pub fn is_elastic(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(ELASTIC_JOB))
            .is_some_and(|value| value == "true")
    }

    /// Everything that is wrong with this workload as it is, in the order of the API. Empty for a sound one.
    pub fn validate(&self) -> Vec<Violation> {
        let mut found = Findings::default();
        self.pod_sets(&mut found);
        if let Some(status) = &self.status {
            self.admission(status, &mut found);
            self.reclaimable(status, &mut found);
            for (c, check) in status.admission_checks.iter().enumerate() {
                for (u, update) in check.pod_set_updates.iter().enumerate() {
                    let field = format!("status.admissionChecks[{c}].podSetUpdates[{u}]");
                    self.known_pod_set(&field, &update.name, &mut found);
                    found.labels(&format!("{field}.labels"), &update.labels);
                    found.labels(&format!("{field}.nodeSelector"), &update.node_selector);
                    found.label_keys(&format!("{field}.annotations"), update.annotations.keys());
                }
            }
        }
        found.0
    }

    /// Everything that is wrong with turning `old` into this workload.
    pub fn validate_change(&self, old: &Self) -> Vec<Violation> {
        let mut found = Findings::default();
        if old.is_reserved() && self.is_reserved() {
            self.changed_pod_sets(old, &mut found);
            self.changed_reclaimable(old, &mut found);
        }
        let (Some(status), Some(before)) = (&self.status, &old.status) else {
            return found.0;
        };
        if let (Some(new), Some(old)) = (&status.admission, &before.admission)
            && without_topology(new) != without_topology(old)
        {
            found.states("status.admission", "can be set and taken back, not changed");
        }
        for (c, check) in status.admission_checks.iter().enumerate() {
            let stored = before.admission_checks.iter().find(|stored| stored.name == check.name);
            let ready = |state: &CheckState| *state == CheckState::Ready;
            if let Some(stored) = stored.filter(|stored| ready(&stored.state) && ready(&check.state))
                && stored.pod_set_updates != check.pod_set_updates
            {
                let field = format!("status.admissionChecks[{c}].podSetUpdates");
                found.states(field, "cannot change while the check is ready");
            }
        }
        if let (None, Some(name)) = (&before.cluster_name, &status.cluster_name)
            && !before.nominated_cluster_names.contains(name)
        {
            found.states("status.clusterName", "must be one of the nominatedClusterNames");
        }
        found.0
    }

    fn pod_sets(&self, found: &mut Findings) {
        let sets = &self.spec.pod_sets;
        let mut names = BTreeSet::new();
        for (s, set) in sets.iter().enumerate() {
            let field = format!("spec.podSets[{s}]");
            if !names.insert(&set.name) {
                let name = set.name.clone();
                found.add(format_args!("{field}.name"), Problem::Duplicate { name });
            }
            set.template(&format!("{field}.template"), found);
            if let Some(request) = &set.topology_request {
                request.check(&format!("{field}.topologyRequest"), found);
            }
        }
        let partial = sets.iter().filter(|set| set.min_count.is_some()).count();
        if partial > 1 {
            found.states("spec.podSets[*].minCount", "one pod set at most can have it");
        }
        if partial > 0 && self.is_elastic() {
            found.states(
                "spec.podSets[*].minCount",
                "a workload that may shrink while it runs cannot have it",
            );
        }
    }

    fn pod_set(&self, name: &str) -> Option<&PodSet> {
        self.spec.pod_sets.iter().find(|set| set.name == name)
    }

    fn known_pod_set(&self, field: &str, name: &str, found: &mut Findings) {
        if self.pod_set(name).is_none() {
            let text = format!("{name:?} is none of the pod sets of the spec");
            found.states(format_args!("{field}.name"), text);
        }
    }

    fn admission(&self, status: &WorkloadStatus, found: &mut Findings) {
        let Some(admission) = &status.admission else {
            if status.is_reserved() {
                found.states(
                    "status.admission",
                    "must be there while the condition QuotaReserved is True",
                );
            }
            return;
        };
        for (a, assignment) in admission.pod_set_assignments.iter().enumerate() {
            let field = format!("status.admission.podSetAssignments[{a}]");
            self.known_pod_set(&field, &assignment.name, found);
            let pods = i64::from(assignment.count.unwrap_or(1));
            for (resource, text) in &assignment.resource_usage {
                let field = format!("{field}.resourceUsage[{resource}]");
                if let Some(amount) = found.amount(&field, text)
                    && !divisible(&amount, pods)
                {
                    found.states(field, format!("{text} cannot be divided by the {pods} pods"));
                }
            }
        }
    }

    fn reclaimable(&self, status: &WorkloadStatus, found: &mut Findings) {
        for (r, reclaimable) in status.reclaimable_pods.iter().enumerate() {
            let field = format!("status.reclaimablePods[{r}]");
            self.known_pod_set(&field, &reclaimable.name, found);
            if let Some(set) = self
                .pod_set(&reclaimable.name)
                .filter(|set| reclaimable.count > set.count)
            {
                let text = format!("{} is more than the {} pods of the set", reclaimable.count, set.count);
                found.states(format_args!("{field}.count"), text);
            }
        }
    }

    fn changed_pod_sets(&self, old: &Self, found: &mut Findings) {
        let same = |new: &PodSet, old: &PodSet| {
            let shrunk = self.is_elastic() && new.count <= old.count;
            let mut new = new.clone();
            if shrunk {
                new.count = old.count;
            }
            new == *old
        };
        let (sets, before) = (&self.spec.pod_sets, &old.spec.pod_sets);
        if sets.len() != before.len() || !sets.iter().zip(before).all(|(new, old)| same(new, old)) {
            found.states("spec.podSets", "cannot change while the workload holds quota");
        }
    }

    fn changed_reclaimable(&self, old: &Self, found: &mut Findings) {
        let counts = |workload: &Self| -> BTreeMap<String, i32> {
            let pods = workload.status.iter().flat_map(|status| &status.reclaimable_pods);
            pods.map(|pods| (pods.name.clone(), pods.count)).collect()
        };
        let now = counts(self);
        for (name, before) in counts(old) {
            let count = now.get(&name).copied().unwrap_or_default();
            // A smaller set may have fewer.
            let cut = self.is_elastic() && self.pod_set(&name).is_some_and(|set| set.count < before);
            if count < before && !cut {
                let text = format!(
                    "{count} for pod set {name:?} is less than the {before} before: they are given back for good"
                );
                found.states("status.reclaimablePods", text);
            }
        }
    }
}

impl WorkloadStatus {
    /// Whether the condition QuotaReserved holds.
    pub fn is_reserved(&self) -> bool {
        self.conditions
            .iter()
            .any(|condition| condition.type_ == QUOTA_RESERVED && condition.status == TRUE)
    }
}

impl PodSet {
    fn template(&self, field: &str, found: &mut Findings) {
        let metadata = self.template.metadata.as_ref();
        if let Some(labels) = metadata.and_then(|metadata| metadata.labels.as_ref()) {
            found.labels(&format!("{field}.metadata.labels"), labels);
        }
        if let Some(annotations) = metadata.and_then(|metadata| metadata.annotations.as_ref()) {
            found.label_keys(&format!("{field}.metadata.annotations"), annotations.keys());
        }
        let Some(spec) = &self.template.spec else {
            found.states(format_args!("{field}.spec"), "must say what the pods are");
            return;
        };
        let first = spec.init_containers.as_deref().unwrap_or_default();
        for (list, containers) in [("initContainers", first), ("containers", &spec.containers[..])] {
            for (c, container) in containers.iter().enumerate() {
                requests(&format!("{field}.spec.{list}[{c}].resources"), container, found);
            }
        }
    }
}

fn requests(field: &str, container: &Container, found: &mut Findings) {
    let Some(resources) = &container.resources else { return };
    for (list, amounts) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        for (name, amount) in amounts.iter().flatten() {
            let field = format!("{field}.{list}[{name}]");
            if name == RESOURCE_PODS {
                found.states(&field, "pods are counted, not asked for");
            }
            found.amount(field, &QuantityText::from(amount.0.as_str()));
        }
    }
}

impl PodSetTopologyRequest {
    fn check(&self, field: &str, found: &mut Findings) {
        let wanted = [
            self.required.is_some(),
            self.preferred.is_some(),
            self.unconstrained == Some(true),
        ];
        if wanted.into_iter().filter(|wanted| *wanted).count() > 1 {
            found.states(field, "required, preferred and unconstrained exclude each other");
        }
        if self.pod_set_slice_required_topology.is_some() != self.pod_set_slice_size.is_some() {
            found.states(field, "podSetSliceRequiredTopology and podSetSliceSize need each other");
        }
    }
}

fn without_topology(admission: &Admission) -> Admission {
    let mut admission = admission.clone();
    for assignment in &mut admission.pod_set_assignments {
        assignment.topology_assignment = None;
        assignment.delayed_topology_request = None;
    }
    admission
}

/// Whether each pod can have the same part of an amount.
fn divisible(amount: &Quantity, pods: i64) -> bool {
    pods <= 1 || amount.nanos() % i128::from(pods) == 0
}
