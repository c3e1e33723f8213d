//! Scenarios: queueing rules as data, played against the engine alone and against a real control plane.
//!
//! `docs/scenarios.md` has the format. [`pure::play`] plays a file in memory; what it shows after each step is what
//! the real control plane must show too.

pub mod format;
pub mod pure;
pub mod seen;

/// Calls a macro with the names of all scenarios, as identifiers: `-` in a file's name is `_` here.
///
/// The list is the one place where a new file is entered; a test fails for a file that is not in it.
#[macro_export]
macro_rules! for_each_scenario {
    ($callback:ident) => {
        $callback! {
            a_deleted_job_gives_its_quota_back
            a_field_not_acted_on_makes_a_queue_inactive
            a_flavors_own_toleration_counts
            a_full_flavor_does_not_hold_up_others
            a_huge_quota_is_not_none
            a_job_that_does_not_fit_stops_no_other_queue
            a_missing_priority_class_holds_a_job
            a_queue_without_a_namespace_selector_admits_nobody
            a_resource_taken_from_a_queue_stays_charged
            a_stopped_queue_admits_nothing
            a_strict_queue_waits_for_its_head
            equal_jobs_go_in_the_order_of_creation
            flavors_are_tried_in_order
            huge_requests_never_fit
            limits_count_where_requests_are_missing
            many_equal_jobs_fill_the_quota
            node_labels_are_matched_flavor_by_flavor
            objects_may_come_in_any_order
            pods_can_have_a_quota
            priority_comes_before_age
            quota_lowered_below_usage
            sidecars_and_init_containers
            strict_and_best_effort
            zero_of_an_uncovered_resource
        }
    };
}

#[cfg(test)]
mod tests {
    use super::format::Scenario;
    use super::pure;

    macro_rules! play {
        ($($name:ident)*) => {
            $(
                #[test]
                fn $name() {
                    let scenario = Scenario::load(stringify!($name)).unwrap();
                    pure::play(&scenario).unwrap();
                }
            )*

            #[test]
            fn every_file_is_in_the_list() {
                let mut listed = vec![$(stringify!($name).replace('_', "-")),*];
                listed.sort_unstable();
                assert_eq!(Scenario::all_names().unwrap(), listed);
            }
        };
    }
    for_each_scenario!(play);

    fn refused(steps: &str) -> String {
        let text = format!(
            "objects:
  - {{kind: ResourceFlavor, name: any}}
  - kind: ClusterQueue
    name: cq
    spec:
      namespaceSelector: {{}}
      resourceGroups: [{{coveredResources: [cpu], flavors: [{{name: any, resources: [{{name: cpu, nominalQuota: 1}}]}}]}}]
  - {{kind: LocalQueue, name: default, spec: {{clusterQueue: cq}}}}
steps:
{steps}"
        );
        let played = Scenario::read("refused", &text).and_then(|scenario| pure::play(&scenario));
        format!("{:#}", played.unwrap_err())
    }

    #[test]
    fn equal_jobs_of_one_step_are_refused_because_their_uids_would_decide() {
        let error = refused("  - create: [{job: a}, {job: b}]\n    expect: {jobs: {a: {stage: Running}}}");
        assert!(
            error.contains("step 1: Jobs a and b") && error.contains("anyOrder"),
            "{error}"
        );
    }

    #[test]
    fn jobs_of_any_order_may_only_be_counted() {
        let steps = "  - anyOrder: true\n    create: [{job: a}, {job: b}]\n    expect: {jobs: {a: {stage: Running}}}";
        let error = refused(steps);
        assert!(error.contains("may only count"), "{error}");
    }

    #[test]
    fn an_outcome_that_hangs_on_which_job_of_a_step_comes_first_is_refused() {
        let steps = "  - create: [{job: a}, {job: b, priorityClass: high}]\n    expect: {counts: {Running: 1}}";
        let error = refused(&format!(
            "  - apply: [{{kind: WorkloadPriorityClass, name: high, value: 1}}]\n{steps}"
        ));
        assert!(error.contains("hangs on"), "{error}");
    }

    #[test]
    fn what_does_not_come_true_is_told_with_its_step() {
        let error = refused("  - create: [{job: a}]\n    expect: {jobs: {a: {stage: Held}}}");
        assert!(
            error.contains("step 1") && error.contains("Job a is Running, not Held"),
            "{error}"
        );
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        let error = refused("  - create: [{job: a}]\n    expects: {}");
        assert!(error.contains("expects"), "{error}");
    }

    #[test]
    fn a_scenario_that_does_not_say_how_it_ends_is_refused() {
        let error = refused("  - create: [{job: a}]");
        assert!(error.contains("last step expects nothing"), "{error}");
    }
}
