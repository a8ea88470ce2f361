//! Behind a real nginx and a real Caddy that terminate TLS and serve promlet below a path, with the
//! configuration of the guide: once with the path kept, once with it stripped. Tested with sockets
//! and with Chromium.
//!
//! Both come from Debian's archive, unpacked below `target/`; if either is unavailable, the test
//! fails and reports it.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "peers/chromium.rs"]
mod chromium;
#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/https.rs"]
mod https;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;
#[path = "peers/servers.rs"]
#[expect(dead_code, reason = "shared: each target needs other servers")]
mod servers;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use harness::{EMAIL, ORG, PASSWORD, Server, Start, bootstrap};
use https::{fixture, https};
use serde_json::json;
use servers::{Peer, free_port, listening, nginx};

/// The guide's block of this kind, with this server's address in place of the one that it shows.
fn guide_block(kind: &str, upstream: &str) -> String {
    const SHOWN: &str = "127.0.0.1:8095";
    let text = include_str!("../docs/guide/reverse-proxy.md");
    let (_, after) = text.split_once(&format!("```{kind}\n")).expect("the guide shows it");
    let (block, _) = after.split_once("```").expect("it ends");
    assert!(block.contains(SHOWN), "{block}");
    block.replace(SHOWN, upstream)
}

/// One nginx server that hands the path on as the guide has it, one that cuts it off.
fn nginx_servers(ports: [u16; 2], upstream: &str) -> String {
    let (cert, key) = (fixture("one.crt"), fixture("one.key"));
    let handing = guide_block("nginx", upstream);
    let cutting = handing.replace(&format!("{upstream};"), &format!("{upstream}/;"));
    assert_ne!(handing, cutting);
    let servers = ports.iter().zip([handing, cutting]).map(|(port, location)| {
        format!(
            "server {{
                listen 127.0.0.1:{port} ssl;
                server_name localhost;
                ssl_certificate {};
                ssl_certificate_key {};
                {location}
                location / {{ return 404; }}
            }}",
            cert.display(),
            key.display(),
        )
    });
    servers.collect()
}

/// The same of Caddy. Its certificate is ours, since no authority gives one for this machine.
fn caddy(ports: [u16; 2], upstream: &str) -> String {
    let tls = format!("tls {} {}", fixture("one.crt").display(), fixture("one.key").display());
    let handing = guide_block("caddy", upstream);
    let cutting = handing.replace("handle /tools", "handle_path /tools");
    assert_ne!(handing, cutting);
    let sites = ports.iter().zip([handing, cutting]).map(|(port, site)| {
        let named = site.replacen("example.com {", &format!("https://localhost:{port} {{\n{tls}"), 1);
        assert_ne!(site, named);
        named
    });
    let sites: String = sites.collect();
    format!("{{\n admin off\n auto_https disable_redirects\n servers {{\n protocols h1 h2\n }}\n}}\n{sites}")
}

/// A server below a path, and a proxy in front of it.
struct Behind {
    server: Server,
    ports: [u16; 2],
    _proxy: Peer,
    _folders: [tempfile::TempDir; 2],
}

/// Starts both. `proxy` returns the command of the proxy, given its folder, its ports and the
/// address of the server. If another program takes one of the ports first, the proxy ends, and both
/// are started again with other ports.
fn behind(proxy: impl Fn(&Path, [u16; 2], &str) -> Command) -> Behind {
    (0..3).find_map(|_| try_behind(&proxy)).expect("a proxy that listens: see the lines above")
}

/// Like [`behind`], once. Returns none if the proxy ends before it listens.
fn try_behind(proxy: &impl Fn(&Path, [u16; 2], &str) -> Command) -> Option<Behind> {
    let ports = [free_port(), free_port()];
    let public_url = format!("https://localhost:{}/tools/promlet", ports[0]);
    let data = tempfile::tempdir().expect("a folder");
    let mut env = bootstrap().to_vec();
    env.extend([("PROMLET_PUBLIC_URL", &*public_url), ("PROMLET_TRUSTED_PROXIES", "127.0.0.1")]);
    let server = Server::start(&Start { args: &["serve"], dir: data.path(), env: &env });
    let dir = tempfile::tempdir().expect("a folder");
    let upstream = server.url.trim_start_matches("http://").to_owned();
    let mut command = proxy(dir.path(), ports, &upstream);
    let proxy = listening(&mut command, &ports)?;
    Some(Behind { server, ports, _proxy: proxy, _folders: [data, dir] })
}

/// A connection from another address of this machine.
fn connect_from(source: &str, port: u16) -> TcpStream {
    let address = |text: &str| -> SocketAddr { text.parse().expect("an address") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4()?;
        socket.bind(address(&format!("{source}:0")))?;
        socket.connect(address(&format!("127.0.0.1:{port}"))).await?.into_std()
    });
    let stream = stream.expect("connected");
    stream.set_nonblocking(false).expect("ours");
    stream
}

/// An answer's status line, headers and body.
fn request(method: &str, port: u16, path: &str, headers: &str, body: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The `Cookie` header of an answer to a login, as it was set, attributes included.
fn set_cookie(answer: &str) -> String {
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let cookie = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        (name.eq_ignore_ascii_case("set-cookie") && value.starts_with("ms_session=")).then_some(value)
    });
    cookie.expect("a session").to_owned()
}

fn session(cookie: &str) -> String {
    format!("Cookie: {}\r\n", cookie.split(';').next().expect("a value"))
}

fn login() -> String {
    json!({ "email": EMAIL, "password": PASSWORD }).to_string()
}

const JSON: &str = "Content-Type: application/json\r\nSec-Fetch-Site: same-origin\r\n";

/// Everything that a person and a program do, through the proxy.
fn everything_works(behind: &Behind) {
    for port in behind.ports {
        let ask = |method: &str, path: &str, headers: &str, body: &str| {
            let request = request(method, port, &format!("/tools/promlet{path}"), headers, body);
            https(port, "one", &request).unwrap_or_else(|error| panic!("{path}: {error}"))
        };
        assert!(ask("GET", "/healthz", "", "").ends_with("ok"));
        let cookie = set_cookie(&ask("POST", "/api/v1/auth/login", JSON, &login()));
        assert!(cookie.contains("Path=/tools/promlet") && cookie.contains("Secure"), "{cookie}");
        let me = ask("GET", &format!("/api/v1/orgs/{ORG}"), &session(&cookie), "");
        assert!(me.starts_with("HTTP/1.1 200") && me.contains("\"role\":\"owner\""), "{me}");
        // The proxy is local; its clients are not.
        assert!(ask("GET", "/metrics", "", "").starts_with("HTTP/1.1 401"));
        let page = ask("GET", "/login", "", "");
        let script = page.split("src=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a script");
        let below = script.strip_prefix("/tools/promlet").unwrap_or_else(|| panic!("{page}"));
        assert!(below.starts_with("/assets/") && below.ends_with("/app.js"), "{page}");
        assert!(ask("GET", below, "", "").starts_with("HTTP/1.1 200"), "{below}");
        // A URL without the final slash redirects to the one with it.
        let bare = ask("GET", "", "", "");
        let led = bare.lines().find(|line| line.to_ascii_lowercase().starts_with("location: "));
        assert!(
            bare.starts_with("HTTP/1.1 30") && led.is_some_and(|to| to.ends_with("/tools/promlet/")),
            "{bare}"
        );
        // The largest remote write passes the proxy and reaches the server.
        let large = "x".repeat(8 << 20);
        let refused = ask("POST", &format!("/api/v1/orgs/{ORG}/write"), &session(&cookie), &large);
        assert!(
            refused.starts_with("HTTP/1.1 4") && refused.to_ascii_lowercase().contains("x-request-id"),
            "{refused:.400}"
        );
        assert!(!refused.starts_with("HTTP/1.1 413"), "{refused:.400}");
    }
    let account = json!({ "email": EMAIL, "password": PASSWORD, "org": ORG, "tls": true });
    for (port, name) in
        behind.ports.into_iter().zip(["a proxy that hands the path on", "one that cuts it off"])
    {
        let base = format!("https://localhost:{port}/tools/promlet");
        if let Err(why) = chromium::drive("below", &base, &account) {
            panic!("{name}: {why}; the server said:\n{}", behind.server.log());
        }
    }
}

/// docs/specification.md F45: the client address is the one that the trusted proxy reports. Headers
/// from the client and from any other peer are ignored.
fn only_the_proxy_is_believed(behind: &Behind) {
    let port = behind.ports[0];
    let forged = "X-Forwarded-For: 9.9.9.9\r\nForwarded: for=9.9.9.9\r\nX-Real-IP: 9.9.9.9\r\n";
    let stream = https::over(connect_from("127.0.0.9", port), "one").expect("a connection");
    let sent =
        request("POST", port, "/tools/promlet/api/v1/auth/login", &format!("{JSON}{forged}"), &login());
    let through = set_cookie(&https::ask(stream, &sent).expect("an answer"));
    // A direct request, from an address that is not a trusted proxy.
    let direct: SocketAddr = behind.server.url.trim_start_matches("http://").parse().expect("an address");
    let sent = request("POST", direct.port(), "/api/v1/auth/login", &format!("{JSON}{forged}"), &login());
    let direct = set_cookie(&plain(connect_from("127.0.0.7", direct.port()), &sent));
    assert_ne!(through, direct);
    let list = request("GET", port, "/tools/promlet/api/v1/auth/sessions", &session(&through), "");
    let list = https(port, "one", &list).expect("an answer");
    assert!(list.contains("\"ip\":\"127.0.0.9\"") && list.contains("\"ip\":\"127.0.0.7\""), "{list}");
    assert!(!list.contains("9.9.9.9"), "{list}");
}

fn plain(mut stream: TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("written");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("an answer");
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn a_program_whose_port_is_taken_ends_the_wait() {
    let dir = tempfile::tempdir().expect("a folder");
    let taken = tokio::net::TcpSocket::new_v4().expect("a socket");
    taken.bind("127.0.0.1:0".parse().expect("an address")).expect("bound");
    let port = taken.local_addr().expect("an address").port();
    let http = format!("server {{ listen 127.0.0.1:{port}; }}");
    assert!(listening(&mut nginx(dir.path(), &http), &[port]).is_none());
    drop(taken);
    assert!(listening(&mut nginx(dir.path(), &http), &[port]).is_some());
}

#[test]
fn everything_works_below_a_path_behind_nginx() {
    let behind = behind(|dir, ports, upstream| nginx(dir, &nginx_servers(ports, upstream)));
    everything_works(&behind);
    only_the_proxy_is_believed(&behind);
    let foreign = "GET /tools/promlet/healthz HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    let refused = https(behind.ports[0], "one", foreign).expect("an answer");
    assert!(refused.starts_with("HTTP/1.1 421"), "the proxy hands the name on: {refused}");
}

#[test]
fn everything_works_below_a_path_behind_caddy() {
    let program = packages::debian("caddy", &["caddy"]).join("usr/bin/caddy");
    let behind = behind(|dir, ports, upstream| {
        let config = dir.join("Caddyfile");
        std::fs::write(&config, caddy(ports, upstream)).expect("written");
        let mut command = Command::new(&program);
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(config);
        command.env("HOME", dir).env("XDG_DATA_HOME", dir).env("XDG_CONFIG_HOME", dir);
        command
    });
    everything_works(&behind);
    only_the_proxy_is_believed(&behind);
}
