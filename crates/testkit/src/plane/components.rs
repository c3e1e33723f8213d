//! What each program of a plane is started with, and the keys it needs.

use std::collections::BTreeMap;

use anyhow::Result;

use super::{Plane, PlaneOptions, address};
use crate::binaries::text;
use crate::certificates;
use crate::nodes::STAGES;
use crate::supervisor::Program;

const CONTROLLERS: &[&str] = &[
    "job-controller",
    "cronjob-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "ttl-after-finished-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "pod-garbage-collector-controller",
    "clusterrole-aggregation-controller",
];

const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  nonResourceURLs: ['/healthz*', '/livez*', '/readyz*', '/openapi*', '/version*', '/api', '/api/*', '/apis', '/apis/*']
- level: Metadata
";

impl Plane {
    fn pki(&self, file: &str) -> String {
        text(&self.root.join("pki").join(file))
    }

    pub(super) fn write_pki(&self) -> Result<()> {
        let folder = self.root.join("pki");
        std::fs::write(folder.join("ca.crt"), self.authority.certificate())?;
        let names = [
            address(self.network(), 0).ip().to_string(),
            format!("127.77.{}.1", self.network()),
            "localhost".to_owned(),
            "kubernetes.default.svc".to_owned(),
        ];
        certificates::write(&certificates::server(&self.authority, &names)?, &folder, "apiserver")?;
        let accounts = rcgen::KeyPair::generate()?;
        std::fs::write(folder.join("service-accounts.key"), accounts.serialize_pem())?;
        std::fs::write(folder.join("service-accounts.pub"), accounts.public_key_pem())?;
        // Aggregated API servers trust the front proxy by an authority of its own.
        let front_proxy = certificates::authority("sluice-plane-front-proxy")?;
        std::fs::write(folder.join("front-proxy-ca.crt"), front_proxy.certificate())?;
        let proxy = certificates::client(&front_proxy, "front-proxy-client", &[])?;
        certificates::write(&proxy, &folder, "front-proxy")?;
        std::fs::write(folder.join("audit-policy.yaml"), AUDIT_POLICY)?;
        std::fs::write(folder.join("kwok.yaml"), STAGES)?;
        Ok(())
    }

    fn kubernetes(&self, program: &str, options: &PlaneOptions, arguments: Vec<String>) -> Program {
        let mut argv = self.binaries.argv(program);
        argv.extend(arguments);
        if !options.feature_gates.is_empty() {
            let gates: Vec<String> = options
                .feature_gates
                .iter()
                .map(|(gate, on)| format!("{gate}={on}"))
                .collect();
            argv.push(format!("--feature-gates={}", gates.join(",")));
        }
        Program {
            argv,
            ..self.program(program)
        }
    }

    pub(super) fn etcd(&self) -> Program {
        let client = format!("http://{}", address(self.network(), 2379));
        let peer = format!("http://{}", address(self.network(), 2380));
        let mut argv = self.binaries.argv("etcd");
        argv.extend([
            format!("--data-dir={}", text(&self.root.join("etcd"))),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            "--unsafe-no-fsync".to_owned(),
            "--log-level=warn".to_owned(),
        ]);
        Program {
            argv,
            ..self.program("etcd")
        }
    }

    pub(super) fn apiserver(&self, options: &PlaneOptions) -> Program {
        let network = self.network();
        let listen = address(network, 6443);
        let mut arguments = vec![
            format!("--etcd-servers=http://{}", address(network, 2379)),
            format!("--bind-address={}", listen.ip()),
            format!("--secure-port={}", listen.port()),
            // A loopback address cannot be an endpoint of the kubernetes Service, and nobody asks for it.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--advertise-address={}", listen.ip()),
            format!("--service-cluster-ip-range=127.77.{network}.0/24"),
            format!("--tls-cert-file={}", self.pki("apiserver.crt")),
            format!("--tls-private-key-file={}", self.pki("apiserver.key")),
            format!("--client-ca-file={}", self.pki("ca.crt")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", self.pki("service-accounts.pub")),
            format!(
                "--service-account-signing-key-file={}",
                self.pki("service-accounts.key")
            ),
            format!("--requestheader-client-ca-file={}", self.pki("front-proxy-ca.crt")),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            format!("--proxy-client-cert-file={}", self.pki("front-proxy.crt")),
            format!("--proxy-client-key-file={}", self.pki("front-proxy.key")),
            "--authorization-mode=RBAC".to_owned(),
            "--allow-privileged=true".to_owned(),
            // Fake nodes have no lifecycle controller that would take the taint off again.
            "--disable-admission-plugins=TaintNodesByCondition".to_owned(),
            format!("--audit-policy-file={}", self.pki("audit-policy.yaml")),
            format!("--audit-log-path={}", text(&self.root.join("audit.log"))),
            // One file: readers remember offsets.
            "--audit-log-maxsize=100000".to_owned(),
            "--profiling=false".to_owned(),
        ];
        arguments.extend(options.apiserver_arguments.iter().cloned());
        self.kubernetes("kube-apiserver", options, arguments)
    }

    fn component(&self, user: &str, groups: &[&str]) -> Result<String> {
        Ok(text(&self.user(user, groups)?.path))
    }

    pub(super) fn controller_manager(&self, options: &PlaneOptions) -> Result<Program> {
        let mut controllers: Vec<&str> = CONTROLLERS.to_vec();
        controllers.extend(options.more_controllers.iter().map(String::as_str));
        let arguments = vec![
            format!(
                "--kubeconfig={}",
                self.component("system:kube-controller-manager", &[])?
            ),
            format!("--controllers={}", controllers.join(",")),
            "--use-service-account-credentials=true".to_owned(),
            format!(
                "--service-account-private-key-file={}",
                self.pki("service-accounts.key")
            ),
            format!("--root-ca-file={}", self.pki("ca.crt")),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            // The default rate (20 a second) holds the Job controller at about five Jobs a second.
            "--kube-api-qps=2000".to_owned(),
            "--kube-api-burst=4000".to_owned(),
            "--concurrent-job-syncs=32".to_owned(),
            "--concurrent-gc-syncs=16".to_owned(),
        ];
        Ok(self.kubernetes("kube-controller-manager", options, arguments))
    }

    pub(super) fn scheduler(&self, options: &PlaneOptions) -> Result<Program> {
        let arguments = vec![
            format!("--kubeconfig={}", self.component("system:kube-scheduler", &[])?),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            "--kube-api-qps=2000".to_owned(),
            "--kube-api-burst=4000".to_owned(),
        ];
        Ok(self.kubernetes("kube-scheduler", options, arguments))
    }

    pub(super) fn kwok(&self) -> Result<Program> {
        let argv = vec![
            text(&self.binaries.kwok()),
            format!("--kubeconfig={}", self.component("testkit:kwok", &["system:masters"])?),
            format!("--config={}", self.pki("kwok.yaml")),
            "--v=WARN".to_owned(),
        ];
        // kwok reads a configuration of the machine's user otherwise.
        let env = BTreeMap::from([("HOME".to_owned(), text(&self.root.join("home")))]);
        Ok(Program {
            argv,
            env,
            ..self.program("kwok")
        })
    }
}
