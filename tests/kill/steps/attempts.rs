//! The program is killed repeatedly while each delivery fails. No delivery gets more attempts than it may, and an
//! attempt in flight does not use up a number.

use super::*;

/// Fewer kills than it takes to fail a lost attempt. Each delivery therefore gets its five attempts, however often
/// one was in flight.
const KILLS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn no_kill_gives_or_takes_an_attempt() {
    let mut scene = Scene::with(&["--retry-base", "200ms"]).await;
    scene.status.store(503, Ordering::SeqCst);
    for _ in 0..KILLS {
        for _ in 0..3 {
            scene.order().await;
        }
        // Some new deliveries fail, and older ones fail again.
        let (before, _) = scene.counted();
        until("some fail", async || scene.counted().0 >= before + 3).await;
        scene.hangs.store(true, Ordering::SeqCst);
        let (before, _) = scene.counted();
        scene.order().await;
        until("some are in flight", async || scene.counted().0 > before).await;
        scene.kill().await;
        let most = "SELECT max(attempt_count) FROM delivery_state";
        let most: i16 = sqlx::query_scalar(most).fetch_one(&scene.pool).await.unwrap();
        assert!(most <= 5, "{most}");
        scene.hangs.store(false, Ordering::SeqCst);
        scene.leases_end().await;
        scene.program.restart().await;
    }
    let all_failed = "SELECT count(*) FILTER (WHERE status = 'failed') = (SELECT count(*) FROM orders) FROM delivery_state";
    scene.until("all fail for good", all_failed).await;
    let (before, events) = scene.counted();
    assert_eq!(events, 4 * KILLS, "every event arrived");

    let shown = scene.all_shown().await;
    assert_eq!(shown.len(), 4 * KILLS, "no delivery is duplicated");
    let mut told: HashSet<String> = HashSet::new();
    let mut lost = 0;
    for (status, count, attempts) in &shown {
        assert_eq!((status.as_str(), *count), ("failed", 5));
        // An attempt repeats the number of the one before if the outcome of that one is unknown. Otherwise it has the
        // next number.
        let mut expected = 1;
        for (number, request_id, status, error) in attempts {
            assert_eq!(*number, expected, "{attempts:?}");
            if *error == json!("the outcome is not known") {
                assert_eq!(*status, Value::Null);
                lost += 1;
            } else {
                assert_eq!((status, error), (&json!(503), &json!("HTTP 503")));
                expected += 1;
            }
            assert!(told.insert(request_id.clone()), "each attempt has its own request id");
        }
        assert_eq!(expected, 6, "five attempts have a known outcome: {attempts:?}");
    }
    assert!(lost >= KILLS, "each kill interrupted some attempts: {lost}");
    let arrived: Vec<String> = scene.arrived.lock().unwrap().values().flatten().cloned().collect();
    assert!(arrived.iter().all(|request_id| told.contains(request_id)), "every request that arrived is shown");

    // Nothing more of these deliveries is sent, even after another kill.
    scene.kill().await;
    scene.status.store(200, Ordering::SeqCst);
    scene.program.restart().await;
    scene.order().await;
    scene.until("a later one is delivered", "SELECT count(*) = 1 FROM delivery_state WHERE status = 'delivered'").await;
    assert_eq!(scene.counted(), (before + 1, events + 1));
    let verified = scene.program.command().arg("verify").output().await.unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}
