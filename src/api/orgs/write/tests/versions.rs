//! A request that says the same in both versions of remote write stores the same, and is answered alike.

use super::*;

/// A series as a test writes it down. Times are seconds before [`NOW`]; -601 is too far ahead.
#[derive(Clone, Debug)]
struct Sent {
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

fn version_1(all: &[Sent]) -> Vec<u8> {
    let label = |name: &[u8], value: &[u8], out: &mut Vec<u8>| {
        let mut message = Vec::new();
        nested(0x0a, name, &mut message);
        nested(0x12, value, &mut message);
        nested(0x0a, &message, out);
    };
    let mut request = Vec::new();
    for sent in all {
        let mut out = Vec::new();
        sent.labels.iter().for_each(|(name, value)| label(name.as_bytes(), value, &mut out));
        sent.samples.iter().for_each(|(value, ago)| nested(0x12, &sample_message(*value, *ago), &mut out));
        for (trace, ago) in &sent.exemplars {
            let mut message = Vec::new();
            label(b"trace_id", trace.as_bytes(), &mut message);
            exemplar_tail(*ago, &mut message);
            nested(0x1a, &message, &mut out);
        }
        for (count, agrees, ago) in &sent.histograms {
            nested(0x22, &histogram_message(*count, *agrees, *ago), &mut out);
        }
        nested(0x0a, &out, &mut request);
    }
    block(&request)
}

fn version_2(all: &[Sent]) -> Vec<u8> {
    let mut symbols: Vec<Vec<u8>> = vec![Vec::new()];
    let mut reference = |text: &[u8], out: &mut Vec<u8>| {
        let known = symbols.iter().position(|have| have == text);
        let place = known.unwrap_or(symbols.len());
        if known.is_none() {
            symbols.push(text.to_vec());
        }
        varint(place as u64, out);
    };
    let mut series = Vec::new();
    for sent in all {
        let (mut out, mut references) = (Vec::new(), Vec::new());
        for (name, value) in &sent.labels {
            reference(name.as_bytes(), &mut references);
            reference(value, &mut references);
        }
        nested(0x0a, &references, &mut out);
        sent.samples.iter().for_each(|(value, ago)| nested(0x12, &sample_message(*value, *ago), &mut out));
        for (count, agrees, ago) in &sent.histograms {
            nested(0x1a, &histogram_message(*count, *agrees, *ago), &mut out);
        }
        for (trace, ago) in &sent.exemplars {
            let (mut message, mut references) = (Vec::new(), Vec::new());
            reference(b"trace_id", &mut references);
            reference(trace.as_bytes(), &mut references);
            nested(0x0a, &references, &mut message);
            exemplar_tail(*ago, &mut message);
            nested(0x22, &message, &mut out);
        }
        nested(0x2a, &out, &mut series);
    }
    let mut request = Vec::new();
    symbols.iter().for_each(|text| nested(0x22, text, &mut request));
    request.extend(series);
    block(&request)
}

fn sent() -> impl Strategy<Value = Sent> {
    let value = prop_oneof![8 => "[ab]{0,2}".prop_map(String::into_bytes), 1 => Just(vec![0xff])];
    let label = (prop_oneof![3 => Just("__name__".to_owned()), 2 => "[ab]{0,1}"], value);
    let ago = || prop_oneof![12 => 0i16..6, 1 => Just(-601)];
    (
        prop::collection::vec(label, 0..4),
        prop::collection::vec((0u8..3, ago()), 0..4),
        prop::collection::vec((0u8..3, prop::bool::weighted(0.8), ago()), 0..2),
        prop::collection::vec(("[ab]{1,2}", ago()), 0..2),
    )
        .prop_map(|(labels, samples, histograms, exemplars)| Sent {
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

/// Everything that can be read of a store.
fn everything(tsdb: &Tsdb) -> (Vec<Series>, Vec<String>) {
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
    fn what_is_said_in_either_version_stores_the_same(
        requests in prop::collection::vec(prop::collection::vec(sent(), 0..5), 1..4),
    ) {
        let (one, two, mixed) = (Tsdb::scaffold(), Tsdb::scaffold(), Tsdb::scaffold());
        for (place, all) in requests.iter().enumerate() {
            let bodies = [version_1(all), version_2(all)];
            let expected = append(&one, 0, &bodies[0]);
            prop_assert_eq!(&append(&two, 1, &bodies[1]), &expected);
            // A series is the same one whichever way it comes.
            prop_assert_eq!(&append(&mixed, place % 2, &bodies[place % 2]), &expected);
            // Sent again, what one time says twice may be late by now, and the last one said stays: in either version.
            let again = append(&one, 0, &bodies[0]);
            prop_assert_eq!(&append(&two, 1, &bodies[1]), &again);
            prop_assert_eq!(&append(&mixed, 1 - place % 2, &bodies[1 - place % 2]), &again);
        }
        prop_assert_eq!(everything(&two), everything(&one));
        prop_assert_eq!(everything(&mixed).0, everything(&one).0);
    }
}
