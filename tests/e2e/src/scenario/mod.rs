//! Scenarios: queueing rules as data, played against the engine alone and against a real control plane.
//!
//! `docs/scenarios.md` has the format. [`pure::play`] plays a file in memory; what it shows after each step is what
//! the real control plane must show too.

pub mod format;
mod manifest;
pub mod pure;
pub mod seen;

/// Calls a macro with the names of all scenarios, as identifiers: `-` in a file's name is `_` here.
///
/// The list is the one place where a new file is entered; a test fails for a file that is not in it.
#[macro_export]
macro_rules! for_each_scenario {
    ($callback:ident) => {
        $callback! {
            a_cohort_cycle_stops_its_members
            a_deleted_job_gives_its_quota_back
            a_deleted_queue_leaves_its_jobs_running
            a_field_not_acted_on_makes_a_queue_inactive
            a_flavor_without_candidates_is_not_preferred
            a_flavors_own_toleration_counts
            a_full_flavor_does_not_hold_up_others
            a_guarantee_takes_one_victim
            a_huge_quota_is_not_none
            a_job_that_does_not_fit_stops_no_other_queue
            a_larger_share_evicts_nobody
            a_lost_pod_that_does_not_come_back
            a_lowered_quota_in_a_cohort
            a_missing_parent_stops_its_members
            a_missing_priority_class_holds_a_job
            a_queue_moves_to_another_cohort
            a_queue_on_hold_has_used_what_its_jobs_use
            a_queue_that_may_borrow_evicts_no_more_than_needed
            a_queue_without_a_namespace_selector_admits_nobody
            a_resource_taken_from_a_member_stays_charged_to_the_cohort
            a_resource_taken_from_a_queue_stays_charged
            a_stopped_queue_admits_nothing
            a_strict_queue_waits_for_its_head
            admission_by_past_usage
            admission_gates
            ageing_has_a_cap
            an_evicted_job_is_head_again_at_once
            another_flavor_before_borrowing
            another_flavor_before_preemption
            backfill
            backfill_in_a_cohort
            backfill_without_known_ends
            block_admission_until_pods_are_ready
            borrowing_limit
            borrowing_while_preempting_has_a_threshold
            cohort_borrowing_and_reclaim
            equal_jobs_go_in_the_order_of_creation
            fair_shares_are_reached_by_preemption
            fair_sharing_between_cohorts
            fair_sharing_by_final_share
            fair_sharing_by_initial_share
            fair_sharing_by_weight
            fair_sharing_outside_a_cohort
            fair_sharing_tournament
            fifo_per_pool
            fifo_per_pool_keeps_what_fits
            flavors_are_tried_in_order
            hierarchical_lending
            hold_and_drain_a_cluster_queue
            hold_and_drain_a_local_queue
            huge_requests_never_fit
            in_queue_preemption_preferred_over_borrowing
            lending_limit
            limits_count_where_requests_are_missing
            many_equal_jobs_fill_the_quota
            maximum_execution_time
            minimum_run_time
            newer_equals_are_evicted_where_that_is_allowed
            nobody_within_its_quota_is_reclaimed
            node_labels_are_matched_flavor_by_flavor
            objects_may_come_in_any_order
            of_equal_candidates_no_more_than_needed_go
            own_quota_goes_before_borrowing
            own_quota_that_cannot_be_taken_back_is_not_lent
            only_who_uses_too_much_shrinks
            partial_admission
            past_usage_counts_by_weight
            pods_can_have_a_quota
            pods_that_are_not_ready_in_time
            pods_that_have_ended_give_their_quota_back
            preemption_preferred_over_borrowing
            preemption_within_a_queue
            priorities_that_change_are_followed
            priority_comes_before_age
            quota_lowered_below_usage
            quotas_of_a_cohort_and_its_members_add_up
            reclaim_by_priority
            room_made_for_a_job_is_kept_for_it
            sidecars_and_init_containers
            strict_and_best_effort
            the_cohort_is_free_again_when_a_borrower_goes
            the_head_of_a_strict_queue_is_passed_by_waiting
            the_latest_admitted_are_reclaimed_first
            the_smallest_set_of_victims
            victims_are_looked_for_in_every_flavor
            waiting_makes_up_for_priority
            weight_zero_shares_last
            usage_above_a_lowered_quota_is_evicted_after_a_time
            what_can_be_taken_back_is_lent
            what_cannot_be_taken_back_is_kept
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

    #[test]
    fn every_scenario_is_in_the_documentation() {
        let text = include_str!("../../../../docs/scenarios.md");
        for name in Scenario::all_names().unwrap() {
            assert!(text.contains(&format!("`{name}`")), "{name}");
        }
    }

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
    fn a_malformed_configuration_is_refused() {
        let text = "config: {fairSharing: {preemptionStrategies: [Best]}}\nsteps: [{expect: {counts: {Running: 0}}}]";
        let error = format!("{:#}", Scenario::read("refused", text).unwrap_err());
        assert!(error.contains("preemptionStrategies"), "{error}");
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
