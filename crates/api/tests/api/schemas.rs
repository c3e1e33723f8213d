//! The CRDs: names, versions, columns, and schemas in the form that the API server takes.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use crate::arbitrary::crds;

fn schema(crd: &CustomResourceDefinition) -> Value {
    schema_of(crd, 0)
}

fn schema_of(crd: &CustomResourceDefinition, version: usize) -> Value {
    serde_json::to_value(&crd.spec.versions[version].schema).unwrap()["openAPIV3Schema"].clone()
}

/// Calls `visit` on a schema and all schemas below it, with their paths.
fn walk(path: &str, schema: &Value, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}.{name}"), property, visit);
    }
    for (key, shown) in [("items", "[*]"), ("additionalProperties", "{*}")] {
        if let Some(below) = schema.get(key) {
            walk(&format!("{path}{shown}"), below, visit);
        }
    }
}

fn walk_all(mut visit: impl FnMut(&str, &Value)) {
    for crd in crds() {
        for version in 0..crd.spec.versions.len() {
            walk(&crd.spec.names.kind, &schema_of(crd, version), &mut visit);
        }
    }
}

#[test]
fn kinds_have_the_names_that_users_of_kueue_type() {
    let found: Vec<_> = crds()
        .iter()
        .map(|crd| {
            let short = crd.spec.names.short_names.clone().unwrap_or_default().join(" ");
            let subresource = crd.spec.versions[0].subresources.is_some();
            format!(
                "{} {} {} [{short}] status={subresource}",
                crd.metadata.name.as_deref().unwrap(),
                crd.spec.names.kind,
                crd.spec.scope
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            "admissionchecks.kueue.x-k8s.io AdmissionCheck Cluster [ac] status=true",
            "clusterqueues.kueue.x-k8s.io ClusterQueue Cluster [cq] status=true",
            "cohorts.kueue.x-k8s.io Cohort Cluster [co] status=true",
            "localqueues.kueue.x-k8s.io LocalQueue Namespaced [queue queues lq] status=true",
            "multikueueclusters.kueue.x-k8s.io MultiKueueCluster Cluster [mkc] status=true",
            "multikueueconfigs.kueue.x-k8s.io MultiKueueConfig Cluster [mkconf] status=false",
            "provisioningrequestconfigs.kueue.x-k8s.io ProvisioningRequestConfig Cluster [prc] status=false",
            "resourceflavors.kueue.x-k8s.io ResourceFlavor Cluster [flavor flavors rf] status=false",
            "terms.sluice.internal Term Cluster [] status=false",
            "topologies.kueue.x-k8s.io Topology Cluster [topo] status=false",
            "workloadpriorityclasses.kueue.x-k8s.io WorkloadPriorityClass Cluster [wpc] status=false",
            "workloads.kueue.x-k8s.io Workload Namespaced [kwl kueueworkload kueueworkloads] status=true",
        ]
    );
}

#[test]
fn both_versions_are_served_and_the_newer_one_is_stored() {
    for crd in crds() {
        let versions: Vec<_> = crd
            .spec
            .versions
            .iter()
            .map(|v| (v.name.as_str(), v.served, v.storage, v.deprecated == Some(true)))
            .collect();
        let expected = match crd.spec.names.kind.as_str() {
            "Term" => vec![("v1alpha1", true, true, false)],
            "MultiKueueConfig" => vec![("v1beta2", true, true, false), ("v1beta1", true, false, false)],
            _ => vec![("v1beta2", true, true, false), ("v1beta1", true, false, true)],
        };
        assert_eq!(versions, expected, "{}", crd.spec.names.kind);
    }
}

#[test]
fn only_kinds_whose_versions_differ_are_converted_by_the_webhook() {
    let mut converted = Vec::new();
    for crd in crds() {
        let Some(conversion) = &crd.spec.conversion else {
            continue;
        };
        assert_eq!(conversion.strategy, "Webhook");
        let service = conversion.webhook.as_ref().unwrap().client_config.as_ref().unwrap();
        assert_eq!(service.service.as_ref().unwrap().path.as_deref(), Some("/convert"));
        converted.push(crd.spec.names.kind.as_str());
    }
    assert_eq!(
        converted,
        ["ClusterQueue", "Cohort", "LocalQueue", "MultiKueueCluster", "Workload"]
    );
    // What the API server cuts to the other version by itself must fit into it.
    for crd in crds().iter().filter(|crd| crd.spec.conversion.is_none()) {
        let mut fields = [Vec::new(), Vec::new()];
        for (version, fields) in fields.iter_mut().enumerate().take(crd.spec.versions.len()) {
            walk("", &schema_of(crd, version), &mut |path, _| {
                fields.push(path.to_owned());
            });
        }
        let [newer, mut older] = fields;
        older.retain(|path| path != ".spec.retryDelayMinutes");
        if !older.is_empty() {
            assert_eq!(newer, older, "{}", crd.spec.names.kind);
        }
    }
}

#[test]
fn nothing_is_missing_from_the_older_version_and_its_rules_name_only_its_own_fields() {
    let fields = |kind: &str| {
        let crd = crds().iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        let mut fields = Vec::new();
        let schema = schema_of(crd, 1);
        walk("", &schema, &mut |path, schema| {
            let texts = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
            let rules: Vec<String> = texts.map(ToString::to_string).collect();
            fields.push((path.to_owned(), rules.concat()));
        });
        fields
    };
    for (kind, there, gone) in [
        (
            "ClusterQueue",
            &[
                ".spec.cohort",
                ".spec.admissionChecks",
                ".status.pendingWorkloadsStatus",
            ][..],
            &["cohortName", "concurrentAdmissionPolicy"][..],
        ),
        (
            "LocalQueue",
            &[".status.flavorUsage", ".status.flavors"],
            &["flavorsUsage"],
        ),
        (
            "Cohort",
            &[".status.fairSharing.admissionFairSharingStatus", ".spec.parentName"],
            &[],
        ),
        (
            "MultiKueueCluster",
            &[".spec.kubeConfig.location", ".spec.clusterProfileRef.name"],
            &["clusterSource"],
        ),
        ("AdmissionCheck", &[".spec.retryDelayMinutes"], &[]),
        (
            "Workload",
            &[
                ".spec.priorityClassName",
                ".spec.priorityClassSource",
                ".status.accumulatedPastExexcutionTimeSeconds",
                ".status.admission.podSetAssignments[*].topologyAssignment.domains[*].values",
            ],
            &[
                "priorityClassRef",
                "accumulatedPastExecutionTimeSeconds",
                "podsetSliceRequiredTopologyConstraints",
            ],
        ),
    ] {
        let fields = fields(kind);
        for path in there {
            assert!(fields.iter().any(|(field, _)| field == path), "{kind}{path}");
        }
        for name in gone {
            for (field, rules) in &fields {
                assert!(!field.contains(name) && !rules.contains(name), "{kind}{field}: {rules}");
            }
        }
        assert!(fields.iter().all(|(field, _)| !field.contains("..")), "{kind}");
    }
}

#[test]
fn columns_are_those_of_kueue() {
    let columns = |plural: &str| {
        let crd = crds().iter().find(|crd| crd.spec.names.plural == plural).unwrap();
        let columns = crd.spec.versions[0]
            .additional_printer_columns
            .clone()
            .unwrap_or_default();
        columns
            .iter()
            .map(|c| format!("{}{}", c.name, if c.priority == Some(1) { " (wide)" } else { "" }))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        columns("clusterqueues"),
        [
            "Cohort",
            "Strategy (wide)",
            "Pending Workloads",
            "Admitted Workloads (wide)"
        ]
    );
    assert_eq!(
        columns("localqueues"),
        ["ClusterQueue", "Pending Workloads", "Admitted Workloads"]
    );
    assert_eq!(columns("workloadpriorityclasses"), ["Value"]);
    assert_eq!(columns("multikueueclusters"), ["Connected", "Age"]);
    assert_eq!(
        columns("workloads"),
        ["Queue", "Reserved in", "Admitted", "Finished", "Age"]
    );
    for plain in [
        "admissionchecks",
        "cohorts",
        "multikueueconfigs",
        "provisioningrequestconfigs",
        "resourceflavors",
        "topologies",
    ] {
        assert!(columns(plain).is_empty(), "{plain}");
    }
}

#[test]
fn workloads_can_be_selected_by_their_cluster_queue() {
    let crd = crds().iter().find(|crd| crd.spec.names.kind == "Workload").unwrap();
    let selectable = crd.spec.versions.iter().map(|version| {
        let fields = version.selectable_fields.iter().flatten();
        fields.map(|field| field.json_path.as_str()).collect::<Vec<_>>()
    });
    // In one version alone: the API server refuses them in both.
    assert!(selectable.eq([vec![".status.admission.clusterQueue"], vec![]]));
}

#[test]
fn columns_of_the_older_version_look_where_its_fields_are() {
    for crd in crds().iter().filter(|crd| crd.spec.versions.len() == 2) {
        let columns = crd.spec.versions[1].additional_printer_columns.iter().flatten();
        for path in columns.map(|column| column.json_path.as_str()) {
            let field = path.split(['[', '?']).next().unwrap();
            let found = field.split('.').skip(1).try_fold(schema_of(crd, 1), |schema, step| {
                (schema["type"] == "object").then(|| schema["properties"][step].clone())
            });
            let known = path.starts_with(".metadata.") || found.is_some_and(|schema| schema["type"].is_string());
            assert!(known, "{}: {path}", crd.spec.names.kind);
        }
    }
}

#[test]
fn nothing_is_nullable_or_titled() {
    walk_all(|path, schema| {
        for key in ["nullable", "title", "$ref", "oneOf", "allOf", "not"] {
            assert!(schema.get(key).is_none(), "{path}: {key}");
        }
        let nulls = schema["enum"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|value| value.is_null());
        assert_eq!(nulls.count(), 0, "{path}");
    });
}

#[test]
fn every_field_has_one_type_or_is_an_integer_or_string() {
    walk_all(|path, schema| {
        if schema["x-kubernetes-int-or-string"] == true {
            assert!(schema.get("type").is_none(), "{path}");
            assert_eq!(
                schema["anyOf"],
                serde_json::json!([{ "type": "integer" }, { "type": "string" }]),
                "{path}"
            );
        } else {
            assert!(schema["type"].is_string(), "{path}");
            assert!(schema.get("anyOf").is_none(), "{path}");
        }
    });
}

#[test]
fn every_field_is_described_in_whole_sentences_on_one_line() {
    walk_all(|path, schema| {
        // What the fields of a pod are is said by `kubectl explain pod`.
        if path.contains(".template.") {
            return;
        }
        let leaf = path.ends_with("[*]") || path.ends_with("{*}") || path.ends_with(".metadata");
        let text = schema["description"].as_str().unwrap_or_default();
        assert!(leaf || text.ends_with('.'), "{path}: {text:?}");
        assert!(
            !text.contains('\n') && !text.contains('`') && !text.contains('['),
            "{path}: {text:?}"
        );
    });
}

#[test]
fn every_list_says_how_it_merges_and_map_keys_are_always_there() {
    walk_all(|path, schema| {
        if schema["type"] != "array" {
            return;
        }
        let kind = schema["x-kubernetes-list-type"].as_str();
        assert!(matches!(kind, Some("atomic" | "set" | "map")), "{path}: {kind:?}");
        for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten() {
            let required = schema["items"]["required"].as_array();
            let filled_in = &schema["items"]["properties"][key.as_str().unwrap()]["default"];
            let there = required.is_some_and(|required| required.contains(key)) || filled_in.is_string();
            assert!(there, "{path}: {key}");
        }
    });
}

#[test]
fn a_spec_may_be_absent_where_nothing_in_it_is_required() {
    for crd in crds() {
        let required = schema(crd)["required"].clone();
        let expected = match crd.spec.names.kind.as_str() {
            "Term" => serde_json::json!(["spec"]),
            "WorkloadPriorityClass" => serde_json::json!(["value"]),
            "AdmissionCheck" | "MultiKueueCluster" | "MultiKueueConfig" | "ProvisioningRequestConfig" | "Topology" => {
                serde_json::json!(["spec"])
            }
            _ => Value::Null,
        };
        assert_eq!(required, expected, "{}", crd.spec.names.kind);
    }
}

#[test]
fn nothing_observed_has_a_default_but_a_key() {
    walk_all(|path, schema| {
        if path.contains(".status") && path != "Workload.status.admission.podSetAssignments[*].name" {
            assert!(schema.get("default").is_none(), "{path}");
        }
    });
}
