//! The cluster that all reviews here are about, and answers read back from their bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sluice_admission::{KnownJob, Reply, Settings, World};

pub(crate) const SCHEDULER: &str = "system:serviceaccount:sluice-system:sluice-scheduler";
pub(crate) const BREAK_GLASS: &str = "root@example.com";

/// Opted in: team-a (queues default, batch, and orphan, whose ClusterQueue is missing), team-b (no queue), team-c (only
/// batch). Not opted in: web (queue batch). kube-system and sluice-system carry the opt-in label all the same.
pub(crate) fn world() -> World {
    let mut world = World::new(Settings {
        own_namespace: "sluice-system".to_owned(),
        scheduler_users: [SCHEDULER.to_owned()].into(),
        break_glass_users: [BREAK_GLASS.to_owned()].into(),
        break_glass_groups: ["cluster-admins".to_owned()].into(),
    });
    for namespace in ["team-a", "team-b", "team-c", "kube-system", "sluice-system"] {
        world.set_namespace(namespace, Some("true"));
    }
    world.set_namespace("web", None);
    world.set_cluster_queue("cq");
    for (namespace, name) in [
        ("team-a", "default"),
        ("team-a", "batch"),
        ("team-c", "batch"),
        ("web", "batch"),
    ] {
        world.set_local_queue(namespace, name, "cq");
    }
    world.set_local_queue("team-a", "orphan", "gone");
    world.set_job(
        "team-a",
        "parent",
        KnownJob {
            uid: "parent-uid".to_owned(),
            ..KnownJob::default()
        },
    );
    world
}

/// The `response` of an answer in kind.
pub(crate) fn response(reply: &Reply) -> Value {
    assert_eq!(reply.http_status, 200, "{}", String::from_utf8_lossy(&reply.body));
    let review: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(review["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(review["kind"], "AdmissionReview");
    review["response"].clone()
}

/// The operations of a response's patch; none if it has no patch.
pub(crate) fn operations(response: &Value) -> Vec<Value> {
    let Some(encoded) = response.get("patch") else {
        return Vec::new();
    };
    assert_eq!(response["patchType"], "JSONPatch");
    let bytes = STANDARD.decode(encoded.as_str().unwrap()).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// The object after a response's patch.
pub(crate) fn patched(object: &Value, response: &Value) -> Value {
    let mut object = object.clone();
    let patch: json_patch::Patch = serde_json::from_value(operations(response).into()).unwrap();
    json_patch::patch(&mut object, &patch).unwrap();
    object
}

pub(crate) fn warnings(response: &Value) -> Vec<&str> {
    response["warnings"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|warning| warning.as_str().unwrap())
        .collect()
}

/// A review of an update by `username`.
pub(crate) fn update(username: &str, old: &Value, new: &Value) -> Vec<u8> {
    serde_json::to_vec(&json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r-1",
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
            "operation": "UPDATE",
            "namespace": new["metadata"]["namespace"],
            "name": new["metadata"]["name"],
            "userInfo": {"username": username},
            "object": new,
            "oldObject": old,
        }
    }))
    .unwrap()
}
