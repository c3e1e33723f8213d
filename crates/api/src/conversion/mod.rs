//! Conversion between `v1beta1` and `v1beta2`, on raw JSON.
//!
//! ```text
//! object in one version --the paths that differ move--> object in the other
//!                        \--what the other cannot say--> an annotation, which brings it back
//! ```
//!
//! Only the paths that differ are named, so fields that this crate does not know survive. What one version cannot say
//! is carried in an annotation ([`SAID_IN_V1BETA1`], [`SAID_IN_V1BETA2`]) while the object is in the other, and taken
//! out of it on the way back: a round trip gives back what went in. Two things are not carried:
//!
//! - **Observed state that `v1beta2` dropped** (`status.flavors` of a LocalQueue, `status.pendingWorkloadsStatus` of a
//!   ClusterQueue, `status.fairSharing.admissionFairSharingStatus` of a ClusterQueue or Cohort). Nobody writes it any
//!   more, and a copy in an annotation would only grow old.
//! - **Status that `v1beta1` did not have.** Whoever may write an object may write its annotations; if a conversion took
//!   status from there, that would be a way around the `status` subresource. So Sluice's schemas of `v1beta1` have these
//!   fields too (`status.preemptionGates` of a Workload, and `slices` for a placement that `domains` cannot express).
//!
//! A placement in a topology is written in columns in one version and in rows in the other; it comes back in columns that
//! say the same.

mod carried;
mod queues;
mod workload;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::GROUP;

/// On an object in `v1beta2`: what its author said in `v1beta1` and `v1beta2` has other words for. JSON, by field.
pub const SAID_IN_V1BETA1: &str = "conversion.sluice.internal/v1beta1";
/// On an object in `v1beta1`: what it says in `v1beta2` and `v1beta1` has no words for. JSON, by field.
pub const SAID_IN_V1BETA2: &str = "conversion.sluice.internal/v1beta2";

/// A JSON object.
type Object = Map<String, Value>;

/// A version of the API group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// The older one, served.
    V1beta1,
    /// The newer one, served and stored.
    V1beta2,
}

impl Version {
    /// The version as it stands behind the group.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1beta1 => "v1beta1",
            Self::V1beta2 => "v1beta2",
        }
    }

    /// The `apiVersion` of objects in this version.
    pub fn api_version(self) -> String {
        format!("{GROUP}/{}", self.as_str())
    }

    /// The version that an `apiVersion` names, if it is one of this group.
    pub fn of(api_version: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/')?;
        [Self::V1beta1, Self::V1beta2]
            .into_iter()
            .find(|known| group == GROUP && known.as_str() == version)
    }
}

/// Why an object cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConversionError {
    /// It is no JSON object.
    #[error("the object is not a JSON object")]
    NotAnObject,
    /// A field that says what it is is missing or no text.
    #[error("{0} is missing or not a string")]
    Missing(&'static str),
    /// Its version is not one of those that are known.
    #[error("apiVersion {0:?} is not known: this webhook converts between {GROUP}/v1beta1 and {GROUP}/v1beta2")]
    ApiVersion(String),
    /// Its kind is not one of the group's.
    #[error("kind {0:?} is not one of {GROUP}")]
    Kind(String),
}

/// A way of converting: from an object in one version to the same in the other.
type Conversion = fn(&mut Object, &mut carried::Carried, Version);

/// Kinds whose versions differ, and how. The CRDs of all other kinds need no webhook.
const DIFFERENT: &[(&str, Conversion)] = &[
    ("ClusterQueue", queues::cluster_queue),
    ("Cohort", queues::cohort),
    ("LocalQueue", queues::local_queue),
    ("MultiKueueCluster", queues::multikueue_cluster),
    ("Workload", workload::workload),
];

/// Kinds whose versions have the same schema, or one that the API server can cut to the other by itself.
const ALIKE: &[&str] = &[
    "AdmissionCheck",
    "MultiKueueConfig",
    "ProvisioningRequestConfig",
    "ResourceFlavor",
    "Topology",
    "WorkloadPriorityClass",
];

/// Whether objects of a kind need the webhook to get from one version to the other.
pub fn needs_webhook(kind: &str) -> bool {
    DIFFERENT.iter().any(|(name, _)| *name == kind)
}

/// Converts an object of this group to a version. One that is in that version already stays as it is.
///
/// # Errors
/// When it does not say which of the group's kinds and versions it is. It stays as it was then.
pub fn convert(object: &mut Value, to: Version) -> Result<(), ConversionError> {
    let object = object.as_object_mut().ok_or(ConversionError::NotAnObject)?;
    let text = |field: &'static str| {
        let text = object.get(field).and_then(Value::as_str);
        text.ok_or(ConversionError::Missing(field)).map(ToOwned::to_owned)
    };
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let from = Version::of(&api_version).ok_or(ConversionError::ApiVersion(api_version))?;
    let conversion = DIFFERENT.iter().find(|(name, _)| *name == kind).map(|(_, way)| *way);
    if conversion.is_none() && !ALIKE.contains(&kind.as_str()) {
        return Err(ConversionError::Kind(kind));
    }
    if from == to {
        return Ok(());
    }
    if let Some(conversion) = conversion {
        let (brought, taken) = match to {
            Version::V1beta1 => (SAID_IN_V1BETA1, SAID_IN_V1BETA2),
            Version::V1beta2 => (SAID_IN_V1BETA2, SAID_IN_V1BETA1),
        };
        let mut carried = carried::Carried::unpack(object, brought);
        conversion(object, &mut carried, to);
        carried.pack(object, taken);
    }
    object.insert("apiVersion".to_owned(), to.api_version().into());
    Ok(())
}

/// The object at a field, if it is one.
fn object_at<'a>(object: &'a mut Object, field: &str) -> Option<&'a mut Object> {
    object.get_mut(field)?.as_object_mut()
}

/// The objects of the list at a field; none if it is no list.
fn objects_at<'a>(object: &'a mut Object, field: &str) -> impl Iterator<Item = &'a mut Object> {
    let list = object.get_mut(field).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Gives a field another name. What stands there under that name gives way.
fn rename(object: &mut Object, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.insert(to.to_owned(), value);
    }
}
