//! HTTP around the rules: one review in, one answer, one line of the log.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use sluice_admission::{Outcome, Reply, World, mutate_job, validate_cluster_queue, validate_cohort, validate_job};
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::TimeoutLayer;

use crate::cache::SharedWorld;
use crate::metrics::Metrics;
use crate::server::Limits;

/// Where new and changed Jobs are mutated.
pub const MUTATE_JOB: &str = "/mutate-batch-v1-job";
/// Where new and changed Jobs are validated.
pub const VALIDATE_JOB: &str = "/validate-batch-v1-job";
/// Where new and changed ClusterQueues are validated.
pub const VALIDATE_CLUSTER_QUEUE: &str = "/validate-kueue-x-k8s-io-v1beta2-clusterqueue";
/// Where new and changed Cohorts are validated.
pub const VALIDATE_COHORT: &str = "/validate-kueue-x-k8s-io-v1beta2-cohort";

type Rule = fn(&[u8], &World) -> Reply;

#[derive(Clone)]
struct Endpoint {
    path: &'static str,
    rule: Rule,
    world: SharedWorld,
    turns: Arc<Semaphore>,
}

#[derive(Clone)]
struct Observer {
    path: &'static str,
    metrics: Metrics,
    draining: Arc<AtomicBool>,
}

/// All endpoints, with their limits around them.
pub(crate) fn router(world: &SharedWorld, limits: &Limits, metrics: &Metrics, draining: &Arc<AtomicBool>) -> Router {
    endpoints(
        &[
            (MUTATE_JOB, mutate_job),
            (VALIDATE_JOB, validate_job),
            (VALIDATE_CLUSTER_QUEUE, |body, _| validate_cluster_queue(body)),
            (VALIDATE_COHORT, |body, _| validate_cohort(body)),
        ],
        world,
        limits,
        metrics,
        draining,
    )
}

fn endpoints(
    rules: &[(&'static str, Rule)],
    world: &SharedWorld,
    limits: &Limits,
    metrics: &Metrics,
    draining: &Arc<AtomicBool>,
) -> Router {
    let turns = Arc::new(Semaphore::new(limits.concurrent_reviews.max(1)));
    rules.iter().fold(Router::new(), |router, &(path, rule)| {
        let endpoint = Endpoint {
            path,
            rule,
            world: world.clone(),
            turns: Arc::clone(&turns),
        };
        let observer = Observer {
            path,
            metrics: metrics.clone(),
            draining: Arc::clone(draining),
        };
        let route = Router::new()
            .route(path, post(answer).with_state(endpoint))
            .layer(DefaultBodyLimit::max(limits.body_bytes))
            .layer(TimeoutLayer::with_status_code(
                StatusCode::GATEWAY_TIMEOUT,
                limits.request_timeout,
            ))
            .layer(CatchPanicLayer::custom(panicked))
            .layer(middleware::from_fn_with_state(observer, observe));
        router.merge(route)
    })
}

async fn answer(State(endpoint): State<Endpoint>, request: Request) -> Response {
    // Waiting happens inside of the time limit: a layer would wait before it.
    let Ok(_turn) = endpoint.turns.acquire().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let body = match axum::RequestExt::extract::<Bytes, _>(request).await {
        Ok(body) => body,
        Err(rejection) => return rejection.into_response(),
    };
    let reply = (endpoint.rule)(&body, &endpoint.world.read());
    log(endpoint.path, &reply);
    let Reply {
        http_status,
        content_type,
        body,
        decision,
    } = reply;
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(http_status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.extensions_mut().insert(decision.outcome);
    response
}

fn log(path: &str, reply: &Reply) {
    let decision = &reply.decision;
    tracing::info!(
        path,
        outcome = decision.outcome.as_str(),
        reason = decision.reason,
        uid = decision.uid,
        operation = decision.operation,
        namespace = decision.namespace,
        name = decision.name,
        user = decision.username,
        dry_run = decision.dry_run,
        warnings = decision.warnings.len(),
        "review"
    );
}

/// Outermost: sees every answer, also those that no rule gave.
async fn observe(State(observer): State<Observer>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let _in_work = observer.metrics.in_work();
    let mut response = next.run(request).await;
    let outcome = match (response.extensions().get::<Outcome>(), response.status()) {
        (Some(outcome), _) => outcome.as_str(),
        (None, StatusCode::PAYLOAD_TOO_LARGE) => "too_large",
        (None, StatusCode::GATEWAY_TIMEOUT) => "timeout",
        (None, StatusCode::INTERNAL_SERVER_ERROR) => "panic",
        (None, _) => "other",
    };
    let took = begun.elapsed();
    if response.extensions().get::<Outcome>().is_none() {
        tracing::warn!(
            path = observer.path,
            outcome,
            status = response.status().as_u16(),
            ?took,
            "no review"
        );
    }
    observer.metrics.count_review(observer.path, outcome, took);
    if observer.draining.load(Ordering::Acquire) {
        // The client's next call then opens a new connection, to a replica that stays.
        response
            .headers_mut()
            .insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn panicked(panic: Box<dyn Any + Send + 'static>) -> Response {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    tracing::error!(panic = text, "a review panicked");
    (StatusCode::INTERNAL_SERVER_ERROR, "the webhook failed on this review\n").into_response()
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use prometheus::Registry;
    use sluice_admission::Settings;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn a_rule_that_panics_fails_its_review_and_no_other() {
        fn brittle(body: &[u8], world: &World) -> Reply {
            assert!(body != b"panic", "it broke");
            mutate_job(body, world)
        }
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).unwrap();
        let world = SharedWorld::new(World::new(Settings::default()));
        let router = endpoints(
            &[("/x", brittle)],
            &world,
            &Limits::default(),
            &metrics,
            &Arc::default(),
        );
        for (body, status) in [("panic", 500), ("panic", 500), ("{}", 400)] {
            let request = Request::post("/x").body(Body::from(body)).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), status);
            let text = response.into_body().collect().await.unwrap().to_bytes();
            assert!(!text.is_empty());
        }
        let text = prometheus::TextEncoder::new()
            .encode_to_string(&registry.gather())
            .unwrap();
        assert!(
            text.contains(r#"sluice_webhook_reviews_total{outcome="panic",path="/x"} 2"#),
            "{text}"
        );
        assert!(
            text.contains(r#"sluice_webhook_reviews_total{outcome="unreadable",path="/x"} 1"#),
            "{text}"
        );
    }
}
