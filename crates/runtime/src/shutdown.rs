//! One signal that tells every task of a process to finish.

use std::io;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The listening side; cheap to clone, one for each task.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Receiver<bool>);

/// The pulling side. Dropping it does not end anything.
#[derive(Clone, Debug)]
pub struct Trigger(Arc<watch::Sender<bool>>);

/// A connected pair, for a part of a process that is ended on its own, and for tests.
pub fn channel() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(Arc::new(sender)), Shutdown(receiver))
}

/// A pair that SIGTERM and SIGINT also pull.
///
/// # Errors
///
/// When the handlers cannot be installed.
pub fn on_signals() -> io::Result<(Trigger, Shutdown)> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (trigger, shutdown) = channel();
    let pulled = trigger.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "shutting down");
        pulled.pull();
    });
    Ok((trigger, shutdown))
}

impl Trigger {
    /// Tells every listener to finish; more than once is the same as once.
    pub fn pull(&self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    /// True once the trigger was pulled.
    pub fn is_triggered(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when the trigger is pulled; never, if it was dropped without.
    pub async fn triggered(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(|pulled| *pulled).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_listener_hears_a_pull_even_when_it_starts_to_listen_later() {
        let (trigger, shutdown) = channel();
        let early = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.triggered().await }
        });
        assert!(!shutdown.is_triggered());
        trigger.pull();
        early.await.unwrap();
        shutdown.triggered().await;
        assert!(shutdown.is_triggered());
    }

    #[tokio::test]
    async fn dropping_the_trigger_ends_nothing() {
        let (trigger, shutdown) = channel();
        drop(trigger);
        let mut wait = Box::pin(shutdown.triggered());
        assert!(futures::poll!(wait.as_mut()).is_pending());
        assert!(!shutdown.is_triggered());
    }
}
