//! Where the pods of a set go in a topology: written in columns, read in domains.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::schema::rule;

/// The most domains that one assignment is read as. More than any cluster has nodes, and few enough to hold in memory.
const MAX_DOMAINS: usize = 100_000;
/// The longest part of a value that is written once for all domains, in bytes.
const MAX_PREFIX: usize = 63;

/// Where the pods of a set go, in one or more slices that are read one after the other.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
    "each slice needs values for each of the levels",
)]))]
pub struct TopologyAssignment {
    /// Node labels that tell the domains apart, from the widest level to the narrowest.
    #[schemars(with = "Vec<LevelLabel>", length(min = 1, max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub levels: Vec<String>,
    /// The domains, in slices that each hold some of them.
    #[schemars(length(max = 1000))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub slices: Vec<TopologyAssignmentSlice>,
}

/// Some domains, in columns: for each level the labels' values, and how many pods go there.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule(
        "self.valuesPerLevel.all(v, !has(v.individual) || size(v.individual.roots) == self.domainCount)",
        "there must be one root for each domain",
    ),
    rule(
        "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
        "there must be one count for each domain",
    ),
]))]
pub struct TopologyAssignmentSlice {
    /// Number of domains.
    #[schemars(range(min = 1))]
    pub domain_count: i32,
    /// Values of the labels, level by level.
    #[schemars(length(min = 1, max = 16))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub values_per_level: Vec<Values>,
    /// How many pods go to each domain.
    pub pod_counts: PodCounts,
}

/// The values of one label in the domains of a slice.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "has(self.universal) != has(self.individual)",
    "either universal or individual must be set",
)]))]
pub struct Values {
    /// The value in all domains.
    #[schemars(length(max = 63))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub universal: Option<String>,
    /// A value for each domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub individual: Option<IndividualValues>,
}

/// A value for each domain: prefix, root and suffix in a row.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct IndividualValues {
    /// What all values begin with.
    #[schemars(length(max = 63))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// What all values end with.
    #[schemars(length(max = 63))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suffix: Option<String>,
    /// What is left of each value.
    #[schemars(with = "Vec<LabelText>", length(min = 1, max = 100_000))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub roots: Vec<String>,
}

/// How many pods go to each domain of a slice.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "has(self.universal) != has(self.individual)",
    "either universal or individual must be set",
)]))]
pub struct PodCounts {
    /// Number of pods in every domain.
    #[schemars(range(min = 1))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub universal: Option<i32>,
    /// Number of pods for each domain.
    #[schemars(with = "Option<Vec<Count>>", length(min = 1, max = 100_000))]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub individual: Option<Vec<i32>>,
}

crate::schema::string_schemas! {
    /// A node label that is a level.
    LevelLabel { "maxLength": 317 }
    /// A part of a label's value.
    LabelText { "maxLength": 63 }
}

/// Schema of a number of pods.
struct Count;

impl JsonSchema for Count {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "format": "int32", "minimum": 1 })
    }
}

/// One domain and the pods that go there; `v1beta1` writes assignments in these.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct TopologyDomain {
    /// A value for each level.
    pub values: Vec<String>,
    /// Number of pods.
    pub count: i32,
}

/// An assignment that cannot be read: a column is shorter or longer than it should be, or there are more domains than
/// any cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the columns of the assignment do not fit together")]
pub struct Uneven;

impl TopologyAssignment {
    /// The domains in the order of the slices.
    ///
    /// # Errors
    /// When columns do not fit together, or there are too many domains.
    pub fn domains(&self) -> Result<Vec<TopologyDomain>, Uneven> {
        let mut domains = Vec::new();
        for slice in &self.slices {
            let count = usize::try_from(slice.domain_count).map_err(|_| Uneven)?;
            // A slice whose every column is one value for all has no more than one domain to tell; a great count
            // without the columns to match is no reason to take the memory.
            if slice.values_per_level.len() != self.levels.len()
                || count > slice.longest_column().max(1)
                || domains.len() + count > MAX_DOMAINS
            {
                return Err(Uneven);
            }
            for at in 0..count {
                domains.push(slice.domain(at).ok_or(Uneven)?);
            }
        }
        Ok(domains)
    }

    /// Writes domains in columns: one slice, with what all values have in common written once.
    ///
    /// # Errors
    /// When a domain has another number of values than there are levels, or there are too many domains.
    pub fn of(levels: Vec<String>, domains: &[TopologyDomain]) -> Result<Self, Uneven> {
        let even = domains.iter().all(|domain| domain.values.len() == levels.len());
        if !even || domains.len() > MAX_DOMAINS {
            return Err(Uneven);
        }
        let slices = if domains.is_empty() {
            Vec::new()
        } else {
            let counts: Vec<i32> = domains.iter().map(|domain| domain.count).collect();
            let columns: Vec<Vec<&str>> = (0..levels.len())
                .map(|level| domains.iter().filter_map(move |domain| domain.values.get(level)))
                .map(|column| column.map(String::as_str).collect())
                .collect();
            let mut values: Vec<Values> = columns.iter().map(|column| Values::of(column)).collect();
            // The same domain several times: one column at least is as long as their number.
            if domains.len() > 1
                && values.iter().all(|values| values.individual.is_none())
                && let (Some(narrowest), Some(column)) = (values.last_mut(), columns.last())
            {
                *narrowest = Values::each(column, "");
            }
            vec![TopologyAssignmentSlice {
                domain_count: i32::try_from(domains.len()).map_err(|_| Uneven)?,
                values_per_level: values,
                pod_counts: PodCounts::of(counts),
            }]
        };
        Ok(Self { levels, slices })
    }
}

impl TopologyAssignmentSlice {
    fn longest_column(&self) -> usize {
        let roots = self
            .values_per_level
            .iter()
            .filter_map(|values| values.individual.as_ref());
        roots.map(|values| values.roots.len()).max().unwrap_or_default()
    }

    fn domain(&self, at: usize) -> Option<TopologyDomain> {
        let values = self.values_per_level.iter().map(|values| values.at(at));
        Some(TopologyDomain {
            values: values.collect::<Option<_>>()?,
            count: self.pod_counts.at(at)?,
        })
    }
}

impl Values {
    fn of(column: &[&str]) -> Self {
        let first = column.first().copied().unwrap_or_default();
        if column.iter().all(|value| *value == first) {
            return Self {
                universal: Some(first.to_owned()),
                individual: None,
            };
        }
        Self::each(column, column.iter().fold(first, |common, value| shared(common, value)))
    }

    /// A value for each domain, all of which begin with `common`.
    fn each(column: &[&str], common: &str) -> Self {
        Self {
            universal: None,
            individual: Some(IndividualValues {
                prefix: (!common.is_empty()).then(|| common.to_owned()),
                suffix: None,
                roots: column.iter().map(|value| value[common.len()..].to_owned()).collect(),
            }),
        }
    }

    fn at(&self, at: usize) -> Option<String> {
        match (&self.universal, &self.individual) {
            (Some(value), None) => Some(value.clone()),
            (None, Some(values)) => {
                let root = values.roots.get(at)?;
                let prefix = values.prefix.as_deref().unwrap_or_default();
                let suffix = values.suffix.as_deref().unwrap_or_default();
                Some([prefix, root, suffix].concat())
            }
            _ => None,
        }
    }
}

impl PodCounts {
    fn of(counts: Vec<i32>) -> Self {
        let first = counts.first().copied();
        if counts.iter().all(|count| Some(*count) == first) {
            return Self {
                universal: first,
                individual: None,
            };
        }
        Self {
            universal: None,
            individual: Some(counts),
        }
    }

    fn at(&self, at: usize) -> Option<i32> {
        match (self.universal, &self.individual) {
            (Some(count), None) => Some(count),
            (None, Some(counts)) => counts.get(at).copied(),
            _ => None,
        }
    }
}

/// What two texts begin with alike, up to the longest prefix that can be written.
fn shared<'a>(left: &'a str, right: &str) -> &'a str {
    let alike = left
        .char_indices()
        .zip(right.chars())
        .take_while(|((at, left), right)| left == right && at + left.len_utf8() <= MAX_PREFIX)
        .last()
        .map_or(0, |((at, last), _)| at + last.len_utf8());
    &left[..alike]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(values: &[&str], count: i32) -> TopologyDomain {
        TopologyDomain {
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            count,
        }
    }

    fn levels(count: usize) -> Vec<String> {
        (0..count).map(|level| format!("level-{level}")).collect()
    }

    #[test]
    fn what_domains_have_in_common_is_written_once() {
        let domains = [domain(&["b1", "rack-1"], 4), domain(&["b1", "rack-2"], 4)];
        let written = TopologyAssignment::of(levels(2), &domains).unwrap();
        assert_eq!(
            serde_json::to_value(&written.slices).unwrap(),
            serde_json::json!([{
                "domainCount": 2,
                "valuesPerLevel": [
                    { "universal": "b1" },
                    { "individual": { "prefix": "rack-", "roots": ["1", "2"] } },
                ],
                "podCounts": { "universal": 4 },
            }])
        );
        assert_eq!(written.domains(), Ok(domains.to_vec()));
    }

    #[test]
    fn a_common_beginning_is_cut_between_characters_and_at_its_longest() {
        let long = "x".repeat(70);
        for (left, right, common) in [
            ("abc", "abd", "ab"),
            ("a", "b", ""),
            ("", "b", ""),
            ("ab", "a", "a"),
            ("\u{e9}a", "\u{e8}a", ""),
            (&long, &long, &long[..63]),
        ] {
            assert_eq!(shared(left, right), common);
        }
    }

    #[test]
    fn columns_that_do_not_fit_together_are_no_domains() {
        let sound = TopologyAssignment::of(levels(1), &[domain(&["a"], 1), domain(&["b"], 2)]).unwrap();
        let broken = |change: &dyn Fn(&mut TopologyAssignment)| {
            let mut assignment = sound.clone();
            change(&mut assignment);
            assert_eq!(assignment.domains(), Err(Uneven));
        };
        broken(&|a| a.levels.push("more".into()));
        broken(&|a| a.slices[0].domain_count = 3);
        broken(&|a| a.slices[0].domain_count = -1);
        broken(&|a| a.slices[0].pod_counts.individual = Some(vec![1]));
        broken(&|a| a.slices[0].pod_counts.universal = Some(1));
        broken(&|a| a.slices[0].values_per_level[0].universal = Some("c".into()));
        // Two thousand million domains out of a few bytes.
        broken(&|a| {
            a.slices[0].domain_count = i32::MAX;
            a.slices[0].values_per_level[0] = Values {
                universal: Some("c".into()),
                individual: None,
            };
            a.slices[0].pod_counts = PodCounts {
                universal: Some(1),
                individual: None,
            };
        });
        assert_eq!(TopologyAssignment::of(levels(2), &[domain(&["a"], 1)]), Err(Uneven));
    }
}
