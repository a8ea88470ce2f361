//! Bodies that are passed on as they were received: nothing is lost or reordered, and what cannot
//! be passed on comes from the log.

use std::sync::mpsc;

use super::*;
use crate::forward::encode::OutgoingSeries;
use crate::forward::received::{PASSED_SAMPLES_MIN, ReceivedBodies, join};

const FORMAT: BodyFormat = BodyFormat { version: WriteVersion::V1, compression: BodyCompression::Snappy };
/// [`PASSED_SAMPLES_MIN`].
const FEWEST: u32 = 500;

/// Stores samples as the routes do, and offers their body to the targets.
fn receive(store: &Opened, received: &Arc<ReceivedBodies>, samples: &[(u32, i64, f64)]) -> Bytes {
    let mut batch = BatchBuilder::default();
    let mut encoder = RequestEncoder::new(WriteVersion::V1, BodyCompression::Snappy, REQUEST_BYTES_MAX);
    for (number, ms, value) in samples {
        let sample = [Sample { at: NOW.plus_ms(*ms), value: *value }];
        batch.series(&series(*number), sample);
        encoder.push(&OutgoingSeries::of_samples(&series(*number), &sample)).expect("fits");
    }
    let body = Bytes::from(encoder.finish().expect("compressed").body);
    let appending = store.tsdb.prepare(ORG, &batch.batch(), NOW).expect("admitted");
    let (done, stored) = mpsc::channel();
    let (bodies, own) = (Arc::clone(received), body.clone());
    store.tsdb.commit_then(appending, move |result| {
        if let Some(span) = result.expect("stored").complete_span() {
            bodies.add(ORG, FORMAT, span, &own);
        }
        done.send(()).expect("received");
    });
    stored.recv().expect("stored");
    body
}

const _: () = assert!(FEWEST as u64 == PASSED_SAMPLES_MIN);

fn passing(store: &Opened, received: &ReceivedBodies) -> Sender {
    let mut sender = sender(store, options(ForwardProtocol::V1));
    sender.pass_on(|format| received.queue(ORG, format, store.tsdb.log_end(), || ()));
    sender
}

fn round(count: u32, ms: i64) -> Vec<(u32, i64, f64)> {
    (0..count).map(|number| (number, ms, f64::from(number) + ms as f64)).collect()
}

/// A sender that passes on bodies, with its store and its target.
struct Passing {
    store: Opened,
    received: Arc<ReceivedBodies>,
    sender: Sender,
    target: FakeTarget,
    now: Duration,
    written: Vec<(u32, i64, f64)>,
    _dir: tempfile::TempDir,
}

impl Passing {
    fn new() -> Passing {
        Passing::after(&[])
    }

    /// Starts the sender once these samples are in the log.
    fn after(rounds: &[Vec<(u32, i64, f64)>]) -> Passing {
        let dir = tempfile::tempdir().expect("made");
        let (store, received) = (open(dir.path()), Arc::default());
        rounds.iter().for_each(|samples| write(&store.tsdb, ORG, samples));
        let sender = passing(&store, &received);
        let (target, now, written) = (FakeTarget::default(), Duration::ZERO, rounds.concat());
        Passing { store, received, sender, target, now, written, _dir: dir }
    }

    fn receive(&mut self, samples: &[(u32, i64, f64)]) -> Bytes {
        self.written.extend(samples);
        receive(&self.store, &self.received, samples)
    }

    /// Sends everything, and returns the bodies in their order.
    fn bodies(&mut self) -> Vec<Bytes> {
        wait_until_readable(&self.store.tsdb);
        let Passing { sender, now, .. } = self;
        let mut sent = Vec::new();
        loop {
            sender.fill(*now).expect("read");
            sender.flush();
            let Some(request) = sender.request(*now, NOW) else {
                let Some(due) = sender.pass_due() else { return sent };
                *now = due;
                continue;
            };
            sent.push(request.body);
            sender.answered(request.shard, Answer::Accepted { written: None }, *now, NOW);
        }
    }

    /// Sends everything to the target, and checks that it arrived.
    fn send_all(&mut self) {
        wait_until_readable(&self.store.tsdb);
        drain(&mut self.sender, &mut self.target, &mut self.now, || TargetFault::None);
        assert_complete(&self.written, &self.target.arrived);
    }
}

#[test]
fn bodies_are_passed_on_as_they_were_received_unless_other_records_come_first() {
    let mut test = Passing::new();
    let one = test.receive(&round(FEWEST, -9_000));
    assert_eq!(test.bodies(), [one]);
    assert_eq!(test.now, PASS_WAIT);
    // Bodies are joined. Records of another organisation are skipped.
    let mut all: Vec<Bytes> = (0..3).map(|ms| test.receive(&round(FEWEST, ms * 1_000 - 8_000))).collect();
    write(&test.store.tsdb, OrgId(9), &[(1, -5_000, 1.0)]);
    all.push(test.receive(&round(FEWEST + 7, -5_000)));
    assert_eq!(test.bodies(), [join(&all).expect("valid")]);
    assert_eq!(test.sender.counts().accepted_samples, u64::from(5 * FEWEST + 7));
    assert_eq!(test.sender.position(), test.store.tsdb.log_end());
    // A record without a body comes before the next body, and a small body is read from the log.
    write(&test.store.tsdb, ORG, &[(1, -4_000, 1.0)]);
    let another = test.receive(&round(FEWEST, -3_000));
    test.receive(&round(FEWEST - 1, -2_000));
    let sent = test.bodies();
    assert_eq!((sent.len(), &sent[1]), (3, &another));
    assert_eq!(test.sender.counts().accepted_samples, u64::from(7 * FEWEST + 7));
    assert_eq!((test.sender.counts().requests, test.sender.counts().passed_requests), (5, 3));
}

#[test]
fn as_many_bodies_are_joined_as_a_request_may_have_without_waiting() {
    let mut test = Passing::new();
    for ms in 0..7 {
        test.receive(&round(4_000, ms * 1_000 - 90_000));
    }
    wait_until_readable(&test.store.tsdb);
    test.sender.fill(test.now).expect("read");
    let first = test.sender.request(test.now, NOW).expect("at once");
    assert_eq!(decode(&first).len(), 8_000);
    let answer = test.target.answer(&first, TargetFault::None);
    test.sender.answered(first.shard, answer, test.now, NOW);
    test.send_all();
    assert_eq!((test.target.requests, test.target.most_samples), (4, 8_000));
}

#[test]
fn the_backlog_is_estimated_from_bodies_that_were_passed_on() {
    let mut test = Passing::new();
    for ms in 0..3 {
        test.receive(&round(FEWEST, ms * 1_000 - 90_000));
    }
    test.bodies();
    assert_eq!(test.sender.counts().passed_requests, 1);
    for ms in 3..7 {
        test.receive(&round(FEWEST, ms * 1_000 - 90_000));
    }
    wait_until_readable(&test.store.tsdb);
    let lag = test.sender.lag_samples(test.store.tsdb.log_bytes_from(test.sender.read_position()));
    let expected = u64::from(4 * FEWEST);
    assert!((expected / 2..expected * 2).contains(&lag), "{lag} samples");
}

#[test]
fn a_body_with_a_refused_or_changed_sample_is_not_passed_on() {
    let mut test = Passing::new();
    test.receive(&round(FEWEST, -2_000));
    test.bodies();
    // Another value at the time before it is refused.
    let mut samples = round(FEWEST, -1_000);
    samples.push((0, -1_000, 77.0));
    let body = test.receive(&samples);
    let sent = test.bodies();
    assert_eq!((sent.len(), sent.contains(&body)), (1, false));
    assert_eq!(test.sender.counts().passed_requests, 1, "the first");
    let rule = serde_json::json!([{ "target_label": "site", "replacement": "berlin" }]);
    let rules: Vec<crate::relabel::RelabelRule> = serde_json::from_value(rule).expect("rules");
    let rules = RelabelRules::parse(&rules).expect("valid");
    let mut changing = sender(&test.store, SenderOptions { rules, ..options(ForwardProtocol::V1) });
    changing.pass_on(|_| unreachable!("the series change"));
}

#[test]
fn a_refused_body_is_sent_again_from_the_log_without_its_bad_sample() {
    let mut test = Passing::new();
    for ms in [-3_000, -2_000, -1_000] {
        let mut samples = round(FEWEST, ms);
        if ms == -2_000 {
            samples[70].2 = POISON;
        }
        test.receive(&samples);
    }
    test.send_all();
    assert_eq!(test.sender.counts().refused_samples, 1);
    assert_eq!(test.sender.counts().accepted_samples, u64::from(3 * FEWEST - 1));
    assert!(test.sender.refused().all(|body| body.first_series == series(70).to_string()));
}

#[test]
fn a_target_that_fell_back_to_version_1_gets_no_bodies_of_version_2() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    let received = ReceivedBodies::default();
    write(&store.tsdb, ORG, &round(1, -1_000));
    let mut sender = sender(&store, options(ForwardProtocol::Auto));
    let second = BodyFormat { version: WriteVersion::V2, ..FORMAT };
    sender.pass_on(|format| received.queue(ORG, format, store.tsdb.log_end(), || ()));
    assert!(received.wants(ORG, second) && !received.wants(ORG, FORMAT) && !received.wants(OrgId(9), second));
    wait_until_readable(&store.tsdb);
    let mut now = Duration::ZERO;
    drain(&mut sender, &mut FakeTarget::default(), &mut now, || TargetFault::None);
    assert!(received.wants(ORG, FORMAT) && !received.wants(ORG, second));
    drop(sender);
    assert!(!received.wants(ORG, FORMAT));
}

#[test]
fn a_sender_that_has_caught_up_with_several_shards_passes_on_bodies_again() {
    let rounds: Vec<_> = (0..80).map(|ms| round(1_000, ms * 1_000 - 90_000)).collect();
    let mut test = Passing::after(&rounds);
    test.send_all();
    assert!(test.sender.shards() > 1);
    test.receive(&round(FEWEST, -5_000));
    test.send_all();
    assert_eq!((test.sender.shards(), test.sender.counts().passed_requests), (1, 1));
}

/// A step of the property test.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A request with this many samples, of which one is bad for the target.
    Receive(u32, bool),
    /// Samples without a body.
    Write(u32),
    Other,
    /// The sender reads, and sends at most this many requests.
    Send(usize),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (FEWEST - 20..FEWEST + 200, prop::bool::weighted(0.1)).prop_map(|(n, bad)| Step::Receive(n, bad)),
        2 => (1..40u32).prop_map(Step::Write),
        1 => Just(Step::Other),
        5 => (0..6usize).prop_map(Step::Send),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_sample_arrives_in_order_whatever_is_passed_on(
        steps in steps(),
        faults in prop::collection::vec(faults(), 1..60),
        bytes_max in prop_oneof![Just(1 << 20), 10_000..60_000u64],
    ) {
        let dir = tempfile::tempdir().expect("made");
        let store = open(dir.path());
        let received = Arc::new(ReceivedBodies::new(bytes_max));
        let (mut written, mut target, mut now) = (Vec::new(), FakeTarget::default(), Duration::ZERO);
        let mut faults = faults.into_iter();
        let mut running = passing(&store, &received);
        write(&store.tsdb, OrgId(9), &[(1, -5_000_000, 1.0)]);
        let mut ms = -5_000_000;
        for step in steps {
            ms += 1_000;
            now += Duration::from_secs(5);
            match step {
                Step::Receive(count, bad) => {
                    let mut samples = round(count, ms);
                    if bad {
                        samples[9].2 = POISON;
                    }
                    receive(&store, &received, &samples);
                    written.extend(samples);
                }
                Step::Write(count) => {
                    write(&store.tsdb, ORG, &round(count, ms));
                    written.extend(round(count, ms));
                }
                Step::Other => write(&store.tsdb, OrgId(9), &[(1, ms, 1.0)]),
                Step::Send(most) => {
                    running.fill(now).expect("read");
                    for _ in 0..most {
                        let Some(request) = running.request(now, NOW) else { break };
                        let answer = target.answer(&request, faults.next().unwrap_or(TargetFault::None));
                        running.answered(request.shard, answer, now, NOW);
                        running.fill(now).expect("read");
                    }
                    store.tsdb.advance_pin(CONSUMER, running.position());
                }
                // What was not acknowledged is sent again, from the log.
                Step::Restart => running = passing(&store, &received),
            }
        }
        let end = wait_until_readable(&store.tsdb);
        drain(&mut running, &mut target, &mut now, || faults.next().unwrap_or(TargetFault::None));
        assert_complete(&written, &target.arrived);
        let poisoned = written.iter().filter(|(_, _, value)| *value == POISON).count() as u64;
        prop_assert!(running.counts().refused_samples <= poisoned);
        prop_assert!(running.position() >= end, "{:?} of {end:?}", running.position());
    }
}
