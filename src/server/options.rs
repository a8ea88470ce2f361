//! Converts the settings to the options of the rooms.

use std::net::SocketAddr;

use super::{ServerError, oauth};
use crate::api::host::Network;
use crate::api::lanes::LanesOptions;
use crate::api::{self, ApiOptions};
use crate::config::{CookieSecure, MailSetting, Settings};
use crate::identity::IdentityOptions;
use crate::model::Timestamp;
use crate::outbound::Egress;
use crate::tsdb;

/// The bytes of the newest segments that are read ahead of the first queries.
const WARM_BYTES: u64 = 64 << 20;

/// Returns `--public-url`, or the URL of the address that the server listens on.
pub(super) fn public_url(settings: &Settings, address: SocketAddr) -> String {
    settings.public_url.clone().unwrap_or_else(|| format!("{}://{address}", settings.scheme()))
}

pub(super) fn api_options(settings: &Settings, address: SocketAddr) -> Result<ApiOptions, ServerError> {
    let mut options = ApiOptions::new(&public_url(settings, address));
    options.allowed_hosts.clone_from(&settings.allowed_hosts);
    options.trusted_origins.clone_from(&settings.trusted_origins);
    options.cookie_secure = match settings.cookie_secure {
        CookieSecure::Auto => None,
        CookieSecure::Always => Some(true),
        CookieSecure::Never => Some(false),
    };
    options.link_ttl = settings.magic_link_ttl;
    options.providers = oauth::providers(&settings.oauth)?;
    options.egress = Egress::new(settings.outbound_allow.clone(), &[address]);
    options.read.timeout = settings.query_timeout;
    options.read.promql.limits.samples_max = settings.query_max_samples;
    options.read.promql.limits.series_max = settings.query_max_series.unwrap_or(u64::MAX);
    options.read.promql.delayed_name_removal = settings.switches.delayed_name_removal;
    options.read.promql.use_start_timestamps = settings.switches.use_start_timestamps;
    options.read.caps.features = settings.switches.syntax;
    options.read.memory_bytes_max = settings.query_memory_bytes;
    options.read.cache_bytes_max = settings.query_cache_bytes;
    options.metrics_token = settings.metrics_token.as_ref().map(|token| token.reveal().into());
    options.limits.cabinet_rps = settings.rate_cabinet_rps;
    options.embed_rps_default = settings.rate_embed_default_rps;
    options.docs = settings.docs;
    options.push_ttl = settings.push_ttl;
    options.read.live_streams_per_key = settings.live_streams_per_key as usize;
    options.trusted_proxies = trusted_proxies(&settings.trusted_proxies)?;
    Ok(options)
}

/// Returns the day on which this program was built (`build.rs`).
pub(super) fn built() -> Option<Timestamp> {
    env!("BUILT_S").parse().ok().map(Timestamp::from_s)
}

/// Parses addresses and networks.
fn trusted_proxies(texts: &[String]) -> Result<Vec<Network>, api::OptionsError> {
    let read =
        |text: &String| Network::parse(text).ok_or_else(|| api::OptionsError::TrustedProxy(text.clone()));
    texts.iter().map(read).collect()
}

pub(super) fn identity_options(settings: &Settings) -> IdentityOptions {
    IdentityOptions {
        argon2: settings.argon2,
        link_ttl: settings.magic_link_ttl,
        session_absolute: settings.session_absolute,
        org_create: settings.org_create,
        signup: settings.signup,
        mail_leaves: matches!(settings.mail, MailSetting::Smtp { .. }),
    }
}

pub(super) fn tsdb_options(settings: &Settings, observer: tsdb::ProgressObserver) -> tsdb::Options {
    let mut options = tsdb::Options { observer, ..tsdb::Options::default() };
    options.limits.retention = settings.retention;
    options.limits.series_max = settings.max_series_per_org.unwrap_or(u32::MAX);
    options.built = built();
    options.expiry_grace = settings.expiry_grace;
    options.head_bytes_max = settings.head_memory_bytes;
    options.pinned_log_bytes = settings.forward_log_bytes;
    // The share of an organisation that is alone.
    options.seal_head_bytes = settings.head_memory_bytes / 4 * 3;
    options.decoded_bytes_max = settings.decoded_cache_bytes;
    options.warm_bytes_max = WARM_BYTES;
    options.durability = settings.durability;
    options.checkpoint_every = settings.checkpoint_every.unwrap_or(options.checkpoint_every);
    options
}

pub(super) fn lanes_options(settings: &Settings) -> LanesOptions {
    let mut options = LanesOptions::for_this_machine();
    if let Some(threads) = settings.query_concurrency {
        options.query.threads = threads.clamp(1, 1_024);
        options.query.threads_per_org = (options.query.threads / 2).max(1);
    }
    options
}
