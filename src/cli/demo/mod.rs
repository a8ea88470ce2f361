//! `promlet demo`: a server with sample data: a generated web shop and the metrics of this machine.

mod history;

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
/// The owner of the organisation. The password is random; the printed link signs in.
const EMAIL: &str = "demo@example.com";
/// The lifetime of the printed embed token, which is the longest that a key allows.
const TOKEN_TTL: Duration = Duration::from_secs(86_400);
/// The interval of live metrics of the machine and of promlet, short enough that a page visibly
/// moves.
const LIVE_PERIOD: Duration = Duration::from_secs(5);

/// The page that the sign-in link opens: the 95th percentile of each route over the last three
/// hours, where the incident stands out.
const FIRST_LOOK: &str = "/explore?org=demo&range=3h&expr=histogram_quantile(0.95%2C%20sum%20by%20(le%2C%20route)%20\
                          (rate(shop_http_request_duration_seconds_bucket%5B5m%5D)))";

/// The paths of the built-in dashboards among the files of the UI.
const BUILTIN_DASHBOARDS: [&str; 3] =
    ["/dashboards/shop.json", "/dashboards/host.json", "/dashboards/promlet.json"];

/// Example queries, each with a title. All return data at once.
const EXAMPLE_QUERIES: [(&str, &str); 4] = [
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

/// Serves the demo until the process receives a signal to stop.
pub(super) fn run(settings: Settings) -> anyhow::Result<()> {
    telemetry::start(&settings.log, settings.log_format)?;
    let mut rng = Entropy::system();
    let mut server = match Server::open(settings, Clock::System, progress::start_line()) {
        Err(ServerError::Stopped) => return Ok(()),
        opened => opened.context("cannot open the data folder")?,
    };
    let demo = server.demo_account(EMAIL, ORG, &mut rng).context("cannot create the demo's account")?;
    server.add_dashboards(demo.org, &BUILTIN_DASHBOARDS).context("cannot store the demo's dashboards")?;
    let feed = Feed::start(server.tsdb(), demo.org, server.clock().now())
        .context("cannot generate the demo's history")?;
    server.start_task("demo-shop", feed.period(), feed.into_tick())?;
    server.collect_live_metrics(demo.org, LIVE_PERIOD);
    server.listen()?;
    let link =
        server.sign_in_link(demo.user, FIRST_LOOK, &mut rng).context("cannot create the sign-in link")?;
    let token = server.embed_token(demo.org, demo.key, TOKEN_TTL).context("cannot mint the embed token")?;
    print_examples(&server, &link, &token).context("cannot write to standard output")?;
    server.run().context("the server ended early")
}

/// Prints the lines to paste on standard output, also if that is not a terminal.
fn print_examples(server: &Server, link: &str, token: &str) -> std::io::Result<()> {
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
    for (what, expr) in EXAMPLE_QUERIES {
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
