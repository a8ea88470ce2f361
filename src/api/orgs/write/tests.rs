//! Decoding a body by guessing stores the same samples as decoding it completely.

use proptest::prelude::*;

use super::*;
use crate::ingest::{PROTOCOLS, put_bytes as nested, put_varint as varint};
use crate::model::{Access, OrgId, TimeRange, Timestamp};
use crate::tsdb::SampleColumns;

const ORG: OrgId = OrgId(1);
const NOW: Timestamp = Timestamp::from_s(1_795_000_000);

/// A field of a `TimeSeries`.
#[derive(Clone, Debug)]
enum SeriesField {
    Label(String, Vec<u8>),
    /// A value, and seconds before [`NOW`].
    Sample(u8, u8),
    /// A field with an unknown number.
    Unknown,
    /// Bytes that are not a valid field, or end the message early.
    Broken(Vec<u8>),
}

/// Returns a snappy block that consists of literals.
fn block(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(bytes.len() as u64, &mut out);
    for piece in bytes.chunks(60) {
        out.push(u8::try_from(piece.len() - 1).expect("below 60") << 2);
        out.extend_from_slice(piece);
    }
    out
}

/// Encodes a sample field in the order of fields that senders use.
fn sample(value: u8, ago: u8) -> Vec<u8> {
    let mut message = vec![0x09];
    message.extend_from_slice(&f64::from(value).to_le_bytes());
    message.push(0x10);
    varint((NOW.as_ms() - 1_000 * i64::from(ago)).cast_unsigned(), &mut message);
    let mut field = Vec::new();
    nested(2, &message, &mut field);
    field
}

fn body(series: &[Vec<SeriesField>]) -> Vec<u8> {
    let mut request = Vec::new();
    for parts in series {
        let mut message = Vec::new();
        for field in parts {
            match field {
                SeriesField::Label(name, value) => {
                    let mut label = Vec::new();
                    nested(1, name.as_bytes(), &mut label);
                    nested(2, value, &mut label);
                    nested(1, &label, &mut message);
                }
                SeriesField::Sample(value, ago) => message.extend(sample(*value, *ago)),
                SeriesField::Unknown => message.extend_from_slice(&[0x78, 7]),
                SeriesField::Broken(bytes) => message.extend_from_slice(bytes),
            }
        }
        nested(1, &message, &mut request);
    }
    block(&request)
}

fn series_field() -> impl Strategy<Value = SeriesField> {
    let value = prop_oneof![
        "[ab]{0,3}".prop_map(String::into_bytes),
        // A label value that ends with the bytes of a sample, or with a part of them.
        (0u8..4, 0u8..4, 0usize..18).prop_map(|(value, ago, from)| sample(value, ago).split_off(from)),
    ];
    prop_oneof![
        5 => ("[ab]{1,2}", value).prop_map(|(name, value)| SeriesField::Label(name, value)),
        5 => (0u8..4, 0u8..4).prop_map(|(value, ago)| SeriesField::Sample(value, ago)),
        1 => Just(SeriesField::Unknown),
        1 => (prop::collection::vec(any::<u8>(), 0..3), 0u8..4, 0u8..4)
            .prop_map(|(mut bytes, value, ago)| { bytes.extend(sample(value, ago)); SeriesField::Broken(bytes) }),
    ]
}

type StoredSeries = (String, Vec<(i64, u64)>);

fn stored(tsdb: &Tsdb) -> Vec<StoredSeries> {
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let range = TimeRange { start: Timestamp::MIN, end: Timestamp::MAX };
    let found = snapshot.select(&[], range);
    let mut all: Vec<StoredSeries> = found
        .iter()
        .map(|series| {
            let mut samples = SampleColumns::default();
            snapshot.read(series.id, range, &mut samples);
            let samples = samples.times.iter().zip(&samples.values).map(|(at, value)| (*at, value.to_bits()));
            (format!("{:?}", series.labels), samples.collect())
        })
        .collect();
    all.sort();
    all
}

/// Writes a request. Returns the stored and refused samples or the error, and the charged samples.
fn write(tsdb: &Tsdb, body: &[u8], guess: bool) -> (Result<(u64, u64), Code>, usize) {
    let mut protocol = PROTOCOLS[0];
    if !guess {
        protocol.guess = None;
    }
    let charged = std::cell::Cell::new(0);
    let charge = |batch: &WriteBatch<'_>, before: usize| {
        charged.set(charged.get() + batch.samples.len().saturating_sub(before));
    };
    let appending = guess_or_decode(
        &protocol,
        &ingest::DecodeLimits::default(),
        body,
        &mut DecodeScratch::default(),
        |batch| {
            charge(&batch.0, 0);
            Ok((tsdb.prepare_guessed(ORG, &batch, NOW)?, batch.0.samples.len()))
        },
        |batch, before| {
            charge(&batch, before);
            Ok(tsdb.prepare(ORG, &batch, NOW)?)
        },
    );
    let counts = appending.map(|appending| {
        let (done, result) = std::sync::mpsc::channel();
        tsdb.commit_then(appending, move |result| done.send(result).expect("the receiver exists"));
        let report = result.recv().expect("a reply").expect("stored").report();
        (report.stored, report.refused)
    });
    (counts.map_err(|error| error.code()), charged.get())
}

proptest! {
    #[test]
    fn a_guessed_body_stores_the_same_samples_as_a_decoded_one(
        requests in prop::collection::vec(
            (prop::collection::vec(prop::collection::vec(series_field(), 0..5), 0..4), any::<bool>()), 1..6),
    ) {
        let (guessed, decoded) = (Tsdb::scaffold(), Tsdb::scaffold());
        for (series, twice) in &requests {
            let body = body(series);
            for _ in 0..=u8::from(*twice) {
                let (by_guess, charged) = write(&guessed, &body, true);
                let (by_decode, due) = write(&decoded, &body, false);
                prop_assert_eq!(&by_guess, &by_decode);
                prop_assert!(by_guess.is_err() || charged >= due);
            }
            prop_assert_eq!(stored(&guessed), stored(&decoded));
        }
    }
}

#[test]
fn a_scrape_with_known_series_is_stored_without_decoding_labels() {
    let tsdb = Tsdb::scaffold();
    let label = |value: &str| SeriesField::Label("a".to_owned(), value.as_bytes().to_vec());
    let body =
        body(&[vec![label("x"), SeriesField::Sample(1, 0)], vec![label("y"), SeriesField::Sample(2, 0)]]);
    let mut scratch = DecodeScratch::default();
    let guess = PROTOCOLS[0].guess.expect("it can guess");
    for _ in 0..2 {
        let batch = guess(&body, &ingest::DecodeLimits::default(), &mut scratch).expect("valid");
        assert_eq!(batch.0.series.len(), 2);
        let outcome = tsdb.prepare_guessed(ORG, &batch, NOW).expect("the store takes samples");
        assert!(matches!(outcome, GuessOutcome::Ready(_)), "the guess is right");
    }
}

mod versions;
