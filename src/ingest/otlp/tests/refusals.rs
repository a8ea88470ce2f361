//! Refusals: their codes and series, and that everything else is translated.

use super::message::*;
use super::*;

/// Returns the refusals, the number of refused points, and the number of accepted samples.
fn outcome(metrics: Vec<Message>) -> (Vec<String>, usize, usize) {
    let translated = both(&request(vec![resource_metrics(&[("service.name", "s")], metrics)]));
    let refusals = refused(&translated).iter().map(|(code, series, _)| format!("{code} {series}")).collect();
    (refusals, translated.refused, translated.batch.len())
}

#[test]
fn other_temporalities_are_refused_with_a_remedy() {
    for (temporality, code) in
        [(DELTA, "delta_temporality"), (0, "unknown_temporality"), (7, "unknown_temporality")]
    {
        let points = || vec![double_point(&[], 1.0), double_point(&[("a", "b")], 2.0)];
        let metrics = vec![sum("jobs.done", "", temporality, true, points()), gauge("up", "", points())];
        let translated = both(&request(vec![resource_metrics(&[("service.name", "s")], metrics)]));
        assert_eq!((translated.refused, translated.batch.len()), (2, 2));
        let refusals = refused(&translated);
        assert_eq!(refusals.len(), 1);
        let (found, series, reason) = refusals[0];
        assert_eq!((found, series), (code, r#"{__name__="jobs.done", job="s", service_name="s"}"#));
        assert!(reason.contains("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative"), "{reason}");
    }
    let delta = |number, name| {
        let data =
            Message::new().many(1, "dataPoints", vec![timed()]).varint(2, "aggregationTemporality", DELTA);
        metric("h", "").one(number, name, data)
    };
    let (refusals, refused, taken) = outcome(vec![delta(9, "histogram"), delta(10, "exponentialHistogram")]);
    assert_eq!((refusals.len(), refused, taken), (2, 2, 0));
}

#[test]
fn points_without_time_or_value_are_refused_alone() {
    let (refusals, refused, taken) = outcome(vec![gauge(
        "g",
        "",
        vec![
            texts(Message::new().double(4, "asDouble", 1.0), 7, &[("a", "b")]),
            double_point(&[], 1.0),
            timed(),
        ],
    )]);
    assert_eq!(
        refusals,
        [
            r#"missing_time {__name__="g", a="b", job="s", service_name="s"}"#,
            r#"missing_value {__name__="g", job="s", service_name="s"}"#,
        ]
    );
    assert_eq!((refused, taken), (2, 1));
}

#[test]
fn invalid_histograms_are_refused_alone() {
    let classic = |counts: &[u64], bounds: &[f64]| {
        timed().fixed64(4, "count", 1).fixed64s(6, "bucketCounts", counts).doubles(
            7,
            "explicitBounds",
            bounds,
        )
    };
    let (refusals, ..) = outcome(vec![histogram(
        "h",
        "",
        vec![classic(&[1], &[1.0]), classic(&[1, 2, 3], &[2.0, 1.0]), classic(&[1, 2], &[f64::NAN])],
    )]);
    assert_eq!(refusals.len(), 3);
    assert!(refusals.iter().all(|refusal| refusal.starts_with("histogram_buckets")), "{refusals:?}");

    let native = |scale, offset, count, threshold| {
        let buckets = Message::new().sint32(1, "offset", offset).varints(2, "bucketCounts", &[1]);
        timed().fixed64(4, "count", count).sint32(6, "scale", scale).one(8, "positive", buckets).double(
            14,
            "zeroThreshold",
            threshold,
        )
    };
    let (refusals, refused, taken) = outcome(vec![exponential(
        "h",
        "",
        vec![
            native(-5, 0, 1, 0.0),
            native(0, 0, 2, 0.0),
            native(0, i32::MAX, 1, 0.0),
            native(0, 0, 1, f64::NAN),
            native(0, 0, 1, -1.0),
        ],
    )]);
    let codes: Vec<&str> = refusals.iter().filter_map(|refusal| refusal.split(' ').next()).collect();
    assert_eq!(
        codes,
        [
            "histogram_schema",
            "histogram_count_mismatch",
            "histogram_spans",
            "histogram_zero_threshold",
            "histogram_zero_threshold",
        ]
    );
    assert_eq!((refused, taken), (5, 0));
}

#[test]
fn summaries_with_invalid_quantiles_are_refused() {
    let quantile = |rank| Message::new().double(1, "quantile", rank).double(2, "value", 1.0);
    let point = |rank| timed().many(6, "quantileValues", vec![quantile(rank)]);
    let (refusals, refused, taken) = outcome(vec![summary("s", "", vec![point(1.5), point(f64::NAN)])]);
    assert!(refusals.iter().all(|refusal| refusal.starts_with("summary_quantiles")), "{refusals:?}");
    assert_eq!((refused, taken), (2, 0));
}

#[test]
fn metrics_without_a_name_or_data_are_reported() {
    let points = || vec![double_point(&[], 1.0); 12];
    let (refusals, refused, taken) =
        outcome(vec![gauge("...", "s", points()), metric("nothing", ""), gauge("empty", "", vec![])]);
    assert_eq!(
        refusals,
        [
            r#"missing_metric_name {__name__="...", job="s", service_name="s"}"#,
            r#"no_data {__name__="nothing"}"#,
        ]
    );
    assert_eq!((refused, taken), (12, 0));
}

#[test]
fn only_the_first_refusals_are_listed_and_all_are_counted() {
    let (refusals, refused, _) = outcome(vec![gauge("g", "", vec![timed(); 25])]);
    assert_eq!((refusals.len(), refused), (Translated::REFUSALS_LISTED_MAX, 25));
}

#[test]
fn strings_that_are_not_utf8_refuse_the_part_that_contains_them() {
    let bad = |mut bytes: Vec<u8>| {
        let place = bytes.windows(3).position(|window| window == b"BAD").expect("it is there");
        bytes[place] = 0xff;
        let translated =
            decode(&bytes, Encoding::Protobuf, &DecodeLimits::default()).expect("valid protobuf");
        let codes: Vec<&str> = refused(&translated).iter().map(|(code, ..)| *code).collect();
        assert_eq!(codes, ["invalid_utf8"]);
        (translated.refused, translated.batch.len())
    };
    let of = |resource, name, key| {
        let points = vec![double_point(&[(key, "v")], 1.0), double_point(&[], 2.0)];
        let metrics = vec![gauge(name, "", points), gauge("other", "", vec![double_point(&[], 3.0)])];
        request(vec![resource_metrics(&[(resource, "r")], metrics)]).protobuf
    };
    assert_eq!(bad(of("r", "g", "BAD")), (1, 2));
    assert_eq!(bad(of("r", "BAD", "k")), (2, 1));
    let whole = of("BAD", "g", "k");
    let mut translated_whole = whole.clone();
    let place = whole.windows(3).position(|window| window == b"BAD").expect("it is there");
    translated_whole[place] = 0xff;
    let translated =
        decode(&translated_whole, Encoding::Protobuf, &DecodeLimits::default()).expect("valid protobuf");
    assert_eq!((translated.refused, translated.batch.len()), (3, 0));
    assert!(refused(&translated)[0].2.starts_with("its resource: "), "{:?}", refused(&translated));
}

#[test]
fn too_many_too_deep_and_too_long_attributes_are_refused() {
    let codes = |pairs: &[(&str, AnyValue)]| {
        let point = attributes(timed().double(4, "asDouble", 1.0), 7, pairs);
        let metrics = vec![gauge("g", "", vec![point, double_point(&[], 1.0)])];
        let translated = both(&request(vec![resource_metrics(&[], metrics)]));
        assert_eq!(translated.refused + translated.batch.len(), 2);
        refused(&translated).iter().map(|(code, ..)| *code).collect::<Vec<_>>()
    };
    let nested = |depth: usize| (0..depth).fold(AnyValue::from("x"), |inner, _| AnyValue::Array(vec![inner]));
    assert!(codes(&[("deep", nested(15))]).is_empty());
    assert_eq!(codes(&[("deep", nested(16))]), ["attribute_too_deep"]);
    let names: Vec<String> = (0..257).map(|n| format!("a{n}")).collect();
    let pairs: Vec<(&str, AnyValue)> =
        names.iter().map(|name| (name.as_str(), AnyValue::from("v"))).collect();
    assert!(codes(&pairs[..256]).is_empty());
    assert_eq!(codes(&pairs), ["too_many_labels"]);
    let long = AnyValue::Array(vec![AnyValue::Text("x".repeat(70_000))]);
    assert_eq!(codes(&[("long", long)]), ["label_value_too_long"]);
    assert_eq!(codes(&[("long", AnyValue::Bytes(vec![0; 70_000]))]), ["label_value_too_long"]);
    let map = AnyValue::Map((0..5_000).map(|_| (String::new(), AnyValue::None)).collect());
    assert_eq!(codes(&[("wide", map)]), ["label_value_too_long"]);
}

#[test]
fn an_invalid_exemplar_is_reported_and_its_point_is_stored() {
    let bad = Message::new().fixed64(2, "timeUnixNano", AT);
    let point = double_point(&[], 1.0).many(5, "exemplars", vec![bad, exemplar(1.0, &[])]);
    let translated = both(&request(vec![resource_metrics(&[], vec![gauge("g", "", vec![point])])]));
    assert_eq!(refused(&translated)[0].0, "missing_value");
    assert_eq!(
        (translated.refused, translated.batch.len(), translated.batch.batch().exemplars.len()),
        (0, 1, 1)
    );
}

#[test]
fn a_refused_series_is_displayed_in_200_bytes() {
    let long = "é".repeat(500);
    let point = texts(Message::new().double(4, "asDouble", 1.0), 7, &[("a", &long), ("b", &long)]);
    let translated = both(&request(vec![resource_metrics(&[], vec![gauge("g", "", vec![point])])]));
    let (_, series, _) = refused(&translated)[0];
    assert!(series.len() <= 200 && series.starts_with(r#"{__name__="g", a="é"#) && series.ends_with("..."));
}

#[test]
fn limits_of_otlp_requests_are_enforced() {
    let exemplars = vec![exemplar(1.0, &[("k", "v")]); 3];
    let point = || {
        timed().fixed64(4, "count", 1).fixed64s(6, "bucketCounts", &[1, 0]).doubles(
            7,
            "explicitBounds",
            &[1.0],
        )
    };
    let native = || {
        let buckets = Message::new().varints(2, "bucketCounts", &[1]);
        timed().fixed64(4, "count", 1).one(8, "positive", buckets)
    };
    let metrics = vec![
        histogram("h", "", vec![point().many(8, "exemplars", exemplars), point()]),
        exponential("e", "", vec![native(), native()]),
        gauge("g", "", vec![double_point(&[("name", "value")], 1.0)]),
    ];
    let request = request(vec![resource_metrics(&[("service.name", "s"), ("os", "x")], metrics)]);
    assert_eq!(both(&request).refused, 0);
    let refused = |limits: DecodeLimits| {
        let of = |encoding, body: &[u8]| match decode(body, encoding, &limits) {
            Err(error @ DecodeError::TooLarge { what, .. }) if error.is_size() => what,
            other => panic!("not refused for its size: {other:?}"),
        };
        let what = of(Encoding::Protobuf, &request.protobuf);
        assert_eq!(of(Encoding::Json, &request.json_bytes()), what);
        what
    };
    let all = DecodeLimits::default();
    assert_eq!(refused(DecodeLimits { series_max: 9, ..all }), "series");
    assert_eq!(refused(DecodeLimits { samples_max: 7, ..all }), "samples");
    assert_eq!(refused(DecodeLimits { metadata_max: 2, ..all }), "metric descriptions");
    assert_eq!(refused(DecodeLimits { histograms_max: 1, ..all }), "histograms");
    assert_eq!(refused(DecodeLimits { buckets_max: 7, ..all }), "histogram buckets");
    assert_eq!(refused(DecodeLimits { exemplars_max: 2, ..all }), "exemplars");
    assert_eq!(refused(DecodeLimits { exemplar_labels_max: 8, ..all }), "exemplar labels");
    assert_eq!(refused(DecodeLimits { label_bytes_max: 500, ..all }), "bytes of labels");
    assert_eq!(refused(DecodeLimits { decompressed_bytes_max: 100, ..all }), "bytes after decompression");
    let enough = DecodeLimits {
        series_max: 10,
        samples_max: 8,
        metadata_max: 3,
        histograms_max: 2,
        buckets_max: 8,
        exemplars_max: 3,
        exemplar_labels_max: 9,
        ..all
    };
    assert!(decode(&request.protobuf, Encoding::Protobuf, &enough).is_ok());
}

#[test]
fn a_malformed_otlp_request_is_refused_as_a_whole() {
    let of = |bytes: &[u8], encoding| {
        decode(bytes, encoding, &DecodeLimits::default()).map(|_| ()).expect_err("refused")
    };
    assert_eq!(of(b"", Encoding::Protobuf), DecodeError::Empty);
    assert_eq!(of(b"", Encoding::Json), DecodeError::Empty);
    assert!(matches!(of(&[0x0a, 5, 1], Encoding::Protobuf), DecodeError::Wire(_)));
    // Truncation is noticed at any byte, even inside the last attribute, which is skipped first and
    // read later.
    let point = double_point(&[("k", "v")], 1.0);
    let whole = request(vec![resource_metrics(&[("r", "s")], vec![gauge("g", "", vec![point])])]).protobuf;
    for cut in 1..whole.len() {
        assert!(matches!(of(&whole[..cut], Encoding::Protobuf), DecodeError::Wire(_)), "{cut}");
    }
}
