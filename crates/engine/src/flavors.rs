//! Flavors, and whether pods may use one.
//!
//! The rules are Kubernetes' own, narrowed to what a flavor knows: a flavor speaks for a kind of node by the
//! labels and taints it names, so a pod's wishes about other labels say nothing about it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::Name;

/// A ResourceFlavor as it is now: a kind of node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlavorSpec {
    /// Its name.
    pub name: Name,
    /// Labels that every node of this kind carries.
    pub node_labels: BTreeMap<String, String>,
    /// Taints that every node of this kind carries.
    pub taints: Vec<Taint>,
    /// Tolerations that pods are given when they are assigned this flavor.
    pub tolerations: Vec<Toleration>,
}

/// A node taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value, empty when it has none.
    pub value: String,
    /// What it does to pods that do not tolerate it.
    pub effect: Effect,
}

impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => write!(f, "{}:{}", self.key, self.effect),
            value => write!(f, "{}={value}:{}", self.key, self.effect),
        }
    }
}

/// What a taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Effect {
    /// Keeps new pods away.
    NoSchedule,
    /// Keeps new pods away where possible; never decides about a flavor.
    PreferNoSchedule,
    /// Keeps new pods away and puts running ones out.
    NoExecute,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        })
    }
}

/// A pod's (or flavor's) toleration of taints.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// The key of the taints tolerated; none (or empty) means every key.
    pub key: Option<String>,
    /// How the value is compared.
    pub operator: TolerationOperator,
    /// The value of the taints tolerated, for [`TolerationOperator::Equal`]; none is the empty value.
    pub value: Option<String>,
    /// The effect of the taints tolerated; none means every effect.
    pub effect: Option<Effect>,
}

/// How a toleration compares values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TolerationOperator {
    /// Any value.
    Exists,
    /// The same value.
    #[default]
    Equal,
}

impl Toleration {
    /// Whether this tolerates `taint`, by the rule of the API's `ToleratesTaint`.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.as_deref().is_none_or(|key| key.is_empty() || key == taint.key)
            && match self.operator {
                TolerationOperator::Exists => true,
                TolerationOperator::Equal => self.value.as_deref().unwrap_or_default() == taint.value,
            }
    }
}

/// Where the pods of a pod set may run.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Constraints {
    /// Labels that a node must have, with these values.
    pub node_selector: BTreeMap<String, String>,
    /// Required node affinity: a node must match at least one term. No terms mean no wish.
    pub affinity_terms: Vec<NodeSelectorTerm>,
    /// Taints that the pods tolerate.
    pub tolerations: Vec<Toleration>,
}

/// Expressions that a node must match all of.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeSelectorTerm {
    /// The expressions on labels. A term without any says nothing about labels.
    pub match_expressions: Vec<NodeSelectorRequirement>,
}

/// One expression on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeSelectorRequirement {
    /// The label.
    pub key: String,
    /// How it is compared.
    pub operator: SelectorOperator,
    /// What it is compared with.
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SelectorOperator {
    /// Its value is one of those given.
    In,
    /// It is absent or its value is none of those given.
    NotIn,
    /// It is there.
    Exists,
    /// It is not there.
    DoesNotExist,
    /// Its value is an integer greater than the one given.
    Gt,
    /// Its value is an integer less than the one given.
    Lt,
}

impl NodeSelectorRequirement {
    /// Whether a node whose label [`Self::key`] has `value` matches.
    fn matches(&self, value: &str) -> bool {
        match self.operator {
            SelectorOperator::In => self.values.iter().any(|wanted| wanted == value),
            SelectorOperator::NotIn => self.values.iter().all(|unwanted| unwanted != value),
            SelectorOperator::Exists => true,
            SelectorOperator::DoesNotExist => false,
            SelectorOperator::Gt => self.compares(value, |label, bound| label > bound),
            SelectorOperator::Lt => self.compares(value, |label, bound| label < bound),
        }
    }

    /// Compares the label's value with the single bound as integers; anything else matches nothing.
    fn compares(&self, value: &str, holds: impl Fn(i64, i64) -> bool) -> bool {
        let [bound] = self.values.as_slice() else { return false };
        match (value.parse(), bound.parse()) {
            (Ok(label), Ok(bound)) => holds(label, bound),
            _ => false,
        }
    }
}

/// Why pods may not use a flavor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch {
    /// Neither the pods nor the flavor itself tolerate this taint.
    UntoleratedTaint(Taint),
    /// The pods' node selector wants another value of a label that the flavor names.
    NodeSelector {
        /// The label.
        key: String,
        /// What the pods want.
        wanted: String,
        /// What nodes of the flavor have.
        found: String,
    },
    /// No term of the pods' required node affinity admits the flavor's labels.
    NodeAffinity,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UntoleratedTaint(taint) => write!(f, "taint {taint} is not tolerated"),
            Self::NodeSelector { key, wanted, found } => {
                write!(
                    f,
                    "the node selector wants {key}={wanted}, its nodes have {key}={found}"
                )
            }
            Self::NodeAffinity => f.write_str("the required node affinity does not match its node labels"),
        }
    }
}

impl FlavorSpec {
    /// Whether pods with these constraints may use this flavor.
    ///
    /// Taints that keep pods away must be tolerated by the pods or by the flavor's own tolerations. Node selector and
    /// required affinity are judged on the labels that *this* flavor names and no others, so a flavor without
    /// labels matches every pod.
    ///
    /// # Errors
    /// The first rule that keeps the pods out.
    pub fn admits(&self, pods: &Constraints) -> Result<(), Mismatch> {
        self.tolerated_by(&pods.tolerations)?;
        self.selected_by(&pods.node_selector)?;
        self.preferred_by(&pods.affinity_terms)
    }

    fn tolerated_by(&self, tolerations: &[Toleration]) -> Result<(), Mismatch> {
        let untolerated = self
            .taints
            .iter()
            .filter(|taint| taint.effect != Effect::PreferNoSchedule)
            .find(|taint| {
                let mut all = tolerations.iter().chain(&self.tolerations);
                !all.any(|toleration| toleration.tolerates(taint))
            });
        untolerated.map_or(Ok(()), |taint| Err(Mismatch::UntoleratedTaint(taint.clone())))
    }

    fn selected_by(&self, node_selector: &BTreeMap<String, String>) -> Result<(), Mismatch> {
        for (key, wanted) in node_selector {
            match self.node_labels.get(key) {
                Some(found) if found != wanted => {
                    return Err(Mismatch::NodeSelector {
                        key: key.clone(),
                        wanted: wanted.clone(),
                        found: found.clone(),
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn preferred_by(&self, terms: &[NodeSelectorTerm]) -> Result<(), Mismatch> {
        let admits = |term: &NodeSelectorTerm| {
            term.match_expressions.iter().all(|expression| {
                self.node_labels
                    .get(&expression.key)
                    .is_none_or(|value| expression.matches(value))
            })
        };
        if terms.is_empty() || terms.iter().any(admits) {
            Ok(())
        } else {
            Err(Mismatch::NodeAffinity)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn flavor(pairs: &[(&str, &str)]) -> FlavorSpec {
        FlavorSpec {
            name: "f".into(),
            node_labels: labels(pairs),
            taints: vec![],
            tolerations: vec![],
        }
    }

    fn taint(key: &str, value: &str, effect: Effect) -> Taint {
        Taint {
            key: key.into(),
            value: value.into(),
            effect,
        }
    }

    fn toleration(key: &str, operator: TolerationOperator, value: &str) -> Toleration {
        let value = (operator == TolerationOperator::Equal).then(|| value.to_owned());
        Toleration {
            key: (!key.is_empty()).then(|| key.to_owned()),
            operator,
            value,
            effect: None,
        }
    }

    fn term(expressions: &[(&str, SelectorOperator, &[&str])]) -> NodeSelectorTerm {
        let match_expressions = expressions
            .iter()
            .map(|(key, operator, values)| NodeSelectorRequirement {
                key: (*key).to_owned(),
                operator: *operator,
                values: values.iter().map(|value| (*value).to_owned()).collect(),
            })
            .collect();
        NodeSelectorTerm { match_expressions }
    }

    fn wants(terms: Vec<NodeSelectorTerm>) -> Constraints {
        Constraints {
            affinity_terms: terms,
            ..Constraints::default()
        }
    }

    #[test]
    fn a_flavor_without_labels_admits_every_pod() {
        let pods = Constraints {
            node_selector: labels(&[("type", "x"), ("zone", "y")]),
            ..wants(vec![term(&[("type", SelectorOperator::In, &["x"])])])
        };
        assert_eq!(flavor(&[]).admits(&pods), Ok(()));
    }

    #[test]
    fn only_the_labels_that_the_flavor_names_are_judged() {
        let pods = Constraints {
            node_selector: labels(&[("type", "x"), ("zone", "y")]),
            ..Constraints::default()
        };
        assert_eq!(flavor(&[("type", "x")]).admits(&pods), Ok(()));
        assert_eq!(flavor(&[("zone", "y")]).admits(&pods), Ok(()));
        let refused = flavor(&[("zone", "z")]).admits(&pods).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the node selector wants zone=y, its nodes have zone=z"
        );
    }

    #[test]
    fn one_matching_term_of_the_affinity_is_enough_and_all_its_expressions_must_match() {
        let f = flavor(&[("type", "x"), ("cores", "16")]);
        let matching = term(&[
            ("type", SelectorOperator::In, &["w", "x"]),
            ("cores", SelectorOperator::Gt, &["8"]),
        ]);
        let failing = term(&[
            ("type", SelectorOperator::Exists, &[]),
            ("cores", SelectorOperator::Lt, &["16"]),
        ]);
        assert_eq!(f.admits(&wants(vec![failing.clone(), matching])), Ok(()));
        assert_eq!(f.admits(&wants(vec![failing])), Err(Mismatch::NodeAffinity));
    }

    #[test]
    fn a_term_about_labels_that_the_flavor_does_not_name_admits_it() {
        let elsewhere = term(&[("rack", SelectorOperator::In, &["7"])]);
        let failing = term(&[("type", SelectorOperator::NotIn, &["x"])]);
        assert_eq!(
            flavor(&[("type", "x")]).admits(&wants(vec![failing, elsewhere])),
            Ok(())
        );
        assert_eq!(
            flavor(&[("type", "x")]).admits(&wants(vec![NodeSelectorTerm::default()])),
            Ok(())
        );
    }

    #[test]
    fn operators_compare_as_kubernetes_does() {
        let judge = |operator, values: &[&str], value: &str| {
            flavor(&[("k", value)])
                .admits(&wants(vec![term(&[("k", operator, values)])]))
                .is_ok()
        };
        assert!(judge(SelectorOperator::In, &["a", "b"], "b"));
        assert!(!judge(SelectorOperator::In, &[], "b"));
        assert!(judge(SelectorOperator::NotIn, &["a"], "b"));
        assert!(!judge(SelectorOperator::NotIn, &["b"], "b"));
        assert!(judge(SelectorOperator::Exists, &[], ""));
        assert!(!judge(SelectorOperator::DoesNotExist, &[], "b"));
        assert!(judge(SelectorOperator::Gt, &["9"], "10"));
        assert!(!judge(SelectorOperator::Gt, &["10"], "10"));
        assert!(judge(SelectorOperator::Lt, &["-1"], "-2"));
        assert!(!judge(SelectorOperator::Lt, &["9"], "many"));
        assert!(!judge(SelectorOperator::Gt, &["many"], "9"));
        assert!(!judge(SelectorOperator::Gt, &["1", "2"], "9"));
    }

    #[test]
    fn taints_that_keep_pods_away_must_be_tolerated() {
        for effect in [Effect::NoSchedule, Effect::NoExecute] {
            let mut f = flavor(&[]);
            f.taints = vec![taint("spot", "true", effect)];
            let refused = f.admits(&Constraints::default()).unwrap_err();
            assert_eq!(refused, Mismatch::UntoleratedTaint(f.taints[0].clone()));
            let pods = Constraints {
                tolerations: vec![toleration("spot", TolerationOperator::Equal, "true")],
                ..Constraints::default()
            };
            assert_eq!(f.admits(&pods), Ok(()));
        }
        let mut preferred = flavor(&[]);
        preferred.taints = vec![taint("spot", "true", Effect::PreferNoSchedule)];
        assert_eq!(preferred.admits(&Constraints::default()), Ok(()));
    }

    /// Kueue issue 3721: the flavor's own toleration is given to the pods, so the taint keeps nobody away.
    #[test]
    fn a_taint_that_the_flavor_itself_tolerates_keeps_no_pod_away() {
        let mut f = flavor(&[]);
        f.taints = vec![taint("k", "v", Effect::NoExecute)];
        f.tolerations = vec![toleration("k", TolerationOperator::Equal, "v")];
        assert_eq!(f.admits(&Constraints::default()), Ok(()));
    }

    #[test]
    fn tolerations_match_by_effect_key_and_operator() {
        let spot = taint("spot", "true", Effect::NoSchedule);
        assert!(toleration("", TolerationOperator::Exists, "").tolerates(&spot));
        assert!(toleration("spot", TolerationOperator::Exists, "").tolerates(&spot));
        assert!(!toleration("gpu", TolerationOperator::Exists, "").tolerates(&spot));
        assert!(!toleration("spot", TolerationOperator::Equal, "false").tolerates(&spot));
        assert!(!toleration("spot", TolerationOperator::Equal, "").tolerates(&spot));
        let mut other_effect = toleration("spot", TolerationOperator::Exists, "");
        other_effect.effect = Some(Effect::NoExecute);
        assert!(!other_effect.tolerates(&spot));
        other_effect.effect = Some(Effect::NoSchedule);
        assert!(other_effect.tolerates(&spot));
    }
}
