//! A server with a small world, certificates for it, and a client of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use prometheus::Registry;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use sluice_admission::{Settings, World};
use sluice_pki::{Authority, Issued, Leaf, Resolver, ServingCertificate, Usage};
use sluice_runtime::certificate::CertificateFiles;
use sluice_webhook::{Limits, MUTATE_JOB, Metrics, Server, SharedWorld};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The name that the API server calls the webhook by.
pub(crate) const NAME: &str = "sluice-webhook.sluice-system.svc";

const HOUR: Duration = Duration::from_secs(3600);
/// Longer than any condition here takes to come true; it never does in a passing run.
const TOO_LONG: Duration = Duration::from_secs(60);

pub(crate) fn authority() -> Authority {
    let now = SystemTime::now();
    Authority::new("webhook test authority", now - HOUR, now + HOUR).unwrap()
}

pub(crate) fn issue(authority: &Authority) -> Issued {
    let now = SystemTime::now();
    authority
        .issue(&Leaf {
            common_name: NAME.to_owned(),
            organization: None,
            dns_names: vec![NAME.to_owned()],
            ip_addresses: Vec::new(),
            usage: Usage::Server,
            not_before: now - HOUR,
            not_after: now + HOUR,
        })
        .unwrap()
}

pub(crate) fn serving(issued: &Issued) -> ServingCertificate {
    ServingCertificate::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes()).unwrap()
}

/// Opted in: team-a, with the queue default.
pub(crate) fn world() -> World {
    let mut world = World::new(Settings {
        own_namespace: "sluice-system".to_owned(),
        ..Settings::default()
    });
    world.set_namespace("team-a", Some("true"));
    world.set_cluster_queue("cq");
    world.set_local_queue("team-a", "default", "cq");
    world
}

/// A server with its authority and its registry.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) authority: Authority,
    pub(crate) resolver: Arc<Resolver>,
    pub(crate) metrics: Metrics,
    registry: Registry,
}

impl Fixture {
    pub(crate) fn start(limits: Limits) -> Self {
        let authority = authority();
        let resolver = Arc::new(Resolver::new());
        resolver.replace(serving(&issue(&authority)));
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).unwrap();
        let world = SharedWorld::new(world());
        let address = "127.0.0.1:0".parse().unwrap();
        let server = Server::start(address, limits, world, Arc::clone(&resolver), metrics.clone()).unwrap();
        Self {
            server,
            authority,
            resolver,
            metrics,
            registry,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address(), &[&self.authority])
    }

    pub(crate) fn metrics_page(&self) -> String {
        prometheus::TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .unwrap()
    }
}

/// Opens connections to one server.
#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    connector: TlsConnector,
}

/// One open connection.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Serial number of the certificate that the server showed.
    pub(crate) serial: String,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    /// The server asks the client to close the connection.
    pub(crate) closes: bool,
    pub(crate) body: Bytes,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, trusted: &[&Authority]) -> Self {
        let mut roots = RootCertStore::empty();
        for authority in trusted {
            roots
                .add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap())
                .unwrap();
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            address,
            connector: TlsConnector::from(Arc::new(config)),
        }
    }

    pub(crate) async fn tls(&self) -> std::io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        self.connector
            .connect(ServerName::try_from(NAME).unwrap(), stream)
            .await
    }

    pub(crate) async fn connect(&self) -> std::io::Result<Connection> {
        let stream = self.tls().await?;
        let leaf = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        Ok(Connection {
            sender,
            serial: serial(&leaf),
        })
    }

    /// Posts over a connection of its own.
    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.connect().await.unwrap().post(path, body).await.unwrap()
    }
}

impl Connection {
    pub(crate) async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> hyper::Result<Answer> {
        let request = Request::post(path)
            .header("host", NAME)
            .body(Full::new(body.into()))
            .unwrap();
        self.sender.ready().await?;
        Answer::read(self.sender.send_request(request).await?).await
    }
}

impl Answer {
    pub(crate) async fn read<B: Body<Data = Bytes, Error = hyper::Error>>(
        response: Response<B>,
    ) -> hyper::Result<Self> {
        let status = response.status();
        let closes = response
            .headers()
            .get("connection")
            .is_some_and(|value| value == "close");
        Ok(Self {
            status,
            closes,
            body: response.into_body().collect().await?.to_bytes(),
        })
    }

    /// The response of a review that was answered in kind.
    pub(crate) fn response(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", String::from_utf8_lossy(&self.body));
        serde_json::from_slice::<Value>(&self.body).unwrap()["response"].clone()
    }
}

fn serial(leaf: &CertificateDer<'_>) -> String {
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf).unwrap();
    parsed.raw_serial_as_string()
}

/// A review of a new Job in team-a.
pub(crate) fn new_job() -> Vec<u8> {
    new_job_with(json!({}))
}

pub(crate) fn new_job_with(annotations: Value) -> Vec<u8> {
    serde_json::to_vec(&json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r-1",
            "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
            "operation": "CREATE",
            "namespace": "team-a",
            "userInfo": {"username": "jane"},
            "object": {
                "metadata": {"generateName": "train-", "annotations": annotations},
                "spec": {"template": {"spec": {"containers": []}}}
            }
        }
    }))
    .unwrap()
}

/// A review that asks for so many ClusterQueues of the older version in the newer one.
pub(crate) fn conversion(objects: usize) -> Vec<u8> {
    let queues: Vec<Value> = (0..objects)
        .map(|at| {
            json!({
                "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue",
                "metadata": {"name": format!("q-{at}"), "annotations": {"note": "x".repeat(2000)}},
                "spec": {"cohort": "research"},
            })
        })
        .collect();
    serde_json::to_vec(&json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "r-1", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": queues},
    }))
    .unwrap()
}

/// Asserts that a server still holds Jobs.
pub(crate) async fn still_answers(client: &Client) {
    let response = client.post(MUTATE_JOB, new_job()).await.response();
    assert_eq!(response["allowed"], true);
    assert!(response["patch"].is_string());
}

pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let poll = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(TOO_LONG, poll).await.is_ok(), "never: {what}");
}

/// Within the longest time that anything here takes.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TOO_LONG, future)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"))
}

/// A folder in which a certificate is mounted as the kubelet mounts a Secret: through the symbolic link `..data`.
pub(crate) struct Mount {
    folder: tempfile::TempDir,
    generation: u32,
}

impl Mount {
    pub(crate) fn new(issued: &Issued) -> Self {
        let mut mount = Self {
            folder: tempfile::tempdir().unwrap(),
            generation: 0,
        };
        mount.swap(&issued.certificate, &issued.key);
        for file in ["tls.crt", "tls.key"] {
            std::os::unix::fs::symlink(Path::new("..data").join(file), mount.folder.path().join(file)).unwrap();
        }
        mount
    }

    /// Puts new contents in place at once, as an update of the Secret does.
    pub(crate) fn swap(&mut self, certificate: &str, key: &str) {
        self.generation += 1;
        let name = format!("..{}", self.generation);
        let folder = self.folder.path().join(&name);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("tls.crt"), certificate).unwrap();
        std::fs::write(folder.join("tls.key"), key).unwrap();
        let link = self.folder.path().join("..data_tmp");
        std::os::unix::fs::symlink(&name, &link).unwrap();
        std::fs::rename(&link, self.folder.path().join("..data")).unwrap();
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    pub(crate) fn files(&self) -> CertificateFiles {
        CertificateFiles {
            certificate: self.path().join("tls.crt"),
            key: self.path().join("tls.key"),
            interval: Duration::from_millis(20),
        }
    }
}
