//! Scrapes of an agent, compared with those of a server whose samples get the external labels and
//! the rules afterwards.

use std::borrow::Cow;

use super::*;
use crate::model::METRIC_NAME;
use crate::relabel::LabelPairs;

const RULES: [&str; 9] = [
    r#"{"source_labels": ["__name__"], "regex": "a", "action": "drop"}"#,
    r#"{"source_labels": ["__name__"], "regex": "up|scrape_duration_seconds", "action": "drop"}"#,
    r#"{"source_labels": ["region"], "regex": "eu|", "action": "keep"}"#,
    r#"{"target_label": "site", "replacement": "berlin"}"#,
    r#"{"target_label": "region", "replacement": "us"}"#,
    r#"{"regex": "zone|pod", "action": "labeldrop"}"#,
    r#"{"source_labels": ["__name__"], "regex": "b", "target_label": "__name__", "replacement": "renamed"}"#,
    r#"{"regex": "job", "action": "labelmap", "replacement": "service"}"#,
    r#"{"source_labels": ["nothing"], "regex": "x", "target_label": "never"}"#,
];

fn rules(places: &[usize]) -> RelabelRules {
    let rules: Vec<RelabelRule> =
        places.iter().map(|place| serde_json::from_str(RULES[*place]).expect("a rule")).collect();
    RelabelRules::parse(&rules).expect("valid")
}

fn external(places: &[usize]) -> Labels {
    let all = [("region", "eu"), ("job", "external"), ("zone", "z9"), ("nothing", "")];
    Labels::from_pairs(places.iter().map(|place| all[*place]))
}

/// Returns the samples of a batch, without the numbers that count what the rules dropped.
fn samples(lines: &[String]) -> Vec<String> {
    let counts = ["scrape_samples_post_metric_relabeling{", "scrape_series_added{"];
    let hidden = |line: &String| match counts.iter().any(|name| line.starts_with(name)) {
        true => line.split_inclusive("} ").next().map(str::to_owned).unwrap_or_default(),
        false => line.clone(),
    };
    lines.iter().take_while(|line| line.contains('{')).map(hidden).collect()
}

/// Adds the external labels to a sample of [`samples`], and applies the rules.
fn relabelled(line: &str, agent: &AgentRelabel) -> Option<String> {
    let (series, value) = line.split_once("} ").expect("a sample");
    let (name, labels) = series.split_once('{').expect("labels");
    let labels = labels.split(',').filter_map(|label| label.split_once('='));
    let mut pairs: LabelPairs<'_> = std::iter::once((METRIC_NAME, name))
        .chain(labels)
        .map(|(name, value)| (Cow::Borrowed(name), Cow::Borrowed(value)))
        .collect();
    for label in &agent.external_labels {
        if !pairs.iter().any(|(name, _)| name == label.name) {
            pairs.push((Cow::Borrowed(label.name), Cow::Borrowed(label.value)));
        }
    }
    if !agent.rules.apply(&mut pairs) {
        return None;
    }
    let name = pairs.iter().find(|(name, _)| name == METRIC_NAME).map_or("", |(_, value)| value);
    let others = pairs.iter().filter(|(name, _)| name != METRIC_NAME);
    let others: Vec<String> = others.map(|(name, value)| format!("{name}={value}")).collect();
    Some(format!("{name}{{{}}} {value}", others.join(",")))
}

fn is_equal(of_server: &[String], of_agent: &[String], agent: &AgentRelabel) -> Result<(), TestCaseError> {
    let expected: Vec<String> =
        samples(of_server).iter().filter_map(|line| relabelled(line, agent)).collect();
    prop_assert_eq!(expected, samples(of_agent));
    Ok(())
}

/// The bodies of a target. Each combination of name and labels has an `id` of its own, so that no
/// rule makes two series equal.
fn bodies() -> impl Strategy<Value = Vec<String>> {
    let labels =
        ["", "region=\"eu\",", "region=\"\",", "zone=\"z\",pod=\"p\",", "job=\"own\",", "site=\"s\","];
    let series = (select(vec!["a", "b", "c"]), 0..labels.len());
    let line =
        series.prop_map(move |(name, place)| format!("{name}{{{}id=\"{name}{place}\"}} $\n", labels[place]));
    let body = prop::collection::vec(line, 0..5).prop_map(|lines| lines.concat());
    prop::collection::vec(body, 1..4)
}

proptest! {
    #[test]
    fn an_agent_stores_what_a_server_would_store_with_external_labels_and_rules_applied(
        bodies in bodies(),
        added in prop::collection::vec(0..4_usize, 0..4),
        places in prop::collection::vec(0..RULES.len(), 0..4),
        first in 0..4_usize,
        steps in prop::collection::vec(prop_oneof![12 => (0..6_usize).prop_map(Some), 1 => Just(None)], 1..16),
    ) {
        let plain = ScrapeJob { limits: Default::default(), ..jobs()[first].clone() };
        let agent = AgentRelabel { external_labels: external(&added), rules: rules(&places) };
        let job = ScrapeJob { agent_relabel: Arc::new(agent.clone()), ..plain.clone() };
        let mut server = ScrapedTarget::new(plain, &plenty());
        let mut scraped = ScrapedTarget::new(job, &plenty());
        for (turn, step) in steps.iter().enumerate() {
            let [expected, found] = [&mut server, &mut scraped].map(|target| match step {
                Some(body) => {
                    let text = bodies[(body / 3) % bodies.len()].replace('$', &turn.to_string());
                    target.text(Format::Prometheus, &text)
                }
                None => target.scrape(Err(ScrapeError::Status(500))),
            });
            is_equal(&expected, &found, &agent)?;
        }
        let [expected, found] =
            [&mut server, &mut scraped].map(|target| described(&target.run.end(NOW).batch(), NOW));
        is_equal(&expected, &found, &agent)?;
    }
}

/// Returns a job with an external label.
fn job_of(region: &'static str) -> ScrapeJob {
    let external_labels = Labels::from_pairs([("region", region)]);
    let agent_relabel = Arc::new(AgentRelabel { external_labels, rules: RelabelRules::default() });
    ScrapeJob { agent_relabel, ..job() }
}

#[test]
fn external_labels_do_not_slow_down_scrapes_and_a_rule_that_drops_reports_keeps_templates() {
    let mut target = ScrapedTarget::new(job_of("eu"), &plenty());
    for value in 0..5 {
        let found = target.text(Format::Prometheus, &format!("a {value}\n"));
        assert_eq!(found[0], format!("a{{instance=h:1,job=j,region=eu}} {value}"));
        assert_eq!(found[1], "up{instance=h:1,job=j,region=eu} 1");
    }
    assert_eq!(target.repeated, 3);
    assert!(target.run.known.all().iter().all(|one| one.fate == crate::scrape::run::known::KnownFate::Plain));
    let agent_relabel = Arc::new(AgentRelabel { rules: rules(&[1]), ..AgentRelabel::default() });
    let mut target = ScrapedTarget::new(ScrapeJob { agent_relabel, ..job() }, &plenty());
    for _ in 0..5 {
        let found = samples(&target.text(Format::Prometheus, "a 1\n"));
        let names: Vec<&str> = found.iter().filter_map(|line| Some(line.split_once('{')?.0)).collect();
        assert!(names.contains(&"a") && !names.contains(&"up"), "{names:?}");
        assert_eq!(names.len(), 7, "{names:?}");
    }
    assert_eq!(target.repeated, 3);
}

#[test]
fn series_under_the_external_labels_before_a_reload_get_markers_with_those_about_scrapes() {
    let mut scraped = ScrapedTarget::new(job_of("eu"), &plenty());
    scraped.text(Format::Prometheus, "a 1\n");
    for region in ["us", "asia"] {
        let now = scraped.run.schedule.next();
        scraped.run.adopt(target(job_of(region), "h:1"), now);
    }
    let found = samples(&scraped.text(Format::Prometheus, "a 2\n"));
    assert_eq!(found[0], "a{instance=h:1,job=j,region=asia} 2");
    let stale: Vec<&String> = found.iter().filter(|line| line.contains("region=eu")).collect();
    // The series, and the eight about scrapes.
    assert!(stale.iter().all(|line| line.ends_with("} ") || line.ends_with("} stale")), "{stale:?}");
    assert_eq!(stale.len(), 9, "{found:?}");
    assert!(!found.iter().any(|line| line.contains("region=us")), "it was never scraped: {found:?}");
    let next = samples(&scraped.text(Format::Prometheus, "a 3\n"));
    assert!(!next.iter().any(|line| line.contains("region=eu")), "{next:?}");
}
