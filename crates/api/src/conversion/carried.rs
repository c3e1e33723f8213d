//! What the version at hand cannot say, carried in an annotation of the object.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Object, object_at};

/// The longest annotation that is read or written, in bytes: far from the limit of all annotations together.
const MAX_BYTES: usize = 64 * 1024;

/// What one conversion finds in an object and what it leaves in it, by field.
#[derive(Debug, Default)]
pub(super) struct Carried {
    found: Object,
    left: Object,
}

impl Carried {
    /// Takes the annotation `key` out of the object. One that cannot be read says nothing.
    pub(super) fn unpack(object: &mut Object, key: &str) -> Self {
        let text = object_at(object, "metadata").and_then(|metadata| {
            let annotations = object_at(metadata, "annotations")?;
            let text = annotations.remove(key)?;
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
            Some(text)
        });
        let found = match text {
            Some(Value::String(text)) if text.len() <= MAX_BYTES => serde_json::from_str(&text).unwrap_or_default(),
            _ => Object::new(),
        };
        Self {
            found,
            left: Object::new(),
        }
    }

    /// Writes what was left into the annotation `key`. One that is there already speaks of something else.
    pub(super) fn pack(self, object: &mut Object, key: &str) {
        let text = if self.left.is_empty() {
            None
        } else {
            serde_json::to_string(&self.left)
                .ok()
                .filter(|text| text.len() <= MAX_BYTES)
        };
        let Some(text) = text else {
            if let Some(annotations) = object_at(object, "metadata").and_then(|m| object_at(m, "annotations")) {
                annotations.remove(key);
            }
            return;
        };
        let metadata = object.entry("metadata").or_insert_with(|| Object::new().into());
        let Some(metadata) = metadata.as_object_mut() else {
            return;
        };
        let annotations = metadata.entry("annotations").or_insert_with(|| Object::new().into());
        if annotations.is_null() {
            *annotations = Object::new().into();
        }
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(key.to_owned(), text.into());
        }
    }

    /// Leaves a value for the way back.
    pub(super) fn leave(&mut self, field: &str, value: Value) {
        self.left.insert(field.to_owned(), value);
    }

    /// What was left at a field.
    pub(super) fn found(&mut self, field: &str) -> Option<Value> {
        self.found.remove(field)
    }

    /// What was left at a field, if it can be read as a `T` and `sound` agrees: the annotation may have been written by
    /// anybody, and no schema has seen it.
    pub(super) fn found_as<T: DeserializeOwned>(
        &mut self,
        field: &str,
        sound: impl FnOnce(&T) -> bool,
    ) -> Option<Value> {
        let value = self.found(field)?;
        let typed = T::deserialize(&value).ok()?;
        sound(&typed).then_some(value)
    }
}
