//! The bounds of the table, and the counts of a handle.

use serde_json::json;

use super::*;
use crate::identity::EmbedSettings;

const ORG: OrgId = OrgId(1);

fn uses() -> (Arc<EmbedUses>, Clock) {
    let clock = Clock::manual(Timestamp::from_s(1_700_000_000));
    (EmbedUses::new(&clock), clock)
}

fn key(org: OrgId, id: u32, seconds: Option<u32>) -> ApiKey {
    let mut bytes = [0; 10];
    bytes[..4].copy_from_slice(&id.to_be_bytes());
    let embed = EmbedSettings { query_seconds_per_minute: seconds, ..EmbedSettings::default() };
    ApiKey::for_tests(KeyId::from_bytes(bytes), org, embed)
}

/// A request of a server.
fn used_by(key: &ApiKey) -> EmbedUse<'_> {
    let client = "192.0.2.1".parse().expect("an address");
    EmbedUse { key, is_link: false, origin: None, dashboard: None, viewer: None, client }
}

fn record(uses: &Arc<EmbedUses>, clock: &Clock, key: &ApiKey, origin: &str) -> EmbedUsage {
    uses.record(EmbedUse { origin: Some(origin), ..used_by(key) }, clock.now())
}

#[test]
fn a_row_counts_requests_refusals_viewers_streams_time_and_samples() {
    let (uses, clock) = uses();
    let key = key(ORG, 1, None);
    let at = |viewer| {
        let (origin, dashboard) = (Some("https://a.example"), Some("node"));
        EmbedUse { origin, dashboard, viewer, ..used_by(&key) }
    };
    let first = uses.record(at(Some("ada")), clock.now());
    first.refused();
    first.add_samples(40);
    let (evaluation, since) = (first.begin(), Stopwatch::start());
    while since.elapsed() < Duration::from_micros(50) {}
    drop(evaluation);
    clock.advance(Duration::from_secs(1));
    let second = uses.record(at(None), clock.now());
    second.add_samples(2);
    let streams = [second.open_stream(), second.open_stream()];
    let rows = uses.rows(ORG, clock.now());
    let row = &rows[0];
    assert_eq!(rows.len(), 1);
    assert_eq!((row.origin.as_deref(), row.dashboard.as_deref()), (Some("https://a.example"), Some("node")));
    assert_eq!((row.requests, row.refused, row.samples), (2, 1, 42));
    assert_eq!((row.viewers, row.streams), (2, 2));
    assert_eq!((row.first_seen, row.last_seen), (uses.since(), clock.now()));
    assert!(row.evaluated > Duration::ZERO && row.evaluated == uses.totals().evaluated);
    assert_eq!(uses.evaluated_last_minute(key.id), row.evaluated);

    // The viewer of an open stream stays, the other one leaves.
    clock.advance(Duration::from_secs(600));
    let rows = uses.rows(ORG, clock.now());
    assert_eq!((rows[0].viewers, rows[0].streams, rows[0].last_seen), (1, 2, clock.now()));
    drop(streams);
    let (ended, rows) = (clock.now(), uses.rows(ORG, clock.now()));
    assert_eq!((rows[0].viewers, rows[0].streams), (1, 0));
    clock.advance(Duration::from_secs(301));
    assert_eq!(uses.rows(ORG, clock.now())[0].viewers, 0);
    assert!(uses.rows(ORG, clock.now())[0].last_seen < ended, "the last request");
    let totals = uses.totals();
    assert_eq!((uses.rows(ORG, clock.now())[0].streams, totals.streams), (0, 0));
    assert_eq!((totals.requests, totals.refused, totals.rows), (2, 1, 1));
}

#[test]
fn hostile_origins_displace_only_rows_of_their_own_key() {
    let (uses, clock) = uses();
    let (honest, hostile) = (key(ORG, 1, None), key(ORG, 2, None));
    record(&uses, &clock, &honest, "https://shop.example");
    for n in 0..10_000 {
        clock.advance(Duration::from_millis(1));
        record(&uses, &clock, &hostile, &format!("https://{n}.example"));
    }
    let rows = uses.rows(ORG, clock.now());
    assert_eq!(rows.len(), 1 + KEY_ROWS_MAX);
    assert_eq!(rows[0].origin.as_deref(), Some("https://9999.example"), "the newest first");
    assert_eq!(
        rows[KEY_ROWS_MAX].origin.as_deref(),
        Some("https://shop.example"),
        "the oldest is still there"
    );
    assert_eq!(uses.totals().rows, rows.len());
}

#[test]
fn many_keys_and_organisations_share_bounded_tables() {
    let (uses, clock) = uses();
    let other = OrgId(2);
    record(&uses, &clock, &key(other, 9, None), "https://quiet.example");
    let most = u32::try_from(ORG_ROWS_MAX).expect("a small number");
    for n in 0..most + 50 {
        clock.advance(Duration::from_millis(1));
        record(&uses, &clock, &key(ORG, n % 20, None), &format!("https://{n}.example"));
    }
    assert_eq!(uses.rows(ORG, clock.now()).len(), ORG_ROWS_MAX);
    for org in 3..40_u32 {
        for n in 0..most {
            record(&uses, &clock, &key(OrgId(org), n % 20, None), &format!("https://{n}.example"));
        }
    }
    assert!(uses.totals().rows <= ROWS_MAX, "{}", uses.totals().rows);
    assert_eq!(uses.rows(other, clock.now()).len(), 1, "the largest organisation makes room");
    let rows = uses.totals().rows;
    uses.forget(other);
    assert_eq!((uses.rows(other, clock.now()).len(), uses.totals().rows), (0, rows - 1));
}

#[test]
fn an_origin_that_is_none_is_not_shown() {
    let (uses, clock) = uses();
    let key = key(ORG, 1, None);
    let long = format!("https://{}.example", "x".repeat(300));
    for origin in ["<script>", "a b://c", long.as_str(), "", "http://\u{202e}evil"] {
        record(&uses, &clock, &key, origin);
    }
    record(&uses, &clock, &key, "null");
    uses.record(used_by(&key), clock.now());
    let origins: Vec<Option<String>> =
        uses.rows(ORG, clock.now()).into_iter().map(|row| row.origin.map(String::from)).collect();
    assert_eq!(origins.len(), 3, "{origins:?}");
    for origin in [Some(INVALID_ORIGIN.to_owned()), Some("null".into()), None] {
        assert!(origins.contains(&origin), "{origin:?} in {origins:?}");
    }
}

#[test]
fn a_used_up_budget_refuses_all_tokens_of_the_key_and_no_other() {
    let (uses, clock) = uses();
    let (busy, other, free) = (key(ORG, 1, Some(2)), key(ORG, 2, Some(2)), key(ORG, 3, None));
    let page = record(&uses, &clock, &busy, "https://a.example");
    let charge = |usage: &EmbedUsage, seconds: u64| {
        usage.budget.lock().ignore_poison().charge(seconds * 1_000_000, uses.ticker.now_us());
    };
    charge(&page, 1);
    assert!(page.admit().is_ok(), "half is left");
    charge(&page, 1);
    let refused = record(&uses, &clock, &busy, "https://b.example").admit().expect_err("used up");
    assert_eq!((refused.code(), refused.code().status().as_u16()), (Code::RateLimited, 429));
    let members = serde_json::Value::from(refused.line_members());
    assert_eq!((&members["scope"], &members["window_s"]), (&json!("embed_budget"), &json!(60)), "{members}");
    assert!(record(&uses, &clock, &other, "https://a.example").admit().is_ok());
    let unlimited = record(&uses, &clock, &free, "https://a.example");
    charge(&unlimited, 3_600);
    assert!(unlimited.admit().is_ok());
    uses.sweep();
    clock.advance(Duration::from_secs(59));
    assert!(page.admit().is_err(), "a sweep refunds nothing");
    clock.advance(Duration::from_secs(1));
    assert!(page.admit().is_ok(), "after a minute");
    assert_eq!(uses.totals().over_budget, 2);
    // A higher budget holds at once.
    charge(&page, 2);
    let raised = key(ORG, 1, Some(3));
    assert!(record(&uses, &clock, &raised, "https://a.example").admit().is_ok());
}
