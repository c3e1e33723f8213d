//! JSON Patch that names only the paths it means, so that fields nobody here knows survive.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use serde_json::{Map, Value};

/// Collects edits to one document. An edit that changes nothing yields no operation.
#[derive(Debug)]
pub(crate) struct Edits<'a> {
    document: &'a Value,
    operations: Vec<PatchOperation>,
    /// Objects that earlier operations add, because the document lacks them.
    created: Vec<Vec<String>>,
}

impl<'a> Edits<'a> {
    pub(crate) fn of(document: &'a Value) -> Self {
        Self {
            document,
            operations: Vec::new(),
            created: Vec::new(),
        }
    }

    /// Gives `path` the value, adding the objects above it where they are absent or null.
    pub(crate) fn set(&mut self, path: &[&str], value: Value) {
        if look_up(self.document, path) == Some(&value) {
            return;
        }
        for depth in 1..path.len() {
            let above = path.get(..depth).unwrap_or_default();
            let known = look_up(self.document, above).is_some_and(Value::is_object)
                || self
                    .created
                    .iter()
                    .any(|created| created.iter().map(String::as_str).eq(above.iter().copied()));
            if !known {
                self.add(above, Value::Object(Map::new()));
                self.created.push(above.iter().map(|&token| token.to_owned()).collect());
            }
        }
        self.add(path, value);
    }

    /// Takes `path` away, if it is there.
    pub(crate) fn remove(&mut self, path: &[&str]) {
        if look_up(self.document, path).is_some() {
            self.operations.push(PatchOperation::Remove(RemoveOperation {
                path: PointerBuf::from_tokens(path.iter().copied()),
            }));
        }
    }

    /// Gives `path` the value it has in another document, or takes it away if it has none there.
    pub(crate) fn restore(&mut self, path: &[&str], stored: Option<&Value>) {
        match stored {
            Some(value) => self.set(path, value.clone()),
            None => self.remove(path),
        }
    }

    /// The patch, or nothing if no edit changes the document.
    pub(crate) fn into_patch(self) -> Option<Patch> {
        (!self.operations.is_empty()).then_some(Patch(self.operations))
    }

    fn add(&mut self, path: &[&str], value: Value) {
        self.operations.push(PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(path.iter().copied()),
            value,
        }));
    }
}

/// The value at a path of object keys. Lists are not entered.
pub(crate) fn look_up<'v>(document: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter()
        .try_fold(document, |value, &key| value.as_object()?.get(key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn applied(document: &Value, edit: impl FnOnce(&mut Edits<'_>)) -> (Value, usize) {
        let mut edits = Edits::of(document);
        edit(&mut edits);
        let mut result = document.clone();
        let patch = edits.into_patch().unwrap_or_default();
        json_patch::patch(&mut result, &patch).unwrap();
        (result, patch.0.len())
    }

    #[test]
    fn an_edit_that_changes_nothing_yields_no_patch() {
        let document = json!({"spec": {"suspend": true}});
        let mut edits = Edits::of(&document);
        edits.set(&["spec", "suspend"], json!(true));
        edits.remove(&["metadata", "labels", "x"]);
        edits.restore(&["spec", "suspend"], Some(&json!(true)));
        assert_eq!(edits.into_patch(), None);
    }

    #[test]
    fn missing_and_null_objects_above_a_path_are_added_once() {
        let document = json!({"metadata": {"labels": null}});
        let (result, operations) = applied(&document, |edits| {
            edits.set(&["metadata", "labels", "a/b"], json!("1"));
            edits.set(&["metadata", "labels", "c~d"], json!("2"));
        });
        assert_eq!(result, json!({"metadata": {"labels": {"a/b": "1", "c~d": "2"}}}));
        assert_eq!(operations, 3);
    }

    #[test]
    fn restoring_puts_back_what_was_changed_and_takes_away_what_was_added() {
        let document = json!({"metadata": {"annotations": {"changed": "new", "added": "new", "own": "x"}}});
        let (result, _) = applied(&document, |edits| {
            edits.restore(&["metadata", "annotations", "changed"], Some(&json!("old")));
            edits.restore(&["metadata", "annotations", "added"], None);
        });
        assert_eq!(
            result,
            json!({"metadata": {"annotations": {"changed": "old", "own": "x"}}})
        );
    }
}
