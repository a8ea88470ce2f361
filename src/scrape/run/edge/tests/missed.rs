//! Scrapes that do not begin, and responses that are dropped.

use super::*;

#[test]
fn responses_that_no_thread_takes_are_counted_as_dropped() {
    let fake = FakeExporter::text("a 1\n");
    let stage = Stage::new(MemorySink { is_full: AtomicBool::new(true), ..MemorySink::default() });
    stage.fleet.apply(vec![plan(fake.address, 1, 100)]);
    stage.wait_for("dropped responses", || stage.status(1).dropped >= 2);
    let status = stage.status(1);
    assert!(status.store_error.is_some_and(|error| error.contains("too many responses wait")));
    assert_eq!((status.scrapes, stage.lines().len()), (0, 0));
    stage.sink.is_full.store(false, Ordering::SeqCst);
    stage.wait_for("a stored scrape", || stage.status(1).scrapes > 0);
    let status = stage.status(1);
    assert!(status.dropped >= 2 && status.store_error.is_none(), "{status:?}");
    stage.fleet.stop();
}

#[test]
fn planned_scrapes_during_a_slow_one_are_counted_as_skipped() {
    let slow = FakeExporter::start(|_, stream| {
        std::thread::sleep(Duration::from_millis(350));
        respond(stream, "text/plain", "", b"a 1\n")
    });
    let stage = Stage::new(MemorySink::default());
    let mut plan = plan(slow.address, 1, 100);
    Arc::make_mut(&mut plan.target).timeout_ms = 10_000;
    stage.fleet.apply(vec![plan]);
    stage.wait_for("skipped scrapes", || stage.status(1).skipped >= 4);
    assert!(stage.status(1).scrapes >= 2);
    stage.fleet.stop();
}
