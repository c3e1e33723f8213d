//! Where a unit belongs that runs already, whoever started it: adoption asks for flavors, never for room.

use crate::assign::{Plan, Verdict};
use crate::engine::Engine;
use crate::report::Admission;
use crate::shapes::Shape;
use crate::spec::UnitSpec;

impl Engine {
    /// The assignment that `unit` would get in its queue if quota were unlimited: the first flavor of each resource
    /// group that its pods may use. Nothing is charged by it. None if its queue or flavors do not exist, no flavor
    /// serves it, or it asks for a resource that the queue has no quota for.
    pub fn place_over_quota(&self, unit: &UnitSpec) -> Option<Admission> {
        let local_queue = self.local_queues.get(self.local_queues.find(&unit.local_queue)?)?;
        let queue = self.queues.get(local_queue.queue()?)?;
        queue.spec.as_ref()?;
        let shape: Shape = unit.pod_sets.as_slice().into();
        let plan = Plan::new(&shape, &queue.groups, &queue.node, &self.cells, &self.flavors);
        let Verdict::Fits(chosen) = plan.judge_unlimited(&queue.node) else {
            return None;
        };
        let (pod_sets, _) = plan.assignment(&shape, &chosen, &queue.node, &self.cells);
        Some(Admission {
            uid: unit.uid,
            queue: queue.name.clone(),
            local_queue: unit.local_queue.clone(),
            pod_sets,
        })
    }
}
