//! Rules of a Workload that concern its spec and its status together.

use serde_json::Value;

use crate::schema::rule;

/// CEL: whether a condition of `object` holds.
fn holds(object: &str, condition: &str) -> String {
    format!(
        "(has({object}.status) && has({object}.status.conditions) && {object}.status.conditions.exists(c, \
         c.type == '{condition}' && c.status == 'True'))"
    )
}

/// CEL: whether an optional field is the same before and after.
fn unchanged(field: &str) -> String {
    format!("(has(oldSelf.{field}) == has(self.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field}))")
}

/// The rules of the whole object, as the API server takes them.
pub(crate) fn root_rules() -> Vec<Value> {
    let reserved = holds("oldSelf", "QuotaReserved");
    let class = "spec.priorityClassRef";
    let both = format!("has(oldSelf.{class}) && has(self.{class})");
    let same_part = |part: &str| format!("!{reserved} || !({both}) || oldSelf.{class}.{part} == self.{class}.{part}");
    let mut rules = shared_rules();
    rules.extend([
        rule(
            &format!("!{reserved} || has(oldSelf.{class}) == has(self.{class})"),
            "priorityClassRef cannot come or go while the workload holds quota",
        ),
        rule(
            &same_part("group"),
            "the group of priorityClassRef cannot change while the workload holds quota",
        ),
        rule(
            &same_part("kind"),
            "the kind of priorityClassRef cannot change while the workload holds quota",
        ),
        rule(
            &format!(
                "!{reserved} || !({both}) || self.{class}.kind != 'PriorityClass' \
                 || oldSelf.{class}.name == self.{class}.name"
            ),
            "the name of a PriorityClass cannot change while the workload holds quota",
        ),
    ]);
    rules
}

/// The rules of the whole object in `v1beta1`, which has the class in two fields.
pub(crate) fn old_root_rules() -> Vec<Value> {
    let reserved = holds("oldSelf", "QuotaReserved");
    let (name, source) = ("spec.priorityClassName", "spec.priorityClassSource");
    let mut rules = shared_rules();
    rules.extend([
        rule(
            &format!("!{reserved} || {}", unchanged(source)),
            "priorityClassSource cannot change while the workload holds quota",
        ),
        rule(
            &format!("!{reserved} || has(oldSelf.{name}) == has(self.{name})"),
            "priorityClassName cannot come or go while the workload holds quota",
        ),
        rule(
            &format!(
                "!{reserved} || !has(self.{source}) || self.{source} != 'scheduling.k8s.io/priorityclass' || {}",
                unchanged(name)
            ),
            "the name of a PriorityClass cannot change while the workload holds quota",
        ),
    ]);
    rules
}

/// The rules that both versions have in the same words.
fn shared_rules() -> Vec<Value> {
    let (reserves, reserved) = (holds("self", "QuotaReserved"), holds("oldSelf", "QuotaReserved"));
    let (admitted, was_admitted) = (holds("self", "Admitted"), holds("oldSelf", "Admitted"));
    vec![
        rule(
            &format!(
                "!{reserves} || !has(self.status.admission) || size(self.status.admission.podSetAssignments) == \
                 (has(self.spec) && has(self.spec.podSets) ? size(self.spec.podSets) : 0)"
            ),
            "each pod set needs an assignment, and nothing else has one",
        ),
        rule(
            &format!(
                "!({reserved} && {reserves}) || !has(oldSelf.spec.queueName) || !has(self.spec.queueName) \
                 || oldSelf.spec.queueName == self.spec.queueName"
            ),
            "queueName cannot change while the workload holds quota",
        ),
        rule(
            &format!(
                "!({was_admitted} && {admitted}) || {}",
                unchanged("spec.maximumExecutionTimeSeconds")
            ),
            "maximumExecutionTimeSeconds cannot change while the workload is admitted",
        ),
    ]
}
