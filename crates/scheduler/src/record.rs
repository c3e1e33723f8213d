//! The log of everything that the engine was told and asked, for `--record-events`: written as it happens, and done again
//! by a fresh engine, which must decide the same.
//!
//! One line of JSON each: first [`Header`], then a [`Step`] a line.

use std::fs::File;
use std::io::{self, BufRead, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use sluice_engine::{Engine, Step};

/// The form of the log that is written, and the only one that is read.
const FORM: u32 = 1;
/// Bytes after which nothing more is recorded.
const MOST: u64 = 1 << 30;

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    form: u32,
    version: String,
}

/// Where steps are written to.
#[derive(Debug)]
pub(crate) struct Recorder<W: Write = BufWriter<File>> {
    to: W,
    /// Bytes that may still be written; none once it has ended.
    left: Option<u64>,
}

impl Recorder {
    /// Begins a log in a new file; one that is there is overwritten.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let begin = || Self::begin(BufWriter::new(File::create(path)?), MOST);
        begin().with_context(|| format!("failed to record events in {}", path.display()))
    }
}

impl<W: Write> Recorder<W> {
    fn begin(to: W, most: u64) -> io::Result<Self> {
        let mut recorder = Self { to, left: Some(most) };
        recorder.line(&Header {
            form: FORM,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })?;
        Ok(recorder)
    }

    /// Writes what happened. A log is whole lines up to its end: when it is full or cannot be written, it ends.
    pub(crate) fn write(&mut self, steps: &[Step]) {
        for step in steps {
            if let Err(error) = self.line(step) {
                self.end(&error);
            }
        }
    }

    /// Hands what was written to the operating system.
    pub(crate) fn flush(&mut self) {
        if self.left.is_some()
            && let Err(error) = self.to.flush()
        {
            self.end(&error);
        }
    }

    /// Whether it still takes steps.
    pub(crate) fn is_open(&self) -> bool {
        self.left.is_some()
    }

    fn end(&mut self, error: &io::Error) {
        tracing::warn!(%error, "events are recorded no longer");
        self.left = None;
    }

    fn line(&mut self, what: &impl Serialize) -> io::Result<()> {
        let Some(left) = self.left else { return Ok(()) };
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        let left = left
            .checked_sub(line.len() as u64)
            .ok_or_else(|| io::Error::new(io::ErrorKind::StorageFull, "the log has reached its greatest size"))?;
        self.to.write_all(&line)?;
        self.left = Some(left);
        Ok(())
    }
}

/// What a replay went through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Things that the engine was told.
    pub events: u64,
    /// Passes, each of which decided what was recorded.
    pub passes: u64,
    /// Admissions and evictions.
    pub actions: u64,
}

/// Does what a log says once more with a fresh engine. A last line that is cut off is left out.
///
/// # Errors
/// A line that is no step of this version, or a pass that decided something else; both with the number of the line.
pub fn replay(mut log: impl BufRead) -> Result<Replayed> {
    let mut line = Vec::new();
    log.read_until(b'\n', &mut line)?;
    let header: Header = serde_json::from_slice(&line).context("failed to read the first line")?;
    ensure!(
        header.form == FORM,
        "the log has form {}, this reads {FORM}",
        header.form
    );
    let mut engine = Engine::new();
    let mut replayed = Replayed::default();
    for number in 2_u64.. {
        line.clear();
        log.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            break;
        }
        let step: Step = serde_json::from_slice(&line).with_context(|| format!("failed to read line {number}"))?;
        match &step {
            Step::Apply(_) => replayed.events += 1,
            Step::Pass { actions, .. } => {
                replayed.passes += 1;
                replayed.actions += actions.len() as u64;
            }
            Step::Settle { .. } => {}
        }
        engine.replay(step).with_context(|| format!("line {number}"))?;
    }
    Ok(replayed)
}

#[cfg(test)]
mod tests {
    use sluice_engine::{Amount, FlavorQuota, Name, QueueSpec, ResourceGroup, Time, Uid, UnitSpec};
    use sluice_engine::{Event, FlavorSpec, LocalQueueKey, LocalQueueSpec, PodSetSpec, Weight};

    use super::*;

    /// One ClusterQueue of one core and two Jobs that want it; the second gets it when the first is gone.
    fn run() -> Vec<Step> {
        let key = LocalQueueKey::new("team", "default");
        let unit = |number: u128| UnitSpec {
            uid: Uid(u128::MAX - number),
            local_queue: key.clone(),
            priority: 0,
            queued_at: Time(0),
            pod_sets: vec![PodSetSpec {
                name: "main".into(),
                count: 1,
                min_count: None,
                per_pod: vec![("cpu".into(), Amount::new(1000))],
                constraints: std::sync::Arc::default(),
            }],
            gate: None,
            not_before: None,
            runs_at_most_ms: None,
        };
        let group = ResourceGroup {
            resources: vec!["cpu".into()],
            flavors: vec![FlavorQuota {
                flavor: "any".into(),
                quotas: vec![Amount::new(1000).into()],
            }],
        };
        let events = [
            Event::SetFlavor(FlavorSpec {
                name: "any".into(),
                node_labels: std::collections::BTreeMap::new(),
                taints: Vec::new(),
                tolerations: Vec::new(),
            }),
            Event::SetQueue(QueueSpec {
                name: "cq".into(),
                groups: vec![group],
                ..QueueSpec::default()
            }),
            Event::SetLocalQueue(LocalQueueSpec {
                key: key.clone(),
                queue: Name::from("cq"),
                blocked: None,
                drain: false,
                weight: Weight::ONE,
                past_usage: None,
            }),
            Event::SetWaiting(unit(1)),
            Event::SetWaiting(unit(2)),
        ];
        let mut engine = Engine::new();
        let mut steps = vec![Step::Settle { now: Time(0) }];
        for event in events {
            engine.apply(event.clone());
            steps.push(Step::Apply(event));
        }
        for now in [Time(1), Time(2)] {
            let pass = engine.pass_at_most(now, 9);
            assert_eq!(pass.actions.len(), 1);
            steps.push(Step::Pass {
                now,
                limit: 9,
                actions: pass.actions,
                next: pass.next,
            });
            let gone = Event::RemoveUnit(Uid(u128::MAX - if now == Time(1) { 2 } else { 1 }));
            engine.apply(gone.clone());
            steps.push(Step::Apply(gone));
        }
        steps
    }

    fn recorded(steps: &[Step], most: u64) -> Vec<u8> {
        let mut recorder = Recorder::begin(Vec::new(), most).unwrap();
        recorder.write(steps);
        recorder.to
    }

    #[test]
    fn what_was_recorded_is_decided_again() {
        let replayed = replay(&*recorded(&run(), MOST)).unwrap();
        let expected = Replayed {
            events: 7,
            passes: 2,
            actions: 2,
        };
        assert_eq!(replayed, expected);
    }

    #[test]
    fn a_pass_that_decides_otherwise_is_named_by_its_line() {
        let mut steps = run();
        for step in &mut steps {
            if let Step::Pass { actions, .. } = step {
                actions.clear();
            }
        }
        let error = format!("{:#}", replay(&*recorded(&steps, MOST)).unwrap_err());
        assert!(error.starts_with("line 8: a pass decided"), "{error}");
    }

    #[test]
    fn a_full_log_ends_with_a_whole_line_and_one_that_is_cut_off_loses_only_its_last() {
        let whole = recorded(&run(), MOST);
        let short = recorded(&run(), whole.len() as u64 - 1);
        assert!(short.ends_with(b"\n") && whole.starts_with(&short));
        assert_eq!(replay(&*short).unwrap().events, 6);
        assert_eq!(replay(&whole[..whole.len() - 1]).unwrap().events, 6);
    }

    #[test]
    fn a_log_of_another_form_is_not_read() {
        let error = replay(&b"{\"form\":2,\"version\":\"9\"}\n"[..]).unwrap_err();
        assert_eq!(error.to_string(), "the log has form 2, this reads 1");
    }
}
