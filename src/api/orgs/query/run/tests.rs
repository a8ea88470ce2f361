//! Tests of how a query runs: inline, in a lane, cancelled.

use std::io::{Read as _, Write as _};
use std::sync::mpsc;

use super::*;
use crate::api::callers::Quota;
use crate::api::error::Code;
use crate::api::lanes::{InlinePermit, LanesOptions};
use crate::api::orgs::query::QueriedMetrics;
use crate::api::orgs::query::inline::QueryFingerprint;
use crate::api::params::Params;
use crate::clock::Clock;
use crate::model::{EgressRules, OrgId, Target, TargetUrl, TimeRange, Timestamp};
use crate::outbound::Egress;
use crate::promql::MemoryPool;
use crate::promql::syntax::Caps;
use crate::rules::RuleEngine;
use crate::tsdb::Tsdb;
use crate::upstream::{Upstream, UpstreamRead};

fn deps() -> ReadDeps {
    let (tsdb, clock) = (Arc::new(Tsdb::scaffold()), Clock::manual(Timestamp::from_s(0)));
    ReadDeps {
        rules: RuleEngine::scaffold(&tsdb, &clock),
        tsdb,
        lanes: Lanes::start(&LanesOptions::for_cores(1)).expect("threads"),
        clock,
        options: Arc::new(ReadOptions::default()),
        active: Arc::default(),
        memory: MemoryPool::new(1 << 30),
        cache: Arc::new(RangeCache::new(0)),
        patterns: Arc::default(),
        expressions: Arc::new(ExpressionCache::new(Caps::default())),
        inline: Arc::default(),
        engines: Arc::new(crate::api::orgs::query::engines::Engines::local()),
        live: Arc::default(),
        queried: Arc::new(QueriedMetrics::new(Timestamp::from_s(0))),
        scrapers: None,
    }
}

fn entered() -> QueryAccess {
    QueryAccess {
        access: Access::whole(OrgId(1)),
        grant: Grant::default(),
        quota: Quota::default(),
        requester: "usr_a".into(),
        coding: Coding::Identity,
        sole_connection: false,
        usage: None,
    }
}

/// Longer than any test takes. A test that waits this long has failed.
const WAIT_MAX: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_closed_connection_cancels_its_query() {
    let deps = deps();
    let (started, has_started) = mpsc::channel();
    let (stopped, has_stopped) = mpsc::channel();
    let query = deps.run(entered(), move |run| {
        let _ = started.send(());
        while !run.deadline.cancelled.load(Ordering::Relaxed) && !run.deadline.is_expired() {
            std::thread::yield_now();
        }
        let _ = stopped.send(run.deadline.is_expired());
        Ok(())
    });
    tokio::select! {
        _ = query => panic!("the query never ends by itself"),
        () = async { while has_started.try_recv().is_err() { tokio::task::yield_now().await } } => {}
    }
    assert_eq!(has_stopped.recv_timeout(WAIT_MAX), Ok(false), "cancelled before its deadline");
}

#[tokio::test]
async fn the_timeout_parameter_cannot_exceed_the_servers_timeout() {
    let deps = ReadDeps {
        options: Arc::new(ReadOptions { timeout: Duration::ZERO, ..ReadOptions::default() }),
        ..deps()
    };
    let request = QueryRequest::from(entered()).within(Some(WAIT_MAX));
    let late = deps.run(request, |run| Ok(run.deadline.is_expired())).await;
    assert!(late.expect("it ran"));
}

/// A fingerprint over all times, as the one of [`thread_of`].
fn up(deps: &ReadDeps) -> QueryFingerprint {
    of_request(deps).over(TimeRange::ALL)
}

fn of_request(deps: &ReadDeps) -> QueryFingerprint {
    let params = Params::of_query(Some("query=up")).expect("parameters");
    deps.inline.fingerprint(("query", ""), &params)
}

/// Returns the thread on which a query ended, and how often the query was started.
async fn thread_of(deps: &ReadDeps, sole_connection: bool, is_fast: bool) -> (std::thread::ThreadId, usize) {
    let request = QueryRequest::from(QueryAccess { sole_connection, ..entered() })
        .with_fingerprint(of_request(deps))
        .inline_over(TimeRange::ALL);
    let runs = Arc::new(AtomicUsize::new(0));
    let done = deps.run(request, move |run| {
        run.warn("one warning");
        let runs = runs.fetch_add(1, Ordering::Relaxed) + 1;
        while !is_fast && runs == 1 && run.deadline.inline.is_some() {
            if run.deadline.is_expired() {
                return Err(QueryError::Timeout.into());
            }
        }
        assert_eq!(run.warnings, ["one warning"]);
        Ok((std::thread::current().id(), runs))
    });
    done.await.expect("answered")
}

/// Waits for an inline permit: a thread of the lane releases its place after its caller has
/// received the result.
async fn try_inline(deps: &ReadDeps) -> InlinePermit<'_> {
    let since = Stopwatch::start();
    loop {
        if let Some(permit) = deps.lanes.try_inline(OrgId(1)) {
            return permit;
        }
        assert!(since.elapsed() < WAIT_MAX, "no permit became free");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn patterns_of_selectors_are_charged_until_the_run_ends() {
    let texts = ["{p=~\"(?:[ab]*a.{900})x\"}".to_owned(), "{q=\"1\",p!~\"(?:[ab]*b.{900})y\"}".to_owned()];
    let select = |deps: ReadDeps, texts: Vec<String>| async move {
        let work = move |run: &mut QueryRun| {
            run.selectors("match", &texts)?;
            // A listing holds bytes of its own in addition to the patterns.
            run.pacing(|pace| pace.hold(1 << 20))?;
            Ok(run.lease.bytes())
        };
        deps.run(entered(), work).await
    };
    let held = select(deps(), texts.to_vec()).await.expect("there is memory");
    assert!(held > 9 << 20, "two programs and the states of their searches: {held} bytes");
    let little = ReadDeps { memory: MemoryPool::new(8 << 20), ..deps() };
    let refused = select(little, texts.to_vec()).await.expect_err("one organisation has half of 8 MiB");
    assert_eq!(refused.code(), Code::QueryTooExpensive);
}

#[tokio::test]
async fn a_fast_query_runs_inline_while_its_connection_is_the_only_one() {
    let (deps, own) = (deps(), std::thread::current().id());
    let fingerprint = up(&deps);
    deps.inline.record(OrgId(2), fingerprint, Duration::ZERO);
    assert_ne!(thread_of(&deps, true, true).await.0, own, "recorded for another organisation");
    deps.inline.record(OrgId(1), fingerprint, Duration::ZERO);
    drop(try_inline(&deps).await);
    assert_eq!(thread_of(&deps, true, true).await, (own, 1));
    deps.inline.record(OrgId(1), fingerprint, Duration::ZERO);
    assert_ne!(thread_of(&deps, false, true).await.0, own, "another connection is active");
    deps.inline.record(OrgId(1), fingerprint, Duration::ZERO);
    let held = try_inline(&deps).await;
    let waiting = thread_of(&deps, true, true);
    tokio::select! {
        biased;
        _ = waiting => panic!("the organisation has its share of the lane"),
        () = async { while deps.lanes.gauges()[1].2 == 0 { tokio::task::yield_now().await } } => drop(held),
    }
}

#[tokio::test]
async fn a_query_that_is_too_slow_inline_starts_again_on_the_lane_and_is_not_fast_any_more() {
    let (deps, own) = (deps(), std::thread::current().id());
    let fingerprint = up(&deps);
    deps.inline.record(OrgId(1), fingerprint, Duration::ZERO);
    let (thread, runs) = thread_of(&deps, true, false).await;
    assert_ne!((thread, runs), (own, 1));
    assert_eq!(runs, 2);
    assert!(!deps.inline.is_fast(OrgId(1), fingerprint));
}

/// Returns a client of a server that has no metadata.
fn upstream() -> Arc<Upstream> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let answer = move || {
        for stream in listener.incoming() {
            let (mut stream, mut head, mut some) = (stream.expect("a connection"), Vec::new(), [0; 1_024]);
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read(&mut some) {
                    Ok(read @ 1..) => head.extend_from_slice(&some[..read]),
                    _ => return,
                }
            }
            let body = r#"{"status":"success","data":{}}"#;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
            let text = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(text.as_bytes()).expect("a client that reads");
        }
    };
    // It ends with the process.
    std::thread::spawn(answer);
    let rules = EgressRules::parse(["127.0.0.0/8"]).expect("a network");
    let target = Target::new(TargetUrl::parse(&url).expect("a URL"));
    Arc::new(Upstream::new(target, Egress::new(rules, &[])).expect("a client"))
}

/// Returns the threads of the steps of a query that another server answers: its preparation, and
/// the work on its answer, which takes too long for a connection's thread unless `is_fast`.
async fn threads_of_steps(
    deps: &ReadDeps,
    upstream: &Arc<Upstream>,
    sole_connection: bool,
    is_fast: bool,
) -> Vec<std::thread::ThreadId> {
    let request = QueryRequest::from(QueryAccess { sole_connection, ..entered() })
        .with_fingerprint(of_request(deps))
        .inline_over(TimeRange::ALL);
    let threads = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&threads);
    let work: RunWork = Box::new(move |run| {
        recorded.lock().ignore_poison().push(std::thread::current().id());
        let upstream = run.upstream.as_ref().expect("an upstream");
        upstream.answer(UpstreamRead::Metadata { metric: None })?;
        while !is_fast && run.deadline.inline.is_some() {
            if run.deadline.is_expired() {
                return Err(QueryError::Timeout.into());
            }
        }
        Ok(())
    });
    deps.run_upstream(request, Arc::clone(upstream), None, work).await.expect("answered");
    drop(try_inline(deps).await);
    std::mem::take(&mut *threads.lock().ignore_poison())
}

#[tokio::test]
async fn both_steps_of_a_fast_upstream_query_run_inline_while_its_connection_is_the_only_one() {
    let (deps, upstream, own) = (deps(), upstream(), std::thread::current().id());
    let fingerprint = up(&deps);
    let is_own = |threads: Vec<std::thread::ThreadId>| -> Vec<bool> {
        threads.into_iter().map(|thread| thread == own).collect()
    };
    assert_eq!(is_own(threads_of_steps(&deps, &upstream, true, true).await), [false, false], "the first one");
    deps.inline.record(OrgId(1), fingerprint.of_preparation(), Duration::ZERO);
    deps.inline.record(OrgId(1), fingerprint, Duration::MAX);
    assert_eq!(is_own(threads_of_steps(&deps, &upstream, true, true).await), [true, false]);
    deps.inline.record(OrgId(1), fingerprint, Duration::ZERO);
    assert_eq!(is_own(threads_of_steps(&deps, &upstream, true, true).await), [true, true]);
    deps.inline.record(OrgId(1), fingerprint, Duration::ZERO);
    assert_eq!(is_own(threads_of_steps(&deps, &upstream, false, true).await), [false, false]);
    for key in [fingerprint, fingerprint.of_preparation()] {
        deps.inline.record(OrgId(1), key, Duration::ZERO);
    }
    // A step that takes too long starts again on the lane, and the next one goes there at once.
    assert_eq!(is_own(threads_of_steps(&deps, &upstream, true, false).await), [true, true, false]);
    assert!(!deps.inline.is_fast(OrgId(1), fingerprint));
}
