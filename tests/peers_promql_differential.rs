//! Random queries on random data, sent to promlet and to a real Prometheus 3.5: the answers must be
//! the same.
//!
//! `PROMLET_DIFFERENTIAL_SEED` sets another seed than the default, `PROMLET_DIFFERENTIAL_QUERIES`
//! another number of queries. Differences are reported in their smallest form.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "differential/annotations.rs"]
mod annotations;
#[path = "differential/chance.rs"]
mod chance;
#[path = "differential/comparison.rs"]
mod comparison;
#[path = "differential/data.rs"]
mod data;
#[path = "differential/expressions.rs"]
#[expect(dead_code, reason = "what Prometheus 3.5 does not know is written by tests/promql/fuzz.rs")]
mod expressions;
#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "differential/histograms.rs"]
mod histograms;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;
#[path = "differential/servers.rs"]
mod servers;

use std::sync::Mutex;
use std::time::Duration;

use promlet::clock::Stopwatch;
use promlet::promql::syntax::tree::ValueType;

use chance::Chance;
use comparison::{Exactness, Order, difference};
use data::{BEGIN_MS, END_MS};
use expressions::{Grammar, Node, Range};
use servers::{EvalTimes, ServerPair};

/// When there are samples.
const DATA_RANGE: Range = Range { begin_ms: BEGIN_MS, end_ms: END_MS };

/// Time limit of the whole comparison, without the start of the servers.
const PATIENCE: Duration = Duration::from_secs(75);

/// Number of differences that are printed; the rest is only counted.
const TOLD_MAX: usize = 40;

/// Returns the number in the environment variable `name`, or `usual`.
#[expect(clippy::disallowed_methods, reason = "a manual run may choose the seed and the length")]
fn chosen(name: &str, usual: u64) -> u64 {
    std::env::var(name)
        .map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: no number")))
}

#[expect(clippy::disallowed_methods, reason = "a manual run may choose the queries")]
fn chosen_text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Prints both answers to each line, `TIME QUERY` or `START,END,STEP QUERY` in milliseconds.
fn ask_by_hand(pair: &ServerPair, questions: &str) {
    for line in questions.lines() {
        let (when, text) = line.split_once(' ').expect("a time and a query");
        let numbers: Vec<i64> = when.split(',').map(|ms| ms.parse().expect("milliseconds")).collect();
        let when = match numbers[..] {
            [start, end, step] => EvalTimes::From { start, end, step },
            _ => EvalTimes::At(numbers[0]),
        };
        println!("{line}\n  theirs {}", pair.prometheus(text, when).body);
        println!("  ours   {}", pair.promlet(text, when).body);
    }
}

#[test]
fn a_real_prometheus_gives_the_same_answers_with_names_removed_at_once() {
    compare(false);
}

#[test]
fn a_real_prometheus_gives_the_same_answers_with_names_removed_at_the_end() {
    compare(true);
}

#[test]
fn every_kind_of_remark_is_a_real_prometheus_own() {
    let pair = ServerPair::start(false);
    pair.write(&data::requests(data::generate(&mut Chance::new(chosen(
        "PROMLET_DIFFERENTIAL_SEED",
        20_261_121,
    )))));
    let wrong = annotations::compared(&pair);
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

fn compare(delayed_name_removal: bool) {
    let seed = chosen("PROMLET_DIFFERENTIAL_SEED", 20_261_121);
    let queries = chosen("PROMLET_DIFFERENTIAL_QUERIES", 2_000);
    println!("seed {seed}, {queries} queries");
    let mut chance = Chance::new(seed);
    let pair = ServerPair::start(delayed_name_removal);
    pair.write(&data::requests(data::generate(&mut chance)));

    if let Some(questions) = chosen_text("PROMLET_DIFFERENTIAL_ASK") {
        return ask_by_hand(&pair, &questions);
    }
    let begun = Stopwatch::start();
    let tally = Mutex::new(Tally::default());
    let patience = if queries > 2_000 { PATIENCE * 8 } else { PATIENCE };
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let mut chance = Chance::new(seed ^ (worker + 1) << 32);
            let (pair, tally, begun) = (&pair, &tally, &begun);
            scope.spawn(move || {
                for _ in 0..queries / 2 {
                    if begun.elapsed() > patience {
                        break;
                    }
                    one(pair, &mut chance, tally);
                }
            });
        }
    });
    let tally = tally.into_inner().expect("unpoisoned");
    println!("{tally:?}");
    assert!(tally.asked > 300 && tally.answered > tally.asked / 2, "too few were asked");
    assert!(tally.wrong.is_empty(), "seed {seed}: {}:\n{}", tally.wrong.len(), tally.wrong.join("\n"));
}

#[derive(Default)]
struct Tally {
    asked: usize,
    /// Not refused by both.
    answered: usize,
    /// Answered with something in it.
    filled: usize,
    wrong: Vec<String>,
}

impl std::fmt::Debug for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { asked, answered, filled, wrong } = self;
        write!(f, "{asked} asked, {answered} answered, {filled} of them not empty, {} wrong", wrong.len())
    }
}

fn one(pair: &ServerPair, chance: &mut Chance, tally: &Mutex<Tally>) {
    let when = if chance.percent(50) {
        EvalTimes::At(moment(chance))
    } else {
        let start = moment(chance);
        let step = *chance.pick(&[15_000, 30_000, 60_000, 7_000, 47_001, 300_000, 1_500]);
        EvalTimes::From { start, end: start + step * chance.between(0, 30), step }
    };
    let mut node = Grammar::shared(chance, DATA_RANGE).expression(matches!(when, EvalTimes::From { .. }));
    if chance.percent(8) {
        node.ill_typed(chance);
    }
    let (theirs, found) = asked(pair, &node, when);
    let smallest = found.map(|what| shrink(pair, node, when, what));
    let mut tally = tally.lock().expect("unpoisoned");
    tally.asked += 1;
    tally.answered += usize::from(theirs.status == 200);
    tally.filled +=
        usize::from(theirs.body["data"]["result"].as_array().is_some_and(|list| !list.is_empty()));
    if let Some((node, what)) = smallest {
        let text = format!("{when:?} {node}\n    {what}");
        if tally.wrong.len() < TOLD_MAX {
            println!("{text}");
        }
        tally.wrong.push(text);
    }
}

/// A time at which something may be there, on the grid of the samples or off it.
fn moment(chance: &mut Chance) -> i64 {
    let at = chance.between(BEGIN_MS - 100_000, END_MS + 200_000);
    match chance.below(3) {
        0 => at,
        1 => at / 1_000 * 1_000,
        _ => at / 60_000 * 60_000,
    }
}

fn asked(pair: &ServerPair, node: &Node, when: EvalTimes) -> (comparison::QueryResponse, Option<String>) {
    let text = node.to_string();
    let exactness = match &text {
        text if node.kind == ValueType::Matrix && expressions::has_histograms(text) => Exactness::Shape,
        text if expressions::differs_in_3_5(text) => Exactness::Shape,
        text if expressions::depends_on_library(text) => Exactness::Library,
        _ => Exactness::Bits,
    };
    let order = match when {
        EvalTimes::At(_) if text.starts_with("sort_by_label") && !pair.delayed_name_removal => Order::Labels,
        EvalTimes::At(_) if text.starts_with("sort") && exactness == Exactness::Bits => Order::Values,
        _ if pair.delayed_name_removal => Order::NothingNorNames,
        _ => Order::Nothing,
    };
    // Prometheus 3.5 reuses the memory of histograms while other queries read it; such differences
    // do not repeat. With delayed name removal it forgets at random which names to remove: it may
    // merge two series or return an error.
    let unsteady = expressions::has_histograms(&text) || pair.delayed_name_removal;
    let mut tries = if unsteady { 4 } else { 1 };
    let mut first: Option<comparison::QueryResponse> = None;
    loop {
        let (theirs, ours) = (pair.prometheus(&text, when), pair.promlet(&text, when));
        let mut found = difference(&theirs, &ours, exactness, order);
        // Our answer must be the same every time.
        let before = first.get_or_insert_with(|| ours.clone());
        if before.body != ours.body {
            found = Some(format!("ours, asked again: {} against {}", before.body, ours.body));
            tries = 1;
        }
        tries -= 1;
        if found.is_none() || tries == 0 {
            return (theirs, found);
        }
    }
}

/// Returns the smallest expression within `node` that still differs.
fn shrink(pair: &ServerPair, mut node: Node, when: EvalTimes, mut what: String) -> (Node, String) {
    let mut tries = 60;
    'smaller: loop {
        for less in node.smaller() {
            let allowed = matches!(less.kind, ValueType::Vector | ValueType::Scalar)
                || less.kind == ValueType::Matrix && matches!(when, EvalTimes::At(_));
            if !allowed {
                continue;
            }
            if tries == 0 {
                return (node, what);
            }
            tries -= 1;
            if let (_, Some(found)) = asked(pair, &less, when) {
                (node, what) = (less, found);
                continue 'smaller;
            }
        }
        return (node, what);
    }
}
