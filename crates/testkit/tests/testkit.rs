//! The testkit, tested on planes of its own.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use sluice_testkit::{
    Answer, AuditMark, FakeNode, FaultProxy, Match, Plane, PlaneOptions, Referee, Rule, Signal, Violation, annotations,
    eventually,
};

const SOON: Duration = Duration::from_secs(30);

fn job(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"backoffLimit": 0, "template": {
            "metadata": {"annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        }},
    })
}

/// Processes whose command line names `folder`.
fn processes_in(folder: &Path) -> Vec<String> {
    let needle = folder.to_string_lossy();
    let processes = std::fs::read_dir("/proc").into_iter().flatten();
    processes
        .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&*needle))
        .collect()
}

#[tokio::test]
async fn a_plane_runs_jobs_to_every_end_and_leaves_nothing() {
    let options = PlaneOptions {
        nodes: vec![
            FakeNode::new("plain"),
            FakeNode::new("gpu").label("pool", "gpu").taint("gpu=yes:NoSchedule"),
        ],
        keep_folder: false,
        ..PlaneOptions::default()
    };
    let plane = Plane::start(options).await.unwrap();
    let version = plane.client().await.unwrap().apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));

    let kubectl = plane.kubectl();
    let slow = json!({annotations::START_AFTER: "100ms", annotations::RUN_FOR: "200ms"});
    kubectl.create(&job("slow", &slow).to_string()).await.unwrap();
    kubectl
        .create(&job("broken", &json!({annotations::EXIT_CODE: "3"})).to_string())
        .await
        .unwrap();
    kubectl
        .line("create job sleeper --image=i -- sleep 0.2")
        .await
        .unwrap()
        .ok()
        .unwrap();
    kubectl
        .line("create job failer --image=i -- false")
        .await
        .unwrap()
        .ok()
        .unwrap();
    kubectl
        .line("wait --for=condition=Complete job/slow job/sleeper --timeout=30s")
        .await
        .unwrap()
        .ok()
        .unwrap();
    kubectl
        .line("wait --for=condition=Failed job/broken --timeout=30s")
        .await
        .unwrap()
        .ok()
        .unwrap();
    kubectl
        .line("wait --for=jsonpath={.status.failed}=1 job/failer --timeout=30s")
        .await
        .unwrap()
        .ok()
        .unwrap();
    let pods = kubectl
        .get("pods -l batch.kubernetes.io/job-name=broken")
        .await
        .unwrap();
    let pod = &pods["items"][0];
    assert_eq!(
        pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"],
        3
    );
    assert_eq!(pod["spec"]["nodeName"], "plain");

    eventually("the create of slow is in the audit log", SOON, || async {
        let writes = plane
            .audit()
            .job_writes(AuditMark::START, |user| user == "kubernetes-admin")
            .unwrap();
        writes
            .iter()
            .any(|event| event.verb == "create" && event.name == "slow")
            .then_some(())
            .ok_or(writes)
    })
    .await
    .unwrap();

    let bob = kubectl.with(&plane.user("bob", &[]).unwrap().path);
    assert!(bob.line("get jobs").await.unwrap().refused().unwrap().contains("bob"));
    let account = plane.service_account("default", "default").await.unwrap();
    let refusal = kubectl
        .with(&account.path)
        .line("get jobs")
        .await
        .unwrap()
        .refused()
        .unwrap();
    assert!(refusal.contains("system:serviceaccount:default:default"), "{refusal}");

    let folder = plane.folder().to_owned();
    assert!(!processes_in(&folder).is_empty());
    plane.shut_down().unwrap();
    assert!(!folder.exists());
    assert_eq!(processes_in(&folder), [""; 0]);
}

#[tokio::test]
async fn children_are_stopped_killed_and_started_again_by_name() {
    let plane = bare().await.unwrap();
    let sleep = ["sleep".to_owned(), "1000".to_owned()];
    plane
        .start_process("sleeper", &sleep, &std::collections::BTreeMap::new())
        .await
        .unwrap();
    let error = plane.restart("sleeper").await.unwrap_err();
    assert!(error.to_string().contains("runs already"), "{error}");
    plane.signal("sleeper", Signal::Stop).await.unwrap();
    plane.signal("sleeper", Signal::Cont).await.unwrap();
    assert_eq!(plane.exit("sleeper"), None);
    plane.signal("sleeper", Signal::Term).await.unwrap();
    assert_eq!(
        plane.wait_exit("sleeper", SOON).await.unwrap().signal.as_deref(),
        Some("terminated")
    );
    assert!(plane.signal("sleeper", Signal::Term).await.is_err());
    plane.restart("sleeper").await.unwrap();
    let exit = plane.kill("sleeper").await.unwrap();
    assert_eq!((exit.code, exit.signal.as_deref()), (-1, Some("killed")));
    let missing = plane
        .start_process(
            "missing",
            &["/nonexistent".to_owned()],
            &std::collections::BTreeMap::new(),
        )
        .await;
    assert!(format!("{:#}", missing.unwrap_err()).contains("no such file"));
}

/// Starts a process that owns a bare plane; returns it with what it printed up to a line that starts with `last`.
fn owner(arguments: &[&str], last: &str) -> Result<(std::process::Child, Vec<String>)> {
    let mut owner = Command::new(env!("CARGO_BIN_EXE_plane"))
        .args(arguments)
        .env_remove("SLUICE_TESTKIT_KEEP")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut printed = Vec::new();
    for line in BufReader::new(owner.stdout.take().context("no stdout")?).lines() {
        printed.push(line?);
        if printed.last().is_some_and(|line| line.starts_with(last)) {
            break;
        }
    }
    Ok((owner, printed))
}

fn after<'a>(printed: &'a [String], start: &str) -> Option<&'a str> {
    printed.iter().find_map(|line| line.strip_prefix(start))
}

async fn until_nothing_is_left_of(folder: &Path) -> Result<()> {
    eventually("everything is gone", SOON, || async {
        let left = processes_in(folder);
        if folder.exists() || !left.is_empty() {
            Err(left)
        } else {
            Ok(())
        }
    })
    .await
}

#[tokio::test]
async fn a_killed_owner_leaves_no_process_and_no_folder() {
    let (mut owner, printed) = owner(&["bare"], "folder: ").unwrap();
    let folder = PathBuf::from(after(&printed, "folder: ").unwrap());
    assert!(processes_in(&folder).len() >= 3, "etcd, API server and supervisor run");
    owner.kill().unwrap();
    owner.wait().unwrap();
    until_nothing_is_left_of(&folder).await.unwrap();
}

#[tokio::test]
async fn a_detached_plane_outlives_its_owner_until_it_is_told_to_end() {
    let (mut owner, printed) = owner(&["bare", "detach"], "end it with: ").unwrap();
    assert!(owner.wait().unwrap().success());
    let folder = PathBuf::from(after(&printed, "folder: ").unwrap());
    let kubeconfig = after(&printed, "export KUBECONFIG=").unwrap();
    let kubectl = after(&printed, "alias kubectl='").unwrap().trim_end_matches('\'');
    let version = Command::new("sh")
        .args(["-c", &format!("{kubectl} --kubeconfig={kubeconfig} get --raw /version")])
        .output()
        .unwrap();
    assert!(version.status.success(), "{version:?}");
    let end = after(&printed, "end it with: ").unwrap();
    assert!(Command::new("sh").args(["-c", end]).status().unwrap().success());
    until_nothing_is_left_of(&folder).await.unwrap();
}

#[tokio::test]
async fn a_fault_proxy_breaks_what_it_is_told_to_and_nothing_else() {
    let plane = bare().await.unwrap();
    plane
        .kubectl()
        .line("create serviceaccount worker")
        .await
        .unwrap()
        .ok()
        .unwrap();
    let grant = "create clusterrolebinding worker --clusterrole=cluster-admin --serviceaccount=default:worker";
    plane.kubectl().line(grant).await.unwrap().ok().unwrap();
    let direct = plane.service_account("default", "worker").await.unwrap();
    let proxy = FaultProxy::start(&plane).await.unwrap();
    let proxied = proxy
        .kubeconfig(&direct, &plane.folder().join("kubeconfigs/proxied"))
        .unwrap();
    let jobs: Api<Job> = Api::default_namespaced(proxied.client().await.unwrap());
    let truth: Api<Job> = Api::default_namespaced(plane.client().await.unwrap());
    let suspended = json!({"spec": {"suspend": true}});
    jobs.create(
        &PostParams::default(),
        &serde_json::from_value(job("j", &json!({}))).unwrap(),
    )
    .await
    .unwrap();

    let dropped = proxy.add(Rule::times(1, Match::patch_jobs(), Answer::DropResponse));
    let patch = Patch::Merge(&suspended);
    let lost = jobs.patch("j", &PatchParams::default(), &patch).await;
    assert!(
        !matches!(lost, Ok(_) | Err(kube::Error::Api(_))),
        "the answer must be lost: {lost:?}"
    );
    assert_eq!(proxy.hits(dropped), 1);
    assert_eq!(
        truth.get("j").await.unwrap().spec.unwrap().suspend,
        Some(true),
        "the server did it"
    );
    jobs.patch("j", &PatchParams::default(), &patch).await.unwrap();

    proxy.add(Rule::times(1, Match::patch_jobs(), Answer::Status(409)));
    let refused = jobs.patch("j", &PatchParams::default(), &patch).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.is_conflict()),
        "{refused:?}"
    );

    let stalled = proxy.add(Rule::always(Match::patch_jobs(), Answer::Stall));
    let parameters = PatchParams::default();
    let waited = tokio::time::timeout(Duration::from_millis(300), jobs.patch("j", &parameters, &patch)).await;
    assert!(waited.is_err(), "a stalled request is not answered");
    proxy.remove(stalled);

    let mut events = Box::pin(jobs.watch(&WatchParams::default(), "0").await.unwrap());
    assert!(matches!(events.next().await, Some(Ok(WatchEvent::Added(_)))));
    proxy.cut_watches();
    while let Some(event) = tokio::time::timeout(SOON, events.next()).await.expect("the watch ends") {
        assert!(!matches!(event, Ok(WatchEvent::Added(_))));
    }
}

#[tokio::test]
async fn the_referee_sees_usage_over_quota_double_admissions_and_early_pods() {
    let plane = Plane::start(PlaneOptions::with_nodes()).await.unwrap();
    let kubectl = plane.kubectl();
    kubectl.apply(&cluster_queue_definition().to_string()).await.unwrap();
    kubectl
        .line("wait crd --all --for=condition=Established --timeout=30s")
        .await
        .unwrap()
        .ok()
        .unwrap();
    kubectl.create(&cluster_queue("2").to_string()).await.unwrap();
    let referee = Referee::start(&plane).await.unwrap();
    let jobs: Api<Job> = Api::default_namespaced(plane.client().await.unwrap());
    for name in ["a", "b", "c"] {
        let mut queued = job(name, &json!({annotations::RUN_FOR: "1h"}));
        queued["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "q"});
        queued["spec"]["suspend"] = json!(name != "c");
        jobs.create(&PostParams::default(), &serde_json::from_value(queued).unwrap())
            .await
            .unwrap();
    }
    admit(&jobs, "a", "1500m", 1).await.unwrap();
    let verdict = referee.settled().await;
    assert_eq!(referee.usage("cq", "default", "cpu"), "1500m");
    assert!(
        matches!(&verdict.violations[..], [Violation::PodBeforeAdmission { job, .. }] if job == "default/c"),
        "{verdict:?}"
    );

    admit(&jobs, "b", "1", 1).await.unwrap();
    admit(&jobs, "b", "1", 2).await.unwrap();
    let verdict = referee.settled().await;
    let over = Violation::OverQuota {
        job: "default/b".into(),
        cluster_queue: "cq".into(),
        flavor: "default".into(),
        resource: "cpu".into(),
        used: "2500m".into(),
        quota: "2".into(),
    };
    assert_eq!(verdict.violations[1], over);
    assert_eq!(
        verdict.violations[2],
        Violation::AdmittedTwice {
            job: "default/b".into()
        }
    );
    assert_eq!(verdict.admissions["default/b"], 2);
    let peak = &verdict.peaks[&("cq".to_owned(), "default".to_owned(), "cpu".to_owned())];
    assert_eq!((peak.used.as_str(), peak.quota.as_deref()), ("2500m", Some("2")));

    // A deleted Job's pods are charged until they are gone.
    kubectl
        .line("delete job b --cascade=orphan")
        .await
        .unwrap()
        .ok()
        .unwrap();
    referee.settled().await;
    assert_eq!(referee.usage("cq", "default", "cpu"), "2500m");
    kubectl
        .line("delete pods -l batch.kubernetes.io/job-name=b")
        .await
        .unwrap()
        .ok()
        .unwrap();
    eventually("the orphan's quota comes back", SOON, || async {
        let usage = referee.usage("cq", "default", "cpu");
        if usage == "1500m" { Ok(()) } else { Err(usage) }
    })
    .await
    .unwrap();
}

async fn bare() -> Result<Plane> {
    let options = PlaneOptions {
        controllers: false,
        ..PlaneOptions::default()
    };
    Plane::start(options).await
}

async fn admit(jobs: &Api<Job>, name: &str, cpu: &str, term: u64) -> Result<()> {
    let uid = jobs.get(name).await?.metadata.uid;
    let record = json!({
        "v": 1, "term": term, "uid": uid, "state": "Admitted", "clusterQueue": "cq",
        "podSets": [{"name": "main", "count": 1, "flavors": {"cpu": "default"}, "usage": {"cpu": cpu}}],
        "admittedAt": "2026-01-01T00:00:00Z",
    });
    let patch = json!({
        "metadata": {"annotations": {"sluice.internal/admission": record.to_string()}},
        "spec": {"suspend": false},
    });
    jobs.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    Ok(())
}

fn cluster_queue_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "clusterqueues.kueue.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/kueue/pull/1"},
        },
        "spec": {
            "group": "kueue.x-k8s.io", "scope": "Cluster",
            "names": {"kind": "ClusterQueue", "plural": "clusterqueues", "singular": "clusterqueue"},
            "versions": [{"name": "v1beta2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    })
}

fn cluster_queue(cpu: &str) -> Value {
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "cq"},
        "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpu}]},
        ]}]},
    })
}
