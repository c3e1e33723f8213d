//! The answer to a review, as bytes and as a fact to log and count.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use json_patch::Patch;
use serde::Serialize;

use crate::review::{API_VERSION, KIND, Request, Reviewed, Unreadable};

/// What a rule says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verdict {
    Allow {
        patch: Option<Patch>,
        warnings: Vec<String>,
        reason: String,
    },
    Deny(Denial),
}

impl Verdict {
    pub(crate) fn untouched(reason: impl Into<String>) -> Self {
        Self::Allow {
            patch: None,
            warnings: Vec::new(),
            reason: reason.into(),
        }
    }
}

/// Why a write is refused, in the words of a Kubernetes Status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Each field at fault and what is wrong with it.
    pub(crate) causes: Vec<(String, String)>,
}

impl Denial {
    pub(crate) fn bad_request(message: String) -> Self {
        Self {
            code: 400,
            reason: "BadRequest",
            message,
            causes: Vec::new(),
        }
    }

    pub(crate) fn invalid(causes: Vec<(String, String)>) -> Self {
        let lines: Vec<String> = causes
            .iter()
            .map(|(field, problem)| format!("{field}: {problem}"))
            .collect();
        Self {
            code: 422,
            reason: "Invalid",
            message: lines.join("; "),
            causes,
        }
    }
}

/// How a review ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Allowed as it is.
    Untouched,
    /// Allowed with a patch.
    Patched,
    /// Objects were converted to another version.
    Converted,
    /// Refused.
    Denied,
    /// Not a review that could be read.
    Unreadable,
}

impl Outcome {
    /// A word for logs and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Untouched => "untouched",
            Self::Patched => "patched",
            Self::Converted => "converted",
            Self::Denied => "denied",
            Self::Unreadable => "unreadable",
        }
    }
}

/// What was decided, about what, and why: one line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// How the review ended.
    pub outcome: Outcome,
    /// Why.
    pub reason: String,
    /// The review's uid; empty if it could not be read.
    pub uid: String,
    /// CREATE, UPDATE, DELETE, CONNECT or CONVERT; empty if it could not be read.
    pub operation: &'static str,
    /// The object's namespace; empty if it has none or it could not be read.
    pub namespace: String,
    /// The object's name; empty if it is to be generated or could not be read.
    pub name: String,
    /// Who asked.
    pub username: String,
    /// Whether nothing will be stored.
    pub dry_run: bool,
    /// What the user is told besides.
    pub warnings: Vec<String>,
}

/// The answer to one review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status: 200 for an AdmissionReview, 400 where not even its uid could be read.
    pub http_status: u16,
    /// MIME type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
    /// What was decided.
    pub decision: Decision,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireReview<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: WireResponse<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireResponse<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<WireStatus<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    /// Base64, as Go's `[]byte` travels in JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    warnings: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus<'a> {
    status: &'static str,
    code: u16,
    reason: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<WireDetails<'a>>,
}

#[derive(Serialize)]
struct WireDetails<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    group: &'static str,
    kind: &'static str,
    causes: Vec<WireCause<'a>>,
}

#[derive(Serialize)]
struct WireCause<'a> {
    reason: &'static str,
    message: &'a str,
    field: &'a str,
}

impl Reply {
    /// The answer to a review that could be read.
    pub(crate) fn to(request: Request, verdict: Verdict) -> Self {
        let encoded = match &verdict {
            Verdict::Allow { patch: Some(patch), .. } => match serde_json::to_vec(patch) {
                Ok(bytes) => Some(STANDARD.encode(bytes)),
                Err(err) => return Self::broken(&err.to_string()),
            },
            _ => None,
        };
        let (outcome, reason, warnings, denial) = match verdict {
            Verdict::Allow {
                patch,
                warnings,
                reason,
            } => {
                let outcome = if patch.is_some() {
                    Outcome::Patched
                } else {
                    Outcome::Untouched
                };
                (outcome, reason, warnings, None)
            }
            Verdict::Deny(denial) => (Outcome::Denied, denial.message.clone(), Vec::new(), Some(denial)),
        };
        let response = WireResponse {
            uid: &request.uid,
            allowed: denial.is_none(),
            status: denial
                .as_ref()
                .map(|denial| status(denial, request.reviewed, &request.name)),
            patch_type: encoded.is_some().then_some("JSONPatch"),
            patch: encoded,
            warnings: &warnings,
        };
        let body = match review(response) {
            Ok(body) => body,
            Err(err) => return Self::broken(&err.to_string()),
        };
        Self {
            http_status: 200,
            content_type: "application/json",
            body,
            decision: Decision {
                outcome,
                reason,
                uid: request.uid,
                operation: request.operation.as_str(),
                namespace: request.namespace,
                name: request.name,
                username: request.username,
                dry_run: request.dry_run,
                warnings,
            },
        }
    }

    /// The answer to something that is no review, or not one of ours.
    ///
    /// With a uid it is a refusal in kind. Without, the API server treats the call as failed and the webhook
    /// configuration's failure policy decides.
    pub(crate) fn to_unreadable(unreadable: &Unreadable, reviewed: &Reviewed) -> Self {
        let message = unreadable.error.to_string();
        let uid = unreadable.uid.clone().unwrap_or_default();
        let in_kind = unreadable.uid.as_deref().and_then(|uid| {
            let denial = Denial::bad_request(message.clone());
            review(WireResponse {
                uid,
                allowed: false,
                status: Some(status(&denial, reviewed, "")),
                patch_type: None,
                patch: None,
                warnings: &[],
            })
            .ok()
        });
        let (http_status, content_type, body) = match in_kind {
            Some(body) => (200, "application/json", body),
            None => (400, "text/plain; charset=utf-8", format!("{message}\n").into_bytes()),
        };
        Self {
            http_status,
            content_type,
            body,
            decision: Decision::unreadable(uid, message),
        }
    }

    /// Serialising a patch made of strings cannot fail; if it does all the same, the call fails and says so.
    fn broken(message: &str) -> Self {
        Self {
            http_status: 500,
            content_type: "text/plain; charset=utf-8",
            body: format!("failed to write the response: {message}\n").into_bytes(),
            decision: Decision::unreadable(String::new(), message.to_owned()),
        }
    }
}

impl Decision {
    /// About many objects at once, by the API server itself.
    pub(crate) fn of_conversion(outcome: Outcome, reason: String, uid: String) -> Self {
        Self {
            outcome,
            operation: "CONVERT",
            ..Self::unreadable(uid, reason)
        }
    }

    fn unreadable(uid: String, reason: String) -> Self {
        Self {
            outcome: Outcome::Unreadable,
            reason,
            uid,
            operation: "",
            namespace: String::new(),
            name: String::new(),
            username: String::new(),
            dry_run: false,
            warnings: Vec::new(),
        }
    }
}

fn review(response: WireResponse<'_>) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&WireReview {
        api_version: API_VERSION,
        kind: KIND,
        response,
    })
}

fn status<'a>(denial: &'a Denial, reviewed: &Reviewed, name: &'a str) -> WireStatus<'a> {
    let causes: Vec<_> = denial
        .causes
        .iter()
        .map(|(field, message)| WireCause {
            reason: "FieldValueInvalid",
            message,
            field,
        })
        .collect();
    WireStatus {
        status: "Failure",
        code: denial.code,
        reason: denial.reason,
        message: &denial.message,
        details: (!causes.is_empty()).then_some(WireDetails {
            name,
            group: reviewed.group,
            kind: reviewed.kind,
            causes,
        }),
    }
}
