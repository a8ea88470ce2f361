//! History in and out: `cargo bench --features peers --bench history [-- PART [SERIES [HOURS
//! [COPIES [SECONDS]]]]]`. PART is `copies`, `live` or `all`, which is the default.
//!
//! promtool makes blocks of SERIES series (5,000) with HOURS hours (12) of samples, one every 15 s.
//! The target folder keeps them. Large blocks have the same samples COPIES times (7), each with a
//! label of its own; promlet exports them from a store into which the blocks were imported so
//! often.
//!
//! * `copies`: time, CPU time and peak memory of `promlet import` into a stopped folder and into a
//!   running server, of `vmctl prometheus` into VictoriaMetrics, and of `promlet export`, in turns.
//!   Prometheus opens the exported blocks. Then the import of the large blocks into a stopped
//!   folder.
//! * `live`: the latency of queries and writes of a server while the large blocks are imported, and
//!   while the import is stopped, in slices of SECONDS (5).
//!
//! Fails if a sample is lost, or if an answer differs from that of a Prometheus on the blocks of
//! promtool. A missed goal is printed only, because other programs may use the processors. Times
//! are medians of [`TURNS`], or of all slices.

#![expect(clippy::panic, reason = "a bench that cannot continue panics with the reason")]

mod answers;
#[path = "../common/arguments.rs"]
mod arguments;
mod blocks;
mod copies;
#[path = "../common/cpu_time.rs"]
mod cpu_time;
#[path = "../compare/data.rs"]
mod data;
#[path = "../../tests/binary/harness.rs"]
#[expect(dead_code, reason = "the tests of the binary use the rest")]
mod harness;
mod live;
#[path = "../common/median.rs"]
mod median;
#[path = "../../tests/peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;
mod process;
#[path = "../common/sender.rs"]
#[expect(dead_code, reason = "shared with benches that send to other programs")]
mod sender;
#[path = "../../tests/peers/servers.rs"]
#[expect(dead_code, reason = "shared: each target needs other servers")]
mod servers;
mod stores;
mod table;

use arguments::{arguments, number};

/// The number of times that each copy is measured.
const TURNS: usize = 3;

fn main() {
    let args = arguments();
    let part = args.first().map_or("all", String::as_str);
    assert!(["copies", "live", "all"].contains(&part), "{part:?} is no part: copies, live or all");
    let (series, hours) = (number(&args, 1, 5_000), number(&args, 2, 12));
    let (copies, seconds) = (number(&args, 3, 7), number(&args, 4, 5));
    let blocks = blocks::of_promtool(series, hours);
    println!("blocks of promtool: {} samples; {copies} copies for the large blocks", blocks.samples);
    let dir = tempfile::tempdir().expect("a folder");
    if part != "live" {
        copies::measure(&blocks, dir.path());
    }
    let large = copies::measure_large(&blocks, copies, dir.path());
    if part != "copies" {
        live::measure(&large, seconds, dir.path());
    }
}
