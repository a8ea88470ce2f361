//! The translation of each kind of point.

use super::message::*;
use super::*;
use crate::model::MetricKind;

/// A resource with `job` only. It has no other attribute and hence no `target_info`, so that lines
/// are short.
const JOB: &[(&str, &str)] = &[("service.name", "shop")];
const TAIL: &str = "job=shop service_name=shop";

fn of(metrics: Vec<Message>) -> Translated {
    both(&request(vec![resource_metrics(JOB, metrics)]))
}

#[test]
fn resource_attributes_become_labels_or_go_to_target_info() {
    let resource = [
        ("service.namespace", "eu"),
        ("service.name", "shop"),
        ("service.instance.id", "i-1"),
        ("deployment.environment.name", "prod"),
        ("host.name", "a1"),
        ("k8s.pod.name", "shop-0"),
    ];
    let later = Message::new().fixed64(3, "timeUnixNano", AT + 200_000_000_000).sfixed64(6, "asInt", -3);
    let metrics = vec![
        gauge("queue.length", "{item}", vec![later]),
        gauge("temperature", "Cel", vec![double_point(&[("room.name", "b")], 21.5)]),
    ];
    let translated = both(&request(vec![resource_metrics(&resource, metrics)]));
    let shared = "deployment_environment_name=prod host_name=a1 instance=i-1 job=eu/shop";
    assert_eq!(
        lines(&translated),
        [
            format!("__name__=queue_length {shared} service_name=shop | -3 @1795000200123"),
            format!(
                "__name__=temperature_celsius {shared} room_name=b service_name=shop | 21.5 @1795000000123"
            ),
            format!(
                "__name__=target_info {shared} k8s_pod_name=shop-0 \
                 | 1 @1795000000123 | 1 @1795000150123 | 1 @1795000200123"
            ),
        ]
    );
    assert_eq!(translated.refused, 0);
    let batch = translated.batch.batch();
    let described: Vec<_> = batch.metadata.iter().map(|m| (m.name, m.kind, m.help, m.unit)).collect();
    assert_eq!(
        described,
        [
            ("queue_length", MetricKind::Gauge, "What it is.", ""),
            ("temperature_celsius", MetricKind::Gauge, "What it is.", "celsius"),
        ]
    );
}

#[test]
fn target_info_needs_an_identity_attributes_and_points() {
    let info = |resource: &[(&str, &str)], points: Vec<Message>| {
        let translated = both(&request(vec![resource_metrics(resource, vec![gauge("up", "", points)])]));
        lines(&translated).into_iter().filter(|line| line.contains("target_info")).collect::<Vec<_>>()
    };
    let point = || vec![double_point(&[], 1.0)];
    assert!(info(&[("service.name", "shop"), ("service.instance.id", "1")], point()).is_empty());
    assert!(info(&[("os.type", "linux")], point()).is_empty(), "whose?");
    assert!(info(&[("service.name", "shop"), ("os.type", "linux")], vec![]).is_empty(), "when?");
    assert_eq!(
        info(&[("service.instance.id", "1"), ("os.type", "linux")], point()),
        ["__name__=target_info instance=1 os_type=linux | 1 @1795000000123"]
    );
    // Points that are far apart, as after a clock error, do not make a sample for every interval
    // since 1970.
    let first = Message::new().fixed64(3, "timeUnixNano", 1_000_000).double(4, "asDouble", 1.0);
    let long = info(&[("service.name", "shop"), ("os.type", "linux")], vec![first, point().remove(0)]);
    assert_eq!(long[0].matches(" | ").count(), 577);
    assert!(long[0].ends_with(" | 1 @1795000000123"));
}

#[test]
fn sums_become_counters_or_gauges() {
    let metrics = vec![
        sum(
            "http.requests",
            "{request}",
            CUMULATIVE,
            true,
            vec![double_point(&[("code", "200")], 7.0).many(
                5,
                "exemplars",
                vec![exemplar(2.5, &[("user.id", "u1")])],
            )],
        ),
        sum("pool.size", "1", CUMULATIVE, false, vec![double_point(&[], 4.0)]),
        sum("cpu.time", "s", CUMULATIVE, true, vec![double_point(&[], 1.5).varint(8, "flags", 1)]),
    ];
    let translated = of(metrics);
    let trace = "0c".repeat(16);
    let span = "ab".repeat(8);
    assert_eq!(
        lines(&translated),
        [
            format!(
                "__name__=http_requests_total code=200 {TAIL} | 7 @1795000000123 since 1794999000000 \
                 # span_id={span} trace_id={trace} user_id=u1 2.5 @1795000000118"
            ),
            format!("__name__=pool_size {TAIL} | 4 @1795000000123"),
            format!("__name__=cpu_time_seconds_total {TAIL} | stale @1795000000123 since 1794999000000"),
        ]
    );
    let batch = translated.batch.batch();
    let kinds: Vec<_> = batch.metadata.iter().map(|metadata| (metadata.kind, metadata.unit)).collect();
    assert_eq!(kinds, [(MetricKind::Counter, ""), (MetricKind::Gauge, ""), (MetricKind::Counter, "seconds")]);
}

fn classic(counts: &[u64], bounds: &[f64], count: u64) -> Message {
    timed().fixed64(4, "count", count).fixed64s(6, "bucketCounts", counts).doubles(
        7,
        "explicitBounds",
        bounds,
    )
}

#[test]
fn histograms_become_cumulative_buckets_a_count_and_an_optional_sum() {
    let exemplars = vec![exemplar(7.0, &[]), exemplar(0.5, &[("big", &"x".repeat(200))]), exemplar(1e9, &[])];
    let point = texts(
        classic(&[1, 2, 0, 4], &[0.5, 10.0, 1e10], 7).double(5, "sum", 31.5).many(8, "exemplars", exemplars),
        9,
        &[("route", "/"), ("le", "not mine")],
    );
    let translated = of(vec![histogram("latency", "s", vec![point])]);
    let end = "| 7 @1795000000123 since 1794999000000";
    let labels = format!("{TAIL} route=/");
    let ids = format!("span_id={} trace_id={}", "ab".repeat(8), "0c".repeat(16));
    let bucket = |le: &str, rest: &str| {
        format!("__name__=latency_seconds_bucket job=shop le={le} route=/ service_name=shop {rest}")
    };
    let at = "@1795000000123 since 1794999000000";
    let labels_first =
        labels.replace("job=shop service_name=shop route=/", "job=shop route=/ service_name=shop");
    assert_eq!(
        lines(&translated),
        [
            format!("__name__=latency_seconds_sum {labels_first} | 31.5 {at}"),
            format!("__name__=latency_seconds_count {labels_first} {end}"),
            bucket("0.5", &format!("| 1 {at} # {ids} 0.5 @1795000000118")),
            bucket("10", &format!("| 3 {at} # {ids} 7 @1795000000118")),
            bucket("10000000000", &format!("| 3 {at} # {ids} 1000000000 @1795000000118")),
            bucket("+Inf", end),
        ]
    );
    assert_eq!(translated.batch.batch().metadata[0].kind, MetricKind::Histogram);
}

#[test]
fn histograms_without_sum_buckets_or_recorded_value_are_translated() {
    let points = vec![
        classic(&[], &[], 3),
        classic(&[5], &[], 5).double(5, "sum", 1.0),
        classic(&[1, 1, 0], &[-0.001, f64::INFINITY], 2),
        classic(&[], &[1.0], 0).double(5, "sum", 0.0).varint(10, "flags", 1),
    ];
    let translated = of(vec![histogram("h", "", points)]);
    let names: Vec<String> = lines(&translated)
        .iter()
        .map(|line| {
            let line = line
                .replace(&format!(" {TAIL}"), "")
                .replace(" job=shop", "")
                .replace(" service_name=shop", "");
            line.replace("__name__=", "").replace(" @1795000000123 since 1794999000000", "")
        })
        .collect();
    assert_eq!(
        names,
        [
            "h_count | 3",
            "h_bucket le=+Inf | 3",
            "h_sum | 1",
            "h_count | 5",
            "h_bucket le=+Inf | 5",
            "h_count | 2",
            "h_bucket le=-0.001 | 1",
            "h_bucket le=+Inf | 2",
            "h_sum | stale",
            "h_count | stale",
            "h_bucket le=1 | stale",
            "h_bucket le=+Inf | stale",
        ]
    );
}

fn buckets(offset: i32, counts: &[u64]) -> Message {
    Message::new().sint32(1, "offset", offset).varints(2, "bucketCounts", counts)
}

fn exponential_point(scale: i32, count: u64, positive: Message) -> Message {
    timed().fixed64(4, "count", count).sint32(6, "scale", scale).one(8, "positive", positive)
}

#[test]
fn exponential_histograms_become_native_histograms() {
    let points = vec![
        exponential_point(3, 12, buckets(-2, &[1, 0, 3]))
            .double(5, "sum", 8.25)
            .fixed64(7, "zeroCount", 2)
            .one(9, "negative", buckets(0, &[4, 0, 0, 0, 2])),
        // 2^12 times as fine as schema 8; the buckets lie on both sides of 1.
        exponential_point(20, 6, buckets(-2, &[1, 2, 3])).double(14, "zeroThreshold", 0.5),
        exponential_point(-4, 0, buckets(0, &[])),
        exponential_point(2, 5, buckets(0, &[1])).varint(10, "flags", 1),
    ];
    let translated = of(vec![exponential("size", "By", points)]);
    let line = |rendered: &str| {
        format!("__name__=size_bytes {TAIL} | {rendered} @1795000000123 since 1794999000000")
    };
    assert_eq!(
        lines(&translated),
        [
            line(
                "schema 3 count 12 sum 8.25 zero 2 to 1e-128 positive -1+3 negative 1+1,3+1 buckets [1, 0, 3, 4, 2]"
            ),
            line("schema 8 count 6 sum 0 zero 0 to 5e-1 positive 0+2 negative  buckets [3, 3]"),
            line("schema -4 count 0 sum 0 zero 0 to 1e-128 positive  negative  buckets []"),
            line("stale"),
        ]
    );
}

#[test]
fn exponential_histograms_keep_their_exemplars() {
    let point = exponential_point(0, 1, buckets(0, &[1])).many(11, "exemplars", vec![exemplar(1.5, &[])]);
    let translated = of(vec![exponential("size", "", vec![point])]);
    assert!(lines(&translated)[0].ends_with(" 1.5 @1795000000118"));
}

#[test]
fn summaries_become_a_sum_a_count_and_quantiles() {
    let quantile = |rank, value| Message::new().double(1, "quantile", rank).double(2, "value", value);
    let point = |flags| {
        let quantiles = vec![quantile(0.5, 1.25), quantile(0.99, f64::NAN), quantile(1.0, 9.0)];
        timed()
            .fixed64(4, "count", 10)
            .double(5, "sum", 14.0)
            .many(6, "quantileValues", quantiles)
            .varint(8, "flags", flags)
    };
    let rendered = |flags| {
        let translated = of(vec![summary("wait", "ms", vec![point(flags)])]);
        lines(&translated).iter().map(|line| line.replace("service_name=shop ", "")).collect::<Vec<_>>()
    };
    let at = "@1795000000123";
    assert_eq!(
        rendered(0),
        [
            format!("__name__=wait_milliseconds_sum job=shop | 14 {at} since 1794999000000"),
            format!("__name__=wait_milliseconds_count job=shop | 10 {at} since 1794999000000"),
            format!("__name__=wait_milliseconds job=shop quantile=0.5 | 1.25 {at}"),
            format!("__name__=wait_milliseconds job=shop quantile=0.99 | NaN {at}"),
            format!("__name__=wait_milliseconds job=shop quantile=1 | 9 {at}"),
        ]
    );
    assert!(rendered(1).iter().all(|line| line.contains("| stale @")), "{:?}", rendered(1));
}

#[test]
fn attributes_of_every_type_become_label_text() {
    let nested = AnyValue::Map(vec![
        (
            "z".to_owned(),
            AnyValue::Array(vec![
                AnyValue::Int(1),
                AnyValue::Double(2.5),
                AnyValue::None,
                AnyValue::Bool(false),
            ]),
        ),
        ("a".to_owned(), AnyValue::from("twice")),
        ("a".to_owned(), AnyValue::from("<\"&\u{7}>")),
        ("n".to_owned(), AnyValue::Double(f64::NAN)),
        ("b".to_owned(), AnyValue::Bytes(vec![0xff, 0])),
    ]);
    let pairs = [
        ("a.text", AnyValue::from("t")),
        ("bool", AnyValue::Bool(true)),
        ("int", AnyValue::Int(i64::MIN)),
        ("whole", AnyValue::Double(3.0)),
        ("large", AnyValue::Double(1e21)),
        ("small", AnyValue::Double(-1.5e-7)),
        ("nan", AnyValue::Double(f64::NAN)),
        ("inf", AnyValue::Double(f64::NEG_INFINITY)),
        ("bytes", AnyValue::Bytes(b"hello".to_vec())),
        ("array", AnyValue::Array(vec![AnyValue::from("x"), AnyValue::Array(vec![])])),
        ("map", nested),
        ("none", AnyValue::None),
        ("empty", AnyValue::from("")),
    ];
    let point = attributes(timed().double(4, "asDouble", 1.0), 7, &pairs);
    let translated = both(&request(vec![resource_metrics(&[], vec![gauge("g", "", vec![point])])]));
    let expected = concat!(
        r#"__name__=g a_text=t array=["x",[]] bool=true bytes=aGVsbG8= inf=-Inf int=-9223372036854775808 large=1e+21 "#,
        r#"map={"a":"<\"&\u0007>","b":"/wA=","n":"NaN","z":[1,2.5,null,false]} nan=NaN small=-1.5e-7 whole=3 "#,
        "| 1 @1795000000123"
    );
    assert_eq!(lines(&translated), [expected]);
}

#[test]
fn colliding_label_names_are_resolved_as_in_prometheus() {
    let labels = |resource: &[(&str, &str)], pairs: &[(&str, &str)]| {
        let metrics = vec![gauge("g", "", vec![double_point(pairs, 1.0)])];
        let line = lines(&both(&request(vec![resource_metrics(resource, metrics)]))).remove(0);
        line.replace("__name__=g ", "").replace(" | 1 @1795000000123", "")
    };
    // Values are joined in the order of the keys, not of the sender: `.` comes before `_`.
    assert_eq!(labels(&[], &[("a_b", "2"), ("a.b", "1"), ("c", "3")]), "a_b=1;2 c=3");
    assert_eq!(labels(&[], &[("a.b", "1"), ("a.b", "0"), ("a/b", "")]), "a_b=1;0;");
    assert_eq!(labels(&[], &[("a.b", ""), ("a_b", "x")]), "a_b=;x");
    // An empty name is valid here; the store refuses it.
    assert_eq!(labels(&[], &[("", "1"), ("", "2")]), "=1;2");
    // A point overrides promoted attributes, but not `job`, `instance` or the metric name.
    let resource = [("service.name", "shop"), ("host.name", "a1")];
    assert_eq!(labels(&resource, &[("host.name", "b2")]), "host_name=b2 job=shop service_name=shop");
    assert_eq!(labels(&resource, &[("host.name", "")]), "job=shop service_name=shop");
    assert_eq!(
        labels(&resource, &[("job", "me"), ("x", "y")]),
        "host_name=a1 job=shop service_name=shop x=y"
    );
    assert_eq!(labels(&[], &[("job", "me"), ("__name__", "me")]), "job=me");
    assert_eq!(labels(&[], &[("_own", "1"), ("1st", "2"), ("__x", "3")]), "__x=3 key_1st=2 key_own=1");
}

#[test]
fn translation_of_a_point_does_not_depend_on_earlier_points() {
    let points: &[&[(&str, &str)]] = &[
        &[("a.b", "1"), ("c", "2")],
        &[("c", "2"), ("a.b", "1")],
        &[("a.b", "1"), ("a_b", "2")],
        &[("a_b", "1")],
        &[],
        &[("a.b", "3"), ("c", "2"), ("job", "me")],
        &[("a.b", "4"), ("c", "5"), ("d", "6")],
    ];
    let request_of = |points: &[&[(&str, &str)]]| {
        let points = points.iter().map(|pairs| double_point(pairs, 1.0)).collect();
        request(vec![resource_metrics(JOB, vec![gauge("g", "", points)])])
    };
    let together = lines(&both(&request_of(points)));
    let alone: Vec<String> = points.iter().flat_map(|point| lines(&both(&request_of(&[point])))).collect();
    assert_eq!(together, alone);
}

#[test]
fn a_series_may_occur_twice() {
    let metric = || gauge("g", "", vec![double_point(&[("a", "b")], 1.0), double_point(&[("a", "b")], 2.0)]);
    let translated = of(vec![metric(), metric()]);
    assert_eq!(translated.batch.len(), 4);
    assert_eq!(translated.batch.batch().metadata.len(), 1, "described once");
}

/// A hand-written request with one gauge, byte by byte.
#[test]
fn a_hand_written_request_is_translated() {
    let bytes = [
        0x0a, 0x2f, // ResourceMetrics
        0x0a, 0x12, // Resource
        0x0a, 0x10, // KeyValue
        0x0a, 0x0c, b's', b'e', b'r', b'v', b'i', b'c', b'e', b'.', b'n', b'a', b'm', b'e', // key
        0x12, 0x00, // AnyValue
        0x12, 0x19, // ScopeMetrics
        0x12, 0x17, // Metric
        0x0a, 0x01, b'g', // name
        0x2a, 0x12, // Gauge
        0x0a, 0x10, // NumberDataPoint
        0x19, 0x00, 0xca, 0x9a, 0x3b, 0x00, 0x00, 0x00, 0x00, // time: a second
        0x40, 0x01, // flags: no recorded value
        0x3a, 0x03, 0x0a, 0x01, b'k', // KeyValue
    ];
    let translated = decode(&bytes, Encoding::Protobuf, &DecodeLimits::default()).expect("valid");
    assert_eq!(lines(&translated), ["__name__=g | stale @1000"]);
}

#[test]
fn responses_follow_the_protocol() {
    let json = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    assert_eq!(response(Encoding::Protobuf, 0, ""), b"");
    assert_eq!(json(response(Encoding::Json, 0, "")), "{}");
    assert_eq!(response(Encoding::Protobuf, 300, "no"), [0x0a, 7, 0x08, 0xac, 0x02, 0x12, 2, b'n', b'o']);
    assert_eq!(
        json(response(Encoding::Json, 300, "no")),
        r#"{"partialSuccess":{"errorMessage":"no","rejectedDataPoints":"300"}}"#
    );
    assert_eq!(response(Encoding::Protobuf, 0, "hm"), [0x0a, 4, 0x12, 2, b'h', b'm']);
    assert_eq!(status(Encoding::Protobuf, "bad"), [0x12, 3, b'b', b'a', b'd']);
    assert_eq!(json(status(Encoding::Json, "bad \"x\"")), r#"{"message":"bad \"x\""}"#);
}

#[test]
fn the_content_type_selects_the_encoding() {
    assert_eq!(Encoding::of("application/x-protobuf"), Some(Encoding::Protobuf));
    assert_eq!(Encoding::of("Application/JSON; charset=utf-8"), Some(Encoding::Json));
    assert_eq!(Encoding::of("text/plain"), None);
    assert_eq!(Encoding::of(""), None);
}
