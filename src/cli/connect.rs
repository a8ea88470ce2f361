//! `promlet connect`: prints the configuration of a client with a new API key.
//!
//! The configuration is alone on standard output. The texts are those of the page *Add data*
//! (`ui/assets/model/snippets.js`), and a test compares both.

use serde_json::Value;

use super::accounts::perform;
use super::output::{print, remark_line};
use crate::config::{AccountCommand, ConnectClient, ConnectCommand, Settings};

/// The configuration of a client.
struct Configuration {
    /// The text, in which `${base}` is the URL of the organisation in the API, and `${secret}` the
    /// secret of the key.
    text: &'static str,
    /// The sentence for people about the use of the text.
    usage: &'static str,
}

const PROMETHEUS: Configuration = Configuration {
    text: "\
remote_write:
  - url: ${base}/prometheus/api/v1/write
    protobuf_message: io.prometheus.write.v2.Request
    send_native_histograms: true
    authorization:
      credentials: ${secret}
",
    usage: "Add it to prometheus.yml and reload Prometheus. Versions before 3 and other agents need the \
            text without the lines protobuf_message and send_native_histograms.",
};

const OTEL: Configuration = Configuration {
    text: "\
receivers:
  otlp:
    protocols:
      grpc:
        endpoint: localhost:4317
      http:
        endpoint: localhost:4318

processors:
  batch: {}

exporters:
  otlphttp/promlet:
    endpoint: ${base}/otlp
    headers:
      Authorization: Bearer ${secret}

service:
  pipelines:
    metrics:
      receivers: [otlp]
      processors: [batch]
      exporters: [otlphttp/promlet]
",
    usage: "Start the Collector with it as config.yaml. If yours has a pipeline of metrics, add the exporter \
            and its name to it.",
};

const TELEGRAF: Configuration = Configuration {
    text: "\
[[outputs.influxdb_v2]]
  urls = [\"${base}/influx\"]
  token = \"${secret}\"
  organization = \"promlet\"
  bucket = \"telegraf\"
",
    usage: "Write it to a file in /etc/telegraf/telegraf.d and restart Telegraf. The bucket becomes the \
            label db.",
};

const INFLUX: Configuration = Configuration {
    text: "\
echo 'room,floor=2 temperature=21.5' |
  curl -H 'Authorization: Token ${secret}' --data-binary @- \\
  '${base}/influx/write?db=lab'
",
    usage: "Run it to send one sample, room_temperature. Clients of InfluxDB 1 and 2 take the URL up to \
            /influx, and the key as token or as password.",
};

const CURL: Configuration = Configuration {
    text: "\
printf 'temperature_celsius{city=\"Oslo\"} 3.5\\n' |
  curl -H 'Authorization: Bearer ${secret}' --data-binary @- \\
  '${base}/import'
",
    usage: "Run it to send one sample. The body is what a /metrics endpoint returns.",
};

const GRAFANA: Configuration = Configuration {
    text: "\
apiVersion: 1
datasources:
  - name: promlet
    type: prometheus
    access: proxy
    url: ${base}/prometheus
    basicAuth: true
    basicAuthUser: grafana
    secureJsonData:
      basicAuthPassword: ${secret}
",
    usage: "Write it to a file in /etc/grafana/provisioning/datasources and restart Grafana, or type its \
            URL, user and password into a new data source of the type Prometheus.",
};

impl Configuration {
    fn of(client: ConnectClient) -> &'static Configuration {
        match client {
            ConnectClient::Prometheus => &PROMETHEUS,
            ConnectClient::Otel => &OTEL,
            ConnectClient::Telegraf => &TELEGRAF,
            ConnectClient::Influx => &INFLUX,
            ConnectClient::Curl => &CURL,
            ConnectClient::Grafana => &GRAFANA,
        }
    }

    /// Returns the text with the values of an organisation.
    fn filled(&self, base: &str, secret: &str) -> String {
        self.text.replace("${base}", base).replace("${secret}", secret)
    }
}

/// Creates the key and prints the configuration. Remarks go to standard error.
pub(super) fn run(settings: &Settings, command: ConnectCommand, json: bool) -> anyhow::Result<()> {
    let configuration = Configuration::of(command.client);
    let slug = command.slug.clone();
    let mut answer = perform(settings, AccountCommand::Connect(command))?;
    let field = |name: &str| answer[name].as_str().unwrap_or_default();
    let text = configuration.filled(field("base_url"), field("secret"));
    if json {
        answer["configuration"] = Value::String(text);
        return print(format_args!("{answer:#}\n"));
    }
    let (id, scope) = (field("id"), answer["scopes"][0].as_str().unwrap_or_default());
    remark_line(format_args!(
        "Created the API key {id} of {slug} with the scope {scope}. Its secret is in the configuration, and \
         shown only this once."
    ));
    print(text)?;
    remark_line(configuration.usage);
    match field("base_url_source") {
        "server" => {
            remark_line("The URL in it begins as the public URL of the server does; --url sets another one.");
        }
        "settings" => remark_line(assumption(settings)),
        _ => {}
    }
    remark_line(format_args!("To revoke the key: promlet key revoke {slug} {id}"));
    Ok(())
}

/// Returns the remark on the URL of a server that does not run.
fn assumption(settings: &Settings) -> String {
    let assumed = match (&settings.public_url, &settings.tls) {
        (Some(_), _) => "have the public URL of this command (PROMLET_PUBLIC_URL)".to_owned(),
        (None, Some(_)) => {
            format!("listen on {} with TLS (PROMLET_LISTEN, PROMLET_TLS_CERT)", settings.listen)
        }
        (None, None) => format!("listen on {} without TLS (PROMLET_LISTEN)", settings.listen),
    };
    format!("No server runs: the URL in it assumes that it will {assumed}; --url sets another one.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../ui/assets/model/snippets.js");

    /// The page has the text in a template, in which a backslash is doubled. The template of a
    /// command has its header, its body and its path in different places.
    #[test]
    fn the_texts_are_those_of_the_page_that_adds_data() {
        for whole in [&PROMETHEUS, &OTEL, &TELEGRAF, &INFLUX] {
            assert!(PAGE.contains(&whole.text.replace('\\', "\\\\")), "the page lacks\n{}", whole.text);
        }
        let parts = ["printf 'temperature_celsius{city=\"Oslo\"} 3.5\\n'", "Authorization: Bearer ${secret}"];
        for part in parts.iter().chain(&["--data-binary @-"]) {
            assert!(CURL.text.contains(part) && PAGE.contains(&part.replace('\\', "\\\\")), "{part}");
        }
        assert!(CURL.text.contains("'${base}/import'") && PAGE.contains("'/import')"));
        assert!(GRAFANA.text.contains("url: ${base}/prometheus\n"));
        assert!(PAGE.contains("URL:      ${base}/prometheus\nUser:     grafana\nPassword: ${key}\n"));
    }

    #[test]
    fn every_value_is_filled_in() {
        for client in [
            ConnectClient::Prometheus,
            ConnectClient::Otel,
            ConnectClient::Telegraf,
            ConnectClient::Influx,
            ConnectClient::Curl,
            ConnectClient::Grafana,
        ] {
            let text = Configuration::of(client).filled("http://h/api/v1/orgs/a", "msk_1");
            assert!(text.contains("http://h/api/v1/orgs/a/") && text.contains("msk_1"), "{text}");
            assert!(!text.contains("${"), "{text}");
        }
    }
}
