//! `promlet connect`: its grammar on the command line and its JSON on the admin socket.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// A program that sends samples to an organisation, or reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectClient {
    /// `remote_write` of a Prometheus
    Prometheus,
    /// The configuration of an OpenTelemetry Collector
    Otel,
    /// An output of Telegraf
    Telegraf,
    /// A command that sends InfluxDB's line protocol
    Influx,
    /// A command that sends the text format of Prometheus
    Curl,
    /// A data source of Grafana, as a provisioning file
    Grafana,
}

impl ConnectClient {
    /// Returns the name on the command line, which is the default name of the key.
    pub fn as_str(self) -> &'static str {
        match self {
            ConnectClient::Prometheus => "prometheus",
            ConnectClient::Otel => "otel",
            ConnectClient::Telegraf => "telegraf",
            ConnectClient::Influx => "influx",
            ConnectClient::Curl => "curl",
            ConnectClient::Grafana => "grafana",
        }
    }

    /// Returns the only scope of an API key that the client needs.
    pub fn scope(self) -> &'static str {
        if self == ConnectClient::Grafana { "read" } else { "ingest" }
    }
}

/// `promlet connect`
#[derive(Clone, Debug, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(tag = "what", rename = "connect")]
pub struct ConnectCommand {
    /// The program that sends samples, or reads them
    pub client: ConnectClient,
    /// The organisation
    #[arg(long = "org", value_name = "SLUG")]
    pub slug: String,
    /// The name of the new key [default: that of the program]
    #[arg(long)]
    pub name: Option<String>,
    /// The URL of the server as the program reaches it [default: its public URL, or that of the
    /// settings if no server runs]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
}
