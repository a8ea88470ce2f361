//! The sections about the discovery of targets.

use super::client::client_options;
use super::error::{ScrapeConfigError, problem, refuse};
use super::files::ScrapeFiles;
use super::values;
use super::yaml::{YamlDnsSd, YamlFileSd, YamlGroup, YamlHttpSd, YamlJob};
use crate::model::{Labels, TARGET_URL_BYTES_MAX, TargetUrl};
use crate::scrape::discovery::{
    DiscoveryConfig, DnsDiscovery, DnsRecordType, FileDiscovery, HttpDiscovery, StaticDiscovery, TargetGroup,
};
use crate::yaml::{Spanned, position, unknown_name};

/// The most discoveries of a job, inclusive.
const DISCOVERIES_MAX: usize = 256;
/// The most files, patterns or names of a discovery, inclusive.
const NAMES_MAX: usize = 1_000;
/// The shortest time between two refreshes of a discovery, in milliseconds.
const REFRESH_MS_MIN: i64 = 1_000;

/// Returns the discoveries of a job.
///
/// # Errors
/// [`ScrapeConfigError`] for the first one that is wrong.
pub(super) fn discoveries(
    yaml: &YamlJob,
    files: &ScrapeFiles,
) -> Result<Vec<DiscoveryConfig>, ScrapeConfigError> {
    let mut all = Vec::new();
    if let Some(groups) = &yaml.static_configs {
        let groups = groups.iter().map(static_group).collect::<Result<Vec<_>, _>>()?;
        all.push(DiscoveryConfig::Static(StaticDiscovery { groups }));
    }
    let found = yaml.file_sd_configs.iter().flatten().map(|yaml| file_discovery(yaml, files));
    let found = found.chain(yaml.http_sd_configs.iter().flatten().map(|yaml| http_discovery(yaml, files)));
    for discovery in found.chain(yaml.dns_sd_configs.iter().flatten().map(dns_discovery)) {
        all.push(discovery?);
        if all.len() > DISCOVERIES_MAX {
            let at = yaml.job_name.as_ref().map(position);
            let message = format!("a job has at most {DISCOVERIES_MAX} discoveries");
            return Err(ScrapeConfigError { file: None, position: at, message });
        }
    }
    Ok(all)
}

fn static_group(spanned: &Spanned<YamlGroup>) -> Result<TargetGroup, ScrapeConfigError> {
    let yaml = &spanned.value;
    for target in yaml.targets.iter().flatten() {
        if target.value.contains('/') {
            return refuse(target, format!("{:?} is not a valid hostname", target.value));
        }
    }
    let labels = yaml.labels.as_ref().map(values::checked_labels).unwrap_or(Ok(Labels::default()));
    let targets = yaml.targets.iter().flatten().map(|target| target.value.clone()).collect();
    Ok(TargetGroup { targets, labels: labels.map_err(|message| problem(position(spanned), message))? })
}

/// Returns the time between two refreshes in milliseconds.
fn refresh_ms(value: Option<&Spanned<String>>, default: i64) -> Result<i64, ScrapeConfigError> {
    match (values::duration_ms(value)?, value) {
        (0, _) => Ok(default),
        (ms, Some(value)) if ms < REFRESH_MS_MIN => refuse(value, "refresh_interval must be at least 1s"),
        (ms, _) => Ok(ms),
    }
}

fn file_discovery(
    spanned: &Spanned<YamlFileSd>,
    files: &ScrapeFiles,
) -> Result<DiscoveryConfig, ScrapeConfigError> {
    let yaml = &spanned.value;
    let mut paths = Vec::new();
    for name in yaml.files.iter().flatten() {
        let stem = [".json", ".yml", ".yaml", ".JSON", ".YML", ".YAML"]
            .iter()
            .find_map(|ending| name.value.strip_suffix(ending));
        let folder = name.value.rsplit_once('/').map_or("", |(folder, _)| folder);
        if stem.is_none() || folder.contains(['*', '?', '[']) {
            let message = format!(
                "path name {:?} is not valid for file discovery: it ends in .json, .yml or .yaml, and only \
                 its last part may contain a pattern",
                name.value
            );
            return refuse(name, message);
        }
        paths.push(files.path(&name.value).map_err(|message| problem(position(name), message))?);
    }
    if paths.is_empty() {
        return refuse(spanned, "file service discovery config must contain at least one path name");
    }
    if paths.len() > NAMES_MAX {
        return refuse(spanned, format!("at most {NAMES_MAX} files are allowed"));
    }
    let refresh_interval_ms = refresh_ms(yaml.refresh_interval.as_ref(), 300_000)?;
    Ok(DiscoveryConfig::File(FileDiscovery { files: paths, refresh_interval_ms }))
}

fn http_discovery(
    spanned: &Spanned<YamlHttpSd>,
    files: &ScrapeFiles,
) -> Result<DiscoveryConfig, ScrapeConfigError> {
    let yaml = &spanned.value;
    let Some(url) = yaml.url.as_ref().filter(|url| !url.value.is_empty()) else {
        return refuse(spanned, "URL is missing");
    };
    let base = url.value.split_once('?').map_or(url.value.as_str(), |(base, _)| base);
    TargetUrl::parse(base).map_err(|why| problem(position(url), why))?;
    if url.value.len() > TARGET_URL_BYTES_MAX
        || url.value.contains(|c: char| c == '#' || !c.is_ascii_graphic())
    {
        return refuse(url, "the URL must be ASCII without spaces and fragment");
    }
    Ok(DiscoveryConfig::Http(Box::new(HttpDiscovery {
        url: url.value.clone(),
        refresh_interval_ms: refresh_ms(yaml.refresh_interval.as_ref(), 60_000)?,
        client: client_options(yaml.client(), files)?,
    })))
}

fn dns_discovery(spanned: &Spanned<YamlDnsSd>) -> Result<DiscoveryConfig, ScrapeConfigError> {
    const TYPES: [(&str, DnsRecordType); 5] = [
        ("A", DnsRecordType::A),
        ("AAAA", DnsRecordType::Aaaa),
        ("SRV", DnsRecordType::Srv),
        ("MX", DnsRecordType::Mx),
        ("NS", DnsRecordType::Ns),
    ];
    let yaml = &spanned.value;
    let names: Vec<String> = yaml.names.iter().flatten().map(|name| name.value.clone()).collect();
    if names.is_empty() {
        return refuse(spanned, "DNS-SD config must contain at least one SRV record name");
    }
    if names.len() > NAMES_MAX {
        return refuse(spanned, format!("at most {NAMES_MAX} names are allowed"));
    }
    let record = match &yaml.r#type {
        None => DnsRecordType::Srv,
        Some(given) => {
            let upper = given.value.to_uppercase();
            let found = TYPES.into_iter().find(|(known, _)| *known == upper);
            let message = || unknown_name("DNS-SD record type", &given.value, &TYPES.map(|(name, _)| name));
            found.map(|(_, record)| record).ok_or_else(|| problem(position(given), message()))?
        }
    };
    let port = yaml.port.as_ref().map_or(0, |port| port.value);
    if port == 0 && record != DnsRecordType::Srv {
        return refuse(spanned, "a port is required in DNS-SD configs for all record types except SRV");
    }
    let refresh_interval_ms = refresh_ms(yaml.refresh_interval.as_ref(), 30_000)?;
    Ok(DiscoveryConfig::Dns(DnsDiscovery { names, record, port, refresh_interval_ms }))
}
