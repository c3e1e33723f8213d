//! Conversion reviews: broken ones get a clear answer, large ones are converted as a whole.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_admission::{Outcome, Reply, convert};

fn review(desired: &str, objects: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": { "uid": "r-1", "desiredAPIVersion": desired, "objects": objects },
    })
}

fn queue(version: &str, name: &str) -> Value {
    let spec = match version {
        "v1beta1" => json!({ "cohort": "research", "admissionChecks": ["a"], "newer": { "kept": 1.5 } }),
        _ => json!({
            "cohortName": "research", "newer": { "kept": 1.5 },
            "admissionChecksStrategy": { "admissionChecks": [{ "name": "a" }] },
        }),
    };
    json!({
        "apiVersion": format!("kueue.x-k8s.io/{version}"), "kind": "ClusterQueue",
        "metadata": { "name": name, "uid": "u-1", "labels": { "team": "a" } }, "spec": spec,
    })
}

fn answer(review: &Value) -> Reply {
    convert(&serde_json::to_vec(review).unwrap())
}

fn response(reply: &Reply) -> Value {
    assert_eq!(reply.http_status, 200, "{}", String::from_utf8_lossy(&reply.body));
    assert_eq!(reply.content_type, "application/json");
    let review: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(review["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(review["kind"], "ConversionReview");
    review["response"].clone()
}

/// The result says what is wrong, and nothing is converted.
fn failure(review: &Value) -> String {
    let reply = answer(review);
    assert_eq!(reply.decision.outcome, Outcome::Denied);
    let response = response(&reply);
    assert_eq!(response["uid"], "r-1");
    assert_eq!(response["result"]["status"], "Failure");
    assert_eq!(response["convertedObjects"], json!([]));
    let message = response["result"]["message"].as_str().unwrap();
    assert_eq!(reply.decision.reason, message);
    message.to_owned()
}

#[test]
fn objects_come_back_in_their_order_each_from_its_own_version() {
    let objects = json!([queue("v1beta1", "a"), queue("v1beta2", "b"), queue("v1beta1", "c")]);
    let reply = answer(&review("kueue.x-k8s.io/v1beta2", objects));
    assert_eq!(reply.decision.outcome, Outcome::Converted);
    assert_eq!(reply.decision.reason, "3 objects in kueue.x-k8s.io/v1beta2");
    let response = response(&reply);
    assert_eq!(response["uid"], "r-1");
    assert_eq!(response["result"], json!({ "status": "Success" }));
    let converted = response["convertedObjects"].as_array().unwrap();
    let names: Vec<_> = converted
        .iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    for object in converted {
        assert_eq!(object["spec"], queue("v1beta2", "x")["spec"]);
    }
    let back = answer(&review("kueue.x-k8s.io/v1beta1", response["convertedObjects"].clone()));
    let back: Value = serde_json::from_slice(&back.body).unwrap();
    assert_eq!(back["response"]["convertedObjects"][0], queue("v1beta1", "a"));
    assert_eq!(back["response"]["convertedObjects"][2], queue("v1beta1", "c"));
}

#[test]
fn a_list_of_five_thousand_objects_is_converted_in_one_review() {
    let objects: Vec<Value> = (0..5000).map(|at| queue("v1beta1", &format!("q-{at}"))).collect();
    let reply = answer(&review("kueue.x-k8s.io/v1beta2", objects.into()));
    let response = response(&reply);
    let converted = response["convertedObjects"].as_array().unwrap();
    assert_eq!(converted.len(), 5000);
    for (at, object) in converted.iter().enumerate() {
        assert_eq!(object["metadata"]["name"], format!("q-{at}"));
        assert_eq!(object["spec"]["cohortName"], "research");
    }
}

#[test]
fn no_objects_are_converted_to_none() {
    let response = response(&answer(&review("kueue.x-k8s.io/v1beta2", json!([]))));
    assert_eq!(response["convertedObjects"], json!([]));
    assert_eq!(response["result"]["status"], "Success");
}

#[test]
fn each_broken_review_is_answered_with_what_is_wrong_with_it() {
    let good = queue("v1beta1", "good");
    let version = "kueue.x-k8s.io/v1beta2";
    let mut no_kind = good.clone();
    no_kind.as_object_mut().unwrap().remove("kind");
    for (objects, wanted) in [
        (json!(null), "request.objects is missing"),
        (json!({}), "request.objects is not a list: "),
        (json!("all"), "request.objects is not a list: "),
        (json!([good, 7]), "request.objects[1]: the object is not a JSON object"),
        (json!([null]), "request.objects[0]: the object is not a JSON object"),
        (
            json!([good, {}]),
            "request.objects[1]: apiVersion is missing or not a string",
        ),
        (
            json!([no_kind]),
            "request.objects[0] (good): kind is missing or not a string",
        ),
        (
            json!([{ "apiVersion": "kueue.x-k8s.io/v1", "kind": "Workload", "metadata": { "name": "w", "namespace": "a" } }]),
            "request.objects[0] (Workload a w): apiVersion \"kueue.x-k8s.io/v1\" is not known",
        ),
        (
            json!([good, { "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Job" }]),
            "request.objects[1] (Job): kind \"Job\" is not one of kueue.x-k8s.io",
        ),
    ] {
        let said = failure(&review(version, objects.clone()));
        assert!(said.starts_with(wanted), "{objects}: {said}");
    }
    for (desired, wanted) in [
        (json!(null), "request.desiredAPIVersion is missing"),
        (json!(""), "request.desiredAPIVersion is missing"),
        (json!(2), "request.desiredAPIVersion must be a string, not the number 2"),
        (
            json!("kueue.x-k8s.io/v2"),
            "request.desiredAPIVersion is \"kueue.x-k8s.io/v2\"; this webhook converts to kueue.x-k8s.io/v1beta1 and \
             kueue.x-k8s.io/v1beta2",
        ),
    ] {
        let mut review = review(version, json!([good]));
        review["request"]["desiredAPIVersion"] = desired;
        assert_eq!(failure(&review), wanted);
    }
}

#[test]
fn what_is_no_review_at_all_fails_the_call() {
    let mut other_kind = review("kueue.x-k8s.io/v1beta2", json!([]));
    other_kind["kind"] = json!("AdmissionReview");
    let mut other_version = review("kueue.x-k8s.io/v1beta2", json!([]));
    other_version["apiVersion"] = json!("apiextensions.k8s.io/v1beta1");
    let mut no_uid = review("kueue.x-k8s.io/v1beta2", json!([]));
    no_uid["request"]["uid"] = json!("");
    for (body, wanted) in [
        (
            String::new(),
            "the request body is empty; a ConversionReview of apiextensions.k8s.io/v1",
        ),
        (" \n".to_owned(), "the request body is empty"),
        ("{".to_owned(), "the request body is not a review: "),
        ("[]".to_owned(), "the request body is not a review: "),
        ("{}".to_owned(), "apiVersion is missing"),
        (
            other_version.to_string(),
            "apiVersion is \"apiextensions.k8s.io/v1beta1\"; this path understands apiextensions.k8s.io/v1",
        ),
        (
            other_kind.to_string(),
            "kind is \"AdmissionReview\"; this path understands ConversionReview",
        ),
        (
            r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}"#.to_owned(),
            "request is missing",
        ),
        (no_uid.to_string(), "request.uid is missing"),
    ] {
        let reply = convert(body.as_bytes());
        assert_eq!(
            (reply.http_status, reply.decision.outcome),
            (400, Outcome::Unreadable),
            "{body}"
        );
        assert!(
            reply.decision.reason.starts_with(wanted),
            "{body}: {}",
            reply.decision.reason
        );
        assert_eq!(String::from_utf8_lossy(&reply.body).trim(), reply.decision.reason);
    }
}

#[test]
fn megabytes_of_text_and_nesting_without_end_are_answered_with_a_short_message() {
    let long = "x".repeat(1 << 20);
    let nested = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let template = review("kueue.x-k8s.io/v1beta2", json!(["PLACE"])).to_string();
    for object in [
        format!(r#"{{"apiVersion":"{long}","kind":"Cohort"}}"#),
        format!(r#"{{"apiVersion":"kueue.x-k8s.io/v1beta1","kind":"{long}"}}"#),
        format!(r#"{{"apiVersion":"kueue.x-k8s.io/v1","kind":"Cohort","metadata":{{"name":"{long}"}}}}"#),
        nested.clone(),
        format!(r#"{{"apiVersion":"kueue.x-k8s.io/v1beta1","kind":"Cohort","spec":{nested}}}"#),
    ] {
        let reply = convert(template.replace("\"PLACE\"", &object).as_bytes());
        assert_eq!(response(&reply)["result"]["status"], "Failure");
        assert!(reply.body.len() < 2000, "{} bytes", reply.body.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_review_cut_anywhere_or_with_one_byte_changed_gets_an_answer(
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let objects = json!([queue("v1beta1", "a"), queue("v1beta2", "b")]);
        let mut body = serde_json::to_vec(&review("kueue.x-k8s.io/v1beta1", objects)).unwrap();
        let at = at.index(body.len());
        if cut { body.truncate(at) } else { body[at] = byte }
        let reply = convert(&body);
        prop_assert!(!reply.decision.reason.is_empty());
        match reply.http_status {
            200 => {
                let response = response(&reply);
                let succeeded = response["result"]["status"] == "Success";
                prop_assert_eq!(succeeded, reply.decision.outcome == Outcome::Converted);
                prop_assert_eq!(response["convertedObjects"].as_array().unwrap().len(), if succeeded { 2 } else { 0 });
            }
            status => prop_assert_eq!(status, 400),
        }
    }
}
