//! ConversionReviews: many objects in, the same objects in another version out.
//!
//! A list of thousands of objects comes in one review. Each object is read, converted and written before the next one, so
//! that one object at most is held as a tree.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sluice_api::conversion::{Version, convert as convert_object};

use crate::reply::{Decision, Outcome, Reply};
use crate::review::{brief, required_text, structure};
use crate::shown::{Shown, one_line};

/// Version of the reviews that are understood.
const API_VERSION: &str = "apiextensions.k8s.io/v1";
/// Kind of the reviews that are understood.
const KIND: &str = "ConversionReview";
/// The longest description of what is wrong with an object, in characters.
const LONGEST: usize = 400;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    #[serde(borrow)]
    api_version: Option<&'a RawValue>,
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    request: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    uid: Option<&'a RawValue>,
    #[serde(borrow, rename = "desiredAPIVersion")]
    desired: Option<&'a RawValue>,
    #[serde(borrow)]
    objects: Option<&'a RawValue>,
}

/// Answers a review at `/convert`.
///
/// With a uid every answer is a review, and what is wrong stands in its result, with the object at fault. Without one the
/// call fails.
pub fn convert(body: &[u8]) -> Reply {
    let wire = match envelope(body) {
        Ok(wire) => wire,
        Err(message) => return unanswerable(message),
    };
    let uid = match required_text(wire.uid, "request.uid") {
        Ok(uid) => uid,
        Err(error) => return unanswerable(error.to_string()),
    };
    match objects(&wire) {
        Ok((converted, count, version)) => {
            let reason = format!("{count} objects in {}", version.api_version());
            answer(uid, Outcome::Converted, reason, &converted, r#"{"status":"Success"}"#)
        }
        Err(message) => {
            let result = serde_json::json!({
                "status": "Failure", "message": message, "reason": "BadRequest", "code": 400,
            });
            answer(uid, Outcome::Denied, message, b"", &result.to_string())
        }
    }
}

fn envelope(body: &[u8]) -> Result<Wire<'_>, String> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(format!(
            "the request body is empty; a {KIND} of {API_VERSION} is expected"
        ));
    }
    let envelope: Envelope<'_> =
        serde_json::from_slice(body).map_err(|error| format!("the request body is not a review: {}", brief(&error)))?;
    let expected = [
        (envelope.api_version, "apiVersion", API_VERSION),
        (envelope.kind, "kind", KIND),
    ];
    for (raw, field, wanted) in expected {
        let found = required_text(raw, field).map_err(|error| error.to_string())?;
        if found != wanted {
            return Err(format!("{field} is {}; this path understands {wanted}", Shown(&found)));
        }
    }
    structure(envelope.request, "request").map_err(|error| error.to_string())
}

/// The converted objects, separated by commas, and their number.
fn objects(wire: &Wire<'_>) -> Result<(Vec<u8>, usize, Version), String> {
    let desired = required_text(wire.desired, "request.desiredAPIVersion").map_err(|error| error.to_string())?;
    let version = Version::of(&desired).ok_or_else(|| {
        format!(
            "request.desiredAPIVersion is {}; this webhook converts to {} and {}",
            Shown(&desired),
            Version::V1beta1.api_version(),
            Version::V1beta2.api_version()
        )
    })?;
    let list = wire.objects.ok_or("request.objects is missing")?;
    let mut converted = Vec::with_capacity(list.get().len());
    let list: Vec<&RawValue> = serde_json::from_str(list.get())
        .map_err(|error| format!("request.objects is not a list: {}", brief(&error)))?;
    for (at, object) in list.iter().enumerate() {
        if at > 0 {
            converted.push(b',');
        }
        one(object, version, &mut converted)
            .map_err(|(named, problem)| format!("request.objects[{at}]{named}: {problem}"))?;
    }
    Ok((converted, list.len(), version))
}

/// Converts one object; what is wrong with it comes with its name.
fn one(object: &RawValue, version: Version, into: &mut Vec<u8>) -> Result<(), (String, String)> {
    let mut object: Value = serde_json::from_str(object.get())
        .map_err(|error| (String::new(), format!("cannot be read: {}", brief(&error))))?;
    convert_object(&mut object, version).map_err(|error| (named(&object), one_line(&error.to_string(), LONGEST)))?;
    serde_json::to_writer(into, &object).map_err(|error| (named(&object), brief(&error)))
}

/// Kind, namespace and name of an object, as far as it has them.
fn named(object: &Value) -> String {
    let metadata = &object["metadata"];
    let parts = [&object["kind"], &metadata["namespace"], &metadata["name"]];
    let parts: Vec<String> = parts
        .into_iter()
        .filter_map(Value::as_str)
        .map(|part| Shown(part).plain())
        .collect();
    if parts.is_empty() {
        String::new()
    } else {
        format!(" ({})", parts.join(" "))
    }
}

fn answer(uid: String, outcome: Outcome, reason: String, objects: &[u8], result: &str) -> Reply {
    let shown = Value::from(uid.as_str()).to_string();
    let head =
        format!(r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","response":{{"uid":{shown},"convertedObjects":["#);
    let body = [head.as_bytes(), objects, b"],\"result\":", result.as_bytes(), b"}}"].concat();
    Reply {
        http_status: 200,
        content_type: "application/json",
        body,
        decision: Decision::of_conversion(outcome, reason, uid),
    }
}

fn unanswerable(message: String) -> Reply {
    Reply {
        http_status: 400,
        content_type: "text/plain; charset=utf-8",
        body: format!("{message}\n").into_bytes(),
        decision: Decision::of_conversion(Outcome::Unreadable, message, String::new()),
    }
}
