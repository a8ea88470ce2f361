//! Exported texts and blocks, read again.

#![expect(clippy::arithmetic_side_effects, reason = "tests compute with small numbers")]

use super::*;
use crate::clock::Clock;
use crate::history::copy::{
    CopyFilter, CopySource, ProgressFile, PrometheusSource, StoreLookup, StoreSink, TextFormat, TextSource,
    copy, verify,
};
use crate::model::{
    Access, Labels, MetricKind, MetricMetadata, OrgId, RawSeries, TimeRange, Timestamp, stale_nan,
};
use crate::tsdb::{Options, Tsdb};

const ORG: OrgId = OrgId(1);
const NOW: Timestamp = Timestamp::from_ms(1_795_731_540_000);

fn example() -> Vec<RawSeries> {
    let mut plain = RawSeries::new(Labels::from_pairs([("__name__", "http_total"), ("code", "2\"0,0\\\n")]));
    for (at, value) in
        [(1_000, 0.1), (2_500, f64::INFINITY), (3_000, f64::NAN), (4_000, 1e300), (5_001, -7.0)]
    {
        plain.push(at, value);
    }
    let mut other = RawSeries::new(Labels::from_pairs([("__name__", "up"), ("job", "a")]));
    for (at, value) in [(-1_500, 1.0), (0, 0.000_001), (60_000, stale_nan()), (70_000, 3.0)] {
        other.push(at, value);
    }
    let mut dotted =
        RawSeries::new(Labels::from_pairs([("__name__", "http.requests"), ("http.status", "ok")]));
    dotted.push(9_000, 2.0);
    vec![plain, dotted, other]
}

fn exported(format: ExportFormat, series: &[RawSeries]) -> String {
    let mut writer = ExportWriter::new(format, series.iter().map(|one| &one.labels));
    let mut out = Vec::new();
    writer.begin(&mut out);
    for one in series {
        let metadata =
            MetricMetadata { name: "http", kind: MetricKind::Counter, help: "a \"b\"\n", unit: "" };
        let metadata = metadata_of(&one.labels, |name| (name == "http").then_some(metadata));
        writer.series(one, metadata, &mut out);
    }
    writer.end(&mut out);
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn each_format_has_its_bytes() {
    let series = example();
    let open = "# TYPE http counter\n# HELP http a \\\"b\\\"\\n\n\
        http_total{code=\"2\\\"0,0\\\\\\n\"} 0.1 1\nhttp_total{code=\"2\\\"0,0\\\\\\n\"} +Inf 2.500\n\
        http_total{code=\"2\\\"0,0\\\\\\n\"} NaN 3\nhttp_total{code=\"2\\\"0,0\\\\\\n\"} 1e300 4\n\
        http_total{code=\"2\\\"0,0\\\\\\n\"} -7 5.001\n\
        {\"http.requests\",\"http.status\"=\"ok\"} 2 9\n\
        up{job=\"a\"} 1 -1.500\nup{job=\"a\"} 1e-6 0\nup{job=\"a\"} 3 70\n# EOF\n";
    assert_eq!(exported(ExportFormat::OpenMetrics, &series), open);
    let csv = "time:unix_ms,metric,value,job\n-1500,up,1,a\n0,up,1e-6,a\n70000,up,3,a\n";
    assert_eq!(exported(ExportFormat::Csv, &series[2..]), csv);
    let json = "{\"metric\":{\"__name__\":\"up\",\"job\":\"a\"},\"values\":[1,1e-6,3],\"timestamps\":[-1500,0,70000]}\n";
    assert_eq!(exported(ExportFormat::JsonLines, &series[2..]), json);
}

#[test]
fn every_text_is_imported_again_with_the_same_samples() {
    let series = example();
    for (format, source) in [
        (ExportFormat::OpenMetrics, TextFormat::OpenMetrics),
        (ExportFormat::Prometheus, TextFormat::Prometheus),
        (ExportFormat::JsonLines, TextFormat::JsonLines),
        (ExportFormat::Csv, TextFormat::Csv(None)),
    ] {
        let body = exported(format, &series);
        let mut source = TextSource::new(body.as_bytes(), source, NOW, 0).expect("a text");
        let mut found = Vec::new();
        while let Some(batch) = source.next().expect("a batch") {
            assert_eq!(batch.refused, 0, "{format:?}: {:?}\n{body}", batch.reasons);
            for one in batch.series {
                let bits = |value: f64| if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
                found.extend(
                    one.samples
                        .iter()
                        .map(|sample| (one.labels.to_string(), sample.at.as_ms(), bits(sample.value))),
                );
            }
        }
        let mut expected = Vec::new();
        for one in &series {
            for (at, value) in
                one.times.iter().zip(&one.values).filter(|(_, value)| !crate::model::is_stale(**value))
            {
                let bits = if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
                expected.push((one.labels.to_string(), *at, bits));
            }
        }
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{format:?}");
    }
}

#[test]
fn a_label_whose_name_has_another_meaning_in_csv_is_found() {
    for name in ["Value", "time:unix_s", "Timestamp:rfc3339", "time:zone", " host", "host\t"] {
        let series = [Labels::from_pairs([("__name__", "m"), (name, "x")])];
        assert_eq!(ExportWriter::new(ExportFormat::Csv, &series).impossible_column(), Some(name));
    }
    let series = [Labels::from_pairs([("__name__", "m"), ("job:time", "x"), ("value:a", "x")])];
    assert_eq!(ExportWriter::new(ExportFormat::Csv, &series).impossible_column(), None);
    let series = [Labels::from_pairs([("__name__", "m"), ("value", "x")])];
    assert_eq!(ExportWriter::new(ExportFormat::JsonLines, &series).impossible_column(), None);
}

#[test]
fn the_windows_before_the_first_sample_are_found_with_few_requests() {
    let hour_ms = 3_600_000;
    let at = Timestamp::from_ms;
    for (first_ms, start_ms) in [(1_795_000_000_000, 1_794_960_000_000), (5, 0), (-1, -18 * hour_ms)] {
        let asked = std::cell::Cell::new(0);
        let exists = |range: TimeRange| {
            asked.set(asked.get() + 1);
            Ok::<_, ()>(range.contains(at(first_ms)))
        };
        let range = TimeRange::new(Timestamp::MIN, NOW);
        let found = without_empty_start(range, 18 * hour_ms, exists).expect("answered");
        assert_eq!(found, Some(TimeRange::new(at(start_ms), NOW)));
        assert!(asked.get() < 66, "{} requests", asked.get());
        let range = TimeRange::new(at(start_ms + 1), NOW);
        let found = without_empty_start(range, 18 * hour_ms, exists).expect("answered");
        assert_eq!(found, Some(range), "the range begins within the window");
        let range = TimeRange::new(at(first_ms + 1), NOW);
        assert_eq!(without_empty_start(range, 18 * hour_ms, exists), Ok(None));
    }
}

fn filled() -> Tsdb {
    let tsdb = Tsdb::in_memory(Options::default(), [7; 32]);
    let mut body = String::new();
    for number in 0..5_000 {
        body.push_str(&format!(
            "load{{host=\"web{}\"}} {} {}\n",
            number % 3,
            number,
            1_795_000_000 + number * 60
        ));
    }
    body.push_str("# EOF\n");
    let mut source = TextSource::new(body.as_bytes(), TextFormat::OpenMetrics, NOW, 0).expect("a text");
    let mut sink = StoreSink::new(&tsdb, ORG, Clock::manual(NOW), None);
    copy(&mut source, &CopyFilter::default(), &mut sink, &ProgressFile::none(), &mut |_| true)
        .expect("copied");
    drop(sink);
    tsdb
}

#[test]
fn an_interrupted_export_to_blocks_continues_and_the_blocks_have_every_sample_once() {
    let tsdb = filled();
    let dir = tempfile::tempdir().expect("a folder");
    let mut source = StoreExport::new(tsdb.snapshot(&Access::whole(ORG)), Vec::new());
    let range = source.used_range(TimeRange::ALL).expect("a range").expect("samples");
    assert_eq!((range.start.as_ms(), range.end.as_ms()), (1_795_000_000_000, 1_795_299_940_000));
    let export = BlockExport { folder: dir.path(), range, block_ms: 18 * 3_600_000, identity: "all" };
    let mut left = 5;
    let stopped = export_blocks(&mut source, &export, &mut |_| {
        left -= 1;
        left > 0
    });
    assert!(stopped.is_err());
    let before = std::fs::read_dir(dir.path()).expect("a folder").count();
    let written = export_blocks(&mut source, &export, &mut |_| true).expect("exported");
    assert_eq!((before, before + written.len()), (1, 6));
    assert_eq!(export_blocks(&mut source, &export, &mut |_| true).expect("exported"), []);
    let mut blocks = PrometheusSource::open(dir.path()).expect("blocks");
    let samples: u64 = blocks.blocks().map(|meta| meta.stats.num_samples).sum();
    assert_eq!(samples, 5_000);
    let mut lookup = StoreLookup::new(&tsdb, ORG);
    let report =
        verify(&mut blocks, &CopyFilter::default(), &mut lookup, &mut |_, _| true).expect("compared");
    assert_eq!((report.different, report.samples), (0, 5_000));
}
