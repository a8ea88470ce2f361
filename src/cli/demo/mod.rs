//! `promlet demo`: the same server with something to look at: a generated web shop and this machine's own metrics.

mod history;
mod shop;

use std::io::Write;
use std::time::Duration;

use anyhow::Context;

use super::progress;
use crate::clock::Clock;
use crate::config::Settings;
use crate::entropy::Entropy;
use crate::server::{Server, ServerError};
use crate::telemetry;

use history::Feed;

/// The demo's organisation.
const ORG: &str = "demo";
/// Its owner; nobody knows the password, the printed link signs in.
const EMAIL: &str = "demo@example.com";
/// How long the printed embed token lives: the longest that a key allows.
const TOKEN_TTL: Duration = Duration::from_secs(86_400);
/// Live metrics of the machine and of promlet: often enough that a page visibly moves.
const LIVE_PERIOD: Duration = Duration::from_secs(5);

/// What the sign-in link leads to: the last three hours of the slow end of every route, where the incident stands out.
const FIRST_LOOK: &str = "/?org=demo&range=3h&expr=histogram_quantile(0.95%2C%20sum%20by%20(le%2C%20route)%20\
                          (rate(shop_http_request_duration_seconds_bucket%5B5m%5D)))";

/// Questions whose answers tell the demo's story; each answers with data at once.
const QUESTIONS: [(&str, &str); 4] = [
    ("Requests a second, by route", "sum by (route) (rate(shop_http_requests_total[5m]))"),
    (
        "Slowest 5 % of checkouts, in seconds",
        "histogram_quantile(0.95, sum by (le) (rate(shop_http_request_duration_seconds_bucket{route=\"/checkout\"}[5m])))",
    ),
    (
        "Failed share two hours back to now, worst moment",
        "max_over_time((sum(rate(shop_http_requests_total{code=\"503\"}[5m])) / sum(rate(shop_http_requests_total[5m])))[2h:1m])",
    ),
    ("Memory of this machine in use", "host_memory_used_bytes / host_memory_total_bytes"),
];

/// Serves the demo until told to stop.
pub(super) fn run(settings: Settings) -> anyhow::Result<()> {
    telemetry::start(&settings.log, settings.log_format)?;
    let mut rng = Entropy::system();
    let mut server = match Server::open(settings, Clock::System, progress::start_line()) {
        Err(ServerError::Stopped) => return Ok(()),
        opened => opened.context("cannot open the data folder")?,
    };
    let demo = server.demo_account(EMAIL, ORG, &mut rng).context("cannot make the demo's account")?;
    let feed = Feed::start(server.tsdb(), demo.org, server.clock().now())
        .context("cannot generate the demo's history")?;
    server.keep_going("demo-shop", feed.period(), feed.into_tick())?;
    server.watch_this_machine(demo.org, LIVE_PERIOD);
    server.listen()?;
    let link =
        server.sign_in_link(demo.user, FIRST_LOOK, &mut rng).context("cannot make the sign-in link")?;
    let token = server.embed_token(demo.org, demo.key, TOKEN_TTL).context("cannot make the embed token")?;
    say(&server, &link, &token).context("cannot write to standard output")?;
    server.run().context("the server ended early")
}

/// The lines to paste, on standard output whether a terminal reads it or not.
fn say(server: &Server, link: &str, token: &str) -> std::io::Result<()> {
    let url = server.public_url();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "promlet demo · data {} · ready in {:.0} ms · Ctrl-C ends it",
        server.data_dir().display(),
        server.uptime_ms()
    )?;
    writeln!(out, "\nSign in, once:\n  {link}")?;
    writeln!(out, "\nEmbed token for 24 hours, reads all of `{ORG}`:\n  {token}")?;
    writeln!(
        out,
        "\nA page of another origin that embeds a chart:\n  cargo run --example embed_page -- {token} {url} {ORG}"
    )?;
    for (what, expr) in QUESTIONS {
        let quoted = expr.replace('\'', "'\\''");
        writeln!(out, "\n{what}:")?;
        writeln!(
            out,
            "curl -sG {url}/api/v1/orgs/{ORG}/query/expr-instant -H 'Authorization: Bearer {token}' --data-urlencode 'expr={quoted}'"
        )?;
    }
    writeln!(out)?;
    out.flush()
}
