//! Diagnoses an installation from outside, without opening the store and without changing anything.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::admin::{AdminClient, AdminError, AdminRequest};
use super::{mail, options};
use crate::config::{AccountCommand, MailSetting, MasterKeySetting, Settings, StatsCommand};
use crate::kv::{self, with_sources};
use crate::model::Timestamp;
use crate::outbound::Mailer;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Everything is in order.
    Pass,
    /// The checked part works but needs attention.
    Warn,
    /// The checked part does not work, or will not work after the next start.
    Fail,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// The part: `folder`, `key`, `clock`, ...
    pub part: &'static str,
    /// The severity.
    pub severity: Severity,
    /// A description.
    pub summary: String,
    /// The advice; empty if there is nothing to do.
    pub advice: String,
}

/// All findings.
#[derive(Clone, Debug, Default)]
pub struct Diagnoses(pub Vec<Diagnosis>);

impl Diagnoses {
    /// Returns the greatest severity.
    pub fn severity(&self) -> Severity {
        self.0.iter().map(|one| one.severity).max().unwrap_or(Severity::Pass)
    }

    fn pass(&mut self, part: &'static str, summary: impl Into<String>) {
        self.0.push(Diagnosis {
            part,
            severity: Severity::Pass,
            summary: summary.into(),
            advice: String::new(),
        });
    }

    fn warn(&mut self, part: &'static str, summary: impl Into<String>, advice: impl Into<String>) {
        self.0.push(Diagnosis {
            part,
            severity: Severity::Warn,
            summary: summary.into(),
            advice: advice.into(),
        });
    }

    fn fail(&mut self, part: &'static str, summary: impl Into<String>, advice: impl Into<String>) {
        self.0.push(Diagnosis {
            part,
            severity: Severity::Fail,
            summary: summary.into(),
            advice: advice.into(),
        });
    }
}

/// How long a peer may take to respond.
const PEER_TIMEOUT: Duration = Duration::from_secs(3);
/// How far files of the folder may be ahead of the clock, in seconds.
const AHEAD_S: i64 = 300;
/// 2026-01-01, before which this program did not exist.
const FIRST_DAY_S: i64 = 1_767_225_600;
/// The recommended limit of open files: 1,024 connections and the files of samples.
const FILES_MIN: u64 = 4_096;

/// Examines every part.
pub fn diagnose(settings: &Settings, now: Timestamp) -> Diagnoses {
    let mut diagnoses = Diagnoses::default();
    let dir = &settings.data_dir;
    let mut settings = settings.clone();
    let running = server(&mut diagnoses, dir);
    if let Some(running) = &running {
        running.correct(&mut settings);
    }
    let settings = &settings;
    folder(&mut diagnoses, dir, running.is_some());
    master_key(&mut diagnoses, settings);
    clock(&mut diagnoses, dir, now);
    space(&mut diagnoses, dir);
    port(&mut diagnoses, settings, running.is_some());
    public_url(&mut diagnoses, settings);
    embedding(&mut diagnoses, settings);
    mailer(&mut diagnoses, settings);
    files(&mut diagnoses);
    if let Some(RunningServer { stats: Some(stats), .. }) = &running {
        accounts(&mut diagnoses, stats);
    }
    diagnoses
}

/// The statements of a running server.
struct RunningServer {
    status: Value,
    stats: Option<Value>,
}

impl RunningServer {
    /// Replaces the addresses in the settings by those of the running server, which may have been
    /// started with other settings.
    fn correct(&self, settings: &mut Settings) {
        if let Some(listen) = self.status["listen"].as_str().and_then(|text| text.parse().ok()) {
            settings.listen = listen;
        }
        if let Some(url) = self.status["public_url"].as_str() {
            settings.public_url = Some(url.to_owned());
        }
    }
}

/// Returns the server that runs on the folder; `None` if none does or it cannot be reached.
fn server(diagnoses: &mut Diagnoses, dir: &Path) -> Option<RunningServer> {
    let mut client = match AdminClient::connect(dir) {
        Ok(client) => client,
        Err(AdminError::NotRunning { .. }) => {
            match kv::holder(dir).ok().flatten() {
                Some(holder) => diagnoses.warn(
                    "server",
                    format!("another process holds the folder ({holder}) and does not respond to commands"),
                    "it may just be starting: try again in a moment",
                ),
                None => diagnoses.pass("server", "none runs on this folder"),
            }
            return None;
        }
        Err(error) => {
            diagnoses.warn("server", with_sources(&error), "run this as the user that the server runs as");
            return None;
        }
    };
    let status = client.request::<Value>(&AdminRequest::Status);
    match &status {
        Ok(status) if status["version"] == env!("CARGO_PKG_VERSION") => {
            diagnoses.pass(
                "server",
                format!("runs (pid {}, version {})", status["pid"], env!("CARGO_PKG_VERSION")),
            );
        }
        Ok(status) => diagnoses.warn(
            "server",
            format!("runs version {}, this program is {}", status["version"], env!("CARGO_PKG_VERSION")),
            "restart the server, or use its own program",
        ),
        Err(error) => diagnoses.warn("server", with_sources(error), "restart the server"),
    }
    let command = AccountCommand::Stats(StatsCommand {});
    let stats = client.request::<Value>(&AdminRequest::Account { command }).ok();
    Some(RunningServer { status: status.ok()?, stats })
}

fn folder(diagnoses: &mut Diagnoses, dir: &Path, is_running: bool) {
    let shown = dir.display();
    let meta = match fs::metadata(dir) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return diagnoses
                .pass("folder", format!("{shown} does not exist yet: the first start creates it"));
        }
        Err(e) => {
            let advice =
                "run this as the user that the server runs as, or name another folder with --data-dir";
            return diagnoses.fail("folder", format!("{shown} cannot be examined: {e}"), advice);
        }
    };
    if !meta.is_dir() {
        return diagnoses.fail("folder", format!("{shown} is not a folder"), "name a folder with --data-dir");
    }
    let mode = meta.permissions().mode() & 0o777;
    if !dir.join("STORE").exists() && fs::read_dir(dir).is_ok_and(|mut all| all.next().is_some()) {
        let advice = "name a data folder of promlet, or an empty folder, with --data-dir";
        return diagnoses.fail("folder", format!("{shown} contains something other than a store"), advice);
    }
    if mode & 0o077 != 0 {
        diagnoses.warn(
            "folder",
            format!("{shown} has mode {mode:03o}: others on this machine can list it"),
            format!("chmod 700 {shown}"),
        );
    } else {
        diagnoses.pass("folder", format!("{shown}, mode {mode:03o}"));
    }
    // The server cannot use a folder that it may not write. root may write to any.
    let own = fs::metadata("/proc/self").map(|own| own.uid());
    if let (Ok(own), false) = (own, is_running)
        && own != 0
        && own != meta.uid()
    {
        let summary = format!("{shown} belongs to user {}, this is user {own}", meta.uid());
        diagnoses.fail("folder", summary, "run the server as the owner of the folder");
    }
}

fn master_key(diagnoses: &mut Diagnoses, settings: &Settings) {
    let path = match &settings.master_key {
        Some(MasterKeySetting::Value(_)) => {
            return diagnoses.pass("key", "the master key comes from the environment");
        }
        Some(MasterKeySetting::File(path)) => path.clone(),
        None => settings.data_dir.join("master.key"),
    };
    let shown = path.display();
    match fs::metadata(&path) {
        Ok(meta) => match meta.permissions().mode() & 0o777 {
            mode if mode & 0o007 != 0 => diagnoses.fail(
                "key",
                format!("{shown} has mode {mode:03o}, readable by everyone: no server starts with it"),
                format!("chmod 600 {shown}; if others use this machine, they may have read it"),
            ),
            mode if mode & 0o070 != 0 => diagnoses.warn(
                "key",
                format!("{shown} has mode {mode:03o}, readable by its group"),
                format!("chmod 600 {shown}"),
            ),
            mode => diagnoses.pass("key", format!("{shown}, mode {mode:03o}; keep a copy elsewhere")),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let has_owner = settings.data_dir.join("INITIALISED").exists();
            if has_owner || settings.master_key.is_some() {
                let advice =
                    "restore it from a copy: without it no second factor and no HS256 token can be verified";
                diagnoses.fail("key", format!("{shown} is missing"), advice);
            } else {
                diagnoses.pass("key", "the first start creates it");
            }
        }
        Err(e) => {
            diagnoses.fail("key", format!("{shown}: {e}"), "run this as the user that the server runs as");
        }
    }
}

fn clock(diagnoses: &mut Diagnoses, dir: &Path, now: Timestamp) {
    if now.as_s() < FIRST_DAY_S {
        let advice = "set the clock (timedatectl set-ntp true): codes, tokens and retention depend on it";
        return diagnoses.fail("clock", format!("it shows {}", now.to_rfc3339()), advice);
    }
    let newest = ["LOCK", "CLEAN", "INITIALISED", "STORE", "wal", "control"].iter().filter_map(|name| {
        let modified = fs::metadata(dir.join(name)).ok()?.modified().ok()?;
        i64::try_from(modified.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
    });
    match newest.max() {
        Some(newest) if newest > now.as_s().saturating_add(AHEAD_S) => {
            let advice = "set the clock (timedatectl set-ntp true); samples ahead of it by more than 10 minutes are refused";
            let last = Timestamp::from_s(newest).to_rfc3339();
            diagnoses.warn(
                "clock",
                format!("it shows {}, but the folder was last written at {last}", now.to_rfc3339()),
                advice,
            );
        }
        _ => diagnoses.pass("clock", now.to_rfc3339()),
    }
}

fn space(diagnoses: &mut Diagnoses, dir: &Path) {
    // A folder that does not exist yet will be on the file system of its parent.
    let place = dir.ancestors().find(|place| place.exists()).unwrap_or(Path::new("."));
    let stat = match rustix::fs::statvfs(place) {
        Ok(stat) => stat,
        Err(e) => return diagnoses.warn("space", format!("{}: {e}", place.display()), ""),
    };
    let (free, total) =
        (stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize));
    let floor = (total / 50).clamp(256 << 20, 1 << 30);
    let summary = format!("{} MiB free of {} MiB", free >> 20, total >> 20);
    let advice = "free some space, or limit organisations with max_disk_bytes and retention_days";
    if free < floor {
        diagnoses.fail("space", format!("{summary}: below {} MiB writes are refused", floor >> 20), advice);
    } else if free < floor.saturating_mul(2) {
        diagnoses.warn("space", format!("{summary}: below {} MiB writes are refused", floor >> 20), advice);
    } else {
        diagnoses.pass("space", summary);
    }
}

fn port(diagnoses: &mut Diagnoses, settings: &Settings, is_running: bool) {
    let address = settings.listen;
    if is_running {
        let peer = if address.ip().is_unspecified() {
            SocketAddr::new(IpAddr::from([127, 0, 0, 1]), address.port())
        } else {
            address
        };
        return match healthz(peer) {
            Ok(()) => diagnoses.pass("port", format!("{address} responds")),
            Err(why) => diagnoses.warn(
                "port",
                format!("a server runs on this folder, but {address} does not respond as one: {why}"),
                "check for a firewall or another program there",
            ),
        };
    }
    match TcpListener::bind(address) {
        Ok(_) => diagnoses.pass("port", format!("{address} is free")),
        Err(e) => {
            let advice = "end the program that uses it (ss -ltnp shows which), or choose another address with --listen";
            diagnoses.fail("port", format!("cannot listen on {address}: {e}"), advice);
        }
    }
}

fn healthz(peer: SocketAddr) -> Result<(), String> {
    let words = |e: io::Error| e.to_string();
    let mut stream = TcpStream::connect_timeout(&peer, PEER_TIMEOUT).map_err(words)?;
    stream.set_read_timeout(Some(PEER_TIMEOUT)).map_err(words)?;
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {peer}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(words)?;
    let mut answer = Vec::new();
    stream.take(4_096).read_to_end(&mut answer).map_err(words)?;
    match answer.starts_with(b"HTTP/1.1 200") {
        true => Ok(()),
        false => Err("another program responds there".to_owned()),
    }
}

/// The places from which a browser can reach the public URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UrlReach {
    /// This machine: `localhost`, `*.localhost`, 127.0.0.0/8, ::1.
    Machine,
    /// A private network, whose addresses are not routed.
    Network,
    /// Anywhere.
    World,
}

impl UrlReach {
    fn of(host: &str) -> UrlReach {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(ip) if ip.is_loopback() => UrlReach::Machine,
            Ok(IpAddr::V4(ip)) if ip.is_private() || ip.is_link_local() => UrlReach::Network,
            Ok(IpAddr::V6(ip)) if ip.is_unique_local() || ip.is_unicast_link_local() => UrlReach::Network,
            Ok(_) => UrlReach::World,
            Err(_) if bare == "localhost" || bare.ends_with(".localhost") => UrlReach::Machine,
            Err(_) if bare.ends_with(".local") || bare.ends_with(".lan") || !bare.contains('.') => {
                UrlReach::Network
            }
            Err(_) => UrlReach::World,
        }
    }
}

/// Returns the public URL, whether it is https, and its host.
fn url_parts(settings: &Settings) -> (String, bool, String) {
    let url = options::public_url(settings, settings.listen);
    let is_https = url.starts_with("https://");
    let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.rfind(':') {
        Some(at) if !authority.ends_with(']') => &authority[..at],
        _ => authority,
    };
    let host = host.to_owned();
    (url, is_https, host)
}

fn public_url(diagnoses: &mut Diagnoses, settings: &Settings) {
    let (url, is_https, host) = url_parts(settings);
    let reach = UrlReach::of(&host);
    if !is_https && reach != UrlReach::Machine {
        let advice = "put TLS in front (or --tls-cert), and set --public-url https://…";
        diagnoses.warn("url", format!("{url}: passwords and cookies cross the network readable"), advice);
    } else if settings.public_url.is_none() && !settings.listen.ip().is_loopback() {
        let advice = "set --public-url: links in mails begin with it, and its host name is accepted";
        diagnoses.warn("url", format!("none is set; {url} is used"), advice);
    } else {
        diagnoses.pass("url", url.clone());
    }
    if settings.public_url.is_none() {
        diagnoses.pass(
            "url",
            "if a proxy serves this server to other machines, set --public-url: without it, requests through a proxy that adds \
             no header count as requests of this machine, which read /metrics and create the first account without a token",
        );
    }
    // A host that does not resolve would be in every mail.
    if reach == UrlReach::World
        && host.parse::<IpAddr>().is_err()
        && (host.as_str(), 443).to_socket_addrs().is_err()
    {
        diagnoses.warn(
            "url",
            format!("{host} has no address"),
            "create a DNS entry, or correct --public-url",
        );
    }
    if url.starts_with("http://127.") {
        diagnoses.pass(
            "url",
            "cookies of 127.0.0.1 are shared by all programs on all ports of this machine: http://metrics.localhost:PORT as \
             --public-url keeps them apart",
        );
    }
}

/// Reports which pages can show a chart of this server. Browsers ask before a public page may reach
/// a local machine.
fn embedding(diagnoses: &mut Diagnoses, settings: &Settings) {
    let (url, is_https, host) = url_parts(settings);
    match (UrlReach::of(&host), is_https) {
        (UrlReach::Machine, _) => {
            diagnoses
                .pass("embed", "pages on http://localhost, any port, in a browser on this machine: work");
            diagnoses.pass(
                "embed",
                "pages of a public https site, in a browser on this machine: the browser asks for permission (local network \
                 access, Chrome 142 and later); an iframe needs allow=\"local-network-access\"",
            );
            diagnoses.pass("embed", "pages of a public http site, and browsers elsewhere: do not work; use a tunnel or a public URL");
        }
        (UrlReach::Network, false) => {
            diagnoses.pass("embed", "http pages inside of this network: work");
            diagnoses.warn(
                "embed",
                format!("https pages: blocked as mixed content, since {url} is http"),
                "put TLS in front, and set --public-url https://…",
            );
        }
        (UrlReach::Network, true) => {
            diagnoses.pass("embed", "pages inside of this network: work");
            diagnoses.pass(
                "embed",
                "pages of a public https site: the browser asks for permission (local network access)",
            );
        }
        (UrlReach::World, false) => {
            diagnoses.warn(
                "embed",
                "https pages: blocked as mixed content; http pages: work, tokens cross the network readable",
                "put TLS in front, and set --public-url https://…",
            );
        }
        (UrlReach::World, true) => {
            diagnoses.pass("embed", "pages anywhere that the API key's and the token's origins allow: work");
        }
    }
}

fn mailer(diagnoses: &mut Diagnoses, settings: &Settings) {
    if let MailSetting::Console = settings.mail {
        return diagnoses
            .pass("mail", "links are printed on standard output; promlet login-link prints one as well");
    }
    let made = mail::mailer(&settings.mail);
    if made.as_ref().is_ok_and(mail::sends_readable) {
        diagnoses.warn("mail", mail::READABLE, mail::READABLE_NEXT);
    }
    let checked = match made {
        Ok(Mailer::Smtp(smtp)) => smtp.check(),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    match checked {
        Ok(()) => diagnoses.pass("mail", "the mail server responds"),
        Err(error) => diagnoses.fail(
            "mail",
            with_sources(&error),
            "correct PROMLET_SMTP_URL; meanwhile promlet login-link and promlet org invite print links",
        ),
    }
}

/// Reports the limit of open files, which Linux shows in a file. Other systems get no finding.
fn files(diagnoses: &mut Diagnoses) {
    let Ok(text) = fs::read_to_string("/proc/self/limits") else { return };
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
    // The server raises the soft limit, which comes first, to the hard limit.
    let Some(hard) = line.and_then(|line| line.split_whitespace().nth(1)) else { return };
    match hard.parse::<u64>() {
        Ok(hard) if hard < FILES_MIN => diagnoses.warn(
            "files",
            format!(
                "a process may open {hard} files here: 1,024 connections and the files of samples need more"
            ),
            format!("ulimit -n {FILES_MIN}, or LimitNOFILE={FILES_MIN} in the service"),
        ),
        _ => diagnoses.pass("files", format!("a process may open {hard} files")),
    }
}

fn accounts(diagnoses: &mut Diagnoses, stats: &Value) {
    let count = |name: &str| stats[name].as_u64().unwrap_or_default();
    let summary = format!(
        "{} accounts, {} organisations, {} API keys",
        count("users"),
        count("orgs"),
        count("api_keys")
    );
    if count("users") == 0 {
        let advice = "open the set-up link that the server printed, or: promlet user create EMAIL";
        diagnoses.warn("accounts", "none yet", advice);
    } else if count("admins") == 0 {
        diagnoses.fail(
            "accounts",
            format!("{summary}; no account administers the server"),
            "promlet user admin EMAIL",
        );
    } else {
        diagnoses.pass("accounts", summary);
    }
    if count("orgs_being_removed") > 0 {
        diagnoses.pass(
            "accounts",
            format!("{} deleted organisations are being removed", count("orgs_being_removed")),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_decides_from_where_a_url_is_reached() {
        use UrlReach::{Machine, Network, World};
        let cases = [
            ("localhost", Machine),
            ("metrics.localhost", Machine),
            ("127.0.0.1", Machine),
            ("127.9.9.9", Machine),
            ("[::1]", Machine),
            ("192.168.1.7", Network),
            ("10.0.0.1", Network),
            ("[fd00::1]", Network),
            ("nas.local", Network),
            ("nas", Network),
            ("metrics.example.com", World),
            ("203.0.113.7", World),
        ];
        for (host, reach) in cases {
            assert_eq!(UrlReach::of(host), reach, "{host}");
        }
    }
}
