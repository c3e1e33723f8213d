//! What a watch has delivered so far, so that a relist can tell what went away.

use kube::Resource;
use kube::core::ObjectMeta;
use kube::runtime::watcher::Event;
use rustc_hash::FxHashMap;

use super::guard::{Guarded, Undecodable};
use super::{Broken, Change, ObjectKey};

/// Turns a watcher's events into changes.
pub(super) struct Tracker<K> {
    known: Known,
    listing: Option<Listing<K>>,
}

/// Every object delivered and not gone: its uid by namespace and name.
type Known = FxHashMap<(Box<str>, Box<str>), Box<str>>;

struct Listing<K> {
    live: Vec<K>,
    broken: Vec<Broken>,
    seen: Known,
}

impl<K> Default for Tracker<K> {
    fn default() -> Self {
        Self {
            known: Known::default(),
            listing: None,
        }
    }
}

impl<K: Resource> Tracker<K> {
    /// True between the start of a list and its end.
    pub(super) fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    /// How many objects exist, as far as was delivered.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Takes one event in; a change comes out unless the event belongs to an unfinished list.
    pub(super) fn take(&mut self, event: Event<Guarded<K>>) -> Option<Change<K>> {
        match event {
            Event::Init => {
                self.listing = Some(Listing {
                    live: Vec::new(),
                    broken: Vec::new(),
                    seen: Known::default(),
                });
                None
            }
            Event::InitApply(object) => {
                let listing = self.listing.as_mut()?;
                note(&mut listing.seen, object.meta());
                match object.0 {
                    Ok(object) => listing.live.push(object),
                    Err(broken) => listing.broken.push(broken.into()),
                }
                None
            }
            Event::InitDone => self.finish_list(),
            Event::Apply(object) => {
                note(&mut self.known, object.meta());
                Some(match object.0 {
                    Ok(object) => Change::Apply(object),
                    Err(broken) => Change::Broken(broken.into()),
                })
            }
            Event::Delete(object) => {
                let key = ObjectKey::of(object.meta());
                self.known
                    .remove(&(key.namespace.as_str().into(), key.name.as_str().into()));
                Some(Change::Delete {
                    key,
                    last: object.0.ok(),
                })
            }
        }
    }

    fn finish_list(&mut self) -> Option<Change<K>> {
        let Listing { live, broken, seen } = self.listing.take()?;
        let mut removed: Vec<ObjectKey> = std::mem::take(&mut self.known)
            .into_iter()
            // An object deleted and created again under its name while nobody watched is another object.
            .filter(|(name, uid)| seen.get(name) != Some(uid))
            .map(|((namespace, name), uid)| ObjectKey {
                namespace: namespace.into(),
                name: name.into(),
                uid: uid.into(),
            })
            .collect();
        removed.sort_unstable();
        self.known = seen;
        Some(Change::Reset { live, removed, broken })
    }
}

fn note(known: &mut Known, meta: &ObjectMeta) {
    let name = (
        meta.namespace.as_deref().unwrap_or_default().into(),
        meta.name.as_deref().unwrap_or_default().into(),
    );
    known.insert(name, meta.uid.as_deref().unwrap_or_default().into());
}

impl From<Undecodable> for Broken {
    fn from(broken: Undecodable) -> Self {
        Self {
            key: ObjectKey::of(&broken.metadata),
            resource_version: broken.metadata.resource_version.unwrap_or_default(),
            error: broken.error,
        }
    }
}
