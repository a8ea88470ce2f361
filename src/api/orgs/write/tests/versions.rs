//! Equal requests in both versions of remote write store the same samples and have equal results.

use super::*;

/// A series of a request. Times are seconds before [`NOW`]; -601 is too far in the future.
#[derive(Clone, Debug)]
struct RequestSeries {
    labels: Vec<(String, Vec<u8>)>,
    samples: Vec<(u8, i16)>,
    /// A count, whether its buckets agree with it, and its time.
    histograms: Vec<(u8, bool, i16)>,
    /// A trace and its time.
    exemplars: Vec<(String, i16)>,
}

fn time(ago: i16, out: &mut Vec<u8>) {
    varint((NOW.as_ms() - 1_000 * i64::from(ago)).cast_unsigned(), out);
}

fn sample_message(value: u8, ago: i16) -> Vec<u8> {
    let mut out = vec![0x09];
    out.extend_from_slice(&f64::from(value).to_le_bytes());
    out.push(0x10);
    time(ago, &mut out);
    out
}

fn histogram_message(count: u8, agrees: bool, ago: i16) -> Vec<u8> {
    let mut out = vec![1 << 3, count + u8::from(!agrees)];
    nested(11 << 3 | 2, &[2 << 3, 1], &mut out);
    nested(12 << 3 | 2, &[2 * count], &mut out);
    out.push(15 << 3);
    time(ago, &mut out);
    out
}

fn exemplar_tail(ago: i16, out: &mut Vec<u8>) {
    out.push(2 << 3 | 1);
    out.extend_from_slice(&0.5f64.to_le_bytes());
    out.push(3 << 3);
    time(ago, out);
}

fn version_1(all: &[RequestSeries]) -> Vec<u8> {
    let label = |name: &[u8], value: &[u8], out: &mut Vec<u8>| {
        let mut message = Vec::new();
        nested(0x0a, name, &mut message);
        nested(0x12, value, &mut message);
        nested(0x0a, &message, out);
    };
    let mut request = Vec::new();
    for series in all {
        let mut out = Vec::new();
        series.labels.iter().for_each(|(name, value)| label(name.as_bytes(), value, &mut out));
        series.samples.iter().for_each(|(value, ago)| nested(0x12, &sample_message(*value, *ago), &mut out));
        for (trace, ago) in &series.exemplars {
            let mut message = Vec::new();
            label(b"trace_id", trace.as_bytes(), &mut message);
            exemplar_tail(*ago, &mut message);
            nested(0x1a, &message, &mut out);
        }
        for (count, agrees, ago) in &series.histograms {
            nested(0x22, &histogram_message(*count, *agrees, *ago), &mut out);
        }
        nested(0x0a, &out, &mut request);
    }
    block(&request)
}

fn version_2(all: &[RequestSeries]) -> Vec<u8> {
    let mut symbols: Vec<Vec<u8>> = vec![Vec::new()];
    let mut reference = |text: &[u8], out: &mut Vec<u8>| {
        let existing = symbols.iter().position(|symbol| symbol == text);
        let index = existing.unwrap_or(symbols.len());
        if existing.is_none() {
            symbols.push(text.to_vec());
        }
        varint(index as u64, out);
    };
    let mut encoded = Vec::new();
    for series in all {
        let (mut out, mut references) = (Vec::new(), Vec::new());
        for (name, value) in &series.labels {
            reference(name.as_bytes(), &mut references);
            reference(value, &mut references);
        }
        nested(0x0a, &references, &mut out);
        series.samples.iter().for_each(|(value, ago)| nested(0x12, &sample_message(*value, *ago), &mut out));
        for (count, agrees, ago) in &series.histograms {
            nested(0x1a, &histogram_message(*count, *agrees, *ago), &mut out);
        }
        for (trace, ago) in &series.exemplars {
            let (mut message, mut references) = (Vec::new(), Vec::new());
            reference(b"trace_id", &mut references);
            reference(trace.as_bytes(), &mut references);
            nested(0x0a, &references, &mut message);
            exemplar_tail(*ago, &mut message);
            nested(0x22, &message, &mut out);
        }
        nested(0x2a, &out, &mut encoded);
    }
    let mut request = Vec::new();
    symbols.iter().for_each(|text| nested(0x22, text, &mut request));
    request.extend(encoded);
    block(&request)
}

fn request_series() -> impl Strategy<Value = RequestSeries> {
    let value = prop_oneof![8 => "[ab]{0,2}".prop_map(String::into_bytes), 1 => Just(vec![0xff])];
    let label = (prop_oneof![3 => Just("__name__".to_owned()), 2 => "[ab]{0,1}"], value);
    let ago = || prop_oneof![12 => 0i16..6, 1 => Just(-601)];
    (
        prop::collection::vec(label, 0..4),
        prop::collection::vec((0u8..3, ago()), 0..4),
        prop::collection::vec((0u8..3, prop::bool::weighted(0.8), ago()), 0..2),
        prop::collection::vec(("[ab]{1,2}", ago()), 0..2),
    )
        .prop_map(|(labels, samples, histograms, exemplars)| RequestSeries {
            labels,
            samples,
            histograms,
            exemplars,
        })
}

fn append(tsdb: &Tsdb, version: usize, body: &[u8]) -> AppendReport {
    let mut scratch = DecodeScratch::default();
    let batch =
        (PROTOCOLS[version].decode)(body, &ingest::DecodeLimits::default(), &mut scratch).expect("valid");
    tsdb.append(ORG, &batch, NOW).expect("stored")
}

/// Reads all float samples, and the histograms and exemplars as text.
fn everything(tsdb: &Tsdb) -> (Vec<StoredSeries>, Vec<String>) {
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let range = TimeRange { start: Timestamp::MIN, end: Timestamp::MAX };
    let mut rare: Vec<String> = snapshot
        .select(&[], range)
        .iter()
        .map(|series| {
            let mut histograms = crate::model::HistogramColumns::default();
            snapshot.read_histograms(series.id, range, &mut histograms);
            format!("{:?} {histograms:?}", series.labels)
        })
        .collect();
    let exemplars = snapshot.exemplars(&[&[]], range, 1_000).items;
    rare.extend(exemplars.iter().map(|exemplars| format!("{exemplars:?}")));
    rare.sort();
    (stored(tsdb), rare)
}

proptest! {
    #[test]
    fn both_versions_of_remote_write_store_the_same_samples(
        requests in prop::collection::vec(prop::collection::vec(request_series(), 0..5), 1..4),
    ) {
        let (one, two, mixed) = (Tsdb::scaffold(), Tsdb::scaffold(), Tsdb::scaffold());
        for (index, all) in requests.iter().enumerate() {
            let bodies = [version_1(all), version_2(all)];
            let expected = append(&one, 0, &bodies[0]);
            prop_assert_eq!(&append(&two, 1, &bodies[1]), &expected);
            // The versions may alternate for one series.
            prop_assert_eq!(&append(&mixed, index % 2, &bodies[index % 2]), &expected);
            // The same request again has the same result in both versions, also if some of its
            // samples are late by now.
            let again = append(&one, 0, &bodies[0]);
            prop_assert_eq!(&append(&two, 1, &bodies[1]), &again);
            prop_assert_eq!(&append(&mixed, 1 - index % 2, &bodies[1 - index % 2]), &again);
        }
        prop_assert_eq!(everything(&two), everything(&one));
        prop_assert_eq!(everything(&mixed).0, everything(&one).0);
    }
}
