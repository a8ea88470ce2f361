//! Random groups of rules over random series, as a file of unit tests without expectations: its
//! failures list every alert and every series at each step.

use std::fmt::Write as _;

use crate::chance::Chance;

/// A rule file and the file of its unit tests, which names it `rules.yml`.
pub(crate) struct RandomRules {
    pub(crate) rules: String,
    pub(crate) tests: String,
}

/// The minutes of a test.
const MINUTES: usize = 13;

/// Makes the files of a seed. Alerts of two rules have different names, as promtool takes samples
/// of the same series for an error; no expression depends on the order of equal values.
pub(crate) fn random_rules(seed: u64) -> RandomRules {
    let mut chance = Chance::new(seed);
    let mut names = vec!["x".to_owned(), "y".to_owned()];
    let mut rules = "groups:\n".to_owned();
    let groups = 1 + chance.below(3);
    for group in 0..groups {
        let _ = writeln!(rules, "- name: g{group}");
        if chance.percent(20) {
            let _ = writeln!(rules, "  limit: {}", chance.between(2, 6));
        }
        if chance.percent(30) {
            let _ = writeln!(rules, "  query_offset: {}", chance.pick(&["30s", "1m", "2m"]));
        }
        if chance.percent(30) {
            let _ = writeln!(rules, "  labels: {{team: core, i: {}}}", chance.pick(&["''", "z"]));
        }
        rules.push_str("  rules:\n");
        for rule in 0..1 + chance.below(4) {
            if chance.percent(50) {
                let record = format!("r{group}{rule}");
                let expr = expression(&mut chance, &names);
                let _ = writeln!(rules, "  - record: {record}\n    expr: {expr:?}");
                if chance.percent(30) {
                    let _ = writeln!(
                        rules,
                        "    labels: {{src: {:?}}}",
                        chance.pick(&["a", "{{ $labels.i }}", ""])
                    );
                }
                names.push(record);
            } else {
                let _ = writeln!(rules, "  - alert: A{group}{rule}");
                alert(&mut chance, &names, &mut rules);
            }
        }
    }
    RandomRules { rules, tests: tests(&mut chance, groups) }
}

fn alert(chance: &mut Chance, names: &[String], rules: &mut String) {
    let mut expr = expression(chance, names);
    if expr != "time()" && chance.percent(80) {
        let (sign, bound) = (chance.pick(&[">", ">=", "==", "<", "!="]), chance.below(3));
        expr = format!("({expr}) {sign} {bound}");
    }
    let _ = writeln!(rules, "    expr: {expr:?}");
    if chance.percent(60) {
        let _ = writeln!(rules, "    for: {}", chance.pick(&["0s", "1m", "90s", "2m", "3m"]));
    }
    if chance.percent(50) {
        let _ = writeln!(rules, "    keep_firing_for: {}", chance.pick(&["1m", "90s", "2m", "4m"]));
    }
    if chance.percent(60) {
        let texts =
            ["page", "{{ $value }}", "{{ $labels.i }}x", "{{ if gt $value 1.0 }}hi{{ else }}lo{{ end }}", ""];
        let _ = writeln!(rules, "    labels: {{sev: {:?}}}", chance.pick(&texts));
    }
    if chance.percent(60) {
        let texts = [
            "{{ $value }}",
            "{{ $labels }}",
            "{{ query `sum(x)` | first | value }}",
            "{{ humanize $value }}",
            "{{ range query `x` | sortByLabel `i` }}{{ .Value }},{{ end }}",
        ];
        let _ = writeln!(rules, "    annotations: {{a: {:?}}}", chance.pick(&texts));
    }
}

fn expression(chance: &mut Chance, names: &[String]) -> String {
    let (one, other) = (chance.pick(names).clone(), chance.pick(names).clone());
    match chance.below(20) {
        0 => one,
        1 => format!("sum by (job) ({one})"),
        2 => format!("{one} + on(i, job) {other}"),
        3 => format!("max({one})"),
        4 => format!("rate({one}[3m])"),
        5 => format!("{one} offset 1m"),
        6 => format!("absent({one}{{i='1'}})"),
        7 => format!("count by (i) ({one})"),
        8 => format!("{one} and on(i) {other}"),
        9 => "time()".into(),
        10 => "vector(1)".into(),
        11 => format!("{one} * 2"),
        12 => format!("{one} unless {other}"),
        13 => "count(ALERTS) by (alertname)".into(),
        14 => "sum(ALERTS_FOR_STATE)".into(),
        15 => format!("changes({one}[4m])"),
        16 => format!("{one} @ 120"),
        17 => format!("avg_over_time({one}[4m:1m])"),
        18 => "h".into(),
        _ => "histogram_count(sum(h))".into(),
    }
}

fn tests(chance: &mut Chance, groups: usize) -> String {
    let order: Vec<String> = (0..groups).map(|group| format!("g{group}")).collect();
    let mut tests = format!(
        "rule_files: [rules.yml]\ngroup_eval_order: [{}]\nevaluation_interval: {}\ntests:\n- interval: {}\n",
        order.join(", "),
        chance.pick(&["1m", "1m", "30s", "2m"]),
        chance.pick(&["1m", "30s"])
    );
    tests.push_str("  input_series:\n");
    for (name, place) in ["x", "y"].iter().flat_map(|name| ["1", "2", "3"].map(|place| (name, place))) {
        if chance.percent(70) {
            let (job, values) = (chance.pick(&["a", "b"]), values(chance));
            let _ = writeln!(
                tests,
                "  - {{series: '{name}{{i=\"{place}\",job=\"{job}\"}}', values: '{values}'}}"
            );
        }
    }
    let times = chance.between(2, 9);
    let _ = writeln!(
        tests,
        "  - {{series: 'h{{i=\"1\"}}', values: '{{{{sum:1 count:2 buckets:[1 1]}}}}+{{{{sum:1 count:1 \
         buckets:[0 1]}}}}x{times} stale'}}"
    );
    tests.push_str("  alert_rule_test:\n");
    for minute in 0..MINUTES {
        for (group, rule) in (0..groups).flat_map(|group| (0..4).map(move |rule| (group, rule))) {
            let _ = writeln!(tests, "  - {{eval_time: {minute}m, alertname: A{group}{rule}}}");
        }
    }
    tests.push_str("  promql_expr_test:\n");
    for minute in 0..MINUTES {
        for expr in ["{__name__=~\".+\"}", "timestamp({__name__=~\".+\"})"] {
            let _ = writeln!(tests, "  - {{expr: '{expr}', eval_time: {minute}m}}");
        }
    }
    tests
}

fn values(chance: &mut Chance) -> String {
    let items = 3 + chance.below(5);
    let item = |_| match chance.below(8) {
        0..3 => format!("{}x{}", chance.below(4), chance.below(4)),
        3..5 => format!("{}+{}x{}", chance.below(3), chance.below(3), 1 + chance.below(3)),
        5 => format!("_x{}", 1 + chance.below(7)),
        6 => "stale".into(),
        _ => (*chance.pick(&["0.5", "-1", "2.5", "NaN", "Inf"])).to_owned(),
    };
    (0..items).map(item).collect::<Vec<String>>().join(" ")
}
