//! A cluster of JSON Jobs around one index: stores what writes would store and feeds the events back.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::configuration::{self, Configuration};
use sluice_engine::{Engine, Step, Time};
use sluice_index::{Answer, Happening, Index, Probe, Reign, WantedStatus, Write, WriteKind};
use sluice_jobs::view::JobView;

const NAMESPACE: &str = "team";

pub(crate) struct Cluster {
    pub(crate) index: Index,
    jobs: BTreeMap<String, Value>,
    queue: Value,
    namespace_labels: BTreeMap<String, String>,
    classes: BTreeMap<String, i32>,
    version: u64,
    uids: u64,
    now: i64,
    happened: Vec<Happening>,
    /// Queue objects beyond the first four.
    objects: Vec<Value>,
    configuration: Configuration,
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn cluster_queue(cores: i64, strategy: &str, selector: Option<&Value>) -> Value {
    let mut queue = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
        "metadata": {"name": "cq", "resourceVersion": "11", "generation": 1},
        "spec": {
            "queueingStrategy": strategy,
            "resourceGroups": [{
                "coveredResources": ["cpu"],
                "flavors": [{"name": "blue", "resources": [{"name": "cpu", "nominalQuota": cores}]}],
            }],
        },
    });
    if let Some(selector) = selector {
        queue["spec"]["namespaceSelector"] = selector.clone();
    }
    queue
}

impl Cluster {
    fn empty(queue: Value) -> Self {
        let mut index = Index::new("sluice-system");
        index.record();
        Self {
            index,
            jobs: BTreeMap::new(),
            queue,
            namespace_labels: BTreeMap::new(),
            classes: BTreeMap::new(),
            version: 100,
            uids: 0,
            now: 1_764_500_000_000,
            happened: Vec::new(),
            objects: Vec::new(),
            configuration: Configuration::default(),
        }
    }

    /// Writes down what the engine was told and decided, reads it again and has a fresh engine do the same.
    pub(crate) fn replay(&mut self) {
        let mut engine = Engine::new();
        for step in self.index.take_log() {
            let line = serde_json::to_string(&step).unwrap();
            let read: Step = serde_json::from_str(&line).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), line);
            engine.replay(read).unwrap();
        }
        for queue in self.index.engine().queues() {
            assert_eq!(engine.queue(queue), self.index.engine().queue(queue));
        }
    }

    fn ready(queue: Value) -> Self {
        let mut cluster = Self::empty(queue);
        for object in 0..4 {
            cluster.arrive(object);
        }
        cluster.begin_reign(7);
        cluster
    }

    pub(crate) fn with_quota(cores: i64) -> Self {
        Self::ready(cluster_queue(cores, "BestEffortFIFO", Some(&json!({}))))
    }

    pub(crate) fn strict(cores: i64) -> Self {
        Self::ready(cluster_queue(cores, "StrictFIFO", Some(&json!({}))))
    }

    pub(crate) fn with_selector(cores: i64, selector: Option<Value>) -> Self {
        Self::ready(cluster_queue(cores, "BestEffortFIFO", selector.as_ref()))
    }

    /// Everything but the Namespace has been seen.
    pub(crate) fn without_namespace(cores: i64, selector: Value) -> Self {
        let mut cluster = Self::empty(cluster_queue(cores, "BestEffortFIFO", Some(&selector)));
        for object in 1..4 {
            cluster.arrive(object);
        }
        cluster.begin_reign(7);
        cluster
    }

    /// Only the Namespace has been seen.
    pub(crate) fn without_queues(cores: i64) -> Self {
        let mut cluster = Self::empty(cluster_queue(cores, "BestEffortFIFO", Some(&json!({}))));
        cluster.arrive(0);
        cluster.begin_reign(7);
        cluster
    }

    pub(crate) fn queues_arrive(&mut self) {
        for object in 1..4 {
            self.arrive(object);
        }
    }

    /// Everything has been seen, and nobody has led yet.
    pub(crate) fn before_the_first_reign(cores: i64) -> Self {
        let mut cluster = Self::empty(cluster_queue(cores, "BestEffortFIFO", Some(&json!({}))));
        for object in 0..4 {
            cluster.arrive(object);
        }
        cluster
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Jobs `a` and `b`, and the queue objects, in one of the 24 orders of their arrival.
    pub(crate) fn in_order(cores: i64, order: usize) -> Self {
        let mut cluster = Self::empty(cluster_queue(cores, "BestEffortFIFO", Some(&json!({}))));
        let mut objects = vec![0, 1, 2, 3];
        let mut code = order;
        let mut created = false;
        for left in (1..=4).rev() {
            let object = objects.remove(code % left);
            code /= left;
            cluster.arrive(object);
            if !created {
                created = true;
                cluster.create("a", 2);
                cluster.create("b", 1);
            }
        }
        cluster.begin_reign(7);
        cluster
    }

    fn arrive(&mut self, object: usize) {
        let now = self.now();
        match object {
            0 => self.index.set_namespace(NAMESPACE, self.namespace_labels.clone(), now),
            1 => self.index.set_flavor(
                read(&json!({
                    "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor",
                    "metadata": {"name": "blue", "resourceVersion": "12"},
                    "spec": {"nodeLabels": {"pool": "blue"}},
                })),
                now,
            ),
            2 => self.index.set_cluster_queue(read(&self.queue), now),
            _ => self.index.set_local_queue(
                read(&json!({
                    "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
                    "metadata": {"namespace": NAMESPACE, "name": "default", "resourceVersion": "13"},
                    "spec": {"clusterQueue": "cq"},
                })),
                now,
            ),
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time(self.now)
    }

    pub(crate) fn pass_time(&mut self, milliseconds: i64) {
        self.now += milliseconds;
    }

    pub(crate) fn begin_reign(&mut self, term: u64) {
        let now = self.now();
        self.index.begin_reign(
            Reign {
                term,
                barrier: self.version,
            },
            now,
        );
        self.index.update_ledger(now);
    }

    pub(crate) fn end_reign(&mut self) {
        self.index.end_reign(self.now());
    }

    pub(crate) fn restart(&self, term: u64) -> Self {
        let mut new = Self {
            jobs: self.jobs.clone(),
            version: self.version,
            uids: self.uids,
            now: self.now,
            ..Self::empty(self.queue.clone())
        };
        new.index.set_configuration(self.configuration.clone(), self.now());
        new.configuration = self.configuration.clone();
        let views = new.jobs.values().map(read).collect();
        new.index.reset_jobs(views, self.version, self.now());
        for object in 0..4 {
            new.arrive(object);
        }
        for object in &self.objects {
            new.apply(object.clone());
        }
        for (name, value) in &self.classes {
            new.priority_class(name, *value);
        }
        new.begin_reign(term);
        new
    }

    /// A queue object exists and looks like this.
    pub(crate) fn apply(&mut self, object: Value) {
        let now = self.now();
        match object["kind"].as_str().unwrap() {
            "ClusterQueue" => self.index.set_cluster_queue(read(&object), now),
            "Cohort" => self.index.set_cohort(read(&object), now),
            "LocalQueue" => self.index.set_local_queue(read(&object), now),
            other => panic!("no {other} here"),
        }
        let identity = |object: &Value| (object["kind"].clone(), object["metadata"]["name"].clone());
        self.objects.retain(|known| identity(known) != identity(&object));
        self.objects.push(object);
    }

    /// The Configuration file says this.
    pub(crate) fn configure(&mut self, body: &str) {
        let text = format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{body}\n");
        self.configuration = configuration::parse(&text).unwrap();
        self.index.set_configuration(self.configuration.clone(), self.now());
    }

    /// A Job as its owner creates it, changed as the test wants it.
    pub(crate) fn create_with(&mut self, name: &str, pods: i64, change: impl FnOnce(&mut Value)) {
        self.put(name, pods, true, true);
        change(self.jobs.get_mut(name).unwrap());
        self.event(name);
    }

    fn add(&mut self, name: &str, pods: i64, labelled: bool, suspend: bool) {
        self.put(name, pods, labelled, suspend);
        self.event(name);
    }

    fn put(&mut self, name: &str, pods: i64, labelled: bool, suspend: bool) {
        self.uids += 1;
        let mut labels = json!({});
        if labelled {
            labels["kueue.x-k8s.io/queue-name"] = json!("default");
        }
        let created = k8s_openapi::jiff::Timestamp::from_second(self.now / 1_000)
            .unwrap()
            .to_string();
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "namespace": NAMESPACE, "name": name, "uid": format!("00000000-0000-4000-8000-{:012x}", self.uids),
                "generation": 1, "creationTimestamp": created, "labels": labels, "annotations": {},
            },
            "spec": {
                "suspend": suspend, "parallelism": pods, "completions": pods,
                "template": {"spec": {
                    "unknown": "kept",
                    "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
                }},
            },
            "status": {"conditions": [suspended_condition(suspend)]},
        });
        self.jobs.insert(name.to_owned(), job);
        self.touch(name);
    }

    pub(crate) fn create(&mut self, name: &str, pods: i64) {
        self.add(name, pods, true, true);
    }

    pub(crate) fn create_running(&mut self, name: &str, pods: i64) {
        self.add(name, pods, false, false);
    }

    fn touch(&mut self, name: &str) {
        self.version += 1;
        self.jobs.get_mut(name).unwrap()["metadata"]["resourceVersion"] = json!(self.version.to_string());
    }

    pub(crate) fn job(&self, name: &str) -> &Value {
        &self.jobs[name]
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.jobs.keys().cloned().collect()
    }

    pub(crate) fn queue(&self) -> &Value {
        &self.queue
    }

    pub(crate) fn record(&self, name: &str) -> Value {
        let text = self.job(name)["metadata"]["annotations"]["sluice.internal/admission"]
            .as_str()
            .unwrap();
        serde_json::from_str(text).unwrap()
    }

    pub(crate) fn view(&self, name: &str) -> JobView {
        read(self.job(name))
    }

    /// Changes a Job's metadata or spec; the watch does not show it before [`Self::event`].
    pub(crate) fn edit(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let job = self.jobs.get_mut(name).unwrap();
        let spec = job["spec"].clone();
        change(job);
        if job["spec"] != spec {
            let generation = job["metadata"]["generation"].as_i64().unwrap();
            job["metadata"]["generation"] = json!(generation + 1);
        }
        self.touch(name);
    }

    pub(crate) fn edit_status(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        change(&mut self.jobs.get_mut(name).unwrap()["status"]);
        self.touch(name);
    }

    /// The watch shows the Job as it is.
    pub(crate) fn event(&mut self, name: &str) {
        let view = self.view(name);
        self.index.set_job(view, self.now());
    }

    /// The Job controller starts its pods.
    pub(crate) fn start(&mut self, name: &str) {
        let pods = self.job(name)["spec"]["parallelism"].clone();
        self.edit_status(name, |status| {
            *status = json!({"active": pods, "startTime": "2026-11-30T10:00:00Z", "conditions": [suspended_condition(false)]});
        });
        self.event(name);
    }

    /// So many of a running Job's pods are ready.
    pub(crate) fn pods_ready(&mut self, name: &str, pods: i64) {
        self.edit_status(name, |status| status["ready"] = json!(pods));
        self.event(name);
    }

    /// The Job controller acknowledges a stop, and the last pod is gone.
    pub(crate) fn stopped(&mut self, name: &str) {
        self.edit_status(name, |status| {
            *status = json!({"conditions": [suspended_condition(true)]});
        });
        self.event(name);
    }

    pub(crate) fn finish(&mut self, name: &str) {
        self.edit_status(name, |status| {
            *status = json!({"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 2});
        });
        self.event(name);
    }

    pub(crate) fn delete(&mut self, name: &str) {
        let uid = self.job(name)["metadata"]["uid"].as_str().unwrap().to_owned();
        self.jobs.remove(name);
        self.index.delete_job(NAMESPACE, name, &uid, self.now());
    }

    pub(crate) fn opt_in(&mut self) {
        self.label_namespace("kueue.x-k8s.io/managed-namespace", "true");
        self.index.update_ledger(self.now());
    }

    pub(crate) fn label_namespace(&mut self, key: &str, value: &str) {
        self.namespace_labels.insert(key.to_owned(), value.to_owned());
        self.index
            .set_namespace(NAMESPACE, self.namespace_labels.clone(), self.now());
    }

    pub(crate) fn priority_class(&mut self, name: &str, value: i32) {
        self.classes.insert(name.to_owned(), value);
        let class = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
            "metadata": {"name": name}, "value": value,
        });
        self.index.set_workload_priority_class(&read(&class), self.now());
    }

    pub(crate) fn edit_queue(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.queue);
        self.index.set_cluster_queue(read(&self.queue), self.now());
    }

    pub(crate) fn set_quota(&mut self, cores: i64) {
        let path = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota";
        self.edit_queue(|queue| *queue.pointer_mut(path).unwrap() = json!(cores));
    }

    pub(crate) fn next_write(&mut self) -> Option<Write> {
        let now = self.now();
        self.index.pass(now, usize::MAX);
        self.index.next_write(now)
    }

    pub(crate) fn next_probe(&mut self) -> Option<Probe> {
        self.index.next_probe(self.now())
    }

    /// The API server takes a write; neither answer nor event is delivered.
    pub(crate) fn store(&mut self, write: &Write) {
        let job = self.jobs.get_mut(&*write.name).unwrap();
        sluice_jobs::apply::apply(job, &write.patch).unwrap();
        let generation = job["metadata"]["generation"].as_i64().unwrap();
        job["metadata"]["generation"] = json!(generation + 1);
        self.touch(&write.name);
    }

    pub(crate) fn answer(&mut self, write: &Write, answer: Answer) {
        self.index.answer(write.uid, write.ticket, answer, self.now());
    }

    pub(crate) fn carry_out(&mut self, write: &Write) {
        self.store(write);
        let view = self.view(&write.name);
        self.answer(write, Answer::Applied(Box::new(view)));
    }

    /// Decides and writes until nothing moves; which Jobs were written, and what for.
    pub(crate) fn run(&mut self) -> Vec<(String, WriteKind)> {
        let mut writes = Vec::new();
        while let Some(write) = self.next_write() {
            writes.push((write.name.to_string(), write.kind));
            self.carry_out(&write);
            assert!(writes.len() < 100, "it never ends: {writes:?}");
        }
        self.index.engine().audit().unwrap();
        writes
    }

    pub(crate) fn happened(&mut self) -> Vec<Happening> {
        let new = self.index.take_notices().into_iter().map(|notice| notice.what);
        self.happened.extend(new);
        self.happened.clone()
    }

    fn report(&self) -> sluice_engine::QueueReport {
        self.index.engine().queue("cq").unwrap()
    }

    /// Milli-cpu that are held.
    pub(crate) fn reserved(&self) -> i64 {
        self.reserved_in("cq")
    }

    /// Milli-cpu that are held in one ClusterQueue.
    pub(crate) fn reserved_in(&self, queue: &str) -> i64 {
        let report = self.index.engine().queue(queue).unwrap();
        report.usage.iter().map(|usage| usage.reserved.get()).sum()
    }

    /// The value of a Job's annotation.
    pub(crate) fn annotation(&self, name: &str, key: &str) -> Option<&str> {
        self.job(name)["metadata"]["annotations"][key].as_str()
    }

    /// Removes an annotation, as `kubectl annotate NAME KEY-` does.
    pub(crate) fn remove_annotation(&mut self, name: &str, key: &str) {
        self.edit(name, |job| {
            job["metadata"]["annotations"].as_object_mut().unwrap().remove(key);
        });
        self.event(name);
    }

    pub(crate) fn pending(&self) -> usize {
        let report = self.report();
        report.pending_active + report.pending_inadmissible
    }

    pub(crate) fn uid(&self, name: &str) -> sluice_engine::Uid {
        let text = self.job(name)["metadata"]["uid"].as_str().unwrap().replace('-', "");
        sluice_engine::Uid(u128::from_str_radix(&text, 16).unwrap())
    }

    pub(crate) fn waiting(&self, name: &str) -> Option<sluice_engine::Waiting> {
        let uid = self.uid(name);
        self.index.engine().waiting(uid)
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.waiting(name)?.position
    }

    /// Why a Job waits, as its events say.
    pub(crate) fn why(&mut self, name: &str) -> String {
        self.index.pass(self.now(), usize::MAX);
        let engine = self.waiting(name).unwrap().reason.to_string();
        let told = self.index.take_changes().waiting;
        let told = told
            .into_iter()
            .find(|unit| &*unit.job.1 == name)
            .map(|unit| unit.message);
        told.unwrap_or(engine)
    }

    pub(crate) fn queue_status(&mut self) -> Value {
        self.status_of("cq")
    }

    pub(crate) fn cohort_status(&self, cohort: &str) -> Value {
        match self.index.wanted_cohort_status(cohort) {
            Some(WantedStatus::Cohort { status, .. }) => serde_json::to_value(status).unwrap(),
            _ => Value::Null,
        }
    }

    pub(crate) fn status_of(&mut self, queue: &str) -> Value {
        match self.index.wanted_cluster_queue_status(queue, self.now()).unwrap() {
            WantedStatus::ClusterQueue { status, .. } => serde_json::to_value(status).unwrap(),
            WantedStatus::LocalQueue { .. } | WantedStatus::Cohort { .. } => unreachable!(),
        }
    }
}

fn suspended_condition(suspended: bool) -> Value {
    let status = if suspended { "True" } else { "False" };
    json!({"type": "Suspended", "status": status, "lastTransitionTime": "2026-11-30T10:00:00Z"})
}
