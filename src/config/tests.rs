//! Settings from command lines.

use super::*;
use crate::tsdb::Durability;

/// Parses the settings of a command line.
pub(crate) fn parse(args: &[&str]) -> Result<Settings, String> {
    let line = CommandLine::try_parse_from([&["promlet"], args].concat()).map_err(|e| e.to_string())?;
    let flags = match line.command {
        None => line.flags,
        Some(Command::Serve(flags) | Command::Demo(flags)) => *flags,
        Some(_) => return Err("not a command that serves".to_owned()),
    };
    let mut settings = settings(flags, "data/store").map_err(|e| e.to_string())?;
    // Warnings about variables of the test run are dropped; `variables` has its own tests.
    settings.warnings.retain(|warning| !warning.contains("is set but is not a setting"));
    Ok(settings)
}

#[test]
fn a_temporary_folder_that_an_earlier_process_left_is_not_used() {
    let left = scratch();
    std::fs::create_dir(&left).expect("created");
    let other = scratch();
    std::fs::remove_dir(&left).expect("removed");
    assert_ne!(other, left);
}

#[test]
fn a_bare_promlet_serves_on_loopback_from_data_store() {
    let settings = parse(&[]).expect("defaults are valid");
    assert_eq!(settings.listen.to_string(), "127.0.0.1:8095");
    assert_eq!(settings.data_dir, PathBuf::from("data/store"));
    assert_eq!(settings.rate_cabinet_rps, 60);
    assert_eq!(settings.rate_embed_default_rps, 100);
    assert_eq!(settings.retention, Some(Duration::from_secs(90 * 86_400)));
}

#[test]
fn retention_is_a_duration_or_none() {
    let kept = |text: &str| parse(&["--retention", text]).map(|settings| settings.retention);
    assert_eq!(kept("none"), Ok(None));
    assert_eq!(kept("1y"), Ok(Some(Duration::from_secs(365 * 86_400))));
}

#[test]
fn flags_work_with_and_without_the_command() {
    for args in [
        &["--listen", "127.0.0.1:1"][..],
        &["serve", "--listen", "127.0.0.1:1"],
        &["demo", "--listen", "127.0.0.1:1"],
    ] {
        assert_eq!(parse(args).expect("valid").listen.port(), 1, "{args:?}");
    }
}

#[test]
fn samples_are_acknowledged_once_synced_or_written() {
    assert_eq!(parse(&[]).expect("valid").durability, Durability::Synced);
    let found = parse(&["--durability", "interval:1s"]).expect("valid").durability;
    assert_eq!(found, Durability::Interval(Duration::from_secs(1)));
}

#[test]
fn the_metrics_of_the_server_are_stored_by_default_where_they_harm_nothing() {
    let mode = |args: &[&str]| parse(args).map(|settings| settings.scrape.itself);
    assert_eq!(mode(&[]), Ok(SelfScrapeMode::Auto));
    for (text, expected) in
        [("off", SelfScrapeMode::Off), ("auto", SelfScrapeMode::Auto), ("on", SelfScrapeMode::On)]
    {
        assert_eq!(mode(&["--self-scrape", text]), Ok(expected));
    }
    assert!(mode(&["--self-scrape", "true"]).is_err());
}

#[test]
fn lists_are_split_at_commas() {
    let settings = parse(&["--trusted-proxies", "10.0.0.0/8, fd00::/8,"]).expect("valid");
    assert_eq!(settings.trusted_proxies, ["10.0.0.0/8", "fd00::/8"]);
    let settings = parse(&["--outbound-allow", "10.0.0.0/8, mimir:9009"]).expect("allowed");
    assert_eq!(settings.outbound_allow, EgressRules::parse(["10.0.0.0/8", "mimir:9009"]).expect("rules"));
    let error = parse(&["--outbound-allow", "http://mimir"]).expect_err("a URL");
    assert!(error.to_string().contains("--outbound-allow"), "{error}");
}

#[test]
fn invalid_and_contradicting_settings_are_refused_with_a_reason() {
    let cases = [
        (&["--durability", "fast"][..], "synced"),
        (&["--durability", "interval:99ms"], "100ms to 5s"),
        (&["--durability", "interval:6s"], "100ms to 5s"),
        (&["--argon2", "1,1"], "three numbers"),
        (&["--argon2", "9,1,2"], "8 a lane"),
        (&["--query-timeout", "0s"], "more than zero"),
        (&["--retention", "0"], "more than zero"),
        (&["--expiry-grace", "73h"], "from 0s to 72h"),
        (&["--retention", "90"], "valid duration"),
        (&["--retention", "90s"], "an hour at least"),
        (&["--retention", "ever"], "invalid value"),
        (&["--mailer", "smtp"], "PROMLET_SMTP_URL"),
        (&["--public-url", "ftp://x"], "http://"),
        (&["--public-url", "https://metrics.example.com"], "PROMLET_SMTP_URL"),
        (&["--magic-link-ttl", "59"], "60"),
        (&["--tls-cert", "a.pem"], "--tls-key"),
        (&["--tls-cert", "a", "--tls-key", "b", "--public-url", "http://a"], "begins with http://"),
        (&["--magic-link-ttl", "3601"], "3600"),
        (&["--argon2", "8,17,1"], "passes 1 to 16"),
        (&["--signup", "maybe"], "invalid value"),
        (&["--session-absolute-days", "36501"], "36500"),
        (&["--external-labels", "cluster"], "NAME=VALUE"),
        (&["--external-labels", "a=1,1a=2"], "\"1a\" cannot be the name"),
        (&["--external-labels", "a="], "no value"),
        (&["--external-labels", "a=1,b=2,a=1"], "a twice"),
    ];
    for (args, words) in cases {
        let error = parse(args).expect_err("refused");
        assert!(error.contains(words), "{args:?}: {error}");
    }
}

#[test]
fn an_unknown_feature_is_a_warning_and_the_others_are_enabled() {
    let args = ["--enable-feature", "no-such-thing,promql-experimental-functions,native-histograms"];
    let settings = parse(&args).expect("allowed");
    assert!(settings.switches.syntax.experimental_functions);
    let [warning] = &settings.warnings[..] else { panic!("one: {:?}", settings.warnings) };
    assert!(warning.contains("unknown feature \"no-such-thing\""), "{warning}");
}

#[test]
fn a_name_that_cannot_be_in_a_host_header_is_refused() {
    let args = ["--allowed-hosts", "Metrics.example.com, grafana.internal.,192.0.2.1,[2001:db8::1]"];
    let names = ["Metrics.example.com", "grafana.internal", "192.0.2.1", "[2001:db8::1]"];
    assert_eq!(parse(&args).expect("names").allowed_hosts, names);
    for wrong in
        ["*", "*.example.com", "https://example.com", "example.com:8095", "example.com/x", "[x]", "."]
    {
        let error = parse(&["--allowed-hosts", wrong]).expect_err(wrong);
        assert!(error.contains("PROMLET_ALLOWED_HOSTS") && error.contains(wrong), "{error}");
    }
}

#[test]
fn console_mail_is_allowed_for_this_machine_only() {
    for local in
        ["https://localhost:8095", "https://metrics.localhost", "https://127.0.0.1", "https://[::1]:8095"]
    {
        assert!(parse(&["--public-url", local]).is_ok(), "{local}");
    }
    for public in ["https://metrics.example.com", "https://[2001:db8::1]:8095", "https://192.0.2.1"] {
        assert!(parse(&["--public-url", public]).is_err(), "{public}");
    }
}

#[test]
fn sessions_are_extended_without_end_unless_days_are_set() {
    assert_eq!(parse(&[]).expect("valid").session_absolute, None);
    let days = parse(&["--session-absolute-days", "90"]).expect("valid").session_absolute;
    assert_eq!(days, Some(Duration::from_secs(90 * 86_400)));
}

#[test]
fn a_listener_beyond_loopback_without_https_is_a_warning() {
    assert!(parse(&["--listen", "0.0.0.0:8095"]).expect("allowed").warnings[0].contains("without https"));
}

#[test]
fn a_secret_never_prints_itself() {
    assert_eq!(format!("{:?}", SecretSetting::new("hunter2".into())), "***");
}
