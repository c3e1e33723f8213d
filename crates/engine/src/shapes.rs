//! Shapes: what units ask for, each distinct request stored once.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::arena::{Arena, define_id};
use crate::spec::PodSetSpec;

define_id! {
    /// A distinct request.
    ShapeId
}

/// What a unit asks for: everything about it that can decide whether and where it fits, and nothing else (no
/// priority, no times). Units of one shape in one queue are judged once.
pub(crate) type Shape = Arc<[PodSetSpec]>;

/// The shapes in use, each kept as long as a waiting unit has it.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    arena: Arena<ShapeId, Shared>,
    ids: FxHashMap<Shape, ShapeId>,
}

#[derive(Debug)]
struct Shared {
    shape: Shape,
    users: usize,
}

impl Shapes {
    /// The shape of these pod sets, with one more user.
    pub(crate) fn acquire(&mut self, pod_sets: Vec<PodSetSpec>) -> ShapeId {
        if let Some(id) = self.ids.get(pod_sets.as_slice()).copied() {
            if let Some(shared) = self.arena.get_mut(id) {
                shared.users += 1;
            }
            return id;
        }
        let shape: Shape = pod_sets.into();
        let id = self.arena.insert(Shared {
            shape: Arc::clone(&shape),
            users: 1,
        });
        self.ids.insert(shape, id);
        id
    }

    /// One user less; the last one takes the shape along.
    pub(crate) fn release(&mut self, id: ShapeId) {
        let Some(shared) = self.arena.get_mut(id) else { return };
        shared.users -= 1;
        if shared.users == 0 {
            self.ids.remove(&shared.shape);
            self.arena.remove(id);
        }
    }

    /// The pod sets of a shape in use.
    pub(crate) fn get(&self, id: ShapeId) -> Shape {
        self.arena
            .get(id)
            .map_or_else(|| Arc::from([]), |shared| Arc::clone(&shared.shape))
    }

    /// The shapes in use and how many units have each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ShapeId, usize)> {
        self.arena.iter().map(|(id, shared)| (id, shared.users))
    }
}
