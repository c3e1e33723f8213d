//! The API server's audit log: who asked what, and what came of it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

/// A request that the API server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEvent {
    /// User name, such as `system:serviceaccount:sluice-system:sluice`.
    pub user: String,
    /// `User-Agent` header.
    pub user_agent: String,
    /// Verb: get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// API group; empty for the core group.
    pub group: String,
    /// Resource, such as `jobs`.
    pub resource: String,
    /// Subresource, such as `status`; empty for the object itself.
    pub subresource: String,
    /// Namespace; empty for cluster objects.
    pub namespace: String,
    /// Name of the object; empty for lists and for a create with generateName.
    pub name: String,
    /// HTTP status of the answer.
    pub code: u16,
    /// What the API server said of a failure; empty for what succeeded.
    pub message: String,
    /// When the request came, RFC 3339 with microseconds.
    pub received: String,
}

impl AuditEvent {
    /// Whether it is a create, update, patch or delete.
    pub fn is_write(&self) -> bool {
        matches!(
            self.verb.as_str(),
            "create" | "update" | "patch" | "delete" | "deletecollection"
        )
    }

    /// Whether the API server did what was asked.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

/// A place in the log, to read on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditMark(u64);

impl AuditMark {
    /// The start of the log.
    pub const START: Self = Self(0);
}

/// Reader of the audit log.
///
/// The line of a request is written as its answer is sent: read it with
/// [`eventually`](crate::eventually).
#[derive(Debug, Clone)]
pub struct Audit {
    path: PathBuf,
}

impl Audit {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The present end of the log.
    pub fn mark(&self) -> Result<AuditMark> {
        match std::fs::metadata(&self.path) {
            Ok(file) => Ok(AuditMark(file.len())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(AuditMark::START),
            Err(error) => Err(error).context("failed to read the audit log"),
        }
    }

    /// Every answered request after `mark` that `wanted` picks, oldest answer first.
    pub fn since(&self, mark: AuditMark, mut wanted: impl FnMut(&AuditEvent) -> bool) -> Result<Vec<AuditEvent>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).context("failed to open the audit log"),
        };
        file.seek(SeekFrom::Start(mark.0))?;
        let mut content = String::new();
        file.read_to_string(&mut content)
            .context("failed to read the audit log")?;
        let mut events = Vec::new();
        // The last line may be half written.
        for line in content.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let entry: Entry = serde_json::from_str(line).with_context(|| format!("unreadable audit line {line}"))?;
            // A watch has a ResponseStarted line too.
            if entry.stage != "ResponseComplete" && entry.stage != "Panic" {
                continue;
            }
            let event = AuditEvent::from(entry);
            if wanted(&event) {
                events.push(event);
            }
        }
        Ok(events)
    }

    /// Writes on batch Jobs, any subresource, by users for whom `user` holds.
    pub fn job_writes(&self, mark: AuditMark, user: impl Fn(&str) -> bool) -> Result<Vec<AuditEvent>> {
        self.since(mark, |event| {
            event.group == "batch" && event.resource == "jobs" && event.is_write() && user(&event.user)
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    stage: String,
    verb: String,
    user: User,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    request_received_timestamp: String,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
    #[serde(default)]
    message: String,
}

impl From<Entry> for AuditEvent {
    fn from(entry: Entry) -> Self {
        Self {
            user: entry.user.username,
            user_agent: entry.user_agent,
            verb: entry.verb,
            group: entry.object_ref.api_group,
            resource: entry.object_ref.resource,
            subresource: entry.object_ref.subresource,
            namespace: entry.object_ref.namespace,
            name: entry.object_ref.name,
            code: entry.response_status.code,
            message: entry.response_status.message,
            received: entry.request_received_timestamp,
        }
    }
}
