//! The one answer to "is this Job ours?", used by the webhook, the scheduler and the command line alike.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use sluice_api::labels;

use crate::view::JobView;

/// The value of `spec.managedBy` that means the same as its absence.
const BUILT_IN_CONTROLLER: &str = "kubernetes.io/job-controller";
const SYSTEM_NAMESPACE: &str = "kube-system";
/// A chain of owners longer than this is followed no further.
const MAX_OWNERS: usize = 10;

/// What the answer needs to know about a namespace.
#[derive(Clone, Copy, Debug)]
pub struct NamespaceFacts<'a> {
    /// Its name.
    pub name: &'a str,
    /// The value of its opt-in label, if it has one.
    pub opt_in: Option<&'a str>,
    /// The name of the namespace that Sluice itself runs in.
    pub own_namespace: &'a str,
}

impl NamespaceFacts<'_> {
    /// Whether the namespace is opted in as a whole.
    pub fn is_opted_in(&self) -> bool {
        self.opt_in == Some(labels::MANAGED_NAMESPACE_VALUE)
    }
}

/// What the answer needs to know about a Job.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobFacts<'a> {
    /// The value of its queue label, if it carries one, even an empty one.
    pub queue_name: Option<&'a str>,
    /// Its `spec.managedBy`.
    pub managed_by: Option<&'a str>,
}

impl<'a> JobFacts<'a> {
    /// The facts of a Job from the watch.
    pub fn of(job: &'a JobView) -> Self {
        Self {
            queue_name: job.label(labels::QUEUE_NAME),
            managed_by: job.spec.managed_by.as_deref(),
        }
    }
}

/// The owner that controls a Job, as far as the answer depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Owner {
    /// No owner controls the Job, or one that is not managed: a CronJob, a stranger, or one that no longer exists.
    #[default]
    Unmanaged,
    /// A managed Job controls it, directly or through other Jobs.
    Managed,
}

/// The answer, with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Managed {
    /// Managed: its namespace is opted in.
    ByNamespace,
    /// Managed: it carries the queue label itself.
    ByQueueLabel,
    /// Left alone.
    No(LeftAlone),
}

impl Managed {
    /// Whether the Job is managed, for whichever reason.
    pub fn is_managed(self) -> bool {
        !matches!(self, Self::No(_))
    }
}

/// Why a Job is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftAlone {
    /// It lives in kube-system.
    SystemNamespace,
    /// It lives in Sluice's own namespace.
    OwnNamespace,
    /// Another controller runs it (`spec.managedBy`).
    ForeignController,
    /// A managed Job owns it, and waits and pays for it.
    ManagedOwner,
    /// Neither its namespace nor the Job itself opted in.
    NotOptedIn,
}

/// Whether a Job is managed.
pub fn managed(namespace: &NamespaceFacts<'_>, job: &JobFacts<'_>, owner: Owner) -> Managed {
    if namespace.name == SYSTEM_NAMESPACE {
        return Managed::No(LeftAlone::SystemNamespace);
    }
    if namespace.name == namespace.own_namespace {
        return Managed::No(LeftAlone::OwnNamespace);
    }
    if job
        .managed_by
        .is_some_and(|controller| controller != BUILT_IN_CONTROLLER)
    {
        return Managed::No(LeftAlone::ForeignController);
    }
    let opted_in = if namespace.is_opted_in() {
        Managed::ByNamespace
    } else if job.queue_name.is_some() {
        Managed::ByQueueLabel
    } else {
        return Managed::No(LeftAlone::NotOptedIn);
    };
    match owner {
        Owner::Managed => Managed::No(LeftAlone::ManagedOwner),
        Owner::Unmanaged => opted_in,
    }
}

/// A Job of the same namespace that may own another.
#[derive(Clone, Copy, Debug)]
pub struct OwnerJob<'a> {
    /// Its uid.
    pub uid: &'a str,
    /// Its own facts.
    pub facts: JobFacts<'a>,
    /// The owner that controls it in turn.
    pub owner: Option<&'a OwnerReference>,
}

impl<'a> OwnerJob<'a> {
    /// A Job from the watch, as an owner.
    pub fn of(job: &'a JobView) -> Self {
        Self {
            uid: job.uid(),
            facts: JobFacts::of(job),
            owner: job.controlling_owner(),
        }
    }
}

/// Follows the owner that controls a Job, `lookup` finding Jobs of the namespace by name.
///
/// A reference counts only if the Job of that name has that uid: a made-up or stale owner takes no Job out of its queue.
pub fn resolve_owner<'a>(
    namespace: &NamespaceFacts<'_>,
    owner: Option<&OwnerReference>,
    lookup: impl Fn(&str) -> Option<OwnerJob<'a>>,
) -> Owner {
    let mut next = owner.cloned();
    for _ in 0..MAX_OWNERS {
        let Some(reference) = next.filter(is_job) else { break };
        let Some(job) = lookup(&reference.name).filter(|job| job.uid == reference.uid) else {
            break;
        };
        if managed(namespace, &job.facts, Owner::Unmanaged).is_managed() {
            return Owner::Managed;
        }
        next = job.owner.cloned();
    }
    Owner::Unmanaged
}

fn is_job(owner: &OwnerReference) -> bool {
    owner.kind == "Job" && owner.api_version == "batch/v1"
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTED_IN: NamespaceFacts<'_> = NamespaceFacts {
        name: "team-a",
        opt_in: Some("true"),
        own_namespace: "sluice-system",
    };
    const OTHER: NamespaceFacts<'_> = NamespaceFacts {
        name: "team-b",
        opt_in: None,
        own_namespace: "sluice-system",
    };
    const PLAIN: JobFacts<'_> = JobFacts {
        queue_name: None,
        managed_by: None,
    };
    const LABELLED: JobFacts<'_> = JobFacts {
        queue_name: Some("batch"),
        managed_by: None,
    };

    #[test]
    fn a_job_of_an_opted_in_namespace_is_managed_with_and_without_a_queue_label() {
        assert_eq!(managed(&OPTED_IN, &PLAIN, Owner::Unmanaged), Managed::ByNamespace);
        assert_eq!(managed(&OPTED_IN, &LABELLED, Owner::Unmanaged), Managed::ByNamespace);
    }

    #[test]
    fn elsewhere_only_the_queue_label_makes_a_job_managed() {
        assert_eq!(managed(&OTHER, &LABELLED, Owner::Unmanaged), Managed::ByQueueLabel);
        assert_eq!(
            managed(&OTHER, &PLAIN, Owner::Unmanaged),
            Managed::No(LeftAlone::NotOptedIn)
        );
    }

    #[test]
    fn an_empty_queue_label_counts_as_carrying_the_label() {
        let job = JobFacts {
            queue_name: Some(""),
            ..PLAIN
        };
        assert!(managed(&OTHER, &job, Owner::Unmanaged).is_managed());
    }

    #[test]
    fn only_the_exact_opt_in_value_counts() {
        for value in ["false", "True", "1", ""] {
            let namespace = NamespaceFacts {
                opt_in: Some(value),
                ..OPTED_IN
            };
            assert_eq!(
                managed(&namespace, &PLAIN, Owner::Unmanaged),
                Managed::No(LeftAlone::NotOptedIn),
                "{value}"
            );
        }
    }

    #[test]
    fn the_system_namespace_and_our_own_are_left_alone_whatever_their_labels_say() {
        let system = NamespaceFacts {
            name: "kube-system",
            ..OPTED_IN
        };
        let own = NamespaceFacts {
            name: "sluice-system",
            ..OPTED_IN
        };
        assert_eq!(
            managed(&system, &LABELLED, Owner::Unmanaged),
            Managed::No(LeftAlone::SystemNamespace)
        );
        assert_eq!(
            managed(&own, &LABELLED, Owner::Unmanaged),
            Managed::No(LeftAlone::OwnNamespace)
        );
    }

    #[test]
    fn a_job_of_another_controller_is_left_alone_and_the_built_in_one_is_no_other() {
        let foreign = JobFacts {
            managed_by: Some("kueue.x-k8s.io/multikueue"),
            ..LABELLED
        };
        let built_in = JobFacts {
            managed_by: Some("kubernetes.io/job-controller"),
            ..LABELLED
        };
        assert_eq!(
            managed(&OPTED_IN, &foreign, Owner::Unmanaged),
            Managed::No(LeftAlone::ForeignController)
        );
        assert!(managed(&OPTED_IN, &built_in, Owner::Unmanaged).is_managed());
    }

    #[test]
    fn a_child_of_a_managed_job_is_left_alone_even_with_a_queue_label() {
        assert_eq!(
            managed(&OPTED_IN, &LABELLED, Owner::Managed),
            Managed::No(LeftAlone::ManagedOwner)
        );
    }

    fn reference(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            uid: uid.into(),
            controller: Some(true),
            block_owner_deletion: None,
        }
    }

    fn job_owner(name: &str, uid: &str) -> OwnerReference {
        reference("batch/v1", "Job", name, uid)
    }

    #[test]
    fn an_owner_counts_only_with_its_uid() {
        let lookup = |_: &str| {
            Some(OwnerJob {
                uid: "1",
                facts: LABELLED,
                owner: None,
            })
        };
        assert_eq!(
            resolve_owner(&OTHER, Some(&job_owner("parent", "1")), lookup),
            Owner::Managed
        );
        assert_eq!(
            resolve_owner(&OTHER, Some(&job_owner("parent", "2")), lookup),
            Owner::Unmanaged
        );
        assert_eq!(resolve_owner(&OTHER, None, lookup), Owner::Unmanaged);
        assert_eq!(
            resolve_owner(&OTHER, Some(&job_owner("gone", "1")), |_| None),
            Owner::Unmanaged
        );
    }

    #[test]
    fn an_owner_that_is_itself_left_alone_takes_no_job_out_of_its_queue() {
        let foreign = JobFacts {
            managed_by: Some("example.com/other"),
            ..LABELLED
        };
        let lookup = |_: &str| {
            Some(OwnerJob {
                uid: "1",
                facts: foreign,
                owner: None,
            })
        };
        assert_eq!(
            resolve_owner(&OTHER, Some(&job_owner("parent", "1")), lookup),
            Owner::Unmanaged
        );
    }

    #[test]
    fn only_jobs_count_as_owners() {
        let lookup = |_: &str| {
            Some(OwnerJob {
                uid: "1",
                facts: LABELLED,
                owner: None,
            })
        };
        for (api_version, kind) in [
            ("batch/v1", "CronJob"),
            ("example.com/v1", "Job"),
            ("batch/v1beta1", "Job"),
        ] {
            let owner = reference(api_version, kind, "parent", "1");
            assert_eq!(
                resolve_owner(&OTHER, Some(&owner), lookup),
                Owner::Unmanaged,
                "{api_version} {kind}"
            );
        }
    }

    #[test]
    fn a_grandchild_of_a_managed_job_is_left_alone_too() {
        let top = job_owner("top", "1");
        let lookup = |name: &str| match name {
            "middle" => Some(OwnerJob {
                uid: "2",
                facts: PLAIN,
                owner: Some(&top),
            }),
            "top" => Some(OwnerJob {
                uid: "1",
                facts: LABELLED,
                owner: None,
            }),
            _ => None,
        };
        assert_eq!(
            resolve_owner(&OTHER, Some(&job_owner("middle", "2")), lookup),
            Owner::Managed
        );
    }

    #[test]
    fn a_cycle_of_owners_ends() {
        let itself = job_owner("loop", "1");
        let lookup = |_: &str| {
            Some(OwnerJob {
                uid: "1",
                facts: PLAIN,
                owner: Some(&itself),
            })
        };
        assert_eq!(resolve_owner(&OTHER, Some(&itself), lookup), Owner::Unmanaged);
    }
}
