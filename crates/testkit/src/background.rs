//! The runtime on which the testkit's own servers and watchers live.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

/// The runtime of balancers, fault proxies and referees.
///
/// Every `#[tokio::test]` has a runtime of its own that ends with the test; what
/// a shared plane needs must outlive them all.
pub fn background() -> Handle {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("testkit")
            .enable_all()
            .build()
            .ok()
    });
    match runtime {
        Some(runtime) => runtime.handle().clone(),
        // Only a machine out of threads gets here; the caller's runtime is the best that is left.
        None => Handle::current(),
    }
}
