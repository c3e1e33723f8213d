//! A TCP balancer: several replicas behind one clusterIP, as kube-proxy would have it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::background::background;

/// Spreads connections over backends; one that refuses is passed over.
pub struct Balancer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Balancer {
    /// Listens on `address`.
    pub async fn start(address: SocketAddr, backends: Vec<SocketAddr>) -> Result<Self> {
        let run = async move {
            let listener = TcpListener::bind(address)
                .await
                .with_context(|| format!("failed to listen on {address}"))?;
            let address = listener.local_addr()?;
            anyhow::Ok((address, tokio::spawn(serve(listener, Arc::new(backends)))))
        };
        // The listener belongs to the runtime that binds it.
        let (address, task) = background().spawn(run).await??;
        Ok(Self { address, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, backends: Arc<Vec<SocketAddr>>) {
    let next = AtomicUsize::new(0);
    while let Ok((client, _)) = listener.accept().await {
        let first = next.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(connect(client, Arc::clone(&backends), first));
    }
}

async fn connect(mut client: TcpStream, backends: Arc<Vec<SocketAddr>>, first: usize) {
    for backend in backends
        .iter()
        .cycle()
        .skip(first % backends.len().max(1))
        .take(backends.len())
    {
        if let Ok(mut server) = TcpStream::connect(backend).await {
            // Either side closing ends the pair; there is nobody to tell.
            let _ = copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use tokio::io::AsyncReadExt;

    use super::*;

    const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    /// A server that says one letter to everybody.
    async fn speaker(letter: &'static [u8]) -> Result<(SocketAddr, JoinHandle<()>)> {
        let listener = TcpListener::bind(ANY_PORT).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut client, letter).await });
            }
        });
        Ok((address, task))
    }

    async fn heard(balancer: &Balancer, calls: usize) -> Result<String> {
        let mut all = String::new();
        for _ in 0..calls {
            TcpStream::connect(balancer.address())
                .await?
                .read_to_string(&mut all)
                .await?;
        }
        Ok(all)
    }

    #[tokio::test]
    async fn calls_are_spread_and_a_backend_that_is_gone_is_passed_over() -> Result<()> {
        let (first, gone) = speaker(b"a").await?;
        let (second, _stays) = speaker(b"b").await?;
        let balancer = Balancer::start(ANY_PORT, vec![first, second]).await?;
        assert_eq!(heard(&balancer, 4).await?, "abab");
        gone.abort();
        // The listener is closed once the task is gone.
        assert!(gone.await.is_err());
        assert_eq!(heard(&balancer, 3).await?, "bbb");
        Ok(())
    }
}
