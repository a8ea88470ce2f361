//! Copies of every kind of source into a store, and their interruptions.

#![expect(clippy::arithmetic_side_effects, reason = "tests compute with small numbers")]

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::clock::Clock;
use crate::history::block::{BlockWriter, Ulid};
use crate::ingest::prometheus_chunk::ChunkEncoder;
use crate::model::{Access, Matcher, OrgId, Sample, Timestamp};
use crate::relabel::RelabelRules;
use crate::tsdb::{Options, SampleColumns, Tsdb};

const ORG: OrgId = OrgId(1);
const NOW: Timestamp = Timestamp::from_ms(1_795_731_540_000);

fn store() -> Tsdb {
    Tsdb::in_memory(Options::default(), [7; 32])
}

/// Returns every sample of a store: series, time in milliseconds, bits of the value.
fn samples_of_store(tsdb: &Tsdb) -> Vec<(String, i64, u64)> {
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let mut all = Vec::new();
    for one in snapshot.select(&[], TimeRange::ALL) {
        let mut out = SampleColumns::default();
        snapshot.read(one.id, TimeRange::ALL, &mut out);
        let text = one.labels.to_string();
        all.extend(out.times.iter().zip(&out.values).map(|(at, value)| (text.clone(), *at, value.to_bits())));
    }
    all.sort();
    all
}

/// A sink that fails after some batches, as if the process had ended before their position was
/// stored.
struct FailingSink<'t> {
    inner: StoreSink<'t, 't>,
    left: usize,
}

impl CopySink for FailingSink<'_> {
    fn write(&mut self, batch: &CopyBatch) -> Result<WrittenCounts, SampleCopyError> {
        self.left = self.left.checked_sub(1).ok_or_else(|| SampleCopyError::Sink("killed".to_owned()))?;
        self.inner.write(batch)
    }
}

/// A sink that makes samples durable at a flush only.
#[derive(Default)]
struct WaitingSink {
    waiting: u64,
    waiting_batches: usize,
    durable: u64,
}

impl CopySink for WaitingSink {
    fn write(&mut self, batch: &CopyBatch) -> Result<WrittenCounts, SampleCopyError> {
        let stored = batch.sample_count() as u64;
        self.waiting += stored;
        self.waiting_batches += 1;
        Ok(WrittenCounts { stored, ..WrittenCounts::default() })
    }

    fn unflushed_batches(&self) -> usize {
        self.waiting_batches
    }

    fn flush(&mut self) -> Result<(), SampleCopyError> {
        self.waiting_batches = 0;
        self.durable += std::mem::take(&mut self.waiting);
        Ok(())
    }
}

/// A sink whose last batches are not durable for some time, as if a thread wrote them. It fails
/// after some batches, and then has only the durable ones.
struct LaggingSink<'d> {
    durable: &'d mut Vec<CopyBatch>,
    waiting: Vec<CopyBatch>,
    /// The number of batches after which the ones before the last `lag` become durable.
    every: usize,
    lag: usize,
    left: usize,
}

impl CopySink for LaggingSink<'_> {
    fn write(&mut self, batch: &CopyBatch) -> Result<WrittenCounts, SampleCopyError> {
        self.left = self.left.checked_sub(1).ok_or_else(|| SampleCopyError::Sink("killed".to_owned()))?;
        self.waiting.push(batch.clone());
        if self.left.is_multiple_of(self.every) {
            let durable = self.waiting.len().saturating_sub(self.lag);
            self.durable.extend(self.waiting.drain(..durable));
        }
        Ok(WrittenCounts { stored: batch.sample_count() as u64, ..WrittenCounts::default() })
    }

    fn unflushed_batches(&self) -> usize {
        self.waiting.len()
    }

    fn flush(&mut self) -> Result<(), SampleCopyError> {
        self.durable.append(&mut self.waiting);
        Ok(())
    }
}

/// A source that fails after its last batch.
struct FailingSource<'b>(TextSource<&'b [u8]>);

impl CopySource for FailingSource<'_> {
    fn identity(&self) -> String {
        self.0.identity()
    }

    fn next(&mut self) -> Result<Option<CopyBatch>, SampleCopyError> {
        let batch = self.0.next()?;
        batch.map(Some).ok_or_else(|| SampleCopyError::Source("cut".to_owned()))
    }

    fn position(&self) -> CopyPosition {
        self.0.position()
    }

    fn resume(&mut self, position: CopyPosition) -> Result<(), SampleCopyError> {
        self.0.resume(position)
    }

    fn share(&self) -> CopyShare {
        self.0.share()
    }

    fn problems(&self) -> Vec<String> {
        self.0.problems()
    }
}

#[test]
fn samples_before_an_error_of_the_source_are_stored() {
    let (body, count) = long_csv();
    let mut source = FailingSource(text(&body, TextFormat::Csv(None)));
    let mut sink = WaitingSink::default();
    let progress = ProgressFile::none();
    let copied = copy(&mut source, &CopyFilter::default(), &mut sink, &progress, &mut |_| true);
    assert!(matches!(copied, Err(SampleCopyError::Source(_))), "{copied:?}");
    assert_eq!((sink.durable, sink.waiting), (count as u64, 0));
}

fn sink(tsdb: &Tsdb) -> StoreSink<'_, '_> {
    StoreSink::new(tsdb, ORG, Clock::manual(NOW), None)
}

fn text(body: &str, format: TextFormat) -> TextSource<&[u8]> {
    TextSource::new(body.as_bytes(), format, NOW, body.len() as u64).expect("a file")
}

fn copied(body: &str, format: TextFormat) -> (Vec<(String, i64, u64)>, CopyTotals) {
    let tsdb = store();
    let totals = copy(
        &mut text(body, format),
        &CopyFilter::default(),
        &mut sink(&tsdb),
        &ProgressFile::none(),
        &mut |_| true,
    );
    (samples_of_store(&tsdb), totals.expect("copied"))
}

#[test]
fn every_text_format_is_copied_and_wrong_lines_are_named() {
    let expected = [("{__name__=\"m\", a=\"1\"}".to_owned(), 1_795_731_000_000, 2.5_f64.to_bits())];
    let influx = TextFormat::Influx {
        precision: crate::ingest::influx::Precision::Milliseconds,
        database: String::new(),
    };
    for (body, format) in [
        ("# TYPE m gauge\nm{a=\"1\"} 2.5 1795731000\nm{ 1\n# EOF\n", TextFormat::OpenMetrics),
        ("m{a=\"1\"} 2.5 1795731000000\nm{ 1\n", TextFormat::Prometheus),
        (
            "{\"metric\":{\"__name__\":\"m\",\"a\":\"1\"},\"values\":[2.5],\"timestamps\":[1795731000000]}\n{\n",
            TextFormat::JsonLines,
        ),
        ("time:unix_ms,metric,value,a\n1795731000000,m,2.5,1\nx,m,1,1\n", TextFormat::Csv(None)),
        (",a=1 =2.5 1795731000000\nm,a=1 =2.5x 1795731000000\nm,a=1 value=2.5 1795731000000\n", influx),
    ] {
        let (found, totals) = copied(body, format.clone());
        if matches!(format, TextFormat::Influx { .. }) {
            assert_eq!((found.len(), totals.refused), (1, 2), "{:?}", totals.reasons);
            continue;
        }
        assert_eq!((found.as_slice(), totals.stored, totals.refused), (&expected[..], 1, 1), "{body}");
        assert!(totals.reasons[0].starts_with("line "), "{:?}", totals.reasons);
    }
}

#[test]
fn a_file_without_its_end_is_copied_and_reported() {
    let (found, totals) = copied("m 1 1\nm 2 2\n", TextFormat::OpenMetrics);
    assert_eq!((found.len(), totals.refused), (2, 0));
    assert!(totals.reasons[0].contains("# EOF"), "{:?}", totals.reasons);
}

#[test]
fn lines_after_the_end_of_openmetrics_are_refused_and_counted() {
    let body = "m 1 1\n# EOF\n\n# TYPE b gauge\nb 1 1\n  \nb 2 2\n# EOF";
    let (found, totals) = copied(body, TextFormat::OpenMetrics);
    assert_eq!((found.len(), totals.stored, totals.refused), (1, 1, 4));
    assert_eq!(totals.reasons, ["line 4: the 4 lines after `# EOF` are not read"]);
    assert!(!totals.is_complete());
    for body in ["m 1 1\n# EOF", "m 1 1\n# EOF\n", "m 1 1\n# EOF\n\n \t\r\n"] {
        assert!(copied(body, TextFormat::OpenMetrics).1.is_complete(), "{body:?}");
    }
    // An interrupted copy continues behind the end as well.
    let mut first = text(body, TextFormat::OpenMetrics);
    first.next().expect("read").expect("the lines before the end");
    let mut second = text(body, TextFormat::OpenMetrics);
    second.resume(first.position()).expect("continued");
    let batch = second.next().expect("read").expect("the lines after the end");
    assert_eq!((batch.refused, batch.sample_count()), (4, 0));
    assert!(second.next().expect("read").is_none());
}

/// Several pieces of 2 MiB.
fn long_csv() -> (String, usize) {
    let mut body = "time:unix_ms,metric,value,host,note\n".to_owned();
    let count = 60_000;
    for number in 0..count {
        let time = 1_795_000_000_000_i64 + number * 1_000;
        body.push_str(&format!(
            "{time},load,{number},web{},\"a\nlong, \"\"note\"\" of many characters {:060}\"\n",
            number % 7,
            0
        ));
    }
    (body, usize::try_from(count).expect("small"))
}

#[test]
fn a_long_file_is_read_in_pieces_and_the_numbers_of_lines_are_those_of_the_file() {
    let (mut body, count) = long_csv();
    let lines = body.matches('\n').count();
    body.push_str("x,load,1,web1,\n");
    let (found, totals) = copied(&body, TextFormat::Csv(None));
    assert_eq!((found.len(), totals.refused), (count, 1));
    assert!(totals.reasons[0].starts_with(&format!("line {}:", lines + 1)), "{:?}", totals.reasons);
}

/// Backslashes escape nothing in CSV, and quotes inside a cell or in a tag of Influx open nothing.
/// A parser that counts them as open quotes would join the rest of a file into one piece.
#[test]
fn a_long_file_is_read_in_pieces_whatever_quotes_its_texts_have() {
    let mut csv =
        "time:unix_ms,metric,value,note\n1,m,1,\"C:\\\"\n2,m,2,6\" pipe\n3,m,3,8\" pipe\n".to_owned();
    let mut influx = "m,size=6\" x=1,note=\"\\\"\" 1\n".to_owned();
    for number in 0..60_000 {
        csv.push_str(&format!("{},load,1,{:060}\n", 1_000 + number, 0));
        influx.push_str(&format!("load,host={:060} x=1 {}\n", 0, 1_000 + number));
    }
    let precision = crate::ingest::influx::Precision::Milliseconds;
    let influx_format = TextFormat::Influx { precision, database: String::new() };
    for (body, format) in [(csv, TextFormat::Csv(None)), (influx, influx_format)] {
        let mut source = text(&body, format);
        let (mut batches, mut samples) = (0, 0);
        while let Some(batch) = source.next().expect("read") {
            assert_eq!(batch.refused, 0, "{:?}", batch.reasons);
            samples += batch.sample_count();
            batches += 1;
        }
        assert!(samples > 60_000 && batches >= 3, "{samples} samples in {batches} batches");
    }
}

#[test]
fn an_interrupted_copy_continues_without_a_lost_or_doubled_sample() {
    let (body, count) = long_csv();
    let (whole, _) = copied(&body, TextFormat::Csv(None));
    let dir = tempfile::tempdir().expect("a folder");
    for killed_after in 0..5 {
        let file = dir.path().join(format!("{killed_after}.json"));
        let tsdb = store();
        let progress = ProgressFile::new(&file, text(&body, TextFormat::Csv(None)).identity());
        let mut runs = 0;
        let totals = loop {
            runs += 1;
            assert!(runs < 20, "the copy does not advance");
            let mut source = text(&body, TextFormat::Csv(None));
            let mut failing = FailingSink { inner: sink(&tsdb), left: killed_after + 1 };
            // The caller stops after every second batch as well.
            let mut batches = 0;
            let outcome = copy(&mut source, &CopyFilter::default(), &mut failing, &progress, &mut |_| {
                batches += 1;
                batches != 2
            });
            match outcome {
                Ok(totals) => break totals,
                Err(SampleCopyError::Sink(_)) if killed_after == 0 && runs < 4 => {
                    // Without a stored position the same batch is written again and again.
                    let mut source = text(&body, TextFormat::Csv(None));
                    let stopped =
                        copy(&mut source, &CopyFilter::default(), &mut sink(&tsdb), &progress, &mut |_| {
                            false
                        });
                    assert!(matches!(stopped, Err(SampleCopyError::Stopped) | Ok(_)));
                }
                Err(_) => {}
            }
            if killed_after == 0 && runs >= 4 {
                let mut source = text(&body, TextFormat::Csv(None));
                break copy(&mut source, &CopyFilter::default(), &mut sink(&tsdb), &progress, &mut |_| true)
                    .expect("copied");
            }
        };
        assert_eq!(samples_of_store(&tsdb), whole, "killed after {killed_after}");
        assert_eq!(totals.stored, count as u64);
        assert!(!file.exists(), "a complete copy has no progress file");
    }
}

#[test]
fn a_stored_position_is_never_after_a_batch_that_is_not_durable() {
    // Most batches are small, and the filter removes the samples of some.
    let mut body = "time:unix_ms,metric,value,note\n".to_owned();
    for number in 0..9_000 {
        let metric = if number / 1_500 % 2 == 0 { "a" } else { "b" };
        body.push_str(&format!("{},{metric},1,{:02000}\n", 1_795_000_000_000_i64 + number * 1_000, 0));
    }
    let filter =
        CopyFilter { selectors: vec![vec![Matcher::equal("__name__", "a")]], ..CopyFilter::default() };
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("progress.json");
    let mut has_resumed = 0;
    for (every, lag) in [(1, 0), (1, 1), (2, 1), (1, 3), (3, 2)] {
        let (mut durable, mut left) = (Vec::new(), 1);
        let totals = loop {
            let mut source = text(&body, TextFormat::Csv(None));
            let progress = ProgressFile::new(&file, source.identity());
            has_resumed += usize::from(progress.load().expect("read").is_some());
            let mut sink = LaggingSink { durable: &mut durable, waiting: Vec::new(), every, lag, left };
            match copy(&mut source, &filter, &mut sink, &progress, &mut |_| true) {
                Ok(totals) => break totals,
                Err(SampleCopyError::Sink(_)) => left += 1,
                Err(other) => panic!("{other}"),
            }
        };
        let times = durable.iter().flat_map(|batch| &batch.series).flat_map(|one| &one.samples);
        let times: std::collections::BTreeSet<i64> = times.map(|one| one.at.as_ms()).collect();
        assert_eq!((times.len(), totals.stored), (4_500, 4_500), "every {every}, lag {lag}");
    }
    assert!(has_resumed > 5, "{has_resumed} runs continued");
}

#[test]
fn a_progress_file_of_another_copy_and_a_damaged_one_are_not_used() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("p.json");
    let progress = ProgressFile::new(&file, "one".to_owned());
    let position = CopyPosition { part: 1, offset: 2, lines: 3 };
    progress.save(position, &CopyTotals::default()).expect("saved");
    assert_eq!(progress.load().expect("read").map(|(position, _)| position), Some(position));
    assert_eq!(ProgressFile::new(&file, "other".to_owned()).load().expect("read"), None);
    std::fs::write(&file, b"{\"version\":1,").expect("written");
    assert_eq!(progress.load().expect("read"), None);
    progress.remove().expect("removed");
    assert_eq!(progress.load().expect("read"), None);
}

#[test]
fn a_progress_file_that_cannot_be_written_is_reported_before_anything_is_copied() {
    let dir = tempfile::tempdir().expect("a folder");
    let progress = ProgressFile::new(&dir.path().join("missing/p.json"), "one".to_owned());
    let mut sink = WaitingSink::default();
    let mut source = text("m 1 1\n", TextFormat::Prometheus);
    let copied = copy(&mut source, &CopyFilter::default(), &mut sink, &progress, &mut |_| true);
    assert!(matches!(copied, Err(SampleCopyError::Progress { .. })), "{copied:?}");
    assert_eq!((sink.durable, sink.waiting), (0, 0));
}

#[test]
fn a_filter_selects_series_and_times_and_changes_labels() {
    let rule = serde_json::from_str(
        r#"[{"source_labels":["host"],"target_label":"node"},{"regex":"host","action":"labeldrop"}]"#,
    );
    let filter = CopyFilter {
        selectors: vec![vec![Matcher::equal("__name__", "a")], vec![Matcher::equal("host", "x")]],
        range: TimeRange::new(Timestamp::from_ms(2_000), Timestamp::from_ms(3_000)),
        rules: RelabelRules::parse(&rule.unwrap_or_else(|_| Vec::new())).expect("rules"),
    };
    let body = "a{host=\"y\"} 1 1\na{host=\"y\"} 2 2\nb{host=\"x\"} 3 3\nb{host=\"z\"} 4 3\nb{host=\"x\"} 5 4\n# EOF\n";
    let tsdb = store();
    let mut source = text(body, TextFormat::OpenMetrics);
    copy(&mut source, &filter, &mut sink(&tsdb), &ProgressFile::none(), &mut |_| true).expect("copied");
    let found: Vec<(String, i64)> =
        samples_of_store(&tsdb).into_iter().map(|(series, at, _)| (series, at)).collect();
    let expected = [("{__name__=\"a\", node=\"y\"}", 2_000), ("{__name__=\"b\", node=\"x\"}", 3_000)];
    assert_eq!(found, expected.map(|(series, at)| (series.to_owned(), at)));
}

fn write_block(parent: &Path, number: u64, series: &[(Labels, Vec<(i64, f64)>)]) {
    let labels = series.iter().map(|(labels, _)| labels);
    let ulid = Ulid::new(Timestamp::from_ms(1_795_000_000_000), number.into());
    let mut writer = BlockWriter::create(parent, ulid, labels).expect("a folder");
    for (labels, samples) in series {
        let (mut chunk, mut all) = (ChunkEncoder::default(), Vec::new());
        for (at, value) in samples {
            if chunk.samples() >= 120 {
                all.extend(chunk.take());
            }
            assert!(chunk.push_float(*at, *value));
        }
        all.extend(chunk.take());
        writer.add_series(labels, &all).expect("written");
    }
    writer.finish().expect("written").expect("a block");
}

fn series(name: &str, start: i64, count: i64) -> (Labels, Vec<(i64, f64)>) {
    let labels = Labels::from_pairs([("__name__", name), ("job", "api")]);
    (labels, (0..count).map(|at| (start + at * 15_000, at as f64 / 3.0)).collect())
}

#[test]
fn blocks_are_copied_and_a_damaged_one_is_left_out_while_the_others_continue() {
    let dir = tempfile::tempdir().expect("a folder");
    write_block(dir.path(), 1, &[series("a", 0, 200_000), series("b", 0, 10)]);
    write_block(dir.path(), 2, &[series("a", 3_000_000_000, 100)]);
    write_block(dir.path(), 3, &[series("c", 4_000_000_000, 100)]);
    let damaged =
        std::fs::read_dir(dir.path()).expect("a folder").map(|entry| entry.expect("an entry").path()).max();
    let chunks = damaged.expect("a block").join("chunks/000001");
    let mut bytes = std::fs::read(&chunks).expect("a file");
    bytes[50] ^= 1;
    std::fs::write(&chunks, &bytes).expect("written");
    let tsdb = store();
    let mut source = PrometheusSource::open(dir.path()).expect("blocks");
    let mut batches = 0;
    let totals =
        copy(&mut source, &CopyFilter::default(), &mut sink(&tsdb), &ProgressFile::none(), &mut |_| {
            batches += 1;
            true
        });
    let totals = totals.expect("copied");
    assert_eq!(totals.stored, 200_110);
    assert!(batches > 3, "{batches} batches");
    assert!(totals.reasons[0].contains("chunks/000001 at byte"), "{:?}", totals.reasons);
    assert_eq!(samples_of_store(&tsdb).len(), 200_110);
    let mut source = PrometheusSource::open(dir.path()).expect("blocks");
    let mut lookup = StoreLookup::new(&tsdb, ORG);
    let report =
        verify(&mut source, &CopyFilter::default(), &mut lookup, &mut |_, _| true).expect("compared");
    assert_eq!((report.different, report.samples), (0, 200_110));
}

#[test]
fn a_comparison_finds_a_lost_and_a_changed_sample_and_a_preview_finds_the_conflict() {
    let tsdb = store();
    let body = "a 1 1\na 2 2\nb 1 1\n# EOF\n";
    let there = "a 1 1\na 7 2\n# EOF\n";
    let mut source = text(there, TextFormat::OpenMetrics);
    copy(&mut source, &CopyFilter::default(), &mut sink(&tsdb), &ProgressFile::none(), &mut |_| true)
        .expect("copied");
    let mut lookup = StoreLookup::new(&tsdb, ORG);
    let filter = CopyFilter::default();
    let report = verify(&mut text(body, TextFormat::OpenMetrics), &filter, &mut lookup, &mut |_, _| true);
    let report = report.expect("compared");
    assert_eq!((report.compared, report.different, report.samples), (2, 2, 3));
    assert_eq!((report.listed[1].1.count, report.listed[1].2.count), (1, 0));
    let found =
        preview(&mut text(body, TextFormat::OpenMetrics), &filter, Some(&mut lookup), &mut |_, _| true);
    let found = found.expect("a preview");
    assert_eq!((found.series, found.samples, found.conflicts, found.known), (2, 3, 1, 1));
    assert_eq!(found.conflicts_listed, [(Labels::from_pairs([("__name__", "a")]), 2_000)]);
    let range = TimeRange::new(Timestamp::from_ms(1_000), Timestamp::from_ms(2_000));
    assert_eq!((found.range, found.metrics), (Some(range), vec![("a".to_owned(), 1), ("b".to_owned(), 1)]));
}

/// A server with one sample in each second, of which a response may have 1,000.
struct SampleEachSecond;

impl FetchWindow for SampleEachSecond {
    fn identity(&self) -> String {
        "seconds".to_owned()
    }

    fn fetch(&mut self, range: TimeRange) -> Result<CopyBatch, FetchFailure> {
        let first = range.start.as_ms().div_euclid(1_000) * 1_000;
        let times: Vec<i64> = (0..)
            .map(|number| first + number * 1_000)
            .take_while(|at| *at <= range.end.as_ms())
            .take(1_001)
            .collect();
        if times.len() > 1_000 {
            return Err(FetchFailure::TooLarge("too many".to_owned()));
        }
        let sample = |at: i64| Sample { at: Timestamp::from_ms(at), value: at as f64 };
        let samples =
            times.into_iter().filter(|at| range.contains(Timestamp::from_ms(*at))).map(sample).collect();
        let labels = Labels::from_pairs([("__name__", "m")]);
        Ok(CopyBatch {
            series: vec![CopySeries { labels, samples, ..CopySeries::default() }],
            ..CopyBatch::default()
        })
    }
}

#[test]
fn a_server_is_read_in_windows_that_shrink_until_a_response_is_small_enough() {
    let range = TimeRange::new(Timestamp::from_ms(5_000), Timestamp::from_ms(10_004_000));
    let tsdb = store();
    let mut source = WindowSource::new(SampleEachSecond, range);
    let totals =
        copy(&mut source, &CopyFilter::default(), &mut sink(&tsdb), &ProgressFile::none(), &mut |_| true);
    assert_eq!(totals.expect("copied").stored, 10_000);
    assert_eq!(samples_of_store(&tsdb).len(), 10_000);
    assert_eq!(source.share().done, source.share().all);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_files_of_lines_never_panic(body in prop::collection::vec(any::<u8>(), 0..300), which in 0usize..5) {
        let formats = [
            TextFormat::OpenMetrics,
            TextFormat::Prometheus,
            TextFormat::JsonLines,
            TextFormat::Csv(None),
            TextFormat::Influx { precision: crate::ingest::influx::Precision::Seconds, database: String::new() },
        ];
        if let Ok(mut source) = TextSource::new(&body[..], formats[which].clone(), NOW, 0) {
            while let Ok(Some(_)) = source.next() {}
        }
    }
}
