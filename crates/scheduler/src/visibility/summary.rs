//! What waits, in the form of the API and as a table.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::annotations::REPLICA_ROLE;
use sluice_api::visibility::{PendingWorkload, PendingWorkloadsSummary, Version};
use sluice_index::{Pending, PendingRow};
use sluice_jobs::view::JobView;

use super::target::Queue;
use crate::metrics;

/// The answer to who waits in a queue.
pub(super) fn summary(version: Version, queue: &Queue, pending: &Pending, leads: bool) -> PendingWorkloadsSummary {
    let (namespace, name) = match queue {
        Queue::Cluster(name) => (None, name.to_string()),
        Queue::Local(key) => (Some(key.namespace.to_string()), key.name.to_string()),
    };
    let role = (REPLICA_ROLE.to_owned(), metrics::role(leads).to_owned());
    PendingWorkloadsSummary {
        kind: PendingWorkloadsSummary::KIND.to_owned(),
        api_version: version.api_version(),
        metadata: ObjectMeta {
            name: Some(name),
            namespace,
            resource_version: Some(pending.resource_version.to_string()),
            annotations: Some([role].into()),
            ..ObjectMeta::default()
        },
        items: pending.rows.iter().map(workload).collect(),
    }
}

fn workload(row: &PendingRow) -> PendingWorkload {
    let position = |position: usize| i32::try_from(position).unwrap_or(i32::MAX);
    PendingWorkload {
        metadata: metadata(&row.job),
        priority: row.place.priority,
        local_queue_name: row.place.local_queue.name.to_string(),
        position_in_cluster_queue: position(row.place.in_queue),
        position_in_local_queue: position(row.place.in_local_queue),
    }
}

/// A Job without a Workload stands for itself: whoever goes from what waits to the job by its owner finds the Job.
fn metadata(job: &JobView) -> ObjectMeta {
    let owner = OwnerReference {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
        name: job.name().to_owned(),
        uid: job.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: None,
    };
    ObjectMeta {
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        uid: job.metadata.uid.clone(),
        creation_timestamp: job.metadata.creation_timestamp.clone(),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    }
}

/// What of each object a table carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// Reads the parameter `includeObject` of a request.
    ///
    /// # Errors
    ///
    /// What it may be.
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let given = query.split('&').find_map(|pair| pair.strip_prefix("includeObject="));
        match given {
            None | Some("" | "Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::None),
            Some("Object") => Ok(Self::Object),
            Some(other) => Err(format!(
                "includeObject={other} is not taken: it must be None, Metadata or Object"
            )),
        }
    }
}

/// The summary as clients print it.
pub(super) fn table(summary: &PendingWorkloadsSummary, include: Include, now: Timestamp) -> Value {
    let column = |name: &str, kind: &str, priority: i32, description: &str| {
        let format = if name == "Name" { "name" } else { "" };
        json!({"name": name, "type": kind, "format": format, "priority": priority, "description": description})
    };
    let columns = [
        column("Name", "string", 0, "Name of what waits."),
        column("Namespace", "string", 0, "Its namespace."),
        column("LocalQueue", "string", 0, "The LocalQueue that it waits in."),
        column("Priority", "integer", 0, "Its priority."),
        column(
            "Position",
            "integer",
            0,
            "How many are ahead of it in its ClusterQueue.",
        ),
        column(
            "Local Position",
            "integer",
            0,
            "How many are ahead of it in its LocalQueue.",
        ),
        column("Age", "string", 0, "The time since it was created."),
    ];
    let rows: Vec<Value> = summary.items.iter().map(|item| row(item, include, now)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": summary.metadata.resource_version},
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn row(item: &PendingWorkload, include: Include, now: Timestamp) -> Value {
    let created = item.metadata.creation_timestamp.as_ref();
    let age = created.map_or_else(
        || "<unknown>".to_owned(),
        |created| age(now.as_second() - created.0.as_second()),
    );
    let mut row = json!({"cells": [
        item.metadata.name,
        item.metadata.namespace,
        item.local_queue_name,
        item.priority,
        item.position_in_cluster_queue,
        item.position_in_local_queue,
        age,
    ]});
    match include {
        Include::None => {}
        Include::Metadata => {
            row["object"] = json!({
                "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item.metadata,
            });
        }
        Include::Object => row["object"] = json!(item),
    }
    row
}

/// A time in whole seconds as kubectl prints ages: the two largest units that matter.
fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, lesser: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{lesser}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluice_engine::{LocalQueueKey, Place, Uid};

    use super::*;

    fn pending() -> Pending {
        let job: JobView = serde_json::from_value(json!({
            "metadata": {
                "name": "train", "namespace": "team", "uid": "0a", "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {"secret": "no"}, "annotations": {"secret": "no"}, "resourceVersion": "41",
            },
            "spec": {"suspend": true},
        }))
        .unwrap();
        Pending {
            rows: vec![PendingRow {
                job: Arc::new(job),
                place: Place {
                    uid: Uid(10),
                    priority: -5,
                    local_queue: LocalQueueKey::new("team", "default"),
                    in_queue: 12,
                    in_local_queue: 3,
                },
            }],
            resource_version: 42,
        }
    }

    fn local() -> Queue {
        Queue::Local(LocalQueueKey::new("team", "default"))
    }

    #[test]
    fn a_job_is_shown_with_its_place_and_nothing_of_its_labels() {
        let shown = summary(Version::V1Beta1, &local(), &pending(), false);
        assert_eq!(
            serde_json::to_value(shown).unwrap(),
            json!({
                "kind": "PendingWorkloadsSummary",
                "apiVersion": "visibility.kueue.x-k8s.io/v1beta1",
                "metadata": {
                    "name": "default", "namespace": "team", "resourceVersion": "42",
                    "annotations": {"sluice.internal/replica-role": "follower"},
                },
                "items": [{
                    "metadata": {
                        "name": "train", "namespace": "team", "uid": "0a", "creationTimestamp": "2026-01-01T00:00:00Z",
                        "ownerReferences": [
                            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "0a", "controller": true},
                        ],
                    },
                    "priority": -5,
                    "localQueueName": "default",
                    "positionInClusterQueue": 12,
                    "positionInLocalQueue": 3,
                }],
            })
        );
    }

    #[test]
    fn an_empty_queue_has_an_empty_list_of_items() {
        let empty = summary(
            Version::V1Beta2,
            &Queue::Cluster("cq".into()),
            &Pending::default(),
            true,
        );
        let shown = serde_json::to_value(empty).unwrap();
        assert_eq!(shown["items"], json!([]));
        assert_eq!(shown["metadata"]["name"], "cq");
        assert_eq!(
            shown["metadata"]["annotations"]["sluice.internal/replica-role"],
            "leader"
        );
    }

    #[test]
    fn a_table_has_a_cell_for_each_column_and_as_much_of_the_object_as_is_asked_for() {
        let now: Timestamp = "2026-01-01T00:05:07Z".parse().unwrap();
        let summary = summary(Version::V1Beta2, &local(), &pending(), true);
        let table = |query: &str| table(&summary, Include::parse(query).unwrap(), now);
        let shown = table("limit=3");
        let columns = shown["columnDefinitions"].as_array().unwrap().len();
        let cells = &shown["rows"][0]["cells"];
        assert_eq!(*cells, json!(["train", "team", "default", -5, 12, 3, "5m7s"]));
        assert_eq!(cells.as_array().unwrap().len(), columns);
        assert_eq!(shown["rows"][0]["object"]["kind"], "PartialObjectMetadata");
        assert_eq!(table("includeObject=None")["rows"][0].get("object"), None);
        assert_eq!(table("includeObject=Object")["rows"][0]["object"]["priority"], -5);
        assert!(
            Include::parse("includeObject=All")
                .unwrap_err()
                .contains("None, Metadata or Object")
        );
    }

    #[test]
    fn ages_are_printed_as_kubectl_prints_them() {
        for (seconds, printed) in [
            (-3, "0s"),
            (119, "119s"),
            (120, "2m"),
            (307, "5m7s"),
            (600, "10m"),
            (3_600 * 3, "3h"),
            (3_600 * 3 + 60, "3h1m"),
            (3_600 * 9, "9h"),
            (86_400 * 2 + 3_600, "2d1h"),
            (86_400 * 9, "9d"),
        ] {
            assert_eq!(age(seconds), printed);
        }
    }
}
