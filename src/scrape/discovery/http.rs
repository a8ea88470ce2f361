//! Requests of `http_sd_configs`.

use std::time::Duration;

use super::groups::{GROUPS_BYTES_MAX, groups_of_json};
use super::settings::HttpDiscovery;
use super::state::{RefreshAnswer, SourceAnswer};
use crate::model::TargetUrl;
use crate::outbound::{Egress, PullClient, PullRequest};

/// The longest time for a request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);
/// The label with the URL.
const URL: &str = "__meta_url";

/// Requests the groups.
pub(super) async fn refresh(config: &HttpDiscovery, egress: Egress) -> RefreshAnswer {
    let text = fetch(config, egress).await?;
    let groups = groups_of_json(&text)?;
    let groups = groups.into_iter().map(|group| group.with_label(URL, &config.url)).collect();
    Ok(vec![(String::new(), SourceAnswer::Groups(groups))])
}

async fn fetch(config: &HttpDiscovery, egress: Egress) -> Result<String, String> {
    let (base, query) = config.url.split_once('?').map_or((config.url.as_str(), None), |(b, q)| (b, Some(q)));
    let url = TargetUrl::parse(base)?;
    let client = PullClient::new(&config.client, egress)?;
    let path = if url.path().is_empty() { "/" } else { url.path() };
    let interval_s = config.refresh_interval_ms.div_euclid(1_000);
    let request = PullRequest {
        path_and_query: query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}")),
        headers: vec![
            ("accept", "application/json".to_owned()),
            ("accept-encoding", "identity".to_owned()),
            ("x-prometheus-refresh-interval-seconds", interval_s.to_string()),
        ],
        timeout: REQUEST_TIME_MAX,
        body_bytes_max: GROUPS_BYTES_MAX as u64,
    };
    let response = client.server(&url)?.get(&request).await.map_err(|error| error.to_string())?;
    if response.status != 200 {
        return Err(format!("server returned HTTP status {}", response.status));
    }
    if !is_json(response.content_type.trim()) {
        return Err(format!("unsupported content type {:?}", response.content_type));
    }
    String::from_utf8(response.body).map_err(|_| "the response is not UTF-8".to_owned())
}

fn is_json(content_type: &str) -> bool {
    let lower = content_type.to_ascii_lowercase();
    let mut parts = lower.split(';').map(str::trim);
    let is_json = parts.next() == Some("application/json");
    is_json && parts.all(|part| ["charset=utf-8", "charset=\"utf-8\""].contains(&part))
}
