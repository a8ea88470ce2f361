//! Reads a configuration: files, defaults and the checks of Prometheus.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::client::client_options;
use super::discoveries::discoveries;
use super::error::{ScrapeConfigError, problem, refuse};
use super::files::{ScrapeFiles, read_bounded};
use super::job::{
    NameEscaping, NameValidation, ScrapeConfig, ScrapeJob, ScrapeLimits, ScrapeProtocol, ScrapeScheme,
};
use super::shown::shown;
use super::values;
use super::yaml::{YamlFile, YamlGlobal, YamlJob, YamlJobsFile};
use crate::model::{Labels, format_duration};
use crate::scrape::discovery::matching_files;
use crate::yaml::{Spanned, decode, position, unknown_name};

/// The most bytes of a configuration file, inclusive.
pub const SCRAPE_FILE_BYTES_MAX: usize = 10 << 20;
/// The most jobs of a configuration, inclusive.
pub const SCRAPE_JOBS_MAX: usize = 2_000;
/// The most files of `scrape_config_files`, inclusive.
const FILES_MAX: usize = 1_000;
/// The most bytes of a path, a parameter or a job's name, inclusive.
const TEXT_BYTES_MAX: usize = 2_048;
/// The most parameters of a URL, inclusive.
const PARAMS_MAX: usize = 64;
/// The default of `scrape_interval`.
const INTERVAL_MS: i64 = 60_000;
/// The default of `scrape_timeout`.
const TIMEOUT_MS: i64 = 10_000;

/// The default of `scrape_protocols`.
const PROTOCOLS: [ScrapeProtocol; 4] = [
    ScrapeProtocol::OpenMetrics100,
    ScrapeProtocol::OpenMetrics001,
    ScrapeProtocol::PrometheusText100,
    ScrapeProtocol::PrometheusText004,
];

impl ScrapeConfig {
    /// Reads the file of a configuration and the files that it names. Relative paths begin at the
    /// folder of the file that contains them.
    ///
    /// # Errors
    /// [`ScrapeConfigError`] with file, line and column.
    pub fn read(path: &Path) -> Result<ScrapeConfig, ScrapeConfigError> {
        let of_file = |error: ScrapeConfigError| ScrapeConfigError {
            file: error.file.or(Some(path.to_owned())),
            ..error
        };
        let text = read_file(path)?;
        ScrapeConfig::parse(&text, &ScrapeFiles::Below(folder_of(path))).map_err(of_file)
    }

    /// Parses a configuration, and reads the files that it names.
    ///
    /// # Errors
    /// [`ScrapeConfigError`] with line and column; with a file if it is about another file.
    pub fn parse(text: &str, files: &ScrapeFiles) -> Result<ScrapeConfig, ScrapeConfigError> {
        // A file without content is a valid configuration.
        let file: Option<YamlFile> = decode(text, SCRAPE_FILE_BYTES_MAX)?;
        let file = file.unwrap_or_default();
        let mut config = ScrapeConfig::default();
        config.notices.extend(
            file.ignored().map(|(key, instead)| format!("{key}: this key has no effect here; {instead}")),
        );
        let defaults = match &file.global {
            Some(global) => {
                config.external_labels = external_labels(&global.value)?;
                config.notices.extend(ignored_of_global(&global.value));
                JobDefaults::of(global)?
            }
            None => JobDefaults::default(),
        };
        let mut reader = JobReader { defaults, names: BTreeSet::new(), config };
        for job in file.scrape_configs.iter().flatten() {
            reader.add(job, files)?;
        }
        for pattern in file.scrape_config_files.iter().flatten() {
            reader.add_files(pattern, files)?;
        }
        reader.config.shown = shown(text).into();
        Ok(reader.config)
    }
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().map_or_else(PathBuf::new, Path::to_owned)
}

fn read_file(path: &Path) -> Result<String, ScrapeConfigError> {
    read_bounded(path, SCRAPE_FILE_BYTES_MAX as u64).map_err(|message| ScrapeConfigError {
        file: None,
        position: None,
        message,
    })
}

fn external_labels(global: &YamlGlobal) -> Result<Labels, ScrapeConfigError> {
    let Some(labels) = &global.external_labels else { return Ok(Labels::default()) };
    values::checked_labels(&labels.value).map_err(|message| problem(position(labels), message))
}

fn ignored_of_global(global: &YamlGlobal) -> impl Iterator<Item = String> {
    let keys = [
        ("scrape_failure_log_file", &global.scrape_failure_log_file),
        ("evaluation_interval", &global.evaluation_interval),
        ("rule_query_offset", &global.rule_query_offset),
        ("query_log_file", &global.query_log_file),
    ];
    let given = keys.into_iter().filter(|(_, value)| value.is_some()).map(|(key, _)| key);
    let converts = global.convert_classic_histograms_to_nhcb == Some(true);
    let given = given.chain(converts.then_some("convert_classic_histograms_to_nhcb"));
    given.map(|key| format!("global.{key}: this key has no effect here; the other keys are used"))
}

/// The values of `global` that jobs take over.
#[derive(Debug)]
struct JobDefaults {
    interval_ms: i64,
    timeout_ms: i64,
    protocols: Option<Vec<ScrapeProtocol>>,
    native_histograms: bool,
    classic_histograms: bool,
    limits: ScrapeLimits,
    validation: Option<NameValidation>,
    escaping: Option<NameEscaping>,
}

impl Default for JobDefaults {
    fn default() -> JobDefaults {
        JobDefaults {
            interval_ms: INTERVAL_MS,
            timeout_ms: TIMEOUT_MS,
            protocols: None,
            native_histograms: false,
            classic_histograms: false,
            limits: ScrapeLimits::default(),
            validation: None,
            escaping: None,
        }
    }
}

/// Returns the first value that is not zero.
fn or_default<T: Default + PartialEq>(value: T, default: T) -> T {
    if value == T::default() { default } else { value }
}

impl JobDefaults {
    fn of(global: &Spanned<YamlGlobal>) -> Result<JobDefaults, ScrapeConfigError> {
        let yaml = &global.value;
        let interval_ms = or_default(values::duration_ms(yaml.scrape_interval.as_ref())?, INTERVAL_MS);
        let timeout_ms = values::duration_ms(yaml.scrape_timeout.as_ref())?;
        if let Some(timeout) = yaml.scrape_timeout.as_ref().filter(|_| timeout_ms > interval_ms) {
            return refuse(timeout, "global scrape timeout greater than scrape interval");
        }
        Ok(JobDefaults {
            interval_ms,
            timeout_ms: or_default(timeout_ms, TIMEOUT_MS.min(interval_ms)),
            protocols: values::protocols(yaml.scrape_protocols.as_ref())?,
            native_histograms: yaml.scrape_native_histograms.unwrap_or(false),
            classic_histograms: yaml.always_scrape_classic_histograms.unwrap_or(false),
            limits: ScrapeLimits {
                sample_limit: yaml.sample_limit.unwrap_or(0),
                label_limit: yaml.label_limit.unwrap_or(0),
                label_name_length_limit: yaml.label_name_length_limit.unwrap_or(0),
                label_value_length_limit: yaml.label_value_length_limit.unwrap_or(0),
                target_limit: yaml.target_limit.unwrap_or(0),
                body_size_limit: values::size_bytes(yaml.body_size_limit.as_ref())?,
                native_histogram_bucket_limit: 0,
                native_histogram_min_bucket_factor_e9: 0,
                keep_dropped_targets: yaml.keep_dropped_targets.unwrap_or(0),
            },
            validation: values::validation(yaml.metric_name_validation_scheme.as_ref())?,
            escaping: values::escaping(yaml.metric_name_escaping_scheme.as_ref())?,
        })
    }

    fn limits(&self, yaml: &YamlJob) -> Result<ScrapeLimits, ScrapeConfigError> {
        let of = &self.limits;
        Ok(ScrapeLimits {
            sample_limit: or_default(yaml.sample_limit.unwrap_or(0), of.sample_limit),
            label_limit: or_default(yaml.label_limit.unwrap_or(0), of.label_limit),
            label_name_length_limit: or_default(
                yaml.label_name_length_limit.unwrap_or(0),
                of.label_name_length_limit,
            ),
            label_value_length_limit: or_default(
                yaml.label_value_length_limit.unwrap_or(0),
                of.label_value_length_limit,
            ),
            target_limit: or_default(yaml.target_limit.unwrap_or(0), of.target_limit),
            body_size_limit: or_default(
                values::size_bytes(yaml.body_size_limit.as_ref())?,
                of.body_size_limit,
            ),
            native_histogram_bucket_limit: yaml.native_histogram_bucket_limit.unwrap_or(0),
            native_histogram_min_bucket_factor_e9: values::factor_e9(
                yaml.native_histogram_min_bucket_factor.as_ref(),
            )?,
            keep_dropped_targets: or_default(yaml.keep_dropped_targets.unwrap_or(0), of.keep_dropped_targets),
        })
    }

    fn protocols(&self, yaml: &YamlJob) -> Result<Vec<ScrapeProtocol>, ScrapeConfigError> {
        let own = values::protocols(yaml.scrape_protocols.as_ref())?.or_else(|| self.protocols.clone());
        if let Some(own) = own {
            return Ok(own);
        }
        let is_native = yaml.scrape_native_histograms.unwrap_or(self.native_histograms);
        let proto = is_native.then_some(ScrapeProtocol::PrometheusProto);
        Ok(proto.into_iter().chain(PROTOCOLS).collect())
    }

    /// Returns interval and timeout of a job in milliseconds.
    fn times(&self, yaml: &YamlJob) -> Result<(i64, i64), ScrapeConfigError> {
        let interval_ms = or_default(values::duration_ms(yaml.scrape_interval.as_ref())?, self.interval_ms);
        let timeout_ms = values::duration_ms(yaml.scrape_timeout.as_ref())?;
        if let Some(timeout) = yaml.scrape_timeout.as_ref().filter(|_| timeout_ms > interval_ms) {
            let message = format!(
                "scrape timeout greater than scrape interval ({} > {})",
                format_duration(timeout_ms),
                format_duration(interval_ms)
            );
            return refuse(timeout, message);
        }
        Ok((interval_ms, or_default(timeout_ms, self.timeout_ms.min(interval_ms))))
    }

    /// Returns how names are checked and escaped.
    fn names(&self, yaml: &YamlJob) -> Result<(NameValidation, NameEscaping), ScrapeConfigError> {
        let own = values::validation(yaml.metric_name_validation_scheme.as_ref())?;
        let validation = own.or(self.validation).unwrap_or_default();
        let own = values::escaping(yaml.metric_name_escaping_scheme.as_ref())?;
        // As in Prometheus, the default follows from the validation of `global`, not of the job.
        let default = match self.validation.unwrap_or_default() {
            NameValidation::Utf8 => NameEscaping::AllowUtf8,
            NameValidation::Legacy => NameEscaping::Underscores,
        };
        let escaping = own.or(self.escaping).unwrap_or(default);
        if (validation, escaping) != (NameValidation::Legacy, NameEscaping::AllowUtf8) {
            return Ok((validation, escaping));
        }
        let given = yaml.metric_name_escaping_scheme.as_ref();
        let given = given.or(yaml.metric_name_validation_scheme.as_ref()).or(yaml.job_name.as_ref());
        let message = "utf8 names requested but validation scheme is not set to UTF8".to_owned();
        Err(ScrapeConfigError { file: None, position: given.map(position), message })
    }
}

/// Reads jobs of one or several files.
struct JobReader {
    defaults: JobDefaults,
    names: BTreeSet<Arc<str>>,
    config: ScrapeConfig,
}

impl JobReader {
    fn add(
        &mut self,
        spanned: &Spanned<Option<YamlJob>>,
        files: &ScrapeFiles,
    ) -> Result<(), ScrapeConfigError> {
        let Some(yaml) = &spanned.value else {
            return refuse(spanned, "empty or null scrape config section");
        };
        let name = job_name(spanned, yaml)?;
        if let Some((key, at)) = yaml.refused() {
            let message = format!(
                "job {name:?}: {key} is not supported; supported are static_configs, file_sd_configs, \
                 http_sd_configs and dns_sd_configs"
            );
            return Err(problem(at, message));
        }
        if !self.names.insert(Arc::clone(&name)) {
            let at = yaml.job_name.as_ref().map_or_else(|| position(spanned), position);
            return Err(problem(at, format!("found multiple scrape configs with job name {name:?}")));
        }
        if self.config.jobs.len() >= SCRAPE_JOBS_MAX {
            return refuse(spanned, format!("at most {SCRAPE_JOBS_MAX} jobs are allowed"));
        }
        if yaml.scrape_failure_log_file.is_some() {
            let notice = format!(
                "job {name:?}: scrape_failure_log_file has no effect here; failures are shown with \
                         the target"
            );
            self.config.notices.push(notice);
        }
        if yaml.convert_classic_histograms_to_nhcb == Some(true) {
            let notice = format!(
                "job {name:?}: convert_classic_histograms_to_nhcb has no effect here; classic histograms \
                 are stored as they are"
            );
            self.config.notices.push(notice);
        }
        let job = self.job(name, yaml, files)?;
        self.config.jobs.push(Arc::new(job));
        Ok(())
    }

    fn job(
        &self,
        name: Arc<str>,
        yaml: &YamlJob,
        files: &ScrapeFiles,
    ) -> Result<ScrapeJob, ScrapeConfigError> {
        let defaults = &self.defaults;
        let (interval_ms, timeout_ms) = defaults.times(yaml)?;
        let (name_validation, name_escaping) = defaults.names(yaml)?;
        let classic = yaml.always_scrape_classic_histograms.or(yaml.scrape_classic_histograms);
        Ok(ScrapeJob {
            interval_ms,
            timeout_ms,
            metrics_path: metrics_path(yaml)?,
            scheme: scheme(yaml)?,
            params: params(&name, yaml)?,
            honor_labels: yaml.honor_labels.unwrap_or(false),
            honor_timestamps: yaml.honor_timestamps.unwrap_or(true),
            track_timestamps_staleness: yaml.track_timestamps_staleness.unwrap_or(false),
            limits: defaults.limits(yaml)?,
            protocols: defaults.protocols(yaml)?,
            fallback_protocol: values::fallback_protocol(yaml.fallback_scrape_protocol.as_ref())?,
            classic_histograms: classic.unwrap_or(defaults.classic_histograms),
            name_validation,
            name_escaping,
            client: client_options(yaml.client(), files)?,
            enable_compression: yaml.enable_compression.unwrap_or(true),
            metric_relabel: values::rules(yaml.metric_relabel_configs.as_ref())?,
            relabel: values::rules(yaml.relabel_configs.as_ref())?,
            agent_relabel: Arc::default(),
            discoveries: discoveries(yaml, files)?,
            name,
        })
    }

    /// Adds the jobs of the files that a pattern matches.
    fn add_files(&mut self, pattern: &Spanned<String>, files: &ScrapeFiles) -> Result<(), ScrapeConfigError> {
        let at = |message: String| problem(position(pattern), message);
        let path = files.path(&pattern.value).map_err(at)?;
        for path in matching_files(&path, FILES_MAX).map_err(at)? {
            let of_file = |error: ScrapeConfigError| ScrapeConfigError {
                file: error.file.or(Some(path.clone())),
                ..error
            };
            let text = read_file(&path)?;
            let file: Option<YamlJobsFile> =
                decode(&text, SCRAPE_FILE_BYTES_MAX).map_err(|error| of_file(error.into()))?;
            let below = ScrapeFiles::Below(folder_of(&path));
            for job in file.unwrap_or_default().scrape_configs.iter().flatten() {
                self.add(job, &below).map_err(of_file)?;
            }
        }
        Ok(())
    }
}

fn job_name(spanned: &Spanned<Option<YamlJob>>, yaml: &YamlJob) -> Result<Arc<str>, ScrapeConfigError> {
    let Some(name) = yaml.job_name.as_ref().filter(|name| !name.value.is_empty()) else {
        return refuse(spanned, "job_name is empty");
    };
    match name.value.len() > TEXT_BYTES_MAX {
        true => refuse(name, format!("job_name has more than {TEXT_BYTES_MAX} bytes")),
        false => Ok(name.value.as_str().into()),
    }
}

fn metrics_path(yaml: &YamlJob) -> Result<Arc<str>, ScrapeConfigError> {
    match yaml.metrics_path.as_ref().filter(|path| !path.value.is_empty()) {
        None => Ok("/metrics".into()),
        Some(path) if path.value.len() > TEXT_BYTES_MAX => {
            refuse(path, format!("metrics_path has more than {TEXT_BYTES_MAX} bytes"))
        }
        Some(path) => Ok(path.value.as_str().into()),
    }
}

fn scheme(yaml: &YamlJob) -> Result<ScrapeScheme, ScrapeConfigError> {
    match &yaml.scheme {
        None => Ok(ScrapeScheme::Http),
        Some(scheme) => match scheme.value.as_str() {
            "http" | "" => Ok(ScrapeScheme::Http),
            "https" => Ok(ScrapeScheme::Https),
            other => refuse(scheme, unknown_name("scheme", other, &["http", "https"])),
        },
    }
}

fn params(name: &str, yaml: &YamlJob) -> Result<Vec<(String, Vec<String>)>, ScrapeConfigError> {
    let given = yaml.params.iter().flatten();
    let params: Vec<(String, Vec<String>)> =
        given.map(|(name, values)| (name.clone(), values.clone())).collect();
    let count: usize = params.iter().map(|(_, values)| values.len()).sum();
    let is_long = |text: &String| text.len() > TEXT_BYTES_MAX;
    let has_long = params.iter().any(|(name, values)| is_long(name) || values.iter().any(is_long));
    if count > PARAMS_MAX || has_long {
        let message = format!(
            "job {name:?}: at most {PARAMS_MAX} params with at most {TEXT_BYTES_MAX} bytes each are allowed"
        );
        let at = yaml.job_name.as_ref().map(position);
        return Err(ScrapeConfigError { file: None, position: at, message });
    }
    Ok(params)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
