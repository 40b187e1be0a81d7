//! Batching of queued items.

use tokio::sync::mpsc::Receiver;

/// Fills a batch up to `most` items. Tasks that are ready to run go first, so that their items join the batch.
///
/// Many senders often become ready at the same moment. Without the yield, the first one would get a batch of its own.
pub async fn gather<T>(queue: &mut Receiver<T>, batch: &mut Vec<T>, most: usize) {
    tokio::task::yield_now().await;
    while batch.len() < most
        && let Ok(next) = queue.try_recv()
    {
        batch.push(next);
    }
}
