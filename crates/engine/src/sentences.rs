//! Reasons in words. Everything said here is in the data; nothing is decided here.

use std::fmt;

use crate::amount::Amount;
use crate::flavors::Mismatch;
use crate::ids::Name;
use crate::report::{Binding, Shortage, WaitReason};

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLocalQueue(key) => {
                write!(
                    f,
                    "LocalQueue {} does not exist in namespace {}",
                    key.name, key.namespace
                )
            }
            Self::QueueMissing(name) => write!(f, "ClusterQueue {name} does not exist"),
            Self::QueueInactive(inactive) => write!(f, "the ClusterQueue is not active: {}", inactive.message),
            Self::LocalQueueBlocked(blocked) => write!(f, "the LocalQueue admits nobody: {}", blocked.message),
            Self::Gated(gate) => f.write_str(&gate.message),
            Self::BackOff(_) => f.write_str("waiting for the end of its back-off"),
            Self::Pending => f.write_str("about to be examined"),
            Self::PodsNotReady => {
                f.write_str("waiting until the pods of all admitted units are ready (blockAdmission)")
            }
            Self::BehindHead(head) => {
                write!(
                    f,
                    "the ClusterQueue is StrictFIFO and {head}, ahead of it, does not fit"
                )
            }
            Self::BehindReservation { head, until } => {
                write!(f, "it would delay {head}, ahead of it, for which quota is reserved")?;
                match until {
                    Some(_) => f.write_str(" until there is enough by the ends that are known"),
                    None => f.write_str("; the ends that are known do not tell until when"),
                }
            }
            Self::WaitingForPreempted => f.write_str("it has its turn, and waits for units that were told to stop"),
            Self::ResourceNotCovered { pod_set, resource } => {
                write!(
                    f,
                    "pod set {pod_set} asks for {resource}, for which the ClusterQueue has no quota"
                )
            }
            Self::NoMatchingFlavor { pod_set, mismatches } => {
                write!(f, "pod set {pod_set} may use no flavor")?;
                write_parts(f, &[], mismatches)
            }
            Self::ExceedsMaxQuota {
                pod_set,
                shortages,
                mismatches,
            } => {
                write!(f, "pod set {pod_set} asks for more than the ClusterQueue can ever use")?;
                let parts: Vec<String> = shortages.iter().map(exceeds).collect();
                write_parts(f, &parts, mismatches)
            }
            Self::WaitingForQuota {
                pod_set,
                shortages,
                mismatches,
            } => {
                write!(f, "pod set {pod_set} waits for quota")?;
                let parts: Vec<String> = shortages.iter().map(short).collect();
                write_parts(f, &parts, mismatches)
            }
        }
    }
}

fn exceeds(shortage: &Shortage) -> String {
    let Shortage { flavor, resource, .. } = shortage;
    let amount = |amount| amount_of(resource, amount);
    let (need, limit) = (amount(shortage.need), amount(shortage.limit));
    let (own, binding) = (own(shortage), binding(shortage, "has"));
    format!("flavor {flavor} has at most {limit} {resource}{own} and {need} is needed{binding}")
}

fn short(shortage: &Shortage) -> String {
    let Shortage { flavor, resource, .. } = shortage;
    let amount = |amount| amount_of(resource, amount);
    let (need, free, limit) = (amount(shortage.need), amount(shortage.free), amount(shortage.limit));
    let (own, binding) = (own(shortage), binding(shortage, "has left"));
    format!("flavor {flavor} has {free} of {limit} {resource}{own} free and {need} is needed{binding}")
}

/// Which limit it is, where that is not plain; a cohort `has` so much, or has so much left.
fn binding(shortage: &Shortage, has: &str) -> String {
    match &shortage.binding {
        Binding::Nominal => String::new(),
        Binding::BorrowingLimit => ", more than the borrowing limit allows".to_owned(),
        Binding::CohortBorrowingLimit(cohort) => format!(", more than the borrowing limit of cohort {cohort} allows"),
        Binding::Cohort(cohort) => format!(", more than cohort {cohort} {has}"),
    }
}

/// What of the limit is the queue's own, where there is a cohort to borrow from or lend to.
fn own(shortage: &Shortage) -> String {
    if shortage.limit == shortage.nominal {
        return String::new();
    }
    format!(" ({} of its own)", amount_of(&shortage.resource, shortage.nominal))
}

fn write_parts(f: &mut fmt::Formatter<'_>, parts: &[String], mismatches: &[(Name, Mismatch)]) -> fmt::Result {
    let mismatches = mismatches
        .iter()
        .map(|(flavor, mismatch)| format!("flavor {flavor}: {mismatch}"));
    for (index, part) in parts.iter().cloned().chain(mismatches).enumerate() {
        write!(f, "{} {part}", if index == 0 { ":" } else { ";" })?;
    }
    Ok(())
}

/// An amount as people write it: cpu in cores where whole, else in thousandths.
fn amount_of(resource: &str, amount: Amount) -> String {
    let units = amount.get();
    match (resource, units % 1000) {
        ("cpu", 0) => (units / 1000).to_string(),
        ("cpu", _) => format!("{units}m"),
        _ => units.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_says_what_is_free_and_what_is_needed() {
        let shortage = |resource: &str, need, free, nominal| Shortage {
            flavor: "spot".into(),
            resource: resource.into(),
            need: Amount::new(need),
            free: Amount::new(free),
            nominal: Amount::new(nominal),
            borrowable: Amount::ZERO,
            limit: Amount::new(nominal),
            binding: Binding::Nominal,
        };
        let waiting = WaitReason::WaitingForQuota {
            pod_set: "main".into(),
            shortages: vec![shortage("cpu", 3000, 500, 4000), shortage("memory", 7, 0, 9)],
            mismatches: vec![("gpu".into(), Mismatch::NodeAffinity)],
        };
        assert_eq!(
            waiting.to_string(),
            "pod set main waits for quota: flavor spot has 500m of 4 cpu free and 3 is needed; flavor spot has 0 of 9 \
             memory free and 7 is needed; flavor gpu: the required node affinity does not match its node labels"
        );
        let never = WaitReason::ExceedsMaxQuota {
            pod_set: "main".into(),
            shortages: vec![shortage("pods", 3, 2, 2)],
            mismatches: vec![],
        };
        assert_eq!(
            never.to_string(),
            "pod set main asks for more than the ClusterQueue can ever use: flavor spot has at most 2 pods and 3 is needed"
        );
    }

    #[test]
    fn a_shortage_in_a_cohort_says_which_limit_it_is() {
        let shortage = |binding| Shortage {
            flavor: "spot".into(),
            resource: "gpu".into(),
            need: Amount::new(5),
            free: Amount::new(3),
            borrowable: Amount::new(2),
            nominal: Amount::new(4),
            limit: Amount::new(8),
            binding,
        };
        let said = "flavor spot has 3 of 8 gpu (4 of its own) free and 5 is needed";
        for (binding, limit) in [
            (Binding::Nominal, ""),
            (Binding::BorrowingLimit, ", more than the borrowing limit allows"),
            (
                Binding::CohortBorrowingLimit("lab".into()),
                ", more than the borrowing limit of cohort lab allows",
            ),
            (Binding::Cohort("all".into()), ", more than cohort all has left"),
        ] {
            assert_eq!(short(&shortage(binding)), format!("{said}{limit}"));
        }
    }
}
