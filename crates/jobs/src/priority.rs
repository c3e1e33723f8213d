//! Which priority orders a Job in its queue.

use sluice_api::labels;
use thiserror::Error;

use crate::view::JobView;

/// The WorkloadPriorityClass of Jobs that name none, if it exists.
pub const DEFAULT_CLASS: &str = "default";

/// Where priority classes are looked up.
pub trait PriorityClasses {
    /// The value of a WorkloadPriorityClass.
    fn workload_class(&self, name: &str) -> Option<i32>;
    /// The value of a PriorityClass of pods.
    fn pod_class(&self, name: &str) -> Option<i32>;
    /// Name and value of the PriorityClass marked as global default.
    fn global_default(&self) -> Option<(&str, i32)>;
}

/// Where a priority comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A WorkloadPriorityClass: named by the Job, or the default one.
    WorkloadClass(String),
    /// A PriorityClass of the pods: named by the template, or the global default.
    PodClass(String),
    /// No class at all.
    None,
}

/// A priority, with where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priority {
    /// Higher goes first.
    pub value: i32,
    /// Where it comes from.
    pub source: Source,
}

/// A class that the Job names and that does not exist: the Job waits until it does.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PriorityError {
    /// Named by the label of the Job.
    #[error("WorkloadPriorityClass {0:?} does not exist")]
    NoWorkloadClass(String),
    /// Named by the pod template: the API server would refuse the pods.
    #[error("PriorityClass {0:?} of the pod template does not exist")]
    NoPodClass(String),
}

/// Resolves a Job's priority: its label, else the WorkloadPriorityClass `default`, else the pod template's class, else the
/// global default, else 0.
///
/// # Errors
/// A [`PriorityError`] when a class that is named does not exist. A pod class that is missing counts even where another
/// class orders the Job, because the API server would refuse its pods.
pub fn resolve(job: &JobView, classes: &impl PriorityClasses) -> Result<Priority, PriorityError> {
    let pod_class = job
        .spec
        .template
        .spec
        .priority_class_name
        .as_deref()
        .filter(|name| !name.is_empty());
    let pod_priority = match pod_class {
        Some(name) => {
            let value = classes
                .pod_class(name)
                .ok_or_else(|| PriorityError::NoPodClass(name.to_owned()))?;
            Some((name, value))
        }
        None => classes.global_default(),
    };
    let workload = |name: &str, value| Priority {
        value,
        source: Source::WorkloadClass(name.to_owned()),
    };
    if let Some(name) = job.label(labels::PRIORITY_CLASS) {
        let value = classes
            .workload_class(name)
            .ok_or_else(|| PriorityError::NoWorkloadClass(name.to_owned()))?;
        return Ok(workload(name, value));
    }
    if let Some(value) = classes.workload_class(DEFAULT_CLASS) {
        return Ok(workload(DEFAULT_CLASS, value));
    }
    Ok(pod_priority.map_or(
        Priority {
            value: 0,
            source: Source::None,
        },
        |(name, value)| Priority {
            value,
            source: Source::PodClass(name.to_owned()),
        },
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::fixture;

    #[derive(Default)]
    struct Classes {
        workload: BTreeMap<&'static str, i32>,
        pod: BTreeMap<&'static str, i32>,
        global: Option<(&'static str, i32)>,
    }

    impl PriorityClasses for Classes {
        fn workload_class(&self, name: &str) -> Option<i32> {
            self.workload.get(name).copied()
        }

        fn pod_class(&self, name: &str) -> Option<i32> {
            self.pod.get(name).copied()
        }

        fn global_default(&self) -> Option<(&str, i32)> {
            self.global
        }
    }

    fn all() -> Classes {
        Classes {
            workload: [("default", 10), ("high", 100)].into(),
            pod: [("pods-high", 1000)].into(),
            global: Some(("global", -5)),
        }
    }

    fn job(label: Option<&str>, pod_class: Option<&str>) -> JobView {
        let mut job = fixture::waiting_job();
        if let Some(label) = label {
            job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(label);
        }
        if let Some(class) = pod_class {
            job["spec"]["template"]["spec"]["priorityClassName"] = json!(class);
        }
        fixture::view(&job)
    }

    fn value(job: &JobView, classes: &Classes) -> i32 {
        resolve(job, classes).unwrap().value
    }

    #[test]
    fn the_sources_are_asked_in_order() {
        let no_default = Classes {
            workload: [("high", 100)].into(),
            ..all()
        };
        let nothing = Classes::default();
        assert_eq!(value(&job(Some("high"), Some("pods-high")), &all()), 100);
        assert_eq!(value(&job(None, Some("pods-high")), &all()), 10);
        assert_eq!(value(&job(None, Some("pods-high")), &no_default), 1000);
        assert_eq!(value(&job(None, None), &no_default), -5);
        assert_eq!(
            resolve(&job(None, None), &nothing).unwrap(),
            Priority {
                value: 0,
                source: Source::None
            }
        );
    }

    #[test]
    fn the_source_is_named() {
        let source = |job: &JobView| resolve(job, &all()).unwrap().source;
        assert_eq!(source(&job(Some("high"), None)), Source::WorkloadClass("high".into()));
        assert_eq!(source(&job(None, None)), Source::WorkloadClass("default".into()));
        let no_classes = Classes {
            workload: BTreeMap::new(),
            ..all()
        };
        assert_eq!(
            resolve(&job(None, None), &no_classes).unwrap().source,
            Source::PodClass("global".into())
        );
    }

    #[test]
    fn a_class_that_is_named_and_missing_is_an_error_and_never_a_fallback() {
        let error = resolve(&job(Some("gone"), None), &all()).unwrap_err();
        assert_eq!(error.to_string(), "WorkloadPriorityClass \"gone\" does not exist");
        let error = resolve(&job(None, Some("gone")), &all()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "PriorityClass \"gone\" of the pod template does not exist"
        );
        assert!(resolve(&job(Some("high"), Some("gone")), &all()).is_err());
    }
}
