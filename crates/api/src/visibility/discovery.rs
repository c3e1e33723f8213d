//! What there is in the group, for clients that ask before they ask: the documents of discovery.

use serde_json::{Value, json};

use super::{CLUSTER_QUEUES, GROUP, LOCAL_QUEUES, PENDING_WORKLOADS, PendingWorkloadsSummary, Version};

/// A resource of the group: there only as the carrier of what waits in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// Its name in paths.
    pub resource: &'static str,
    /// The same for one of them.
    pub singular: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// Whether it lives in a namespace.
    pub namespaced: bool,
}

/// All of them, in both versions.
pub const CARRIERS: [Carrier; 2] = [
    Carrier {
        resource: CLUSTER_QUEUES,
        singular: "clusterqueue",
        kind: "ClusterQueue",
        namespaced: false,
    },
    Carrier {
        resource: LOCAL_QUEUES,
        singular: "localqueue",
        kind: "LocalQueue",
        namespaced: true,
    },
];

fn versions() -> Vec<Value> {
    let version = |version: Version| json!({"groupVersion": version.api_version(), "version": version.name()});
    Version::ALL.map(version).to_vec()
}

fn group_body() -> Value {
    let [preferred, _] = Version::ALL;
    json!({
        "name": GROUP,
        "versions": versions(),
        "preferredVersion": {"groupVersion": preferred.api_version(), "version": preferred.name()},
    })
}

/// `/apis`
pub fn groups() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [group_body()]})
}

/// `/apis/GROUP`
pub fn group() -> Value {
    let mut group = group_body();
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    group
}

/// `/apis/GROUP/VERSION`
pub fn resources(version: Version) -> Value {
    let resources: Vec<Value> = CARRIERS
        .iter()
        .flat_map(|carrier| {
            [
                json!({
                    "name": carrier.resource, "singularName": carrier.singular, "namespaced": carrier.namespaced,
                    "kind": carrier.kind, "verbs": [],
                }),
                json!({
                    "name": format!("{}/{PENDING_WORKLOADS}", carrier.resource), "singularName": "",
                    "namespaced": carrier.namespaced, "kind": PendingWorkloadsSummary::KIND, "verbs": ["get"],
                }),
            ]
        })
        .collect();
    json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": version.api_version(), "resources": resources,
    })
}

/// The content type of [`aggregated`], which is also what a client must accept to get it.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// `/apis`, aggregated: all of the above in one.
pub fn aggregated() -> Value {
    let version = |version: Version| {
        let kind = |kind: &str| json!({"group": GROUP, "version": version.name(), "kind": kind});
        let resources: Vec<Value> = CARRIERS
            .iter()
            .map(|carrier| {
                json!({
                    "resource": carrier.resource,
                    "singularResource": carrier.singular,
                    "scope": if carrier.namespaced { "Namespaced" } else { "Cluster" },
                    "responseKind": kind(carrier.kind),
                    "verbs": [],
                    "subresources": [{
                        "subresource": PENDING_WORKLOADS,
                        "responseKind": kind(PendingWorkloadsSummary::KIND),
                        "verbs": ["get"],
                    }],
                })
            })
            .collect();
        json!({"version": version.name(), "resources": resources, "freshness": "Current"})
    };
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": [{"metadata": {"name": GROUP}, "versions": Version::ALL.map(version)}],
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIGroupList, APIResourceList};

    use super::*;

    #[test]
    fn all_forms_of_discovery_say_the_same() {
        let groups: APIGroupList = serde_json::from_value(groups()).unwrap();
        let group: APIGroup = serde_json::from_value(group()).unwrap();
        assert_eq!(groups.groups, std::slice::from_ref(&group));
        assert_eq!(group.preferred_version.unwrap().version, "v1beta2");
        let aggregated = aggregated();
        let versions = aggregated["items"][0]["versions"].as_array().unwrap();
        assert_eq!(versions.len(), group.versions.len());
        for (plain, aggregated) in group.versions.iter().zip(versions) {
            assert_eq!(aggregated["version"], plain.version);
            let version = Version::named(&plain.version).unwrap();
            let list: APIResourceList = serde_json::from_value(resources(version)).unwrap();
            assert_eq!(list.group_version, plain.group_version);
            let mut flat = Vec::new();
            for resource in aggregated["resources"].as_array().unwrap() {
                let name = resource["resource"].as_str().unwrap();
                flat.push((name.to_owned(), resource["scope"] == "Namespaced", 0));
                for subresource in resource["subresources"].as_array().unwrap() {
                    let name = format!("{name}/{}", subresource["subresource"].as_str().unwrap());
                    flat.push((name, resource["scope"] == "Namespaced", 1));
                }
            }
            let plain: Vec<_> = list
                .resources
                .into_iter()
                .map(|resource| (resource.name, resource.namespaced, resource.verbs.len()))
                .collect();
            assert_eq!(flat, plain);
        }
    }
}
