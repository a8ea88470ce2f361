//! The checked configuration of scraping: jobs with compiled rules and secrets read from files.

use std::sync::Arc;

use crate::model::{Labels, METRIC_NAME, TargetSecret};
use crate::outbound::{PullAuth, PullOptions};
use crate::relabel::RelabelRules;
use crate::scrape::discovery::DiscoveryConfig;

/// A configuration that was read and checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrapeConfig {
    /// The jobs, in the order of the file. Their names are unique.
    pub jobs: Vec<Arc<ScrapeJob>>,
    /// The labels that distinguish this process from others. They change the offsets of scrapes.
    /// An agent adds them to series ([`ScrapeConfig::for_agent`]).
    pub external_labels: Labels,
    /// Sentences about keys that have no effect here.
    pub notices: Vec<String>,
    /// The text without secrets, as it is shown to people.
    pub shown: Arc<str>,
}

impl ScrapeConfig {
    /// Adds the external labels, and then these rules, to the processing of each series. Variables
    /// of the environment in values of external labels are not replaced, and a notice says so.
    #[must_use]
    pub fn for_agent(mut self, rules: &RelabelRules) -> ScrapeConfig {
        // Each series has a metric name of its own.
        let external_labels = self.external_labels.filtered(|name| name != METRIC_NAME);
        let with_variable = external_labels.iter().find(|label| label.value.contains('$'));
        self.notices.extend(with_variable.map(|label| {
            let name = label.name;
            format!(
                "global.external_labels: the value of {name:?} is stored as it is; variables are not replaced"
            )
        }));
        let relabel = Arc::new(AgentRelabel { external_labels, rules: rules.clone() });
        for job in &mut self.jobs {
            Arc::make_mut(job).agent_relabel = Arc::clone(&relabel);
        }
        self
    }

    /// Returns all secrets of the configuration that are not empty.
    pub fn secrets(&self) -> Vec<String> {
        let discoveries = self.jobs.iter().flat_map(|job| &job.discoveries);
        let of_discoveries = discoveries.filter_map(|discovery| match discovery {
            DiscoveryConfig::Http(http) => Some(&http.client),
            DiscoveryConfig::Static(_) | DiscoveryConfig::File(_) | DiscoveryConfig::Dns(_) => None,
        });
        let clients = self.jobs.iter().map(|job| &job.client).chain(of_discoveries);
        let secrets = clients.flat_map(secrets_of).map(TargetSecret::reveal);
        secrets.filter(|secret| !secret.is_empty()).map(str::to_owned).collect()
    }
}

/// A job: targets that are scraped in the same manner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeJob {
    /// The name, which is the default of the label `job`; not empty.
    pub name: Arc<str>,
    /// The time from one scrape of a target to the next, in milliseconds, unless its labels set
    /// another one; at least 1.
    pub interval_ms: i64,
    /// The longest time of a scrape in milliseconds, unless the labels of the target set another
    /// one; from 1 to the interval, inclusive.
    pub timeout_ms: i64,
    /// The default path, such as `/metrics`.
    pub metrics_path: Arc<str>,
    /// The default scheme.
    pub scheme: ScrapeScheme,
    /// The parameters of the URL, sorted by name.
    pub params: Vec<(String, Vec<String>)>,
    /// Whether scraped labels win over those of the target. Otherwise they get the prefix
    /// `exported_`.
    pub honor_labels: bool,
    /// Whether timestamps of the exposition are used.
    pub honor_timestamps: bool,
    /// Whether samples with timestamps of the exposition become stale when they disappear.
    pub track_timestamps_staleness: bool,
    /// The limits.
    pub limits: ScrapeLimits,
    /// The requested formats, the preferred one first; not empty.
    pub protocols: Vec<ScrapeProtocol>,
    /// The format of responses whose `Content-Type` is absent or unknown. `None` fails the scrape.
    pub fallback_protocol: Option<ScrapeProtocol>,
    /// Whether classic buckets are stored in addition to native histograms of the same name.
    pub classic_histograms: bool,
    /// How names and labels outside of the classic character set are handled.
    pub name_validation: NameValidation,
    /// The requested escaping of names (`escaping` of the `Accept` header).
    pub name_escaping: NameEscaping,
    /// How requests are made. All files with secrets and certificates have been read.
    pub client: PullOptions,
    /// Whether compressed responses are requested.
    pub enable_compression: bool,
    /// The rules for the labels of scraped samples.
    pub metric_relabel: ScrapeRules,
    /// The rules for the labels of targets.
    pub relabel: ScrapeRules,
    /// The labels and rules of an agent; empty in a server.
    pub agent_relabel: Arc<AgentRelabel>,
    /// The discoveries of its targets.
    pub discoveries: Vec<DiscoveryConfig>,
}

/// The labels and rules that an agent applies to each series after the rules of its job, also to
/// the series about scrapes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentRelabel {
    /// The labels that a series gets if it has none of the same name, as Prometheus adds them to
    /// series that it sends by remote write.
    pub external_labels: Labels,
    /// The rules for the labels of all series that the agent stores.
    pub rules: RelabelRules,
}

/// Compiled relabelling rules, which are equal if their configurations are.
#[derive(Clone, Debug, Default)]
pub struct ScrapeRules {
    /// The rules as they are configured.
    pub source: Vec<crate::relabel::RelabelRule>,
    /// The compiled rules.
    pub compiled: RelabelRules,
}

impl PartialEq for ScrapeRules {
    fn eq(&self, other: &ScrapeRules) -> bool {
        self.source == other.source
    }
}

impl Eq for ScrapeRules {}

/// The limits of a job. Zero is no limit of the operator; promlet's own limits hold always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrapeLimits {
    /// The most samples of a scrape after relabelling, inclusive.
    pub sample_limit: u64,
    /// The most labels of a sample, inclusive, the metric name not counted as in Prometheus.
    pub label_limit: u64,
    /// The most bytes of a label name, inclusive.
    pub label_name_length_limit: u64,
    /// The most bytes of a label value, inclusive.
    pub label_value_length_limit: u64,
    /// The most targets of the job, inclusive. With more targets, each scrape of the job fails.
    pub target_limit: u64,
    /// The most bytes of a decompressed body, inclusive.
    pub body_size_limit: u64,
    /// The most buckets of a native histogram, inclusive. Its resolution is reduced to fit.
    pub native_histogram_bucket_limit: u64,
    /// The smallest growth factor of native histograms, in units of 1/1,000,000,000; zero for none.
    /// The resolution is reduced until the factor is reached.
    pub native_histogram_min_bucket_factor_e9: u64,
    /// The most dropped targets that are listed, inclusive.
    pub keep_dropped_targets: u64,
}

/// The scheme of a target's URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScrapeScheme {
    /// Without TLS.
    #[default]
    Http,
    /// With TLS.
    Https,
}

impl ScrapeScheme {
    /// Returns the word in a configuration and in URLs.
    pub const fn as_str(self) -> &'static str {
        match self {
            ScrapeScheme::Http => "http",
            ScrapeScheme::Https => "https",
        }
    }
}

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScrapeProtocol {
    /// Delimited protobuf messages, with native histograms.
    PrometheusProto,
    /// Text 0.0.4.
    PrometheusText004,
    /// Text 1.0.0, which allows quoted names.
    PrometheusText100,
    /// OpenMetrics 0.0.1.
    OpenMetrics001,
    /// OpenMetrics 1.0.0.
    OpenMetrics100,
}

impl ScrapeProtocol {
    /// All formats, by their names in a configuration.
    pub const ALL: [(&'static str, ScrapeProtocol); 5] = [
        ("PrometheusProto", ScrapeProtocol::PrometheusProto),
        ("PrometheusText0.0.4", ScrapeProtocol::PrometheusText004),
        ("PrometheusText1.0.0", ScrapeProtocol::PrometheusText100),
        ("OpenMetricsText0.0.1", ScrapeProtocol::OpenMetrics001),
        ("OpenMetricsText1.0.0", ScrapeProtocol::OpenMetrics100),
    ];
}

/// Which names of metrics and labels are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameValidation {
    /// Any UTF-8.
    #[default]
    Utf8,
    /// Letters, digits, `_`, and `:` in metric names.
    Legacy,
}

/// The escaping of names that targets are requested to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameEscaping {
    /// Not at all.
    #[default]
    AllowUtf8,
    /// Other characters become `_`.
    Underscores,
    /// `.` becomes `_dot_`, other characters `__`.
    Dots,
    /// `U__` and code points in hexadecimal.
    Values,
}

impl NameEscaping {
    /// Returns the word in a configuration and in the `Accept` header.
    pub const fn as_str(self) -> &'static str {
        match self {
            NameEscaping::AllowUtf8 => "allow-utf-8",
            NameEscaping::Underscores => "underscores",
            NameEscaping::Dots => "dots",
            NameEscaping::Values => "values",
        }
    }
}

/// Returns the secrets of a client's settings.
fn secrets_of(client: &PullOptions) -> impl Iterator<Item = &TargetSecret> {
    let credential = match &client.auth {
        PullAuth::None => None,
        PullAuth::Basic { password, .. } => Some(password),
        PullAuth::Authorization { credentials, .. } => Some(credentials),
        PullAuth::OAuth2 { client_secret, .. } => Some(client_secret),
    };
    let headers = client.headers.iter().map(|(_, value)| value);
    credential.into_iter().chain(&client.tls.client_key_pem).chain(headers)
}
