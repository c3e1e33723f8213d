//! `make demo`: two teams, thirty Jobs created with kubectl, on a real control plane.
#![expect(clippy::print_stdout, reason = "showing is what it is for")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, ListParams};
use sluice_e2e::jobs::{Stage, stage, waited};
use sluice_e2e::manifests::{cluster_queue, flavor, job, labelled, list, local_queue, namespace, priority_class};
use sluice_testkit::{Plane, PlaneOptions, Referee, Sluice, check_webhook_port, eventually};

/// Team, its quota in cores, its Jobs.
const TEAMS: [(&str, u32, u32); 2] = [("team-vision", 8, 18), ("team-speech", 5, 12)];
/// Longest that all Jobs may take.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often the table is drawn.
const REFRESH: Duration = Duration::from_millis(400);
/// Jobs that a line of the table names: a line that wraps could not be drawn over on a terminal of 80 columns.
const SHOWN: usize = 4;
const QUEUE_LABEL: &str = "kueue.x-k8s.io/queue-name";
const PRIORITY_LABEL: &str = "kueue.x-k8s.io/priority-class";

#[tokio::main]
async fn main() -> Result<()> {
    check_webhook_port()?;
    let keep = std::env::var("KEEP").is_ok_and(|value| value == "1");
    println!("demo: starting etcd, the API server, the controllers and fake nodes");
    let plane = Arc::new(Plane::start(PlaneOptions::with_nodes()).await?);
    println!("demo: installing the chart and starting sluice-webhook and sluice-scheduler");
    let sluice = Sluice::start(&plane).await?;
    let started = Instant::now();

    set_up(&plane).await?;
    let referee = Referee::start(&plane).await?;
    let mark = plane.audit().mark()?;
    let creating = create_jobs(Arc::clone(&plane));
    let (created, shown) = tokio::join!(creating, show_until_done(&plane));
    created?;
    let jobs = shown?;

    let verdict = referee.settled().await;
    let users = [sluice.scheduler_user()?, sluice.webhook_user()?];
    let admissions = verdict.total_admissions();
    let writes = eventually(
        "the audit log shows a write for each admission",
        Duration::from_secs(10),
        || async {
            let writes = plane
                .audit()
                .job_writes(mark, |user| users.iter().any(|ours| ours == user))?;
            ensure!(
                writes.len() as u64 >= admissions,
                "{} writes, {admissions} admissions",
                writes.len()
            );
            anyhow::Ok(writes.len())
        },
    )
    .await?;
    let completed = jobs.iter().filter(|job| stage(job) == Stage::Completed).count();
    summary(&jobs, &verdict.peaks);
    if keep {
        let supervisor = plane.detach().await?;
        println!("\nThe cluster stays up. To use it, paste into a shell:");
        println!("export KUBECONFIG={}", plane.admin().path.display());
        println!("{}", plane.kubectl().alias());
        println!("To end it, and remove all it has written:");
        println!("kill {supervisor}\n");
    }
    println!(
        "demo: jobs={} completed={completed} over_quota={} writes_per_job={:.2} seconds={:.0}",
        jobs.len(),
        verdict.violations.len(),
        ratio(writes, admissions),
        started.elapsed().as_secs_f64(),
    );
    ensure!(
        completed == jobs.len() && verdict.violations.is_empty(),
        "not every Job completed cleanly: {verdict:#?}"
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a few dozen")]
fn ratio(writes: usize, admissions: u64) -> f64 {
    writes as f64 / admissions.max(1) as f64
}

async fn set_up(plane: &Plane) -> Result<()> {
    let mut objects = vec![
        flavor("default", serde_json::json!({})),
        priority_class("urgent", 1000),
        priority_class("normal", 100),
    ];
    for (team, cores, _) in TEAMS {
        objects.push(namespace(team, true));
        objects.push(cluster_queue(team, "default", &cores.to_string()));
        objects.push(local_queue(team, "jobs", team));
    }
    plane.kubectl().apply(&list(objects)).await?;
    for (team, cores, jobs) in TEAMS {
        println!("demo: {team} may use {cores} cores and creates {jobs} Jobs");
    }
    println!("demo: urgent Jobs go first; one that does not fit lets smaller ones pass (BestEffortFIFO)");
    if std::io::stdout().is_terminal() {
        println!("demo: urgent-05(2) is a Job that asks for 2 cores");
    }
    Ok(())
}

/// Thirty Jobs, one `kubectl create` each, both teams at once: one, two or three pods of one core, a third of them urgent.
async fn create_jobs(plane: Arc<Plane>) -> Result<()> {
    let team = |(team, _, count): (&'static str, u32, u32)| {
        let plane = Arc::clone(&plane);
        async move {
            for number in 0..count {
                let class = if number % 3 == 2 { "urgent" } else { "normal" };
                let manifest = job(team, &format!("{class}-{number:02}"), number / 3 % 3 + 1, "1", "3s");
                let manifest = labelled(labelled(manifest, QUEUE_LABEL, "jobs"), PRIORITY_LABEL, class);
                plane.kubectl().create(&manifest.to_string()).await?;
            }
            anyhow::Ok(())
        }
    };
    futures::future::try_join_all(TEAMS.map(team)).await.map(drop)
}

async fn show_until_done(plane: &Plane) -> Result<Vec<Job>> {
    let api: Api<Job> = Api::all(plane.client().await?);
    let deadline = Instant::now() + PATIENCE;
    let wanted: usize = TEAMS
        .iter()
        .map(|(_, _, count)| usize::try_from(*count))
        .sum::<Result<usize, _>>()?;
    let mut screen = Screen::new();
    loop {
        let jobs: Vec<Job> = api.list(&ListParams::default()).await?.items;
        let ended = jobs
            .iter()
            .filter(|job| matches!(stage(job), Stage::Completed | Stage::Failed))
            .count();
        screen.show(&jobs, ended == wanted)?;
        if ended == wanted {
            return Ok(jobs);
        }
        ensure!(
            Instant::now() < deadline,
            "only {ended} of {wanted} Jobs ended within {PATIENCE:?}\n{}",
            plane.log_tails(20)
        );
        tokio::time::sleep(REFRESH).await;
    }
}

/// A table that is drawn over itself on a terminal, and a line per change elsewhere. The last one, where nothing runs any
/// more, is drawn below the one before: so that one with Jobs in it stays in view.
struct Screen {
    terminal: bool,
    lines: usize,
    last: String,
    started: Instant,
}

impl Screen {
    fn new() -> Self {
        Self {
            terminal: std::io::stdout().is_terminal(),
            lines: 0,
            last: String::new(),
            started: Instant::now(),
        }
    }

    fn show(&mut self, jobs: &[Job], last: bool) -> Result<()> {
        let text = if self.terminal { table(jobs) } else { counts(jobs) };
        if text == self.last {
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        if self.terminal {
            if self.lines > 0 && !last {
                write!(out, "\x1b[{}A\x1b[J", self.lines)?;
            }
            self.lines = text.lines().count();
            write!(out, "{text}")?;
        } else {
            writeln!(out, "{:5.1} s  {text}", self.started.elapsed().as_secs_f64())?;
        }
        out.flush()?;
        self.last = text;
        Ok(())
    }
}

fn team_jobs<'a>(jobs: &'a [Job], team: &str) -> Vec<&'a Job> {
    jobs.iter()
        .filter(|job| job.metadata.namespace.as_deref() == Some(team))
        .collect()
}

fn pods(job: &Job) -> u32 {
    let parallelism = job.spec.as_ref().and_then(|spec| spec.parallelism).unwrap_or(1);
    u32::try_from(parallelism).unwrap_or(0)
}

fn in_use(jobs: &[&Job]) -> u32 {
    jobs.iter()
        .filter(|job| stage(job) == Stage::Running)
        .map(|job| pods(job))
        .sum()
}

fn counts(jobs: &[Job]) -> String {
    let mut line = String::new();
    for (team, cores, count) in TEAMS {
        let own = team_jobs(jobs, team);
        let of = |wanted: Stage| own.iter().filter(|job| stage(job) == wanted).count();
        let _ = write!(
            line,
            "{team}: {} held, {} running, {} of {count} completed, {} of {cores} cores   ",
            of(Stage::Held),
            of(Stage::Running),
            of(Stage::Completed),
            in_use(&own),
        );
    }
    line.trim_end().to_owned()
}

fn table(jobs: &[Job]) -> String {
    let mut text = String::new();
    for (team, cores, _) in TEAMS {
        let own = team_jobs(jobs, team);
        let used = in_use(&own);
        let bar: String = (0..cores).map(|core| if core < used { '█' } else { '░' }).collect();
        let _ = writeln!(text, "\n{team:<12} {bar} {used}/{cores} cores");
        let mut lines: BTreeMap<Stage, Vec<String>> = BTreeMap::new();
        for job in own {
            let name = job.metadata.name.clone().unwrap_or_default();
            lines
                .entry(stage(job))
                .or_default()
                .push(format!("{name}({})", pods(job)));
        }
        for (stage, label) in [
            (Stage::Held, "held"),
            (Stage::Running, "running"),
            (Stage::Completed, "completed"),
        ] {
            let names = lines.get(&stage).map(Vec::as_slice).unwrap_or_default();
            let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
            let more = if names.len() > SHOWN { " ..." } else { "" };
            let _ = writeln!(text, "  {label:<10} {:>3}  {}{more}", names.len(), shown.join(" "));
        }
    }
    text
}

fn summary(jobs: &[Job], peaks: &BTreeMap<(String, String, String), sluice_testkit::Peak>) {
    println!("\nRead back from the API server:");
    for ((queue, flavor, resource), peak) in peaks {
        let quota = peak.quota.as_deref().unwrap_or("-");
        println!(
            "  {queue}: highest usage of {resource} in flavor {flavor}: {} of {quota}",
            peak.used
        );
    }
    for class in ["urgent", "normal"] {
        let waits: Vec<f64> = jobs
            .iter()
            .filter(|job| {
                job.metadata
                    .labels
                    .as_ref()
                    .and_then(|labels| labels.get(PRIORITY_LABEL))
                    .is_some_and(|own| own == class)
            })
            .filter_map(waited)
            .collect();
        let longest = waits.iter().copied().fold(0.0, f64::max);
        println!(
            "  {class}: {} Jobs waited {:.1} s on average, {longest:.1} s at most",
            waits.len(),
            mean(&waits)
        );
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few dozen")]
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
