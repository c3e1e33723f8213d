//! AdmissionReview v1 as it comes in: raw JSON, read only as far as a rule needs, and never trusted.
//!
//! kube's own review types are not used on purpose: they decode the object into a typed form, which drops fields
//! that they do not know, and answer a wrong field with the position of a byte instead of the field's path.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::shown::Shown;

/// Version of the reviews that are understood.
pub(crate) const API_VERSION: &str = "admission.k8s.io/v1";
/// Kind of the reviews that are understood.
pub(crate) const KIND: &str = "AdmissionReview";

/// Why a review cannot be read. Each names the field at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The body is empty.
    #[error("the request body is empty; an {KIND} of {API_VERSION} is expected")]
    Empty,
    /// The body is no JSON, or no JSON object.
    #[error("the request body is not a JSON object: {0}")]
    NotJson(String),
    /// Another API version.
    #[error("apiVersion is {0}; this webhook understands {API_VERSION}")]
    ApiVersion(String),
    /// Another kind.
    #[error("kind is {0}; this webhook understands {KIND}")]
    Kind(String),
    /// A field that every review has is missing, null or empty.
    #[error("{0} is missing")]
    Missing(String),
    /// A field has another type than it should.
    #[error("{path} must be {expected}, not {found}")]
    Type {
        /// The field.
        path: String,
        /// What it should be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A field is nested too deeply or is broken inside.
    #[error("{path} cannot be read: {reason}")]
    Broken {
        /// The field.
        path: String,
        /// What the JSON reader says.
        reason: String,
    },
    /// The review is of something else than its path is for.
    #[error("this webhook reviews {expected}, not {found}; check the rules of the webhook configuration")]
    Resource {
        /// What the path is for.
        expected: String,
        /// What the review is of.
        found: String,
    },
    /// An operation that Kubernetes does not have.
    #[error("request.operation is {0}; CREATE, UPDATE, DELETE and CONNECT are known")]
    Operation(String),
}

/// What is being done to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The object is new.
    Create,
    /// The object changes.
    Update,
    /// The object goes away.
    Delete,
    /// A connection to a subresource.
    Connect,
}

impl Operation {
    /// The name as Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// A kind of object, reviewed at paths of its own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reviewed {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
}

pub(crate) const JOBS: Reviewed = Reviewed {
    group: "batch",
    version: "v1",
    resource: "jobs",
    kind: "Job",
    namespaced: true,
};
pub(crate) const CLUSTER_QUEUES: Reviewed = Reviewed {
    group: sluice_api::GROUP,
    version: sluice_api::v1beta2::VERSION,
    resource: "clusterqueues",
    kind: "ClusterQueue",
    namespaced: false,
};
pub(crate) const COHORTS: Reviewed = Reviewed {
    group: sluice_api::GROUP,
    version: sluice_api::v1beta2::VERSION,
    resource: "cohorts",
    kind: "Cohort",
    namespaced: false,
};
pub(crate) const LOCAL_QUEUES: Reviewed = Reviewed {
    group: sluice_api::GROUP,
    version: sluice_api::v1beta2::VERSION,
    resource: "localqueues",
    kind: "LocalQueue",
    namespaced: true,
};
pub(crate) const RESOURCE_FLAVORS: Reviewed = Reviewed {
    group: sluice_api::GROUP,
    version: sluice_api::v1beta2::VERSION,
    resource: "resourceflavors",
    kind: "ResourceFlavor",
    namespaced: false,
};
pub(crate) const WORKLOADS: Reviewed = Reviewed {
    group: sluice_api::GROUP,
    version: sluice_api::v1beta2::VERSION,
    resource: "workloads",
    kind: "Workload",
    namespaced: true,
};

/// A review that could be read. Objects are parsed as plain JSON values, complete with unknown fields.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    /// What kind of object it is about.
    pub(crate) reviewed: &'static Reviewed,
    /// Goes back in the response as it came.
    pub(crate) uid: String,
    /// What is being done.
    pub(crate) operation: Operation,
    /// Empty for the object itself; `status`, `scale` and the like otherwise.
    pub(crate) sub_resource: String,
    /// Namespace of the object; empty where its kind has none.
    pub(crate) namespace: String,
    /// Name of the object; empty when the API server is going to generate it.
    pub(crate) name: String,
    /// Who asks.
    pub(crate) username: String,
    /// The groups of whoever asks.
    pub(crate) groups: Vec<String>,
    /// Whether nothing will be stored. Reviews have no side effects, so no rule depends on it.
    pub(crate) dry_run: bool,
    /// The object as it would be stored; on CREATE and UPDATE always a JSON object.
    pub(crate) object: Value,
    /// The object as it is stored; on UPDATE always a JSON object.
    pub(crate) old_object: Value,
}

/// A review that could not be read. With a uid it can still be answered in kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// The review's uid, when that much could be read.
    pub(crate) uid: Option<String>,
    /// What is wrong.
    pub(crate) error: ReviewError,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow)]
    api_version: Option<&'a RawValue>,
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    request: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    #[serde(borrow)]
    uid: Option<&'a RawValue>,
    #[serde(borrow)]
    resource: Option<&'a RawValue>,
    #[serde(borrow)]
    sub_resource: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    operation: Option<&'a RawValue>,
    #[serde(borrow)]
    user_info: Option<&'a RawValue>,
    #[serde(borrow)]
    dry_run: Option<&'a RawValue>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct UserInfo<'a> {
    #[serde(borrow)]
    username: Option<&'a RawValue>,
    #[serde(borrow)]
    groups: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct GroupVersionResource<'a> {
    #[serde(borrow)]
    group: Option<&'a RawValue>,
    #[serde(borrow)]
    version: Option<&'a RawValue>,
    #[serde(borrow)]
    resource: Option<&'a RawValue>,
}

/// Reads a review of an object of this kind.
pub(crate) fn read(body: &[u8], reviewed: &'static Reviewed) -> Result<Request, Unreadable> {
    let anonymous = |error| Unreadable { uid: None, error };
    match body.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => return Err(anonymous(ReviewError::Empty)),
        Some(b'{') => {}
        Some(_) => return Err(anonymous(no_object(body))),
    }
    let envelope: Envelope<'_> =
        serde_json::from_slice(body).map_err(|err| anonymous(ReviewError::NotJson(brief(&err))))?;
    let api_version = text(envelope.api_version, "apiVersion").map_err(anonymous)?;
    if api_version != API_VERSION {
        return Err(anonymous(match api_version.as_str() {
            "" => ReviewError::Missing("apiVersion".to_owned()),
            other => ReviewError::ApiVersion(Shown(other).to_string()),
        }));
    }
    let kind = text(envelope.kind, "kind").map_err(anonymous)?;
    if kind != KIND {
        return Err(anonymous(match kind.as_str() {
            "" => ReviewError::Missing("kind".to_owned()),
            other => ReviewError::Kind(Shown(other).to_string()),
        }));
    }
    let wire: Wire<'_> = structure(envelope.request, "request").map_err(anonymous)?;
    let uid = required_text(wire.uid, "request.uid").map_err(anonymous)?;
    request(&wire, uid.clone(), reviewed).map_err(|error| Unreadable { uid: Some(uid), error })
}

fn no_object(body: &[u8]) -> ReviewError {
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => ReviewError::NotJson(format!("it is {}", describe(&value))),
        Err(err) => ReviewError::NotJson(brief(&err)),
    }
}

fn request(wire: &Wire<'_>, uid: String, reviewed: &'static Reviewed) -> Result<Request, ReviewError> {
    resource(wire, reviewed)?;
    let operation = match required_text(wire.operation, "request.operation")?.as_str() {
        "CREATE" => Operation::Create,
        "UPDATE" => Operation::Update,
        "DELETE" => Operation::Delete,
        "CONNECT" => Operation::Connect,
        other => return Err(ReviewError::Operation(Shown(other).to_string())),
    };
    let user: UserInfo<'_> = match wire.user_info {
        Some(_) => structure(wire.user_info, "request.userInfo")?,
        None => UserInfo::default(),
    };
    let object_needed = matches!(operation, Operation::Create | Operation::Update);
    let namespace = if reviewed.namespaced { required_text } else { text };
    Ok(Request {
        reviewed,
        uid,
        operation,
        sub_resource: text(wire.sub_resource, "request.subResource")?,
        namespace: namespace(wire.namespace, "request.namespace")?,
        name: text(wire.name, "request.name")?,
        username: text(user.username, "request.userInfo.username")?,
        groups: texts(user.groups, "request.userInfo.groups")?,
        dry_run: flag(wire.dry_run, "request.dryRun")?,
        object: object(wire.object, "request.object", object_needed)?,
        old_object: object(wire.old_object, "request.oldObject", operation == Operation::Update)?,
    })
}

fn resource(wire: &Wire<'_>, reviewed: &Reviewed) -> Result<(), ReviewError> {
    let parts: GroupVersionResource<'_> = structure(wire.resource, "request.resource")?;
    let group = text(parts.group, "request.resource.group")?;
    let version = text(parts.version, "request.resource.version")?;
    let resource = required_text(parts.resource, "request.resource.resource")?;
    if (group.as_str(), version.as_str(), resource.as_str()) == (reviewed.group, reviewed.version, reviewed.resource) {
        return Ok(());
    }
    let group_version = if group.is_empty() {
        version
    } else {
        format!("{group}/{version}")
    };
    Err(ReviewError::Resource {
        expected: format!("{} of {}/{}", reviewed.resource, reviewed.group, reviewed.version),
        found: format!("{} of {}", Shown(&resource), Shown(&group_version)),
    })
}

/// A string; absent and null are the empty string, as in Kubernetes.
fn text(raw: Option<&RawValue>, path: &str) -> Result<String, ReviewError> {
    match parse(raw, path)? {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text),
        other => Err(wrong_type(path, "a string", &other)),
    }
}

fn texts(raw: Option<&RawValue>, path: &str) -> Result<Vec<String>, ReviewError> {
    let list = match parse(raw, path)? {
        Value::Null => Vec::new(),
        Value::Array(list) => list,
        other => return Err(wrong_type(path, "a list", &other)),
    };
    let element = |(index, value)| match value {
        Value::String(text) => Ok(text),
        other => Err(wrong_type(&format!("{path}[{index}]"), "a string", &other)),
    };
    list.into_iter().enumerate().map(element).collect()
}

pub(crate) fn required_text(raw: Option<&RawValue>, path: &str) -> Result<String, ReviewError> {
    let text = text(raw, path)?;
    if text.is_empty() {
        Err(ReviewError::Missing(path.to_owned()))
    } else {
        Ok(text)
    }
}

fn flag(raw: Option<&RawValue>, path: &str) -> Result<bool, ReviewError> {
    match parse(raw, path)? {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(flag),
        other => Err(wrong_type(path, "a boolean", &other)),
    }
}

fn object(raw: Option<&RawValue>, path: &str, needed: bool) -> Result<Value, ReviewError> {
    match parse(raw, path)? {
        Value::Null if needed => Err(ReviewError::Missing(path.to_owned())),
        value @ (Value::Null | Value::Object(_)) => Ok(value),
        other => Err(wrong_type(path, "an object", &other)),
    }
}

pub(crate) fn structure<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>, path: &str) -> Result<T, ReviewError> {
    let raw = raw.ok_or_else(|| ReviewError::Missing(path.to_owned()))?;
    if !raw.get().starts_with('{') {
        return Err(wrong_type(path, "an object", &parse(Some(raw), path)?));
    }
    serde_json::from_str(raw.get()).map_err(|err| ReviewError::Broken {
        path: path.to_owned(),
        reason: brief(&err),
    })
}

fn parse(raw: Option<&RawValue>, path: &str) -> Result<Value, ReviewError> {
    let Some(raw) = raw else { return Ok(Value::Null) };
    serde_json::from_str(raw.get()).map_err(|err| ReviewError::Broken {
        path: path.to_owned(),
        reason: brief(&err),
    })
}

pub(crate) fn wrong_type(path: &str, expected: &'static str, found: &Value) -> ReviewError {
    ReviewError::Type {
        path: path.to_owned(),
        expected,
        found: describe(found),
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => format!("the boolean {flag}"),
        Value::Number(number) => format!("the number {}", Shown(&number.to_string()).plain()),
        Value::String(text) => format!("the string {}", Shown(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

pub(crate) fn brief(err: &serde_json::Error) -> String {
    Shown(&err.to_string()).plain()
}
