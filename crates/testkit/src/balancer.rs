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
