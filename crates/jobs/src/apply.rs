//! Applies a JSON patch the way the API server does, for tests and for simulation.
//!
//! The API server differs from RFC 6902 in two ways that our guards depend on: a `test` for null passes where the key is
//! absent (its parent must exist), and strings are compared by their bytes in Go's JSON, so that a `test` of a text which
//! Go escapes for the sake of HTML never passes.

use json_patch::{Patch, PatchOperation, TestOperation};
use serde_json::Value;
use thiserror::Error;

use crate::record::go_escapes;

/// A patch that the API server would refuse.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// A guard did not hold.
    #[error("test of {path} failed")]
    TestFailed {
        /// What was tested.
        path: String,
    },
    /// An operation does not apply to this document.
    #[error(transparent)]
    Operation(#[from] json_patch::PatchError),
}

/// Applies all of the patch, or nothing.
///
/// # Errors
/// An [`ApplyError`] for the first operation that fails; the document is then unchanged.
pub fn apply(document: &mut Value, patch: &Patch) -> Result<(), ApplyError> {
    let mut changed = document.clone();
    for operation in &patch.0 {
        if let PatchOperation::Test(test) = operation {
            check(&changed, test)?;
        } else {
            json_patch::patch(&mut changed, std::slice::from_ref(operation))?;
        }
    }
    *document = changed;
    Ok(())
}

fn check(document: &Value, test: &TestOperation) -> Result<(), ApplyError> {
    let found = test.path.resolve(document).ok().filter(|found| !found.is_null());
    let holds = match (found, &test.value) {
        (None, Value::Null) => {
            let parent = test.path.parent().and_then(|parent| parent.resolve(document).ok());
            parent.is_some_and(Value::is_object)
        }
        (Some(_), Value::String(wanted)) if go_escapes(wanted) => false,
        (found, wanted) => found == Some(wanted),
    };
    if holds {
        Ok(())
    } else {
        Err(ApplyError::TestFailed {
            path: test.path.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(mut document: Value, patch: Value) -> Result<Value, ApplyError> {
        apply(&mut document, &serde_json::from_value(patch).unwrap()).map(|()| document)
    }

    #[test]
    fn a_test_for_null_passes_where_the_key_is_absent_and_its_parent_exists() {
        let test = |path: &str| json!([{"op": "test", "path": path, "value": null}]);
        assert!(patched(json!({"a": {}}), test("/a/b")).is_ok());
        assert!(patched(json!({"a": null}), test("/a")).is_ok());
        assert!(patched(json!({}), test("/a/b")).is_err());
        assert!(patched(json!({"a": {"b": 0}}), test("/a/b")).is_err());
    }

    #[test]
    fn a_test_of_a_text_that_go_escapes_fails_as_it_does_in_the_api_server() {
        let patch = json!([{"op": "test", "path": "/a", "value": "x<y"}]);
        assert!(patched(json!({"a": "x<y"}), patch).is_err());
    }

    #[test]
    fn a_patch_applies_as_a_whole_or_not_at_all() {
        let mut document = json!({"a": 1});
        let patch = json!([{"op": "add", "path": "/b", "value": 2}, {"op": "test", "path": "/a", "value": 2}]);
        let error = apply(&mut document, &serde_json::from_value(patch).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "test of /a failed");
        assert_eq!(document, json!({"a": 1}));
    }
}
