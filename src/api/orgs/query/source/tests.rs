//! Answers and the reads that they belong to.

use super::*;
use crate::model::{EgressRules, OrgId, Target, TargetUrl};
use crate::outbound::Egress;
use crate::promql::MemoryPool;

fn metadata(metric: &str) -> UpstreamRead {
    UpstreamRead::Metadata { metric: Some(metric.to_owned()) }
}

/// A dashboard whose panels were changed between two executions of a picture reads other metrics.
#[test]
fn an_answer_is_used_for_its_own_read_only() {
    let target = Target::new(TargetUrl::parse("http://127.0.0.1:1").expect("a URL"));
    let upstream = Upstream::new(target, Egress::new(EgressRules::default(), &[])).expect("a client");
    let run = UpstreamRun::new(Arc::new(upstream), Timestamp::from_s(0), None);
    let pool = MemoryPool::new(1 << 30);
    let fetched = |metric| {
        let answer = Arc::new(UpstreamAnswer::of(AnswerData::Metadata(Vec::new())));
        let _lease = Arc::new(pool.lease(OrgId(1)));
        run.answers.borrow_mut().push(HeldAnswer { read: metadata(metric), answer, _lease });
        run.fetched.set(run.fetched.get() + 1);
    };
    ["a", "b"].into_iter().for_each(fetched);
    run.restart();
    assert!(run.answer(metadata("a")).is_ok() && run.answer(metadata("b")).is_ok());
    run.restart();
    assert!(run.answer(metadata("b")).is_err(), "the answer at this place is that of `a`");
    assert_eq!((run.wanted.take(), run.answers.borrow().len()), (Some(metadata("b")), 0));
    // Endless changes reach the limit of reads.
    (0..READS_MAX).for_each(|_| fetched("c"));
    run.restart();
    let refused = run.answer(metadata("d")).expect_err("refused");
    assert_eq!(refused.code(), Code::UpstreamUnsupported);
    assert!(!run.is_waiting());
}
