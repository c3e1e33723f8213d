//! Decoding that survives one broken object.

use std::borrow::Cow;

use kube::Resource;
use kube::core::{DynamicResourceScope, ObjectMeta, PartialObjectMeta};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// An object as the watch sees it: decoded, or only its metadata and why the rest could not be decoded.
///
/// Without this a broken object makes a list fail as a whole, for ever, and disappears from a watch without
/// a name. The object's text is kept aside as raw JSON and decoded from there: one scan and one copy more than a direct
/// decode. (kube's `DeserializeGuard` builds a value tree and clones it, which costs more than decoding.)
#[derive(Clone, Debug)]
pub(super) struct Guarded<K>(pub(super) Result<K, Undecodable>);

/// What is left of an object that did not decode.
#[derive(Clone, Debug)]
pub(super) struct Undecodable {
    pub(super) metadata: Box<ObjectMeta>,
    pub(super) error: String,
}

/// Only as much of an object as names it; managed fields and the like may be what is broken.
#[derive(Deserialize)]
struct Named {
    metadata: Name,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(clippy::struct_field_names)] // the wire's names
struct Name {
    name: String,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl<'de, K: Resource + DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let error = match serde_json::from_str::<K>(raw.get()) {
            Ok(object) if object.meta().name.is_some() => return Ok(Self(Ok(object))),
            Ok(_) => "an object without a name".to_owned(),
            Err(error) => error.to_string(),
        };
        let metadata = serde_json::from_str::<PartialObjectMeta<K>>(raw.get()).map_or_else(
            |_| {
                serde_json::from_str::<Named>(raw.get()).map(|Named { metadata }| ObjectMeta {
                    name: Some(metadata.name),
                    namespace: metadata.namespace,
                    uid: metadata.uid,
                    resource_version: metadata.resource_version,
                    ..ObjectMeta::default()
                })
            },
            |partial| Ok(partial.metadata),
        );
        match metadata {
            Ok(metadata) if metadata.name.is_some() => Ok(Self(Err(Undecodable {
                metadata: Box::new(metadata),
                error,
            }))),
            // Not an object at all: the caller's own error handling must see this.
            _ => Err(D::Error::custom(error)),
        }
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    // Lets one piece of code watch kinds of either scope.
    type Scope = DynamicResourceScope;

    fn kind(dt: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dt)
    }

    fn group(dt: &K::DynamicType) -> Cow<'_, str> {
        K::group(dt)
    }

    fn version(dt: &K::DynamicType) -> Cow<'_, str> {
        K::version(dt)
    }

    fn plural(dt: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dt)
    }

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(broken) => &broken.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(broken) => &mut broken.metadata,
        }
    }
}
