//! `promlet connect`: each printed configuration is read as its program reads it, and its URL and
//! key are used.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use promlet::clock::Clock;
use promlet::model::{Labels, Sample};
use promlet::yaml;
use serde_json::{Value as Json, json};

use crate::admin_cli::{promlet, promlet_with, refused, run_json, run_ok, text};
use crate::harness::{Answer, EMAIL, ORG, Server, Start, bootstrap, compressed, request, scratch};
use crate::ingest_protocols::{line_protocol, otlp, version_2};

/// The greatest size of a configuration in bytes.
const TEXT_BYTES: usize = 4 << 10;

/// Returns the configuration on standard output and the remarks on standard error.
fn connect(dir: &Path, client: &str) -> (String, String) {
    let output = promlet(dir, &["connect", client, "--org", ORG], "");
    let remarks = text(&output.stderr);
    assert!(output.status.success(), "{client}: {remarks}");
    (text(&output.stdout), remarks)
}

fn read_yaml(configuration: &str) -> Json {
    yaml::decode(configuration, TEXT_BYTES).unwrap_or_else(|e| panic!("{e}:\n{configuration}"))
}

fn plain(value: &Json) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// Returns a series of one sample.
fn series(name: &str, value: f64) -> [(Labels, Vec<Sample>); 1] {
    let at = Clock::System.now().plus_ms(-1_000);
    [(Labels::from_pairs([("__name__", name)]), vec![Sample { at, value }])]
}

fn post(url: &str, headers: &[(&str, &str)], body: &[u8]) -> u16 {
    request("POST", url, headers, Some(body)).status
}

/// Runs a printed command.
fn run_in_shell(command: &str) {
    let mut shell = Command::new("sh").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
    shell.stdin.take().expect("piped").write_all(command.as_bytes()).expect("it reads");
    let output = shell.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{command}");
}

/// Returns the values of a file of `name = value` lines, whose values have the form of JSON.
fn read_assignments(configuration: &str) -> Json {
    let (title, lines) = configuration.split_once('\n').expect("a title");
    assert_eq!(title, "[[outputs.influxdb_v2]]");
    let pair = |line: &str| {
        let (name, value) = line.split_once(" = ").unwrap_or_else(|| panic!("{line:?}"));
        (name.trim().to_owned(), serde_json::from_str(value).unwrap_or_else(|e| panic!("{e}: {value}")))
    };
    Json::Object(lines.lines().map(pair).collect())
}

/// Evaluates an expression as Grafana does with this data source.
fn ask(source: &Json, expr: &str) -> Answer {
    let user_and_password = format!(
        "{}:{}",
        plain(&source["basicAuthUser"]),
        plain(&source["secureJsonData"]["basicAuthPassword"])
    );
    let basic = format!("Basic {}", data_encoding::BASE64.encode(user_and_password.as_bytes()));
    let url = format!("{}/api/v1/query", plain(&source["url"]));
    let headers = [("Authorization", &*basic), ("Content-Type", "application/x-www-form-urlencoded")];
    request("POST", &url, &headers, Some(format!("query={expr}").as_bytes()))
}

#[test]
fn each_printed_configuration_reaches_the_server_with_its_key() {
    let dir = scratch::temporary_folder().expect("a folder");
    let (server, dir) = (Server::serve(dir.path()), dir.path());

    let printed = read_yaml(&connect(dir, "prometheus").0);
    let target = &printed["remote_write"][0];
    assert_eq!(target["protobuf_message"], "io.prometheus.write.v2.Request");
    let bearer = format!("Bearer {}", plain(&target["authorization"]["credentials"]));
    let headers = [
        ("Authorization", &*bearer),
        ("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
        ("Content-Encoding", "snappy"),
    ];
    let body = compressed(&version_2(&series("from_prometheus", 1.0)));
    assert_eq!(post(plain(&target["url"]), &headers, &body), 204);
    // The key can do nothing else.
    let reads = format!("{}/api/v1/orgs/{ORG}/prometheus/api/v1/query?query=up", server.url);
    assert_eq!(request("GET", &reads, &[("Authorization", &bearer)], None).status, 403);

    let printed = read_yaml(&connect(dir, "otel").0);
    // The Collector refuses a pipeline that names a component without a configuration.
    for (kind, name) in [("receivers", "otlp"), ("processors", "batch"), ("exporters", "otlphttp/promlet")] {
        assert_eq!(printed["service"]["pipelines"]["metrics"][kind], json!([name]));
        assert!(printed[kind][name].is_object(), "{kind}: {printed}");
    }
    assert_eq!(printed["receivers"]["otlp"]["protocols"]["http"]["endpoint"], "localhost:4318");
    let exporter = &printed["exporters"]["otlphttp/promlet"];
    let headers = [
        ("Authorization", plain(&exporter["headers"]["Authorization"])),
        ("Content-Type", "application/json"),
    ];
    let url = format!("{}/v1/metrics", plain(&exporter["endpoint"]));
    assert_eq!(post(&url, &headers, otlp(&series("from_otel", 2.0)).as_bytes()), 200);

    let output = read_assignments(&connect(dir, "telegraf").0);
    let url = format!(
        "{}/api/v2/write?org={}&bucket={}&precision=ms",
        plain(&output["urls"][0]),
        plain(&output["organization"]),
        plain(&output["bucket"])
    );
    let token = format!("Token {}", plain(&output["token"]));
    let lines = line_protocol(&series("from_telegraf", 3.0));
    assert_eq!(post(&url, &[("Authorization", &*token)], lines.as_bytes()), 204);

    run_in_shell(&connect(dir, "influx").0);
    run_in_shell(&connect(dir, "curl").0);

    let printed = read_yaml(&connect(dir, "grafana").0);
    let source = &printed["datasources"][0];
    assert_eq!((&printed["apiVersion"], &source["type"]), (&json!(1), &json!("prometheus")));
    for (expr, value) in [
        ("from_prometheus", "1"),
        ("from_otel", "2"),
        (r#"from_telegraf{db="telegraf"}"#, "3"),
        (r#"room_temperature{floor="2",db="lab"}"#, "21.5"),
        (r#"temperature_celsius{city="Oslo"}"#, "3.5"),
    ] {
        let answer = ask(source, expr);
        assert_eq!(answer.status, 200, "{expr}: {}", answer.body);
        assert_eq!(answer.json()["data"]["result"][0]["value"][1], value, "{expr}: {}", answer.body);
    }
    let bearer = format!("Bearer {}", plain(&source["secureJsonData"]["basicAuthPassword"]));
    let import = format!("{}/api/v1/orgs/{ORG}/import", server.url);
    assert_eq!(post(&import, &[("Authorization", &*bearer)], b"up 1\n"), 403);
}

#[test]
fn remarks_name_the_key_and_the_command_that_revokes_it() {
    let dir = scratch::temporary_folder().expect("a folder");
    let (server, dir) = (Server::serve(dir.path()), dir.path());
    let (configuration, remarks) = connect(dir, "curl");
    let command = remarks.lines().find_map(|line| line.split_once("promlet key revoke "));
    let revoked: Vec<&str> = command.unwrap_or_else(|| panic!("{remarks}")).1.split(' ').collect();
    let listed = run_json(dir, &["key", "list", ORG], "");
    assert_eq!((&listed["data"][0]["name"], &listed["data"][0]["id"]), (&json!("curl"), &json!(revoked[1])));
    assert_eq!(listed["data"][0]["scopes"], json!(["ingest"]));
    let bearer = configuration.split('\'').find(|text| text.starts_with("Authorization: "));
    let bearer = bearer.expect("a header").trim_start_matches("Authorization: ").to_owned();
    assert!(!remarks.contains(bearer.trim_start_matches("Bearer ")), "{remarks}");
    let import = format!("{}/api/v1/orgs/{ORG}/import", server.url);
    let send = || post(&import, &[("Authorization", &*bearer)], b"up 1\n");
    assert_eq!(send(), 200);
    run_ok(dir, &[&["key", "revoke"], &revoked[..]].concat(), "");
    assert_eq!(send(), 401);
    // For scripts, everything is in one document.
    let args =
        ["connect", "prometheus", "--org", ORG, "--name", "edge", "--url", "https://metrics.example.com/m/"];
    let made = run_json(dir, &args, "");
    let base = format!("https://metrics.example.com/m/api/v1/orgs/{ORG}");
    assert_eq!((&made["base_url"], &made["name"]), (&json!(base), &json!("edge")));
    let target = &read_yaml(plain(&made["configuration"]))["remote_write"][0];
    assert_eq!(target["url"], format!("{base}/prometheus/api/v1/write"));
    assert_eq!(target["authorization"]["credentials"], made["secret"]);
}

#[test]
fn a_key_for_a_stopped_folder_works_after_the_start() {
    let dir = scratch::temporary_folder().expect("a folder");
    let dir = dir.path();
    assert_eq!(Server::serve(dir).terminate().code(), Some(0));
    let printed = read_yaml(&connect(dir, "prometheus").0);
    let target = &printed["remote_write"][0];
    let address = "http://127.0.0.1:8095";
    assert_eq!(target["url"], format!("{address}/api/v1/orgs/{ORG}/prometheus/api/v1/write"));
    let server = Server::start(&Start { args: &["serve"], dir, env: &bootstrap() });
    let url = plain(&target["url"]).replace(address, &server.url);
    let bearer = format!("Bearer {}", plain(&target["authorization"]["credentials"]));
    let headers = [
        ("Authorization", &*bearer),
        ("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
        ("Content-Encoding", "snappy"),
    ];
    assert_eq!(post(&url, &headers, &compressed(&version_2(&series("later", 1.0)))), 204);
}

#[test]
fn the_url_for_a_stopped_folder_is_that_of_its_settings() {
    let dir = scratch::temporary_folder().expect("a folder");
    let dir = dir.path();
    assert_eq!(Server::serve(dir).terminate().code(), Some(0));
    let tls = [("PROMLET_TLS_CERT", "tls.crt"), ("PROMLET_TLS_KEY", "tls.key")];
    let listen = [tls[0], tls[1], ("PROMLET_LISTEN", "127.0.0.1:9443")];
    let public =
        [("PROMLET_PUBLIC_URL", "https://metrics.example.com/m/"), ("PROMLET_ALLOW_CONSOLE_MAIL", "1")];
    for (env, url, assumption) in [
        (&[][..], "http://127.0.0.1:8095", "listen on 127.0.0.1:8095 without TLS"),
        (&listen, "https://127.0.0.1:9443", "listen on 127.0.0.1:9443 with TLS"),
        (&public, "https://metrics.example.com/m", "have the public URL of this command"),
    ] {
        let output = promlet_with(dir, env, &["connect", "curl", "--org", ORG], "");
        let (printed, remarks) = (text(&output.stdout), text(&output.stderr));
        assert!(printed.contains(&format!("'{url}/api/v1/orgs/{ORG}/import'")), "{printed}{remarks}");
        assert!(remarks.contains(assumption) && remarks.contains("--url"), "{remarks}");
    }
    // A URL that was given assumes nothing.
    let output = promlet_with(dir, &tls, &["connect", "curl", "--org", ORG, "--url", "http://h:1"], "");
    assert!(text(&output.stdout).contains("'http://h:1/api/v1/orgs/"));
    assert!(!text(&output.stderr).contains("assumes"));
}

#[test]
fn a_refusal_prints_no_configuration_and_creates_no_key() {
    let dir = scratch::temporary_folder().expect("a folder");
    let empty = refused(dir.path(), &["connect", "curl", "--org", ORG], "");
    assert!(empty.contains("no server responds on") && empty.contains("--data-dir"), "{empty}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);

    let (_server, dir) = (Server::serve(dir.path()), dir.path());
    run_ok(dir, &["org", "create", "shop", "--owner", EMAIL], "");
    run_ok(dir, &["org", "delete", "shop", "--yes"], "");
    for org in ["nowhere", "shop"] {
        let output = promlet(dir, &["connect", "curl", "--org", org], "");
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()), "{org}");
        let why = text(&output.stderr);
        assert!(
            why.contains(&format!("no organisation {org:?}")) && why.contains("promlet org list"),
            "{why}"
        );
    }
    for url in
        ["metrics.example.com", "http://", "http://h/?a", "http://u:p@h", "http://h/'; ls '", "ftp://h"]
    {
        let why = refused(dir, &["connect", "curl", "--org", ORG, "--url", url], "");
        assert!(why.contains(&format!("{url:?}")) && why.contains("--url"), "{why}");
    }
    let unknown = promlet(dir, &["connect", "statsd", "--org", ORG], "");
    let why = text(&unknown.stderr);
    assert!(unknown.status.code() == Some(2) && why.contains("prometheus, otel, telegraf"), "{why}");
    assert!(refused(dir, &["connect", "curl"], "").contains("--org <SLUG>"));
    assert_eq!(run_json(dir, &["key", "list", ORG], "")["data"], json!([]));
}
