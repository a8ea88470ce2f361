//! The law of embed tokens (docs/specification.md D7, F 32 to 35): every response within a scope
//! equals that of a store with only the samples of the scope.
//!
//! The test draws random restrictions of a key and of a token, and random queries, and requests
//! every listing. For each restriction it creates an organisation with only the allowed samples,
//! which the test selects without code of the server. A token without restrictions sends the same
//! requests there. Names, counts, samples read, plans and errors in the responses must be equal.

use std::cell::Cell;

use axum::body::Body;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use promlet::model::Features;

use crate::effort::rounds;
use crate::test_server::{Reply, TestServer, TestServerOptions, Who, ask};
use crate::wire::{DataFixture, NOW, describe, encode_labels, escaped, nested, snappy, varint};

type Labels = &'static [(&'static str, &'static str)];

/// The labels of each series, and the ranges of its samples in steps of 15 s, the ends exclusive.
/// Restrictions use the metric name, `job` and `tenant`.
const SERIES: [(Labels, &[(i64, i64)]); 17] = [
    (&[("__name__", "m"), ("job", "api"), ("tenant", "a")], &[(0, 40)]),
    (&[("__name__", "m"), ("job", "web"), ("tenant", "a")], &[(0, 40)]),
    (&[("__name__", "n"), ("job", "api"), ("tenant", "a")], &[(0, 40)]),
    (&[("__name__", "m"), ("job", "api"), ("tenant", "b")], &[(0, 40)]),
    (&[("__name__", "m"), ("job", "db"), ("tenant", "b")], &[(5, 40)]),
    (&[("__name__", "n"), ("job", "api"), ("tenant", "b")], &[(0, 33)]),
    (&[("__name__", "m"), ("job", "api")], &[(0, 40)]),
    (&[("__name__", "o_total"), ("tenant", "b")], &[(0, 40)]),
    // A series that ended long ago, with a label that no other series has.
    (&[("__name__", "o_total"), ("old", "yes"), ("tenant", "a")], &[(0, 8)]),
    (&[("__name__", "n"), ("only_b", "x"), ("tenant", "b")], &[(20, 40)]),
    // Native histograms, and the info metric whose labels `info` adds.
    (&[("__name__", "h"), ("job", "api"), ("tenant", "a")], &[(0, 40)]),
    (&[("__name__", "h"), ("job", "web"), ("tenant", "b")], &[(4, 40)]),
    (&[("__name__", "h"), ("gone", "yes"), ("tenant", "a")], &[(0, 9)]),
    (&[("__name__", "target_info"), ("job", "api"), ("tenant", "a"), ("version", "of-a")], &[(0, 40)]),
    (&[("__name__", "target_info"), ("job", "web"), ("tenant", "b"), ("version", "of-b")], &[(2, 40)]),
    // Series with a gap in or before which a lookback may start, each with a label of its own.
    (&[("__name__", "n"), ("silent", "early"), ("tenant", "a")], &[(0, 9), (30, 40)]),
    (&[("__name__", "m"), ("silent", "late"), ("tenant", "b")], &[(0, 19), (31, 40)]),
];

/// Returns whether the samples of a series are native histograms.
fn is_histogram(labels: Labels) -> bool {
    value(labels, "__name__") == "h"
}

/// The name in the metadata of each metric, and the metric.
const DESCRIBED: [(&str, &str); 4] = [("m", "m"), ("n", "n"), ("o", "o_total"), ("h", "h")];

fn value<'a>(labels: &[(&'a str, &'a str)], name: &str) -> &'a str {
    labels.iter().find(|(label, _)| *label == name).map_or("", |(_, value)| *value)
}

type LabelsPredicate = fn(&[(&'static str, &'static str)]) -> bool;

/// Matchers in the syntax of a token, with equivalent predicates.
const MATCHERS: [(&str, LabelsPredicate); 12] = [
    ("tenant=\"a\"", |l| value(l, "tenant") == "a"),
    ("tenant='b'", |l| value(l, "tenant") == "b"),
    ("tenant =~ \"a|b\"", |l| ["a", "b"].contains(&value(l, "tenant"))),
    ("tenant!=b", |l| value(l, "tenant") != "b"),
    ("job!~\"w.*|d.*\"", |l| !value(l, "job").starts_with(['w', 'd'])),
    ("tenant=\"\"", |l| value(l, "tenant").is_empty()),
    ("job=~\".+\"", |l| !value(l, "job").is_empty()),
    ("__name__=\"m\"", |l| value(l, "__name__") == "m"),
    ("__name__=~\"m|o.*\"", |l| value(l, "__name__").starts_with(['m', 'o'])),
    ("missing=\"\"", |_| true),
    ("missing=\"x\"", |_| false),
    ("old!=\"yes\"", |l| value(l, "old") != "yes"),
];

/// A list of glob patterns, with an equivalent predicate on the metric name.
type GlobList = (&'static [&'static str], fn(&str) -> bool);

const GLOBS: [GlobList; 6] = [
    (&["m"], |name| name == "m"),
    (&["m", "n"], |name| name == "m" || name == "n"),
    (&["*"], |_| true),
    (&["*_total", "n*"], |name| name.ends_with("_total") || name.starts_with('n')),
    (&["o*l", "x"], |name| name == "o_total"),
    (&[], |_| false),
];

/// A restriction of a key or of a token: indexes into [`MATCHERS`] and [`GLOBS`], and the lookback.
#[derive(Clone, Debug)]
pub(crate) struct Restriction {
    matchers: Vec<usize>,
    globs: Option<usize>,
    lookback_s: Option<i64>,
}

impl Restriction {
    pub(crate) fn json(&self) -> Value {
        let matchers: Vec<&str> = self.matchers.iter().map(|index| MATCHERS[*index].0).collect();
        let mut json = json!({ "match": matchers });
        if let Some(index) = self.globs {
            json["metrics"] = json!(GLOBS[index].0);
        }
        if let Some(lookback_s) = self.lookback_s {
            json["max_lookback_s"] = json!(lookback_s);
        }
        json
    }

    fn admits(&self, labels: Labels) -> bool {
        self.matchers.iter().all(|index| MATCHERS[*index].1(labels))
            && self.globs.is_none_or(|index| GLOBS[index].1(value(labels, "__name__")))
    }
}

pub(crate) fn restriction() -> impl Strategy<Value = Restriction> {
    let matchers = prop::collection::vec(0..MATCHERS.len(), 0..3);
    let globs = prop::option::weighted(0.3, 0..GLOBS.len());
    let lookback_s = prop::option::weighted(0.4, prop::sample::select(vec![60, 130, 300, 455, 3_600]));
    (matchers, globs, lookback_s).prop_map(|(matchers, globs, lookback_s)| Restriction {
        matchers,
        globs,
        lookback_s,
    })
}

/// Generates expressions over single metrics and over all series. Some of them select the other
/// tenant by name.
pub(crate) fn expressions() -> impl Strategy<Value = String> {
    let selector = prop::sample::select(vec![
        "m",
        "n",
        "{__name__=~\".+\"}",
        "{tenant=\"b\"}",
        "{tenant!=\"a\",job!=\"\"}",
        "m{tenant=~\".*\"}",
        "m{job=~\"api|web\"}",
        "m{tenant=\"\"}",
        "o_total",
        "n{tenant=~\"a|b\"}",
        "{__name__=~\"m|n\",job=\"api\"}",
        "h",
        "h{tenant=\"b\"}",
        "target_info",
    ]);
    let time = prop::sample::select(vec![
        "",
        " offset 1m",
        " offset -1m",
        " @ 1799999700",
        " @ start()",
        " @ end() offset 2m",
    ]);
    let selected = (selector, time).prop_map(|(selector, time)| (selector.to_owned(), time.to_owned()));
    let instant = selected.clone().prop_map(|(selector, time)| format!("{selector}{time}"));
    let functions = prop::sample::select(vec![
        "rate",
        "increase",
        "max_over_time",
        "count_over_time",
        "last_over_time",
        "absent_over_time",
    ]);
    let windowed =
        (functions, selected).prop_map(|(f, (selector, time))| format!("{f}({selector}[3m]{time})"));
    prop_oneof![instant, windowed].prop_recursive(3, 12, 2, |inner| {
        let grouped = prop::sample::select(vec![
            "sum",
            "count",
            "max",
            "avg by (tenant)",
            "sum by (job)",
            "count without (tenant)",
            "group by (__name__)",
            "stddev",
        ]);
        let wrapped = prop::sample::select(vec![
            ("absent(", ")"),
            ("topk(2, ", ")"),
            ("bottomk(1, ", ")"),
            ("count_values(\"tenant\", ", ")"),
            ("label_replace(", ", \"tenant\", \"b\", \"job\", \".*\")"),
            ("label_join(", ", \"job\", \"-\", \"tenant\", \"job\")"),
            ("max_over_time((", ")[5m:1m])"),
            ("count_over_time((", ")[10m:30s] offset 1m)"),
            ("vector(scalar(", "))"),
            ("-(", ")"),
            ("timestamp(", ")"),
            ("info(", ")"),
            ("info(", ", {version=~\".+\"})"),
            ("histogram_count(", ")"),
            ("histogram_quantile(0.5, ", ")"),
            ("limitk(2, ", ")"),
            ("(", ") > bool 1"),
            ("sort_desc(", ")"),
        ]);
        let joined = prop::sample::select(vec![
            "or",
            "and",
            "unless",
            "and on (job)",
            "unless on ()",
            "or on (tenant)",
            "+",
            "* on (job, tenant)",
            "/ on (job) group_left ()",
            "> ignoring (tenant)",
        ]);
        prop_oneof![
            (grouped, inner.clone()).prop_map(|(op, e)| format!("{op} ({e})")),
            (wrapped, inner.clone()).prop_map(|((before, after), e)| format!("{before}{e}{after}")),
            (inner.clone(), joined, inner).prop_map(|(a, op, b)| format!("({a}) {op} ({b})")),
        ]
    })
}

/// The selectors of listings, which are also requested without a selector.
pub(crate) const SELECTORS: [&str; 8] = [
    "m",
    "{tenant=\"b\"}",
    "{__name__=~\".+\"}",
    "{only_b!=\"\"}",
    "{__name__=~\"n|o.*\",job=\"\"}",
    "{old=\"yes\"}",
    "h",
    "{version!=\"\"}",
];

/// The time ranges of listings, as seconds before `NOW`. Two of them lie between two samples of
/// every series if a lookback hides the earlier sample. In the last one, the series with a gap have
/// only samples that a lookback may hide.
pub(crate) const RANGES: [(i64, i64); 5] = [(480, 400), (480, 452), (500, 125), (300, 299), (370, 200)];

/// Returns the paths of all listings, with a selector and a range for those that accept them.
pub(crate) fn listings(selector: Option<&str>, range: &str) -> Vec<String> {
    let parameter =
        |name: &str| selector.map_or_else(String::new, |text| format!("&{name}={}", escaped(text)));
    let (plain, array) = (parameter("match"), parameter("match[]"));
    let mut paths = vec![
        format!("metrics?{range}{plain}"),
        format!("metrics?limit=1&{range}{plain}"),
        format!("metrics?format=names&search=o&{range}{plain}"),
        format!("metrics?prefix=n&{range}{plain}"),
        format!("prometheus/api/v1/labels?{range}{array}"),
        format!("prometheus/api/v1/labels?limit=2&{range}{array}"),
        "prometheus/api/v1/metadata?".into(),
        "prometheus/api/v1/metadata?limit=1".into(),
        "prometheus/api/v1/metadata?metric=o".into(),
        "prometheus/api/v1/status/tsdb?".into(),
        "prometheus/api/v1/status/tsdb?limit=1".into(),
        "prometheus/api/v1/format_query?query=sum(m)by(job)".into(),
        format!("prometheus/api/v1/series?limit=2&{range}&match[]=%7Bjob!%3D%22%22%7D"),
        format!("prometheus/api/v1/label/tenant/values?limit=1&{range}{array}"),
        format!("prometheus/api/v1/query_exemplars?{range}&query=m%20or%20h"),
        format!(
            "prometheus/api/v1/query_exemplars?{range}&query={}",
            escaped(selector.unwrap_or("{__name__!=\"\"}"))
        ),
        format!(
            "prometheus/api/v1/series?{range}{}",
            if array.is_empty() { "&match[]=%7B__name__!%3D%22%22%7D" } else { &array }
        ),
    ];
    for metric in ["m", "n", "o_total", "h", "nonsense"] {
        paths.push(format!("metrics/{metric}/labels?{range}{plain}"));
        paths.push(format!("metrics/{metric}/labels?values=1&{range}{plain}"));
    }
    for label in ["__name__", "job", "tenant", "only_b", "old", "silent", "nonsense"] {
        paths.push(format!("labels/{label}/values?{range}{plain}"));
        paths.push(format!("labels/{label}/values?limit=1&{range}{plain}"));
        paths.push(format!("prometheus/api/v1/label/{label}/values?{range}{array}"));
    }
    paths
}

/// Returns the paths that evaluate or estimate an expression.
pub(crate) fn queries(expr: &str) -> Vec<String> {
    let text = escaped(expr);
    let range = format!("start={}&end={NOW}&step=30", NOW - 300);
    vec![
        format!("query/expr-instant?expr={text}&time={NOW}&explain=true"),
        format!("query/expr-range?expr={text}&{range}&nocache=1"),
        format!("query/expr-range?expr={text}&{range}"),
        format!("query/estimate?expr={text}&{range}"),
        format!("query/estimate?expr={text}&time={NOW}"),
        format!("prometheus/api/v1/query?query={text}&time={NOW}"),
        format!("prometheus/api/v1/query?query={text}&time={NOW}&lookback_delta=9m&limit=2"),
    ]
}

/// Removes durations from a response.
fn remove_durations(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("elapsed_ms");
            fields.values_mut().for_each(remove_durations);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_durations),
        _ => {}
    }
}

/// Returns the status and the body of a response without durations, the request id, cache
/// statistics, and the warning that a token grants only some series. Series are sorted, because the
/// order of a vector is not specified.
pub(crate) fn comparable(path: &str, reply: &Reply) -> Value {
    let mut value = reply.value();
    if let Some(series) = value.pointer_mut("/data/result").and_then(Value::as_array_mut) {
        series.sort_by_key(Value::to_string);
    }
    remove_durations(&mut value);
    if let Some(fields) = value.as_object_mut() {
        fields.remove("request_id");
        if let Some(warnings) = fields.get_mut("warnings").and_then(Value::as_array_mut) {
            warnings
                .retain(|text| text.as_str().is_none_or(|text| !text.starts_with("this token grants only")));
        }
        if fields.get("warnings").is_some_and(|warnings| *warnings == json!([])) {
            fields.remove("warnings");
        }
        if path.contains("expr-range") && !path.contains("nocache") {
            fields.remove("stats");
        }
        if let Some(head) = fields.get_mut("data").and_then(|data| data.get_mut("headStats")) {
            // The store does not report the times of a scope.
            for end in ["minTime", "maxTime"] {
                head[end] = Value::Null;
            }
        }
    }
    json!([reply.status.as_u16(), value])
}

/// Encodes a `WriteRequest` of the samples that `restrictions` admit at the time `now_ms`, with
/// metadata and exemplars.
fn allowed(restrictions: &[Restriction], now_ms: i64) -> Vec<u8> {
    let lookback_s = restrictions.iter().filter_map(|one| one.lookback_s).min();
    let min_ms = lookback_s.map_or(i64::MIN, |s| now_ms - s * 1_000);
    let mut body = Vec::new();
    let mut names = Vec::new();
    for (s, (labels, steps)) in (0i64..).zip(&SERIES) {
        if !restrictions.iter().all(|one| one.admits(labels)) {
            continue;
        }
        let mut message = encode_labels(labels);
        let times = steps
            .iter()
            .flat_map(|(from, to)| *from..*to)
            .map(|n| (n, (NOW - 600 + n * 15) * 1_000 + s))
            .filter(|(_, at)| *at >= min_ms);
        let times: Vec<(i64, i64)> = times.collect();
        if times.is_empty() {
            continue;
        }
        let (sample, exemplar, histogram): (u64, u64, u64) = (2, 3, 4);
        for (n, at) in &times {
            let value = (n * (s + 3)) % 17;
            match is_histogram(labels) {
                true => nested(histogram, &zeros((n + s).unsigned_abs(), *at), &mut message),
                false => nested(sample, &point(1, 2, value as f64, *at), &mut message),
            }
        }
        for (n, at) in times.iter().filter(|(n, _)| n % 13 == 0) {
            let mut one = encode_labels(&[("trace", labels[0].1)]);
            one.extend(point(2, 3, *n as f64, *at));
            nested(exemplar, &one, &mut message);
        }
        nested(1, &message, &mut body);
        names.push(value(labels, "__name__"));
    }
    for (described, name) in DESCRIBED.iter().filter(|(_, name)| names.contains(name)) {
        body.extend(describe(described, 2, &format!("what {name} is"), "s"));
    }
    body
}

/// Encodes all samples, with metadata and exemplars.
pub(crate) fn all_samples() -> Vec<u8> {
    allowed(&[], 0)
}

/// Encodes a native histogram of `count` observations of zero.
fn zeros(count: u64, at_ms: i64) -> Vec<u8> {
    let (counted, of_zero, time) = (1 << 3, 6 << 3, 15 << 3);
    let mut out = Vec::new();
    for (field, value) in [(counted, count), (of_zero, count), (time, at_ms.cast_unsigned())] {
        out.push(field);
        varint(value, &mut out);
    }
    out
}

/// Encodes a value and a time with these field numbers.
pub(crate) fn point(value_field: u8, time_field: u8, value: f64, at_ms: i64) -> Vec<u8> {
    let mut out = vec![value_field << 3 | 1];
    out.extend_from_slice(&value.to_le_bytes());
    out.push(time_field << 3);
    varint(at_ms.cast_unsigned(), &mut out);
    out
}

/// The server of this test, on which each case creates an organisation.
struct LawTest {
    runtime: tokio::runtime::Runtime,
    fixture: DataFixture,
    cases: Cell<usize>,
    /// The number of responses with data, and of those without.
    responses: Cell<(usize, usize)>,
}

impl LawTest {
    fn new() -> LawTest {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut plan = TestServerOptions::default();
        plan.options.read.caps.features = Features::ALL;
        let fixture = runtime.block_on(DataFixture::of(TestServer::build(plan)));
        let test = LawTest { runtime, fixture, cases: Cell::new(0), responses: Cell::default() };
        test.write("acme", &allowed(&[], 0));
        test
    }

    fn write(&self, slug: &str, body: &[u8]) {
        let request = ask("POST", &format!("/api/v1/orgs/{slug}/write"), &self.fixture.cabinet);
        let request = request.body(Body::from(snappy(body))).expect("a request");
        let reply = self.runtime.block_on(self.fixture.server.send(request));
        assert_eq!(reply.status, 204, "{}", reply.body);
    }

    /// Returns an embed token with the restrictions `ms`, signed by a new key with this policy.
    fn token(&self, slug: &str, policy: &Value, ms: &Value) -> Who {
        let server = &self.fixture.server;
        self.runtime.block_on(async {
            let embed = json!({ "rate_limit_rps": 10_000, "policy": policy });
            let key = json!({ "name": "x", "scopes": ["embed"], "embed": embed });
            let made =
                server.post(&format!("/api/v1/orgs/{slug}/api-keys"), &self.fixture.cabinet, key).await;
            assert_eq!(made.status, 201, "{}", made.body);
            // The token is signed offline, so the server does not refuse restrictions wider than
            // the key's policy. It applies both.
            let now = server.clock.now().as_s();
            let claims = json!({ "aud": "ms-embed", "org": slug, "iat": now, "exp": now + 3_600, "ms": ms });
            Who::Bearer(crate::test_server::signed(&made.text("id"), &made.text("secret"), &claims))
        })
    }

    fn get(&self, slug: &str, who: &Who, path: &str) -> Reply {
        self.runtime.block_on(self.fixture.server.get(&format!("/api/v1/orgs/{slug}/{path}"), who))
    }

    fn check(&self, restrictions: &[Restriction; 2], exprs: &[String]) -> Result<(), TestCaseError> {
        // The clock advances between two cases, for the rate limits, and not during a case.
        self.fixture.server.pass(std::time::Duration::from_millis(400));
        let now_ms = self.fixture.server.clock.now().as_ms();
        let slug = format!("solo-{}", self.cases.get());
        self.cases.set(self.cases.get() + 1);
        let made = self.runtime.block_on(self.fixture.server.post(
            "/api/v1/orgs",
            &self.fixture.cabinet,
            json!({ "slug": slug }),
        ));
        prop_assert_eq!(made.status.as_u16(), 201, "{}", made.body);
        let body = allowed(restrictions, now_ms);
        if !body.is_empty() {
            self.write(&slug, &body);
        }
        let scoped = self.token("acme", &restrictions[0].json(), &restrictions[1].json());
        let whole = self.token(&slug, &json!({}), &json!({}));
        let mut paths: Vec<String> = exprs.iter().flat_map(|expr| queries(expr)).collect();
        let turn = self.cases.get() * 2;
        let some = [turn, turn + 1].map(|turn| Some(SELECTORS[turn % SELECTORS.len()]));
        for (index, selector) in std::iter::once(None).chain(some).enumerate() {
            let (from, to) = RANGES[(turn / 2 + index) % RANGES.len()];
            for range in ["", &format!("start={}&end={}", NOW - from, NOW - to)] {
                paths.extend(listings(selector, range));
            }
        }
        for path in paths {
            // Half of the cases send queries as forms, which have the same restrictions.
            let scoped = match path.starts_with("query/expr-") && self.cases.get().is_multiple_of(2) {
                true => self.runtime.block_on(self.fixture.post_form(&scoped, "acme", &path)),
                false => self.get("acme", &scoped, &path),
            };
            let alone = self.get(&slug, &whole, &path);
            prop_assert_ne!(scoped.status.as_u16(), 429, "{}", scoped.body);
            let has_data = !alone.body.contains("\"data\":[]") && !alone.body.contains("\"result\":[]");
            let (some, none) = self.responses.get();
            let with_data = alone.status == 200 && has_data;
            self.responses.set(if with_data { (some + 1, none) } else { (some, none + 1) });
            prop_assert_eq!(comparable(&path, &scoped), comparable(&path, &alone), "{}", path);
        }
        Ok(())
    }
}

#[test]
fn a_response_within_a_scope_equals_that_of_a_store_with_only_its_samples() {
    let test = LawTest::new();
    let (cases, least) = rounds((6, 240), (20, 800));
    let config = Config { cases, max_shrink_iters: 60, failure_persistence: None, ..Config::default() };
    let inputs = ([restriction(), restriction()], prop::collection::vec(expressions(), 25));
    let result =
        TestRunner::new(config).run(&inputs, |(restrictions, exprs)| test.check(&restrictions, &exprs));
    result.unwrap_or_else(|error| panic!("{error}"));
    let (some, none) = test.responses.get();
    assert!(some > least, "only {some} of {} responses had data", some + none);
}
