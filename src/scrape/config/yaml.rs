//! The keys of a configuration, as Prometheus 3.5 names them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::yaml::{Position, Spanned, position};

/// A configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct YamlFile {
    pub(super) global: Option<Spanned<YamlGlobal>>,
    pub(super) scrape_configs: Option<Vec<Spanned<Option<YamlJob>>>>,
    pub(super) scrape_config_files: Option<Vec<Spanned<String>>>,
    runtime: Option<IgnoredAny>,
    rule_files: Option<IgnoredAny>,
    alerting: Option<IgnoredAny>,
    remote_write: Option<IgnoredAny>,
    remote_read: Option<IgnoredAny>,
    storage: Option<IgnoredAny>,
    tracing: Option<IgnoredAny>,
    otlp: Option<IgnoredAny>,
}

impl YamlFile {
    /// Returns the keys that have no effect here, each with what to use in its place, as the end of
    /// a sentence.
    pub(super) fn ignored(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        const NOTHING: &str = "the other keys are used";
        let keys = [
            ("runtime", &self.runtime, NOTHING),
            ("rule_files", &self.rule_files, "rules are read from --rules and from the API"),
            ("alerting", &self.alerting, "the notifications of an organisation have its Alertmanagers"),
            ("remote_write", &self.remote_write, "an organisation forwards samples to targets of its own"),
            ("remote_read", &self.remote_read, NOTHING),
            ("storage", &self.storage, NOTHING),
            ("tracing", &self.tracing, NOTHING),
            ("otlp", &self.otlp, NOTHING),
        ];
        let given = keys.into_iter().filter(|(_, value, _)| value.is_some());
        given.map(|(key, _, instead)| (key, instead))
    }
}

/// A file of `scrape_config_files`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct YamlJobsFile {
    pub(super) scrape_configs: Option<Vec<Spanned<Option<YamlJob>>>>,
}

/// The defaults of all jobs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct YamlGlobal {
    pub(super) scrape_interval: Option<Spanned<String>>,
    pub(super) scrape_timeout: Option<Spanned<String>>,
    pub(super) scrape_protocols: Option<Spanned<Vec<String>>>,
    pub(super) scrape_native_histograms: Option<bool>,
    pub(super) always_scrape_classic_histograms: Option<bool>,
    pub(super) convert_classic_histograms_to_nhcb: Option<bool>,
    pub(super) external_labels: Option<Spanned<BTreeMap<String, String>>>,
    pub(super) body_size_limit: Option<Spanned<String>>,
    pub(super) sample_limit: Option<u64>,
    pub(super) target_limit: Option<u64>,
    pub(super) label_limit: Option<u64>,
    pub(super) label_name_length_limit: Option<u64>,
    pub(super) label_value_length_limit: Option<u64>,
    pub(super) keep_dropped_targets: Option<u64>,
    pub(super) metric_name_validation_scheme: Option<Spanned<String>>,
    pub(super) metric_name_escaping_scheme: Option<Spanned<String>>,
    pub(super) scrape_failure_log_file: Option<IgnoredAny>,
    pub(super) evaluation_interval: Option<IgnoredAny>,
    pub(super) rule_query_offset: Option<IgnoredAny>,
    pub(super) query_log_file: Option<IgnoredAny>,
}

/// A relabelling rule.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct YamlRelabel {
    pub(super) source_labels: Option<Vec<String>>,
    pub(super) separator: Option<String>,
    pub(super) target_label: Option<String>,
    pub(super) regex: Option<String>,
    pub(super) modulus: Option<u64>,
    pub(super) replacement: Option<String>,
    pub(super) action: Option<String>,
}

/// Targets with common labels.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct YamlGroup {
    pub(super) targets: Option<Vec<Spanned<String>>>,
    pub(super) labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct YamlFileSd {
    pub(super) files: Option<Vec<Spanned<String>>>,
    pub(super) refresh_interval: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct YamlDnsSd {
    pub(super) names: Option<Vec<Spanned<String>>>,
    pub(super) r#type: Option<Spanned<String>>,
    pub(super) port: Option<Spanned<u16>>,
    pub(super) refresh_interval: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct YamlBasicAuth {
    pub(super) username: Option<String>,
    pub(super) username_file: Option<String>,
    pub(super) username_ref: Option<IgnoredAny>,
    pub(super) password: Option<String>,
    pub(super) password_file: Option<String>,
    pub(super) password_ref: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct YamlAuthorization {
    pub(super) r#type: Option<String>,
    pub(super) credentials: Option<String>,
    pub(super) credentials_file: Option<String>,
    pub(super) credentials_ref: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct YamlOAuth2 {
    pub(super) client_id: Option<String>,
    pub(super) client_secret: Option<String>,
    pub(super) client_secret_file: Option<String>,
    pub(super) client_secret_ref: Option<IgnoredAny>,
    pub(super) scopes: Option<Vec<String>>,
    pub(super) token_url: Option<Spanned<String>>,
    pub(super) endpoint_params: Option<Spanned<IgnoredAny>>,
    pub(super) tls_config: Option<Spanned<IgnoredAny>>,
    pub(super) proxy_url: Option<Spanned<String>>,
    pub(super) no_proxy: Option<Spanned<String>>,
    pub(super) proxy_from_environment: Option<Spanned<bool>>,
    pub(super) proxy_connect_header: Option<Spanned<IgnoredAny>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct YamlTls {
    pub(super) ca: Option<String>,
    pub(super) ca_file: Option<String>,
    pub(super) ca_ref: Option<IgnoredAny>,
    pub(super) cert: Option<String>,
    pub(super) cert_file: Option<String>,
    pub(super) cert_ref: Option<IgnoredAny>,
    pub(super) key: Option<String>,
    pub(super) key_file: Option<String>,
    pub(super) key_ref: Option<IgnoredAny>,
    pub(super) server_name: Option<String>,
    pub(super) insecure_skip_verify: Option<bool>,
    pub(super) min_version: Option<Spanned<String>>,
    pub(super) max_version: Option<Spanned<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct YamlHeader {
    pub(super) values: Option<Vec<String>>,
    pub(super) secrets: Option<Vec<String>>,
    pub(super) files: Option<Vec<String>>,
}

/// The keys about requests, which several sections share.
#[derive(Clone, Copy)]
pub(super) struct YamlClient<'y> {
    pub(super) basic_auth: Option<&'y Spanned<YamlBasicAuth>>,
    pub(super) authorization: Option<&'y Spanned<YamlAuthorization>>,
    pub(super) oauth2: Option<&'y Spanned<YamlOAuth2>>,
    pub(super) bearer_token: Option<&'y Spanned<String>>,
    pub(super) bearer_token_file: Option<&'y Spanned<String>>,
    pub(super) tls_config: Option<&'y Spanned<YamlTls>>,
    pub(super) follow_redirects: Option<bool>,
    pub(super) proxy_url: Option<&'y Spanned<String>>,
    pub(super) no_proxy: Option<&'y Spanned<String>>,
    pub(super) proxy_from_environment: Option<&'y Spanned<bool>>,
    pub(super) proxy_connect_header: Option<&'y Spanned<IgnoredAny>>,
    pub(super) http_headers: Option<&'y Spanned<BTreeMap<String, YamlHeader>>>,
}

/// Defines a section that has the keys about requests, and keys that are refused by name.
macro_rules! section_with_client {
    ($(#[$doc:meta])* $name:ident { $($key:ident: $type:ty,)* } $(refused { $($refused:ident,)* })?) => {
        $(#[$doc])*
        #[derive(Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub(super) struct $name {
            $(pub(super) $key: $type,)*
            basic_auth: Option<Spanned<YamlBasicAuth>>,
            authorization: Option<Spanned<YamlAuthorization>>,
            oauth2: Option<Spanned<YamlOAuth2>>,
            bearer_token: Option<Spanned<String>>,
            bearer_token_file: Option<Spanned<String>>,
            tls_config: Option<Spanned<YamlTls>>,
            follow_redirects: Option<bool>,
            enable_http2: Option<bool>,
            proxy_url: Option<Spanned<String>>,
            no_proxy: Option<Spanned<String>>,
            proxy_from_environment: Option<Spanned<bool>>,
            proxy_connect_header: Option<Spanned<IgnoredAny>>,
            http_headers: Option<Spanned<BTreeMap<String, YamlHeader>>>,
            $($($refused: Option<Spanned<IgnoredAny>>,)*)?
        }

        impl $name {
            /// Returns the keys about requests.
            pub(super) fn client(&self) -> YamlClient<'_> {
                YamlClient {
                    basic_auth: self.basic_auth.as_ref(),
                    authorization: self.authorization.as_ref(),
                    oauth2: self.oauth2.as_ref(),
                    bearer_token: self.bearer_token.as_ref(),
                    bearer_token_file: self.bearer_token_file.as_ref(),
                    tls_config: self.tls_config.as_ref(),
                    follow_redirects: self.follow_redirects,
                    proxy_url: self.proxy_url.as_ref(),
                    no_proxy: self.no_proxy.as_ref(),
                    proxy_from_environment: self.proxy_from_environment.as_ref(),
                    proxy_connect_header: self.proxy_connect_header.as_ref(),
                    http_headers: self.http_headers.as_ref(),
                }
            }
        }

        $(impl $name {
            /// Returns the first key that is refused by name.
            pub(super) fn refused(&self) -> Option<(&'static str, Position)> {
                let keys: &[(&'static str, &Option<Spanned<IgnoredAny>>)] =
                    &[$((stringify!($refused), &self.$refused),)*];
                keys.iter().find_map(|(key, value)| value.as_ref().map(|value| (*key, position(value))))
            }
        })?
    };
}

section_with_client! {
    /// A discovery by HTTP.
    YamlHttpSd {
        url: Option<Spanned<String>>,
        refresh_interval: Option<Spanned<String>>,
    }
}

section_with_client! {
    /// A job.
    YamlJob {
        job_name: Option<Spanned<String>>,
        honor_labels: Option<bool>,
        honor_timestamps: Option<bool>,
        track_timestamps_staleness: Option<bool>,
        params: Option<BTreeMap<String, Vec<String>>>,
        scrape_interval: Option<Spanned<String>>,
        scrape_timeout: Option<Spanned<String>>,
        scrape_protocols: Option<Spanned<Vec<String>>>,
        fallback_scrape_protocol: Option<Spanned<String>>,
        scrape_native_histograms: Option<bool>,
        scrape_classic_histograms: Option<bool>,
        always_scrape_classic_histograms: Option<bool>,
        convert_classic_histograms_to_nhcb: Option<bool>,
        scrape_failure_log_file: Option<IgnoredAny>,
        metrics_path: Option<Spanned<String>>,
        scheme: Option<Spanned<String>>,
        enable_compression: Option<bool>,
        body_size_limit: Option<Spanned<String>>,
        sample_limit: Option<u64>,
        target_limit: Option<u64>,
        label_limit: Option<u64>,
        label_name_length_limit: Option<u64>,
        label_value_length_limit: Option<u64>,
        native_histogram_bucket_limit: Option<u64>,
        native_histogram_min_bucket_factor: Option<Spanned<f64>>,
        keep_dropped_targets: Option<u64>,
        metric_name_validation_scheme: Option<Spanned<String>>,
        metric_name_escaping_scheme: Option<Spanned<String>>,
        static_configs: Option<Vec<Spanned<YamlGroup>>>,
        file_sd_configs: Option<Vec<Spanned<YamlFileSd>>>,
        http_sd_configs: Option<Vec<Spanned<YamlHttpSd>>>,
        dns_sd_configs: Option<Vec<Spanned<YamlDnsSd>>>,
        relabel_configs: Option<Vec<Spanned<Option<YamlRelabel>>>>,
        metric_relabel_configs: Option<Vec<Spanned<Option<YamlRelabel>>>>,
    } refused {
        azure_sd_configs,
        consul_sd_configs,
        digitalocean_sd_configs,
        docker_sd_configs,
        dockerswarm_sd_configs,
        ec2_sd_configs,
        eureka_sd_configs,
        gce_sd_configs,
        hetzner_sd_configs,
        ionos_sd_configs,
        kubernetes_sd_configs,
        kuma_sd_configs,
        lightsail_sd_configs,
        linode_sd_configs,
        marathon_sd_configs,
        nerve_sd_configs,
        nomad_sd_configs,
        openstack_sd_configs,
        ovhcloud_sd_configs,
        puppetdb_sd_configs,
        scaleway_sd_configs,
        serverset_sd_configs,
        stackit_sd_configs,
        triton_sd_configs,
        uyuni_sd_configs,
        vultr_sd_configs,
    }
}
