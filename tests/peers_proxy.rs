//! Behind a real nginx that ends TLS and puts everything below a path, as the README shows it: once with a proxy that hands
//! the path on, once with one that cuts it off. Looked at with sockets and with Chromium.
//!
//! nginx comes from Debian's archive, unpacked below `target/`; where it cannot be had the test fails and says so.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "peers/chromium.rs"]
mod chromium;
#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/https.rs"]
mod https;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use harness::{EMAIL, ORG, PASSWORD, Server, Start, bootstrap};
use https::{fixture, https};
use promlet::clock::Stopwatch;
use serde_json::json;

/// The unpacked nginx.
fn nginx() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nginx");
    // This machine's own release, so that its libraries fit.
    let script = ". /etc/os-release && exec sh \"$0\" \"$VERSION_CODENAME\" \"$1\" nginx";
    let status = Command::new("sh")
        .args(["-c", script])
        .arg(root.join("tests/peers/debian.sh"))
        .arg(&dir)
        .status()
        .expect("a shell");
    assert!(status.success(), "nginx could not be fetched; see the lines above");
    dir.join("root/usr/sbin/nginx")
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}

struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One server that hands the path on, one that cuts it off; everything else as in the README.
fn configuration(dir: &Path, handing: u16, cutting: u16, upstream: &str) -> String {
    let (cert, key) = (fixture("one.crt"), fixture("one.key"));
    let server = |port: u16, end: &str| {
        format!(
            "server {{
                listen 127.0.0.1:{port} ssl;
                server_name localhost;
                ssl_certificate {cert};
                ssl_certificate_key {key};
                client_max_body_size 16m;
                location /tools/promlet/ {{
                    proxy_pass {upstream}{end};
                    proxy_set_header Host $host;
                    proxy_set_header X-Forwarded-For $remote_addr;
                    proxy_set_header X-Forwarded-Proto $scheme;
                    proxy_buffering off;
                }}
                location / {{ return 404; }}
            }}",
            cert = cert.display(),
            key = key.display(),
        )
    };
    let dir = dir.display();
    format!(
        "daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log;
         events {{ worker_connections 64; }}
         http {{
            access_log off;
            client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c;
            uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;
            {} {}
         }}",
        server(handing, ""),
        server(cutting, "/"),
    )
}

#[test]
fn everything_works_below_a_path_behind_nginx() {
    let nginx = nginx();
    let (handing, cutting) = (free_port(), free_port());
    let public_url = format!("https://localhost:{handing}/tools/promlet");
    let data = tempfile::tempdir().expect("a folder");
    let environment = bootstrap();
    let env = [
        environment[0],
        environment[1],
        environment[2],
        ("PROMLET_PUBLIC_URL", &*public_url),
        ("PROMLET_TRUSTED_PROXIES", "127.0.0.1"),
    ];
    let server = Server::start(&Start { args: &["serve"], dir: data.path(), env: &env });
    let dir = tempfile::tempdir().expect("a folder");
    let config = dir.path().join("nginx.conf");
    std::fs::write(&config, configuration(dir.path(), handing, cutting, &server.url)).expect("written");
    let errors = || std::fs::read_to_string(dir.path().join("error.log")).unwrap_or_default();
    let child = Command::new(&nginx)
        .args(["-e", "stderr", "-p"])
        .arg(dir.path())
        .arg("-c")
        .arg(&config)
        .stdin(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("nginx does not start: {error}"));
    let _proxy = Proxy(child);
    let begun = Stopwatch::start();
    while std::net::TcpStream::connect(("127.0.0.1", handing)).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30), "nginx does not listen: {}", errors());
        std::thread::sleep(Duration::from_millis(20));
    }
    for port in [handing, cutting] {
        let ask = |method: &str, path: &str, headers: &str, body: &str| {
            https(port, "one", &format!(
                "{method} /tools/promlet{path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .unwrap_or_else(|error| panic!("{path}: {error}; nginx said {}", errors()))
        };
        assert!(ask("GET", "/healthz", "", "").ends_with("ok"));
        let login = json!({ "email": EMAIL, "password": PASSWORD }).to_string();
        let answer = ask(
            "POST",
            "/api/v1/auth/login",
            "Content-Type: application/json\r\nSec-Fetch-Site: same-origin\r\n",
            &login,
        );
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let cookie = answer.lines().find_map(|line| {
            line.strip_prefix("set-cookie: ms_session=").or(line.strip_prefix("Set-Cookie: ms_session="))
        });
        let cookie = cookie.expect("a session");
        assert!(cookie.contains("Path=/tools/promlet") && cookie.contains("Secure"), "{cookie}");
        let session = format!("Cookie: ms_session={}\r\n", cookie.split(';').next().expect("a value"));
        let me = ask("GET", &format!("/api/v1/orgs/{ORG}"), &session, "");
        assert!(me.starts_with("HTTP/1.1 200") && me.contains("\"role\":\"owner\""), "{me}");
        // The proxy is on this machine; who comes through it is not.
        assert!(ask("GET", "/metrics", "", "").starts_with("HTTP/1.1 401"));
        let foreign = https(
            port,
            "one",
            "GET /tools/promlet/healthz HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        );
        assert!(foreign.expect("an answer").starts_with("HTTP/1.1 421"), "the proxy hands the name on");
        let page = ask("GET", "/login", "", "");
        assert!(page.contains("src=\"/tools/promlet/app.js\""), "{page}");
    }
    let account = json!({ "email": EMAIL, "password": PASSWORD, "org": ORG, "tls": true });
    for (port, name) in [(handing, "a proxy that hands the path on"), (cutting, "one that cuts it off")] {
        let base = format!("https://localhost:{port}/tools/promlet");
        if let Err(why) = chromium::drive("below", &base, &account) {
            panic!("{name}: {why}; nginx said {}; the server said:\n{}", errors(), server.log());
        }
    }
}
