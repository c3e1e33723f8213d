//! Guards first, then changes: how every patch is put together.

use std::collections::BTreeMap;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, TestOperation};
use serde_json::{Value, json};
use sluice_api::annotations;

use super::{PatchError, Write, stamped};
use crate::record::{Record, State, go_escapes};
use crate::view::JobView;

pub(super) fn test(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation {
        path: pointer(path),
        value,
    })
}

pub(super) fn add(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation {
        path: pointer(path),
        value,
    })
}

pub(super) fn remove(path: &[&str]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: pointer(path) })
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}

pub(super) struct Builder<'a> {
    job: &'a JobView,
    guards: Vec<PatchOperation>,
    changes: Vec<PatchOperation>,
    labels: Map<'a>,
    annotations: Map<'a>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(job: &'a JobView) -> Result<Self, PatchError> {
        if job.uid().is_empty() {
            return Err(PatchError::Incomplete("uid"));
        }
        Ok(Self {
            job,
            guards: vec![test(&["metadata", "uid"], json!(job.uid()))],
            changes: Vec::new(),
            labels: Map::new("labels", job.metadata.labels.as_ref()),
            annotations: Map::new("annotations", job.metadata.annotations.as_ref()),
        })
    }

    /// Guards the record as last seen and checks that it allows the step. A record that cannot be read, or that belongs
    /// to another Job, counts as none; it is guarded all the same.
    pub(super) fn enter(&mut self, to: State) -> Result<Option<Record>, PatchError> {
        self.guard_annotation(annotations::ADMISSION);
        let old = self
            .job
            .record_text()
            .and_then(|text| Record::parse(text, self.job.uid()).ok());
        match &old {
            Some(old) if !old.state.may_become(to) => Err(PatchError::Transition { from: old.state, to }),
            None if !to.may_be_first() => Err(PatchError::NoRecord(to)),
            _ => Ok(old),
        }
    }

    pub(super) fn guard_generation(&mut self) -> Result<(), PatchError> {
        let generation = self
            .job
            .metadata
            .generation
            .ok_or(PatchError::Incomplete("generation"))?;
        self.guards.push(test(&["metadata", "generation"], json!(generation)));
        Ok(())
    }

    pub(super) fn guard_suspend(&mut self) {
        self.guards
            .push(test(&["spec", "suspend"], json!(self.job.spec.suspend)));
    }

    pub(super) fn guard_label(&mut self, key: &str) {
        let guard = self.labels.guard(key);
        self.guard(guard);
    }

    pub(super) fn guard_annotation(&mut self, key: &str) {
        let guard = self.annotations.guard(key);
        self.guard(guard);
    }

    fn guard(&mut self, guard: Guard) {
        let operation = match guard {
            Guard::Test(operation) => operation,
            // The API server would compare this text with its own escaped form and never find it equal. The version of
            // the whole object is the one guard left, and a stricter one.
            Guard::WholeObject => test(
                &["metadata", "resourceVersion"],
                json!(self.job.metadata.resource_version),
            ),
        };
        if !self.guards.contains(&operation) {
            self.guards.push(operation);
        }
    }

    pub(super) fn set_suspend(&mut self, suspend: bool) {
        self.changes.push(add(&["spec", "suspend"], json!(suspend)));
    }

    /// Guards a number of the spec as last seen, and changes it.
    pub(super) fn change_number(&mut self, field: &str, seen: Option<i64>, wanted: i64) {
        self.guards.push(test(&["spec", field], json!(seen)));
        self.changes.push(add(&["spec", field], json!(wanted)));
    }

    pub(super) fn set_label(&mut self, key: &str, value: &str) {
        let change = self.labels.set(key, value);
        self.changes.push(change);
    }

    pub(super) fn set_annotation(&mut self, key: &str, value: &str) {
        let change = self.annotations.set(key, value);
        self.changes.push(change);
    }

    pub(super) fn extend(&mut self, changes: Vec<PatchOperation>) {
        self.changes.extend(changes);
    }

    pub(super) fn finish(mut self, record: Record) -> Result<Write, PatchError> {
        let record = stamped(self.job, record);
        let annotation = record.to_annotation()?;
        self.set_annotation(annotations::ADMISSION, &annotation);
        let mut operations = self.guards;
        operations.append(&mut self.changes);
        Ok(Write {
            patch: Patch(operations),
            record,
            annotation,
        })
    }
}

enum Guard {
    Test(PatchOperation),
    WholeObject,
}

/// The labels or the annotations of the Job: the map itself may be absent and must then be added first, guarded by a
/// test that it still is (`add` on a map that exists would wipe what others wrote to it).
struct Map<'a> {
    name: &'static str,
    seen: Option<&'a BTreeMap<String, String>>,
    present: bool,
}

impl<'a> Map<'a> {
    fn new(name: &'static str, seen: Option<&'a BTreeMap<String, String>>) -> Self {
        Self {
            name,
            seen,
            present: seen.is_some(),
        }
    }

    fn guard(&self, key: &str) -> Guard {
        match self.seen.map(|seen| seen.get(key)) {
            None => Guard::Test(test(&["metadata", self.name], Value::Null)),
            Some(None) => Guard::Test(test(&["metadata", self.name, key], Value::Null)),
            Some(Some(value)) if go_escapes(value) => Guard::WholeObject,
            Some(Some(value)) => Guard::Test(test(&["metadata", self.name, key], json!(value))),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> PatchOperation {
        if self.present {
            return add(&["metadata", self.name, key], json!(value));
        }
        self.present = true;
        add(&["metadata", self.name], json!({ key: value }))
    }
}
