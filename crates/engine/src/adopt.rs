//! Where a unit belongs that runs already, whoever started it: adoption asks for flavors, never for room.

use crate::engine::Engine;
use crate::report::Admission;
use crate::spec::UnitSpec;

impl Engine {
    /// The assignment that `unit` would get in its queue if quota were unlimited: the first flavor of each resource
    /// group that its pods may use. Nothing is charged by it. None if its queue or flavors do not exist, no flavor
    /// serves it, or it asks for a resource that the queue has no quota for.
    pub fn place_over_quota(&self, unit: &UnitSpec) -> Option<Admission> {
        let local_queue = self.local_queues.get(self.local_queues.find(&unit.local_queue)?)?;
        let queue = self.queues.get(local_queue.queue()?)?;
        let (tree, node) = queue.place?;
        let tree = self.forest.trees.get(tree)?;
        let plan = self.resolve(queue, tree, node, &unit.pod_sets);
        if plan.is_uncovered() {
            return None;
        }
        let (chosen, _) = plan.first_choices(|_| i128::MAX)?;
        let (pod_sets, _) = plan.assignment(&unit.pod_sets, &chosen, tree, &self.cells);
        Some(Admission {
            uid: unit.uid,
            queue: queue.name.clone(),
            local_queue: unit.local_queue.clone(),
            pod_sets,
        })
    }
}
