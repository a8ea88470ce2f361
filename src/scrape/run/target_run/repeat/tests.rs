//! Scrapes by the template of a body, compared with scrapes that decode each body.

mod agent;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::ingest::text::Format;
use crate::model::{ByteBudget, Labels, Timestamp, WriteBatch};
use crate::relabel::{RelabelRule, RelabelRules};
use crate::scrape::config::{AgentRelabel, ScrapeJob};
use crate::scrape::run::target_run::ScrapeRunSettings;
use crate::scrape::run::target_run::tests::{KeyedLabels, formatted_batch, job, target};
use crate::scrape::run::{ScrapeError, ScrapeFormat};

const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);
const PLENTY: u64 = 1 << 20;

/// A target and the keys of its series in the store.
struct ScrapedTarget {
    run: ScrapeRun,
    keys: KeyedLabels,
    repeated: usize,
    at: Timestamp,
}

impl ScrapedTarget {
    fn new(job: ScrapeJob, templates: &ByteBudget) -> ScrapedTarget {
        let settings = ScrapeRunSettings {
            templates: templates.clone(),
            extra_metrics: true,
            ..ScrapeRunSettings::default()
        };
        let run = ScrapeRun::new(target(job, "h:1"), Arc::new(settings), NOW);
        ScrapedTarget { run, keys: KeyedLabels::default(), repeated: 0, at: NOW }
    }

    /// Scrapes as the task of a target does. Returns everything that is stored or shown.
    fn scrape(&mut self, fetched: Result<ScrapeBody<'_>, ScrapeError>) -> Vec<String> {
        self.run.wait(self.at);
        let at = self.run.begin(self.run.schedule.next());
        self.at = at;
        let body_bytes = fetched.as_ref().map_or(0, |body| body.bytes.len() as u64);
        let facts = ScrapeFacts { at, duration: Duration::from_millis(1_500), body_bytes };
        let keyed = fetched.as_ref().ok().and_then(|body| self.run.repeat(facts, *body));
        let mut lines = match keyed {
            Some(batch) => {
                let lines = self.keys.with_labels(batch, |batch| described(batch, at));
                self.run.repeated(facts);
                self.repeated += 1;
                lines
            }
            None => {
                let outcome = self.run.finish(facts, fetched);
                let batch = outcome.batch.batch();
                if self.run.wants_keys() {
                    self.run.set_keys(self.keys.of(&batch));
                }
                described(&batch, at)
            }
        };
        self.run.stored(Ok(Default::default()));
        lines.push(format!("{:?}", self.run.status()));
        lines
    }

    fn text(&mut self, format: Format, text: &str) -> Vec<String> {
        self.scrape(Ok(ScrapeBody { format: ScrapeFormat::Text(format), bytes: text.as_bytes() }))
    }
}

fn described(batch: &WriteBatch<'_>, at: Timestamp) -> Vec<String> {
    let mut lines = formatted_batch(batch, at);
    lines.extend(batch.samples.iter().map(|sample| format!("{:x}", sample.value.to_bits())));
    lines.push(format!("{:?} {:?} {:?}", batch.starts, batch.metadata, batch.exemplars));
    lines
}

fn plenty() -> ByteBudget {
    ByteBudget::new(PLENTY)
}

/// Returns the number of repeated scrapes of texts.
fn repeated(format: Format, texts: &[&str]) -> usize {
    let mut target = ScrapedTarget::new(job(), &plenty());
    for text in texts {
        target.text(format, text);
    }
    target.repeated
}

#[test]
fn a_body_that_differs_only_in_its_values_is_repeated_from_the_third_scrape() {
    let mut target = ScrapedTarget::new(job(), &plenty());
    for value in ["1", "2.5", "NaN", "4e9"] {
        let found =
            target.text(Format::Prometheus, &format!("# HELP a x\na {value}\nb{{x=\"y\"}} {value} 7\n"));
        assert!(found[0].starts_with("a{instance=h:1,job=j} "), "{found:?}");
        assert!(found[1].starts_with("b{instance=h:1,job=j,x=y} "), "{found:?}");
    }
    assert_eq!(target.repeated, 2);
}

#[test]
fn start_timestamps_are_those_of_the_template() {
    let text = "# TYPE a counter\na_total 1\na_created 1600000000\n# EOF\n";
    let mut target = ScrapedTarget::new(job(), &plenty());
    for scrape in 0..4 {
        let found = target.text(Format::OpenMetrics, text);
        assert!(found.iter().any(|line| line.contains("1600000000000")), "{scrape}: {found:?}");
    }
    assert_eq!(target.repeated, 2);
    let later = text.replace("1600000000", "1600000001");
    let found = target.text(Format::OpenMetrics, &later);
    assert!(found.iter().any(|line| line.contains("1600000001000")), "{found:?}");
    assert_eq!(target.repeated, 2);
}

#[test]
fn bodies_with_other_texts_and_bodies_without_a_template_are_decoded() {
    let (a, format) = ("# HELP a x\na 1\n", Format::Prometheus);
    assert_eq!(repeated(format, &[a, a, a]), 1);
    for other in ["# HELP a y\na 1\n", "# HELP a x\na 1\nb 1\n", "# HELP a x\na 1 5\n", "a 1\n", "", "a x\n"]
    {
        assert_eq!(repeated(format, &[a, a, other]), 0, "{other}");
        assert_eq!(repeated(format, &[a, a, a, other, a]), if other == "a x\n" { 2 } else { 1 }, "{other}");
    }
    for never in ["a 1\na 2\n", "a 1\nb 2\na 3\n", ""] {
        assert_eq!(repeated(format, &[never; 5]), 0, "{never}");
    }
    assert_eq!(repeated(Format::OpenMetrics, &["a_total 1 # {} 2\n# EOF\n"; 5]), 0, "exemplars");
}

#[test]
fn the_templates_of_all_targets_are_bounded() {
    let budget = ByteBudget::new(28);
    let mut targets = [(); 2].map(|()| ScrapedTarget::new(job(), &budget));
    for _ in 0..3 {
        targets.iter_mut().for_each(|target| drop(target.text(Format::Prometheus, "a 1\n")));
    }
    assert_eq!(targets.each_ref().map(|target| target.repeated), [1, 0]);
    let [first, mut second] = targets;
    drop(first);
    (0..3).for_each(|_| drop(second.text(Format::Prometheus, "a 1\n")));
    assert_eq!(second.repeated, 1, "the memory of the first is free");
    (0..3).for_each(|_| drop(second.text(Format::Prometheus, "a 1\nb 2\n")));
    assert_eq!(second.repeated, 1, "two series do not fit");
}

#[test]
fn texts_that_change_with_each_body_get_few_templates() {
    let mut target = ScrapedTarget::new(job(), &plenty());
    let learned = (0..640).filter(|n| {
        target.text(Format::Prometheus, &format!("# HELP a at {n}\na 1\n"));
        target.run.template.is_some()
    });
    assert_eq!(learned.count(), 15, "0, 1, 3, 7, 15, 31, and then always 63 bodies are skipped");
    let last = "# HELP a last\na 1\n";
    (0..70).for_each(|_| drop(target.text(Format::Prometheus, last)));
    let repeated = target.repeated;
    assert!(repeated > 0, "stable texts have one again");
    target.text(Format::Prometheus, last);
    assert_eq!(target.repeated, repeated + 1);
}

#[test]
fn metadata_is_stored_again_after_an_hour() {
    let mut target = ScrapedTarget::new(job(), &plenty());
    let with_metadata = (0..722).filter(|_| {
        let found = target.text(Format::Prometheus, "# TYPE a gauge\na 1\n");
        found.iter().any(|line| line.contains("MetricMetadata"))
    });
    assert_eq!(with_metadata.count(), 3, "at the start and after each hour");
    assert_eq!(target.repeated, 722 - 4);
}

/// The texts of a body, with `$` for each value.
type Shape = (bool, Vec<(&'static str, &'static str, &'static str)>);

fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    let comments = [
        "",
        "",
        "# HELP a x\n",
        "# TYPE a counter\n",
        "# TYPE h histogram\n",
        "# note\n",
        "\r\n",
        " # TYPE h\n",
    ];
    let series = [
        "a",
        "a{x=\"1\"}",
        "a {x=\"1\",}",
        "b{x=\"{\",y=\"}\\\"\"}",
        "h_bucket{le=\"1\"}",
        "h_bucket{le=\"+Inf\"}",
        "h_count",
        "h_created",
        "a_created",
        "noise{z=\"1\"}",
        " own{job=\"own\",secret=\"s\"}",
        "{\"q d\",z=\"\u{e4}\"}",
    ];
    let tails = [" $\n", " $\n", " $\n", "\t$ \r\n", " $ 1700000000\n", " $ # {t=\"1\"} 1\n"];
    let line = (select(comments.to_vec()), select(series.to_vec()), select(tails.to_vec()));
    prop::collection::vec((any::<bool>(), prop::collection::vec(line, 1..7)), 1..4)
}

fn text_of((is_open_metrics, lines): &Shape, values: &[&str]) -> String {
    let mut text = String::new();
    for ((comment, series, tail), value) in lines.iter().zip(values) {
        text.extend([*comment, *series, &*tail.replace('$', value)]);
    }
    text + if *is_open_metrics { "# EOF\n" } else { "" }
}

fn jobs() -> Vec<ScrapeJob> {
    let rules: Vec<RelabelRule> = serde_json::from_str(
        r#"[{"source_labels": ["__name__"], "regex": "noise", "action": "drop"},
            {"regex": "secret|x", "action": "labeldrop"}]"#,
    )
    .expect("rules");
    let mut all = [(); 5].map(|()| job());
    all[1].honor_labels = true;
    all[1].metric_relabel.compiled = RelabelRules::parse(&rules).expect("valid");
    all[2].honor_timestamps = false;
    all[2].limits.sample_limit = 4;
    all[3].track_timestamps_staleness = true;
    all[3].limits.label_limit = 4;
    let external = Labels::from_pairs([("x", "external"), ("zone", "eu")]);
    let rules: Vec<RelabelRule> = serde_json::from_str(
        r#"[{"source_labels": ["__name__"], "regex": "b|scrape_series_added", "action": "drop"}]"#,
    )
    .expect("rules");
    let rules = RelabelRules::parse(&rules).expect("valid");
    all[4].agent_relabel = Arc::new(AgentRelabel { external_labels: external, rules });
    Vec::from(all)
}

#[derive(Clone, Debug)]
enum Step {
    Scrape(usize, Vec<&'static str>),
    Fail,
    Reload(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = prop_oneof![
        20 => select(vec!["1", "2.5", "-0", "NaN", "+Inf", "1e300", "123456789012345678"]),
        1 => select(vec!["x", "", "1 2 3", "{} 1"]),
    ];
    let values = prop::collection::vec(value, 7);
    let scrape = (prop_oneof![8 => Just(0_usize), 1 => Just(1), 1 => Just(2)], values);
    let step = prop_oneof![
        16 => scrape.prop_map(|(shape, values)| Step::Scrape(shape, values)),
        1 => Just(Step::Fail),
        1 => (0..5_usize).prop_map(Step::Reload),
    ];
    prop::collection::vec(step, 1..24)
}

proptest! {
    #[test]
    fn templates_change_no_batch(shapes in shapes(), first in 0..5_usize, steps in steps()) {
        let jobs = jobs();
        let mut both = [plenty(), ByteBudget::new(0)].map(|budget| ScrapedTarget::new(jobs[first].clone(), &budget));
        for step in steps {
            let [with, without] = both.each_mut().map(|scraped| match &step {
                Step::Scrape(shape, values) => {
                    let shape = &shapes[shape % shapes.len()];
                    let format = if shape.0 { Format::OpenMetrics } else { Format::Prometheus };
                    scraped.text(format, &text_of(shape, values))
                }
                Step::Fail => scraped.scrape(Err(ScrapeError::Status(500))),
                Step::Reload(place) => {
                    let now = scraped.run.schedule.next();
                    scraped.run.adopt(target(jobs[*place].clone(), "h:1"), now);
                    Vec::new()
                }
            });
            prop_assert_eq!(with, without);
        }
        prop_assert_eq!(both[1].repeated, 0);
        let [with, without] = both.map(|mut scraped| described(&scraped.run.end(NOW).batch(), NOW));
        prop_assert_eq!(with, without);
    }
}
