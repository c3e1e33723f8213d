//! Names to dense ids and back.

use rustc_hash::FxHashMap;

use crate::arena::Id;
use crate::ids::Name;

/// Gives each distinct name a dense id, for as long as the engine lives.
///
/// Only names that administrators choose are interned (flavors, and resources with quota or charged), never
/// what a user's unit asks for: nothing a tenant submits can make this grow.
#[derive(Debug)]
pub(crate) struct Interner<I> {
    names: Vec<Name>,
    ids: FxHashMap<Name, I>,
}

impl<I> Default for Interner<I> {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            ids: FxHashMap::default(),
        }
    }
}

impl<I: Id> Interner<I> {
    /// The id of `name`, a new one if it has none.
    pub(crate) fn intern(&mut self, name: &Name) -> I {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = I::from_index(self.names.len());
        self.names.push(name.clone());
        self.ids.insert(name.clone(), id);
        id
    }

    /// The id of `name`, if it has one.
    pub(crate) fn find(&self, name: &str) -> Option<I> {
        self.ids.get(name).copied()
    }

    /// The name behind an id.
    pub(crate) fn name(&self, id: I) -> &Name {
        &self.names[id.index()]
    }
}
