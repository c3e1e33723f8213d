//! One plane with one Sluice that most tests share, each in namespaces and queues of its own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};
use sluice_e2e::jobs::{Stage, record, stage};
use sluice_e2e::manifests;
use sluice_testkit::{
    AuditEvent, FakeNode, FaultProxy, Kubectl, Plane, PlaneOptions, SchedulerOptions, Sluice, WebhookOptions,
    eventually,
};
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit};

/// Longest that anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
pub(crate) const PRIORITY_LABEL: &str = "kueue.x-k8s.io/priority-class";

/// Planes that a test breaks are its own, and one at a time.
static OWN_PLANE: Semaphore = Semaphore::const_new(1);

/// A plane with Sluice on it.
pub(crate) struct World {
    pub(crate) plane: Arc<Plane>,
    pub(crate) sluice: Sluice,
    _turn: Option<SemaphorePermit<'static>>,
}

/// The shared one.
pub(crate) async fn world() -> Result<&'static World> {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD
        .get_or_try_init(|| async {
            let world = shared_world().await?;
            world
                .start_sluice(WebhookOptions::default(), SchedulerOptions::default())
                .await?;
            Ok(world)
        })
        .await
}

/// A plane that many tests share; nothing of Sluice runs yet.
pub(crate) async fn shared_world() -> Result<World> {
    let mut nodes = FakeNode::several(2);
    nodes.push(
        FakeNode::new("spot-1")
            .label("pool", "spot")
            .taint("spot=true:NoSchedule"),
    );
    nodes.push(FakeNode::new("reserved-1").label("pool", "reserved"));
    let options = PlaneOptions {
        nodes,
        ..PlaneOptions::default()
    };
    install(options, &json!({}), None).await
}

/// A plane of the caller's own, to be broken; nothing of Sluice runs yet.
pub(crate) async fn own_world(values: &Value) -> Result<World> {
    own_world_on(PlaneOptions::with_nodes(), values).await
}

/// The same on a plane with these options.
pub(crate) async fn own_world_on(options: PlaneOptions, values: &Value) -> Result<World> {
    let turn = OWN_PLANE.acquire().await?;
    install(options, values, Some(turn)).await
}

async fn install(options: PlaneOptions, values: &Value, turn: Option<SemaphorePermit<'static>>) -> Result<World> {
    let plane = Arc::new(Plane::start(options).await?);
    let sluice = Sluice::install(&plane, values).await?;
    plane
        .kubectl()
        .apply(&manifests::flavor("any", json!({})).to_string())
        .await?;
    Ok(World {
        plane,
        sluice,
        _turn: turn,
    })
}

/// A namespace with a LocalQueue `default`, and a ClusterQueue of the same name.
pub(crate) struct Team<'a> {
    pub(crate) world: &'a World,
    pub(crate) name: String,
    pub(crate) kubectl: Kubectl,
}

impl World {
    /// A plane of the caller's own with a webhook and a scheduler that leads; returns the scheduler's name too.
    pub(crate) async fn start(values: &Value) -> Result<(Self, String)> {
        let world = own_world(values).await?;
        let leader = world
            .start_sluice(WebhookOptions::default(), SchedulerOptions::default())
            .await?;
        Ok((world, leader))
    }

    /// The same with a proxy between the scheduler and the API server.
    pub(crate) async fn start_behind_a_proxy() -> Result<(Self, String, Arc<FaultProxy>)> {
        let world = own_world(&json!({})).await?;
        let proxy = FaultProxy::start(&world.plane).await?;
        let options = SchedulerOptions {
            proxy: Some(proxy.clone()),
            ..SchedulerOptions::default()
        };
        let leader = world.start_sluice(WebhookOptions::default(), options).await?;
        Ok((world, leader, proxy))
    }

    /// Starts webhook and scheduler, and returns the scheduler's name once it leads.
    pub(crate) async fn start_sluice(&self, webhook: WebhookOptions, scheduler: SchedulerOptions) -> Result<String> {
        self.sluice.start_webhook(webhook).await?;
        self.sluice.start_scheduler(scheduler).await?;
        self.sluice.until_leading().await
    }

    /// An opted-in namespace with cpu quota in one flavor that every node serves.
    pub(crate) async fn team(&self, name: &str, cpu: &str) -> Result<Team<'_>> {
        self.team_with(name, true, manifests::cluster_queue(name, "any", cpu))
            .await
    }

    /// A namespace whose queue has this ClusterQueue.
    pub(crate) async fn team_with(&self, name: &str, opted_in: bool, cluster_queue: Value) -> Result<Team<'_>> {
        let kubectl = self.plane.kubectl();
        let objects = [
            manifests::namespace(name, opted_in),
            cluster_queue,
            manifests::local_queue(name, "default", name),
        ];
        kubectl.apply(&manifests::list(objects)).await?;
        let team = Team {
            world: self,
            name: name.to_owned(),
            kubectl,
        };
        if opted_in {
            team.until_held_by_the_webhook().await?;
        }
        Ok(team)
    }

    /// Writes on Jobs of a namespace by Sluice's identities, as the API server's audit log has them.
    pub(crate) fn job_writes(&self, namespace: &str) -> Result<Vec<AuditEvent>> {
        let users = [self.sluice.scheduler_user()?, self.sluice.webhook_user()?];
        let all = self
            .plane
            .audit()
            .job_writes(sluice_testkit::AuditMark::START, |user| {
                users.iter().any(|own| own == user)
            })?;
        Ok(all.into_iter().filter(|event| event.namespace == namespace).collect())
    }
}

impl Team<'_> {
    /// The webhook's caches know the namespace and its queue once a dry run shows it.
    async fn until_held_by_the_webhook(&self) -> Result<()> {
        let probe = self.job("webhook-knows-the-queue", 1, "1", "1s").to_string();
        eventually("the webhook knows the namespace and its queue", PATIENCE, || async {
            let output = self
                .kubectl
                .run(&["create", "--dry-run=server", "-o", "json", "-f", "-"], &probe)
                .await?;
            ensure!(!output.stderr.contains("Warning"), "{}", output.stderr);
            let job = output.json()?;
            ensure!(
                job["metadata"]["labels"][QUEUE_LABEL] == "default",
                "no queue label yet"
            );
            anyhow::Ok(())
        })
        .await
    }

    /// A manifest of a Job in this namespace.
    pub(crate) fn job(&self, name: &str, pods: u32, cpu: &str, run_for: &str) -> Value {
        manifests::job(&self.name, name, pods, cpu, run_for)
    }

    /// Creates a Job with kubectl.
    pub(crate) async fn create(&self, name: &str, pods: u32, run_for: &str) -> Result<()> {
        self.kubectl
            .create(&self.job(name, pods, "1", run_for).to_string())
            .await
            .map(drop)
    }

    /// Creates a Job of a priority class.
    pub(crate) async fn create_with_class(&self, name: &str, class: &str, run_for: &str) -> Result<()> {
        let job = manifests::labelled(self.job(name, 1, "1", run_for), PRIORITY_LABEL, class);
        self.kubectl.create(&job.to_string()).await.map(drop)
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Job> {
        let value = self.kubectl.get(&format!("job {name} -n {}", self.name)).await?;
        serde_json::from_value(value).context("kubectl printed no Job")
    }

    pub(crate) async fn stage(&self, name: &str) -> Result<Stage> {
        Ok(stage(&self.get(name).await?))
    }

    pub(crate) async fn until(&self, name: &str, wanted: Stage) -> Result<Job> {
        let what = format!("Job {}/{name} is {wanted:?}", self.name);
        eventually(&what, PATIENCE, || async {
            let job = self.get(name).await?;
            let now = stage(&job);
            ensure!(now == wanted, "it is {now:?}: {:?}", job.status);
            anyhow::Ok(job)
        })
        .await
    }

    pub(crate) async fn record(&self, name: &str) -> Result<Value> {
        record(&self.get(name).await?)?.with_context(|| format!("Job {name} has no record"))
    }

    /// Jobs in the order of their admission.
    pub(crate) async fn admission_order(&self) -> Result<Vec<String>> {
        let jobs = self.jobs().await?;
        let mut admitted = Vec::new();
        for job in &jobs {
            let Some(record) = record(job)? else {
                bail!("{:?} was never admitted", job.metadata.name)
            };
            admitted.push((
                record["admittedAt"].as_str().unwrap_or_default().to_owned(),
                name_of(job),
            ));
        }
        admitted.sort();
        Ok(admitted.into_iter().map(|(_, name)| name).collect())
    }

    pub(crate) async fn jobs(&self) -> Result<Vec<Job>> {
        let list = self.kubectl.get(&format!("jobs -n {}", self.name)).await?;
        Ok(serde_json::from_value(list["items"].clone())?)
    }

    pub(crate) async fn pods(&self, job: &str) -> Result<Vec<Value>> {
        let pods = self
            .kubectl
            .get(&format!("pods -n {} -l job-name={job}", self.name))
            .await?;
        Ok(pods["items"].as_array().cloned().unwrap_or_default())
    }

    /// Sets the cpu quota of the only flavor.
    pub(crate) async fn set_quota(&self, cpu: &str) -> Result<()> {
        let path = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota";
        let patch = json!([{"op": "replace", "path": path, "value": cpu}]).to_string();
        self.kubectl
            .run(&["patch", "clusterqueue", &self.name, "--type=json", "-p", &patch], "")
            .await?
            .ok()
            .map(drop)
    }

    /// The ClusterQueue's status, once it is as wanted.
    pub(crate) async fn until_status(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(what, PATIENCE, || async {
            let status = self.kubectl.get(&format!("clusterqueue {}", self.name)).await?["status"].clone();
            ensure!(wanted(&status), "its status is {status}");
            anyhow::Ok(status)
        })
        .await
    }

    /// Waits until the scheduler has counted so many waiting Jobs: it has seen them and found them not to fit.
    pub(crate) async fn until_pending(&self, count: i64) -> Result<Value> {
        self.until_status(&format!("{count} Jobs are pending"), |status| {
            status["pendingWorkloads"] == count
        })
        .await
    }

    /// cpu that the ClusterQueue's status shows as reserved.
    pub(crate) async fn until_reserved(&self, cpu: &str) -> Result<Value> {
        self.until_status(&format!("{cpu} cpu are reserved"), |status| {
            status["flavorsReservation"][0]["resources"][0]["total"] == cpu
        })
        .await
    }

    pub(crate) async fn merge(&self, name: &str, patch: &Value) -> Result<sluice_testkit::KubectlOutput> {
        let patch = patch.to_string();
        self.kubectl
            .run(
                &["patch", "job", name, "-n", &self.name, "--type=merge", "-p", &patch],
                "",
            )
            .await
    }
}

impl Drop for Team<'_> {
    /// What the processes said last. The harness shows it with a failure and nowhere else.
    #[expect(clippy::print_stderr, reason = "the harness captures it")]
    fn drop(&mut self) {
        eprintln!("{}", self.world.plane.log_tails(15));
    }
}

pub(crate) fn name_of(job: &Job) -> String {
    job.metadata.name.clone().unwrap_or_default()
}
