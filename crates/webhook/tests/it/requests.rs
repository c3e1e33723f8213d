//! What a client gets, and what a bad one cannot do.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::json;
use sluice_webhook::{Limits, MUTATE_JOB, VALIDATE_CLUSTER_QUEUE, VALIDATE_COHORT, VALIDATE_JOB};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{
    Client, Fixture, NAME, authority, conversion, eventually, new_job, new_job_with, soon, still_answers,
};

#[tokio::test]
async fn a_new_job_is_held_in_an_answer_over_tls() {
    let fixture = Fixture::start(Limits::default());
    let answer = fixture.client().post(MUTATE_JOB, new_job()).await;
    let response = answer.response();
    assert_eq!(response["uid"], "r-1");
    assert_eq!(response["patchType"], "JSONPatch");
    assert!(!answer.closes);
    let response = fixture.client().post(VALIDATE_JOB, new_job()).await.response();
    assert_eq!(response["allowed"], true);
    let page = fixture.metrics_page();
    let patched = r#"sluice_webhook_reviews_total{outcome="patched",path="/mutate-batch-v1-job"} 1"#;
    assert!(page.contains(patched), "{page}");
    assert!(
        page.contains(r#"sluice_webhook_review_duration_seconds_count{path="/validate-batch-v1-job"} 1"#),
        "{page}"
    );
}

#[tokio::test]
async fn queues_and_cohorts_are_judged_at_paths_of_their_own() {
    let fixture = Fixture::start(Limits::default());
    for (path, resource) in [(VALIDATE_CLUSTER_QUEUE, "clusterqueues"), (VALIDATE_COHORT, "cohorts")] {
        for (weight, allowed) in [("2", true), ("1n", false)] {
            let review = json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "request": {
                    "uid": "r-1", "operation": "CREATE", "name": "a", "userInfo": {"username": "jane"},
                    "resource": {"group": "kueue.x-k8s.io", "version": "v1beta2", "resource": resource},
                    "object": {"metadata": {"name": "a"}, "spec": {"fairSharing": {"weight": weight}}},
                },
            });
            let response = fixture.client().post(path, review.to_string()).await.response();
            assert_eq!(response["allowed"], allowed, "{path} {response}");
        }
    }
}

#[tokio::test]
async fn a_list_of_five_thousand_objects_is_converted_in_one_request() {
    let limits = Limits::default();
    let body = conversion(5000);
    assert!(
        body.len() > limits.body_bytes,
        "larger than a review of one object may be"
    );
    let fixture = Fixture::start(limits);
    let response = fixture.client().post("/convert", body).await.response();
    assert_eq!(response["result"]["status"], "Success");
    let converted = response["convertedObjects"].as_array().unwrap();
    assert_eq!(converted.len(), 5000);
    assert_eq!(converted[4999]["metadata"]["name"], "q-4999");
    assert_eq!(converted[4999]["spec"]["cohortName"], "research");
    let page = fixture.metrics_page();
    let counted = r#"sluice_webhook_reviews_total{outcome="converted",path="/convert"} 1"#;
    assert!(page.contains(counted), "{page}");
    still_answers(&fixture.client()).await;
}

#[tokio::test]
async fn every_path_that_kueues_webhook_configurations_name_for_its_kinds_is_answered() {
    let fixture = Fixture::start(Limits::default());
    for path in [
        "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue",
        "/mutate-kueue-x-k8s-io-v1beta2-resourceflavor",
        "/mutate-kueue-x-k8s-io-v1beta2-workload",
        "/validate-kueue-x-k8s-io-v1beta2-clusterqueue",
        "/validate-kueue-x-k8s-io-v1beta2-cohort",
        "/validate-kueue-x-k8s-io-v1beta2-localqueue",
        "/validate-kueue-x-k8s-io-v1beta2-resourceflavor",
        "/validate-kueue-x-k8s-io-v1beta2-workload",
    ] {
        let kind = path.rsplit('-').next().unwrap();
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "r-1", "operation": "CREATE", "name": "a", "namespace": "team-a",
                "userInfo": {"username": "jane"},
                "resource": {"group": "kueue.x-k8s.io", "version": "v1beta2", "resource": format!("{kind}s")},
                "object": {"metadata": {"name": "a"}, "spec": {}},
            },
        });
        let response = fixture.client().post(path, review.to_string()).await.response();
        assert_eq!(response["allowed"], true, "{path} {response}");
    }
}

#[tokio::test]
async fn one_connection_carries_many_reviews() {
    let fixture = Fixture::start(Limits::default());
    let mut connection = fixture.client().connect().await.unwrap();
    for _ in 0..50 {
        assert_eq!(
            connection.post(MUTATE_JOB, new_job()).await.unwrap().response()["allowed"],
            true
        );
    }
}

#[tokio::test]
async fn other_paths_and_methods_are_told_apart_from_reviews() {
    let fixture = Fixture::start(Limits::default());
    let client = fixture.client();
    assert_eq!(client.post("/mutate", new_job()).await.status, StatusCode::NOT_FOUND);
    let mut stream = client.tls().await.unwrap();
    let request = format!("GET {MUTATE_JOB} HTTP/1.1\r\nhost: {NAME}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
}

#[tokio::test]
async fn garbage_is_answered_with_what_is_wrong_with_it() {
    let fixture = Fixture::start(Limits::default());
    let answer = fixture.client().post(MUTATE_JOB, "hello").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert!(
        answer.body.starts_with(b"the request body is not a JSON object"),
        "{answer:?}"
    );
    still_answers(&fixture.client()).await;
}

#[tokio::test]
async fn a_review_over_the_limit_is_refused_and_one_at_the_limit_is_not() {
    let body = new_job_with(json!({"note": "x".repeat(20_000)}));
    let at_the_limit = Fixture::start(Limits {
        body_bytes: body.len(),
        ..Limits::default()
    });
    let response = at_the_limit.client().post(MUTATE_JOB, body.clone()).await.response();
    assert_eq!(response["allowed"], true);

    let over = Fixture::start(Limits {
        body_bytes: body.len() - 1,
        ..Limits::default()
    });
    assert_eq!(
        over.client().post(MUTATE_JOB, body).await.status,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    assert!(over.metrics_page().contains(r#"outcome="too_large""#));
    still_answers(&over.client()).await;
}

#[tokio::test]
async fn an_update_of_the_largest_objects_fits_by_default() {
    let fixture = Fixture::start(Limits {
        request_timeout: Duration::from_secs(30),
        ..Limits::default()
    });
    let body = new_job_with(json!({"note": "x".repeat(6 * 1024 * 1024)}));
    assert_eq!(
        fixture.client().post(MUTATE_JOB, body).await.response()["allowed"],
        true
    );
}

/// A review whose body stops half way; the connection stays open.
async fn stuck(client: &Client) -> tokio_rustls::client::TlsStream<TcpStream> {
    let mut stream = client.tls().await.unwrap();
    let head = format!("POST {MUTATE_JOB} HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: 1000\r\n\r\n{{");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up_in_time() {
    let fixture = Fixture::start(Limits {
        request_timeout: Duration::from_millis(100),
        ..Limits::default()
    });
    let mut stream = stuck(&fixture.client()).await;
    let mut answer = vec![0; 12];
    soon("an answer to half a body", stream.read_exact(&mut answer))
        .await
        .unwrap();
    assert_eq!(answer, b"HTTP/1.1 504");
    assert!(fixture.metrics_page().contains(r#"outcome="timeout""#));
}

#[tokio::test]
async fn stuck_clients_keep_others_waiting_no_longer_than_the_time_limit() {
    let limits = Limits {
        concurrent_reviews: 2,
        request_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    let fixture = Fixture::start(limits);
    let _stuck = (stuck(&fixture.client()).await, stuck(&fixture.client()).await);
    let client = fixture.client();
    // Until the two are given up, others may run into the limit themselves; then all is as before.
    eventually("a turn", async || {
        client.post(MUTATE_JOB, new_job()).await.status == StatusCode::OK
    })
    .await;
}

#[tokio::test]
async fn a_connection_without_handshake_or_without_request_is_closed() {
    let limits = Limits {
        handshake_timeout: Duration::from_millis(50),
        first_request_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let fixture = Fixture::start(limits);
    let mut silent = TcpStream::connect(fixture.address()).await.unwrap();
    let mut nothing = Vec::new();
    // Closed or reset: both end the read.
    let _ended = soon("the end of a silent connection", silent.read_to_end(&mut nothing)).await;
    assert_eq!(nothing, b"");

    let mut idle = fixture.client().tls().await.unwrap();
    let _ended = soon("the end of an idle connection", idle.read_to_end(&mut nothing)).await;
    assert_eq!(nothing, b"");
    assert!(
        fixture
            .metrics_page()
            .contains("sluice_webhook_connection_errors_total 1"),
        "{}",
        fixture.metrics_page()
    );
}

#[tokio::test]
async fn bad_tls_fails_its_own_connection_alone() {
    let fixture = Fixture::start(Limits::default());
    let address = fixture.address();

    for bytes in [
        &b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..],
        &[0x16, 3, 1, 0xff, 0xff, 0, 0, 0],
        &[0xff; 64],
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        let _ended = soon("the end of a bad connection", stream.read_to_end(&mut answer)).await;
        assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    }
    let stranger = authority();
    assert!(Client::new(address, &[&stranger]).connect().await.is_err());

    let failed = async || {
        fixture
            .metrics_page()
            .contains("sluice_webhook_connection_errors_total 4")
    };
    eventually("four failed connections are counted", failed).await;
    still_answers(&fixture.client()).await;
}

#[tokio::test]
async fn without_a_certificate_handshakes_fail_until_there_is_one() {
    use std::sync::Arc;

    use sluice_pki::Resolver;
    use sluice_webhook::{Metrics, Server, SharedWorld};

    use crate::support::{issue, serving, world};

    let (authority, resolver) = (authority(), Arc::new(Resolver::new()));
    let metrics = Metrics::register(&prometheus::Registry::new()).unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let world = SharedWorld::new(world());
    let server = Server::start(address, Limits::default(), world, Arc::clone(&resolver), metrics).unwrap();
    let client = Client::new(server.address(), &[&authority]);
    assert!(client.connect().await.is_err());
    resolver.replace(serving(&issue(&authority)));
    still_answers(&client).await;
}
