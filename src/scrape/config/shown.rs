//! The text of a configuration without its secrets, as Prometheus shows its own.
//!
//! The keys of the file are shown as they are written, in order of their names and without
//! comments; sections that have no effect here are left out.

use serde_json::{Map, Value};

use super::SCRAPE_FILE_BYTES_MAX;
use crate::yaml;

/// The text that stands for a secret.
const HIDDEN: &str = "<secret>";
/// The keys that are shown.
const SHOWN: [&str; 3] = ["global", "scrape_config_files", "scrape_configs"];
/// The secrets of a job or of a discovery by HTTP: section and key.
const SECRETS: [(&str, &str); 4] = [
    ("basic_auth", "password"),
    ("authorization", "credentials"),
    ("oauth2", "client_secret"),
    ("tls_config", "key"),
];

/// Returns a valid configuration without its secrets. Files that it names are not read.
pub(super) fn shown(text: &str) -> String {
    let mut file = match yaml::decode::<Option<Map<String, Value>>>(text, SCRAPE_FILE_BYTES_MAX) {
        Ok(file) => file.unwrap_or_default(),
        Err(error) => return format!("# The configuration cannot be shown: {error}\n"),
    };
    file.retain(|key, section| SHOWN.contains(&key.as_str()) && !section.is_null());
    if file.is_empty() {
        return String::new();
    }
    for job in sections(file.get_mut("scrape_configs")) {
        for discovery in sections(job.get_mut("http_sd_configs")) {
            hide(discovery);
        }
        hide(job);
    }
    yaml::encode(&Value::Object(file))
}

/// Returns the maps of a list.
fn sections(list: Option<&mut Value>) -> impl Iterator<Item = &mut Map<String, Value>> {
    list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Hides the secrets of a job or of a discovery. The values of headers are secrets as well, because
/// many of them authenticate.
fn hide(client: &mut Map<String, Value>) {
    for (section, key) in SECRETS {
        if let Some(secret) = client.get_mut(section).and_then(|section| section.get_mut(key)) {
            hide_all(secret);
        }
    }
    if let Some(token) = client.get_mut("bearer_token") {
        hide_all(token);
    }
    let headers = client.get_mut("http_headers").and_then(Value::as_object_mut);
    for header in headers.into_iter().flat_map(Map::values_mut) {
        for key in ["values", "secrets"] {
            if let Some(secrets) = header.get_mut(key) {
                hide_all(secrets);
            }
        }
    }
}

fn hide_all(secret: &mut Value) {
    match secret {
        Value::Null => {}
        Value::String(text) if text.is_empty() => {}
        Value::Array(all) => all.iter_mut().for_each(hide_all),
        _ => *secret = HIDDEN.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrape::config::{ScrapeConfig, ScrapeFiles};

    const CONFIG: &str = r#"
global: {scrape_interval: 15s, external_labels: {region: eu}}
remote_write: [{url: "http://a", basic_auth: {username: u, password: hunter0}}]
scrape_configs:
- job_name: node # A comment.
  params: {key: [visible], "true": ["1"]}
  basic_auth: {username: u, password: hunter1}
  tls_config: {server_name: "a b", insecure_skip_verify: false}
  http_headers: {x-key: {secrets: [hunter2], values: ["hunter3"]}}
  http_sd_configs: [{url: "http://sd.example/", authorization: {credentials: 12345}}]
  static_configs:
  - targets: ["localhost:9100", "[::1]:9100"]
    labels: {password: "a label", path: "C:\\x"}
  relabel_configs:
  - {source_labels: [__address__], regex: '(.*):\d+', target_label: host, replacement: "$1"}
  sample_limit: 100
- job_name: token
  bearer_token: hunter4
- job_name: oauth
  oauth2: {client_id: a, client_secret: hunter5, token_url: "http://t.example/"}
"#;

    #[test]
    fn secrets_are_hidden_and_everything_else_of_scraping_is_shown() {
        let config = ScrapeConfig::parse(CONFIG, &ScrapeFiles::Refused).expect("valid");
        assert_eq!(config.secrets().len(), 6, "{:?}", config.secrets());
        for secret in config.secrets() {
            assert!(CONFIG.contains(&secret) && !config.shown.contains(&secret), "{secret}");
        }
        assert_eq!(config.shown.matches(HIDDEN).count(), 6, "{}", config.shown);
        assert!(!config.shown.contains("remote_write"));
        let begin = "global:\n  external_labels:\n    region: eu\n  scrape_interval: 15s\nscrape_configs:\n\
                     - basic_auth:\n    password: <secret>\n    username: u\n  http_headers:\n";
        assert!(config.shown.starts_with(begin), "{}", config.shown);
    }

    /// The shown text is the same configuration, but for the secrets.
    #[test]
    fn the_shown_text_is_a_configuration_with_the_same_content() {
        let config = ScrapeConfig::parse(CONFIG, &ScrapeFiles::Refused).expect("valid");
        let again = ScrapeConfig::parse(&config.shown, &ScrapeFiles::Refused).expect("valid");
        assert_eq!(again.shown, config.shown);
        assert_eq!((again.jobs.len(), &again.external_labels), (3, &config.external_labels));
        for (one, other) in again.jobs.iter().zip(&config.jobs) {
            assert_eq!((&one.name, &one.params, one.limits), (&other.name, &other.params, other.limits));
            assert_eq!((&one.relabel, &one.metric_relabel), (&other.relabel, &other.metric_relabel));
        }
        assert_eq!(shown(""), "");
        assert!(shown("a: [").starts_with("# The configuration cannot be shown: line 1"));
    }
}
