//! However a backfill is cut into requests, it writes the same samples.

use std::path::Path;
use std::sync::atomic::Ordering;

use proptest::sample::{Index, subsequence};

use super::*;
use crate::tsdb::tests::{Opened, open_with};
use crate::tsdb::{Disk, Faults, Options};

/// Returns the series that rules wrote.
fn written(tsdb: &Tsdb) -> StoredSeries {
    stored_series(tsdb, ORG, "{__name__=~\"[^x].*\"}")
}

/// Returns the values of the only series with this name: by second, `None` for a staleness marker.
fn values(tsdb: &Tsdb, name: &str) -> Vec<(i64, Option<f64>)> {
    let mut all = written(tsdb).into_iter().filter(|(labels, _)| labels.metric_name() == name);
    let (samples, further) = (all.next().map(|(_, samples)| samples).unwrap_or_default(), all.next());
    assert_eq!(further, None, "one series of {name}");
    let second = |ms: i64| ms / 1_000 - at(0).as_s();
    let value = |bits| Some(f64::from_bits(bits)).filter(|value| !is_stale(*value));
    samples.into_iter().map(|(ms, bits)| (second(ms), value(bits))).collect()
}

fn rules_of(texts: &[&str]) -> Vec<Rule> {
    texts.iter().map(|text| rule(text)).collect()
}

/// Writes the samples of a range in slices of at most `slice` steps.
fn request(
    tsdb: &Tsdb,
    rules: &[Rule],
    range: (i64, i64),
    slice: usize,
) -> Result<BackfillReport, ReplayError> {
    let settings = RuleSettings::default();
    let context = RuleContext::new(&settings, tsdb, ORG);
    let (group, now) = (RulePreviewGroup::default(), at(range.1));
    let mut backfill = Backfill::new(rules, &group, times(range.0, range.1), now).expect("recording");
    let mut all = BackfillReport::default();
    while backfill.next().is_some() {
        let report = backfill.run_slice(slice, context, now)?;
        (all.stored, all.refused) = (all.stored + report.stored, all.refused + report.refused);
    }
    Ok(all)
}

/// Returns what requests write for a metric `x` with these values, one each 10 s from 0 s on;
/// `None` ends the series.
fn requested(x: &[Option<f64>], rules: &[&str], requests: &[(i64, i64)]) -> Tsdb {
    let tsdb = Tsdb::scaffold();
    for (seconds, value) in (0..).step_by(10).zip(x) {
        put(&tsdb, "x", "a", seconds, value.unwrap_or_else(stale_nan));
    }
    for range in requests {
        request(&tsdb, &rules_of(rules), *range, usize::MAX).expect("written");
    }
    tsdb
}

/// Checks that requests write what one request writes, and returns that.
fn assert_cut(x: &[Option<f64>], rules: &[&str], requests: &[(i64, i64)]) -> Tsdb {
    let end = i64::try_from(x.len()).expect("small") * 10 - 10;
    let whole = requested(x, rules, &[(0, end)]);
    let cut = requested(x, rules, requests);
    assert_eq!(written(&cut), written(&whole), "{rules:?} in {requests:?}");
    whole
}

const ONE: Option<f64> = Some(1.0);
const TWO: Option<f64> = Some(2.0);
const THREE: Option<f64> = Some(3.0);

#[test]
fn a_rule_that_reads_its_own_samples_sees_none_of_an_earlier_run() {
    let counter = ["{record: y, expr: sum(y) + 1 or vector(1)}"];
    let whole = assert_cut(&[None; 5], &counter, &[(0, 40), (20, 40), (0, 10), (0, 40)]);
    let counted = [1.0, 2.0, 3.0, 4.0, 5.0].map(Some);
    assert_eq!(values(&whole, "y"), (0..).step_by(10).zip(counted).collect::<Vec<_>>());
}

#[test]
fn a_rule_sees_samples_of_a_later_rule_of_the_steps_before_only() {
    let rules = ["{record: u, expr: sum(v) or vector(0)}", "{record: v, expr: u + 1}"];
    let whole = assert_cut(&[None; 4], &rules, &[(0, 30), (0, 30), (20, 30)]);
    let counted = [0.0, 1.0, 2.0, 3.0].map(Some);
    assert_eq!(values(&whole, "u"), (0..).step_by(10).zip(counted).collect::<Vec<_>>());
}

/// Live evaluation has no later sample. The last one before it is visible for five minutes.
#[test]
fn a_rule_that_reads_ahead_sees_no_later_sample_of_its_group() {
    let x = [1.0, 2.0, 3.0, 4.0].map(Some);
    for ahead in
        ["y offset -10s", "y @ 1000020", "y offset -(5s + 5s)", "max_over_time(y[10s:10s] offset -10s)"]
    {
        let rules = ["{record: y, expr: x}", &format!("{{record: z, expr: '{ahead}'}}")];
        let whole = assert_cut(&x, &rules, &[(0, 10), (20, 30), (0, 20)]);
        let live = if ahead.contains('@') { [1.0, 2.0, 3.0, 3.0] } else { [1.0, 2.0, 3.0, 4.0] };
        assert_eq!(values(&whole, "z"), (0..).step_by(10).zip(live.map(Some)).collect::<Vec<_>>(), "{ahead}");
    }
}

#[test]
fn a_rule_between_the_writers_of_a_metric_sees_samples_of_the_first_at_its_own_time() {
    let rules = ["{record: y, expr: x == 1}", "{record: z, expr: count(y)}", "{record: y, expr: x == 2}"];
    let x = [ONE, ONE, TWO, TWO, ONE, THREE, TWO, THREE];
    let whole = assert_cut(&x, &rules, &[(0, 20), (0, 70), (0, 50), (0, 70)]);
    // The second writer begins at 20 s, where the marker of the first one ends the series.
    let ends = values(&whole, "y").into_iter().filter(|(_, value)| value.is_none());
    assert_eq!(ends.map(|(second, _)| second).next(), Some(20));
}

/// At each step, the series exists if it did not at the step before.
#[test]
fn a_request_ends_series_of_a_rule_that_reads_them() {
    let whole = assert_cut(&[ONE; 6], &["{record: y, expr: x unless y}"], &[(0, 0), (10, 20), (30, 50)]);
    let alternating = [ONE, None, ONE, None, ONE, None];
    assert_eq!(values(&whole, "y"), (0..).step_by(10).zip(alternating).collect::<Vec<_>>());
}

#[test]
fn a_request_ends_series_that_depend_on_samples_of_the_step_before() {
    let between = |z: &str| {
        let z = format!("{{record: z, expr: '{z}'}}");
        [
            "{record: y, expr: x == 1, labels: {by: f}}".to_owned(),
            z,
            "{record: y, expr: x == 2, labels: {by: l}}".to_owned(),
        ]
    };
    // The series of z exists at 20 s only because of the first rule's sample, the lack of a sample
    // of the last one, and the first one's marker.
    let cases = [
        ("max(y{by=\"f\"})", [THREE, THREE, ONE, THREE]),
        ("x unless on () y{by=\"l\"}", [THREE, THREE, TWO, TWO]),
        ("x unless on () y{by=\"f\"}", [ONE, ONE, THREE, ONE]),
    ];
    for (z, x) in cases {
        let rules = between(z);
        let whole = assert_cut(&x, &[&rules[0], &rules[1], &rules[2]], &[(0, 20), (30, 30)]);
        assert_eq!(values(&whole, "z").last(), Some(&(30, None)), "{z}");
    }
}

/// The value of the last rule at 20 s is refused, because the first one has ended the series.
#[test]
fn a_request_ends_a_series_whose_value_another_rule_has_replaced_by_a_marker() {
    let rules = ["{record: y, expr: x == 1}", "{record: z, expr: count(y)}", "{record: y, expr: x == 2}"];
    let whole = assert_cut(&[ONE, ONE, TWO, THREE], &rules, &[(0, 20), (30, 30)]);
    assert_eq!(values(&whole, "y")[2..], [(20, None), (30, None)]);
}

#[test]
fn a_series_that_was_not_written_does_not_end() {
    let x = [ONE, ONE, None, None];
    for rules in [&["{record: y, expr: x}"][..], &["{record: y, expr: x or y > 5}"]] {
        assert_eq!(values(&requested(&x, rules, &[(20, 30)]), "y"), []);
        // Another version of the rule has written a series that this one does not have.
        let tsdb = requested(&x, rules, &[]);
        put(&tsdb, "y", "old", 10, 1.0);
        request(&tsdb, &rules_of(rules), (20, 30), usize::MAX).expect("written");
        assert_eq!(values(&tsdb, "y"), [(10, ONE)]);
    }
}

#[test]
fn an_evaluation_of_the_step_before_that_fails_on_the_data_had_no_series_and_else_fails_again() {
    for expr in ["{record: y, expr: x > 5}", "{record: y, expr: x > 5 or y > 5}"] {
        let (tsdb, mut settings) = (Tsdb::scaffold(), RuleSettings::default());
        for job in 0..20 {
            put(&tsdb, "x", &job.to_string(), 0, 1.0);
            put(&tsdb, "x", &job.to_string(), 10, stale_nan());
        }
        put(&tsdb, "y", "old", 0, 1.0);
        settings.options.limits.samples_max = 10;
        let context = RuleContext::new(&settings, &tsdb, ORG);
        let run = |text: &str| {
            let group = RulePreviewGroup::default();
            let mut backfill =
                Backfill::new(&rules_of(&[text]), &group, times(10, 10), at(10)).expect("valid");
            backfill.run_slice(usize::MAX, context, at(10))
        };
        let error = run(expr).expect_err("too many samples");
        assert!(matches!(error, ReplayError::Evaluation { at: failed, .. } if failed == at(0)), "{error}");
        put(&tsdb, "w", "0", 0, 1.0);
        put(&tsdb, "w", "0", 10, stale_nan());
        let many = "w * on () (w == 1 or on (of) label_replace(w, \"of\", \"b\", \"\", \"\"))";
        let fails = expr.replace("x > 5", many).replace("expr: ", "expr: '").replace('}', "'}");
        assert_eq!(run(&fails), Ok(BackfillReport::default()), "{fails}");
        assert_eq!(values(&tsdb, "y"), [(0, ONE)]);
    }
}

/// The first rule has evaluated all steps of the slice when the last one fails.
#[test]
fn a_slice_that_is_cut_ends_the_series_of_the_step_before_it() {
    let x = [ONE, THREE, THREE, THREE, THREE, TWO, THREE];
    let fails = "{record: z, expr: 'sum(x) + on () group_left () (x == 2 or on (of) label_replace(x, \"of\", \"b\", \"\", \"\"))'}";
    for first in ["{record: y, expr: x == 1}", "{record: y, expr: x == 1 or y > 1}"] {
        let tsdb = requested(&x, &[first], &[(0, 0)]);
        let rules = rules_of(&[first, fails]);
        let settings = RuleSettings::default();
        let context = RuleContext::new(&settings, &tsdb, ORG);
        let group = RulePreviewGroup::default();
        let mut backfill = Backfill::new(&rules, &group, times(10, 60), at(60)).expect("recording");
        let limits = BackfillLimits { steps: usize::MAX, time: Duration::MAX };
        backfill.run(limits, context, at(60)).expect("steps before the failing one");
        assert_eq!(backfill.next(), Some(at(50)), "{first}");
        assert_eq!(values(&tsdb, "y")[..2], [(0, ONE), (10, None)], "{first}");
    }
}

/// Metrics and expressions of rules that read each other, themselves, and later samples.
const POOL: [(&str, &str); 15] = [
    ("y", "x > 2"),
    ("y", "x == 1"),
    ("y", "absent(x)"),
    ("z", "max by (job) (y) * 2"),
    ("z", "x offset 10s > x"),
    ("z", "max_over_time(sum by (job) (z)[40s:10s]) > 2 or x == 4"),
    ("u", "sum(v) or vector(1)"),
    ("v", "sum(y) + u"),
    ("w", "max by (job) (count_over_time(y[30s]))"),
    ("w", "sum by (job) (w) + 1 or x > 3"),
    ("p", "max by (job) (y offset -10s)"),
    ("p", "max by (job) (z @ 1000100)"),
    ("n", "count({__name__=~\"y|z|u|x\"})"),
    ("e", "x unless x @ end() > 2"),
    ("q", "max by (job) (x) unless max by (job) (y)"),
];

/// The rules at these places of the pool, each with a label of its own if `are_labelled`.
fn pooled(places: &[usize], are_labelled: bool) -> Vec<Rule> {
    let text = |place: &usize| {
        let (name, expr) = POOL[*place];
        let labels = if are_labelled { format!("{{by: r{place}}}") } else { "{}".to_owned() };
        rule(&format!("{{record: {name}, expr: '{expr}', labels: {labels}}}"))
    };
    places.iter().map(text).collect()
}

/// Values of `x` of two jobs, and of other series of the metrics of the pool.
#[derive(Clone, Debug)]
struct Inputs {
    rows: Vec<(u8, u8)>,
    /// The metric, the row or the time before the first one, and the value.
    others: Vec<(&'static str, Index, u8)>,
    /// Whether later samples of series of the rules exist.
    is_followed: bool,
}

impl Inputs {
    fn last(&self) -> i64 {
        i64::try_from(self.rows.len()).expect("small") * 10 - 10
    }

    /// Writes all samples. If rules may write the other series, these have none in the range.
    fn put(&self, tsdb: &Tsdb, may_rules_write_others: bool) {
        for (seconds, (a, b)) in (0..).step_by(10).zip(&self.rows) {
            for (job, value) in [("a", a), ("b", b)] {
                put(tsdb, "x", job, seconds, if *value == 0 { stale_nan() } else { f64::from(*value) });
            }
        }
        for (name, place, value) in &self.others {
            let rows = if may_rules_write_others { 0 } else { self.rows.len() };
            let row = i64::try_from(place.index(rows + 1)).expect("small") - 1;
            put(tsdb, name, "other", row * 10, f64::from(*value));
        }
        if self.is_followed {
            ["y", "z", "w"].iter().for_each(|name| put(tsdb, name, "a", self.last() + 10, 9.0));
        }
    }
}

fn inputs() -> impl Strategy<Value = Inputs> {
    let names = proptest::sample::select(&["y", "z", "w"][..]);
    let other = (names, any::<Index>(), 1..9u8);
    let rows = proptest::collection::vec((0..5u8, 0..5u8), 3..40);
    (rows, proptest::collection::vec(other, 0..4), any::<bool>())
        .prop_map(|(rows, others, is_followed)| Inputs { rows, others, is_followed })
}

fn places() -> impl Strategy<Value = Vec<usize>> {
    let all: Vec<usize> = (0..POOL.len()).collect();
    subsequence(all, 1..7).prop_flat_map(|places| Just(places).prop_shuffle())
}

/// A request of some steps.
#[derive(Clone, Copy, Debug)]
struct Cut {
    steps: i64,
    /// The number of steps that it repeats of the request before.
    overlap: i64,
    slice: usize,
    is_repeated: bool,
    /// After that many writes, the store fails. Then it is opened again and the request repeated.
    writes: Option<i64>,
    is_opened_again: bool,
}

fn cut() -> impl Strategy<Value = Cut> {
    let slice = prop_oneof![1..9usize, Just(usize::MAX)];
    let writes = proptest::option::weighted(0.3, 0..20i64);
    (1..15i64, 0..4i64, slice, any::<bool>(), writes, proptest::bool::weighted(0.3)).prop_map(
        |(steps, overlap, slice, is_repeated, writes, is_opened_again)| Cut {
            steps,
            overlap,
            slice,
            is_repeated,
            writes,
            is_opened_again,
        },
    )
}

struct Store<'d> {
    dir: &'d Path,
    open: Option<(Opened, Arc<Faults>)>,
}

impl Store<'_> {
    fn tsdb(&mut self) -> &(Opened, Arc<Faults>) {
        self.open.get_or_insert_with(|| {
            let faults = Arc::new(Faults::default());
            let options =
                Options { ahead_max: None, disk: Disk::Faulty(Arc::clone(&faults)), ..Options::default() };
            (open_with(self.dir, options).0, faults)
        })
    }

    fn close(&mut self) {
        self.open = None;
    }

    fn request(&mut self, rules: &[Rule], range: (i64, i64), cut: &Cut) {
        if let Some(writes) = cut.writes {
            let (tsdb, faults) = self.tsdb();
            faults.log_writes_left.store(writes, Ordering::SeqCst);
            let outcome = request(tsdb, rules, range, cut.slice);
            assert!(matches!(outcome, Ok(_) | Err(ReplayError::Store(_))), "{outcome:?}");
            self.close();
        }
        for _ in 0..1 + usize::from(cut.is_repeated) {
            request(&self.tsdb().0, rules, range, cut.slice).expect("written");
        }
        if cut.is_opened_again {
            self.close();
        }
    }
}

/// Returns what one request, and what several requests write. If `from_start`, each of these begins
/// with the first step.
fn one_and_several(inputs: &Inputs, rules: &[Rule], cuts: &[Cut], from_start: bool) -> [StoredSeries; 2] {
    let one = Tsdb::scaffold();
    inputs.put(&one, from_start);
    request(&one, rules, (0, inputs.last()), usize::MAX).expect("written");
    let dir = tempfile::tempdir().expect("a folder");
    let mut store = Store { dir: dir.path(), open: None };
    inputs.put(&store.tsdb().0, from_start);
    let mut next = 0;
    let rest = Cut {
        steps: 40,
        overlap: 0,
        slice: usize::MAX,
        is_repeated: false,
        writes: None,
        is_opened_again: false,
    };
    for cut in cuts.iter().chain([&rest]) {
        let end = (next + cut.steps * 10 - 10).min(inputs.last());
        let start = if from_start { 0 } else { (next - cut.overlap * 10).max(0) };
        if start <= end {
            store.request(rules, (start, end), cut);
            next = end + 10;
        }
    }
    [written(&one), written(&store.tsdb().0)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::model::effort::rounds(6, 256)))]

    #[test]
    fn requests_write_what_one_request_writes(
        inputs in inputs(), places in places(), cuts in proptest::collection::vec(cut(), 0..6),
    ) {
        let [one, several] = one_and_several(&inputs, &pooled(&places, true), &cuts, false);
        prop_assert_eq!(one, several);
    }

    /// Rules may write the series of others here. The store does not tell whose marker it has.
    #[test]
    fn requests_from_the_first_step_on_write_what_one_request_writes(
        inputs in inputs(), places in places(), cuts in proptest::collection::vec(cut(), 0..6),
    ) {
        let [one, several] = one_and_several(&inputs, &pooled(&places, false), &cuts, true);
        prop_assert_eq!(one, several);
    }
}
