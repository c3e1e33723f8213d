//! Discovery of the visibility API, while no scheduler serves it: see [`sluice_runtime::aggregation`].
//!
//! The documents never change and say nothing about the cluster, so anybody may read them. Everything else of that API is
//! answered with 503.

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusDetails};
use serde_json::Value;
use sluice_api::visibility::{Version, discovery};

/// When to ask again, in seconds.
const AGAIN: i32 = 5;

/// What is answered under `/apis`.
pub(crate) fn router() -> Router {
    Router::new()
        .route("/apis", get(groups))
        .route(
            "/apis/visibility.kueue.x-k8s.io",
            get(|| async { json(&discovery::group()) }),
        )
        .route("/apis/visibility.kueue.x-k8s.io/{version}", get(resources))
        .route(
            "/apis/visibility.kueue.x-k8s.io/{version}/{*rest}",
            get(|| async { unavailable() }),
        )
}

/// The API server asks for aggregated discovery in the form that it writes itself.
async fn groups(headers: HeaderMap) -> Response {
    let accepts = headers.get_all(header::ACCEPT).iter();
    let aggregated = accepts
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|range| range.trim().starts_with(discovery::AGGREGATED));
    if aggregated {
        let body = discovery::aggregated().to_string();
        return ([(header::CONTENT_TYPE, discovery::AGGREGATED)], body).into_response();
    }
    json(&discovery::groups())
}

async fn resources(Path(version): Path<String>) -> Response {
    match Version::named(&version) {
        Some(version) => json(&discovery::resources(version)),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn json(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

fn unavailable() -> Response {
    let status = Status {
        code: Some(i32::from(StatusCode::SERVICE_UNAVAILABLE.as_u16())),
        status: Some("Failure".to_owned()),
        reason: Some("ServiceUnavailable".to_owned()),
        message: Some("no scheduler of Sluice serves the visibility API now".to_owned()),
        details: Some(StatusDetails {
            retry_after_seconds: Some(AGAIN),
            ..StatusDetails::default()
        }),
        ..Status::default()
    };
    let retry = [(header::RETRY_AFTER, AGAIN.to_string())];
    (StatusCode::SERVICE_UNAVAILABLE, retry, axum::Json(status)).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    async fn answer(path: &str, accept: &str) -> (StatusCode, String, Value) {
        let request = Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
        let response = router().oneshot(request).await.unwrap();
        let content_type = response
            .headers()
            .get("content-type")
            .map(|value| value.to_str().unwrap().to_owned());
        let (code, body) = (
            response.status(),
            response.into_body().collect().await.unwrap().to_bytes(),
        );
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        (code, content_type.unwrap_or_default(), body)
    }

    #[tokio::test]
    async fn discovery_is_answered_in_every_form_and_nothing_else_is() {
        let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        let (_, content_type, body) = answer("/apis", aggregated).await;
        assert_eq!(content_type, discovery::AGGREGATED);
        assert_eq!(body, discovery::aggregated());
        assert_eq!(answer("/apis", "application/json").await.2, discovery::groups());
        for version in Version::ALL {
            let path = format!("/apis/{}", version.api_version());
            assert_eq!(answer(&path, "*/*").await.2, discovery::resources(version));
            let (code, _, status) = answer(&format!("{path}/clusterqueues/a/pendingworkloads"), "*/*").await;
            assert_eq!(code, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(status["reason"], "ServiceUnavailable");
        }
        let group = answer("/apis/visibility.kueue.x-k8s.io", "*/*").await;
        assert_eq!(group.2, discovery::group());
        assert_eq!(
            answer("/apis/visibility.kueue.x-k8s.io/v1", "*/*").await.0,
            StatusCode::NOT_FOUND
        );
    }
}
