//! Tests of the lanes: admission, order of the queue, limits of an organisation.

use std::collections::BTreeMap;
use std::sync::mpsc;

use super::job::LaneJob;
use super::queue::LaneQueue;
use super::*;

const ORG: OrgId = OrgId(1);

fn lanes(query: LaneOptions) -> Lanes {
    let query_threads_shared = query.threads_per_org;
    let options = LanesOptions { query, query_threads_shared, ..LanesOptions::for_cores(1) };
    Lanes::start(&options).expect("threads")
}

/// Waits until the query lane has these numbers of running and waiting jobs. The test's timeout
/// bounds the wait.
async fn until(lanes: &Lanes, running: usize, waiting: usize) {
    loop {
        let (_, runs, waits, _) = lanes.gauges()[1];
        if (runs, waits) == (running, waiting) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// Returns work that runs until it receives its result, or until the sender is dropped, and the
/// sender.
fn held() -> (mpsc::Sender<u32>, impl FnOnce() -> u32 + Send + 'static) {
    let (release, released) = mpsc::channel();
    (release, move || released.recv().unwrap_or_default())
}

const LONG_WAIT: Duration = Duration::from_secs(600);

#[tokio::test]
async fn work_runs_and_a_panic_is_status_500() {
    let lanes = lanes(LaneOptions { threads: 1, queue: 1, wait: LONG_WAIT, threads_per_org: 1 });
    assert_eq!(lanes.run(Lane::Ingest(ORG), || 7).await.expect("done"), 7);
    let panicked = lanes.run(Lane::Query(ORG), || -> u32 { panic!("a bug") }).await;
    assert_eq!(panicked.expect_err("a panic").code(), Code::Internal);
    assert_eq!(lanes.run(Lane::Query(ORG), || 8).await.expect("the thread lives"), 8);
}

/// The only query thread is busy, and the lane refuses work that cannot start at once.
#[tokio::test]
async fn work_before_queries_waits_for_no_query_and_slices_wait_as_long_as_they_may() {
    let lanes = lanes(LaneOptions { threads: 1, queue: 4, wait: Duration::ZERO, threads_per_org: 1 });
    let (release, work) = held();
    let running = tokio::spawn({
        let lanes = lanes.clone();
        async move { lanes.run_within(Lane::Query(ORG), LONG_WAIT, work).await }
    });
    until(&lanes, 1, 0).await;
    for lane in [Lane::Query(ORG), Lane::Embed(ORG)] {
        assert_eq!(lanes.run_before_queries(lane, || 7).await.expect("done"), 7);
    }
    assert_eq!(lanes.run(Lane::Query(ORG), || 8).await.expect_err("late").code(), Code::Busy);
    let waiting = tokio::spawn({
        let lanes = lanes.clone();
        async move { lanes.run_within(Lane::Query(ORG), LONG_WAIT, || 9).await }
    });
    until(&lanes, 1, 1).await;
    release.send(1).expect("still running");
    assert_eq!(running.await.expect("no panic").expect("done"), 1);
    assert_eq!(waiting.await.expect("no panic").expect("done"), 9);
    let panicked = lanes.run_before_queries(Lane::Query(ORG), || -> u32 { panic!("a bug") }).await;
    assert_eq!(panicked.expect_err("a panic").code(), Code::Internal);
}

#[tokio::test]
async fn the_last_parked_thread_is_woken_first() {
    let lanes = lanes(LaneOptions { threads: 4, queue: 1, wait: LONG_WAIT, threads_per_org: 4 });
    let mut worked = None;
    for _ in 0..50 {
        while lanes.0.query.shared.lock().idle.len() < 4 {
            tokio::task::yield_now().await;
        }
        let now = lanes.run(Lane::Query(ORG), || std::thread::current().id()).await.expect("done");
        assert_eq!(*worked.get_or_insert(now), now);
    }
}

/// Waiting work starts when the permit is released.
#[tokio::test]
async fn an_inline_permit_counts_as_a_running_job() {
    for threads_per_org in [1, 2] {
        let lanes = lanes(LaneOptions { threads: 2, queue: 4, wait: LONG_WAIT, threads_per_org });
        let permits: Vec<_> = (0..threads_per_org).map_while(|_| lanes.try_inline(ORG)).collect();
        assert_eq!((permits.len(), lanes.gauges()[1].1), (threads_per_org, threads_per_org));
        assert!(lanes.try_inline(ORG).is_none(), "the organisation has its share");
        assert_eq!(
            lanes.try_inline(OrgId(2)).is_some(),
            threads_per_org == 1,
            "the other organisation has its own"
        );
        let waiting = tokio::spawn({
            let lanes = lanes.clone();
            async move { lanes.run(Lane::Query(ORG), || 7).await }
        });
        until(&lanes, threads_per_org, 1).await;
        assert!(lanes.try_inline(OrgId(2)).is_none(), "waiting work comes first");
        let mut permits = permits.into_iter();
        let panicked = permits.next().expect("one").run(|| -> u32 { panic!("a bug") });
        assert_eq!((panicked.expect_err("a panic").code(), lanes.inlined_total()), (Code::Internal, 1));
        assert_eq!(waiting.await.expect("no panic").expect("its turn has come"), 7);
        drop(permits);
        until(&lanes, 0, 0).await;
    }
}

#[tokio::test]
async fn an_organisation_leaves_a_core_free_while_another_one_queries() {
    let options = LanesOptions { activity_window: LONG_WAIT, ..LanesOptions::for_cores(2) };
    let lanes = Lanes::start(&options).expect("threads");
    let submit = |work: Box<dyn FnOnce() -> u32 + Send>| {
        let lanes = lanes.clone();
        tokio::spawn(async move { lanes.run(Lane::Query(ORG), work).await })
    };
    let hold = || {
        let (release, work) = held();
        (release, submit(Box::new(work)))
    };
    let alone = [hold(), hold()];
    until(&lanes, 2, 0).await;
    for (release, submitted) in alone {
        drop(release);
        submitted.await.expect("no panic").expect("done");
    }
    assert_eq!(lanes.run(Lane::Query(OrgId(2)), || 1).await.expect("done"), 1);
    let (first, _) = hold();
    until(&lanes, 1, 0).await;
    let (second, waits) = hold();
    until(&lanes, 1, 1).await;
    assert!(lanes.try_inline(ORG).is_none());
    assert_eq!(lanes.run(Lane::Query(OrgId(2)), || 2).await.expect("a thread is free"), 2);
    let query = lanes.workers().begin_query();
    assert!(lanes.workers().try_acquire(u64::MAX).is_none(), "the other core is left free");
    drop(query);
    until(&lanes, 1, 1).await;
    drop((first, second));
    waits.await.expect("no panic").expect("done");
}

#[tokio::test]
async fn work_beyond_a_full_queue_is_refused_at_once() {
    let lanes = lanes(LaneOptions { threads: 1, queue: 1, wait: LONG_WAIT, threads_per_org: 1 });
    let (release, work) = held();
    let running = tokio::spawn({
        let lanes = lanes.clone();
        async move { lanes.run(Lane::Query(ORG), work).await }
    });
    until(&lanes, 1, 0).await;
    let waiting = tokio::spawn({
        let lanes = lanes.clone();
        async move { lanes.run(Lane::Query(ORG), || 2).await }
    });
    until(&lanes, 1, 1).await;
    let refused = lanes.run(Lane::Query(ORG), || 3).await.expect_err("full");
    assert_eq!(refused.code(), Code::Busy);
    assert_eq!(lanes.gauges()[1].3, 1);
    release.send(1).expect("still running");
    assert_eq!(running.await.expect("no panic").expect("done"), 1);
    assert_eq!(waiting.await.expect("no panic").expect("done"), 2);
}

#[tokio::test]
async fn work_that_waits_too_long_is_refused_and_leaves_the_queue() {
    let lanes = lanes(LaneOptions { threads: 1, queue: 4, wait: Duration::ZERO, threads_per_org: 1 });
    let (release, work) = held();
    let mut running = Box::pin(lanes.run(Lane::Query(ORG), work));
    // With a timeout of zero, the first job may be refused as well.
    let refused =
        tokio::select! { biased; done = &mut running => done.is_err(), () = until(&lanes, 1, 0) => false };
    if !refused {
        let late = lanes.run(Lane::Query(ORG), || 2).await.expect_err("late");
        assert_eq!(late.code(), Code::Busy);
        assert_eq!(lanes.gauges()[1].2, 0);
    }
    drop(release);
}

#[tokio::test]
async fn waiting_work_of_a_dropped_caller_never_runs() {
    let lanes = lanes(LaneOptions { threads: 1, queue: 4, wait: LONG_WAIT, threads_per_org: 1 });
    let (release, work) = held();
    let running = tokio::spawn({
        let lanes = lanes.clone();
        async move { lanes.run(Lane::Query(ORG), work).await }
    });
    until(&lanes, 1, 0).await;
    let (started, has_started) = mpsc::channel();
    let work = move || started.send(()).expect("the receiver exists");
    let mut waiting = Box::pin(lanes.run(Lane::Query(ORG), work));
    tokio::select! { biased; _ = &mut waiting => unreachable!(), () = until(&lanes, 1, 1) => {} }
    drop(waiting);
    assert_eq!(lanes.gauges()[1].2, 0);
    release.send(1).expect("still running");
    running.await.expect("no panic").expect("done");
    lanes.run(Lane::Query(ORG), || ()).await.expect("done");
    assert!(has_started.recv().is_err(), "it never ran");
}

/// docs/specification.md C5: one organisation has at most half of the running queries.
#[tokio::test]
async fn one_organisation_never_uses_more_threads_than_its_share() {
    let lanes = lanes(LaneOptions { threads: 4, queue: 32, wait: LONG_WAIT, threads_per_org: 2 });
    let mut flood = Vec::new();
    for _ in 0..10 {
        let (release, work) = held();
        let lanes = lanes.clone();
        flood.push((release, tokio::spawn(async move { lanes.run(Lane::Query(ORG), work).await })));
    }
    until(&lanes, 2, 8).await;
    assert_eq!(lanes.run(Lane::Query(OrgId(2)), || 5).await.expect("a free thread"), 5);
    for (release, done) in flood {
        let _ = release.send(1);
        done.await.expect("no panic").expect("done");
    }
}

#[tokio::test]
async fn in_a_full_queue_the_organisation_with_the_most_jobs_makes_room() {
    let other = OrgId(2);
    let lanes = lanes(LaneOptions { threads: 1, queue: 3, wait: LONG_WAIT, threads_per_org: 1 });
    let submit = |org, work: Box<dyn FnOnce() -> u32 + Send>| {
        let lanes = lanes.clone();
        tokio::spawn(async move { lanes.run(Lane::Query(org), work).await })
    };
    let (release, work) = held();
    let running = submit(ORG, Box::new(work));
    until(&lanes, 1, 0).await;
    let mut flood = Vec::new();
    for n in 0..3 {
        flood.push(submit(ORG, Box::new(move || n)));
        until(&lanes, 1, flood.len()).await;
    }
    let theirs = submit(other, Box::new(|| 7));
    let removed = flood.pop().expect("three").await.expect("no panic");
    assert_eq!(removed.expect_err("the last of the flood").code(), Code::Busy);
    // Both organisations have about as many waiting jobs now, so the queue is full for both.
    for org in [ORG, other] {
        assert_eq!(lanes.run(Lane::Query(org), || 8).await.expect_err("full").code(), Code::Busy);
    }
    release.send(1).expect("still running");
    assert_eq!(theirs.await.expect("no panic").expect("done"), 7);
    for submitted in flood.into_iter().chain([running]) {
        submitted.await.expect("no panic").expect("done");
    }
    assert_eq!(lanes.gauges()[1].3, 3);
}

/// A flood of queries of embed tokens fills the queue of an organisation. A query of its member
/// takes the place of the newest of them, and runs first.
#[tokio::test]
async fn queries_of_embed_tokens_wait_behind_those_of_members_and_make_room_for_them() {
    let lanes = lanes(LaneOptions { threads: 1, queue: 3, wait: LONG_WAIT, threads_per_org: 1 });
    let (order, done) = mpsc::channel();
    let submit = |lane, n: u32| {
        let (lanes, order) = (lanes.clone(), order.clone());
        tokio::spawn(async move { lanes.run(lane, move || order.send(n).unwrap_or_default()).await })
    };
    let (release, work) = held();
    let running = tokio::spawn({
        let lanes = lanes.clone();
        async move { lanes.run(Lane::Embed(ORG), work).await }
    });
    until(&lanes, 1, 0).await;
    let mut flood = Vec::new();
    for n in 0..3 {
        flood.push(submit(Lane::Embed(ORG), n));
        until(&lanes, 1, flood.len()).await;
    }
    assert_eq!(lanes.run(Lane::Embed(ORG), || ()).await.expect_err("full").code(), Code::Busy);
    let member = submit(Lane::Query(ORG), 7);
    let removed = flood.pop().expect("three").await.expect("no panic");
    assert_eq!(removed.expect_err("the last of the flood").code(), Code::Busy);
    release.send(1).expect("still running");
    running.await.expect("no panic").expect("done");
    for submitted in flood.into_iter().chain([member]) {
        submitted.await.expect("no panic").expect("done");
    }
    assert_eq!(done.try_iter().collect::<Vec<_>>(), [7, 0, 1]);
}

/// docs/specification.md B3: senders that were refused at the same time do not retry at the
/// same time.
#[tokio::test]
async fn refused_senders_are_told_to_retry_at_different_times() {
    let none = LaneOptions { threads: 1, queue: 0, wait: LONG_WAIT, threads_per_org: 1 };
    let lanes = Lanes::start(&LanesOptions { ingest: none, ..LanesOptions::for_cores(1) }).expect("threads");
    let mut waits = std::collections::BTreeSet::new();
    for _ in 0..50 {
        let refused = lanes.run_ingest(ORG, |reply| reply.send(()).unwrap_or(())).await.expect_err("full");
        assert_eq!(refused.code(), Code::Busy);
        let response = axum::response::IntoResponse::into_response(refused);
        let wait = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        waits.insert(wait.and_then(|wait| wait.parse::<u64>().ok()).expect("seconds"));
    }
    assert!(waits.len() > 2 && waits.iter().all(|wait| (2..=10).contains(wait)), "{waits:?}");
}

/// One organisation submits forty jobs, then another one submits five. On one thread, their
/// jobs alternate until the second organisation has no more.
#[tokio::test]
async fn organisations_take_turns_however_many_jobs_one_of_them_has() {
    let other = OrgId(2);
    let one = LaneOptions { threads: 1, queue: 64, wait: LONG_WAIT, threads_per_org: 1 };
    let options = LanesOptions { ingest: one, query: one, ..LanesOptions::for_cores(1) };
    for (index, lane) in [(0, Lane::Ingest as fn(OrgId) -> Lane), (1, Lane::Query)] {
        let lanes = Lanes::start(&options).expect("threads");
        let turns: Arc<Mutex<Vec<OrgId>>> = Arc::default();
        let submit = |org: OrgId| {
            let (lanes, turns) = (lanes.clone(), Arc::clone(&turns));
            tokio::spawn(async move {
                lanes.run(lane(org), move || turns.lock().expect("no panic").push(org)).await
            })
        };
        let (release, work) = held();
        let first = tokio::spawn({
            let lanes = lanes.clone();
            async move { lanes.run(lane(ORG), work).await }
        });
        let until = async |waiting| {
            while lanes.gauges()[index].2 != waiting {
                tokio::task::yield_now().await;
            }
        };
        while lanes.gauges()[index].1 != 1 {
            tokio::task::yield_now().await;
        }
        let flood: Vec<_> = (0..40).map(|_| submit(ORG)).collect();
        until(40).await;
        let theirs: Vec<_> = (0..5).map(|_| submit(other)).collect();
        until(45).await;
        release.send(1).expect("still running");
        first.await.expect("no panic").expect("done");
        for submitted in flood.into_iter().chain(theirs) {
            submitted.await.expect("no panic").expect("done");
        }
        let turns = turns.lock().expect("no panic").clone();
        let of_other: Vec<usize> = (0..45).filter(|turn| turns[*turn] == other).collect();
        assert_eq!(of_other, [0, 2, 4, 6, 8], "they take turns: {turns:?}");
    }
}

proptest::proptest! {
    /// A waiting organisation waits for at most one turn of each other organisation.
    #[test]
    fn an_organisation_waits_for_at_most_one_turn_of_each_other(
        steps in proptest::collection::vec((0u32..5, proptest::bool::ANY), 1..200),
    ) {
        let mut state = LaneQueue::default();
        // The turns of each other organisation since the first job of this one began to wait.
        let mut since: BTreeMap<OrgId, BTreeMap<OrgId, usize>> = BTreeMap::new();
        for (org, submits) in steps {
            let org = OrgId(org);
            if submits {
                let job = LaneJob { state: Arc::default(), yields: false, work: Box::new(|| ()) };
                state.push(Some(org), job);
                since.entry(org).or_default();
            } else if let Some((Some(taken), _)) = state.take(usize::MAX) {
                // There is one thread, so this job ends before the next one starts.
                let still_waiting = state.shares.get(&Some(taken)).is_some_and(|share| !share.waiting.is_empty());
                state.finished(Some(taken));
                since.remove(&taken);
                for turns in since.values_mut() {
                    let turns = turns.entry(taken).or_default();
                    *turns += 1;
                    proptest::prop_assert!(*turns <= 1, "{taken:?} had two turns while another one waited");
                }
                if still_waiting {
                    since.insert(taken, BTreeMap::new());
                }
            }
            let waiting: usize = state.shares.values().map(|share| share.waiting.len()).sum();
            proptest::prop_assert_eq!(waiting, state.waiting);
        }
    }
}
