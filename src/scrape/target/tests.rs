//! Tests of targets: the labels before and after relabelling, URLs and hashes.

use proptest::prelude::*;

use super::*;
use crate::scrape::config::{ScrapeConfig, ScrapeFiles};
use crate::scrape::discovery::DiscoveryConfig;
use crate::scrape::target::JobTargets;
use crate::scrape::target::job_targets;

fn targets(own: &str) -> JobTargets {
    let indented: String = own.lines().map(|line| format!("  {line}\n")).collect();
    let text = format!("scrape_configs:\n- job_name: test\n{indented}");
    let config =
        ScrapeConfig::parse(&text, &ScrapeFiles::Refused).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let job = config.jobs.first().expect("a job");
    let fixed = job.discoveries.iter().filter_map(|discovery| match discovery {
        DiscoveryConfig::Static(fixed) => Some(&fixed.groups),
        _ => None,
    });
    job_targets(job, fixed.flatten())
}

/// Returns the labels and URL of the only target, `dropped`, or the reason why it is not valid.
fn outcome(own: &str) -> String {
    let set = targets(own);
    match (set.active.as_slice(), set.invalid.as_slice()) {
        ([target], []) => format!("{} {}", target.labels, target.url),
        ([], [invalid]) => invalid.reason.clone(),
        ([], []) if set.dropped_count == 1 => "dropped".to_owned(),
        _ => panic!("{set:?}"),
    }
}

const STATIC: &str =
    "static_configs: [{targets: ['host:9100'], labels: {zone: eu, __meta_x: y, __tmp: z}}]\n";

#[test]
fn discovered_labels_are_those_of_prometheus() {
    let set = targets(&format!(
        "{STATIC}params: {{module: [a, b], none: []}}\nscheme: https\nscrape_interval: 90s"
    ));
    let target = set.active.first().expect("a target");
    assert_eq!(
        target.discovered.to_string(),
        r#"{__address__="host:9100", __meta_x="y", __metrics_path__="/metrics", __param_module="a", __scheme__="https", __scrape_interval__="1m30s", __scrape_timeout__="10s", __tmp="z", job="test", zone="eu"}"#
    );
    assert_eq!(target.labels.to_string(), r#"{instance="host:9100", job="test", zone="eu"}"#);
    assert_eq!(target.url, "https://host:9100/metrics?module=a&module=b");
    assert_eq!((target.interval_ms, target.timeout_ms), (90_000, 10_000));
    assert_eq!((target.base.host(), target.base.port()), ("host", 9100));
}

#[test]
fn relabelling_changes_targets_as_in_prometheus() {
    let plain = r#"{instance="host:9100", job="test", zone="eu"} http://host:9100/metrics"#;
    let cases = [
        ("", plain),
        ("- {action: keep, source_labels: [zone], regex: eu}", plain),
        ("- {action: keep, source_labels: [zone], regex: e}", "dropped"),
        ("- {action: drop, source_labels: [zone, job], regex: eu;test}", "dropped"),
        ("- {action: keepequal, source_labels: [zone], target_label: job}", "dropped"),
        ("- {action: dropequal, source_labels: [zone], target_label: zone}", "dropped"),
        (
            "- {source_labels: [__address__], regex: '(.+):.*', target_label: instance}",
            r#"{instance="host", job="test", zone="eu"} http://host:9100/metrics"#,
        ),
        (
            "- {source_labels: [__meta_x], target_label: x}\n- {source_labels: [__tmp], target_label: t}",
            r#"{instance="host:9100", job="test", t="z", x="y", zone="eu"} http://host:9100/metrics"#,
        ),
        (
            "- {action: labelmap, regex: '__meta_(.+)'}",
            r#"{instance="host:9100", job="test", x="y", zone="eu"} http://host:9100/metrics"#,
        ),
        (
            "- {target_label: job, replacement: other}",
            r#"{instance="host:9100", job="other", zone="eu"} http://host:9100/metrics"#,
        ),
        (
            "- {target_label: job, replacement: ''}",
            r#"{instance="host:9100", zone="eu"} http://host:9100/metrics"#,
        ),
        (
            "- {action: labeldrop, regex: zone}",
            r#"{instance="host:9100", job="test"} http://host:9100/metrics"#,
        ),
        ("- {action: labelkeep, regex: '__.*'}", r#"{instance="host:9100"} http://host:9100/metrics"#),
        ("- {action: labelkeep, regex: 'zone'}", "no address"),
        (
            "- {action: uppercase, source_labels: [zone], target_label: zone}",
            r#"{instance="host:9100", job="test", zone="EU"} http://host:9100/metrics"#,
        ),
        // The usual configuration of an exporter that probes others.
        (
            "- {source_labels: [__address__], target_label: __param_target}\n\
             - {source_labels: [__param_target], target_label: instance}\n\
             - {target_label: __address__, replacement: 'probe:9115'}",
            r#"{instance="host:9100", job="test", zone="eu"} http://probe:9115/metrics?target=host%3A9100"#,
        ),
        (
            "- {target_label: __metrics_path__, replacement: 'a b?c'}",
            r#"{instance="host:9100", job="test", zone="eu"} http://host:9100/a%20b%3Fc"#,
        ),
        (
            "- {target_label: __scheme__, replacement: https}",
            r#"{instance="host:9100", job="test", zone="eu"} https://host:9100/metrics"#,
        ),
        (
            "- {target_label: __param_q, replacement: 'a b&c=é'}",
            r#"{instance="host:9100", job="test", zone="eu"} http://host:9100/metrics?q=a+b%26c%3D%C3%A9"#,
        ),
        (
            "- {target_label: __address__, replacement: 'host'}",
            r#"{instance="host", job="test", zone="eu"} http://host/metrics"#,
        ),
        (
            "- {target_label: __address__, replacement: '[::1]:80'}",
            r#"{instance="[::1]:80", job="test", zone="eu"} http://[::1]:80/metrics"#,
        ),
        ("- {target_label: __scheme__, replacement: ftp}", "unsupported protocol scheme \"ftp\""),
        ("- {target_label: __address__, replacement: ''}", "no address"),
        ("- {target_label: __address__, replacement: 'a/b'}", "\"a/b\" is not a valid hostname"),
        ("- {target_label: __address__, replacement: 'a?b'}", "\"a?b\" is not a valid hostname"),
        (
            "- {target_label: __scrape_interval__, replacement: 1x}",
            "error parsing scrape interval: not a valid duration string: \"1x\"",
        ),
        ("- {target_label: __scrape_interval__, replacement: 0s}", "scrape interval cannot be 0"),
        (
            "- {target_label: __scrape_interval__, replacement: ''}",
            "error parsing scrape interval: empty duration string",
        ),
        ("- {target_label: __scrape_timeout__, replacement: 0}", "scrape timeout cannot be 0"),
        (
            "- {target_label: __scrape_timeout__, replacement: 2m}",
            "scrape timeout cannot be greater than scrape interval (\"2m\" > \"1m\")",
        ),
    ];
    for (rules, expected) in cases {
        let own = format!("{STATIC}relabel_configs:\n{rules}");
        assert_eq!(outcome(&own), expected, "{rules}");
    }
}

#[test]
fn hashmod_distributes_targets_as_prometheus_does() {
    for (modulus, expected) in HASHMODS {
        let own = format!(
            "{STATIC}relabel_configs:\n- {{source_labels: [__address__], modulus: {modulus}, target_label: shard, action: hashmod}}"
        );
        let set = targets(&own);
        assert_eq!(set.active[0].labels.value("shard"), expected, "{modulus}");
    }
}

/// Remainders of the last 8 bytes of the MD5 of `host:9100`.
const HASHMODS: [(u64, &str); 3] = [(1, "0"), (7, "0"), (1099511627776, "311643025195")];

#[test]
fn intervals_of_labels_win_over_those_of_the_job() {
    let set = targets(&format!(
        "{STATIC}relabel_configs:\n- {{target_label: __scrape_interval__, replacement: 5s}}\n- {{target_label: __scrape_timeout__, replacement: 500ms}}"
    ));
    let target = set.active.first().expect("a target");
    assert_eq!((target.interval_ms, target.timeout_ms), (5_000, 500));
}

#[test]
fn duplicates_are_removed_and_counted_and_shared_labels_are_reported() {
    let set = targets("static_configs: [{targets: [a, b, a]}, {targets: [a]}]");
    assert_eq!((set.active.len(), set.duplicate_count, set.duplicates.len()), (2, 2, 2));
    assert!(set.shared_labels.is_empty());
    let set = targets(
        "static_configs: [{targets: [a, b, c]}]\nrelabel_configs: [{target_label: instance, replacement: x}]",
    );
    assert_eq!((set.active.len(), set.duplicate_count, set.shared_labels.len()), (3, 0, 1));
}

#[test]
fn more_targets_than_the_limit_fail_all_scrapes_of_the_job() {
    let own = |limit: u64| format!("static_configs: [{{targets: [a, b]}}]\ntarget_limit: {limit}");
    assert_eq!(targets(&own(2)).failure, None);
    let failure = targets(&own(1)).failure;
    assert_eq!(failure.as_deref(), Some("target_limit exceeded (number of targets: 2, limit: 1)"));
}

#[test]
fn dropped_targets_are_kept_up_to_a_limit() {
    let own = "static_configs: [{targets: [a, b, c]}]\nrelabel_configs: [{action: drop, regex: ''}]\nkeep_dropped_targets: 2";
    let set = targets(own);
    assert_eq!((set.dropped_count, set.dropped.len(), set.active.len()), (3, 2, 0));
}

#[test]
fn steps_show_the_labels_after_each_rule() {
    let set = targets(&format!(
        "{STATIC}relabel_configs:\n- {{source_labels: [zone], target_label: a}}\n- {{regex: zone, action: labeldrop}}"
    ));
    let target = set.active.first().expect("a target");
    let steps = relabel_steps(&target.job, &target.discovered);
    assert_eq!(steps.len(), 2);
    assert_eq!((steps[0].labels.value("a"), steps[0].labels.value("zone")), ("eu", "eu"));
    assert_eq!((steps[1].labels.value("zone"), steps[1].keep), ("", true));
    let set = targets(&format!(
        "{STATIC}relabel_configs:\n- {{source_labels: [zone], regex: us, action: keep}}\n- {{regex: zone, action: labeldrop}}"
    ));
    let steps = relabel_steps(&set.job, &set.dropped[0]);
    assert_eq!(steps.iter().map(|step| step.keep).collect::<Vec<_>>(), [false]);
}

proptest! {
    #[test]
    fn any_labels_make_a_target_or_a_reason(
        address in "[a-z0-9:.\\[\\]/@?# é-]{0,20}",
        labels in proptest::collection::btree_map("(__address__|__scheme__|__param_[a-c]?|__scrape_timeout__|[a-c_]{1,3})", "[a-z0-9/: é]{0,8}", 0..6),
    ) {
        let job = targets("static_configs: []").job;
        let group = Labels::from_pairs(labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let discovered = discovered_labels(&job, &address, &group);
        if let TargetOutcome::Active(target) = build_target(&job, &discovered) {
            prop_assert!(target.labels.iter().all(|label| !label.name.starts_with("__")));
            prop_assert!(!target.labels.value("job").is_empty() && !target.labels.value("instance").is_empty());
            prop_assert!((1..=target.interval_ms).contains(&target.timeout_ms));
            prop_assert!(target.path_and_query.starts_with('/'));
            prop_assert!(target.url.ends_with(&target.path_and_query));
            prop_assert_eq!(build_target(&job, &discovered), TargetOutcome::Active(target));
        }
    }

    #[test]
    fn the_last_step_is_the_result(
        rules in proptest::collection::vec(("(replace|keep|drop|labeldrop|labelkeep|labelmap)", "[a-c.]{1,3}|__\\.\\*|\\.\\*|zone|a"), 0..5),
    ) {
        let mut text = "relabel_configs:\n".to_owned();
        for (action, regex) in &rules {
            let own = match action.as_str() {
                "replace" => ", source_labels: [zone], target_label: a",
                "keep" | "drop" => ", source_labels: [zone]",
                _ => "",
            };
            text.push_str(&format!("- {{action: {action}, regex: '{regex}'{own}}}\n"));
        }
        let set = targets(&format!("{STATIC}{text}"));
        let first = set.active.first().map(|target| target.discovered.clone());
        let discovered = first.or_else(|| set.dropped.first().cloned());
        let discovered = discovered.or_else(|| set.invalid.first().map(|invalid| invalid.discovered.clone()));
        let steps = relabel_steps(&set.job, &discovered.expect("one target"));
        prop_assert_eq!(steps.iter().all(|step| step.keep), set.dropped_count == 0);
        if let (Some(target), Some(last)) = (set.active.first(), steps.last()) {
            for label in target.labels.iter().filter(|label| label.name != "instance") {
                prop_assert_eq!(last.labels.value(label.name), label.value);
            }
        }
    }
}
