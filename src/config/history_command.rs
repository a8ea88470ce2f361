//! `promlet import`, `promlet verify-import` and `promlet export`: their grammar.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::model::Timestamp;

/// The kind of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImportKind {
    /// A file in OpenMetrics
    Openmetrics,
    /// A file in the text format of Prometheus
    Prometheus,
    /// JSON lines of VictoriaMetrics
    Jsonl,
    /// Comma-separated values
    Csv,
    /// Lines of InfluxDB
    Influx,
    /// The data folder of a stopped Prometheus, or a folder of blocks
    PrometheusBlocks,
    /// The URL of a server with remote read, without /api/v1/read
    RemoteRead,
    /// The URL of a VictoriaMetrics, without /api/v1/export
    Victoriametrics,
}

/// The kind of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportKind {
    /// OpenMetrics
    Openmetrics,
    /// The text format of Prometheus
    Prometheus,
    /// JSON lines of VictoriaMetrics
    Jsonl,
    /// Comma-separated values with a header
    Csv,
    /// Blocks for the data folder of a Prometheus
    PrometheusBlocks,
}

/// The location of promlet's samples.
#[derive(Args, Clone, Debug)]
pub struct HistoryPlace {
    /// The organisation in the data folder of a stopped server
    #[arg(long, value_name = "SLUG", required_unless_present = "url", conflicts_with = "url")]
    pub org: Option<String>,
    /// The URL of the organisation at a running server: http://HOST/api/v1/orgs/SLUG/prometheus
    #[arg(long, value_name = "URL", requires = "token_file")]
    pub url: Option<String>,
    /// The file with an API key of the server; imports need the scope ingest, exports, previews of
    /// conflicts and comparisons the scope read
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The file with certificate authorities to trust for the server
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
}

/// Which samples are copied.
#[derive(Args, Clone, Debug)]
pub struct HistorySelection {
    /// Copy only series that this selector matches; with several, series that one of them matches
    #[arg(long = "match", value_name = "SELECTOR")]
    pub selectors: Vec<String>,
    /// Copy no samples before this time: RFC 3339 or Unix seconds
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<Timestamp>,
    /// Copy no samples after this time: RFC 3339 or Unix seconds
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub to: Option<Timestamp>,
}

/// The arguments of `promlet import` and `promlet verify-import`.
#[derive(Args, Clone, Debug)]
pub struct ImportCommand {
    /// The kind of the source
    pub kind: ImportKind,
    /// The file (- for standard input), the folder or the URL
    pub source: String,
    /// The organisation and its server
    #[command(flatten)]
    pub place: HistoryPlace,
    /// The selected samples
    #[command(flatten)]
    pub selection: HistorySelection,
    /// The file with rules that change labels on the way (YAML, as write_relabel_configs)
    #[arg(long, value_name = "FILE")]
    pub relabel: Option<PathBuf>,
    /// The columns of CSV without a header: 1:time:unix_s,2:metric:NAME,3:label:NAME
    #[arg(long, value_name = "COLUMNS")]
    pub columns: Option<String>,
    /// The unit of the times of Influx: ns, us, ms, s, m or h
    #[arg(long, value_name = "UNIT", default_value = "ns")]
    pub precision: String,
    /// The value of the label db of Influx lines
    #[arg(long, value_name = "NAME", default_value = "")]
    pub db: String,
    /// The user name of the source; its password is in --source-secret-file
    #[arg(long, value_name = "NAME", requires = "source_secret_file")]
    pub source_username: Option<String>,
    /// The file with the password or the bearer token of the source
    #[arg(long, value_name = "FILE")]
    pub source_secret_file: Option<PathBuf>,
    /// The file with certificate authorities to trust for the source
    #[arg(long, value_name = "FILE")]
    pub source_ca_file: Option<PathBuf>,
    /// The file that keeps the position of an interrupted import [default: a file in the current
    /// folder]
    #[arg(long, value_name = "FILE")]
    pub progress: Option<PathBuf>,
    /// Write nothing: show series, times, cardinality and conflicts
    #[arg(long)]
    pub dry_run: bool,
}

/// The arguments of `promlet export`.
#[derive(Args, Clone, Debug)]
pub struct ExportCommand {
    /// The format of the output
    pub kind: ExportKind,
    /// The file to write (- for standard output), or the folder that gets the blocks
    pub out: PathBuf,
    /// The organisation and its server
    #[command(flatten)]
    pub place: HistoryPlace,
    /// The selected samples
    #[command(flatten)]
    pub selection: HistorySelection,
    /// The time range of a block, in hours
    #[arg(long, value_name = "HOURS", default_value_t = 18, value_parser = clap::value_parser!(u16).range(1..=744))]
    pub block_hours: u16,
}

/// Parses a time: RFC 3339, or seconds since 1970 with an optional fraction.
pub(super) fn time(text: &str) -> Result<Timestamp, String> {
    let wrong = || "a time is 2026-01-31T08:00:00Z or a number of seconds since 1970".to_owned();
    if let Some(at) = Timestamp::from_rfc3339(text) {
        return Ok(at);
    }
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().map_err(|_| wrong())?;
    if fraction.len() > 3 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let ms: i64 = format!("{fraction:0<3}").parse().map_err(|_| wrong())?;
    let ms = if whole.starts_with('-') { -ms } else { ms };
    let all = seconds.checked_mul(1_000).and_then(|all| all.checked_add(ms)).ok_or_else(wrong)?;
    Ok(Timestamp::from_ms(all))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct ImportLine {
        #[command(flatten)]
        command: ImportCommand,
    }

    #[test]
    fn a_time_is_rfc_3339_or_seconds() {
        for (text, ms) in [
            ("1970-01-01T00:00:01.5Z", 1_500),
            ("0", 0),
            ("12.25", 12_250),
            ("-1.5", -1_500),
            ("1795731540", 1_795_731_540_000),
        ] {
            assert_eq!(time(text).map(Timestamp::as_ms), Ok(ms), "{text}");
        }
        for text in ["", "x", "1.2345", "1.x", "9223372036854775807"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_import_names_an_organisation_of_a_folder_or_a_server_with_a_key() {
        for (text, is_valid) in [
            ("import openmetrics f --org shop", true),
            ("import prometheus-blocks data --url http://h/x --token-file k", true),
            ("import remote-read http://p --org shop --from 2026-01-01T00:00:00Z --match up", true),
            ("import openmetrics f", false),
            ("import openmetrics f --url http://h/x", false),
            ("import openmetrics f --org shop --url http://h/x --token-file k", false),
            ("import native f --org shop", false),
        ] {
            assert_eq!(ImportLine::try_parse_from(text.split(' ')).is_ok(), is_valid, "{text}");
        }
    }
}
