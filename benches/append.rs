//! Samples into the store and back out of its log: `cargo bench --bench append`.
//!
//! Data: 100,000 series (10 labels each, 1,000 targets), one sample each 15 s, in requests of 2,000
//! series with known labels; counters, one-decimal gauges and constants in equal parts. Printed per
//! wall clock: millions of samples per second, and bytes per sample where bytes are written. The
//! log is in a temporary folder. Rows that begin with "remote write" are per second of CPU time, of
//! all threads and of the kernel for them: whole requests with snappy and protobuf.

use std::collections::HashMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use promlet::clock::Stopwatch;
use promlet::entropy::Entropy;
use promlet::ingest::{self, PROTOCOLS};
use promlet::kv::{Control, ControlOptions, DataFolder};
use promlet::model::{
    Access, BatchBuilder, BucketSpan, CounterReset, Exemplar, Histogram, HistogramCounts, HistogramShape,
    Labels, OrgId, Sample, TimeRange, Timestamp, WriteBatch, WriteSeries,
};
use promlet::tsdb::{
    AppendError, AppendReport, Appending, Elapsed, GuessOutcome, Home, Options, OrgLimits, SampleColumns,
    Tsdb,
};

const SERIES: u32 = 100_000;
const REQUEST: u32 = 2_000;
const ROUNDS: i64 = 40;
const ORG: OrgId = OrgId(1);
const START: Timestamp = Timestamp::from_s(1_795_000_000);

fn labels(i: u32) -> Labels {
    let (target, metric) = (i / 100, i % 100);
    let pairs = [
        ("__name__", format!("shop_metric_{metric}_total")),
        ("instance", format!("10.0.{}.{}:9100", target / 250, target % 250)),
        ("job", format!("service-{}", target % 20)),
        ("pod", format!("service-{}-7d9f8b6c5-{target:05}", target % 20)),
        ("namespace", format!("team-{}", target % 8)),
        ("node", format!("worker-{:03}", target % 50)),
        ("cluster", "eu-central".to_owned()),
        ("method", ["GET", "POST", "PUT", "DELETE"][metric as usize % 4].to_owned()),
        ("code", ["200", "204", "404", "500"][metric as usize / 4 % 4].to_owned()),
        ("handler", format!("/api/v1/resource/{}", metric / 16)),
    ];
    Labels::from_pairs(pairs)
}

/// Returns requests for a range of series, which `add` fills.
fn requests(series: Range<u32>, mut add: impl FnMut(&mut BatchBuilder, &Labels)) -> Vec<BatchBuilder> {
    let mut request = |first: u32| {
        let mut batch = BatchBuilder::default();
        (first..(first + REQUEST).min(series.end)).for_each(|i| add(&mut batch, &labels(i)));
        batch
    };
    series.clone().step_by(REQUEST as usize).map(&mut request).collect()
}

fn builders() -> Vec<BatchBuilder> {
    requests(0..SERIES, with_sample)
}

fn with_sample(batch: &mut BatchBuilder, labels: &Labels) {
    batch.series(labels, [Sample { at: START, value: 0.0 }]);
}

/// Moves a request to another round.
fn age(batch: &mut WriteBatch<'_>, round: i64) {
    let at = START.plus_ms(round * 15_000);
    for (place, sample) in batch.samples.iter_mut().enumerate() {
        let seed = place as i64 * 7_919 + round * 104_729;
        sample.at = at;
        sample.value = match place % 3 {
            0 => (round * 37 + seed % 11) as f64,
            1 => (seed % 1_000) as f64 / 10.0,
            _ => 1.0,
        };
    }
}

fn round(store: &Tsdb, batches: &mut [WriteBatch<'_>], round: i64) {
    for batch in batches {
        age(batch, round);
        store.append(ORG, batch, START).expect("stored");
    }
}

/// Returns the CPU time of the live threads in seconds.
fn cpu() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let ns = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    ns.sum::<u64>() as f64 / 1e9
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("seven bits"));
}

fn put_bytes(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes the samples of a series, which are the second field in both versions of remote write.
fn put_samples(batch: &WriteBatch<'_>, series: &WriteSeries<'_>, out: &mut Vec<u8>) {
    for sample in &batch.samples[series.samples.clone()] {
        let mut bytes = vec![0x09];
        bytes.extend_from_slice(&sample.value.to_le_bytes());
        bytes.push(0x10);
        put_varint(sample.at.as_ms().cast_unsigned(), &mut bytes);
        put_bytes(0x12, &bytes, out);
    }
}

/// Encodes a round as its sender would: `WriteRequest` messages, each as a snappy block.
fn bodies(batches: &mut [WriteBatch<'_>], round: i64) -> Vec<Vec<u8>> {
    let request = |batch: &mut WriteBatch<'_>| {
        age(batch, round);
        let mut message = Vec::new();
        for series in &batch.series {
            let (mut one, mut pairs) = (Vec::new(), Vec::new());
            (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels");
            for (name, value) in pairs {
                let mut label = Vec::new();
                put_bytes(0x0a, name, &mut label);
                put_bytes(0x12, value, &mut label);
                put_bytes(0x0a, &label, &mut one);
            }
            put_samples(batch, series, &mut one);
            put_bytes(0x0a, &one, &mut message);
        }
        snap::raw::Encoder::new().compress_vec(&message).expect("compresses")
    };
    batches.iter_mut().map(request).collect()
}

/// Encodes a round for remote write 2.0: `Request` messages with a table of symbols each, and the
/// metadata of each series.
fn bodies_2(batches: &mut [WriteBatch<'_>], round: i64) -> Vec<Vec<u8>> {
    let request = |batch: &mut WriteBatch<'_>| {
        age(batch, round);
        let (mut symbols, mut places) = (vec![Vec::new()], HashMap::from([(Vec::new(), 0)]));
        let mut reference = |text: &[u8], out: &mut Vec<u8>| {
            let next = symbols.len() as u64;
            let place = *places.entry(text.to_vec()).or_insert(next);
            if place == next {
                symbols.push(text.to_vec());
            }
            put_varint(place, out);
        };
        let mut all = Vec::new();
        for series in &batch.series {
            let (mut one, mut pairs, mut references) = (Vec::new(), Vec::new(), Vec::new());
            (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels");
            for (name, value) in pairs {
                reference(name, &mut references);
                reference(value, &mut references);
            }
            put_bytes(0x0a, &references, &mut one);
            put_samples(batch, series, &mut one);
            let mut metadata = vec![0x08, 1, 0x18];
            reference(b"What was counted", &mut metadata);
            put_bytes(0x2a, &metadata, &mut one);
            put_bytes(0x2a, &one, &mut all);
        }
        let mut message = Vec::new();
        symbols.iter().for_each(|text| put_bytes(0x22, text, &mut message));
        message.extend(all);
        snap::raw::Encoder::new().compress_vec(&message).expect("compresses")
    };
    batches.iter_mut().map(request).collect()
}

/// Logs and applies a batch, and waits until it is stored.
fn commit(store: &Tsdb, appending: Appending) {
    let (done, result) = mpsc::channel();
    store.commit_then(appending, move |appended| done.send(appended).expect("the receiver waits"));
    result.recv().expect("a result").expect("stored").report();
}

/// Ingests whole requests and prints the samples per second of CPU time.
fn remote_write(what: &str, version: usize, store: &Tsdb, rounds: &[Vec<Vec<u8>>]) {
    let (protocol, now) = (&PROTOCOLS[version - 1], START.plus_ms(3 * ROUNDS * 15_000));
    let (limits, mut scratch) = (ingest::DecodeLimits::default(), ingest::DecodeScratch::default());
    let mut take = |bodies: &[Vec<u8>]| {
        for body in bodies {
            if let Some(guess) = protocol.guess {
                let batch = guess(body, &limits, &mut scratch).expect("valid");
                if let GuessOutcome::Ready(appending) =
                    store.prepare_guessed(ORG, &batch, now).expect("admitted")
                {
                    commit(store, appending);
                    continue;
                }
            }
            let batch = (protocol.decode)(body, &limits, &mut scratch).expect("valid");
            store.append(ORG, &batch, now).expect("stored");
        }
    };
    // The first round has these bytes for the first time.
    take(&rounds[0]);
    let before = cpu();
    rounds[1..].iter().for_each(|bodies| take(bodies));
    let seconds = cpu() - before;
    let samples = f64::from(SERIES) * (rounds.len() - 1) as f64;
    let bytes = rounds[0].iter().map(Vec::len).sum::<usize>() as f64 / f64::from(SERIES);
    let rate = samples / seconds / 1e6;
    println!("{rate:>8.2}  {:>8.0}  {what} (version {version}, {bytes:.0} B), per CPU second", seconds * 1e3);
}

fn print_rate(what: &str, samples: f64, watch: Stopwatch) {
    let seconds = watch.elapsed().as_secs_f64();
    println!("{:>8.2}  {:>8.0}  {what}", samples / seconds / 1e6, seconds * 1e3);
}

/// Seals all samples into segments and reads them back.
fn sealed(store: &Tsdb) {
    let watch = Stopwatch::start();
    let report = store.seal(START.plus_ms(600_000)).expect("sealed");
    print_rate("sealed", report.samples as f64, watch);
    println!("{:>27.3} bytes a sample in segments", report.bytes as f64 / report.samples as f64);
    let snapshot = store.snapshot(&Access::whole(ORG));
    let watch = Stopwatch::start();
    let selected = snapshot.select(&[], TimeRange::ALL);
    print_rate("series selected and sorted, sealed", selected.len() as f64, watch);
    let mut out = SampleColumns::default();
    let watch = Stopwatch::start();
    for series in &selected {
        snapshot.read(series.id, TimeRange::ALL, &mut out);
    }
    print_rate("read from segments", report.samples as f64, watch);
}

/// The number of samples. Rounds stay within ten minutes of the clock.
const ALL: f64 = SERIES as f64 * (ROUNDS - 1) as f64;

/// Appends the rounds of the second half from eight threads that take turns.
fn eight_callers(store: &Tsdb, builders: &[BatchBuilder]) {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut mine: Vec<(usize, WriteBatch<'_>)> =
                    builders.iter().map(BatchBuilder::batch).enumerate().collect();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let request = usize::try_from(number).expect("small") % builders.len();
                    let n = ROUNDS / 2
                        + i64::try_from(number).expect("small")
                            / i64::try_from(builders.len()).expect("small");
                    if n >= ROUNDS {
                        break;
                    }
                    let batch = &mut mine[request].1;
                    age(batch, n);
                    store.append(ORG, batch, START).expect("stored");
                }
            });
        }
    });
}

/// The number of label sets that are refused in turn: three times as many as an organisation
/// remembers at least.
const REFUSED: u32 = 3 << 18;

/// Nanoseconds of CPU time per series of requests that are sent repeatedly. The first round does
/// not count; `outcome` checks the reports of the other rounds.
fn cost(
    store: &Tsdb,
    batches: &mut [WriteBatch<'_>],
    shift_ms: i64,
    outcome: impl Fn(&AppendReport, u64) -> bool,
) -> f64 {
    let series = batches.iter().map(|batch| batch.series.len()).sum::<usize>() as f64;
    let rounds = if series > f64::from(SERIES) { 5 } else { 20 };
    let mut seconds = 0.0;
    for number in 0..rounds {
        for batch in &mut *batches {
            age(batch, number);
            let at = START.plus_ms(number * 15_000 + shift_ms);
            batch.samples.iter_mut().for_each(|sample| sample.at = at);
            batch.histograms.iter_mut().for_each(|sample| sample.at = at);
            batch.exemplars.iter_mut().for_each(|exemplar| exemplar.at = at);
        }
        let before = cpu_now();
        for batch in &*batches {
            let report = match store.append(ORG, batch, START) {
                // The whole request is refused.
                Err(AppendError::AtCapacity { .. }) => continue,
                appended => appended.expect("answered"),
            };
            let all = (batch.samples.len() + batch.histograms.len()) as u64;
            assert!(number == 0 || outcome(&report, all), "{report:?}");
        }
        if number > 0 {
            seconds += cpu_now() - before;
        }
    }
    seconds * 1e9 / series / (rounds - 1) as f64
}

/// CPU time up to this moment: the kernel brings it up to date where a thread yields.
fn cpu_now() -> f64 {
    std::thread::yield_now();
    cpu()
}

/// Prints costs relative to those of accepting the same samples.
struct Costs {
    accepted: f64,
    is_fine: bool,
}

impl Costs {
    fn print(&mut self, what: &str, ns: f64) {
        let ratio = ns / self.accepted;
        self.is_fine &= ratio <= 1.0;
        println!("{ns:>8.0}  {ratio:>8.2}  {what}");
    }
}

fn is_refused(report: &AppendReport, all: u64) -> bool {
    report.refused == all
}

fn is_stored(report: &AppendReport, all: u64) -> bool {
    report.stored == all
}

/// Compares the cost of refusing with that of accepting, for every reason: `cargo bench --bench
/// append -- refusals`. Requests are repeated, as senders do; the first round is not counted.
/// Returns whether refusing is never more expensive.
fn refusals() -> bool {
    println!("{:>8}  {:>8}  what", "ns", "ratio");
    let with_limits = |limits: OrgLimits| {
        // Samples ahead of the clock are refused once the server has run for 15 minutes: all but
        // the first reading is later.
        let reads = AtomicU64::new(0);
        let elapsed = Elapsed::by(move || match reads.fetch_add(1, Ordering::Relaxed) {
            0 => Duration::ZERO,
            _ => Duration::from_secs(3_600),
        });
        let store = Tsdb::in_memory(Options { elapsed, ..Options::default() }, [0; 32]);
        store.set_limits(ORG, limits);
        store
    };
    let day = OrgLimits { retention: Some(Duration::from_secs(86_400)), ..OrgLimits::default() };
    let past = -30 * 86_400_000;
    let few = requests(0..SERIES, with_sample);
    let many = requests(0..REFUSED, with_sample);
    let mut is_fine = true;
    for (series, builders) in [(SERIES, few), (REFUSED, many)] {
        println!("{series} series");
        let mut batches: Vec<WriteBatch<'_>> = builders.iter().map(BatchBuilder::batch).collect();
        let store = with_limits(day.clone());
        let accepted = cost(&store, &mut batches, 0, is_stored);
        let mut costs = Costs { accepted, is_fine };
        costs.print("accepted", accepted);
        costs.print("too old", cost(&store, &mut batches, past, is_refused));
        costs.print("too far in the future", cost(&store, &mut batches, -past, is_refused));
        store.set_limits(
            ORG,
            OrgLimits { ooo_window: Some(Duration::from_secs(60)), retention: None, ..OrgLimits::default() },
        );
        costs.print("too late", cost(&store, &mut batches, -86_400_000, is_refused));
        drop(store);

        costs.print("another value at the same time", cost_of_duplicates(&mut batches));
        let thousand = with_limits(OrgLimits { series_max: 1_000, ..OrgLimits::default() });
        let is_refused_but = |report: &AppendReport, all: u64| report.refused + 1_000 >= all;
        costs.print("more series than allowed", cost(&thousand, &mut batches, 0, is_refused_but));
        let slow = with_limits(OrgLimits { new_series_per_s: Some(0), ..OrgLimits::default() });
        costs.print("new series come too fast", cost(&slow, &mut batches, 0, is_refused));
        let strict = with_limits(OrgLimits { labels_max: 3, ..OrgLimits::default() });
        costs.print("too many labels", cost(&strict, &mut batches, 0, is_refused));
        let unknown = with_limits(day.clone());
        let fresh = requests(2 * REFUSED..2 * REFUSED + 1, with_sample).remove(0);
        unknown.append(ORG, &fresh.batch(), START).expect("stored");
        costs.print("too old, of unknown series", cost(&unknown, &mut batches, past, is_refused));
        let full = full_of_names();
        costs.print("no memory left", cost(&full, &mut batches, 0, is_refused));
        is_fine = costs.is_fine;
    }

    let histogram = histogram();
    let builders = requests(0..SERIES, |batch, labels| {
        batch.series(labels, []).histograms([(START, histogram.clone())]);
    });
    let mut batches: Vec<WriteBatch<'_>> = builders.iter().map(BatchBuilder::batch).collect();
    println!("{SERIES} series with a histogram each");
    let store = with_limits(day.clone());
    let accepted = cost(&store, &mut batches, 0, is_stored);
    let mut costs = Costs { accepted, is_fine };
    costs.print("accepted", accepted);
    costs.print("too old", cost(&store, &mut batches, past, is_refused));
    let full = with_limits(OrgLimits { series_max: 0, ..OrgLimits::default() });
    costs.print("more series than allowed", cost(&full, &mut batches, 0, is_refused));
    is_fine = costs.is_fine;

    let builders = requests(0..SERIES, |batch, labels| {
        let labels_of_trace = Labels::from_pairs([("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736")]);
        let exemplar = Exemplar { labels: labels_of_trace, value: 1.0, at: START };
        with_sample(batch, labels);
        batch.exemplar(exemplar);
    });
    let mut batches: Vec<WriteBatch<'_>> = builders.iter().map(BatchBuilder::batch).collect();
    println!("{SERIES} series with a sample and an exemplar each");
    let store = with_limits(day);
    let accepted = cost(&store, &mut batches, 0, is_stored);
    let mut costs = Costs { accepted, is_fine };
    costs.print("accepted", accepted);
    costs.print("too old", cost(&store, &mut batches, past, is_refused));
    let full = with_limits(OrgLimits { series_max: 0, ..OrgLimits::default() });
    costs.print("more series than allowed", cost(&full, &mut batches, 0, is_refused));
    costs.is_fine
}

/// As [`cost`], of samples whose series have another value at their time.
fn cost_of_duplicates(batches: &mut [WriteBatch<'_>]) -> f64 {
    let store = Tsdb::in_memory(Options::default(), [0; 32]);
    let mut seconds = 0.0;
    const ROUNDS: i32 = 5;
    for number in 0..=ROUNDS {
        for batch in &mut *batches {
            age(batch, 0);
            batch.samples.iter_mut().for_each(|sample| sample.value = f64::from(number));
        }
        let before = cpu_now();
        for batch in &*batches {
            let report = store.append(ORG, batch, START).expect("answered");
            assert!(number == 0 || is_refused(&report, batch.samples.len() as u64), "{report:?}");
        }
        if number > 0 {
            seconds += cpu_now() - before;
        }
    }
    let series = batches.iter().map(|batch| batch.series.len()).sum::<usize>() as f64;
    seconds * 1e9 / series / f64::from(ROUNDS)
}

/// A histogram with 40 buckets.
fn histogram() -> Histogram {
    let spans = vec![BucketSpan { offset: 0, length: 40 }];
    let shape = HistogramShape::new(3, 0.0, Vec::new(), spans, Vec::new()).expect("valid");
    let buckets: Vec<u64> = (1..=40).collect();
    let counts = HistogramCounts::Integer { count: buckets.iter().sum(), zero: 0, buckets };
    Histogram::new(Arc::new(shape), CounterReset::Unknown, 1_000.0, counts).expect("valid")
}

/// Returns a store whose organisation has as many names as fit into its memory.
fn full_of_names() -> Tsdb {
    let store = Tsdb::in_memory(Options::default(), [0; 32]);
    let own = OrgLimits { memory_bytes_max: Some(72 << 20), ..OrgLimits::default() };
    store.set_limits(ORG, own);
    for first in (REFUSED..).step_by(REQUEST as usize) {
        let batch = requests(first..first + REQUEST, with_sample).remove(0);
        let Ok(report) = store.append(ORG, &batch.batch(), START) else { break };
        if report.refused_by_code.iter().any(|(code, _)| *code == "memory_limit") {
            break;
        }
    }
    store
}

fn main() -> ExitCode {
    if std::env::args().any(|word| word == "refusals") {
        return if refusals() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    println!("{:>8}  {:>8}  what", "M/s", "ms");
    let builders = builders();
    let mut batches: Vec<WriteBatch<'_>> = builders.iter().map(BatchBuilder::batch).collect();

    let memory = Tsdb::scaffold();
    let watch = Stopwatch::start();
    round(&memory, &mut batches, 0);
    print_rate("new series, in memory", f64::from(SERIES), watch);
    let watch = Stopwatch::start();
    (1..ROUNDS).for_each(|n| round(&memory, &mut batches, n));
    print_rate("known series: look-up, encode, decode, apply; in memory, one caller", ALL, watch);
    let stats = memory.stats();
    println!("{:>27.1} bytes a series of the head", stats.head_bytes as f64 / stats.series as f64);

    let dir = tempfile::tempdir().expect("a folder");
    let open = || {
        let folder = DataFolder::open(dir.path(), START, &mut Entropy::seeded(1)).expect("a folder");
        let (control, _) =
            Control::open(&folder, &ControlOptions { now: START, users_table: 1 }).expect("accounts");
        let home = Home { dir: dir.path(), store: folder.store_id(), control: Arc::new(control) };
        let (store, report) =
            Tsdb::open(home, Options::default(), &mut Entropy::seeded(1), START).expect("opens");
        ((store, folder), report)
    };
    let ((store, folder), _) = open();
    round(&store, &mut batches, 0);
    let watch = Stopwatch::start();
    (1..ROUNDS / 2).for_each(|n| round(&store, &mut batches, n));
    print_rate("logged and synced, one caller", ALL / 2.0, watch);
    let watch = Stopwatch::start();
    eight_callers(&store, &builders);
    print_rate("logged and synced, eight callers", ALL / 2.0, watch);
    let stats = store.stats();
    println!(
        "{:>27.2} bytes a sample in the log, {} syncs",
        stats.wal_written_bytes as f64 / stats.samples as f64,
        stats.wal_syncs
    );

    // The samples follow all rounds before.
    let rounds: Vec<_> = (0..ROUNDS / 2).map(|n| bodies(&mut batches, n + ROUNDS)).collect();
    remote_write("remote write: parse, look up, encode, decode, apply; in memory", 1, &memory, &rounds);
    remote_write("remote write: parse, look up, log, sync, apply; one caller", 1, &store, &rounds);
    let later = (0..ROUNDS / 2).map(|n| bodies_2(&mut batches, n + 2 * ROUNDS));
    let rounds_2: Vec<_> = later.collect();
    remote_write("remote write: parse, look up, encode, decode, apply; in memory", 2, &memory, &rounds_2);
    remote_write("remote write: parse, look up, log, sync, apply; one caller", 2, &store, &rounds_2);

    drop((store, folder));
    let watch = Stopwatch::start();
    let ((store, folder), report) = open();
    print_rate("replayed", report.samples as f64, watch);
    let watch = Stopwatch::start();
    match store.checkpoint() {
        Ok(made) => {
            print_rate("checkpoint", made.samples as f64, watch);
            println!("{:>27.2} bytes a sample in rows", made.bytes as f64 / made.samples as f64);
            drop((store, folder));
            let watch = Stopwatch::start();
            let ((store, folder), report) = open();
            print_rate("loaded from the checkpoint", report.checkpoint_samples as f64, watch);
            sealed(&store);
            drop((store, folder));
        }
        Err(e) => println!("{:>18}  no checkpoint: {e}", ""),
    }

    let snapshot = memory.snapshot(&Access::whole(ORG));
    let watch = Stopwatch::start();
    let selected = snapshot.select(&[], TimeRange::ALL);
    print_rate("series selected and sorted", selected.len() as f64, watch);
    let mut out = SampleColumns::default();
    let watch = Stopwatch::start();
    for series in &selected {
        snapshot.read(series.id, TimeRange::ALL, &mut out);
    }
    print_rate("read", stats.samples as f64, watch);
    ExitCode::SUCCESS
}
