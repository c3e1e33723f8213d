//! From a request to an answer: who asks, may they, and what do they get.

use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use axum_server::tls::TlsInfo;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use sluice_api::visibility::{GROUP, PENDING_WORKLOADS, Version, discovery};
use sluice_runtime::watch::Synced;
use tower::ServiceBuilder;

use super::authentication::{FrontProxy, Refusal, User};
use super::authorization::{Authorizer, Denied};
use super::desk::{Desk, Found, NoAnswer};
use super::negotiation::{Form, negotiate};
use super::openapi;
use super::page::Page;
use super::status::Refused;
use super::summary::{Include, summary, table};
use super::target::{Attributes, Queue, Target, attributes, target};

/// Requests answered at once; further ones wait.
const CONCURRENT: usize = 256;
/// The methods that there are.
const ALLOWED: &str = "GET, HEAD";
/// The content type of everything that is JSON.
const JSON: &str = "application/json";

/// What answers rest on.
#[derive(Clone)]
pub(super) struct Service {
    pub(super) front_proxy: FrontProxy,
    pub(super) authorizer: Authorizer,
    pub(super) desk: Desk,
    /// Whether the brain knows everything that there is.
    pub(super) synced: Synced,
}

/// The whole API.
pub(super) fn router(service: Service) -> Router {
    Router::new()
        .fallback(answer)
        .layer(ServiceBuilder::new().concurrency_limit(CONCURRENT))
        .with_state(Arc::new(service))
}

async fn answer(
    State(service): State<Arc<Service>>,
    Extension(tls): Extension<Arc<TlsInfo>>,
    request: Request<Body>,
) -> Response {
    let (parts, _) = request.into_parts();
    let target = target(parts.uri.path());
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    match &target {
        Target::Live if reads => return "ok".into_response(),
        Target::Ready if reads => return service.ready(),
        _ => {}
    }
    let answered = async {
        let user = service
            .front_proxy
            .user(&tls.peer_certificates, &parts.headers, SystemTime::now())
            .map_err(unauthorized)?;
        let attributes = attributes(&parts.method, &parts.uri);
        let allowed = service.authorizer.may(&user, &attributes).await;
        allowed.map_err(|denied| forbidden(&user, &attributes, denied))?;
        service.read(target, &parts.method, &parts.uri, &parts.headers).await
    };
    answered.await.unwrap_or_else(Refused::into_response)
}

impl Service {
    fn ready(&self) -> Response {
        let known = if self.front_proxy.is_known() {
            self.synced.check()
        } else {
            Err(Refusal::NoRules.to_string())
        };
        match known {
            Ok(_) => "ok".into_response(),
            Err(missing) => (StatusCode::SERVICE_UNAVAILABLE, missing).into_response(),
        }
    }

    async fn read(&self, target: Target, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Response, Refused> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        match target {
            Target::Unknown => Err(Refused::new(
                StatusCode::NOT_FOUND,
                "NotFound",
                format!("there is nothing at {} in group {GROUP}", uri.path()),
            )),
            Target::Carrier => Err(Refused::method(
                format!(
                    "{GROUP} has only the subresource {PENDING_WORKLOADS} of queues; the queues themselves are in kueue.x-k8s.io"
                ),
                "",
            )),
            _ if !reads => Err(Refused::method(
                format!("{method} is not possible here, GET is"),
                ALLOWED,
            )),
            Target::Pending(version, queue) => self.pending(version, queue, uri, headers).await,
            Target::Groups => match accepted(headers, &[Form::Discovery, Form::Json])? {
                Form::Discovery => Ok(document(
                    Form::Discovery.content_type(),
                    &discovery::aggregated(),
                    headers,
                )),
                _ => Ok(document(JSON, &discovery::groups(), headers)),
            },
            Target::Group => plain(&discovery::group(), headers),
            Target::Resources(version) => plain(&discovery::resources(version), headers),
            Target::OpenApiV2 => plain(&openapi::v2(), headers),
            Target::OpenApiIndex => plain(&openapi::index(), headers),
            Target::OpenApiV3(version) => plain(&openapi::v3(version), headers),
            Target::Live | Target::Ready => Ok("ok".into_response()),
        }
    }

    async fn pending(
        &self,
        version: Version,
        queue: Queue,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Response, Refused> {
        let form = accepted(headers, &[Form::Json, Form::Table])?;
        let query = uri.query().unwrap_or_default();
        let bad = |message| Refused::new(StatusCode::BAD_REQUEST, "BadRequest", message);
        let page = Page::parse(query).map_err(bad)?;
        let include = Include::parse(query).map_err(bad)?;
        if let Err(missing) = self.synced.check() {
            return Err(Refused::unavailable(format!(
                "this replica does not know all queues and jobs yet: {missing}"
            )));
        }
        let Found { pending, leads } = self.desk.ask(queue.clone(), page).await.map_err(no_answer)?;
        let pending = pending.ok_or_else(|| not_found(&queue))?;
        let render = move || {
            let summary = summary(version, &queue, &pending, leads);
            match form {
                Form::Table => json_bytes(&table(&summary, include, Timestamp::now())),
                _ => json_bytes(&summary),
            }
        };
        // A hundred thousand items take a while to write down; other tasks go on meanwhile.
        let body = tokio::task::spawn_blocking(render).await;
        let body = body.map_err(|_| Refused::unavailable("this replica is ending"))?;
        Ok(([(header::CONTENT_TYPE, form.content_type())], body).into_response())
    }
}

fn accepted(headers: &HeaderMap, offered: &[Form]) -> Result<Form, Refused> {
    negotiate(headers, offered).map_err(|forms| {
        let message = format!("none of the accepted forms is there; there are {forms}");
        Refused::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    })
}

fn plain(value: &Value, headers: &HeaderMap) -> Result<Response, Refused> {
    accepted(headers, &[Form::Json])?;
    Ok(document(JSON, value, headers))
}

/// A document that changes only with the program: whoever has it already is told so.
fn document(content_type: &'static str, value: &Value, headers: &HeaderMap) -> Response {
    let tag = format!("\"{}\"", openapi::fingerprint(value));
    let known = headers
        .get(header::IF_NONE_MATCH)
        .is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = if known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, content_type)], json_bytes(value)).into_response()
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
        .headers_mut()
        .insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

/// None of these types holds anything that JSON has no word for.
fn json_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn unauthorized(refusal: Refusal) -> Refused {
    match refusal {
        Refusal::NoRules => Refused::unavailable(refusal.to_string()),
        _ => Refused::new(StatusCode::UNAUTHORIZED, "Unauthorized", refusal.to_string()),
    }
}

fn forbidden(user: &User, attributes: &Attributes, denied: Denied) -> Refused {
    let reason = match denied {
        Denied::Unknown(_) => return Refused::unavailable(denied.to_string()),
        Denied::Forbidden(reason) => reason,
    };
    let verb = attributes.verb;
    let (what, object) = match &attributes.resource {
        None => (format!("path {}", attributes.path), None),
        Some(resource) => {
            let mut what = resource.resource.clone();
            if !resource.subresource.is_empty() {
                what = format!("{what}/{}", resource.subresource);
            }
            let place = match resource.namespace.as_str() {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in namespace {namespace}"),
            };
            let what = format!("{what} {:?} of group {GROUP} {place}", resource.name);
            (what, Some(resource.name.clone()))
        }
    };
    let tail = if reason.is_empty() {
        reason
    } else {
        format!(": {reason}")
    };
    let message = format!("user {:?} may not {verb} {what}{tail}", user.name);
    let refused = Refused::new(StatusCode::FORBIDDEN, "Forbidden", message);
    match object {
        Some(name) => refused.about(PENDING_WORKLOADS, name),
        None => refused,
    }
}

fn not_found(queue: &Queue) -> Refused {
    let (kind, name, message) = match queue {
        Queue::Cluster(name) => (
            "clusterqueues",
            name.to_string(),
            format!("ClusterQueue {name} does not exist"),
        ),
        Queue::Local(key) => (
            "localqueues",
            key.name.to_string(),
            format!("LocalQueue {} does not exist in namespace {}", key.name, key.namespace),
        ),
    };
    Refused::new(StatusCode::NOT_FOUND, "NotFound", message).about(kind, name)
}

fn no_answer(why: NoAnswer) -> Refused {
    match why {
        NoAnswer::Crowded => {
            Refused::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", why.to_string()).retry_after(1)
        }
        NoAnswer::Late => Refused::unavailable(why.to_string()),
    }
}
