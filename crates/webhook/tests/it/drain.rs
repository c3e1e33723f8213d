//! The end of a replica: no call fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sluice_webhook::{Limits, MUTATE_JOB};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Fixture, NAME, eventually, new_job, soon};

const PATIENCE: Duration = Duration::from_secs(30);

fn patient() -> Limits {
    Limits {
        request_timeout: Duration::from_secs(30),
        ..Limits::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_fails_while_a_replica_drains_and_every_client_is_sent_away() {
    let fixture = Fixture::start(patient());
    let (address, client, check) = (fixture.address(), fixture.client(), fixture.server.check());
    let check = Arc::new(check);
    let calls = Arc::new(AtomicU32::new(0));
    let mut clients = Vec::new();
    for _ in 0..8 {
        let (client, check, calls) = (client.clone(), Arc::clone(&check), Arc::clone(&calls));
        clients.push(tokio::spawn(async move {
            // As the API server does: a connection is kept until it is to be closed, and new ones are made only as long
            // as the replica is ready.
            let mut sent_away = false;
            while check().is_ok() {
                let mut connection = client.connect().await.unwrap();
                loop {
                    let answer = connection.post(MUTATE_JOB, new_job()).await.unwrap();
                    assert_eq!(answer.response()["allowed"], true);
                    calls.fetch_add(1, Ordering::Relaxed);
                    if answer.closes {
                        sent_away = true;
                        break;
                    }
                }
            }
            assert!(sent_away);
        }));
    }
    eventually("all are at work", async || calls.load(Ordering::Relaxed) > 100).await;
    let before = calls.load(Ordering::Relaxed);
    assert_eq!(check(), Ok(String::new()));

    // The delay is far longer than eight clients need for one more call each.
    soon(
        "the end of the drain",
        fixture.server.drain(Duration::from_secs(3), PATIENCE),
    )
    .await
    .unwrap();
    for client in clients {
        client.await.unwrap();
    }
    assert!(calls.load(Ordering::Relaxed) > before);
    assert!(check().is_err());
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_call_in_work_when_the_listener_closes_is_still_answered() {
    let fixture = Fixture::start(patient());
    let (address, check) = (fixture.address(), fixture.server.check());
    let body = new_job();
    let (head, tail) = body.split_at(body.len() / 2);
    let mut stream = fixture.client().tls().await.unwrap();
    let request = format!(
        "POST {MUTATE_JOB} HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.write_all(head).await.unwrap();
    stream.flush().await.unwrap();

    let turns_taken = async || fixture.metrics_page().contains("reviews_in_work 1");
    eventually("the call is in work", turns_taken).await;
    let drain = tokio::spawn(fixture.server.drain(Duration::ZERO, PATIENCE));
    eventually("the listener is closed", async || {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    assert_eq!(check(), Err("draining".to_owned()));
    assert!(!drain.is_finished());

    stream.write_all(tail).await.unwrap();
    stream.flush().await.unwrap();
    let mut answer = String::new();
    // Without a closing TLS message the read ends in an error after the whole answer.
    let _ended = soon("the answer", stream.read_to_string(&mut answer)).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(answer.ends_with('}'), "{answer}");
    soon("the end of the drain", drain).await.unwrap().unwrap();
}

#[tokio::test]
async fn clients_that_never_finish_hold_up_a_drain_no_longer_than_its_patience() {
    let fixture = Fixture::start(patient());
    let mut stream = fixture.client().tls().await.unwrap();
    let head = format!("POST {MUTATE_JOB} HTTP/1.1\r\nhost: {NAME}\r\ncontent-length: 1000\r\n\r\n{{");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    soon(
        "the end of the drain",
        fixture.server.drain(Duration::ZERO, Duration::from_millis(100)),
    )
    .await
    .unwrap();
}
