//! Scrapes of one target with an injected clock: the samples that each response and failure stores.

mod ahead;

use std::sync::Mutex;

use super::*;
use crate::ingest::text::Format;
use crate::model::{BatchBuilder, Labels, TargetUrl, WriteSeries, is_stale};
use crate::outbound::PullOptions;
use crate::scrape::config::{NameEscaping, NameValidation, ScrapeProtocol, ScrapeRules};
use crate::scrape::run::ScrapeFormat;
use crate::tsdb::{KeyedBatch, LabelsKey};

const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

/// Returns a job with the defaults of Prometheus.
pub(in crate::scrape::run) fn job() -> ScrapeJob {
    ScrapeJob {
        name: "j".into(),
        interval_ms: 10_000,
        timeout_ms: 5_000,
        metrics_path: "/metrics".into(),
        scheme: crate::scrape::config::ScrapeScheme::Http,
        params: Vec::new(),
        honor_labels: false,
        honor_timestamps: true,
        track_timestamps_staleness: false,
        limits: crate::scrape::config::ScrapeLimits::default(),
        protocols: vec![ScrapeProtocol::OpenMetrics100, ScrapeProtocol::PrometheusText004],
        fallback_protocol: None,
        classic_histograms: false,
        name_validation: NameValidation::Utf8,
        name_escaping: NameEscaping::AllowUtf8,
        client: PullOptions { follow_redirects: true, ..PullOptions::default() },
        enable_compression: true,
        metric_relabel: ScrapeRules::default(),
        relabel: ScrapeRules::default(),
        agent_relabel: Arc::default(),
        discoveries: Vec::new(),
    }
}

/// Returns a target of a job at an address.
pub(in crate::scrape::run) fn target(job: ScrapeJob, authority: &str) -> Arc<ScrapeTarget> {
    let url = format!("http://{authority}/metrics");
    Arc::new(ScrapeTarget {
        interval_ms: job.interval_ms,
        timeout_ms: job.timeout_ms,
        labels: Labels::from_pairs([("instance", authority), ("job", &*job.name)]),
        job: Arc::new(job),
        base: TargetUrl::parse(&format!("http://{authority}")).expect("a URL"),
        path_and_query: "/metrics".to_owned(),
        url,
        discovered: Labels::default(),
        hash: 7,
    })
}

/// The labels of keys, as a store has them.
#[derive(Default)]
pub(in crate::scrape::run) struct KeyedLabels(Mutex<Vec<Vec<u8>>>);

impl KeyedLabels {
    /// Returns the keys of the series of a batch.
    pub(in crate::scrape::run) fn of(&self, batch: &WriteBatch<'_>) -> Vec<LabelsKey> {
        let mut all = self.0.lock().expect("no panic");
        let mut key = |raw: &[u8]| {
            let known = all.iter().position(|have| have == raw);
            let place = known.unwrap_or_else(|| {
                all.push(raw.to_vec());
                all.len() - 1
            });
            LabelsKey::of_test([u32::try_from(place).expect("few"), 0, 0])
        };
        batch.series.iter().map(|series| key(series.raw_labels)).collect()
    }

    /// Calls `run` with a batch that has labels instead of keys.
    pub(in crate::scrape::run) fn with_labels<T>(
        &self,
        batch: KeyedBatch<'_>,
        run: impl FnOnce(&WriteBatch<'_>) -> T,
    ) -> T {
        let all = self.0.lock().expect("no panic").clone();
        assert_eq!(batch.keys.len(), batch.samples.len());
        let place = |key: &LabelsKey| (0..).find(|n| LabelsKey::of_test([*n, 0, 0]) == *key);
        let raw = |key| &*all[usize::try_from(place(key).expect("known")).expect("few")];
        let series = batch.keys.iter().enumerate();
        let series = series.map(|(at, key)| WriteSeries { raw_labels: raw(key), samples: at..at + 1 });
        let series = series.collect();
        let builder = BatchBuilder::default();
        run(&WriteBatch { series, samples: batch.samples, starts: batch.starts, ..builder.batch() })
    }
}

struct Driver {
    run: ScrapeRun,
    at: Timestamp,
}

impl Driver {
    fn new(job: ScrapeJob) -> Driver {
        Driver::with(job, ScrapeRunSettings::default())
    }

    fn with(job: ScrapeJob, settings: ScrapeRunSettings) -> Driver {
        let run = ScrapeRun::new(target(job, "h:1"), Arc::new(settings), NOW);
        Driver { run, at: NOW }
    }

    fn finish(&mut self, fetched: Result<ScrapeBody<'_>, ScrapeError>) -> ScrapeOutcome {
        self.run.wait(self.at);
        self.at = self.run.begin(self.run.schedule.next());
        let body_bytes = fetched.as_ref().map_or(0, |body| body.bytes.len() as u64);
        self.run
            .finish(ScrapeFacts { at: self.at, duration: Duration::from_millis(1_500), body_bytes }, fetched)
    }

    /// Scrapes a text, and returns the samples without the reports.
    fn scrape(&mut self, text: &str) -> Vec<String> {
        let format = ScrapeFormat::Text(Format::Prometheus);
        let outcome = self.finish(Ok(ScrapeBody { format, bytes: text.as_bytes() }));
        assert_eq!(outcome.error, None, "{text}");
        self.samples(&outcome.batch)
    }

    fn fail(&mut self) -> Vec<String> {
        let outcome = self.finish(Err(ScrapeError::Status(500)));
        self.samples(&outcome.batch)
    }

    fn samples(&self, batch: &ScrapeBatch) -> Vec<String> {
        let all = formatted(batch, self.at);
        let is_report = |line: &String| line.starts_with("up{") || line.starts_with("scrape_");
        all.into_iter().filter(|line| !is_report(line)).collect()
    }

    fn report(&self, batch: &ScrapeBatch, name: &str) -> String {
        let all = formatted(batch, self.at);
        let prefix = format!("{name}{{instance=h:1,job=j}} ");
        let found = all.iter().find_map(|line| line.strip_prefix(&prefix));
        found.unwrap_or_default().to_owned()
    }
}

/// Formats samples as `name{labels} value@ms`, with times relative to `at`; the labels are sorted.
fn formatted(batch: &ScrapeBatch, at: Timestamp) -> Vec<String> {
    formatted_batch(&batch.batch(), at)
}

/// Formats the samples of a batch as [`formatted`] does.
pub(in crate::scrape::run) fn formatted_batch(batch: &WriteBatch<'_>, at: Timestamp) -> Vec<String> {
    let mut lines = Vec::new();
    for (place, series) in batch.series.iter().enumerate() {
        let mut pairs = Vec::new();
        (batch.parse_labels)(series.raw_labels, &mut pairs).expect("labels");
        pairs.sort_unstable();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let name = pairs.iter().find(|(name, _)| *name == b"__name__").map(|(_, value)| text(value));
        let labels: Vec<String> = pairs
            .iter()
            .filter(|(name, value)| *name != b"__name__" && !value.is_empty())
            .map(|(name, value)| format!("{}={}", text(name), text(value)))
            .collect();
        let series_text = format!("{}{{{}}}", name.unwrap_or_default(), labels.join(","));
        for sample in &batch.samples[series.samples.clone()] {
            let value = if is_stale(sample.value) { "stale".to_owned() } else { sample.value.to_string() };
            let ms = sample.at.ms_since(at);
            let ms = if ms == 0 { String::new() } else { format!("@{ms}") };
            lines.push(format!("{series_text} {value}{ms}"));
        }
        for one in batch.histograms.iter().filter(|one| one.series == place) {
            let value = one.value.as_ref().expect("valid");
            let value = if value.is_stale() { "stale".to_owned() } else { value.count().to_string() };
            lines.push(format!("{series_text} histogram {value}"));
        }
    }
    lines
}

#[test]
fn samples_have_the_time_of_the_scrape_and_the_labels_of_the_target() {
    let mut driver = Driver::new(job());
    let text = "a 1\nb{x=\"y\"} 2 1234\n";
    let at = 1_234 - NOW.as_ms();
    for scrape in 0..3 {
        let found = driver.scrape(text);
        let ms = at - driver.at.ms_since(NOW);
        assert_eq!(found, ["a{instance=h:1,job=j} 1", &format!("b{{instance=h:1,job=j,x=y}} 2@{ms}")]);
        assert_eq!(driver.run.status().series_added, if scrape == 0 { 2 } else { 0 });
    }
    let mut job = job();
    job.honor_timestamps = false;
    let mut driver = Driver::new(job);
    assert_eq!(driver.scrape(text)[1], "b{instance=h:1,job=j,x=y} 2");
}

#[test]
fn a_series_that_disappears_gets_one_marker() {
    let mut driver = Driver::new(job());
    driver.scrape("a 1\nb 2\nc 3\n");
    assert_eq!(
        driver.scrape("c 3\na 1\n"),
        ["c{instance=h:1,job=j} 3", "a{instance=h:1,job=j} 1", "b{instance=h:1,job=j} stale"]
    );
    assert_eq!(driver.scrape("c 3\na 1\n").len(), 2);
    assert_eq!(driver.scrape("a 1\nb 2\n").last().map(String::as_str), Some("c{instance=h:1,job=j} stale"));
    assert_eq!(driver.run.status().series_added, 1, "b is new again");
}

#[test]
fn a_failed_scrape_marks_all_series_once_and_the_next_success_revives_them() {
    let mut driver = Driver::new(job());
    driver.scrape("a 1\nb 2\n");
    assert_eq!(driver.fail(), ["a{instance=h:1,job=j} stale", "b{instance=h:1,job=j} stale"]);
    assert_eq!(driver.fail(), Vec::<String>::new());
    assert_eq!(driver.scrape("a 1\nb 2\n").len(), 2);
    assert_eq!(driver.run.status().series_added, 0);
    assert_eq!(driver.fail().len(), 2);
    assert_eq!(driver.scrape("a 1\n"), ["a{instance=h:1,job=j} 1"], "b has its marker already");
}

#[test]
fn series_with_timestamps_are_tracked_only_if_it_is_configured() {
    let text = "a 1\nb 2 1700000000000\n";
    let mut driver = Driver::new(job());
    driver.scrape(text);
    assert_eq!(driver.scrape("a 1\n").len(), 1);
    let mut tracking = job();
    tracking.track_timestamps_staleness = true;
    let mut driver = Driver::new(tracking);
    driver.scrape(text);
    assert_eq!(driver.scrape("a 1\n")[1], "b{instance=h:1,job=j} stale");
    let mut driver = Driver::new(job());
    driver.scrape("b 2\n");
    let found = driver.scrape("b 2 1700000000000\n");
    assert_eq!(found[1], "b{instance=h:1,job=j} stale", "it is not tracked any more");
}

#[test]
fn a_sample_that_occurs_twice_counts_once() {
    let mut driver = Driver::new(job());
    for scrape in 1..3 {
        let found = driver.scrape("a 1\na 2\nb 3\na 4\na 5 1700000000007\n");
        assert_eq!(found[..2], ["a{instance=h:1,job=j} 1", "b{instance=h:1,job=j} 3"]);
        assert!(found[2].starts_with("a{instance=h:1,job=j} 5@"), "{found:?}");
        let status = driver.run.status();
        assert_eq!((status.duplicates, status.samples_kept), (2 * scrape, 5));
    }
    assert_eq!(driver.scrape("b 3\n"), ["b{instance=h:1,job=j} 3", "a{instance=h:1,job=j} stale"]);
}

#[test]
fn reports_say_what_the_scrape_was() {
    let settings = ScrapeRunSettings { extra_metrics: true, ..ScrapeRunSettings::default() };
    let mut limited = job();
    limited.limits.sample_limit = 2;
    limited.metric_relabel.compiled = crate::relabel::RelabelRules::parse(
        &serde_json::from_str::<Vec<_>>(
            r#"[{"source_labels": ["__name__"], "regex": "c", "action": "drop"}]"#,
        )
        .expect("rules"),
    )
    .expect("valid");
    let mut driver = Driver::with(limited, settings);
    let format = ScrapeFormat::Text(Format::Prometheus);
    let body = |text: &'static str| Ok(ScrapeBody { format, bytes: text.as_bytes() });
    let names = [REPORTS.as_slice(), &EXTRA_REPORTS].concat();
    let mut reports = |fetched| {
        let outcome = driver.finish(fetched);
        names.iter().map(|name| driver.report(&outcome.batch, name)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(reports(body("a 1\nb 2\nc 3\n")), "1 1.5 3 2 2 5 2 12");
    assert_eq!(reports(body("a 1\nb 2\nc 3\n")), "1 1.5 3 2 0 5 2 12");
    assert_eq!(reports(body("a 1\nb 2\nd 3\n")), "0 1.5 3 3 0 5 2 12", "over sample_limit");
    assert_eq!(reports(Err(ScrapeError::BodySize(9))), "0 1.5 0 0 0 5 2 -1");
    assert_eq!(reports(Err(ScrapeError::Status(500))), "0 1.5 0 0 0 5 2 0");
    assert_eq!(reports(body("")), "1 1.5 0 0 0 5 2 0");
    let end = driver.run.end(driver.at);
    assert_eq!(driver.report(&end, "scrape_sample_limit"), "stale");
    assert_eq!(end.len(), 8);
}

#[test]
fn a_scrape_over_a_limit_stores_nothing_but_reports_and_markers() {
    let mut limited = job();
    limited.limits.sample_limit = 2;
    let mut driver = Driver::new(limited);
    driver.scrape("a 1\nb 2\n");
    let format = ScrapeFormat::Text(Format::Prometheus);
    let outcome = driver.finish(Ok(ScrapeBody { format, bytes: b"a 1\nb 2\nc 3\n" }));
    assert_eq!(outcome.error, Some(ScrapeError::SampleLimit { found: 3, allowed: 2 }));
    assert_eq!(
        driver.samples(&outcome.batch),
        ["a{instance=h:1,job=j} stale", "b{instance=h:1,job=j} stale"]
    );
    assert_eq!(driver.scrape("a 1\nb 2\n").len(), 2);
}

#[test]
fn metadata_of_a_scrape_over_a_limit_is_stored_with_the_next_success() {
    let mut limited = job();
    limited.limits.sample_limit = 1;
    let mut driver = Driver::new(limited);
    let format = ScrapeFormat::Text(Format::Prometheus);
    let over = driver.finish(Ok(ScrapeBody { format, bytes: b"# TYPE a gauge\na 1\nb 2\n" }));
    assert_eq!(over.error, Some(ScrapeError::SampleLimit { found: 2, allowed: 1 }));
    let next = driver.finish(Ok(ScrapeBody { format, bytes: b"# TYPE a gauge\na 1\n" }));
    assert_eq!(next.error, None);
    assert_eq!(next.batch.batch().metadata.len(), 1);
}

#[test]
fn an_invalid_line_fails_the_scrape_and_is_named() {
    let mut driver = Driver::new(job());
    let format = ScrapeFormat::Text(Format::Prometheus);
    let outcome = driver.finish(Ok(ScrapeBody { format, bytes: b"a 1\n\nb x\nc 1\n" }));
    let error = outcome.error.expect("invalid").to_string();
    assert!(error.starts_with("line 3: column 3: \"x\" is not a number"), "{error}");
    assert!(driver.samples(&outcome.batch).is_empty());
    assert_eq!(driver.run.status().health, ScrapeHealth::Down);
    let format = ScrapeFormat::Text(Format::OpenMetrics);
    let outcome = driver.finish(Ok(ScrapeBody { format, bytes: b"a 1\n" }));
    let error = outcome.error.expect("cut").to_string();
    assert!(error.contains("# EOF") && !error.contains("stored"), "{error}");
    let outcome = driver.finish(Ok(ScrapeBody { format, bytes: b"a 1\n# EOF\n" }));
    assert_eq!(outcome.error, None);
}

#[test]
fn changed_labels_are_remembered_and_marked() {
    let mut driver = Driver::new(job());
    for _ in 0..2 {
        let found = driver.scrape("a{job=\"own\"} 1\nb 2\n");
        assert_eq!(found, ["a{exported_job=own,instance=h:1,job=j} 1", "b{instance=h:1,job=j} 2"]);
    }
    assert_eq!(driver.scrape("b 2\n")[1], "a{exported_job=own,instance=h:1,job=j} stale");
    assert_eq!(driver.scrape("a{job=\"own\"} 1\nb 2\n")[0], "a{exported_job=own,instance=h:1,job=j} 1");
}

#[test]
fn a_series_whose_line_changed_but_not_its_labels_gets_no_marker() {
    let mut driver = Driver::new(job());
    driver.scrape("a{job=\"\"} 1\nb{x=\"1\",y=\"2\"} 2\n");
    let found = driver.scrape("a 1\nb{y=\"2\",x=\"1\",z=\"\"} 2\n");
    assert_eq!(found, ["a{instance=h:1,job=j} 1", "b{instance=h:1,job=j,x=1,y=2} 2"]);
}

#[test]
fn exemplars_starts_and_metadata_belong_to_their_series() {
    let mut driver = Driver::new(job());
    let text = "# TYPE c counter\n# HELP c Help.\nc_total 1 # {t=\"x\"} 0.5\nc_created 1.5\n# EOF\n";
    let format = ScrapeFormat::Text(Format::OpenMetrics);
    let body = || Ok(ScrapeBody { format, bytes: text.as_bytes() });
    let outcome = driver.finish(body());
    let batch = outcome.batch.batch();
    assert_eq!((batch.exemplars[0].series, batch.exemplars[0].at), (0, driver.at));
    assert_eq!((batch.starts[0].at, batch.starts[0].start.as_ms()), (driver.at, 1_500));
    assert_eq!((batch.metadata[0].name, batch.metadata[0].kind), ("c", MetricKind::Counter));
    assert_eq!(driver.run.status().metadata.entries().len(), 1);
    let again = driver.finish(body());
    assert!(again.batch.batch().metadata.is_empty(), "it is stored already");
    driver.run.stored(Err("full".to_owned()));
    let after_error = driver.finish(body());
    assert_eq!(after_error.batch.batch().metadata.len(), 1);
    assert_eq!(driver.run.status().store_error.as_deref(), Some("the scrape was not stored: full"));
}

#[test]
fn native_histograms_get_histogram_markers() {
    let mut driver = Driver::new(job());
    // The family h of type 4 has one metric, whose histogram has an empty span.
    let body = b"\x0f\x0a\x01h\x18\x04\x22\x08\x3a\x06\x62\x04\x08\x00\x10\x00";
    let outcome = driver.finish(Ok(ScrapeBody { format: ScrapeFormat::Protobuf, bytes: body }));
    assert_eq!(outcome.error, None);
    assert_eq!(driver.samples(&outcome.batch), ["h{instance=h:1,job=j} histogram 0"]);
    assert_eq!(driver.fail(), ["h{instance=h:1,job=j} histogram stale"]);
}

#[test]
fn a_target_whose_job_changed_continues_and_marks_what_is_gone() {
    let mut driver = Driver::new(job());
    driver.scrape("a 1\nb{job=\"own\"} 2\n");
    let mut changed = job();
    changed.honor_labels = true;
    driver.run.adopt(target(changed, "h:1"), driver.at);
    let found = driver.scrape("a 1\nb{job=\"own\"} 2\n");
    assert_eq!(
        found,
        [
            "a{instance=h:1,job=j} 1",
            "b{instance=h:1,job=own} 2",
            "b{exported_job=own,instance=h:1,job=j} stale"
        ]
    );
    assert_eq!(driver.scrape("a 1\nb{job=\"own\"} 2\n").len(), 2);
}

#[test]
fn series_that_a_second_change_before_a_scrape_dropped_get_their_markers() {
    let mut driver = Driver::new(job());
    driver.scrape("a 1\nb 2\n");
    driver.run.adopt(target(job(), "h:1"), driver.at);
    driver.run.adopt(target(job(), "h:1"), driver.at);
    assert_eq!(driver.scrape("a 1\n"), ["a{instance=h:1,job=j} 1", "b{instance=h:1,job=j} stale"]);
}

#[test]
fn a_removed_target_ends_with_markers_of_all_its_series() {
    let mut driver = Driver::new(job());
    driver.scrape("a 1\n");
    let (at, due) = driver.run.end_times();
    assert_eq!((at.ms_since(driver.at), due.ms_since(driver.at)), (10_000, 21_000));
    let end = driver.run.end(at);
    let lines = formatted(&end, at);
    assert_eq!(lines.len(), 6);
    assert!(lines.iter().all(|line| line.ends_with(" stale")), "{lines:?}");
    let mut fresh = Driver::new(job());
    assert!(fresh.run.end(NOW).is_empty(), "a target that was never scraped has no series");
}

#[test]
fn ten_thousand_labels_and_strange_names_fail_only_the_scrape() {
    let mut driver = Driver::new(job());
    let labels: Vec<String> = (0..10_000).map(|n| format!("l{n}=\"v\"")).collect();
    let many = format!("a{{{}}} 1\n", labels.join(","));
    let bodies = [many.as_bytes(), b"{\"NaN\"} NaN\n", b"NaN{\"\"=\"x\"} 1\n", b"\xff 1\n", b"{} 1\n"];
    let format = ScrapeFormat::Text(Format::Prometheus);
    let errors: Vec<bool> =
        bodies.iter().map(|bytes| driver.finish(Ok(ScrapeBody { format, bytes })).error.is_some()).collect();
    assert_eq!(errors, [true, false, true, true, true]);
}

mod laws {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The oracle: every series of the scrape before that is not in this one gets a marker.
        #[test]
        fn markers_are_exactly_the_series_that_disappeared(
            scrapes in prop::collection::vec(prop::option::weighted(0.8, prop::collection::vec(0_u8..12, 0..14)), 1..12),
        ) {
            let mut driver = Driver::new(job());
            let mut before: BTreeSet<u8> = BTreeSet::new();
            for scrape in scrapes {
                let now: BTreeSet<u8> = scrape.iter().flatten().copied().collect();
                let found = match &scrape {
                    None => driver.fail(),
                    Some(series) => {
                        driver.scrape(&series.iter().map(|n| format!("m{{n=\"{n}\"}} {n}\n")).collect::<String>())
                    }
                };
                let number = |line: &String| -> (u8, bool) {
                    let n = line.split("n=").nth(1).and_then(|rest| rest.split('}').next());
                    (n.expect("a number").parse().expect("a number"), line.ends_with("stale"))
                };
                let mut counts: BTreeMap<(u8, bool), u32> = BTreeMap::new();
                found.iter().map(number).for_each(|key| *counts.entry(key).or_default() += 1);
                let expected: BTreeMap<(u8, bool), u32> = now
                    .iter()
                    .map(|n| ((*n, false), 1))
                    .chain(before.difference(&now).map(|n| ((*n, true), 1)))
                    .collect();
                prop_assert_eq!(counts, expected);
                before = now;
            }
        }

        #[test]
        fn arbitrary_bodies_never_panic_a_run(bodies in prop::collection::vec("[a-c{}=\"#,. 0-9\nNTYPE]{0,60}", 1..6), kind in 0..3) {
            let mut driver = Driver::new(job());
            let format = match kind {
                0 => ScrapeFormat::Text(Format::Prometheus),
                1 => ScrapeFormat::Text(Format::OpenMetrics),
                _ => ScrapeFormat::Protobuf,
            };
            for body in &bodies {
                driver.finish(Ok(ScrapeBody { format, bytes: body.as_bytes() }));
            }
        }
    }
}
