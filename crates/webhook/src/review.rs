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
use sluice_admission::{
    Outcome, Reply, World, convert, mutate_cluster_queue, mutate_job, mutate_resource_flavor, mutate_workload,
    validate_cluster_queue, validate_cohort, validate_job, validate_local_queue, validate_resource_flavor,
    validate_workload,
};
use sluice_api::CONVERT;
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

/// Answers a review out of itself.
type Judge = fn(&[u8]) -> Reply;

/// Where objects other than Jobs are reviewed: the paths that Kueue's own webhook configurations name, and that of
/// LocalQueues, which it does not review.
const OBJECTS: &[(&str, Judge)] = &[
    ("/mutate-kueue-x-k8s-io-v1beta2-clusterqueue", mutate_cluster_queue),
    ("/mutate-kueue-x-k8s-io-v1beta2-resourceflavor", mutate_resource_flavor),
    ("/mutate-kueue-x-k8s-io-v1beta2-workload", mutate_workload),
    (VALIDATE_CLUSTER_QUEUE, validate_cluster_queue),
    (VALIDATE_COHORT, validate_cohort),
    ("/validate-kueue-x-k8s-io-v1beta2-localqueue", validate_local_queue),
    (
        "/validate-kueue-x-k8s-io-v1beta2-resourceflavor",
        validate_resource_flavor,
    ),
    ("/validate-kueue-x-k8s-io-v1beta2-workload", validate_workload),
];

/// How a body becomes an answer.
#[derive(Debug, Clone, Copy)]
enum Rule {
    /// By what is known of the cluster; not before all of it is known.
    InWorld(fn(&[u8], &World) -> Reply),
    /// By the review alone.
    Alone(Judge),
    /// By the review alone, which may hold thousands of objects: apart from the tasks that answer the others.
    Bulk(Judge),
}

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
    let mut rules = vec![
        (MUTATE_JOB, Rule::InWorld(mutate_job)),
        (VALIDATE_JOB, Rule::InWorld(validate_job)),
        (CONVERT, Rule::Bulk(convert)),
    ];
    rules.extend(OBJECTS.iter().map(|&(path, rule)| (path, Rule::Alone(rule))));
    endpoints(&rules, world, limits, metrics, draining)
}

fn endpoints(
    rules: &[(&'static str, Rule)],
    world: &SharedWorld,
    limits: &Limits,
    metrics: &Metrics,
    draining: &Arc<AtomicBool>,
) -> Router {
    let turns = Arc::new(Semaphore::new(limits.concurrent_reviews.max(1)));
    let bulk_turns = Arc::new(Semaphore::new(limits.concurrent_conversions.max(1)));
    rules.iter().fold(Router::new(), |router, &(path, rule)| {
        let (turns, body_bytes, timeout) = match rule {
            Rule::InWorld(_) | Rule::Alone(_) => (&turns, limits.body_bytes, limits.request_timeout),
            Rule::Bulk(_) => (&bulk_turns, limits.conversion_bytes, limits.conversion_timeout),
        };
        let endpoint = Endpoint {
            path,
            rule,
            world: world.clone(),
            turns: Arc::clone(turns),
        };
        let observer = Observer {
            path,
            metrics: metrics.clone(),
            draining: Arc::clone(draining),
        };
        let route = Router::new()
            .route(path, post(answer).with_state(endpoint))
            .layer(DefaultBodyLimit::max(body_bytes))
            .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, timeout))
            .layer(CatchPanicLayer::custom(panicked))
            .layer(middleware::from_fn_with_state(observer, observe));
        router.merge(route)
    })
}

async fn answer(State(endpoint): State<Endpoint>, request: Request) -> Response {
    // Waiting happens inside of the time limit: a layer would wait before it.
    let Ok(_turn) = endpoint.turns.acquire().await else {
        return no_answer();
    };
    let body = match axum::RequestExt::extract::<Bytes, _>(request).await {
        Ok(body) => body,
        Err(rejection) => return rejection.into_response(),
    };
    let reply = match endpoint.rule {
        // Half a cluster would give wrong answers: the API server follows its failure policy instead.
        Rule::InWorld(_) if !endpoint.world.is_complete() => {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                "the webhook is still reading the cluster\n",
            )
                .into_response();
        }
        Rule::InWorld(rule) => rule(&body, &endpoint.world.read()),
        Rule::Alone(rule) => rule(&body),
        Rule::Bulk(rule) => match tokio::task::spawn_blocking(move || rule(&body)).await {
            Ok(reply) => reply,
            Err(failed) => return failed.try_into_panic().map_or_else(|_| no_answer(), panicked),
        },
    };
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
        (None, StatusCode::SERVICE_UNAVAILABLE) => "not_ready",
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

fn no_answer() -> Response {
    StatusCode::SERVICE_UNAVAILABLE.into_response()
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
        fn brittle_bulk(body: &[u8]) -> Reply {
            brittle(body, &World::new(Settings::default()))
        }
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).unwrap();
        let world = SharedWorld::new(World::new(Settings::default()));
        let router = endpoints(
            &[("/x", Rule::InWorld(brittle)), ("/y", Rule::Bulk(brittle_bulk))],
            &world,
            &Limits::default(),
            &metrics,
            &Arc::default(),
        );
        let bodies = [("panic", 500), ("panic", 500), ("{}", 400)];
        for (path, (body, status)) in ["/x", "/y"]
            .into_iter()
            .flat_map(|path| bodies.map(|body| (path, body)))
        {
            let request = Request::post(path).body(Body::from(body)).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), status);
            let text = response.into_body().collect().await.unwrap().to_bytes();
            assert!(!text.is_empty());
        }
        let text = prometheus::TextEncoder::new()
            .encode_to_string(&registry.gather())
            .unwrap();
        for path in ["/x", "/y"] {
            for (outcome, count) in [("panic", 2), ("unreadable", 1)] {
                let line = format!("sluice_webhook_reviews_total{{outcome=\"{outcome}\",path=\"{path}\"}} {count}");
                assert!(text.contains(&line), "{line}: {text}");
            }
        }
    }
}
