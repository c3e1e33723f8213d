//! What one pod of a Job asks for, totalled as Kubernetes itself totals it, and how many pods there are.
//!
//! The rules are those of the API server's defaulting (limits become requests where requests are missing) followed by
//! the scheduler's `PodRequests`: the sum of containers and sidecars, or the largest step of the init containers if that
//! is more; requests of the pod as a whole override; overhead comes on top.

use std::collections::BTreeMap;

use sluice_quantity::Quantity;
use thiserror::Error;

use crate::view::{ContainerView, JobView, PodSpecView, ResourceList, ResourcesView, SpecView};

/// The one resource that is counted in thousandths.
pub const CPU: &str = "cpu";
const MEMORY: &str = "memory";
const HUGE_PAGES_PREFIX: &str = "hugepages-";
const POD_PATH: &str = "spec.template.spec";

/// Resource name to exact amount.
pub type Totals = BTreeMap<String, Quantity>;

/// A quantity that cannot be charged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RequestsError {
    /// It is no quantity.
    #[error("{field} is no quantity: {reason}")]
    Unreadable {
        /// Where it stands.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It is below zero.
    #[error("{field} is negative: {quantity}")]
    Negative {
        /// Where it stands.
        field: String,
        /// The amount.
        quantity: Quantity,
    },
}

/// The exact total of each resource that one pod asks for.
///
/// `runtime_overhead` is the overhead of the pods' RuntimeClass, used where the template itself has none, as the API
/// server's admission will do for the pods.
///
/// # Errors
/// A [`RequestsError`] that names the first field that cannot be charged.
pub fn pod_requests(pod: &PodSpecView, runtime_overhead: Option<&Totals>) -> Result<Totals, RequestsError> {
    let mut total = container_requests(pod)?;
    if let Some(resources) = &pod.resources {
        override_with_pod_level(&mut total, resources)?;
    }
    match (&pod.overhead, runtime_overhead) {
        (Some(overhead), _) => add(&mut total, &read(overhead, || format!("{POD_PATH}.overhead"))?),
        (None, Some(overhead)) => add(&mut total, overhead),
        (None, None) => {}
    }
    Ok(total)
}

/// One pod's totals as integers: cpu in thousandths, everything else in whole units, rounded up, saturating.
pub fn per_pod_amounts(total: &Totals) -> BTreeMap<String, i64> {
    total
        .iter()
        .map(|(resource, quantity)| (resource.clone(), amount(resource, quantity)))
        .collect()
}

/// A quantity of `resource` as an integer: cpu in thousandths, everything else in whole units, rounded up, saturating.
pub fn amount(resource: &str, quantity: &Quantity) -> i64 {
    if resource == CPU {
        quantity.milli_value()
    } else {
        quantity.value()
    }
}

/// The quantity of which [`amount`] made this integer.
pub fn quantity(resource: &str, amount: i64) -> Quantity {
    if resource == CPU {
        Quantity::from_milli(amount)
    } else {
        Quantity::from(amount)
    }
}

/// The number of pods that the Job may run at a time: parallelism (1 where unset), bounded by completions.
pub fn pods_count(spec: &SpecView) -> i64 {
    let parallelism = spec.parallelism.unwrap_or(1).max(0);
    spec.completions
        .map_or(parallelism, |completions| parallelism.min(completions.max(0)))
}

/// One pod's amounts and the number of pods, for a Job whose template says everything itself.
///
/// # Errors
/// As [`pod_requests`].
pub fn job_requests(
    job: &JobView,
    runtime_overhead: Option<&Totals>,
) -> Result<(BTreeMap<String, i64>, i64), RequestsError> {
    let total = pod_requests(&job.spec.template.spec, runtime_overhead)?;
    Ok((per_pod_amounts(&total), pods_count(&job.spec)))
}

fn container_requests(pod: &PodSpecView) -> Result<Totals, RequestsError> {
    let mut total = Totals::new();
    for (index, container) in pod.containers.iter().enumerate() {
        add(&mut total, &effective(container, "containers", index)?);
    }
    let mut sidecars = Totals::new();
    let mut largest_step = Totals::new();
    for (index, container) in pod.init_containers.iter().flatten().enumerate() {
        let requests = effective(container, "initContainers", index)?;
        if container.is_sidecar() {
            add(&mut total, &requests);
            add(&mut sidecars, &requests);
            raise(&mut largest_step, &sidecars);
        } else {
            // An init container runs beside the sidecars that were started before it, and only those.
            let mut step = requests;
            add(&mut step, &sidecars);
            raise(&mut largest_step, &step);
        }
    }
    raise(&mut total, &largest_step);
    Ok(total)
}

/// A container's requests, with limits where a request is missing.
fn effective(container: &ContainerView, list: &str, index: usize) -> Result<Totals, RequestsError> {
    let path = |kind: &str| format!("{POD_PATH}.{list}[{index}].resources.{kind}");
    let (mut requests, limits) = read_both(&container.resources, path)?;
    for (resource, limit) in limits {
        requests.entry(resource).or_insert(limit);
    }
    Ok(requests)
}

/// Pod-level requests win; pod-level limits stand in for them only where no container asks for the resource.
fn override_with_pod_level(total: &mut Totals, resources: &ResourcesView) -> Result<(), RequestsError> {
    let (requests, limits) = read_both(resources, |kind| format!("{POD_PATH}.resources.{kind}"))?;
    for (resource, limit) in limits {
        let asked = requests.contains_key(&resource) || total.contains_key(&resource) && !is_huge_page(&resource);
        if is_pod_level(&resource) && !asked {
            total.insert(resource, limit);
        }
    }
    total.extend(requests.into_iter().filter(|(resource, _)| is_pod_level(resource)));
    Ok(())
}

fn is_pod_level(resource: &str) -> bool {
    resource == CPU || resource == MEMORY || is_huge_page(resource)
}

fn is_huge_page(resource: &str) -> bool {
    resource.starts_with(HUGE_PAGES_PREFIX)
}

fn read_both(resources: &ResourcesView, path: impl Fn(&str) -> String) -> Result<(Totals, Totals), RequestsError> {
    let one = |list: &Option<ResourceList>, kind: &str| match list {
        Some(list) => read(list, || path(kind)),
        None => Ok(Totals::new()),
    };
    Ok((one(&resources.requests, "requests")?, one(&resources.limits, "limits")?))
}

fn read(list: &ResourceList, path: impl Fn() -> String) -> Result<Totals, RequestsError> {
    let mut totals = Totals::new();
    for (resource, quantity) in list {
        let field = || format!("{}[{resource}]", path());
        let quantity = quantity.get().map_err(|reason| RequestsError::Unreadable {
            field: field(),
            reason: reason.to_owned(),
        })?;
        if quantity.is_negative() {
            return Err(RequestsError::Negative {
                field: field(),
                quantity: quantity.clone(),
            });
        }
        totals.insert(resource.clone(), quantity.clone());
    }
    Ok(totals)
}

fn add(total: &mut Totals, other: &Totals) {
    for (resource, quantity) in other {
        let sum = total
            .get(resource)
            .map_or_else(|| quantity.clone(), |present| present.saturating_add(quantity));
        total.insert(resource.clone(), sum);
    }
}

fn raise(total: &mut Totals, floor: &Totals) {
    for (resource, quantity) in floor {
        match total.get(resource) {
            Some(present) if present >= quantity => {}
            _ => drop(total.insert(resource.clone(), quantity.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(pod: Value) -> PodSpecView {
        serde_json::from_value(pod).unwrap()
    }

    fn totals(spec: Value) -> BTreeMap<String, String> {
        let totals = pod_requests(&pod(spec), None).unwrap();
        totals
            .into_iter()
            .map(|(resource, quantity)| (resource, quantity.to_string()))
            .collect()
    }

    fn expect(spec: Value, wanted: &[(&str, &str)]) {
        let wanted: BTreeMap<_, _> = wanted
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(totals(spec), wanted);
    }

    fn cpu(amount: &str) -> Value {
        json!({"resources": {"requests": {"cpu": amount}}})
    }

    fn sidecar(amount: &str) -> Value {
        json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": amount}}})
    }

    #[test]
    fn containers_are_summed() {
        expect(
            json!({"containers": [cpu("100m"), cpu("1.5"), {"name": "none"}]}),
            &[("cpu", "1600m")],
        );
    }

    #[test]
    fn the_largest_init_container_counts_when_it_is_larger_than_all_containers() {
        let spec = |init: &str| json!({"containers": [cpu("1")], "initContainers": [cpu(init), cpu("500m")]});
        expect(spec("2"), &[("cpu", "2")]);
        expect(spec("900m"), &[("cpu", "1")]);
    }

    #[test]
    fn an_init_container_counts_with_the_sidecars_started_before_it() {
        let spec = json!({"initContainers": [sidecar("100m"), cpu("200m")], "containers": [cpu("100m")]});
        expect(spec, &[("cpu", "300m")]);
        let later = json!({"initContainers": [cpu("200m"), sidecar("100m")], "containers": [cpu("50m")]});
        expect(later, &[("cpu", "200m")]);
    }

    #[test]
    fn sidecars_count_beside_the_containers() {
        let spec = json!({"initContainers": [sidecar("100m"), sidecar("200m")], "containers": [cpu("1")]});
        expect(spec, &[("cpu", "1300m")]);
    }

    #[test]
    fn overhead_comes_on_top_of_everything() {
        let spec = json!({"containers": [cpu("1")], "overhead": {"cpu": "250m", "memory": "120Mi"}});
        expect(spec, &[("cpu", "1250m"), ("memory", "120Mi")]);
    }

    #[test]
    fn the_overhead_of_the_runtime_class_counts_only_where_the_template_has_none() {
        let class = Totals::from([("cpu".to_owned(), Quantity::from(5))]);
        let without = pod(json!({"containers": [cpu("1")]}));
        let with = pod(json!({"containers": [cpu("1")], "overhead": {"cpu": "1"}}));
        assert_eq!(pod_requests(&without, Some(&class)).unwrap()["cpu"], Quantity::from(6));
        assert_eq!(pod_requests(&with, Some(&class)).unwrap()["cpu"], Quantity::from(2));
    }

    #[test]
    fn limits_stand_in_for_missing_requests_resource_by_resource() {
        let spec = json!({
            "containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4", "memory": "1Gi"}}}],
            "initContainers": [{"resources": {"limits": {"cpu": "3"}}}]
        });
        expect(spec, &[("cpu", "3"), ("memory", "1Gi")]);
    }

    #[test]
    fn pod_level_requests_override_the_containers_for_the_resources_that_have_them() {
        let spec = json!({
            "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2"}}}],
            "resources": {"requests": {"cpu": "5", "nvidia.com/gpu": "9"}}
        });
        expect(spec, &[("cpu", "5"), ("memory", "1Gi"), ("nvidia.com/gpu", "2")]);
    }

    #[test]
    fn pod_level_limits_count_only_where_neither_pod_nor_containers_request() {
        let spec = json!({
            "containers": [cpu("1")],
            "resources": {"limits": {"cpu": "8", "memory": "2Gi"}}
        });
        expect(spec, &[("cpu", "1"), ("memory", "2Gi")]);
    }

    #[test]
    fn pod_level_limits_of_huge_pages_count_before_the_containers() {
        let spec = json!({
            "containers": [{"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}],
            "resources": {"limits": {"hugepages-2Mi": "8Mi"}}
        });
        expect(spec, &[("hugepages-2Mi", "8Mi")]);
    }

    #[test]
    fn overhead_is_added_to_pod_level_requests_too() {
        let spec = json!({"containers": [], "resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "1"}});
        expect(spec, &[("cpu", "3")]);
    }

    #[test]
    fn a_zero_of_an_unknown_resource_stays_a_zero() {
        let spec = json!({"containers": [{"resources": {"requests": {"nvidia.com/gpu": 0, "memory": "200Mi"}}}]});
        let amounts = per_pod_amounts(&pod_requests(&pod(spec), None).unwrap());
        assert_eq!(
            amounts,
            BTreeMap::from([("memory".to_owned(), 209_715_200), ("nvidia.com/gpu".to_owned(), 0)])
        );
    }

    #[test]
    fn cpu_is_counted_in_thousandths_and_everything_else_in_whole_units_rounded_up() {
        let spec = json!({"containers": [
            {"resources": {"requests": {"cpu": "0.3m", "memory": "1.5", "example.com/seat": "100m"}}},
            {"resources": {"requests": {"cpu": "0.3m"}}}
        ]});
        let amounts = per_pod_amounts(&pod_requests(&pod(spec), None).unwrap());
        let wanted = [("cpu", 1), ("memory", 2), ("example.com/seat", 1)].map(|(key, value)| (key.to_owned(), value));
        assert_eq!(amounts, BTreeMap::from(wanted));
    }

    #[test]
    fn requests_near_the_end_of_the_range_saturate_and_never_turn_negative() {
        let huge = json!({"resources": {"requests": {"cpu": "9223372036854775807", "memory": "8Ei"}}});
        let spec = json!({"containers": [huge.clone(), huge.clone(), huge]});
        let amounts = per_pod_amounts(&pod_requests(&pod(spec), None).unwrap());
        assert_eq!(amounts["cpu"], i64::MAX);
        assert_eq!(amounts["memory"], i64::MAX);
    }

    #[test]
    fn a_negative_quantity_is_refused_wherever_it_stands() {
        let negative = json!({"cpu": "-1n"});
        let cases = [
            (
                json!({"containers": [cpu("1"), cpu("-1n")]}),
                "containers[1].resources.requests[cpu]",
            ),
            (
                json!({"containers": [{"resources": {"limits": negative}}]}),
                "containers[0].resources.limits[cpu]",
            ),
            (
                json!({"initContainers": [cpu("-1n")]}),
                "initContainers[0].resources.requests[cpu]",
            ),
            (json!({"overhead": negative}), "overhead[cpu]"),
            (json!({"resources": {"requests": negative}}), "resources.requests[cpu]"),
            (json!({"resources": {"limits": negative}}), "resources.limits[cpu]"),
        ];
        for (spec, field) in cases {
            let error = pod_requests(&pod(spec), None).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("spec.template.spec.{field} is negative: -1n")
            );
        }
    }

    #[test]
    fn an_unreadable_quantity_is_named_with_its_field_and_text() {
        let spec = json!({"containers": [{"resources": {"requests": {"memory": "1gb"}}}]});
        let error = pod_requests(&pod(spec), None).unwrap_err().to_string();
        assert!(
            error.starts_with("spec.template.spec.containers[0].resources.requests[memory] is no quantity: \"1gb\"")
        );
    }

    #[test]
    fn parallelism_is_bounded_by_completions() {
        let count = |parallelism, completions| {
            pods_count(&SpecView {
                parallelism,
                completions,
                ..SpecView::default()
            })
        };
        assert_eq!(count(None, None), 1);
        assert_eq!(count(Some(5), None), 5);
        assert_eq!(count(Some(5), Some(3)), 3);
        assert_eq!(count(Some(2), Some(3)), 2);
        assert_eq!(count(None, Some(0)), 0);
        assert_eq!(count(Some(0), Some(3)), 0);
        assert_eq!(count(Some(-1), Some(-1)), 0);
    }

    #[test]
    fn amounts_and_quantities_convert_both_ways() {
        assert_eq!(quantity("cpu", 1500).to_string(), "1500m");
        assert_eq!(amount("cpu", &quantity("cpu", 1500)), 1500);
        assert_eq!(amount("memory", &quantity("memory", 1500)), 1500);
    }
}
