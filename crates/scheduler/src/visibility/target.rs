//! What a request asks for, read from its path once: what is authorized is what is answered.

use axum::http::{Method, Uri};
use sluice_api::visibility::{CLUSTER_QUEUES, GROUP, LOCAL_QUEUES, PENDING_WORKLOADS, Version};
use sluice_engine::{LocalQueueKey, Name};

/// A queue whose jobs are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// A ClusterQueue.
    Cluster(Name),
    /// A LocalQueue.
    Local(LocalQueueKey),
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Whether the server lives.
    Live,
    /// Whether it can answer.
    Ready,
    /// The groups that there are.
    Groups,
    /// The one group.
    Group,
    /// What a version of it has.
    Resources(Version),
    /// The whole schema, OpenAPI 2.
    OpenApiV2,
    /// Where the schema of each version is, OpenAPI 3.
    OpenApiIndex,
    /// The schema of a version, OpenAPI 3.
    OpenApiV3(Version),
    /// Who waits in a queue.
    Pending(Version, Queue),
    /// A queue, or queues: there only as carriers of what waits in them.
    Carrier,
    /// Nothing that is here.
    Unknown,
}

/// What the API server is asked about a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Attributes {
    pub(super) verb: &'static str,
    pub(super) path: String,
    /// None for discovery, schemas and everything else that is no resource.
    pub(super) resource: Option<Object>,
}

/// The objects that a request is about; what it does not name is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Object {
    pub(super) version: String,
    pub(super) namespace: String,
    pub(super) resource: String,
    pub(super) name: String,
    pub(super) subresource: String,
}

/// What a path asks for.
pub(super) fn target(path: &str) -> Target {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let of_version = |name, target: fn(Version) -> Target| Version::named(name).map_or(Target::Unknown, target);
    match segments[..] {
        ["healthz" | "livez"] => Target::Live,
        ["readyz"] => Target::Ready,
        ["apis"] => Target::Groups,
        ["apis", GROUP] => Target::Group,
        ["apis", GROUP, version] => of_version(version, Target::Resources),
        ["openapi", "v2"] => Target::OpenApiV2,
        ["openapi", "v3"] => Target::OpenApiIndex,
        ["openapi", "v3", "apis", GROUP, version] => of_version(version, Target::OpenApiV3),
        ["apis", GROUP, version, ..] => resource_target(version, &resource(path).unwrap_or_default()),
        _ => Target::Unknown,
    }
}

fn resource_target(version: &str, resource: &Object) -> Target {
    let Some(version) = Version::named(version) else {
        return Target::Unknown;
    };
    let Object {
        namespace,
        resource,
        name,
        subresource,
        ..
    } = resource;
    let is_named = !name.is_empty();
    let is_there = match resource.as_str() {
        CLUSTER_QUEUES => namespace.is_empty(),
        // One LocalQueue has a namespace; all of them need not.
        LOCAL_QUEUES => !namespace.is_empty() || !is_named,
        _ => false,
    };
    if !is_there || !is_named && !subresource.is_empty() {
        return Target::Unknown;
    }
    let name = Name::from(name.as_str());
    match subresource.as_str() {
        "" => Target::Carrier,
        PENDING_WORKLOADS if namespace.is_empty() => Target::Pending(version, Queue::Cluster(name)),
        PENDING_WORKLOADS => Target::Pending(version, Queue::Local(LocalQueueKey::new(namespace.as_str(), name))),
        _ => Target::Unknown,
    }
}

/// What the API server would take a request for.
pub(super) fn attributes(method: &Method, uri: &Uri) -> Attributes {
    let resource = resource(uri.path());
    let verb = match &resource {
        None => plain_verb(method),
        Some(resource) => resource_verb(method, !resource.name.is_empty(), uri.query().unwrap_or_default()),
    };
    Attributes {
        verb,
        path: uri.path().to_owned(),
        resource,
    }
}

/// The resource in a path below a version of a group; none if it is shorter.
fn resource(path: &str) -> Option<Object> {
    let segments: Vec<&str> = path.trim_matches('/').split('/').collect();
    let ["apis", _, version, below @ ..] = &segments[..] else {
        return None;
    };
    let (namespace, below) = match below {
        [] => return None,
        ["namespaces", namespace, below @ ..] if !below.is_empty() => (*namespace, below),
        below => ("", below),
    };
    let at = |index: usize| below.get(index).copied().unwrap_or_default();
    Some(Object {
        version: (*version).to_owned(),
        namespace: namespace.to_owned(),
        resource: at(0).to_owned(),
        name: at(1).to_owned(),
        // Whatever lies deeper belongs to the subresource, which then is none that there is.
        subresource: below.get(2..).unwrap_or_default().join("/"),
    })
}

fn plain_verb(method: &Method) -> &'static str {
    match *method {
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "get",
    }
}

fn resource_verb(method: &Method, is_named: bool, query: &str) -> &'static str {
    let watches = query
        .split('&')
        .any(|pair| matches!(pair, "watch" | "watch=true" | "watch=1"));
    match (method, is_named) {
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, true) => "delete",
        (&Method::DELETE, false) => "deletecollection",
        (_, true) => "get",
        (_, false) if watches => "watch",
        (_, false) => "list",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> Target {
        target(&format!("/apis/visibility.kueue.x-k8s.io/{path}"))
    }

    #[test]
    fn the_two_subresources_are_found_in_both_versions() {
        for version in Version::ALL {
            let name = version.name();
            assert_eq!(
                of(&format!("{name}/clusterqueues/cq/pendingworkloads")),
                Target::Pending(version, Queue::Cluster("cq".into()))
            );
            assert_eq!(
                of(&format!("{name}/namespaces/team/localqueues/lq/pendingworkloads")),
                Target::Pending(version, Queue::Local(LocalQueueKey::new("team", "lq")))
            );
            assert_eq!(of(name), Target::Resources(version));
        }
    }

    #[test]
    fn parents_are_carriers_and_everything_else_is_unknown() {
        for path in [
            "v1beta1/clusterqueues",
            "v1beta2/clusterqueues/cq",
            "v1beta2/localqueues",
            "v1beta2/namespaces/team/localqueues",
            "v1beta2/namespaces/team/localqueues/lq",
        ] {
            assert_eq!(of(path), Target::Carrier, "{path}");
        }
        for path in [
            "v1",
            "v1/clusterqueues/cq/pendingworkloads",
            "v1beta2/cohorts/c/pendingworkloads",
            "v1beta2/localqueues/lq/pendingworkloads",
            "v1beta2/namespaces/team/clusterqueues/cq/pendingworkloads",
            "v1beta2/clusterqueues/cq/status",
            "v1beta2/clusterqueues/cq/pendingworkloads/more",
            "v1beta2/namespaces/team",
            "v1beta2/clusterqueues//pendingworkloads",
        ] {
            assert_eq!(of(path), Target::Unknown, "{path}");
        }
        assert_eq!(target("/"), Target::Unknown);
        assert_eq!(target("/apis/kueue.x-k8s.io"), Target::Unknown);
    }

    #[test]
    fn attributes_are_those_that_rbac_rules_name() {
        let uri = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/lq/pendingworkloads?limit=3";
        let asked = attributes(&Method::GET, &uri.parse().unwrap());
        assert_eq!(asked.verb, "get");
        let resource = asked.resource.unwrap();
        assert_eq!((&*resource.version, &*resource.namespace), ("v1beta2", "team"));
        assert_eq!((&*resource.resource, &*resource.name), ("localqueues", "lq"));
        assert_eq!(resource.subresource, "pendingworkloads");

        let list: Uri = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues?watch=true"
            .parse()
            .unwrap();
        assert_eq!(attributes(&Method::GET, &list).verb, "watch");
        assert_eq!(attributes(&Method::DELETE, &list).verb, "deletecollection");
        let discovery = attributes(&Method::GET, &"/apis".parse().unwrap());
        assert_eq!((discovery.verb, discovery.resource), ("get", None));
    }
}
