//! Properties: both encodings translate to the same batch, and no input panics or exceeds the
//! limits.

#![expect(clippy::arithmetic_side_effects, reason = "a test that overflows fails")]

use proptest::prelude::{any, *};

use super::message::*;
use super::*;

fn key() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a",
        "a.b",
        "a_b",
        "a/b",
        "_c",
        "1d",
        "é",
        "",
        "job",
        "instance",
        "le",
        "quantile",
        "__name__",
        "host.name",
        "service.name",
    ])
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]{0,3}", any::<String>()]
}

fn any_value() -> impl Strategy<Value = AnyValue> {
    let leaf = prop_oneof![
        4 => text().prop_map(AnyValue::Text),
        1 => Just(AnyValue::None),
        1 => any::<bool>().prop_map(AnyValue::Bool),
        1 => any::<i64>().prop_map(AnyValue::Int),
        1 => double().prop_map(AnyValue::Double),
        1 => prop::collection::vec(any::<u8>(), 0..5).prop_map(AnyValue::Bytes),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(AnyValue::Array),
            prop::collection::vec((text(), inner), 0..4).prop_map(AnyValue::Map),
        ]
    })
}

fn double() -> impl Strategy<Value = f64> {
    // JSON has a single NaN.
    any::<f64>().prop_map(|value| if value.is_nan() { f64::NAN } else { value })
}

fn pairs() -> impl Strategy<Value = Vec<(&'static str, AnyValue)>> {
    prop_oneof![8 => prop::collection::vec((key(), any_value()), 0..5), 1 => prop::collection::vec((key(), any_value()), 15..20)]
}

fn times() -> impl Strategy<Value = Message> {
    let ns = || prop_oneof![1 => Just(0), 4 => AT..AT + 1_000_000_000_000, 1 => any::<u64>()];
    (ns(), ns(), 0..3_i64).prop_map(|(start, time, _)| {
        Message::new().fixed64(2, "startTimeUnixNano", start).fixed64(3, "timeUnixNano", time)
    })
}

fn exemplars() -> impl Strategy<Value = Vec<Message>> {
    let one = (double(), pairs(), prop::collection::vec(any::<u8>(), 16)).prop_map(|(value, pairs, id)| {
        let filtered = pairs.iter().map(|(key, value)| key_value(key, value)).collect();
        Message::new()
            .many(7, "filteredAttributes", filtered)
            .double(3, "asDouble", value)
            .hex(5, "traceId", &id)
    });
    prop::collection::vec(one, 0..3)
}

fn number_point() -> impl Strategy<Value = Message> {
    let value = prop_oneof![double().prop_map(Ok), any::<i64>().prop_map(Err)];
    (times(), pairs(), value, exemplars(), 0..3_i64).prop_map(|(point, pairs, value, exemplars, flags)| {
        let point = attributes(point, 7, &pairs).many(5, "exemplars", exemplars).varint(8, "flags", flags);
        match value {
            Ok(value) => point.double(4, "asDouble", value),
            Err(value) => point.sfixed64(6, "asInt", value),
        }
    })
}

fn histogram_point() -> impl Strategy<Value = Message> {
    let bounds = prop::collection::vec(double(), 0..4);
    let counts = prop::collection::vec(0..100_u64, 0..5);
    (times(), pairs(), bounds, counts, exemplars(), any::<bool>()).prop_map(
        |(point, pairs, mut bounds, mut counts, exemplars, fits)| {
            if fits {
                bounds.sort_by(f64::total_cmp);
                counts.resize(bounds.len() + 1, 7);
            }
            attributes(point, 9, &pairs)
                .fixed64(4, "count", counts.iter().sum())
                .double(5, "sum", 1.5)
                .fixed64s(6, "bucketCounts", &counts)
                .doubles(7, "explicitBounds", &bounds)
                .many(8, "exemplars", exemplars)
        },
    )
}

fn exponential_point() -> impl Strategy<Value = Message> {
    let side = || {
        (any::<i32>(), -20..20_i32, any::<bool>(), prop::collection::vec(0..4_u64, 0..20)).prop_map(
            |(wild, tame, is_wild, counts)| {
                let offset = if is_wild { wild } else { tame };
                let total: u64 = counts.iter().sum();
                (Message::new().sint32(1, "offset", offset).varints(2, "bucketCounts", &counts), total)
            },
        )
    };
    (times(), pairs(), -6..25_i32, side(), side(), 0..3_u64).prop_map(
        |(point, pairs, scale, positive, negative, zero)| {
            attributes(point, 1, &pairs)
                .fixed64(4, "count", positive.1 + negative.1 + zero)
                .sint32(6, "scale", scale)
                .fixed64(7, "zeroCount", zero)
                .one(8, "positive", positive.0)
                .one(9, "negative", negative.0)
        },
    )
}

fn summary_point() -> impl Strategy<Value = Message> {
    (times(), pairs(), prop::collection::vec((0.0..1.1_f64, double()), 0..4)).prop_map(
        |(point, pairs, quantiles)| {
            let quantiles = quantiles
                .into_iter()
                .map(|(rank, value)| Message::new().double(1, "quantile", rank).double(2, "value", value))
                .collect();
            attributes(point, 7, &pairs).fixed64(4, "count", 3).double(5, "sum", 2.0).many(
                6,
                "quantileValues",
                quantiles,
            )
        },
    )
}

fn a_metric() -> impl Strategy<Value = Message> {
    let name = || prop_oneof![4 => Just("a.metric".to_owned()), 1 => text()];
    let unit = || prop::sample::select(vec!["", "1", "s", "By/s", "{x}", "odd)"]);
    let points = |point: BoxedStrategy<Message>| prop::collection::vec(point, 0..4);
    prop_oneof![
        (name(), unit(), points(number_point().boxed()))
            .prop_map(|(name, unit, points)| gauge(&name, unit, points)),
        (name(), unit(), 0..4_i64, any::<bool>(), points(number_point().boxed())).prop_map(
            |(name, unit, temporality, monotonic, points)| sum(
                &name,
                unit,
                temporality.min(2),
                monotonic,
                points
            )
        ),
        (name(), unit(), points(histogram_point().boxed()))
            .prop_map(|(name, unit, points)| histogram(&name, unit, points)),
        (name(), unit(), points(exponential_point().boxed()))
            .prop_map(|(name, unit, points)| exponential(&name, unit, points)),
        (name(), unit(), points(summary_point().boxed()))
            .prop_map(|(name, unit, points)| summary(&name, unit, points)),
    ]
}

fn a_request() -> impl Strategy<Value = Message> {
    let resource = (pairs(), prop::collection::vec(a_metric(), 0..4)).prop_map(|(pairs, metrics)| {
        Message::new().one(1, "resource", attributes(Message::new(), 1, &pairs)).many(
            2,
            "scopeMetrics",
            vec![Message::new().many(2, "metrics", metrics)],
        )
    });
    prop::collection::vec(resource, 0..3).prop_map(request)
}

proptest! {
    #[test]
    fn json_and_protobuf_of_a_request_translate_alike(request in a_request()) {
        let limits = DecodeLimits::default();
        // An empty protobuf body is refused, although it is a valid empty message.
        if !request.protobuf.is_empty() {
            let protobuf = decode(&request.protobuf, Encoding::Protobuf, &limits).expect("valid protobuf");
            let json = decode(&request.json_bytes(), Encoding::Json, &limits).expect("valid JSON");
            prop_assert_eq!(format!("{protobuf:?}"), format!("{json:?}"));
        }
    }

    #[test]
    fn label_names_of_a_series_are_unique(request in a_request()) {
        let translated = decode(&[&request.protobuf[..], &[0x78, 0]].concat(), Encoding::Protobuf, &DecodeLimits::default());
        let translated = translated.expect("valid");
        let batch = translated.batch.batch();
        for series in &batch.series {
            let mut pairs = Vec::new();
            (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels");
            prop_assert!(pairs.iter().all(|(_, value)| !value.is_empty()));
            let mut names: Vec<&[u8]> = pairs.iter().map(|(name, _)| *name).collect();
            prop_assert_eq!(names.iter().filter(|name| **name == b"__name__").count(), 1);
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            prop_assert_eq!(names.len(), all);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_otlp(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decode(&bytes, Encoding::Protobuf, &DecodeLimits::default());
        let _ = decode(&bytes, Encoding::Json, &DecodeLimits::default());
    }

    #[test]
    fn damaged_otlp_requests_never_panic_or_exceed_limits(
        request in a_request(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let few = DecodeLimits {
            series_max: 20,
            samples_max: 30,
            metadata_max: 3,
            histograms_max: 3,
            buckets_max: 40,
            exemplars_max: 4,
            exemplar_labels_max: 8,
            label_bytes_max: 4_000,
            ..DecodeLimits::default()
        };
        for (mut bytes, encoding) in
            [(request.protobuf.clone(), Encoding::Protobuf), (request.json_bytes(), Encoding::Json)]
        {
            for (place, byte) in &changes {
                if !bytes.is_empty() {
                    let place = place.index(bytes.len());
                    bytes[place] = *byte;
                }
            }
            if let Ok(translated) = decode(&bytes, encoding, &few) {
                let batch = translated.batch.batch();
                prop_assert!(batch.series.len() <= 20 && batch.samples.len() <= 30 && batch.metadata.len() <= 3);
                prop_assert!(batch.histograms.len() <= 3 && batch.exemplars.len() <= 4);
                prop_assert!(batch.exemplar_labels.len() <= 8 && translated.refusals.len() <= Translated::REFUSALS_LISTED_MAX);
                prop_assert!(batch.series.iter().map(|series| series.raw_labels.len()).sum::<usize>() <= 4_000);
            }
        }
    }
}
