//! A sender against a target that fails in every way at random: every accepted sample arrives at
//! least once and, within a series, in the order of the log.

mod received;

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::ingest::{DecodeLimits, DecodeScratch, remote_write, remote_write2};
use crate::model::{BatchBuilder, MetricKind, WriteBatch};
use crate::tsdb::tests::{Opened, open_with};
use crate::tsdb::{ConsumerId, ConsumerKind, Options};

const ORG: OrgId = OrgId(3);
const NOW: Timestamp = Timestamp::from_ms(1_795_000_000_000);
const CONSUMER: ConsumerId = ConsumerId { kind: ConsumerKind::Forward, number: 1 };
/// A value that the target never accepts.
const POISON: f64 = 666.0;

fn open(dir: &Path) -> Opened {
    open_with(dir, Options::default()).0
}

fn series(number: u32) -> Labels {
    Labels::from_pairs([("__name__", "up".to_owned()), ("job", format!("job-{number}"))])
}

fn write(tsdb: &Tsdb, org: OrgId, samples: &[(u32, i64, f64)]) {
    let mut batch = BatchBuilder::default();
    for (number, ms, value) in samples {
        batch.series(&series(*number), [Sample { at: NOW.plus_ms(*ms), value: *value }]);
    }
    let report = tsdb.append(org, &batch.batch(), NOW).expect("stored");
    assert_eq!(report.refused, 0, "{report:?}");
}

fn options(protocol: ForwardProtocol) -> SenderOptions {
    SenderOptions {
        org: ORG,
        protocol,
        compression: BodyCompression::Snappy,
        rules: RelabelRules::default(),
        tenant_label: None,
        wait: Duration::from_secs(5),
    }
}

fn sender(store: &Opened, options: SenderOptions) -> Sender {
    let from = store.tsdb.pin(CONSUMER, LogPosition(1)).expect("pinned");
    Sender::new(Arc::clone(&store.tsdb), options, from, Entropy::seeded(5)).expect("starts")
}

/// The samples in order of arrival: the series as text, the time and the bits.
type Arrived = Vec<(String, i64, u64)>;

fn decode(request: &OutgoingRequest) -> Arrived {
    let limits = DecodeLimits::default();
    let mut scratch = DecodeScratch::default();
    let found = |batch: &WriteBatch<'_>| {
        let mut arrived = Arrived::new();
        for series in &batch.series {
            let mut pairs = Vec::new();
            (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels");
            let text = |bytes: &[u8]| std::str::from_utf8(bytes).expect("UTF-8").to_owned();
            let labels = Labels::from_pairs(pairs.into_iter().map(|(n, v)| (text(n), text(v)))).to_string();
            for sample in &batch.samples[series.samples.clone()] {
                arrived.push((labels.clone(), sample.at.as_ms(), sample.value.to_bits()));
            }
        }
        arrived
    };
    match request.version {
        WriteVersion::V1 => {
            found(&remote_write::decode(&request.body, &limits, &mut scratch).expect("decodes"))
        }
        WriteVersion::V2 => {
            found(&remote_write2::decode(&request.body, &limits, &mut scratch).expect("decodes"))
        }
    }
}

/// A target in the test.
#[derive(Default)]
struct FakeTarget {
    arrived: Arrived,
    requests: usize,
    most_samples: usize,
    /// Whether it understands version 2.0.
    is_new: bool,
    /// The answer to version 2.0 if it does not: 415 unless set.
    unknown: Option<u16>,
    /// The times of samples with their start timestamps, of version 2.0.
    starts: Vec<(i64, i64)>,
}

/// The target's response to a request.
#[derive(Clone, Copy, Debug)]
enum TargetFault {
    None,
    /// An error before the samples are stored.
    Refuses(u16),
    /// The samples are stored, and the response is lost.
    Forgets,
    /// 429 with a delay in seconds.
    Delays(u64),
    /// The connection fails.
    Unreachable,
}

impl FakeTarget {
    fn answer(&mut self, request: &OutgoingRequest, fault: TargetFault) -> Answer {
        self.requests += 1;
        let status = |status, retry_after| Answer::Status { status, text: "no".to_owned(), retry_after };
        match fault {
            TargetFault::Refuses(code) => return status(code, None),
            TargetFault::Delays(seconds) => return status(429, Some(Duration::from_secs(seconds))),
            TargetFault::Unreachable => {
                return Answer::Failed { code: "target_unreachable", text: "reset".to_owned() };
            }
            TargetFault::None | TargetFault::Forgets => {}
        }
        if request.version == WriteVersion::V2 && !self.is_new {
            return status(self.unknown.unwrap_or(415), None);
        }
        if request.version == WriteVersion::V2 {
            let mut scratch = DecodeScratch::default();
            let batch = remote_write2::decode(&request.body, &DecodeLimits::default(), &mut scratch);
            let starts = batch.expect("decodes").starts.clone();
            self.starts.extend(starts.iter().map(|start| (start.at.as_ms(), start.start.as_ms())));
        }
        let samples = decode(request);
        if samples.iter().any(|(_, _, bits)| *bits == POISON.to_bits()) {
            return status(400, None);
        }
        self.most_samples = self.most_samples.max(samples.len());
        let written = (request.version == WriteVersion::V2).then_some(samples.len() as u64);
        self.arrived.extend(samples);
        match fault {
            TargetFault::Forgets => Answer::Failed { code: "target_timeout", text: "cut".to_owned() },
            _ => Answer::Accepted { written },
        }
    }
}

/// Runs the sender until everything is acknowledged. The clock advances by the delay that the
/// sender requests.
fn drain(
    sender: &mut Sender,
    target: &mut FakeTarget,
    now: &mut Duration,
    mut fault: impl FnMut() -> TargetFault,
) {
    let mut rounds = 0;
    loop {
        rounds += 1;
        assert!(rounds < 100_000, "it ends");
        sender.fill(*now).expect("read");
        let mut answers = Vec::new();
        while let Some(request) = sender.request(*now, NOW) {
            let shard = request.shard;
            answers.push((shard, target.answer(&request, fault())));
        }
        let sent = !answers.is_empty();
        for (shard, answer) in answers {
            sender.answered(shard, answer, *now, NOW);
        }
        if sent || sender.can_read() {
            continue;
        }
        let idle = sender.idle_for(*now, Duration::from_secs(3_600));
        if sender.position() == sender.read_position() && sender.pass_due().is_none() {
            return;
        }
        *now = now.saturating_add(idle.max(Duration::from_millis(1)));
    }
}

/// Waits until the last record can be read, which is a moment after its acknowledgement. Returns
/// the end of the log. The thread that commits may append a mark of its own at any time.
fn wait_until_readable(tsdb: &Tsdb) -> LogPosition {
    let end = tsdb.log_end();
    let mut tail = tsdb.tail(LogPosition(end.0 - 1)).expect("the log has the record");
    assert!(tail.next(Duration::from_secs(60)).expect("read").is_some());
    end
}

/// Checks that each sample arrived, and that the first arrivals of each series are in order.
fn assert_complete(written: &[(u32, i64, f64)], arrived: &Arrived) {
    let mut expected: BTreeMap<String, Vec<(i64, u64)>> = BTreeMap::new();
    for (number, ms, value) in written.iter().filter(|(_, _, value)| *value != POISON) {
        let key = series(*number).to_string();
        expected.entry(key).or_default().push((NOW.plus_ms(*ms).as_ms(), value.to_bits()));
    }
    let mut seen = BTreeSet::new();
    let mut first: BTreeMap<String, Vec<(i64, u64)>> = BTreeMap::new();
    for (series, at, bits) in arrived {
        if seen.insert((series.clone(), *at, *bits)) {
            first.entry(series.clone()).or_default().push((*at, *bits));
        }
    }
    for (series, samples) in &expected {
        assert_eq!(first.get(series), Some(samples), "{series}");
    }
    assert_eq!(first.len(), expected.len());
}

fn faults() -> impl Strategy<Value = TargetFault> {
    prop_oneof![
        3 => Just(TargetFault::None),
        1 => prop_oneof![Just(500), Just(503), Just(502), Just(401), Just(404), Just(403)].prop_map(TargetFault::Refuses),
        1 => Just(TargetFault::Forgets),
        1 => (0..400u64).prop_map(TargetFault::Delays),
        1 => Just(TargetFault::Unreachable),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_sample_arrives_at_least_once_and_in_order_whatever_the_target_does(
        rounds in prop::collection::vec((1..40u32, 1..5usize), 1..12),
        faults in prop::collection::vec(faults(), 1..60),
        poison in prop::option::of((0..12usize, 0..40u32)),
        is_new in any::<bool>(),
        restarts in prop::collection::vec(any::<bool>(), 12),
    ) {
        let dir = tempfile::tempdir().expect("made");
        let store = open(dir.path());
        let mut written = Vec::new();
        let mut target = FakeTarget { is_new, ..FakeTarget::default() };
        let mut now = Duration::ZERO;
        let mut faults = faults.into_iter();
        let mut running = sender(&store, options(ForwardProtocol::Auto));
        let mut ms = -5_000_000;
        for (round, (count, times)) in rounds.iter().enumerate() {
            for _ in 0..*times {
                ms += 1_000;
                let samples: Vec<(u32, i64, f64)> = (0..*count).map(|number| {
                    let poisoned = poison == Some((round, number));
                    (number, ms, if poisoned { POISON } else { f64::from(number) + ms as f64 / 1_000.0 })
                }).collect();
                write(&store.tsdb, ORG, &samples);
                write(&store.tsdb, OrgId(9), &[(1, ms, 1.0)]);
                written.extend(samples);
            }
            // After a part of the work the process may be killed; then all unacknowledged samples
            // are sent again.
            running.fill(now).expect("read");
            running.flush();
            if let Some(request) = running.request(now, NOW) {
                let answer = target.answer(&request, faults.next().unwrap_or(TargetFault::None));
                running.answered(request.shard, answer, now, NOW);
            }
            store.tsdb.advance_pin(CONSUMER, running.position());
            if restarts.get(round).copied().unwrap_or(false) {
                running = sender(&store, options(ForwardProtocol::Auto));
            }
        }
        let end = wait_until_readable(&store.tsdb);
        drain(&mut running, &mut target, &mut now, || faults.next().unwrap_or(TargetFault::None));
        assert_complete(&written, &target.arrived);
        prop_assert!(target.most_samples <= REQUEST_SAMPLES_MAX);
        let poisoned = written.iter().filter(|(_, _, value)| *value == POISON).count() as u64;
        // After a restart a refused sample is refused again.
        prop_assert!(running.counts().refused_samples <= poisoned);
        prop_assert_eq!(running.counts().forgotten_samples, 0);
        prop_assert!(running.position() >= end, "{:?} of {end:?}", running.position());
    }
}

#[test]
fn one_bad_sample_of_two_thousand_is_found_and_kept_for_inspection() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    let value = |number: u32| if number == 1_234 { POISON } else { f64::from(number) + 0.5 };
    let samples: Vec<(u32, i64, f64)> = (0..2_000).map(|number| (number, -1_000, value(number))).collect();
    write(&store.tsdb, ORG, &samples);
    let mut sender = sender(&store, options(ForwardProtocol::V1));
    let mut target = FakeTarget::default();
    let mut now = Duration::ZERO;
    drain(&mut sender, &mut target, &mut now, || TargetFault::None);
    assert_complete(&samples, &target.arrived);
    assert!(target.requests <= 30, "{} requests", target.requests);
    assert_eq!(sender.counts().refused_samples, 1);
    let refused: Vec<&RefusedBody> = sender.refused().collect();
    assert_eq!((refused.len(), refused[0].status, refused[0].samples), (1, 400, 1));
    assert!(refused[0].first_series.contains("job-1234"), "{}", refused[0].first_series);
}

#[test]
fn a_search_for_bad_samples_ends_after_its_limit_of_requests() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    let samples: Vec<(u32, i64, f64)> = (0..2_000).map(|number| (number, -1_000, POISON)).collect();
    write(&store.tsdb, ORG, &samples);
    let mut sender = sender(&store, options(ForwardProtocol::V1));
    let mut target = FakeTarget::default();
    let mut now = Duration::ZERO;
    drain(&mut sender, &mut target, &mut now, || TargetFault::None);
    assert_eq!((sender.counts().refused_samples, target.arrived.len()), (2_000, 0));
    assert!(target.requests <= 130, "{} requests", target.requests);
    assert_eq!(sender.refused().count(), REFUSED_KEPT);
}

#[test]
fn a_target_that_is_down_for_a_day_gets_everything_afterwards() {
    let dir = tempfile::tempdir().expect("made");
    let mut store = open(dir.path());
    let mut running = sender(&store, options(ForwardProtocol::V1));
    let mut target = FakeTarget::default();
    let mut now = Duration::ZERO;
    let mut written = Vec::new();
    let mut attempts = 0;
    let day = Duration::from_secs(86_400);
    let mut minute = 0;
    while now < day {
        let samples: Vec<(u32, i64, f64)> =
            (0..20).map(|number| (number, -90_000_000 + minute * 60_000, minute as f64 + 0.5)).collect();
        if minute < 1_440 {
            write(&store.tsdb, ORG, &samples);
            written.extend(samples);
        }
        minute += 1;
        running.fill(now).expect("read");
        while let Some(request) = running.request(now, NOW) {
            attempts += 1;
            let answer = target.answer(&request, TargetFault::Unreachable);
            running.answered(request.shard, answer, now, NOW);
        }
        assert!(running.position() <= LogPosition(4), "the pin stays");
        store.tsdb.advance_pin(CONSUMER, running.position());
        if minute % 60 == 0 {
            // Log files that only the pin keeps.
            store.tsdb.seal(NOW.plus_ms(-90_000_000 + minute * 60_000)).expect("sealed");
            store.tsdb.save_pins();
        }
        if minute == 700 {
            drop(running);
            drop(store);
            store = open(dir.path());
            running = sender(&store, options(ForwardProtocol::V1));
        }
        now += Duration::from_secs(60);
    }
    assert!((500..=1_600).contains(&attempts), "{attempts} attempts: one a minute at most");
    assert!(target.arrived.is_empty());
    let files = store.tsdb.stats().wal_files;
    assert!(files > 20, "{files} log files");
    drain(&mut running, &mut target, &mut now, || TargetFault::None);
    assert_complete(&written, &target.arrived);
    assert_eq!((running.counts().lost_records, store.tsdb.pins()[0].lost), (0, 0));
    store.tsdb.advance_pin(CONSUMER, running.position());
    store.tsdb.save_pins();
    store.tsdb.seal(NOW).expect("sealed");
    assert!(store.tsdb.stats().wal_files < 4, "{} log files", store.tsdb.stats().wal_files);
}

/// Returns a sender of version 1.0 whose first request has one sample.
fn sender_of_one_sample(store: &Opened) -> Sender {
    write(&store.tsdb, ORG, &[(1, -1_000, 1.0)]);
    let mut sender = sender(store, options(ForwardProtocol::V1));
    sender.fill(Duration::ZERO).expect("read");
    sender.flush();
    sender
}

#[test]
fn delays_grow_to_a_minute_and_a_target_may_ask_for_five() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    let mut sender = sender_of_one_sample(&store);
    let mut now = Duration::ZERO;
    let mut longest = Duration::ZERO;
    for attempt in 0..40u32 {
        let request = sender.request(now, NOW).expect("due");
        let asked = if attempt == 39 { Some(Duration::from_secs(9_000)) } else { None };
        let answer = Answer::Status { status: 503, text: String::new(), retry_after: asked };
        sender.answered(request.shard, answer, now, NOW);
        assert!(matches!(sender.state(), SenderState::Retrying { .. }));
        let idle = sender.idle_for(now, Duration::MAX);
        let doubled = Duration::from_millis(30) * 2u32.pow(attempt.min(12));
        let most = if asked.is_some() { RETRY_AFTER_MAX } else { doubled.min(Duration::from_secs(60)) };
        assert!(idle <= most && idle >= most / 2, "attempt {attempt}: {idle:?} of {most:?}");
        assert!(sender.request(now + idle / 2, NOW).is_none(), "not before");
        longest = longest.max(idle);
        now += idle;
    }
    assert_eq!(longest, RETRY_AFTER_MAX);
    assert_eq!(sender.counts().retried_requests, 40);
}

#[test]
fn a_wrong_credential_drops_nothing_and_is_shown() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    write(&store.tsdb, ORG, &[(1, -1_000, 1.0)]);
    let mut sender = sender(&store, options(ForwardProtocol::V1));
    let (mut target, mut now, mut left) = (FakeTarget::default(), Duration::ZERO, 20);
    let mut states = BTreeSet::new();
    drain(&mut sender, &mut target, &mut now, || {
        left -= 1;
        if left > 0 { TargetFault::Refuses(401) } else { TargetFault::None }
    });
    states.insert(sender.state().as_str());
    assert_eq!((target.arrived.len(), sender.counts().refused_samples), (1, 0));
    assert_eq!(states.into_iter().collect::<Vec<_>>(), ["running"]);
    write(&store.tsdb, ORG, &[(1, -500, 1.0)]);
    sender.fill(now).expect("read");
    sender.flush();
    let request = sender.request(now, NOW).expect("due");
    let answer = target.answer(&request, TargetFault::Refuses(403));
    sender.answered(request.shard, answer, now, NOW);
    assert_eq!(sender.state().as_str(), "misconfigured");
    assert_eq!(sender.state().error(), Some("status 403: no"));
}

#[test]
fn a_target_that_acknowledges_and_forgets_is_noticed_by_its_counts() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    write(&store.tsdb, ORG, &[(1, -1_000, 1.0), (2, -1_000, 2.0), (3, -1_000, 3.0)]);
    let mut sender = sender(&store, options(ForwardProtocol::V2));
    sender.fill(Duration::ZERO).expect("read");
    sender.flush();
    let request = sender.request(Duration::ZERO, NOW).expect("due");
    sender.answered(request.shard, Answer::Accepted { written: Some(1) }, Duration::ZERO, NOW);
    let counts = sender.counts();
    assert_eq!((counts.accepted_samples, counts.forgotten_samples), (3, 2));
}

#[test]
fn a_receiver_of_version_1_that_answers_400_to_version_2_gets_version_1() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    let samples: Vec<(u32, i64, f64)> =
        (0..2_500).map(|number| (number, -1_000, f64::from(number) + 0.5)).collect();
    write(&store.tsdb, ORG, &samples);
    let compression = BodyCompression::Zstd;
    let mut sender = sender(&store, SenderOptions { compression, ..options(ForwardProtocol::Auto) });
    let mut target = FakeTarget { unknown: Some(400), ..FakeTarget::default() };
    drain(&mut sender, &mut target, &mut Duration::ZERO.clone(), || TargetFault::None);
    assert_complete(&samples, &target.arrived);
    assert_eq!((sender.counts().refused_samples, target.requests), (0, 3));
    assert_eq!(sender.version(), WriteVersion::V1);
}

#[test]
fn a_client_that_the_endpoint_of_tokens_refuses_is_a_wrong_configuration() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    let mut sender = sender_of_one_sample(&store);
    let request = sender.request(Duration::ZERO, NOW).expect("due");
    let answer = Answer::Failed { code: "target_refused", text: "invalid_client".to_owned() };
    sender.answered(request.shard, answer, Duration::ZERO, NOW);
    assert_eq!(sender.state().as_str(), "misconfigured");
    assert_eq!(sender.counts().refused_samples, 0);
    assert!(sender.position() < sender.read_position());
}

#[test]
fn each_sample_has_its_own_start_timestamp_at_the_target() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    let at = |ms: i64| NOW.plus_ms(ms - 100_000);
    // (time, start) in ms, by request.
    let requests: [&[(i64, i64)]; 3] = [&[(10, 1)], &[(20, 1), (30, 25), (40, 35)], &[(50, 45), (60, 45)]];
    for request in requests {
        let mut batch = BatchBuilder::default();
        batch.series(&series(1), request.iter().map(|(ms, _)| Sample { at: at(*ms), value: 1.0 }));
        for (ms, start) in request {
            batch.start(at(*ms), at(*start));
        }
        let report = store.tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
        assert_eq!(report.refused, 0, "{report:?}");
    }
    let mut sender = sender(&store, options(ForwardProtocol::V2));
    let mut target = FakeTarget { is_new: true, ..FakeTarget::default() };
    drain(&mut sender, &mut target, &mut Duration::ZERO.clone(), || TargetFault::None);
    let expected: Vec<(i64, i64)> =
        requests.concat().iter().map(|(ms, start)| (at(*ms).as_ms(), at(*start).as_ms())).collect();
    assert_eq!(target.starts, expected);
}

#[test]
fn the_first_sample_that_is_not_acknowledged_is_known_whatever_came_after_it() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    let mut sender = sender(&store, options(ForwardProtocol::V1));
    assert_eq!(sender.first_queued_ms(), None);
    write(&store.tsdb, ORG, &[(1, -50_000, 1.0), (2, -40_000, 1.0)]);
    write(&store.tsdb, ORG, &[(1, -30_000, 2.0), (3, 300_000, 2.0)]);
    sender.fill(Duration::ZERO).expect("read");
    assert_eq!(sender.first_queued_ms(), Some(NOW.plus_ms(-40_000).as_ms()), "while it waits");
    sender.flush();
    let request = sender.request(Duration::ZERO, NOW).expect("due");
    assert_eq!(sender.first_queued_ms(), Some(NOW.plus_ms(-40_000).as_ms()), "in flight");
    sender.answered(request.shard, Answer::Accepted { written: None }, Duration::ZERO, NOW);
    assert_eq!(sender.first_queued_ms(), None);
}

#[test]
fn requests_of_version_1_have_the_labels_and_metadata_of_each_series() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    let write = |kind, name: &str| {
        let mut batch = BatchBuilder::default();
        batch.series(&Labels::from_pairs([("__name__", name)]), [Sample { at: NOW, value: 1.0 }]);
        batch.describe(name, kind, "h", "");
        store.tsdb.append(ORG, &batch.batch(), NOW).expect("stored");
    };
    write(MetricKind::Gauge, "a");
    let mut sender = sender(&store, options(ForwardProtocol::V1));
    let described = |sender: &mut Sender| {
        let end = wait_until_readable(&store.tsdb);
        while sender.read_position() < end {
            sender.fill(Duration::ZERO).expect("read");
        }
        sender.flush();
        let request = sender.request(Duration::ZERO, NOW).expect("samples");
        sender.answered(request.shard, Answer::Accepted { written: None }, Duration::ZERO, NOW);
        let mut scratch = DecodeScratch::default();
        let batch = remote_write::decode(&request.body, &DecodeLimits::default(), &mut scratch);
        let batch = batch.expect("decodes");
        batch.metadata.iter().map(|one| (one.name.to_owned(), one.kind)).collect::<Vec<_>>()
    };
    assert_eq!(described(&mut sender), [("a".to_owned(), MetricKind::Gauge)]);
    // A later description counts for series that are known.
    write(MetricKind::Counter, "a");
    write(MetricKind::Gauge, "b");
    let both = [("a".to_owned(), MetricKind::Counter), ("b".to_owned(), MetricKind::Gauge)];
    assert_eq!(described(&mut sender), both);
}

#[test]
fn rules_and_the_tenant_label_change_what_is_sent() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    write(&store.tsdb, ORG, &[(1, -1_000, 1.0), (2, -1_000, 2.0)]);
    let rule = serde_json::json!([{ "source_labels": ["job"], "regex": "job-2", "action": "drop" }]);
    let rules: Vec<crate::relabel::RelabelRule> = serde_json::from_value(rule).expect("rules");
    let mut options = options(ForwardProtocol::V1);
    options.rules = RelabelRules::parse(&rules).expect("valid");
    options.tenant_label = Some(("org".to_owned(), "acme".to_owned()));
    let mut sender = sender(&store, options);
    let mut target = FakeTarget::default();
    let mut now = Duration::ZERO;
    drain(&mut sender, &mut target, &mut now, || TargetFault::None);
    assert_eq!(target.arrived.len(), 1);
    assert!(
        target.arrived[0].0.contains("org=\"acme\"") && target.arrived[0].0.contains("job-1"),
        "{:?}",
        target.arrived
    );
    assert_eq!(sender.position(), store.tsdb.log_end());
}

#[test]
fn a_large_backlog_uses_more_shards_and_keeps_the_order() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    let mut written = Vec::new();
    for step in 0..60 {
        let samples: Vec<(u32, i64, f64)> =
            (0..1_500).map(|number| (number, -5_000_000 + step * 1_000, step as f64)).collect();
        write(&store.tsdb, ORG, &samples);
        written.extend(samples);
    }
    let mut sender = sender(&store, options(ForwardProtocol::V1));
    let mut target = FakeTarget::default();
    let mut now = Duration::ZERO;
    let mut most = 0;
    while sender.position() < store.tsdb.log_end() {
        sender.fill(now).expect("read");
        let mut requests = Vec::new();
        while let Some(request) = sender.request(now, NOW) {
            requests.push(request);
        }
        // Also while the number of shards changes, no batch waits for more samples.
        assert!(!requests.is_empty() || sender.tail.ready_records() == 0, "{now:?}");
        // Answers of several shards arrive in any order.
        requests.reverse();
        for request in requests {
            let answer = target.answer(&request, TargetFault::None);
            sender.answered(request.shard, answer, now, NOW);
        }
        most = most.max(sender.shards());
        now += Duration::from_millis(100);
    }
    assert!(most > 1, "{most} shards");
    assert_complete(&written, &target.arrived);
    now += IDLE;
    sender.fill(now).expect("read");
    sender.fill(now + IDLE).expect("read");
    sender.fill(now + IDLE).expect("read");
    assert_eq!(sender.shards(), 1);
}
