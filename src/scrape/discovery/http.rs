//! Requests of `http_sd_configs`.

use std::time::Duration;

use super::groups::{GROUPS_BYTES_MAX, groups_of_json};
use super::settings::HttpDiscovery;
use super::state::{RefreshAnswer, SourceAnswer};
use crate::model::{Target, TargetAuth, TargetSecret, TargetUrl};
use crate::outbound::{Bytes, Egress, TargetClient, TargetMethod, TargetRequest};
use crate::scrape::config::{ScrapeClientSettings, ScrapeCredential};

/// The longest time for a request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);
/// The label with the URL.
const URL: &str = "__meta_url";

/// Asks for the groups.
pub(super) async fn refresh(config: &HttpDiscovery, egress: Egress) -> RefreshAnswer {
    let text = fetch(config, egress).await?;
    let groups = groups_of_json(&text)?;
    let groups = groups.into_iter().map(|group| group.with_label(URL, &config.url)).collect();
    Ok(vec![(String::new(), SourceAnswer::Groups(groups))])
}

async fn fetch(config: &HttpDiscovery, egress: Egress) -> Result<String, String> {
    let (base, query) = config.url.split_once('?').map_or((config.url.as_str(), None), |(b, q)| (b, Some(q)));
    let url = TargetUrl::parse(base)?;
    let client = TargetClient::new(target(url, &config.client)?, egress)?;
    let interval_s = config.refresh_interval_ms.div_euclid(1_000);
    let request = TargetRequest {
        method: TargetMethod::Get,
        suffix: query.map(|query| format!("?{query}")).unwrap_or_default(),
        headers: vec![
            ("accept", "application/json".to_owned()),
            ("x-prometheus-refresh-interval-seconds", interval_s.to_string()),
        ],
        body: Bytes::new(),
        timeout: REQUEST_TIME_MAX,
        body_bytes_max: GROUPS_BYTES_MAX as u64,
    };
    let response = client.send(request).await.map_err(|error| error.to_string())?;
    if response.status != 200 {
        return Err(format!("server returned HTTP status {}", response.status));
    }
    let content_type = response.header("content-type").unwrap_or_default().trim().to_owned();
    if !is_json(&content_type) {
        return Err(format!("unsupported content type {content_type:?}"));
    }
    let body = response.body.bytes().await.map_err(|error| error.to_string())?;
    String::from_utf8(body).map_err(|_| "the response is not UTF-8".to_owned())
}

fn is_json(content_type: &str) -> bool {
    let lower = content_type.to_ascii_lowercase();
    let mut parts = lower.split(';').map(str::trim);
    let is_json = parts.next() == Some("application/json");
    is_json && parts.all(|part| ["charset=utf-8", "charset=\"utf-8\""].contains(&part))
}

fn target(url: TargetUrl, client: &ScrapeClientSettings) -> Result<Target, String> {
    let auth = match &client.credential {
        ScrapeCredential::None => TargetAuth::None,
        ScrapeCredential::Basic { username, password } => {
            TargetAuth::Basic { username: username.clone(), password: password.clone() }
        }
        ScrapeCredential::Authorization { scheme, credentials } if scheme.eq_ignore_ascii_case("bearer") => {
            TargetAuth::Bearer { token: credentials.clone() }
        }
        ScrapeCredential::Authorization { .. } => {
            return Err("authorization of http_sd_configs supports the type Bearer only".to_owned());
        }
        ScrapeCredential::OAuth2 { token_url, client_id, client_secret, scopes } => TargetAuth::OAuth2 {
            token_url: token_url.clone(),
            client_id: client_id.clone(),
            client_secret: client_secret.clone(),
            scopes: scopes.clone(),
        },
    };
    if client.insecure_skip_verify {
        return Err("insecure_skip_verify of http_sd_configs is not supported; use ca_file".to_owned());
    }
    let reveal = |(name, value): &(String, TargetSecret)| (name.clone(), value.reveal().to_owned());
    let headers = client.headers.iter().map(reveal).collect();
    Ok(Target { auth, headers, tls: client.tls.clone(), ..Target::new(url) })
}
