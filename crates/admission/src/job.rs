//! The few fields of a Job that the rules read, each checked as it is read.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Map, Value};
use sluice_api::labels;
use sluice_jobs::JobFacts;

use crate::patch::look_up;
use crate::review::{ReviewError, wrong_type};

/// A map of strings in the order of its keys.
type Strings<'a> = BTreeMap<&'a str, &'a str>;

/// A Job as raw JSON, with what the rules need read from it.
///
/// Absent and null are the same, as they are to the API server. What no rule reads may have any shape.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    pub(crate) raw: &'a Value,
    pub(crate) uid: &'a str,
    pub(crate) labels: Strings<'a>,
    pub(crate) annotations: Strings<'a>,
    pub(crate) owner: Option<OwnerReference>,
    pub(crate) being_deleted: bool,
    pub(crate) suspended: bool,
    pub(crate) managed_by: Option<&'a str>,
    pub(crate) finished: bool,
}

impl<'a> Job<'a> {
    /// Reads a Job; `root` is its place in the review, for messages.
    pub(crate) fn read(raw: &'a Value, root: &str) -> Result<Self, ReviewError> {
        let reader = Reader { raw, root };
        reader
            .object(&["spec"])?
            .ok_or_else(|| ReviewError::Missing(format!("{root}.spec")))?;
        reader.object(&["spec", "template"])?;
        reader.object(&["spec", "template", "metadata"])?;
        reader.strings(&["spec", "template", "metadata", "labels"])?;
        reader.object(&["spec", "template", "spec"])?;
        reader.strings(&["spec", "template", "spec", "nodeSelector"])?;
        reader.list(&["spec", "template", "spec", "tolerations"])?;
        reader.object(&["metadata"])?;
        Ok(Self {
            raw,
            uid: reader.text(&["metadata", "uid"])?.unwrap_or_default(),
            labels: reader.strings(&["metadata", "labels"])?,
            annotations: reader.strings(&["metadata", "annotations"])?,
            owner: reader.owner()?,
            being_deleted: reader.text(&["metadata", "deletionTimestamp"])?.is_some(),
            suspended: reader.flag(&["spec", "suspend"])?.unwrap_or(false),
            managed_by: reader.text(&["spec", "managedBy"])?,
            finished: reader.finished()?,
        })
    }

    /// What decides whether the Job is managed.
    pub(crate) fn facts(&self) -> JobFacts<'a> {
        JobFacts {
            queue_name: self.labels.get(labels::QUEUE_NAME).copied(),
            managed_by: self.managed_by,
        }
    }

    /// The queue that the Job names; an empty label names none.
    pub(crate) fn queue_name(&self) -> Option<&'a str> {
        self.labels
            .get(labels::QUEUE_NAME)
            .copied()
            .filter(|name| !name.is_empty())
    }
}

struct Reader<'a, 'r> {
    raw: &'a Value,
    root: &'r str,
}

impl<'a> Reader<'a, '_> {
    fn get(&self, path: &[&str]) -> Option<&'a Value> {
        look_up(self.raw, path).filter(|value| !value.is_null())
    }

    fn wrong(&self, path: &[&str], expected: &'static str, found: &Value) -> ReviewError {
        wrong_type(&format!("{}.{}", self.root, path.join(".")), expected, found)
    }

    fn object(&self, path: &[&str]) -> Result<Option<&'a Map<String, Value>>, ReviewError> {
        match self.get(path) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => Err(self.wrong(path, "an object", other)),
        }
    }

    fn list(&self, path: &[&str]) -> Result<&'a [Value], ReviewError> {
        match self.get(path) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(other) => Err(self.wrong(path, "a list", other)),
        }
    }

    fn text(&self, path: &[&str]) -> Result<Option<&'a str>, ReviewError> {
        match self.get(path) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(path, "a string", other)),
        }
    }

    fn flag(&self, path: &[&str]) -> Result<Option<bool>, ReviewError> {
        match self.get(path) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.wrong(path, "a boolean", other)),
        }
    }

    fn strings(&self, path: &[&str]) -> Result<Strings<'a>, ReviewError> {
        let mut strings = Strings::new();
        for (key, value) in self.object(path)?.into_iter().flatten() {
            match value {
                Value::Null => strings.insert(key, ""),
                Value::String(text) => strings.insert(key, text),
                other => {
                    let place = format!("{}.{}[{}]", self.root, path.join("."), crate::shown::Shown(key));
                    return Err(wrong_type(&place, "a string", other));
                }
            };
        }
        Ok(strings)
    }

    /// The owner with `controller: true`.
    fn owner(&self) -> Result<Option<OwnerReference>, ReviewError> {
        const PATH: &[&str] = &["metadata", "ownerReferences"];
        for (index, reference) in self.list(PATH)?.iter().enumerate() {
            if !reference.is_object() {
                let place = format!("{}.{}[{index}]", self.root, PATH.join("."));
                return Err(wrong_type(&place, "an object", reference));
            }
            if reference.get("controller") != Some(&Value::Bool(true)) {
                continue;
            }
            let field = |key: &str| match reference.get(key) {
                None | Some(Value::Null) => Ok(String::new()),
                Some(Value::String(text)) => Ok(text.clone()),
                Some(other) => {
                    let place = format!("{}.{}[{index}].{key}", self.root, PATH.join("."));
                    Err(wrong_type(&place, "a string", other))
                }
            };
            return Ok(Some(OwnerReference {
                api_version: field("apiVersion")?,
                kind: field("kind")?,
                name: field("name")?,
                uid: field("uid")?,
                controller: Some(true),
                block_owner_deletion: None,
            }));
        }
        Ok(None)
    }

    fn finished(&self) -> Result<bool, ReviewError> {
        let conditions = self.list(&["status", "conditions"])?;
        Ok(conditions.iter().any(|condition| {
            let field = |key| condition.get(key).and_then(Value::as_str);
            matches!(field("type"), Some("Complete" | "Failed")) && field("status") == Some("True")
        }))
    }
}
