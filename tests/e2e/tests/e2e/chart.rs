//! The chart: rendered under many values, and installed, upgraded, rolled back and uninstalled for real.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use sluice_testkit::{Kubectl, Plane, PlaneOptions, eventually};

use crate::release::{Helm, find, objects};

const SHORT: Duration = Duration::from_secs(30);

/// Release, namespace and values that must all render, and be accepted by the API server.
const COMBINATIONS: &[(&str, &str, &[&str])] = &[
    ("sluice", "sluice-system", &[]),
    ("sluice", "sluice-system", &["scheduler.standalone=true"]),
    ("q", "batch", &[]),
    (
        "a-release-with-a-name-that-is-as-long-as-helm-lets-it",
        "batch",
        &["scheduler.standalone=true"],
    ),
    ("sluice", "kube-system", &[]),
    ("sluice", "sluice-system", &["fullnameOverride=queue"]),
    (
        "sluice",
        "sluice-system",
        &["nameOverride=queue", "scheduler.standalone=true"],
    ),
    (
        "sluice",
        "sluice-system",
        &[
            "webhook.failurePolicy=Ignore",
            "webhook.timeoutSeconds=5",
            "webhook.port=10250",
        ],
    ),
    ("sluice", "sluice-system", &["webhook.caBundle=LS0tLS1CRUdJTg=="]),
    (
        "sluice",
        "sluice-system",
        &["visibility.caBundle=LS0tLS1CRUdJTg==", "visibility.port=8448"],
    ),
    (
        "sluice",
        "sluice-system",
        &["visibility.parkAfter=", "scheduler.standalone=true"],
    ),
    ("sluice", "sluice-system", &["visibility.enabled=false"]),
    (
        "sluice",
        "sluice-system",
        &[
            "webhook.replicas=1",
            "scheduler.standalone=true",
            "scheduler.replicas=1",
        ],
    ),
    (
        "sluice",
        "sluice-system",
        &["podDisruptionBudget.maxUnavailable=50%", "scheduler.standalone=true"],
    ),
    (
        "sluice",
        "sluice-system",
        &["podDisruptionBudget.enabled=false", "rbac.userRoles=false"],
    ),
    (
        "sluice",
        "sluice-system",
        &["crds.install=false", "policies.enabled=false"],
    ),
    (
        "sluice",
        "sluice-system",
        &[
            "policies.breakGlass.users={ann,system:serviceaccount:ops:fire}",
            "policies.breakGlass.groups={fire-brigade}",
            "policies.schedulerUsers={old-scheduler}",
        ],
    ),
    (
        "sluice",
        "sluice-system",
        &[
            "image.repository=registry.example/sluice",
            "image.tag=v9",
            "image.pullPolicy=Always",
            "image.pullSecrets[0].name=registry",
            "priorityClassName=system-cluster-critical",
            "nodeSelector.pool=system",
            "tolerations[0].operator=Exists",
            "podLabels.team=platform",
            "podAnnotations.note=yes",
            "scheduler.standalone=true",
        ],
    ),
    (
        "sluice",
        "sluice-system",
        &[
            "scheduler.lease.namespace=sluice-system",
            "scheduler.lease.duration=3s",
            "scheduler.lease.renewDeadline=2s",
            "scheduler.lease.retryPeriod=500ms",
            "topologySpreadConstraints[0].maxSkew=2",
            "topologySpreadConstraints[0].topologyKey=rack",
            "topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
            "listenHost=[::]",
        ],
    ),
    (
        "sluice",
        "sluice-system",
        &[
            "config=apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n",
            "scheduler.standalone=true",
        ],
    ),
];

#[tokio::test]
async fn the_chart_lints_without_a_warning() -> Result<()> {
    Helm::offline().await?.lint().await?.ok()?;
    Ok(())
}

#[tokio::test]
async fn values_that_make_no_sense_are_refused_by_name() -> Result<()> {
    let helm = Helm::offline().await?;
    for (value, named) in [
        ("webhook.failurePolicy=Maybe", "failurePolicy"),
        ("webhook.timeoutSeconds=0", "timeoutSeconds"),
        ("webhook.caBundle=-----BEGIN", "caBundle"),
        ("scheduler.lease.duration=soon", "duration"),
        ("visibility.parkAfter=later", "parkAfter"),
        ("scheduler.standalon=true", "standalon"),
        ("policies.breakGlass.users=ann", "users"),
        ("logFormat=xml", "logFormat"),
        ("config.waitForPodsReady.timeout=5m", "config"),
    ] {
        let said = helm.manifest("sluice", "sluice-system", &[value]).await?.refused()?;
        ensure!(said.contains(named), "{value}: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn no_two_objects_share_a_name_and_every_reference_finds_its_object() -> Result<()> {
    let helm = Helm::offline().await?;
    for (release, namespace, values) in COMBINATIONS {
        let rendered = helm.render(release, namespace, values).await?;
        let mut names = BTreeSet::new();
        for object in &rendered {
            let id = (
                object["kind"].to_string(),
                object["metadata"]["namespace"].to_string(),
                object["metadata"]["name"].to_string(),
            );
            ensure!(names.insert(id.clone()), "{release} {values:?}: {id:?} is there twice");
        }
        for object in &rendered {
            for (kind, name) in references(object) {
                find(&rendered, kind, &name)
                    .with_context(|| format!("{release} {values:?}: {}", object["metadata"]))?;
            }
        }
    }
    Ok(())
}

/// What an object refers to by name, inside the release.
fn references(object: &Value) -> Vec<(&'static str, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("missing").to_owned();
    let mut found = Vec::new();
    match object["kind"].as_str() {
        Some("Deployment") => {
            found.push((
                "ServiceAccount",
                text(&object["spec"]["template"]["spec"]["serviceAccountName"]),
            ));
        }
        Some("ClusterRoleBinding") => found.push(("ClusterRole", text(&object["roleRef"]["name"]))),
        Some("RoleBinding") => found.push(("Role", text(&object["roleRef"]["name"]))),
        Some("APIService") => found.push(("Service", text(&object["spec"]["service"]["name"]))),
        Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration") => {
            for webhook in object["webhooks"].as_array().into_iter().flatten() {
                found.push(("Service", text(&webhook["clientConfig"]["service"]["name"])));
            }
        }
        Some("CustomResourceDefinition") => {
            let client = &object["spec"]["conversion"]["webhook"]["clientConfig"];
            if !client.is_null() {
                found.push(("Service", text(&client["service"]["name"])));
            }
        }
        Some("ValidatingAdmissionPolicyBinding") => {
            found.push(("ValidatingAdmissionPolicy", text(&object["spec"]["policyName"])));
        }
        _ => {}
    }
    for subject in object["subjects"].as_array().into_iter().flatten() {
        found.push(("ServiceAccount", text(&subject["name"])));
    }
    found.retain(|(_, name)| !OF_KUBERNETES.contains(&name.as_str()));
    found
}

/// Roles that every cluster has, for aggregated API servers.
const OF_KUBERNETES: &[&str] = &["system:auth-delegator", "extension-apiserver-authentication-reader"];

#[tokio::test]
async fn the_scheduler_is_a_sidecar_without_a_readiness_probe_or_stands_alone_with_its_own_identity() -> Result<()> {
    let helm = Helm::offline().await?;
    let sidecar = helm.render("sluice", "sluice-system", &[]).await?;
    let pod = &find(&sidecar, "Deployment", "sluice-webhook")?["spec"]["template"]["spec"];
    ensure!(pod["containers"][0]["name"] == "webhook" && pod["containers"][1]["name"] == "scheduler");
    ensure!(pod["containers"][0]["readinessProbe"].is_object() && pod["containers"][1]["readinessProbe"].is_null());
    ensure!(find(&sidecar, "Deployment", "sluice-scheduler").is_err());

    let alone = helm
        .render("sluice", "sluice-system", &["scheduler.standalone=true"])
        .await?;
    ensure!(find(&alone, "Deployment", "sluice-webhook")?["spec"]["template"]["spec"]["containers"][1].is_null());
    let scheduler = &find(&alone, "Deployment", "sluice-scheduler")?["spec"]["template"]["spec"];
    ensure!(scheduler["serviceAccountName"] == "sluice-scheduler");
    ensure!(scheduler["containers"][0]["readinessProbe"].is_object());
    // Least privilege: the identity of the webhook reads, and nothing else.
    for rule in find(&alone, "ClusterRole", "sluice-webhook")?["rules"]
        .as_array()
        .into_iter()
        .flatten()
    {
        for verb in rule["verbs"].as_array().into_iter().flatten() {
            ensure!(
                ["get", "list", "watch"].contains(&verb.as_str().unwrap_or_default()),
                "the webhook may {verb}"
            );
        }
    }
    // But for two objects by name, which it takes out of the way while no scheduler serves them.
    let parking = &find(&alone, "ClusterRole", "sluice-visibility-parking")?["rules"];
    ensure!(parking.as_array().is_some_and(|rules| rules.len() == 1), "{parking}");
    let names = json!(["v1beta1.visibility.kueue.x-k8s.io", "v1beta2.visibility.kueue.x-k8s.io"]);
    ensure!(parking[0]["resourceNames"] == names, "{parking}");
    ensure!(
        parking[0]["verbs"] == json!(["get", "list", "watch", "patch"]),
        "{parking}"
    );
    Ok(())
}

#[tokio::test]
async fn the_visibility_api_leads_to_the_schedulers_with_a_certificate_that_is_checked_if_its_authority_is_known()
-> Result<()> {
    let helm = Helm::offline().await?;
    for (values, component, checked) in [
        (&[][..], "webhook", false),
        (&["scheduler.standalone=true"], "scheduler", false),
        (&["visibility.caBundle=LS0tLS1CRUdJTg=="], "webhook", true),
    ] {
        let rendered = helm.render("sluice", "sluice-system", values).await?;
        let service = &find(&rendered, "Service", "sluice-visibility")?["spec"];
        ensure!(
            service["selector"]["app.kubernetes.io/component"] == component,
            "{service}"
        );
        for version in ["v1beta1", "v1beta2"] {
            let name = format!("{version}.visibility.kueue.x-k8s.io");
            let spec = &find(&rendered, "APIService", &name)?["spec"];
            ensure!(spec["insecureSkipTLSVerify"].is_null() == checked, "{spec}");
            ensure!(spec["caBundle"].is_string() == checked, "{spec}");
        }
        let pod = &find(&rendered, "Deployment", &format!("sluice-{component}"))?["spec"]["template"]["spec"];
        let volumes = pod["volumes"].as_array().context("no volumes")?;
        let secret = volumes.iter().find(|volume| volume["name"] == "visibility-tls");
        ensure!(secret.is_some() == checked, "{volumes:?}");
        ensure!(
            secret.is_none_or(|secret| secret["secret"]["optional"] == true),
            "{volumes:?}"
        );
    }
    let off = helm
        .render("sluice", "sluice-system", &["visibility.enabled=false"])
        .await?;
    let left = off
        .iter()
        .filter(|object| object["metadata"]["name"].to_string().contains("visibility"));
    ensure!(left.count() == 0);
    Ok(())
}

#[tokio::test]
async fn both_containers_are_given_the_configuration_file_and_start_anew_when_it_changes() -> Result<()> {
    let helm = Helm::offline().await?;
    let file = "# mine\nkind: Configuration\n";
    let value = format!("config={file}");
    let mut checksums = BTreeSet::new();
    for values in [
        &["scheduler.standalone=true"][..],
        &["scheduler.standalone=true", &value],
    ] {
        let rendered = helm.render("sluice", "sluice-system", values).await?;
        let wanted = if values.len() == 1 { "" } else { file };
        ensure!(find(&rendered, "ConfigMap", "sluice-config")?["data"]["config.yaml"] == wanted);
        for deployment in ["sluice-webhook", "sluice-scheduler"] {
            let template = &find(&rendered, "Deployment", deployment)?["spec"]["template"];
            let container = &template["spec"]["containers"][0];
            let arguments = container["args"].as_array().context("no arguments")?;
            ensure!(
                arguments.contains(&json!("--config=/etc/sluice/config/config.yaml")),
                "{container}"
            );
            let mounts = container["volumeMounts"].as_array().context("no mounts")?;
            ensure!(
                mounts.contains(&json!({"name": "config", "mountPath": "/etc/sluice/config", "readOnly": true})),
                "{container}"
            );
            let volumes = template["spec"]["volumes"].as_array().context("no volumes")?;
            ensure!(
                volumes
                    .iter()
                    .any(|volume| volume["configMap"]["name"] == "sluice-config"),
                "{volumes:?}"
            );
            checksums.insert(template["metadata"]["annotations"]["sluice.internal/config-checksum"].to_string());
        }
    }
    ensure!(checksums.len() == 2, "{checksums:?}");
    Ok(())
}

#[tokio::test]
async fn a_webhook_that_is_down_keeps_nobody_from_changing_a_queue() -> Result<()> {
    let rendered = Helm::offline().await?.render("q", "batch", &[]).await?;
    let webhooks = &find(&rendered, "ValidatingWebhookConfiguration", "q-sluice")?["webhooks"];
    let kinds = ["clusterqueue", "cohort", "localqueue", "resourceflavor", "workload"];
    for (entry, kind) in kinds.into_iter().enumerate() {
        let webhook = &webhooks[entry + 1];
        ensure!(
            webhook["name"] == format!("{kind}s.queues.sluice.internal"),
            "{webhook}"
        );
        let path = format!("/validate-kueue-x-k8s-io-v1beta2-{kind}");
        ensure!(webhook["clientConfig"]["service"]["path"] == path, "{webhook}");
        ensure!(
            webhook["rules"][0]["operations"] == json!(["CREATE", "UPDATE"]),
            "{webhook}"
        );
        ensure!(webhook["failurePolicy"] == "Ignore", "{webhook}");
    }
    ensure!(webhooks[0]["failurePolicy"] == "Fail" && webhooks.as_array().is_some_and(|all| all.len() == 6));
    let workloads = &webhooks[5];
    ensure!(
        workloads["rules"][0]["resources"] == json!(["workloads", "workloads/status"]),
        "{workloads}"
    );
    ensure!(
        workloads["matchConditions"]
            .to_string()
            .contains("system:serviceaccount:batch:"),
        "{workloads}"
    );
    Ok(())
}

#[tokio::test]
async fn definitions_are_converted_by_the_webhook_of_their_own_release_before_it_is_ready() -> Result<()> {
    let helm = Helm::offline().await?;
    let bundle = "LS0tLS1CRUdJTg==";
    let value = format!("webhook.caBundle={bundle}");
    for (release, namespace, name, values) in [
        ("sluice", "sluice-system", "sluice-conversion", &[][..]),
        ("q", "batch", "q-sluice-conversion", &[value.as_str()]),
    ] {
        let rendered = helm.render(release, namespace, values).await?;
        let service = &find(&rendered, "Service", name)?["spec"];
        ensure!(service["publishNotReadyAddresses"] == true, "{service}");
        let ready_only = &find(&rendered, "Service", &name.replace("conversion", "webhook"))?["spec"];
        ensure!(ready_only["publishNotReadyAddresses"].is_null(), "{ready_only}");
        let mut converted = Vec::new();
        for definition in rendered
            .iter()
            .filter(|object| object["kind"] == "CustomResourceDefinition")
        {
            let conversion = &definition["spec"]["conversion"];
            if conversion["strategy"] == "None" {
                continue;
            }
            let client = &conversion["webhook"]["clientConfig"];
            let wanted = json!({"name": name, "namespace": namespace, "path": "/convert", "port": 443});
            ensure!(client["service"] == wanted, "{client}");
            let trusted = if values.is_empty() { Value::Null } else { json!(bundle) };
            ensure!(client["caBundle"] == trusted, "{client}");
            converted.push(definition["spec"]["names"]["plural"].as_str().unwrap_or_default());
        }
        let wanted = [
            "clusterqueues",
            "cohorts",
            "localqueues",
            "multikueueclusters",
            "workloads",
        ];
        ensure!(converted == wanted, "{converted:?}");
    }
    Ok(())
}

#[tokio::test]
async fn pods_run_without_any_privilege() -> Result<()> {
    let helm = Helm::offline().await?;
    for object in helm
        .render("sluice", "sluice-system", &["scheduler.standalone=true"])
        .await?
    {
        if object["kind"] != "Deployment" {
            continue;
        }
        let pod = &object["spec"]["template"]["spec"];
        ensure!(pod["securityContext"]["runAsNonRoot"] == true);
        ensure!(pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault");
        for container in pod["containers"].as_array().into_iter().flatten() {
            let context = &container["securityContext"];
            ensure!(context["readOnlyRootFilesystem"] == true && context["allowPrivilegeEscalation"] == false);
            ensure!(context["capabilities"] == json!({"drop": ["ALL"]}));
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_two_entries_of_the_mutating_webhook_are_disjoint_and_spare_the_exempt_namespaces() -> Result<()> {
    let rendered = Helm::offline().await?.render("q", "batch", &[]).await?;
    let webhooks = &find(&rendered, "MutatingWebhookConfiguration", "q-sluice")?["webhooks"];
    let requirement = |entry: usize| webhooks[entry]["namespaceSelector"]["matchExpressions"][1].clone();
    let opt_in =
        |operator| json!({"key": "kueue.x-k8s.io/managed-namespace", "operator": operator, "values": ["true"]});
    ensure!(
        requirement(0) == opt_in("In") && requirement(1) == opt_in("NotIn"),
        "{webhooks}"
    );
    for entry in webhooks.as_array().context("no webhooks")? {
        let exempt = &entry["namespaceSelector"]["matchExpressions"][0];
        ensure!(
            exempt["operator"] == "NotIn" && exempt["values"] == json!(["kube-system", "batch"]),
            "{exempt}"
        );
        ensure!(
            entry["sideEffects"] == "None" && entry["reinvocationPolicy"] == "IfNeeded",
            "{entry}"
        );
        ensure!(
            entry["timeoutSeconds"] == 2 && entry["failurePolicy"] == "Fail",
            "{entry}"
        );
        ensure!(
            entry["rules"][0]["operations"] == json!(["CREATE", "UPDATE"]),
            "{entry}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn the_release_lives_its_whole_life_on_a_real_api_server() -> Result<()> {
    let options = PlaneOptions {
        more_controllers: vec!["validatingadmissionpolicy-status-controller".to_owned()],
        ..PlaneOptions::default()
    };
    let plane = Plane::start(options).await?;
    let helm = Helm::of(&plane);
    let kubectl = plane.kubectl();
    every_combination_is_accepted(&helm, &kubectl).await?;

    let before = inventory(&kubectl).await?;
    let install = [
        "install",
        "sluice",
        "sluice",
        "-n",
        "sluice-system",
        "--create-namespace",
    ];
    // Nobody serves the visibility API here: see its own tests.
    helm.run(
        &[
            &install[..],
            &["--set", "webhook.failurePolicy=Ignore,visibility.enabled=false"],
        ]
        .concat(),
    )
    .await?
    .ok()?;
    nothing_drifts(&helm, &kubectl).await?;
    policies_have_no_warnings(&kubectl).await?;
    aggregated_roles_are_filled(&kubectl).await?;
    create_queues_and_a_job(&kubectl).await?;

    for values in [
        "scheduler.standalone=true",
        "scheduler.standalone=false,webhook.replicas=3",
    ] {
        let upgrade = [
            "upgrade",
            "sluice",
            "sluice",
            "-n",
            "sluice-system",
            "--reuse-values",
            "--set",
            values,
        ];
        helm.run(&upgrade).await?.ok()?;
        nothing_drifts(&helm, &kubectl).await?;
    }
    helm.run(&["rollback", "sluice", "1", "-n", "sluice-system"])
        .await?
        .ok()?;
    nothing_drifts(&helm, &kubectl).await?;

    helm.run(&["uninstall", "sluice", "-n", "sluice-system", "--wait"])
        .await?
        .ok()?;
    let left: Vec<String> = inventory(&kubectl).await?.difference(&before).cloned().collect();
    let crds: Vec<String> = left
        .iter()
        .filter(|name| name.starts_with("customresourcedefinition"))
        .cloned()
        .collect();
    ensure!(!crds.is_empty(), "the definitions are gone, and the queues with them");
    ensure!(
        left.len() == crds.len(),
        "uninstalling left more than the definitions: {left:?}"
    );
    kubectl
        .line("get clusterqueue/kept localqueue/kept job/kept")
        .await?
        .ok()?;
    Ok(())
}

/// The API server itself checks what is rendered, field by field.
async fn every_combination_is_accepted(helm: &Helm, kubectl: &Kubectl) -> Result<()> {
    for namespace in ["sluice-system", "batch"] {
        kubectl.line(&format!("create namespace {namespace}")).await?.ok()?;
    }
    for (release, namespace, values) in COMBINATIONS {
        // The definitions are the same in all of them, large, and installed for real below.
        let values = [values, &["crds.install=false"][..]].concat();
        let manifest = helm.manifest(release, namespace, &values).await?.ok()?;
        let create = ["create", "--dry-run=server", "--validate=strict", "-f", "-"];
        let output = kubectl.run(&create, &manifest).await?;
        ensure!(
            !output.stderr.contains("Warning"),
            "{release} {values:?}: {}",
            output.stderr
        );
        output.ok().with_context(|| format!("{release} {values:?}"))?;
    }
    Ok(())
}

/// Kinds of which the chart, or an installation of it, could leave something behind.
const KINDS: &str = "customresourcedefinitions,mutatingwebhookconfigurations,validatingwebhookconfigurations,\
    validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,clusterrolebindings,roles,rolebindings,\
    serviceaccounts,services,deployments,poddisruptionbudgets,configmaps,secrets";

async fn inventory(kubectl: &Kubectl) -> Result<BTreeSet<String>> {
    let names = kubectl.line(&format!("get {KINDS} -A -o name")).await?.ok()?;
    // Kubernetes puts its own into every new namespace.
    let ours = |name: &&str| !name.ends_with("/default") && !name.ends_with("/kube-root-ca.crt");
    Ok(names.lines().filter(ours).map(ToOwned::to_owned).collect())
}

/// What GitOps compares: the API server has added no field to what was rendered.
pub(crate) async fn nothing_drifts(helm: &Helm, kubectl: &Kubectl) -> Result<()> {
    let manifest = helm
        .run(&["get", "manifest", "sluice", "-n", "sluice-system"])
        .await?
        .ok()?;
    let rendered = objects(&manifest)?;
    let live = kubectl
        .run(&["get", "-f", "-", "-o", "json"], &manifest)
        .await?
        .json()?;
    let live = live["items"].as_array().context("no list")?;
    ensure!(
        live.len() == rendered.len(),
        "{} of {} objects are there",
        live.len(),
        rendered.len()
    );
    let mut drift = Vec::new();
    for (rendered, live) in rendered.iter().zip(live) {
        let id = format!("{} {}", rendered["kind"], rendered["metadata"]["name"]);
        ensure!(
            rendered["metadata"]["name"] == live["metadata"]["name"],
            "the list is in another order at {id}"
        );
        for (key, value) in live.as_object().context("no object")? {
            // The rules of an aggregated role are the control plane's to fill in.
            let filled_in = key == "rules" && rendered["aggregationRule"].is_object();
            if key != "metadata" && key != "status" && !filled_in {
                added(&format!("{id} {key}"), &rendered[key], value, &mut drift);
            }
        }
    }
    drift.retain(|field| !allocated(field));
    ensure!(
        drift.is_empty(),
        "the API server changed or added:\n{}",
        drift.join("\n")
    );
    Ok(())
}

/// What only the control plane can know.
fn allocated(field: &str) -> bool {
    let service = [".clusterIP", ".clusterIPs", ".ipFamilies", ".ipFamilyPolicy"];
    field.starts_with("\"Service\"") && service.iter().any(|name| field.ends_with(name))
}

fn added(path: &str, rendered: &Value, live: &Value, drift: &mut Vec<String>) {
    match (rendered, live) {
        (Value::Object(rendered), Value::Object(live)) => {
            for (key, value) in live {
                added(
                    &format!("{path}.{key}"),
                    rendered.get(key).unwrap_or(&Value::Null),
                    value,
                    drift,
                );
            }
        }
        (Value::Array(rendered), Value::Array(live)) if rendered.len() == live.len() => {
            for (index, (rendered, live)) in rendered.iter().zip(live).enumerate() {
                added(&format!("{path}[{index}]"), rendered, live, drift);
            }
        }
        // A `minimum: 0` may come back as `0.0`.
        (Value::Number(rendered), Value::Number(live)) if rendered.as_f64() == live.as_f64() => {}
        _ if rendered == live => {}
        _ => drift.push(path.to_owned()),
    }
}

async fn policies_have_no_warnings(kubectl: &Kubectl) -> Result<()> {
    eventually("the policies are type-checked without a warning", SHORT, || async {
        let policies = kubectl.get("validatingadmissionpolicies").await?;
        for policy in policies["items"].as_array().context("no list")? {
            let status = &policy["status"];
            if status["observedGeneration"] != policy["metadata"]["generation"] {
                bail!("{} is not checked yet", policy["metadata"]["name"]);
            }
            if status["typeChecking"] != json!({}) {
                bail!("{}: {}", policy["metadata"]["name"], status["typeChecking"]);
            }
        }
        Ok(())
    })
    .await
}

async fn aggregated_roles_are_filled(kubectl: &Kubectl) -> Result<()> {
    for user in ["viewer", "tenant", "admin"] {
        let role = match user {
            "viewer" => "view",
            "tenant" => "sluice-batch-user",
            _ => "sluice-batch-admin",
        };
        kubectl
            .line(&format!(
                "create clusterrolebinding {user} --clusterrole={role} --user={user}"
            ))
            .await?
            .ok()?;
    }
    for (user, verb, resource, allowed) in [
        ("viewer", "list", "localqueues.kueue.x-k8s.io", true),
        ("viewer", "create", "localqueues.kueue.x-k8s.io", false),
        ("tenant", "create", "jobs.batch", true),
        ("tenant", "watch", "localqueues.kueue.x-k8s.io", true),
        ("tenant", "update", "clusterqueues.kueue.x-k8s.io", false),
        ("admin", "update", "clusterqueues.kueue.x-k8s.io", true),
        ("admin", "delete", "resourceflavors.kueue.x-k8s.io", true),
        ("admin", "patch", "cohorts.kueue.x-k8s.io", true),
        ("tenant", "update", "cohorts.kueue.x-k8s.io", false),
        ("tenant", "list", "workloads.kueue.x-k8s.io", true),
        ("tenant", "create", "workloads.kueue.x-k8s.io", false),
        ("admin", "create", "workloads.kueue.x-k8s.io", true),
        ("admin", "update", "admissionchecks.kueue.x-k8s.io", true),
        ("admin", "delete", "topologies.kueue.x-k8s.io", true),
        ("admin", "get", "secrets", false),
    ] {
        eventually(&format!("{user} may {verb} {resource}: {allowed}"), SHORT, || async {
            let output = kubectl
                .line(&format!("auth can-i {verb} {resource} --as={user} -A"))
                .await?;
            if output.succeeded() == allowed {
                Ok(())
            } else {
                bail!("{}{}", output.stdout, output.stderr)
            }
        })
        .await?;
    }
    kubectl
        .line("delete clusterrolebinding viewer tenant admin")
        .await?
        .ok()?;
    Ok(())
}

async fn create_queues_and_a_job(kubectl: &Kubectl) -> Result<()> {
    let queues = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: kept}
spec:
  namespaceSelector: {}
  resourceGroups: []
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: kept, namespace: default}
spec: {clusterQueue: kept}
---
apiVersion: batch/v1
kind: Job
metadata: {name: kept, namespace: default, labels: {kueue.x-k8s.io/queue-name: kept}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: main}]
";
    kubectl.create(queues).await?;
    Ok(())
}
