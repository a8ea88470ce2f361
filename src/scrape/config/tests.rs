//! Tests of configurations: defaults, checks, positions and files.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::model::Labels;
use crate::outbound::PullAuth;
use crate::relabel::{RelabelAction, RelabelRules};
use crate::scrape::discovery::{DiscoveryConfig, DnsRecordType};

fn parse(text: &str) -> Result<ScrapeConfig, ScrapeConfigError> {
    ScrapeConfig::parse(text, &ScrapeFiles::Refused)
}

fn job(text: &str) -> ScrapeJob {
    let config = parse(text).unwrap_or_else(|error| panic!("{error}"));
    ScrapeJob::clone(config.jobs.first().expect("a job"))
}

fn error(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

#[test]
fn defaults_are_those_of_prometheus() {
    let job = job("scrape_configs:\n- job_name: a\n");
    assert_eq!((job.interval_ms, job.timeout_ms), (60_000, 10_000));
    assert_eq!((&*job.metrics_path, job.scheme), ("/metrics", ScrapeScheme::Http));
    assert!(job.honor_timestamps && !job.honor_labels && !job.track_timestamps_staleness);
    assert!(job.client.follow_redirects && job.enable_compression);
    assert_eq!(job.protocols, PROTOCOLS);
    assert_eq!((job.name_validation, job.name_escaping), (NameValidation::Utf8, NameEscaping::AllowUtf8));
    assert_eq!(job.limits, ScrapeLimits::default());
    assert_eq!(parse(""), Ok(ScrapeConfig::default()), "an empty file");
    assert_eq!(parse("scrape_configs:\n"), Ok(ScrapeConfig::default()), "an empty section");
}

#[test]
fn jobs_take_over_global_values_and_a_timeout_fits_the_interval() {
    let global = "global:\n  scrape_interval: 20s\n  scrape_timeout: 15s\n  sample_limit: 5\n  \
                  body_size_limit: 1MB\n  metric_name_validation_scheme: legacy\n  \
                  scrape_protocols: [PrometheusProto]\n";
    let job = |own: &str| job(&format!("{global}scrape_configs:\n- job_name: a\n{own}"));
    let plain = job("");
    assert_eq!((plain.interval_ms, plain.timeout_ms), (20_000, 15_000));
    assert_eq!((plain.limits.sample_limit, plain.limits.body_size_limit), (5, 1 << 20));
    assert_eq!(plain.protocols, [ScrapeProtocol::PrometheusProto]);
    assert_eq!(plain.name_escaping, NameEscaping::Underscores);
    let short = job("  scrape_interval: 5s\n");
    assert_eq!((short.interval_ms, short.timeout_ms), (5_000, 5_000));
    assert_eq!(job("  sample_limit: 7\n").limits.sample_limit, 7);
}

#[test]
fn a_complete_job_is_read() {
    let text = r#"
global:
  external_labels: {region: eu}
scrape_configs:
- job_name: web
  honor_labels: true
  honor_timestamps: false
  track_timestamps_staleness: true
  scrape_interval: 1m30s
  scrape_timeout: 1m
  metrics_path: /probe
  scheme: https
  params: {module: [http_2xx], b: [x, y]}
  fallback_scrape_protocol: PrometheusText0.0.4
  always_scrape_classic_histograms: true
  basic_auth: {username: me, password: "sesame: open"}
  tls_config: {insecure_skip_verify: true, server_name: web.example, min_version: TLS12}
  http_headers: {X-Scope: {values: [a], secrets: [b]}}
  follow_redirects: false
  enable_http2: true
  static_configs:
  - targets: ['a:1', "[::1]:2"]
    labels: {zone: 1, __meta_x: y}
  file_sd_configs: []
  http_sd_configs:
  - url: https://sd.example/targets?a=b
    refresh_interval: 10s
    authorization: {credentials: token}
  dns_sd_configs:
  - names: [_web._tcp.example.com]
  - {names: [web.example.com], type: a, port: 80}
  relabel_configs:
  - {source_labels: [__address__], target_label: x, action: Replace}
  - {regex: zone, action: labeldrop}
  metric_relabel_configs:
  - {source_labels: [__name__], regex: 'go_.*', action: drop}
"#;
    let config = parse(text).expect("valid");
    assert_eq!(config.external_labels.to_string(), r#"{region="eu"}"#);
    let job = config.jobs.first().expect("a job");
    assert_eq!((job.interval_ms, job.timeout_ms), (90_000, 60_000));
    assert_eq!(
        job.params,
        [("b".into(), vec!["x".into(), "y".into()]), ("module".into(), vec!["http_2xx".into()])]
    );
    assert!(matches!(&job.client.auth, PullAuth::Basic { username, .. } if username == "me"));
    assert!(job.client.accepts_any_certificate && !job.client.follow_redirects);
    assert_eq!(job.client.headers.len(), 2);
    assert_eq!(
        job.relabel.source.iter().map(|rule| rule.action).collect::<Vec<_>>(),
        [RelabelAction::Replace, RelabelAction::LabelDrop]
    );
    assert_eq!(job.metric_relabel.source.len(), 1);
    let [
        DiscoveryConfig::Static(fixed),
        DiscoveryConfig::Http(http),
        DiscoveryConfig::Dns(srv),
        DiscoveryConfig::Dns(a),
    ] = job.discoveries.as_slice()
    else {
        panic!("{:?}", job.discoveries)
    };
    assert_eq!(fixed.groups[0].targets, ["a:1", "[::1]:2"]);
    assert_eq!(http.refresh_interval_ms, 10_000);
    assert_eq!((srv.record, srv.refresh_interval_ms), (DnsRecordType::Srv, 30_000));
    assert_eq!((a.record, a.port), (DnsRecordType::A, 80));
    let shown = format!("{config:?}");
    assert!(!shown.contains("sesame") && !shown.contains("token\""), "secrets are never printed");
}

#[test]
fn keys_of_prometheus_that_have_no_effect_are_reported() {
    let text = "global: {evaluation_interval: 1m}\nrule_files: [a.yml]\nalerting:\n  alertmanagers: []\n\
                remote_write:\n- url: http://x\nstorage: {tsdb: {}}\ntracing: {a: b}\notlp: {}\n\
                remote_read: []\nruntime: {gogc: 75}\nscrape_configs:\n- job_name: a\n";
    let notices = parse(text).expect("valid").notices;
    let keys =
        ["runtime", "rule_files", "alerting", "remote_write", "remote_read", "storage", "tracing", "otlp"];
    for key in keys.into_iter().chain(["global.evaluation_interval"]) {
        assert!(notices.iter().any(|notice| notice.starts_with(&format!("{key}: "))), "{key}: {notices:?}");
    }
    let of_rules = notices.iter().find(|notice| notice.starts_with("rule_files: "));
    assert!(of_rules.is_some_and(|notice| notice.contains("--rules")), "{of_rules:?}");
}

#[test]
fn the_conversion_of_classic_histograms_is_reported_as_without_effect() {
    let text = |value: bool| {
        format!(
            "global: {{convert_classic_histograms_to_nhcb: {value}}}\nscrape_configs:\n- job_name: a\n  \
             convert_classic_histograms_to_nhcb: {value}\n"
        )
    };
    let notices = parse(&text(true)).expect("valid").notices;
    let starts =
        ["global.convert_classic_histograms_to_nhcb: ", "job \"a\": convert_classic_histograms_to_nhcb has"];
    assert!(
        notices.len() == 2 && notices.iter().zip(starts).all(|(notice, start)| notice.starts_with(start)),
        "{notices:?}"
    );
    assert!(parse(&text(false)).expect("valid").notices.is_empty());
}

#[test]
fn wrong_configurations_are_refused_with_line_and_column() {
    let own = |key: &str| format!("scrape_configs:\n- job_name: a\n  {key}\n");
    for (text, expected) in [
        (
            "scrape_config: []\n".to_owned(),
            "line 1, column 1: unknown key \"scrape_config\"; did you mean \"scrape_configs\"?",
        ),
        (
            own("scrap_interval: 1m"),
            "line 3, column 3: unknown key \"scrap_interval\"; did you mean \"scrape_interval\"?",
        ),
        (own("scrape_interval: 1x"), "line 3, column 20: not a valid duration string"),
        (
            own("scrape_timeout: 2m"),
            "line 3, column 19: scrape timeout greater than scrape interval (2m > 1m)",
        ),
        (own("proxy_url: http://p"), "line 3, column 14: proxy_url is not supported"),
        (
            own("kubernetes_sd_configs: [{role: pod}]"),
            "line 3, column 26: job \"a\": kubernetes_sd_configs is not supported",
        ),
        (own("scheme: ftp"), "line 3, column 11: unknown scheme \"ftp\""),
        (own("body_size_limit: 10"), "line 3, column 20: \"10\" is not a size"),
        (own("scrape_protocols: []"), "scrape_protocols cannot be empty"),
        (own("scrape_protocols: [PrometheusProto, PrometheusProto]"), "duplicated protocol"),
        (own("scrape_protocols: [PrometheusText0.0.3]"), "did you mean \"PrometheusText0.0.4\"?"),
        (own("bearer_token: a\n  basic_auth: {username: b}"), "at most one of basic_auth"),
        (own("basic_auth: {username: a, username_file: b}"), "at most one of username and username_file"),
        (own("authorization: {type: Basic}"), "use \"basic_auth\" instead"),
        (
            own("basic_auth: {password_file: secret}"),
            "line 3, column 15: a configuration that is set by the API may not name local files",
        ),
        (own("tls_config: {ca_file: /etc/passwd}"), "may not name local files"),
        (own("file_sd_configs: [{files: [a.json]}]"), "may not name local files"),
        ("scrape_config_files: [a.yml]\n".to_owned(), "may not name local files"),
        (own("file_sd_configs: [{files: [a.txt]}]"), "is not valid for file discovery"),
        (own("file_sd_configs: [{files: ['a*/b.json']}]"), "is not valid for file discovery"),
        (own("tls_config: {cert: x}"), "a client certificate needs key"),
        (own("tls_config: {min_version: TLS9}"), "unknown TLS version"),
        (
            own("http_headers: {Authorization: {values: [a]}}"),
            "setting header \"authorization\" is not allowed",
        ),
        (own("http_sd_configs: [{url: 'ftp://a'}]"), "must begin with http:// or https://"),
        (own("http_sd_configs: [{}]"), "URL is missing"),
        (own("dns_sd_configs: [{names: [a], type: A}]"), "a port is required"),
        (own("dns_sd_configs: [{names: [a], type: TXT}]"), "unknown DNS-SD record type"),
        (own("static_configs: [{targets: ['http://a/b']}]"), "is not a valid hostname"),
        (
            own("static_configs:\n  - targets: [a]\n    label: {}"),
            "line 5, column 5: unknown key \"label\"; did you mean \"labels\"?",
        ),
        (own("relabel_configs:\n  - regex: '('\n    target_label: a"), "line 4, column 5: "),
        (
            own("relabel_configs: [{action: keeep}]"),
            "unknown relabel action \"keeep\"; did you mean \"keep\"?",
        ),
        (own("relabel_configs: [{}]"), "replace action requires 'target_label'"),
        (own("relabel_configs: [{action: hashmod, target_label: a}]"), "requires non-zero modulus"),
        (
            own("relabel_configs: [{action: labeldrop, target_label: a}]"),
            "labeldrop action requires only 'regex'",
        ),
        (own("relabel_configs: [null]"), "empty or null relabeling rule"),
        (
            own("metric_name_validation_scheme: legacy\n  metric_name_escaping_scheme: allow-utf-8"),
            "utf8 names requested",
        ),
        (own("metric_name_validation_scheme: legacy"), "utf8 names requested"),
        (
            "global: {metric_name_validation_scheme: legacy, metric_name_escaping_scheme: allow-utf-8}\n\
             scrape_configs:\n- job_name: a\n"
                .to_owned(),
            "line 3, column 13: utf8 names requested",
        ),
        ("scrape_configs:\n- {}\n".to_owned(), "line 2, column 3: job_name is empty"),
        ("scrape_configs: [null]\n".to_owned(), "empty or null scrape config section"),
        (
            "scrape_configs:\n- job_name: a\n- job_name: a\n".to_owned(),
            "line 3, column 13: found multiple scrape configs with job name \"a\"",
        ),
        (
            "global: {scrape_interval: 5s, scrape_timeout: 10s}\n".to_owned(),
            "global scrape timeout greater than scrape interval",
        ),
        ("global: {external_labels: {'': a}}\n".to_owned(), "is not a valid label name"),
    ] {
        let error = error(&text);
        assert!(error.starts_with("line ") && error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn what_has_no_effect_in_an_action_is_accepted_as_in_prometheus() {
    let job = job("scrape_configs:\n- job_name: a\n  relabel_configs:\n  \
                   - {source_labels: [a], regex: b, action: keep, target_label: c, modulus: 3}\n");
    let rule = job.relabel.source.first().expect("a rule");
    assert_eq!((rule.target_label.as_str(), rule.modulus), ("", 0));
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("created");
    std::fs::write(path, text).expect("written");
}

#[test]
fn relative_paths_begin_at_the_folder_of_the_file_that_names_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "scrape_config_files: ['more/*.yml']\nscrape_configs:\n- job_name: a\n  \
                basic_auth: {username: me, password_file: secret}\n  file_sd_configs: [{files: ['sd/*.json']}]\n";
    write(folder.path(), "prometheus.yml", text);
    write(folder.path(), "secret", "first\n");
    write(folder.path(), "more/secret", "second");
    write(folder.path(), "more/b.yml", "scrape_configs:\n- {job_name: b, bearer_token_file: secret}\n");
    let path = folder.path().join("prometheus.yml");
    let config = ScrapeConfig::read(&path).unwrap_or_else(|error| panic!("{error}"));
    let [a, b] = config.jobs.as_slice() else { panic!("two jobs") };
    assert!(matches!(&a.client.auth, PullAuth::Basic { password, .. } if password.reveal() == "first"));
    let PullAuth::Authorization { scheme, credentials } = &b.client.auth else { panic!("a token") };
    assert_eq!((scheme.as_str(), credentials.reveal()), ("Bearer", "second"));
    let [DiscoveryConfig::File(files)] = a.discoveries.as_slice() else { panic!("files") };
    assert_eq!(files.files, [folder.path().join("sd/*.json")]);

    write(folder.path(), "secret", "changed");
    let again = ScrapeConfig::read(&path).expect("valid");
    assert_ne!(again.jobs[0], config.jobs[0], "secrets are read again");
    write(folder.path(), "more/b.yml", "scrape_configs:\n- {job_name: b, x: 1}\n");
    let error = ScrapeConfig::read(&path).expect_err("wrong");
    assert_eq!(error.file, Some(folder.path().join("more/b.yml")));
    assert!(error.to_string().contains("more/b.yml: line 2, column 17: unknown key \"x\""), "{error}");
    std::fs::remove_file(folder.path().join("secret")).expect("removed");
    let error = ScrapeConfig::read(&path).expect_err("wrong").to_string();
    assert!(error.contains("prometheus.yml: line 4, column 15: cannot read"), "{error}");
}

#[test]
fn a_file_that_is_too_large_or_no_file_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(ScrapeConfig::read(folder.path()).expect_err("a folder").to_string().contains("regular file"));
    let path = folder.path().join("large.yml");
    std::fs::write(&path, vec![b' '; SCRAPE_FILE_BYTES_MAX + 1]).expect("written");
    assert!(ScrapeConfig::read(&path).expect_err("large").to_string().contains("more than 10485760 bytes"));
}

proptest! {
    #[test]
    fn any_text_is_a_configuration_or_refused(
        text in "(?s)(global|scrape_configs|job_name|static_configs|targets|relabel_configs|[\\-:&*!|>'\"#\\[\\]{}, \n\ta-c0-9]){0,60}"
    ) {
        let _ = parse(&text);
    }
}

#[test]
fn an_agent_adds_external_labels_but_no_metric_name_and_reports_variables() {
    let text = "global: {external_labels: {__name__: x, region: eu, host: '${HOST}'}}\nscrape_configs:\n- job_name: a\n- job_name: b\n";
    let config = ScrapeConfig::parse(text, &ScrapeFiles::Refused).expect("valid");
    assert!(
        config.notices.is_empty() && config.jobs.iter().all(|job| *job.agent_relabel == Default::default())
    );
    let rule = serde_json::from_str(r#"{"regex": "pod", "action": "labeldrop"}"#).expect("a rule");
    let rules = RelabelRules::parse(&[rule]).expect("valid");
    let changed = config.clone().for_agent(&rules);
    let expected = Labels::from_pairs([("region", "eu"), ("host", "${HOST}")]);
    for job in &changed.jobs {
        assert_eq!((&job.agent_relabel.external_labels, &job.agent_relabel.rules), (&expected, &rules));
    }
    assert!(matches!(&changed.notices[..], [notice] if notice.contains("\"host\"")), "{:?}", changed.notices);
    // A reload compares jobs.
    assert!(changed.jobs != config.jobs && changed.jobs == config.clone().for_agent(&rules).jobs);
    assert!(changed.jobs != config.for_agent(&RelabelRules::default()).jobs);
}
