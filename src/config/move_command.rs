//! `promlet org move`: its grammar on the command line and its JSON on the admin socket.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use serde::{Deserialize, Serialize};

use super::settings::SecretSetting;

/// The arguments of `promlet org move`.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[command(group = ArgGroup::new("action").required(true).args(["to", "back", "status", "stop", "drop_local"]))]
pub struct MoveCommand {
    /// The organisation
    pub slug: String,
    /// Move its samples to the server with this URL for remote write
    #[arg(long, value_name = "URL")]
    pub to: Option<String>,
    /// Move its samples back to this server
    #[arg(long)]
    #[serde(default)]
    pub back: bool,
    /// Show the state of its move
    #[arg(long)]
    #[serde(default)]
    pub status: bool,
    /// Stop its move; what the target has stays there
    #[arg(long)]
    #[serde(default)]
    pub stop: bool,
    /// Remove its samples from this server, after a completed move
    #[arg(long)]
    #[serde(default)]
    pub drop_local: bool,
    /// Do not ask for confirmation
    #[arg(long, requires = "drop_local", conflicts_with_all = ["to", "back", "status", "stop"])]
    #[serde(default)]
    pub yes: bool,
    /// The URL that the paths of the query API are appended to [default: --to without its last
    /// part]
    #[arg(long, value_name = "URL", requires = "to")]
    pub read: Option<String>,
    /// Only show how much would be moved, how long it takes and what would not fit
    #[arg(long, requires = "to", conflicts_with_all = ["back", "status", "stop", "drop_local"])]
    #[serde(default)]
    pub dry_run: bool,
    /// The version of remote write: 1 or 2
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub protocol: u8,
    /// The compression of requests: snappy or zstd
    #[arg(long, default_value = "snappy", value_parser = ["snappy", "zstd"])]
    pub compression: String,
    /// The tenant at the target: header:NAME=VALUE, path:VALUE ({tenant} in the URLs) or
    /// label:NAME=VALUE
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// A further header of each request: NAME=VALUE
    #[arg(long = "header", value_name = "HEADER")]
    #[serde(default)]
    pub headers: Vec<String>,
    /// The user name of basic authentication; its password is in --password-file
    #[arg(long, value_name = "NAME", requires = "password_file")]
    pub username: Option<String>,
    /// The file with the password
    #[arg(long, value_name = "FILE", requires = "username")]
    #[serde(skip)]
    pub password_file: Option<PathBuf>,
    /// The file with a bearer token
    #[arg(long, value_name = "FILE", conflicts_with = "username")]
    #[serde(skip)]
    pub token_file: Option<PathBuf>,
    /// The file with the certificate authorities of the target
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub ca_file: Option<PathBuf>,
    /// How many seconds the target may take to show samples that it accepted [default: 15 for
    /// VictoriaMetrics, 1 for others]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(0..=600))]
    pub settle: Option<u16>,
    /// Switch although samples differ or were refused
    #[arg(long)]
    #[serde(default)]
    pub accept_differences: bool,
    /// Return at once; the server continues the move
    #[arg(long)]
    #[serde(skip)]
    pub detach: bool,
    /// The password or the token, which `cli` reads
    #[arg(skip)]
    pub secret: Option<SecretSetting>,
    /// The certificate authorities, which `cli` reads
    #[arg(skip)]
    pub ca_pem: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        command: MoveCommand,
    }

    #[test]
    fn a_dry_run_needs_a_target_and_yes_a_deletion() {
        for (text, is_valid) in [
            ("move shop --to http://t/write --dry-run", true),
            ("move shop --drop-local --dry-run", false),
            ("move shop --back --dry-run", false),
            ("move shop --stop --dry-run", false),
            ("move shop --drop-local --yes", true),
            ("move shop --back --yes", false),
        ] {
            assert_eq!(Line::try_parse_from(text.split(' ')).is_ok(), is_valid, "{text}");
        }
    }
}
