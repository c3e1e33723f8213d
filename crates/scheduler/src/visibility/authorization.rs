//! May they? Asked of the API server by SubjectAccessReview, remembered for seconds, and no when it does not say yes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use kube::Client;
use kube::api::{Api, PostParams};
use sluice_api::visibility::GROUP;
use tokio::time::Instant;

use super::authentication::User;
use super::target::Attributes;

/// An answer counts for so long: what RBAC takes away is gone here after that.
const REMEMBERED: Duration = Duration::from_secs(10);
/// A refusal counts for less: what RBAC grants should be there soon.
const REFUSED: Duration = Duration::from_secs(2);
/// Answers remembered at most.
const ANSWERS: usize = 4_096;
/// The longest path of which an answer is remembered, in bytes: all names that there can be fit, and nobody can fill the memory
/// with names that there are not.
const LONGEST_PATH: usize = 1_024;
/// The API server's own administrators may do everything everywhere, and its own checks must not hang on a review.
const MASTERS: &str = "system:masters";

/// What the API server is asked with.
type Ask =
    Arc<dyn Fn(SubjectAccessReviewSpec) -> BoxFuture<'static, Result<SubjectAccessReviewStatus, String>> + Send + Sync>;

/// Why a request is not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Denied {
    /// The API server says no; its reason, which may be empty.
    #[error("{0}")]
    Forbidden(String),
    /// The API server did not say anything.
    #[error("failed to ask the API server whether this is allowed: {0}")]
    Unknown(String),
}

#[derive(Clone, Debug)]
struct Answer {
    until: Instant,
    /// The reason of a no.
    verdict: Result<(), String>,
}

/// Asks and remembers.
#[derive(Clone)]
pub(super) struct Authorizer {
    ask: Ask,
    answers: Arc<Mutex<BTreeMap<(User, Attributes), Answer>>>,
}

impl Authorizer {
    /// Asks through this client, and waits for an answer so long.
    pub(super) fn new(client: Client, timeout: Duration) -> Self {
        Self::asking(Arc::new(move |spec| {
            let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
            Box::pin(async move {
                let review = SubjectAccessReview {
                    spec,
                    ..SubjectAccessReview::default()
                };
                let parameters = PostParams::default();
                let answered = tokio::time::timeout(timeout, reviews.create(&parameters, &review)).await;
                let review = answered.map_err(|_| "it took too long".to_owned())?;
                let review = review.map_err(|error| error.to_string())?;
                review.status.ok_or_else(|| "its answer has no status".to_owned())
            })
        }))
    }

    pub(super) fn asking(ask: Ask) -> Self {
        Self {
            ask,
            answers: Arc::default(),
        }
    }

    /// Whether a user may do this.
    pub(super) async fn may(&self, user: &User, attributes: &Attributes) -> Result<(), Denied> {
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let key = (user.clone(), attributes.clone());
        if let Some(verdict) = self.remembered(&key) {
            return verdict.map_err(Denied::Forbidden);
        }
        let status = (self.ask)(review(user, attributes)).await.map_err(Denied::Unknown)?;
        let verdict = if status.allowed && status.denied != Some(true) {
            Ok(())
        } else {
            Err(status.reason.unwrap_or_default())
        };
        if attributes.path.len() <= LONGEST_PATH {
            self.remember(key, verdict.clone());
        }
        verdict.map_err(Denied::Forbidden)
    }

    fn remembered(&self, key: &(User, Attributes)) -> Option<Result<(), String>> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answers.get(key).filter(|answer| answer.until > Instant::now())?;
        Some(answer.verdict.clone())
    }

    fn remember(&self, key: (User, Attributes), verdict: Result<(), String>) {
        let now = Instant::now();
        let until = now + if verdict.is_ok() { REMEMBERED } else { REFUSED };
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= ANSWERS {
            answers.retain(|_, answer| answer.until > now);
        }
        if answers.len() >= ANSWERS {
            answers.pop_first();
        }
        answers.insert(key, Answer { until, verdict });
    }
}

fn review(user: &User, attributes: &Attributes) -> SubjectAccessReviewSpec {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let verb = given(attributes.verb);
    let mut spec = SubjectAccessReviewSpec {
        user: given(&user.name),
        uid: given(&user.uid),
        groups: Some(user.groups.clone()),
        extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
        ..SubjectAccessReviewSpec::default()
    };
    match &attributes.resource {
        Some(resource) => {
            spec.resource_attributes = Some(ResourceAttributes {
                group: given(GROUP),
                version: given(&resource.version),
                resource: given(&resource.resource),
                subresource: given(&resource.subresource),
                namespace: given(&resource.namespace),
                name: given(&resource.name),
                verb,
                ..ResourceAttributes::default()
            });
        }
        None => {
            spec.non_resource_attributes = Some(NonResourceAttributes {
                path: given(&attributes.path),
                verb,
            });
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use axum::http::Method;

    use super::super::target::attributes;
    use super::*;

    type Asked = Arc<Mutex<Vec<SubjectAccessReviewSpec>>>;

    /// Says yes to ann and no to everybody else, and nothing at all about `lost`.
    fn authorizer() -> (Authorizer, Asked) {
        let asked = Asked::default();
        let seen = asked.clone();
        let ask: Ask = Arc::new(move |spec| {
            seen.lock().unwrap().push(spec.clone());
            Box::pin(async move {
                match spec.user.as_deref() {
                    Some("lost") => Err("timed out".to_owned()),
                    user => Ok(SubjectAccessReviewStatus {
                        allowed: user == Some("ann"),
                        reason: Some("by test".to_owned()),
                        ..SubjectAccessReviewStatus::default()
                    }),
                }
            })
        });
        (Authorizer::asking(ask), asked)
    }

    fn user(name: &str) -> User {
        User {
            name: name.to_owned(),
            groups: vec!["system:authenticated".to_owned()],
            ..User::default()
        }
    }

    fn get(path: &str) -> Attributes {
        attributes(&Method::GET, &path.parse().unwrap())
    }

    const LOCAL: &str = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/lq/pendingworkloads";

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_remembered_for_seconds_for_this_user_and_request_alone() {
        let (authorizer, asked) = authorizer();
        let times = || asked.lock().unwrap().len();
        for _ in 0..3 {
            authorizer.may(&user("ann"), &get(LOCAL)).await.unwrap();
        }
        assert_eq!(times(), 1);
        let spec = asked.lock().unwrap()[0].clone();
        let resource = spec.resource_attributes.unwrap();
        assert_eq!(resource.verb.as_deref(), Some("get"));
        assert_eq!(resource.subresource.as_deref(), Some("pendingworkloads"));
        assert_eq!(resource.namespace.as_deref(), Some("team"));

        authorizer
            .may(&user("ann"), &get(&LOCAL.replace("team", "other")))
            .await
            .unwrap();
        assert_eq!(times(), 2);
        let no = authorizer.may(&user("bob"), &get(LOCAL)).await;
        assert_eq!(no, Err(Denied::Forbidden("by test".to_owned())));
        assert_eq!(times(), 3);
        tokio::time::advance(REFUSED).await;
        let _no = authorizer.may(&user("bob"), &get(LOCAL)).await;
        authorizer.may(&user("ann"), &get(LOCAL)).await.unwrap();
        assert_eq!(times(), 4, "a refusal is asked again sooner");
        tokio::time::advance(REMEMBERED).await;
        authorizer.may(&user("ann"), &get(LOCAL)).await.unwrap();
        assert_eq!(times(), 5);
    }

    #[tokio::test]
    async fn silence_of_the_api_server_is_a_no_that_is_not_remembered() {
        let (authorizer, asked) = authorizer();
        for times in 1..3 {
            let unknown = authorizer.may(&user("lost"), &get("/apis")).await;
            assert_eq!(unknown, Err(Denied::Unknown("timed out".to_owned())));
            assert_eq!(asked.lock().unwrap().len(), times);
        }
        let plain = asked.lock().unwrap()[0].non_resource_attributes.clone().unwrap();
        assert_eq!(
            (plain.path.as_deref(), plain.verb.as_deref()),
            (Some("/apis"), Some("get"))
        );
    }

    #[tokio::test]
    async fn the_api_servers_own_checks_need_no_review() {
        let (authorizer, asked) = authorizer();
        let mut aggregator = user("system:kube-aggregator");
        aggregator.groups.push(MASTERS.to_owned());
        authorizer.may(&aggregator, &get("/apis")).await.unwrap();
        assert!(asked.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn what_is_remembered_is_bounded() {
        let (authorizer, _) = authorizer();
        for number in 0..ANSWERS + 10 {
            authorizer
                .may(&user("ann"), &get(&format!("{LOCAL}/{number}")))
                .await
                .unwrap();
        }
        assert_eq!(authorizer.answers.lock().unwrap().len(), ANSWERS);
    }

    #[tokio::test]
    async fn what_is_remembered_is_bounded_in_bytes_too() {
        let (authorizer, _) = authorizer();
        let long = "x".repeat(60_000);
        for number in 0..100 {
            let path = LOCAL.replace("/lq/", &format!("/{long}{number}/"));
            authorizer.may(&user("ann"), &get(&path)).await.unwrap();
        }
        let answers = authorizer.answers.lock().unwrap();
        let name = |resource: &super::super::target::Object| resource.name.len();
        let bytes: usize = answers
            .keys()
            .map(|(_, asked)| asked.path.len() + asked.resource.as_ref().map_or(0, name))
            .sum();
        assert!(bytes <= 100 * 4_096, "{bytes} bytes for {} answers", answers.len());
    }
}
