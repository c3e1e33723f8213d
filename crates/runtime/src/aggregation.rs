//! APIServices of an aggregated API: led to a stand-in while nobody serves them, and back.
//!
//! An APIService whose server is gone makes discovery fail, and without discovery the API server's controllers delete no
//! namespace. Such an APIService is *parked*: it leads to the Service of a stand-in that answers discovery and nothing else,
//! and an annotation says where it led before. (One that leads nowhere does not help: the API server keeps its discovery
//! marked as stale, tried on 1.36.3.)
//!
//! ```text
//! served --nobody answers for a while: Attendant::Warden--> parked --somebody serves: Attendant::Server--> served
//! ```
//!
//! Neither ever creates one: what was uninstalled stays away.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use crate::shutdown::Shutdown;
use crate::watch::{Change, PumpConfig, Watches};

/// On a parked APIService: what it was, as JSON.
const PARKED: &str = "sluice.internal/parked";
/// How often APIServices are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Longest that a write may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// An APIService that was put back and is parked again is left so for a while: its server cannot be reached.
const AGAIN: Duration = Duration::from_secs(300);

/// A Service that answers discovery in place of one that is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandIn {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The authority of its certificate, base64 of PEM; without one nobody checks it.
    pub ca_bundle: Option<String>,
}

/// Who looks after the APIServices.
#[derive(Clone)]
pub enum Attendant {
    /// Parks those that were unavailable for a while.
    Warden {
        /// How long.
        after: Duration,
        /// Who answers discovery meanwhile.
        stand_in: StandIn,
    },
    /// Puts back parked ones once this says that the process serves them.
    Server {
        /// Whether it does.
        serves: std::sync::Arc<dyn Fn() -> bool + Send + Sync>,
    },
}

impl std::fmt::Debug for Attendant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Warden { after, stand_in } => {
                let mut debug = f.debug_struct("Warden");
                debug.field("after", after).field("stand_in", stand_in).finish()
            }
            Self::Server { .. } => f.debug_struct("Server").finish_non_exhaustive(),
        }
    }
}

/// Looks after the APIServices of these names until `shutdown`. Nobody else waits for these watches.
pub fn attend(
    watches: &Watches,
    client: Client,
    names: &[String],
    attendant: Attendant,
    shutdown: Shutdown,
) -> JoinHandle<()> {
    let (sink, mut changes) = mpsc::channel(16);
    let watches = watches.apart();
    for name in names {
        let config = PumpConfig {
            fields: Some(format!("metadata.name={name}")),
            ..PumpConfig::default()
        };
        let watched = name.clone();
        watches.spawn::<APIService, _, _>(config, sink.clone(), move |change| (watched.clone(), change));
    }
    tokio::spawn(async move {
        let mut desk = Desk::new(attendant);
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.triggered() => return,
                Some((name, change)) = changes.recv() => desk.take(name, change, Instant::now()),
                _ = looks.tick() => {
                    for (name, patch) in desk.wanted(Instant::now()) {
                        write(&client, &name, &patch).await;
                    }
                }
            }
        }
    })
}

async fn write(client: &Client, name: &str, patch: &Value) {
    let services: Api<APIService> = Api::all(client.clone());
    let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
    match tokio::time::timeout(TIMEOUT, services.patch(name, &params, &patch)).await {
        Ok(Ok(service)) if is_parked(&service) => {
            tracing::warn!(
                name,
                "nobody serves this APIService: it leads to a stand-in now, so that namespaces can be deleted"
            );
        }
        Ok(Ok(_)) => tracing::info!(name, "this APIService is served again: it leads to its own Service now"),
        // Somebody else was first, or it is gone.
        Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => {}
        Ok(Err(error)) => tracing::warn!(name, %error, "failed to park or put back this APIService; tried again soon"),
        Err(_) => tracing::warn!(
            name,
            "failed to park or put back this APIService in time; tried again soon"
        ),
    }
}

/// What is known of one APIService.
#[derive(Debug)]
struct Known {
    service: APIService,
    /// Since when it is seen to be unavailable.
    unavailable_since: Option<Instant>,
}

/// What is known, and what is to be done about it.
#[derive(Debug)]
struct Desk {
    attendant: Attendant,
    known: BTreeMap<String, Known>,
    /// When one that was put back may be put back again.
    put_back: BTreeMap<String, Instant>,
}

impl Desk {
    fn new(attendant: Attendant) -> Self {
        Self {
            attendant,
            known: BTreeMap::new(),
            put_back: BTreeMap::new(),
        }
    }

    fn take(&mut self, name: String, change: Change<APIService>, now: Instant) {
        let newest = match change {
            Change::Apply(newest) => Some(newest),
            Change::Reset { live, .. } => live.into_iter().next(),
            Change::Delete { .. } => None,
            Change::Broken(_) => return,
        };
        let Some(service) = newest else {
            self.known.remove(&name);
            return;
        };
        let before = self.known.get(&name).and_then(|known| known.unavailable_since);
        let unavailable_since = is_unavailable(&service).then(|| before.unwrap_or(now));
        self.known.insert(
            name,
            Known {
                service,
                unavailable_since,
            },
        );
    }

    /// The patches to be sent now. Those that come back as changes are not wanted again.
    fn wanted(&mut self, now: Instant) -> Vec<(String, Value)> {
        let mut wanted = Vec::new();
        for (name, known) in &self.known {
            let patch = match &self.attendant {
                Attendant::Warden { after, stand_in } => {
                    let due = known.unavailable_since.is_some_and(|since| now >= since + *after);
                    due.then(|| park(&known.service, stand_in)).flatten()
                }
                Attendant::Server { serves } => {
                    let may = self.put_back.get(name).is_none_or(|again| now >= *again) && serves();
                    may.then(|| put_back(&known.service)).flatten()
                }
            };
            if let Some(patch) = patch {
                if matches!(self.attendant, Attendant::Server { .. }) {
                    self.put_back.insert(name.clone(), now + AGAIN);
                }
                wanted.push((name.clone(), patch));
            }
        }
        wanted
    }
}

fn is_unavailable(service: &APIService) -> bool {
    let conditions = service.status.as_ref().and_then(|status| status.conditions.as_ref());
    let available = conditions
        .into_iter()
        .flatten()
        .find(|condition| condition.type_ == "Available");
    available.is_some_and(|condition| condition.status == "False")
}

fn is_parked(service: &APIService) -> bool {
    let annotations = service.metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(PARKED))
}

/// The fields of a spec that say where it leads.
const LEADS: [&str; 3] = ["service", "caBundle", "insecureSkipTLSVerify"];

/// The patch that parks it; none if it leads to the stand-in already, or nowhere. Whoever wrote the manifest anew may have
/// left the annotation: what counts is where it leads.
fn park(service: &APIService, stand_in: &StandIn) -> Option<Value> {
    let spec = service.spec.as_ref()?;
    let leads_to = spec.service.as_ref()?;
    if leads_to.name.as_ref() == Some(&stand_in.name) && leads_to.namespace.as_ref() == Some(&stand_in.namespace) {
        return None;
    }
    let mut was = serde_json::to_value(spec).ok()?;
    was.as_object_mut()?.retain(|field, _| LEADS.contains(&field.as_str()));
    let checked = stand_in.ca_bundle.as_ref();
    Some(json!({
        "metadata": {
            "resourceVersion": service.metadata.resource_version,
            "annotations": {PARKED: was.to_string()},
        },
        "spec": {
            "service": {"namespace": stand_in.namespace, "name": stand_in.name, "port": 443},
            "caBundle": checked,
            "insecureSkipTLSVerify": checked.is_none().then_some(true),
        },
    }))
}

/// The patch that undoes [`park`]; none if it is not parked, or if what it was cannot be read.
fn put_back(service: &APIService) -> Option<Value> {
    let was = service.metadata.annotations.as_ref()?.get(PARKED)?;
    let was: Value = serde_json::from_str(was).ok()?;
    // What it did not say before it must not say again.
    let spec: Value = LEADS
        .iter()
        .map(|field| ((*field).to_owned(), was[*field].clone()))
        .collect();
    Some(json!({
        "metadata": {
            "resourceVersion": service.metadata.resource_version,
            "annotations": {PARKED: null},
        },
        "spec": spec,
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const NAME: &str = "v1beta2.visibility.kueue.x-k8s.io";

    fn service(available: &str) -> Value {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": NAME, "resourceVersion": "7", "annotations": {"kept": "yes"}},
            "spec": {
                "group": "visibility.kueue.x-k8s.io", "version": "v1beta2",
                "groupPriorityMinimum": 100, "versionPriority": 200, "caBundle": "YWJj",
                "service": {"name": "sluice-visibility", "namespace": "sluice-system", "port": 443},
            },
            "status": {"conditions": [{"type": "Available", "status": available}]},
        })
    }

    fn warden(after: Duration) -> Desk {
        let stand_in = StandIn {
            namespace: "sluice-system".to_owned(),
            name: "sluice-webhook".to_owned(),
            ca_bundle: None,
        };
        Desk::new(Attendant::Warden { after, stand_in })
    }

    fn apply(desk: &mut Desk, service: &Value, now: Instant) {
        let service: APIService = serde_json::from_value(service.clone()).unwrap();
        desk.take(NAME.to_owned(), Change::Apply(service), now);
    }

    /// What the API server makes of a merge patch.
    fn merge(into: &mut Value, patch: &Value) {
        let Value::Object(fields) = patch else {
            *into = patch.clone();
            return;
        };
        for (key, value) in fields {
            if value.is_null() {
                into.as_object_mut().unwrap().remove(key);
            } else {
                merge(
                    into.as_object_mut().unwrap().entry(key).or_insert_with(|| json!({})),
                    value,
                );
            }
        }
    }

    #[test]
    fn what_was_unavailable_long_enough_is_parked_and_put_back_as_it_was() {
        let start = Instant::now();
        let after = Duration::from_secs(20);
        let mut warden = warden(after);
        let whole = service("False");
        apply(&mut warden, &service("True"), start);
        apply(&mut warden, &whole, start + after);
        apply(&mut warden, &whole, start + after + Duration::from_secs(19));
        assert!(warden.wanted(start + after + Duration::from_secs(19)).is_empty());
        let patches = warden.wanted(start + 2 * after);
        let mut parked = whole.clone();
        merge(&mut parked, &patches[0].1);
        assert_eq!(patches[0].1["metadata"]["resourceVersion"], "7");
        assert_eq!(
            parked["spec"]["service"],
            json!({"namespace": "sluice-system", "name": "sluice-webhook", "port": 443})
        );
        assert_eq!(parked["spec"].get("caBundle"), None);
        assert_eq!(parked["spec"]["insecureSkipTLSVerify"], true);
        apply(&mut warden, &parked, start + 2 * after);
        assert!(warden.wanted(start + 3 * after).is_empty(), "it is parked already");

        let mut written_anew = parked.clone();
        written_anew["spec"] = whole["spec"].clone();
        apply(&mut warden, &written_anew, start + 2 * after);
        assert_eq!(
            warden.wanted(start + 3 * after).len(),
            1,
            "a manifest was applied again"
        );

        let serving = Arc::new(AtomicBool::new(false));
        let serves = Arc::clone(&serving);
        let mut server = Desk::new(Attendant::Server {
            serves: Arc::new(move || serves.load(Ordering::Relaxed)),
        });
        apply(&mut server, &parked, start);
        assert!(server.wanted(start).is_empty(), "nobody serves it yet");
        serving.store(true, Ordering::Relaxed);
        let patches = server.wanted(start);
        let mut back = parked.clone();
        merge(&mut back, &patches[0].1);
        assert_eq!(back, whole);
        apply(&mut server, &back, start);
        assert!(server.wanted(start).is_empty());
        apply(&mut server, &parked, start + AGAIN / 2);
        assert!(
            server.wanted(start + AGAIN / 2).is_empty(),
            "it did not help the last time"
        );
        assert_eq!(server.wanted(start + AGAIN).len(), 1);
    }

    #[test]
    fn a_stand_in_with_a_known_authority_is_checked() {
        let stand_in = StandIn {
            namespace: "a".to_owned(),
            name: "b".to_owned(),
            ca_bundle: Some("ZGVm".to_owned()),
        };
        let whole: APIService = serde_json::from_value(service("False")).unwrap();
        let patch = park(&whole, &stand_in).unwrap();
        assert_eq!(patch["spec"]["caBundle"], "ZGVm");
        assert_eq!(patch["spec"]["insecureSkipTLSVerify"], Value::Null);
    }

    #[test]
    fn availability_in_between_begins_the_wait_anew() {
        let start = Instant::now();
        let after = Duration::from_secs(20);
        let mut warden = warden(after);
        apply(&mut warden, &service("False"), start);
        apply(&mut warden, &service("True"), start + after / 2);
        apply(&mut warden, &service("False"), start + after / 2);
        assert!(warden.wanted(start + after).is_empty());
        assert_eq!(warden.wanted(start + 2 * after).len(), 1);
    }

    #[test]
    fn what_is_gone_or_was_never_served_by_anybody_is_left_alone() {
        let start = Instant::now();
        let mut warden = warden(Duration::ZERO);
        let mut local = service("False");
        local["spec"].as_object_mut().unwrap().remove("service");
        apply(&mut warden, &local, start);
        assert!(warden.wanted(start).is_empty());
        let mut server = Desk::new(Attendant::Server {
            serves: Arc::new(|| true),
        });
        apply(&mut server, &local, start);
        assert!(server.wanted(start).is_empty());
        apply(&mut warden, &service("False"), start);
        let reset = Change::Reset {
            live: vec![],
            removed: vec![],
            broken: vec![],
        };
        warden.take(NAME.to_owned(), reset, start);
        assert!(warden.wanted(start).is_empty());
    }
}
