//! Taking what waits in a queue together.

use tokio::sync::mpsc::Receiver;

/// Adds to a batch, up to `most`, what is sent by those that are ready to run: they go first. What they wait for
/// came for many of them at once, and without this the first one would be a batch of its own.
pub async fn gather<T>(queue: &mut Receiver<T>, batch: &mut Vec<T>, most: usize) {
    tokio::task::yield_now().await;
    while batch.len() < most
        && let Ok(next) = queue.try_recv()
    {
        batch.push(next);
    }
}
