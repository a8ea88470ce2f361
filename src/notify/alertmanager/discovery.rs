//! Alertmanagers that files name: JSON or YAML lists of targets, as Prometheus' `file_sd_configs`
//! read them.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::model::{Target, TargetUrl};
use crate::notify::config::AmConfig;
use crate::notify::limits::{ALERTMANAGERS_ACTIVE_MAX, TARGETS_FILE_BYTES_MAX};
use crate::yaml;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AmFileGroup {
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// An Alertmanager to send to.
#[derive(Clone, Debug, PartialEq)]
pub struct AmEndpoint {
    /// Identifies it among those of its organisation: the id of its configuration and the URL.
    pub key: String,
    /// The server.
    pub target: Target,
    /// The path of `POST /api/v2/alerts` with its prefix.
    pub path: String,
    /// The longest time for a request, in milliseconds.
    pub timeout_ms: i64,
}

/// Returns whether a text names a file of targets: a plain name without folders.
pub fn is_file_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let has_ending = [".json", ".yml", ".yaml"].iter().any(|ending| name.ends_with(ending));
    has_ending && name.len() <= 128 && !name.starts_with('.') && name.bytes().all(allowed)
}

/// Returns the endpoint of a configuration with a URL.
pub fn fixed_endpoint(config: &AmConfig) -> AmEndpoint {
    endpoint(config, config.target.clone(), None)
}

fn endpoint(config: &AmConfig, target: Target, path: Option<&str>) -> AmEndpoint {
    let path = path.map_or_else(|| format!("{}/api/v2/alerts", config.path_prefix), str::to_owned);
    let key = format!("{} {}{path}", config.id, target.url.as_str());
    AmEndpoint { key, target, path, timeout_ms: config.timeout_ms }
}

/// Returns the endpoints that a file names. `name` decides between JSON and YAML.
///
/// # Errors
/// A sentence, if the file cannot be used.
pub fn file_endpoints(config: &AmConfig, name: &str, text: &str) -> Result<Vec<AmEndpoint>, String> {
    if text.len() > TARGETS_FILE_BYTES_MAX {
        return Err(format!("{} bytes, more than the {TARGETS_FILE_BYTES_MAX} allowed", text.len()));
    }
    let groups: Vec<AmFileGroup> = match name.ends_with(".json") {
        true => serde_json::from_str(text).map_err(|error| error.to_string())?,
        false => yaml::decode(text, TARGETS_FILE_BYTES_MAX).map_err(|error| error.to_string())?,
    };
    let mut found = Vec::new();
    for group in groups {
        let is_tls = match group.labels.get("__scheme__").map(String::as_str) {
            None => config.is_tls,
            Some("https") => true,
            Some("http") => false,
            Some(other) => return Err(format!("the scheme {other:?} is neither http nor https")),
        };
        let path = group.labels.get("__alerts_path__").map(String::as_str);
        if path.is_some_and(|path| !path.starts_with('/') || !path.bytes().all(|b| b.is_ascii_graphic())) {
            return Err("__alerts_path__ must begin with /".to_owned());
        }
        for address in &group.targets {
            if found.len() >= ALERTMANAGERS_ACTIVE_MAX {
                return Err(format!("more than {ALERTMANAGERS_ACTIVE_MAX} targets"));
            }
            let url = format!("{}://{address}", if is_tls { "https" } else { "http" });
            let url = TargetUrl::parse(&url).map_err(|why| format!("target {address:?}: {why}"))?;
            found.push(endpoint(config, Target { url, ..config.target.clone() }, path));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn config() -> AmConfig {
        AmConfig {
            id: Arc::from("am"),
            target: Target::new(TargetUrl::parse("http://from-file").expect("valid")),
            path_prefix: "/p".to_owned(),
            timeout_ms: 1_000,
            file: Some("am.yml".to_owned()),
            is_tls: false,
        }
    }

    #[test]
    fn files_in_json_and_yaml_name_alertmanagers() {
        let yaml = "- targets: [a:9093, 'b:9093']\n- targets: [c]\n  labels: {__scheme__: https}\n";
        let json = r#"[{"targets":["a:9093","b:9093"]},{"targets":["c"],"labels":{"__scheme__":"https"}}]"#;
        for (name, text) in [("am.yml", yaml), ("am.json", json)] {
            let found = file_endpoints(&config(), name, text).expect("valid");
            let keys: Vec<&str> = found.iter().map(|one| one.key.as_str()).collect();
            let expected = [
                "am http://a:9093/p/api/v2/alerts",
                "am http://b:9093/p/api/v2/alerts",
                "am https://c/p/api/v2/alerts",
            ];
            assert_eq!(keys, expected);
        }
        for wrong in ["x", "- {}", "- targets: ['a b']", "- targets: [a]\n  labels: {__scheme__: ftp}"] {
            assert!(file_endpoints(&config(), "am.yml", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_name_has_no_folder() {
        assert!(is_file_name("am.yml") && is_file_name("a-b_1.json"));
        for wrong in ["../am.yml", "a/b.yml", ".yml", "am", "/etc/passwd", "am.txt", ""] {
            assert!(!is_file_name(wrong), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn no_file_makes_the_reader_panic(text in "\\PC{0,128}|[-\\[\\]{}:,a &*\n]{0,64}") {
            let _ = file_endpoints(&config(), "am.yml", &text);
            let _ = file_endpoints(&config(), "am.json", &text);
        }
    }
}
