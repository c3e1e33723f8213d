//! Sluice itself on a plane: the chart installed, the real binaries under their own service accounts.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};
use sluice_pki::Authority;

use crate::balancer::Balancer;
use crate::binaries::{SluiceBinaries, text};
use crate::certificates;
use crate::chart::{Chart, Container, NAMESPACE};
use crate::fault::FaultProxy;
use crate::kubeconfig::Kubeconfig;
use crate::plane::Plane;
use crate::port::check_webhook_port;
use crate::supervisor::Program;
use crate::wait::eventually;

const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// How webhooks are started.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// Processes behind the Service's clusterIP; more than one stand behind a balancer.
    pub replicas: u16,
    /// Arguments that replace the chart's of the same flag, or are added: `--flag=value`.
    pub arguments: Vec<String>,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        Self {
            replicas: 1,
            arguments: Vec::new(),
        }
    }
}

/// How a scheduler is started.
#[derive(Clone, Default)]
pub struct SchedulerOptions {
    /// Name of the process; empty: `sluice-scheduler-N`.
    pub name: String,
    /// Arguments that replace the chart's of the same flag, or are added: `--flag=value`.
    pub arguments: Vec<String>,
    /// What stands between it and the API server.
    pub proxy: Option<Arc<FaultProxy>>,
}

/// The installed release and its processes.
pub struct Sluice {
    plane: Arc<Plane>,
    chart: Chart,
    binaries: SluiceBinaries,
    tls: PathBuf,
    authority: Authority,
    service: String,
    conversion: String,
    health: Mutex<BTreeMap<String, SocketAddr>>,
    /// Where schedulers serve the visibility API.
    visibility: Mutex<BTreeMap<String, SocketAddr>>,
    balancers: Mutex<Vec<Balancer>>,
}

impl Sluice {
    /// Installs the chart and starts one webhook and one scheduler; returns when both are ready and in force.
    pub async fn start(plane: &Arc<Plane>) -> Result<Self> {
        let sluice = Self::install(plane, &json!({})).await?;
        sluice.start_webhook(WebhookOptions::default()).await?;
        sluice.start_scheduler(SchedulerOptions::default()).await?;
        sluice.until_leading().await?;
        Ok(sluice)
    }

    /// Installs the chart with `values` over the tests' own (short lease times, a certificate); starts nothing.
    pub async fn install(plane: &Arc<Plane>, values: &Value) -> Result<Self> {
        check_webhook_port()?;
        // The build and the API server's work have nothing to wait for from each other.
        let (binaries, chart) = tokio::join!(SluiceBinaries::locate(), Self::install_chart(plane, values));
        let (chart, authority) = chart?;
        let sluice = Self {
            tls: plane.folder().join("webhook-tls"),
            service: service_name(&chart, "webhook")?,
            conversion: service_name(&chart, "conversion")?,
            plane: Arc::clone(plane),
            binaries: binaries?,
            chart,
            authority,
            health: Mutex::default(),
            visibility: Mutex::default(),
            balancers: Mutex::default(),
        };
        sluice.issue_certificate()?;
        sluice.forward_conversions().await?;
        sluice.until_policies_act().await?;
        Ok(sluice)
    }

    async fn install_chart(plane: &Plane, values: &Value) -> Result<(Chart, Authority)> {
        let authority = certificates::authority("sluice-webhook")?;
        let mut all = json!({
            "webhook": {"caBundle": STANDARD.encode(authority.certificate())},
            "scheduler": {"lease": {"duration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms"}},
            // Nobody stands behind its Service on a plane, until `serve_visibility`.
            "visibility": {"enabled": false},
            "logFormat": "text",
        });
        overlay(&mut all, values);
        let chart = Chart::render(plane.binaries(), &all, plane.folder()).await?;
        let kubectl = plane.kubectl();
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        let (definitions, rest): (Vec<&Value>, Vec<&Value>) = chart
            .objects()
            .iter()
            .partition(|object| object["kind"] == "CustomResourceDefinition");
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let first: Vec<&Value> = [&namespace].into_iter().chain(definitions.iter().copied()).collect();
        kubectl.run(&apply, &list(&first)).await?.ok()?;
        if !definitions.is_empty() {
            kubectl
                .line("wait crd --all --for=condition=Established --timeout=30s")
                .await?
                .ok()?;
        }
        kubectl.run(&apply, &list(&rest)).await?.ok()?;
        Ok((chart, authority))
    }

    /// The rendered chart.
    pub fn chart(&self) -> &Chart {
        &self.chart
    }

    /// The plane that this Sluice runs on.
    pub fn plane(&self) -> &Arc<Plane> {
        &self.plane
    }

    /// Folder with the webhook's `tls.crt` and `tls.key`.
    pub fn tls_folder(&self) -> &PathBuf {
        &self.tls
    }

    /// User name of the identity that the scheduler writes as, for the audit log.
    pub fn scheduler_user(&self) -> Result<String> {
        Ok(user_name(&self.chart.container("scheduler")?.service_account))
    }

    /// User name of the webhook's identity.
    pub fn webhook_user(&self) -> Result<String> {
        Ok(user_name(&self.chart.container("webhook")?.service_account))
    }

    /// Issues a new certificate for the webhook's Services into the TLS folder.
    pub fn issue_certificate(&self) -> Result<()> {
        let names: Vec<String> = [&self.service, &self.conversion]
            .into_iter()
            .map(|service| format!("{service}.{NAMESPACE}.svc"))
            .flat_map(|name| [name.clone(), format!("{name}.cluster.local")])
            .collect();
        certificates::write(&certificates::server(&self.authority, &names)?, &self.tls, "tls")
    }

    /// Starts webhooks named `sluice-webhook-0`, `-1` and so on; returns when Jobs reach them.
    pub async fn start_webhook(&self, options: WebhookOptions) -> Result<()> {
        let front = self.webhook_address().await?;
        let container = self.chart.container("webhook")?;
        let kubeconfig = self
            .plane
            .service_account(NAMESPACE, &container.service_account)
            .await?;
        let mut backends = Vec::new();
        for replica in 0..options.replicas {
            let listen = if options.replicas == 1 {
                front
            } else {
                self.plane.free_address()
            };
            backends.push(listen);
            let mut arguments = vec![
                format!("--bind-address={listen}"),
                format!("--tls-cert-file={}", text(&self.tls.join("tls.crt"))),
                format!("--tls-private-key-file={}", text(&self.tls.join("tls.key"))),
            ];
            arguments.extend(options.arguments.iter().cloned());
            self.start_container(&format!("sluice-webhook-{replica}"), &container, arguments, &kubeconfig)
                .await?;
        }
        if options.replicas > 1 {
            let balancer = Balancer::start(front, backends).await?;
            self.balancers
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(balancer);
        }
        for replica in 0..options.replicas {
            self.until_ready(&format!("sluice-webhook-{replica}")).await?;
        }
        self.until_webhook_acts().await
    }

    /// Starts one more scheduler; returns its name once it is up, leading or not.
    pub async fn start_scheduler(&self, options: SchedulerOptions) -> Result<String> {
        let container = self.chart.container("scheduler")?;
        let mut kubeconfig = self
            .plane
            .service_account(NAMESPACE, &container.service_account)
            .await?;
        let name = if options.name.is_empty() {
            self.next_scheduler()
        } else {
            options.name
        };
        if let Some(proxy) = &options.proxy {
            kubeconfig = proxy.kubeconfig(&kubeconfig, &self.plane.folder().join("kubeconfigs").join(&name))?;
        }
        let visibility = self.plane.free_address();
        let mut arguments = vec![format!("--visibility-bind-address={visibility}")];
        arguments.extend(options.arguments);
        self.visibility
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.clone(), visibility);
        self.start_container(&name, &container, arguments, &kubeconfig).await?;
        self.until_alive(&name).await?;
        Ok(name)
    }

    /// Lets the Service of the visibility API lead to these schedulers, and to no others.
    ///
    /// The API server calls its clusterIP, as it calls the webhook's. Endpoints are only looked for, never called: it would
    /// refuse those on loopback, which is all that a plane has.
    pub async fn serve_visibility(&self, schedulers: &[&str]) -> Result<()> {
        let name = self
            .chart
            .names("Service")
            .into_iter()
            .find(|name| name.ends_with("visibility"))
            .context("the chart has no Service of the visibility API")?;
        let backends = {
            let known = self.visibility.lock().unwrap_or_else(PoisonError::into_inner);
            let addresses = schedulers.iter().map(|name| known.get(*name).copied());
            addresses
                .collect::<Option<Vec<SocketAddr>>>()
                .context("no such scheduler")?
        };
        let front = self.service_address(&name).await?;
        let balancer = Balancer::start(front, backends).await?;
        self.balancers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(balancer);
        self.announce(&name, "visibility").await?;
        // Which stands in while no scheduler is there.
        self.announce(&self.service, "webhook").await
    }

    async fn announce(&self, service: &str, port: &str) -> Result<()> {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": service, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": service},
            },
            "addressType": "IPv4",
            "ports": [{"name": port, "port": 443, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": true}}],
        });
        self.plane.kubectl().apply(&slice.to_string()).await.map(drop)
    }

    fn next_scheduler(&self) -> String {
        let health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        let number = health
            .keys()
            .filter(|name| name.starts_with("sluice-scheduler-"))
            .count();
        format!("sluice-scheduler-{number}")
    }

    async fn start_container(
        &self,
        name: &str,
        container: &Container,
        overrides: Vec<String>,
        kubeconfig: &Kubeconfig,
    ) -> Result<()> {
        let health = self.plane.free_address();
        let (program, arguments) = container.argv.split_first().context("the container has no command")?;
        let mut argv = vec![text(&self.binaries.path(program))];
        argv.extend(arguments.iter().cloned());
        override_arguments(&mut argv, vec![format!("--health-bind-address={health}")]);
        if argument(&argv, "--config").is_some() {
            override_arguments(
                &mut argv,
                vec![format!("--config={}", text(&self.configuration_file()?))],
            );
        }
        override_arguments(&mut argv, overrides);
        let mut env: BTreeMap<String, String> = container.env.iter().cloned().collect();
        for (variable, field) in &container.fields {
            let value = match field.as_str() {
                "metadata.name" => name,
                "metadata.namespace" => NAMESPACE,
                "spec.serviceAccountName" => &container.service_account,
                other => bail!("testkit does not know the pod field {other}"),
            };
            env.insert(variable.clone(), value.to_owned());
        }
        env.insert("KUBECONFIG".to_owned(), text(&kubeconfig.path));
        // Where a panic came from is worth its lines; where an error was made is not.
        env.insert("RUST_BACKTRACE".to_owned(), "1".to_owned());
        env.insert("RUST_LIB_BACKTRACE".to_owned(), "0".to_owned());
        env.insert("NO_COLOR".to_owned(), "1".to_owned());
        self.health
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.to_owned(), health);
        self.plane
            .start_program(Program {
                argv,
                env,
                ..self.plane.program(name)
            })
            .await?;
        Ok(())
    }

    /// The configuration file, as the kubelet would mount it.
    fn configuration_file(&self) -> Result<PathBuf> {
        let file = "config.yaml";
        let text = self
            .chart
            .of_kind("ConfigMap")
            .find_map(|map| map["data"][file].as_str())
            .context("the chart has no ConfigMap with the configuration file")?;
        let path = self.plane.folder().join(file);
        std::fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
        Ok(path)
    }

    /// Leads the Service for conversions to the webhooks, whichever run.
    async fn forward_conversions(&self) -> Result<()> {
        let conversion = self.service_address(&self.conversion).await?;
        let balancer = Balancer::start(conversion, vec![self.webhook_address().await?]).await?;
        self.balancers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(balancer);
        Ok(())
    }

    /// Address that the API server calls the webhook at: its Service's clusterIP.
    pub async fn webhook_address(&self) -> Result<SocketAddr> {
        self.service_address(&self.service).await
    }

    async fn service_address(&self, name: &str) -> Result<SocketAddr> {
        let services: Api<Service> = Api::namespaced(self.plane.client().await?, NAMESPACE);
        let spec = services
            .get(name)
            .await?
            .spec
            .with_context(|| format!("Service {name} has no spec"))?;
        let address: IpAddr = spec
            .cluster_ip
            .with_context(|| format!("Service {name} has no clusterIP"))?
            .parse()?;
        let port = spec
            .ports
            .unwrap_or_default()
            .first()
            .map(|port| port.port)
            .with_context(|| format!("Service {name} has no port"))?;
        Ok(SocketAddr::new(address, u16::try_from(port)?))
    }

    /// Answer of a GET to a process's health and metrics server.
    pub async fn http_get(&self, process: &str, path: &str) -> Result<(u16, String)> {
        let address = self
            .health
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(process)
            .copied()
            .with_context(|| format!("no process is named {process}"))?;
        crate::fault::http_get(address, path).await
    }

    /// The process's metrics in Prometheus text format.
    pub async fn metrics(&self, process: &str) -> Result<String> {
        let (code, body) = self.http_get(process, "/metrics").await?;
        ensure!(code == 200, "/metrics of {process} answers {code}: {body}");
        Ok(body)
    }

    /// Waits until `/readyz` of the process answers 200.
    pub async fn until_ready(&self, process: &str) -> Result<()> {
        self.until_answers(process, "/readyz").await
    }

    /// Waits until `/healthz` of the process answers 200.
    pub async fn until_alive(&self, process: &str) -> Result<()> {
        self.until_answers(process, "/healthz").await
    }

    async fn until_answers(&self, process: &str, path: &str) -> Result<()> {
        let outcome = eventually(&format!("{path} of {process} answers 200"), READY_TIMEOUT, || async {
            if let Some(exit) = self.plane.exit(process) {
                return Ok(Some(exit));
            }
            match self.http_get(process, path).await? {
                (200, _) => Ok(None),
                (code, body) => Err(anyhow!("{code} {body}")),
            }
        })
        .await;
        match outcome {
            Ok(None) => Ok(()),
            Ok(Some(exit)) => bail!("{process} ended: {exit:?}\n{}", self.plane.log_tails(20)),
            Err(error) => Err(error.context(self.plane.log_tails(20))),
        }
    }

    /// Name of the process that holds the scheduler's lease, None while nobody does.
    pub async fn leader(&self) -> Result<Option<String>> {
        let arguments = self.chart.container("scheduler")?.argv;
        let namespace = argument(&arguments, "--lease-namespace").unwrap_or("kube-system");
        let lease_name = argument(&arguments, "--lease-name").unwrap_or("sluice-scheduler");
        let leases: Api<Lease> = Api::namespaced(self.plane.client().await?, namespace);
        let holder = leases
            .get_opt(lease_name)
            .await?
            .and_then(|lease| lease.spec?.holder_identity);
        let health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        // The identity is the pod's name and a random part.
        Ok(holder.and_then(|holder| {
            health
                .keys()
                .filter(|name| holder.starts_with(name.as_str()))
                .max_by_key(|name| name.len())
                .cloned()
        }))
    }

    /// Waits until some scheduler leads and says that it is ready; returns its name.
    pub async fn until_leading(&self) -> Result<String> {
        let leader = eventually("a scheduler leads", READY_TIMEOUT, || async {
            match self.leader().await? {
                Some(leader) if self.plane.exit(&leader).is_none() => Ok(leader),
                other => Err(anyhow!("the lease is held by {other:?}")),
            }
        })
        .await
        .map_err(|error| error.context(self.plane.log_tails(20)))?;
        self.until_ready(&leader).await?;
        Ok(leader)
    }

    /// A policy acts about a second after it was created: waits until a forged record is refused.
    async fn until_policies_act(&self) -> Result<()> {
        if self.chart.names("ValidatingAdmissionPolicyBinding").is_empty() {
            return Ok(());
        }
        // Ungrounded failurePolicy Fail would refuse it too, so the refusal must speak of the record.
        let forged = json!({"sluice.internal/admission": "{}"});
        eventually("the admission policies act", READY_TIMEOUT, || async {
            match self.dry_run("default", &json!({}), &forged).await {
                Err(kube::Error::Api(status)) if status.message.contains("sluice.internal/admission") => Ok(()),
                other => Err(anyhow!("a forged record got {other:?}")),
            }
        })
        .await
    }

    /// Waits until a labelled Job comes back suspended.
    async fn until_webhook_acts(&self) -> Result<()> {
        let labels = json!({"kueue.x-k8s.io/queue-name": "testkit-probe"});
        eventually("the webhook suspends Jobs", READY_TIMEOUT, || async {
            match self.dry_run("default", &labels, &json!({})).await {
                Ok(job) if job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true)) => Ok(()),
                other => Err(anyhow!("a labelled Job got {other:?}")),
            }
        })
        .await
        .map_err(|error| error.context(self.plane.log_tails(20)))
    }

    async fn dry_run(&self, namespace: &str, labels: &Value, annotations: &Value) -> Result<Job, kube::Error> {
        let client = self
            .plane
            .client()
            .await
            .map_err(|error| kube::Error::Service(error.into()))?;
        let job: Job = serde_json::from_value(json!({
            "metadata": {"name": "testkit-dry-run", "labels": labels, "annotations": annotations},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "probe", "image": "probe"}],
            }}},
        }))
        .map_err(kube::Error::SerdeError)?;
        let parameters = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        Api::namespaced(client, namespace).create(&parameters, &job).await
    }
}

fn list(items: &[&Value]) -> String {
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn service_name(chart: &Chart, ending: &str) -> Result<String> {
    chart
        .names("Service")
        .into_iter()
        .find(|name| name.ends_with(ending))
        .with_context(|| format!("the chart has no Service that ends with {ending}"))
}

fn user_name(service_account: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{service_account}")
}

fn overlay(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                overlay(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

fn flag(argument: &str) -> &str {
    argument.split_once('=').map_or(argument, |(flag, _)| flag)
}

fn argument<'a>(argv: &'a [String], name: &str) -> Option<&'a str> {
    argv.iter()
        .find(|argument| flag(argument) == name)?
        .split_once('=')
        .map(|(_, value)| value)
}

fn override_arguments(argv: &mut Vec<String>, overrides: Vec<String>) {
    for argument in overrides {
        argv.retain(|present| flag(present) != flag(&argument));
        argv.push(argument);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_override_replaces_the_argument_of_the_same_flag() {
        let mut argv = vec!["p".to_owned(), "--a=1".to_owned(), "--ab=2".to_owned()];
        override_arguments(&mut argv, vec!["--a=3".to_owned(), "--c".to_owned()]);
        assert_eq!(argv, ["p", "--ab=2", "--a=3", "--c"]);
        assert_eq!(argument(&argv, "--a"), Some("3"));
    }

    #[test]
    fn values_are_laid_over_each_other_key_by_key() {
        let mut base = json!({"a": {"b": 1, "c": 2}, "d": 3});
        overlay(&mut base, &json!({"a": {"c": null, "e": 4}, "d": {"f": 5}}));
        assert_eq!(base, json!({"a": {"b": 1, "c": null, "e": 4}, "d": {"f": 5}}));
    }
}
