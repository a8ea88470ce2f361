//! The first chart of another origin: `cargo bench --features peers --bench first_chart [-- ROUNDS
//! [polled]]`.
//!
//! Starts the built server with five counters, every 15 s for more than an hour. A page of another
//! origin has one `<metric-chart>` of their rates. Chromium, once it has come to rest, opens the
//! page ROUNDS (15) times in a fresh context (cold), and again in the same context (warm). Prints
//! the times since the page requested `embed.js`, and the requests and bytes of another cold and
//! warm view. `polled` adds cold views whose page the driver asks in each frame whether the chart
//! is drawn: they show what the measurement costs.
//!
//! Fails if a view has no drawn chart with five lines.

#![expect(clippy::panic, reason = "a bench that cannot continue panics with the reason")]

#[path = "common/arguments.rs"]
mod arguments;
#[path = "../tests/peers/chromium.rs"]
#[expect(dead_code, reason = "shared: only the browser tests drive scenarios")]
mod chromium;
#[path = "common/embed_token.rs"]
mod embed_token;
#[path = "../tests/binary/harness.rs"]
#[expect(dead_code, reason = "the tests of the binary use the rest")]
mod harness;
#[path = "common/median.rs"]
mod median;
#[path = "../tests/peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;
#[path = "common/timed_page.rs"]
mod timed_page;

use promlet::clock::Clock;
use promlet::entropy::Entropy;
use promlet::model::{Labels, Sample};
use serde_json::{Value as Json, json};

use arguments::{arguments, number};
use embed_token::embed_token;
use harness::{ORG, Server};
use median::median;
use timed_page::time_page;

/// The lines of the chart.
const ROUTES: [&str; 5] = ["/", "/cart", "/checkout", "/products", "/search"];
/// The time between two samples of a series.
const INTERVAL_MS: i64 = 15_000;
/// The hour of the chart, and the window of the first rate.
const HISTORY_MS: i64 = 65 * 60_000;
/// The greatest growth of a counter between two samples.
const GROWTH_MAX: f64 = 600.0;
/// The goals of a cold view, and the requests of a warm one.
const COLD_GOAL: &str = "goals: 150 ms, 3 requests, 25000 bytes";
const WARM_GOAL: &str = "goal: 1 request";
/// The times of a view, in the order in which they occur.
const MOMENTS: [(&str, &str); 4] = [
    ("arrived", "script arrived"),
    ("sent", "query sent"),
    ("answered", "query answered"),
    ("drawn", "drawn"),
];

/// Returns the counters, with their last samples now. Their growth is the same in each run.
fn counters() -> Vec<(Labels, Vec<Sample>)> {
    let end = Clock::System.now();
    let mut chance = Entropy::seeded(1);
    let mut counter = |route| {
        let labels = Labels::from_pairs([("__name__", "shop_http_requests_total"), ("route", route)]);
        let mut value = 0.0;
        let samples = (0..=HISTORY_MS / INTERVAL_MS).map(|at| {
            value += (GROWTH_MAX * chance.unit()).round();
            Sample { at: end.plus_ms(at * INTERVAL_MS - HISTORY_MS), value }
        });
        let samples = samples.collect();
        (labels, samples)
    };
    ROUTES.into_iter().map(&mut counter).collect()
}

/// Prints the least, the median and the greatest of some times.
fn print_row(name: &str, ms: &[f64]) {
    let least = ms.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = ms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    println!("  {name:<32} {least:>8.1} {:>8.1} {greatest:>8.1}", median(ms));
}

/// Prints the times of views.
fn print_views(views: &[Json]) {
    let times = |name: &str| -> Vec<f64> {
        views.iter().map(|view| view[name].as_f64().expect("milliseconds")).collect()
    };
    for (name, title) in MOMENTS {
        print_row(title, &times(name));
    }
    let (arrived, drawn) = (times("arrived"), times("drawn"));
    let after: Vec<f64> = drawn.iter().zip(arrived).map(|(drawn, arrived)| drawn - arrived).collect();
    print_row("drawn, since the script arrived", &after);
}

fn main() {
    let args = arguments();
    let rounds = number(&args, 0, 15_usize);
    let polled = match args.get(1).map(String::as_str) {
        None => false,
        Some("polled") => true,
        Some(other) => panic!("{other:?} is not `polled`"),
    };
    assert!(rounds > 0, "there is nothing to measure");
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::serve(dir.path());
    let (_, secret) = server.api_key(&server.sign_in());
    let written = server.write(&secret, &counters());
    assert_eq!(written.status, 204, "{}", written.body);

    let more = json!({
        "server": server.url,
        "org": ORG,
        "token": embed_token(&server, &secret, &json!({})),
        "series": ROUTES.len(),
        "rounds": rounds,
        "polled": polled,
    });
    let measured = time_page("first_chart.mjs", &more);
    println!("{:<34} {:>8} {:>8} {:>8}", "ms since the request of embed.js", "min", "median", "max");
    for (kind, goal) in [("cold", COLD_GOAL), ("warm", WARM_GOAL)] {
        let traffic = &measured["traffic"][kind];
        println!("{kind}: {} requests, {} bytes ({goal})", traffic["requests"], traffic["bytes"]);
        print_views(measured["views"][kind].as_array().expect("views"));
    }
    if let Some(views) = measured["views"]["polled"].as_array() {
        println!("cold, polled in each frame");
        print_views(views);
    }
}
