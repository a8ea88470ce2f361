//! Random groups of rules over the same samples under a real Prometheus 3.5 and here: the recorded
//! series and `ALERTS` are equal at every evaluation.
//!
//! Prometheus receives the samples by remote write before their times, so that each evaluation sees
//! all of them. Each of its groups records its evaluation times; the same group is evaluated here
//! at these times.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "differential/chance.rs"]
#[expect(dead_code, reason = "shared with the comparison of queries")]
mod chance;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use chance::Chance;
use promlet::clock::Clock;
use promlet::model::{
    Access, BatchBuilder, Labels, OrgId, Sample, TimeRange, Timestamp, is_stale, stale_nan,
};
use promlet::promql::syntax::{Caps, parse_selector};
use promlet::rules::{GroupRun, RuleContext, RuleFileOptions, RuleGroup, RuleSettings, decode_rule_file};
use promlet::tsdb::{SampleColumns, Tsdb};
use serde_json::Value as Json;

const ORG: OrgId = OrgId(1);
/// The number of groups.
const GROUPS: usize = 60;
/// The time from the start of Prometheus to the first sample, in milliseconds.
const LEAD_MS: i64 = 8_000;
/// The time with samples, in milliseconds.
const DATA_MS: i64 = 25_000;
/// The time between two samples of a series, in milliseconds.
const STEP_MS: i64 = 700;

/// The values of a series by time: a marker of its end for `stale`.
type Series = BTreeMap<String, BTreeMap<i64, String>>;

fn expression(chance: &mut Chance, known: &[String]) -> String {
    let metric = ["m0", "m1", "m2"][chance.below(3)];
    let all = [
        format!("{metric} > {}", chance.below(5)),
        format!("sum by (job) ({metric})"),
        format!("rate({metric}[3s]) > 0.5"),
        format!("max_over_time({metric}[2s]) * 2"),
        format!("count by (kind) ({metric}) > 1"),
        format!("absent({metric}{{job=\"j9\"}})"),
        format!("{metric} unless on(job) m2 > 2"),
        format!("max by (kind) ({metric})"),
        format!("{} + 1", known.last().map_or("m0", String::as_str)),
        format!("count({}) > 0", known.first().map_or("m1", String::as_str)),
    ];
    all[chance.below(all.len())].clone()
}

/// Returns the text of a random group with a rule that records the times of its evaluations.
fn group_text(chance: &mut Chance, number: usize) -> String {
    let mut text = format!("- name: group{number}\n  interval: 1s\n");
    if chance.below(4) == 0 {
        text.push_str("  query_offset: 1s\n");
    }
    if chance.below(6) == 0 {
        text.push_str("  limit: 3\n");
    }
    if chance.below(4) == 0 {
        text.push_str("  labels: {team: core}\n");
    }
    text.push_str(&format!(
        "  rules:\n  - {{record: beat, expr: 'vector(1)', labels: {{group: g{number}}}}}\n"
    ));
    let mut known = Vec::new();
    for rule in 0..1 + chance.below(5) {
        let expr = expression(chance, &known);
        if chance.below(2) == 0 {
            let name = format!("r{number}_{rule}");
            text.push_str(&format!("  - record: {name}\n    expr: '{expr}'\n"));
            if chance.below(3) == 0 {
                text.push_str("    labels: {job: '', kind: fixed}\n");
            }
            known.push(name);
        } else {
            let (hold, keep) = (chance.below(4), chance.below(3) * 2);
            text.push_str(&format!("  - alert: a{number}_{rule}\n    expr: '{expr}'\n    for: {hold}s\n    keep_firing_for: {keep}s\n"));
            text.push_str("    labels: {level: '{{ if gt $value 3.0 }}high{{ else }}low{{ end }}'}\n");
            text.push_str("    annotations: {summary: '{{ $labels.job }}'}\n");
        }
    }
    text
}

/// Random samples: values that change seldom, gaps, and markers of the end.
fn samples(chance: &mut Chance, first: Timestamp) -> Vec<(Labels, Vec<Sample>)> {
    let mut all = Vec::new();
    for metric in ["m0", "m1", "m2"] {
        for series in 0..4 {
            let labels = Labels::from_pairs([
                ("__name__".to_owned(), metric.to_owned()),
                ("job".to_owned(), format!("j{}", series % 3)),
                ("kind".to_owned(), format!("k{series}")),
            ]);
            let (mut value, mut list) = (chance.below(6), Vec::new());
            for step in 0..DATA_MS / STEP_MS {
                let at = first.plus_ms(step * STEP_MS);
                match chance.below(12) {
                    0 => list.push(Sample { at, value: stale_nan() }),
                    1 | 2 => {}
                    kind => {
                        value = if kind < 6 { chance.below(6) } else { value };
                        list.push(Sample { at, value: f64::from(u32::try_from(value).expect("small")) });
                    }
                }
            }
            all.push((labels, list));
        }
    }
    all
}

fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).expect("seven bits") | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).expect("seven bits"));
}

fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Encodes a request of remote write 1.0.
fn write_request(series: &[(Labels, Vec<Sample>)]) -> Vec<u8> {
    let mut request = Vec::new();
    for (labels, samples) in series {
        let mut one = Vec::new();
        for label in labels {
            let mut pair = Vec::new();
            field(&mut pair, 1, label.name.as_bytes());
            field(&mut pair, 2, label.value.as_bytes());
            field(&mut one, 1, &pair);
        }
        for sample in samples {
            let mut point = vec![1 << 3 | 1];
            point.extend_from_slice(&sample.value.to_bits().to_le_bytes());
            point.push(2 << 3);
            varint(&mut point, u64::try_from(sample.at.as_ms()).expect("after 1970"));
            field(&mut one, 2, &point);
        }
        field(&mut request, 1, &one);
    }
    snap::raw::Encoder::new().compress_vec(&request).expect("small")
}

/// A Prometheus that is killed when dropped.
struct Upstream {
    child: Child,
    url: String,
    agent: ureq::Agent,
    _dir: tempfile::TempDir,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Upstream {
    fn start(rules: &str) -> Upstream {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("rules.yml"), rules).expect("written");
        let config = format!("global: {{}}\nrule_files: ['{}']\n", path("rules.yml").display());
        std::fs::write(path("prometheus.yml"), config).expect("written");
        let port =
            TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
        let child = Command::new(packages::prometheus().join("prometheus"))
            .arg(format!("--config.file={}", path("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(["--web.enable-remote-write-receiver", "--log.level=error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("Prometheus starts");
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let upstream = Upstream { child, url: format!("http://127.0.0.1:{port}"), agent, _dir: dir };
        let ready = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            upstream
                .agent
                .get(format!("{}/-/ready", upstream.url))
                .call()
                .is_ok_and(|answer| answer.status() == 200)
        });
        assert!(ready, "Prometheus is not ready");
        upstream
    }

    fn write(&self, series: &[(Labels, Vec<Sample>)]) {
        let request = self.agent.post(format!("{}/api/v1/write", self.url));
        let request = request
            .header("Content-Type", "application/x-protobuf")
            .header("Content-Encoding", "snappy")
            .header("X-Prometheus-Remote-Write-Version", "0.1.0");
        let answer = request.send(&write_request(series)[..]).expect("an answer");
        assert!(answer.status().is_success(), "{answer:?}");
    }

    /// Returns the raw samples of series without markers, by labels.
    fn raw(&self, selector: &str, end: Timestamp) -> Series {
        let query = format!("{selector}[2m]");
        let url = format!("{}/api/v1/query", self.url);
        let time = end.as_seconds().to_string();
        let mut answer =
            self.agent.get(url).query("query", &query).query("time", &time).call().expect("an answer");
        let text = answer.body_mut().read_to_string().expect("a body");
        let body: Json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let mut all = Series::new();
        for series in body["data"]["result"].as_array().unwrap_or_else(|| panic!("{text}")) {
            let labels = series["metric"].as_object().expect("labels").iter();
            let pairs = labels.map(|(name, value)| (name.clone(), value.as_str().expect("text").to_owned()));
            let samples = series["values"].as_array().into_iter().flatten().map(|pair| {
                let at = (pair[0].as_f64().expect("a time") * 1_000.0).round();
                #[expect(clippy::cast_possible_truncation, reason = "a time of this year")]
                (at as i64, pair[1].as_str().expect("a value").to_owned())
            });
            all.insert(Labels::from_pairs(pairs).to_string(), samples.collect());
        }
        all
    }
}

/// Returns the raw samples of series without markers, by labels.
fn raw(tsdb: &Tsdb, selector: &str) -> Series {
    let snapshot = tsdb.snapshot(&Access::whole(ORG));
    let matchers = parse_selector(selector, &Caps::default()).expect("valid");
    let mut all = Series::new();
    for series in snapshot.select(&matchers, TimeRange::ALL) {
        let mut columns = SampleColumns::default();
        snapshot.read(series.id, TimeRange::ALL, &mut columns);
        let samples = columns.times.iter().zip(&columns.values).filter(|(_, value)| !is_stale(**value));
        let samples: BTreeMap<i64, String> = samples.map(|(at, value)| (*at, value.to_string())).collect();
        if !samples.is_empty() {
            all.insert(series.labels.to_string(), samples);
        }
    }
    all
}

/// Evaluates a group at the times at which Prometheus did.
fn replay(group: &RuleGroup, series: &[(Labels, Vec<Sample>)], times: &[i64]) -> Tsdb {
    let (tsdb, settings) = (Tsdb::scaffold(), RuleSettings::default());
    let mut batch = BatchBuilder::default();
    for (labels, samples) in series {
        batch.series(labels, samples.iter().copied());
    }
    tsdb.append(ORG, &batch.batch(), Timestamp::from_ms(times[0])).expect("stored");
    let context = RuleContext::new(&settings, &tsdb, ORG);
    let mut run = GroupRun::new(Arc::new(group.clone()), &settings);
    let offset = group.query_offset_ms.unwrap_or_default();
    for at in times {
        let at = Timestamp::from_ms(at + offset);
        run.evaluate(context, at, at);
    }
    tsdb
}

/// Compares samples as numbers, because the servers write them in different ways.
fn same(ours: &Series, theirs: &Series) -> bool {
    let numbers = |all: &Series| -> BTreeMap<String, Vec<(i64, u64)>> {
        let one = |(at, text): (&i64, &String)| (*at, text.parse::<f64>().expect("a number").to_bits());
        all.iter().map(|(labels, samples)| (labels.clone(), samples.iter().map(one).collect())).collect()
    };
    numbers(ours) == numbers(theirs)
}

#[test]
fn random_groups_write_what_a_real_prometheus_writes() {
    let mut chance = Chance::new(20_261_127);
    let rules: String = (0..GROUPS).map(|number| group_text(&mut chance, number)).collect();
    let rules = format!("groups:\n{rules}");
    let groups = decode_rule_file(&rules, RuleFileOptions::default()).expect("valid");
    let upstream = Upstream::start(&rules);
    let first = Clock::System.now().plus_ms(LEAD_MS);
    let series = samples(&mut chance, first);
    upstream.write(&series);
    let end = first.plus_ms(DATA_MS);
    while Clock::System.now() < end.plus_ms(2_000) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let (mut compared, mut different) = (0, Vec::new());
    for (number, group) in groups.iter().enumerate() {
        let beats = upstream.raw(&format!("beat{{group=\"g{number}\"}}"), end);
        let times: Vec<i64> = beats.values().flat_map(|samples| samples.keys().copied()).collect();
        assert!(times.len() > 20, "group {number} was evaluated {} times", times.len());
        let tsdb = replay(group, &series, &times);
        for selector in
            [format!("{{__name__=~\"r{number}_.*\"}}"), format!("ALERTS{{alertname=~\"a{number}_.*\"}}")]
        {
            let (mut ours, mut theirs) = (raw(&tsdb, &selector), upstream.raw(&selector, end));
            // In its first seconds, before it tried to restore them, Prometheus writes no alerts.
            for all in [&mut ours, &mut theirs] {
                all.values_mut().for_each(|samples| samples.retain(|at, _| *at >= first.as_ms()));
                all.retain(|_, samples| !samples.is_empty());
            }
            compared += theirs.values().map(BTreeMap::len).sum::<usize>();
            if !same(&ours, &theirs) {
                different.push(format!(
                    "{selector}\n{}\nours {ours:#?}\ntheirs {theirs:#?}",
                    promlet::rules::group_text(group)
                ));
            }
        }
    }
    assert!(different.is_empty(), "{} differences, the first:\n{}", different.len(), different[0]);
    assert!(compared > 1_000, "only {compared} samples were compared");
    println!("{compared} samples are equal");
}
