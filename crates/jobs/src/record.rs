//! The admission record: what the scheduler decided last about a Job, kept on the Job itself.
//!
//! The states, the fields, the legal transitions and who may write each stand in `docs/record.md`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_api::annotations::ADMISSION_MAX_BYTES;
use thiserror::Error;

use crate::Timestamp;

/// The version that this crate writes. It reads its neighbours too.
pub const VERSION: u32 = 1;

/// Why a record cannot be read or written.
#[derive(Debug, Error)]
pub enum RecordError {
    /// Longer than any record may be.
    #[error("the admission record has {bytes} bytes, at most {ADMISSION_MAX_BYTES} are allowed")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// Not the JSON of a record.
    #[error("the admission record cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Written by a version that is no neighbour of this one.
    #[error("the admission record has version {found}; this version reads {} to {}", VERSION - 1, VERSION + 1)]
    Version {
        /// The version found.
        found: u32,
    },
    /// The record belongs to another Job: it was copied.
    #[error("the admission record belongs to the Job with uid {found}")]
    ForeignUid {
        /// The uid found.
        found: String,
    },
}

/// Where a Job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum State {
    /// It may run, and its quota is charged.
    Admitted,
    /// It was suspended by the scheduler; its quota is charged until its pods are gone.
    Evicting,
    /// It waits in its queue, after it had been admitted, or after it slipped past the webhook.
    Waiting,
    /// Its owner stopped it; it takes no part in queueing. Its quota is charged until its pods are gone.
    Held,
    /// The scheduler stopped it and took it out of queueing; a person has to put it back. Its quota is charged until its
    /// pods are gone.
    Deactivated,
}

impl State {
    /// Every state, in the order of the table in `docs/record.md`.
    pub const ALL: [Self; 5] = [
        Self::Admitted,
        Self::Evicting,
        Self::Waiting,
        Self::Held,
        Self::Deactivated,
    ];

    /// Whether the scheduler may write a record of state `to` over one of this state.
    ///
    /// Every state may be written over itself, which changes fields and no state.
    pub fn may_become(self, to: Self) -> bool {
        use State::{Admitted, Deactivated, Evicting, Held, Waiting};
        match self {
            Admitted => matches!(to, Admitted | Evicting | Held | Deactivated),
            Evicting => matches!(to, Admitted | Evicting | Waiting | Held | Deactivated),
            Waiting => matches!(to, Admitted | Waiting | Held | Deactivated),
            Held => matches!(to, Admitted | Evicting | Waiting | Held | Deactivated),
            Deactivated => matches!(to, Admitted | Waiting | Held | Deactivated),
        }
    }

    /// Whether a Job without a record may get one of this state.
    pub fn may_be_first(self) -> bool {
        !matches!(self, Self::Evicting)
    }

    /// Whether the Job may run in this state.
    pub fn runs(self) -> bool {
        self == Self::Admitted
    }

    /// Whether a Job in this state was stopped, and is charged until its pods are gone.
    pub fn stops(self) -> bool {
        matches!(self, Self::Evicting | Self::Held | Self::Deactivated)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Admitted => "Admitted",
            Self::Evicting => "Evicting",
            Self::Waiting => "Waiting",
            Self::Held => "Held",
            Self::Deactivated => "Deactivated",
        })
    }
}

/// The admission record.
///
/// `v`, `term` and `uid` come first in its JSON: the policy that fences old leaders looks for the text `"term":N,`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The version of the record's form.
    pub v: u32,
    /// The term of the leader that wrote it.
    pub term: u64,
    /// The uid of the Job that it belongs to: a copy on another Job counts for nothing.
    pub uid: String,
    /// Where the Job stands.
    pub state: State,
    /// The ClusterQueue that pays, or paid last.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster_queue: String,
    /// The LocalQueue that it came through.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub local_queue: String,
    /// What is charged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_sets: Vec<PodSetRecord>,
    /// When it was admitted last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted_at: Option<Timestamp>,
    /// The time that orders it in its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_at: Option<Timestamp>,
    /// The transition time of the condition Suspended=True that it carried when it was admitted. A condition with this
    /// very time acknowledges no later suspension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_before: Option<Timestamp>,
    /// The queue objects that the decision was made on.
    #[serde(default, skip_serializing_if = "ResourceVersions::is_empty")]
    pub resource_versions: ResourceVersions,
    /// Exactly what was changed, so that the Job as the user wants it can be told from the Job as it runs.
    #[serde(default, skip_serializing_if = "Delta::is_empty")]
    pub delta: Delta,
    /// How often it was sent back, and until when it waits out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue: Option<Requeue>,
    /// Seconds that it ran in earlier admissions, each rounded up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub accumulated_seconds: u64,
    /// How often it was evicted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub evictions: u64,
    /// When the pods of this admission were ready, if they ever were and anybody waits for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_ready: Option<PodsReady>,
    /// Why and when it was stopped. Stays until the next admission: its quota comes back by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction: Option<Eviction>,
    /// Who holds it, in state Held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// Fields of a neighbouring version, kept as they are.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// What is charged for one pod set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSetRecord {
    /// Its name; `main` for a Job.
    pub name: String,
    /// The number of pods charged.
    pub count: i64,
    /// The flavor of each resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub flavors: BTreeMap<String, String>,
    /// The amount of each resource for all pods of the set, as a quantity.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub usage: BTreeMap<String, String>,
    /// Fields of a neighbouring version, kept as they are.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

/// The resourceVersions of the queue objects that a decision was made on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceVersions {
    /// Of the ClusterQueue.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster_queue: String,
    /// Of the LocalQueue.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub local_queue: String,
    /// Of each flavor, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub flavors: BTreeMap<String, String>,
}

impl ResourceVersions {
    fn is_empty(&self) -> bool {
        self.cluster_queue.is_empty() && self.local_queue.is_empty() && self.flavors.is_empty()
    }
}

/// What an admission changed in the Job: what it put into the pod template that the user had not put there, and the
/// numbers that the user had where it was admitted with fewer pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Delta {
    /// Node labels added to the node selector.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations added.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Value>,
    /// Labels added to the pods.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The parallelism that the user asked for, where it runs with less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<i64>,
    /// The completions that the user asked for, where they were lowered with the parallelism.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completions: Option<i64>,
}

impl Delta {
    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// When the pods of an admission were ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodsReady {
    /// When all of them were ready for the first time.
    pub since: Timestamp,
    /// Since when they are not all ready any more, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_at: Option<Timestamp>,
}

/// How often a Job was sent back to its queue, and until when it waits out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Requeue {
    /// How often.
    pub count: u32,
    /// It is not tried before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

/// Why and when a Job was stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    /// A word for machines.
    pub reason: String,
    /// A second word that says more, where one reason has several causes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When, by the clock of the scheduler.
    pub at: Timestamp,
    /// Whether the Job controller had acknowledged the start before the stop, so that any later condition
    /// Suspended=True acknowledges the stop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub started: bool,
}

/// Who holds a Job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// Since when.
    pub at: Timestamp,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Record {
    /// A record with nothing in it but what every record has.
    pub fn new(uid: impl Into<String>, term: u64, state: State) -> Self {
        Self {
            v: VERSION,
            term,
            uid: uid.into(),
            state,
            cluster_queue: String::new(),
            local_queue: String::new(),
            pod_sets: Vec::new(),
            admitted_at: None,
            queued_at: None,
            suspended_before: None,
            resource_versions: ResourceVersions::default(),
            delta: Delta::default(),
            requeue: None,
            accumulated_seconds: 0,
            evictions: 0,
            pods_ready: None,
            eviction: None,
            hold: None,
            extra: BTreeMap::new(),
        }
    }

    /// The pods that it is charged for.
    pub fn pods(&self) -> i64 {
        let counts = self.pod_sets.iter().map(|set| set.count);
        counts.fold(0, i64::saturating_add)
    }

    /// Whether `other` records the same admission: what differs was only noted meanwhile.
    pub fn is_same_admission(&self, other: &Self) -> bool {
        self.state == State::Admitted && other.state == State::Admitted && self.admitted_at == other.admitted_at
    }

    /// Reads the record of the Job with this uid.
    ///
    /// # Errors
    /// A [`RecordError`] when the text is too long, is no record, is of a version too far away, or belongs to another Job.
    pub fn parse(text: &str, uid: &str) -> Result<Self, RecordError> {
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }

        if text.len() > ADMISSION_MAX_BYTES {
            return Err(RecordError::TooLong { bytes: text.len() });
        }
        // The version first: a far one may have another form, and "version 7" explains more than "missing field".
        let Version { v: found } = serde_json::from_str(text)?;
        if found.abs_diff(VERSION) > 1 {
            return Err(RecordError::Version { found });
        }
        let record: Self = serde_json::from_str(text)?;
        if record.uid == uid {
            Ok(record)
        } else {
            Err(RecordError::ForeignUid { found: record.uid })
        }
    }

    /// The text of the annotation.
    ///
    /// # Errors
    /// [`RecordError::TooLong`] when it would be longer than a record may be.
    pub fn to_annotation(&self) -> Result<String, RecordError> {
        let text = escape_for_go(&serde_json::to_string(self)?);
        if text.len() > ADMISSION_MAX_BYTES {
            Err(RecordError::TooLong { bytes: text.len() })
        } else {
            Ok(text)
        }
    }
}

/// Whether the API server writes this text in its JSON with other bytes than serde does.
///
/// Go escapes `<`, `>`, `&` and two line separators for the sake of HTML, and the `test` operation of its JSON patch
/// compares strings by their bytes on the wire: a guard on such a text would fail for ever.
pub(crate) fn go_escapes(text: &str) -> bool {
    text.contains(['<', '>', '&', '\u{2028}', '\u{2029}'])
}

/// Inside a record, which is JSON itself, these characters can be written as escapes of plain characters.
fn escape_for_go(json: &str) -> String {
    if !go_escapes(json) {
        return json.to_owned();
    }
    let mut escaped = String::with_capacity(json.len() + 32);
    for character in json.chars() {
        match character {
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UID: &str = "1f0c8a5e-0001";

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn full() -> Record {
        Record {
            cluster_queue: "team-a".into(),
            local_queue: "batch".into(),
            pod_sets: vec![PodSetRecord {
                name: "main".into(),
                count: 3,
                flavors: [("cpu".to_owned(), "spot".to_owned())].into(),
                usage: [("cpu".to_owned(), "3".to_owned())].into(),
                extra: BTreeMap::new(),
            }],
            admitted_at: Some(time("2026-11-30T10:00:00.25Z")),
            queued_at: Some(time("2026-11-30T09:59:00Z")),
            suspended_before: Some(time("2026-11-30T09:59:01Z")),
            resource_versions: ResourceVersions {
                cluster_queue: "7".into(),
                local_queue: "8".into(),
                flavors: [("spot".to_owned(), "9".to_owned())].into(),
            },
            delta: Delta {
                node_selector: [("pool".to_owned(), "spot".to_owned())].into(),
                tolerations: vec![json!({"key": "spot", "operator": "Exists"})],
                labels: [("kueue.x-k8s.io/podset".to_owned(), "main".to_owned())].into(),
                parallelism: Some(5),
                completions: Some(5),
            },
            requeue: Some(Requeue {
                count: 2,
                at: Some(time("2026-11-30T10:01:00Z")),
            }),
            accumulated_seconds: 40,
            evictions: 3,
            pods_ready: Some(PodsReady {
                since: time("2026-11-30T10:00:05Z"),
                lost_at: Some(time("2026-11-30T10:00:20Z")),
            }),
            eviction: Some(Eviction {
                reason: "Preempted".into(),
                cause: "InClusterQueue".into(),
                message: "by team-b/train".into(),
                at: time("2026-11-30T10:00:30Z"),
                started: true,
            }),
            hold: Some(Hold {
                at: time("2026-11-30T10:00:31Z"),
                message: String::new(),
            }),
            ..Record::new(UID, 12, State::Admitted)
        }
    }

    #[test]
    fn version_term_and_uid_come_first_and_the_term_can_be_found_as_text() {
        let text = Record::new(UID, 12, State::Waiting).to_annotation().unwrap();
        assert_eq!(text, r#"{"v":1,"term":12,"uid":"1f0c8a5e-0001","state":"Waiting"}"#);
        assert!(
            full()
                .to_annotation()
                .unwrap()
                .starts_with(r#"{"v":1,"term":12,"uid":"#)
        );
    }

    #[test]
    fn a_text_inside_the_record_cannot_pass_for_a_term() {
        let mut record = full();
        record.eviction.as_mut().unwrap().message = r#"","term":13,"#.into();
        assert!(!record.to_annotation().unwrap().contains(r#""term":13,"#));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let record = full();
        assert_eq!(Record::parse(&record.to_annotation().unwrap(), UID).unwrap(), record);
    }

    #[test]
    fn unknown_fields_of_a_neighbouring_version_are_kept() {
        let text = r#"{"v":2,"term":1,"uid":"1f0c8a5e-0001","state":"Admitted","podSets":[{"name":"main","count":1,"slice":4}],"shard":{"a":1}}"#;
        let record = Record::parse(text, UID).unwrap();
        assert_eq!(record.extra["shard"], json!({"a": 1}));
        assert_eq!(record.to_annotation().unwrap(), text);
    }

    #[test]
    fn a_version_too_far_away_is_named() {
        let error = Record::parse(r#"{"v":3,"form":"new"}"#, UID).unwrap_err();
        assert!(matches!(error, RecordError::Version { found: 3 }));
        assert!(error.to_string().contains("reads 0 to 2"), "{error}");
    }

    #[test]
    fn a_record_of_another_job_is_refused() {
        let text = full().to_annotation().unwrap();
        assert!(
            matches!(Record::parse(&text, "another").unwrap_err(), RecordError::ForeignUid { found } if found == UID)
        );
    }

    #[test]
    fn broken_texts_are_refused_with_a_reason() {
        for text in [
            "",
            "null",
            "{}",
            "[]",
            r#"{"v":1}"#,
            r#"{"v":"1"}"#,
            r#"{"v":-1}"#,
            "{\"v\":1,",
        ] {
            assert!(
                matches!(Record::parse(text, UID).unwrap_err(), RecordError::Malformed(_)),
                "{text}"
            );
        }
        let unknown_state = r#"{"v":1,"term":1,"uid":"1f0c8a5e-0001","state":"Flying"}"#;
        assert!(
            Record::parse(unknown_state, UID)
                .unwrap_err()
                .to_string()
                .contains("Flying")
        );
    }

    #[test]
    fn a_record_over_the_limit_is_neither_written_nor_read() {
        let mut record = full();
        record.eviction.as_mut().unwrap().message = "x".repeat(ADMISSION_MAX_BYTES);
        assert!(matches!(
            record.to_annotation().unwrap_err(),
            RecordError::TooLong { .. }
        ));
        let text = " ".repeat(ADMISSION_MAX_BYTES + 1);
        assert!(matches!(
            Record::parse(&text, UID).unwrap_err(),
            RecordError::TooLong { .. }
        ));
    }

    #[test]
    fn characters_that_go_writes_differently_never_stand_in_the_text() {
        let mut record = full();
        record.eviction.as_mut().unwrap().message = "a<b> & \u{2028}\u{2029} é".into();
        let text = record.to_annotation().unwrap();
        assert!(!go_escapes(&text));
        assert_eq!(Record::parse(&text, UID).unwrap(), record);
    }

    #[test]
    fn a_job_runs_only_when_admitted_and_every_other_state_leads_back_there() {
        assert!(State::ALL.iter().filter(|state| state.runs()).eq([&State::Admitted]));
        for state in State::ALL {
            let direct = state.may_become(State::Admitted);
            let over_waiting = state.may_become(State::Waiting) && State::Waiting.may_become(State::Admitted);
            assert!(direct || over_waiting, "{state}");
        }
    }

    #[test]
    fn a_running_job_leaves_its_admission_only_by_being_stopped() {
        let from_admitted: Vec<_> = State::ALL
            .into_iter()
            .filter(|to| State::Admitted.may_become(*to))
            .collect();
        assert_eq!(
            from_admitted,
            [State::Admitted, State::Evicting, State::Held, State::Deactivated]
        );
        assert!(from_admitted.iter().skip(1).all(|state| state.stops()));
        assert!(!State::Evicting.may_be_first());
    }

    #[test]
    fn what_is_only_noted_meanwhile_leaves_the_admission_the_same() {
        let noted = Record {
            term: 13,
            pods_ready: None,
            ..full()
        };
        assert!(noted.is_same_admission(&full()));
        let again = Record {
            admitted_at: Some(time("2026-11-30T11:00:00Z")),
            ..full()
        };
        assert!(!again.is_same_admission(&full()));
        let stopped = Record {
            state: State::Evicting,
            ..full()
        };
        assert!(!stopped.is_same_admission(&full()));
    }

    #[test]
    fn the_documented_table_of_transitions_is_the_one_in_force() {
        let table = include_str!("../../../docs/record.md");
        for from in State::ALL {
            for to in State::ALL {
                let row = table
                    .lines()
                    .find(|line| line.starts_with(&format!("| {from} |")))
                    .unwrap();
                let legal = row
                    .split('|')
                    .nth(2)
                    .unwrap()
                    .split(',')
                    .any(|state| state.trim() == to.to_string());
                assert_eq!(legal, from.may_become(to), "{from} -> {to}");
            }
        }
    }
}
