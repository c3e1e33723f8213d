//! Refusals as Kubernetes' clients know them: objects of kind `Status`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusDetails};

/// An answer that refuses.
#[derive(Debug)]
pub(super) struct Refused {
    code: StatusCode,
    reason: &'static str,
    message: String,
    /// Kind and name of the object concerned.
    object: Option<(&'static str, String)>,
    /// When to ask again.
    retry_seconds: Option<i32>,
    /// The methods that there are.
    allow: Option<&'static str>,
}

impl Refused {
    pub(super) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            object: None,
            retry_seconds: None,
            allow: None,
        }
    }

    pub(super) fn about(self, kind: &'static str, name: impl Into<String>) -> Self {
        Self {
            object: Some((kind, name.into())),
            ..self
        }
    }

    pub(super) fn retry_after(self, seconds: i32) -> Self {
        Self {
            retry_seconds: Some(seconds),
            ..self
        }
    }

    /// Asked in a way that there is not.
    pub(super) fn method(message: impl Into<String>, allow: &'static str) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
        }
    }

    /// This replica cannot answer now.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message).retry_after(1)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let details = StatusDetails {
            group: self.object.as_ref().map(|_| sluice_api::visibility::GROUP.to_owned()),
            kind: self.object.as_ref().map(|(kind, _)| (*kind).to_owned()),
            name: self.object.map(|(_, name)| name),
            retry_after_seconds: self.retry_seconds,
            ..StatusDetails::default()
        };
        let status = Status {
            code: Some(i32::from(self.code.as_u16())),
            status: Some("Failure".to_owned()),
            reason: Some(self.reason.to_owned()),
            message: Some(self.message),
            details: Some(details).filter(|details| *details != StatusDetails::default()),
            ..Status::default()
        };
        let mut response = (self.code, axum::Json(status)).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = self.retry_seconds {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(methods) = self.allow {
            headers.insert(header::ALLOW, HeaderValue::from_static(methods));
        }
        response
    }
}
