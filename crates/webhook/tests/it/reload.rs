//! A certificate that changes on disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use sluice_runtime::certificate::check as check_certificate;
use sluice_webhook::{Limits, MUTATE_JOB, keep_certificate};

use crate::support::{Client, Fixture, Mount, authority, eventually, issue, new_job, serving, still_answers};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_change_under_load_and_no_call_fails() {
    let fixture = Fixture::start(Limits {
        request_timeout: Duration::from_secs(30),
        ..Limits::default()
    });
    let second = authority();
    let first = issue(&fixture.authority);
    let mut mount = Mount::new(&first);
    let watch = tokio::spawn(keep_certificate(
        mount.files(),
        Arc::clone(&fixture.resolver),
        fixture.metrics.clone(),
    ));

    // Clients trust the old and the new authority, as they do while a rotation is under way.
    let client = Client::new(fixture.address(), &[&fixture.authority, &second]);
    let done = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU32::new(0));
    let mut load = Vec::new();
    for keeps_its_connection in [true, true, false, false] {
        let (client, done, calls) = (client.clone(), Arc::clone(&done), Arc::clone(&calls));
        load.push(tokio::spawn(async move {
            let mut connection = client.connect().await.unwrap();
            while !done.load(Ordering::Relaxed) {
                if !keeps_its_connection {
                    connection = client.connect().await.unwrap();
                }
                assert_eq!(
                    connection.post(MUTATE_JOB, new_job()).await.unwrap().response()["allowed"],
                    true
                );
                calls.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }

    for round in 0..6 {
        let next = issue(if round % 2 == 0 { &second } else { &fixture.authority });
        mount.swap(&next.certificate, &next.key);
        let expected = serving(&next).serial().to_owned();
        let before = calls.load(Ordering::Relaxed);
        eventually("the new certificate is served", async || {
            client.connect().await.unwrap().serial == expected
        })
        .await;
        eventually("the load goes on", async || calls.load(Ordering::Relaxed) > before + 8).await;
    }
    done.store(true, Ordering::Relaxed);
    for task in load {
        task.await.unwrap();
    }
    watch.abort();
}

#[tokio::test]
async fn files_that_cannot_be_used_leave_the_old_certificate_in_place() {
    let fixture = Fixture::start(Limits::default());
    let first = issue(&fixture.authority);
    let mut mount = Mount::new(&first);
    let watch = tokio::spawn(keep_certificate(
        mount.files(),
        Arc::clone(&fixture.resolver),
        fixture.metrics.clone(),
    ));
    let client = fixture.client();
    let serial = serving(&first).serial().to_owned();
    eventually("the first certificate is served", async || {
        client.connect().await.unwrap().serial == serial
    })
    .await;

    let failures = || {
        let page = fixture.metrics_page();
        let line = page
            .lines()
            .find(|line| line.starts_with("sluice_webhook_certificate_reload_failures_total "));
        line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
    };
    let other = issue(&fixture.authority);
    let half = &other.certificate[..other.certificate.len() / 2];
    for (certificate, key) in [(half, other.key.as_str()), (&other.certificate, &first.key), ("", "")] {
        let before = failures();
        mount.swap(certificate, key);
        eventually("the bad files were looked at twice", async || failures() > before + 1).await;
        assert_eq!(client.connect().await.unwrap().serial, serial);
        still_answers(&client).await;
    }

    mount.swap(&other.certificate, &other.key);
    let serial = serving(&other).serial().to_owned();
    eventually("the good files are served", async || {
        client.connect().await.unwrap().serial == serial
    })
    .await;
    let expires = fixture
        .resolver
        .current()
        .unwrap()
        .not_after()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let line = format!(
        "sluice_webhook_certificate_expiry_timestamp_seconds {}",
        expires.as_secs()
    );
    assert!(fixture.metrics_page().contains(&line), "{line}");
    watch.abort();
}

#[tokio::test]
async fn readiness_follows_the_validity_of_the_certificate() {
    let fixture = Fixture::start(Limits::default());
    let now = SystemTime::now();
    assert!(check_certificate(&fixture.resolver, now).is_ok());
    let hours = |n: u64| Duration::from_secs(3600 * n);
    assert!(
        check_certificate(&fixture.resolver, now - hours(2))
            .unwrap_err()
            .contains("not valid yet")
    );
    assert!(
        check_certificate(&fixture.resolver, now + hours(2))
            .unwrap_err()
            .contains("expired")
    );
    assert!(
        check_certificate(&sluice_pki::Resolver::new(), now)
            .unwrap_err()
            .contains("no certificate")
    );
}
