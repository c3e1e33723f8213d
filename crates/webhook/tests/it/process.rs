//! The process as a whole, without a cluster to talk to.

use std::net::SocketAddr;
use std::path::Path;

use clap::Parser as _;
use sluice_runtime::shutdown;
use sluice_webhook::{Args, MUTATE_JOB, run};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Client, Mount, authority, conversion, eventually, issue, new_job, soon};

const NOBODY: &str = "https://127.0.0.1:1";

fn kubeconfig(folder: &Path) -> String {
    let path = folder.join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: {NOBODY}}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n\
         current-context: c\n"
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

async fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// A port that was free a moment ago.
async fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

#[tokio::test]
async fn without_an_api_server_it_is_alive_and_not_ready_and_says_why_and_ends_when_told() {
    let authority = authority();
    let mount = Mount::new(&issue(&authority));
    let (reviews, health) = (free().await, free().await);
    let files = mount.files();
    let args = Args::try_parse_from([
        "sluice-webhook".to_owned(),
        "--namespace=sluice-system".to_owned(),
        format!("--bind-address={reviews}"),
        format!("--health-bind-address={health}"),
        format!("--tls-cert-file={}", files.certificate.display()),
        format!("--tls-private-key-file={}", files.key.display()),
        "--tls-reload-interval=20ms".to_owned(),
        format!("--kubeconfig={}", kubeconfig(&mount.path())),
    ])
    .unwrap();
    let (trigger, shutdown) = shutdown::channel();
    let process = tokio::spawn(run(args.into_config().unwrap(), shutdown));

    eventually("it is alive", async || {
        get(health, "/healthz")
            .await
            .is_ok_and(|answer| answer.contains(" 200 "))
    })
    .await;
    let listens = async || get(health, "/readyz").await.unwrap().contains("[+] server ok");
    eventually("the certificate is loaded and the port is open", listens).await;
    let ready = get(health, "/readyz").await.unwrap();
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    assert!(
        ready.contains("[-] caches not ok: still reading namespaces, localqueues, clusterqueues, jobs"),
        "{ready}"
    );
    assert!(ready.contains("[+] certificate ok"), "{ready}");
    // Conversions depend on no cache; of Jobs nothing is said out of half a cluster.
    let client = Client::new(reviews, &[&authority]);
    let response = client.post("/convert", conversion(1)).await.response();
    assert_eq!(response["result"]["status"], "Success");
    assert_eq!(response["convertedObjects"][0]["spec"]["cohortName"], "research");
    let answer = client.post(MUTATE_JOB, new_job()).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.body, "the webhook is still reading the cluster\n");
    let metrics = get(health, "/metrics").await.unwrap();
    assert!(
        metrics.contains("sluice_webhook_certificate_expiry_timestamp_seconds"),
        "{metrics}"
    );

    trigger.pull();
    soon("the end", process).await.unwrap().unwrap();
    assert!(get(health, "/healthz").await.is_err());
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap();
    let args = Args::try_parse_from([
        "sluice-webhook".to_owned(),
        "--namespace=sluice-system".to_owned(),
        format!("--health-bind-address={address}"),
        format!("--kubeconfig={}", kubeconfig(folder.path())),
    ])
    .unwrap();
    let (_trigger, shutdown) = shutdown::channel();
    let error = soon("an error", run(args.into_config().unwrap(), shutdown))
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), format!("failed to listen on {address}"));
}

#[tokio::test]
async fn a_kubeconfig_that_is_missing_is_named() {
    let args = Args::try_parse_from([
        "sluice-webhook",
        "--namespace=x",
        "--kubeconfig=/nonexistent/kubeconfig",
    ])
    .unwrap();
    let (_trigger, shutdown) = shutdown::channel();
    let error = soon("an error", run(args.into_config().unwrap(), shutdown))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("/nonexistent/kubeconfig"), "{error}");
}
