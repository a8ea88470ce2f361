//! What growing beyond one machine costs: `cargo bench --features peers --bench outgrow [-- PART
//! [SERIES]]`. PART is `forward`, `upstream` or `standby`; without it, all three run. SERIES is
//! 10,000 unless given; each series has 240 samples.
//!
//! * `forward`: CPU time and peak memory of promlet while it stores samples, alone and while it
//!   forwards each of them to a receiver, and of a vmagent that forwards the same requests to the
//!   same receiver.
//! * `upstream`: time of a query that promlet passes to a Prometheus, and of the same query sent to
//!   the Prometheus itself, and to an nginx that passes everything on as it arrives.
//! * `standby`: samples per second of eight senders, alone and with a synchronous follower: once
//!   with all processes on the same processors, and once with each server on one of its own, as on
//!   two machines. The senders take a part of both.
//!
//! The receiver, vmagent, Prometheus and nginx run on loopback; the programs come from Debian. All
//! figures of a part alternate in one run, and the printed ones are medians of [`TURNS`].

#![expect(clippy::panic, reason = "a bench that cannot continue panics with the reason")]

#[path = "../common/arguments.rs"]
mod arguments;
#[path = "../common/cpu_time.rs"]
mod cpu_time;
#[path = "../compare/data.rs"]
#[expect(dead_code, reason = "shared with the comparison, which shows the number of series")]
mod data;
mod forward;
#[path = "../../tests/binary/harness.rs"]
#[expect(dead_code, reason = "the tests of the binary use the rest")]
mod harness;
#[path = "../common/median.rs"]
mod median;
#[path = "../../tests/peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;
#[path = "../common/receiver.rs"]
mod receiver;
#[path = "../common/sender.rs"]
mod sender;
#[path = "../../tests/peers/servers.rs"]
#[expect(dead_code, reason = "shared: each target needs other servers")]
mod servers;
mod standby;
mod upstream;

use promlet::clock::Clock;

use arguments::{arguments, number};
use data::{Data, ROUNDS};
use harness::remote_write;

/// The number of times that each figure is measured.
const TURNS: usize = 3;

/// The bodies of all requests, in the order of their times.
struct Bodies {
    all: Vec<Vec<u8>>,
    samples: usize,
}

impl Bodies {
    fn new(series: usize) -> Bodies {
        let mut data = Data::new(series, ROUNDS, Clock::System.now().plus_ms(-60_000));
        let mut bodies = Bodies { all: Vec::new(), samples: 0 };
        while let Some(requests) = data.round() {
            for series in requests {
                bodies.samples += series.len();
                bodies.all.push(remote_write(&series));
            }
        }
        bodies
    }
}

fn main() {
    let args = arguments();
    let part = args.first().map(String::as_str);
    let series = number(&args, 1, 10_000);
    let is_wanted = |name: &str| part.is_none_or(|part| part == name);
    assert!(
        ["forward", "upstream", "standby"].into_iter().any(is_wanted),
        "{part:?} is no part: forward, upstream or standby"
    );
    let bodies = Bodies::new(series);
    println!("{series} series, {} samples, {} requests", bodies.samples, bodies.all.len());
    if is_wanted("forward") {
        forward::measure(&bodies);
    }
    if is_wanted("upstream") {
        upstream::measure(&bodies);
    }
    if is_wanted("standby") {
        standby::measure(&bodies);
    }
}
