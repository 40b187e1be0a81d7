//! Taking everything that waits in a queue, so that one statement serves all of it.

use tokio::sync::mpsc;

/// Waits for a first item, lets every task that is ready now add its own, and takes up to `most`.
/// Nothing waits for a timer: with nobody else ready this returns at once. Returns 0 when the
/// queue is empty and closed.
pub async fn gather<T>(queue: &mut mpsc::Receiver<T>, into: &mut Vec<T>, most: usize) -> usize {
    let mut taken = queue.recv_many(into, most).await;
    if taken == 0 {
        return 0;
    }
    for _ in 0..YIELDS {
        tokio::task::yield_now().await;
        while taken < most
            && let Ok(item) = queue.try_recv()
        {
            into.push(item);
            taken += 1;
        }
    }
    taken
}

/// A request that has arrived needs a few turns of the scheduler until it stands in the queue.
const YIELDS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_ready_is_taken_together() {
        let (sender, mut queue) = mpsc::channel(16);
        for n in 0..5 {
            let sender = sender.clone();
            tokio::spawn(async move { sender.send(n).await });
        }
        drop(sender);
        let mut batch = Vec::new();
        assert_eq!(gather(&mut queue, &mut batch, 3).await, 3);
        assert_eq!(gather(&mut queue, &mut batch, 3).await, 2);
        assert_eq!(gather(&mut queue, &mut batch, 3).await, 0);
        assert_eq!(batch, [0, 1, 2, 3, 4]);
    }
}
