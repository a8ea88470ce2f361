//! What is wrong with an installation: looked at from outside, without opening the store and without changing anything.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::admin::{AskError, Asking, Question};
use super::commands::Command;
use super::mail;
use crate::config::{Mail as MailSetting, MasterKeySource, Settings};
use crate::kv::{self, with_sources};
use crate::model::Timestamp;
use crate::outbound::Mailer;

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// As it should be.
    Good,
    /// Works, and deserves a look.
    Look,
    /// Does not work, or will not at the next start.
    Broken,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// Which part: `folder`, `key`, `clock`, ...
    pub part: &'static str,
    /// How it is.
    pub health: Health,
    /// In words.
    pub says: String,
    /// What to do; empty where there is nothing to do.
    pub next: String,
}

/// Everything that was looked at.
#[derive(Clone, Debug, Default)]
pub struct Diagnoses(pub Vec<Diagnosis>);

impl Diagnoses {
    /// The worst of them.
    pub fn health(&self) -> Health {
        self.0.iter().map(|one| one.health).max().unwrap_or(Health::Good)
    }

    fn good(&mut self, part: &'static str, says: impl Into<String>) {
        self.0.push(Diagnosis { part, health: Health::Good, says: says.into(), next: String::new() });
    }

    fn look(&mut self, part: &'static str, says: impl Into<String>, next: impl Into<String>) {
        self.0.push(Diagnosis { part, health: Health::Look, says: says.into(), next: next.into() });
    }

    fn broken(&mut self, part: &'static str, says: impl Into<String>, next: impl Into<String>) {
        self.0.push(Diagnosis { part, health: Health::Broken, says: says.into(), next: next.into() });
    }
}

/// How long a peer may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Further ahead than this nothing of the folder may be of the clock.
const AHEAD_S: i64 = 300;
/// 2026-01-01: this program did not exist before.
const FIRST_DAY_S: i64 = 1_767_225_600;
/// Connections (1,024), and files of samples.
const FILES_MIN: u64 = 4_096;

/// Looks at everything.
pub fn diagnose(settings: &Settings, now: Timestamp) -> Diagnoses {
    let mut found = Diagnoses::default();
    let dir = &settings.data_dir;
    let mut settings = settings.clone();
    let running = server(&mut found, dir);
    if let Some(running) = &running {
        running.correct(&mut settings);
    }
    let settings = &settings;
    folder(&mut found, dir, running.is_some());
    master_key(&mut found, settings);
    clock(&mut found, dir, now);
    space(&mut found, dir);
    port(&mut found, settings, running.is_some());
    public_url(&mut found, settings);
    embedding(&mut found, settings);
    mailer(&mut found, settings);
    files(&mut found);
    if let Some(Running { stats: Some(stats), .. }) = &running {
        accounts(&mut found, stats);
    }
    found
}

/// What the server that runs says of itself.
struct Running {
    status: Value,
    stats: Option<Value>,
}

impl Running {
    /// Where it listens and how it is reached it knows better than the settings of this process.
    fn correct(&self, settings: &mut Settings) {
        if let Some(listen) = self.status["listen"].as_str().and_then(|text| text.parse().ok()) {
            settings.listen = listen;
        }
        if let Some(url) = self.status["public_url"].as_str() {
            settings.public_url = Some(url.to_owned());
        }
    }
}

/// The server that runs on the folder; none where none does, or where it cannot be asked.
fn server(found: &mut Diagnoses, dir: &Path) -> Option<Running> {
    let mut asking = match Asking::connect(dir) {
        Ok(asking) => asking,
        Err(AskError::NotRunning { .. }) => {
            match kv::holder(dir).ok().flatten() {
                Some(holder) => found.look(
                    "server",
                    format!("another process holds the folder ({holder}) and answers no commands"),
                    "it may be just starting: try again in a moment",
                ),
                None => found.good("server", "none runs on this folder"),
            }
            return None;
        }
        Err(error) => {
            found.look("server", with_sources(&error), "run this as the user that the server runs as");
            return None;
        }
    };
    let status = asking.ask::<Value>(&Question::Status);
    match &status {
        Ok(status) if status["version"] == env!("CARGO_PKG_VERSION") => {
            found.good(
                "server",
                format!("runs (pid {}, version {})", status["pid"], env!("CARGO_PKG_VERSION")),
            );
        }
        Ok(status) => found.look(
            "server",
            format!("runs version {}, this program is {}", status["version"], env!("CARGO_PKG_VERSION")),
            "restart the server, or use its own program",
        ),
        Err(error) => found.look("server", with_sources(error), "restart the server"),
    }
    let stats = asking.ask::<Value>(&Question::Account { command: Command::Stats }).ok();
    Some(Running { status: status.ok()?, stats })
}

fn folder(found: &mut Diagnoses, dir: &Path, is_running: bool) {
    let shown = dir.display();
    let meta = match fs::metadata(dir) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return found.good("folder", format!("{shown} is not there yet: the first start makes it"));
        }
        Err(e) => {
            let next = "run this as the user that the server runs as, or name another folder with --data-dir";
            return found.broken("folder", format!("{shown} cannot be looked at: {e}"), next);
        }
    };
    if !meta.is_dir() {
        return found.broken("folder", format!("{shown} is no folder"), "name a folder with --data-dir");
    }
    let mode = meta.permissions().mode() & 0o777;
    if !dir.join("STORE").exists() && fs::read_dir(dir).is_ok_and(|mut all| all.next().is_some()) {
        let next = "name a folder of promlet's, or an empty one, with --data-dir";
        return found.broken("folder", format!("{shown} holds something else than a store"), next);
    }
    if mode & 0o077 != 0 {
        found.look(
            "folder",
            format!("{shown} has mode {mode:03o}: others on this machine see what lies in it"),
            format!("chmod 700 {shown}"),
        );
    } else {
        found.good("folder", format!("{shown}, mode {mode:03o}"));
    }
    // What the server may not write, it cannot use; root may all.
    let own = fs::metadata("/proc/self").map(|own| own.uid());
    if let (Ok(own), false) = (own, is_running)
        && own != 0
        && own != meta.uid()
    {
        let says = format!("{shown} belongs to user {}, this is user {own}", meta.uid());
        found.broken("folder", says, "run the server as the owner of the folder");
    }
}

fn master_key(found: &mut Diagnoses, settings: &Settings) {
    let path = match &settings.master_key {
        Some(MasterKeySource::Value(_)) => {
            return found.good("key", "the master key comes from the environment");
        }
        Some(MasterKeySource::File(path)) => path.clone(),
        None => settings.data_dir.join("master.key"),
    };
    let shown = path.display();
    match fs::metadata(&path) {
        Ok(meta) => match meta.permissions().mode() & 0o777 {
            mode if mode & 0o007 != 0 => found.broken(
                "key",
                format!("{shown} has mode {mode:03o}, readable for everybody: no server starts with it"),
                format!("chmod 600 {shown}; if others use this machine, they may have read it"),
            ),
            mode if mode & 0o070 != 0 => found.look(
                "key",
                format!("{shown} has mode {mode:03o}, readable for its group"),
                format!("chmod 600 {shown}"),
            ),
            mode => found.good("key", format!("{shown}, mode {mode:03o}; keep a copy elsewhere")),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let has_owner = settings.data_dir.join("INITIALISED").exists();
            if has_owner || settings.master_key.is_some() {
                let next =
                    "put the copy of it back: without it no second factor and no HS256 token can be verified";
                found.broken("key", format!("{shown} is missing"), next);
            } else {
                found.good("key", "is made by the first start");
            }
        }
        Err(e) => {
            found.broken("key", format!("{shown}: {e}"), "run this as the user that the server runs as");
        }
    }
}

fn clock(found: &mut Diagnoses, dir: &Path, now: Timestamp) {
    if now.as_s() < FIRST_DAY_S {
        let next = "set the clock (timedatectl set-ntp true): codes, tokens and retention go by it";
        return found.broken("clock", format!("it says {}", now.to_rfc3339()), next);
    }
    let newest = ["LOCK", "CLEAN", "INITIALISED", "STORE", "wal", "control"].iter().filter_map(|name| {
        let modified = fs::metadata(dir.join(name)).ok()?.modified().ok()?;
        i64::try_from(modified.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
    });
    match newest.max() {
        Some(newest) if newest > now.as_s().saturating_add(AHEAD_S) => {
            let next = "set the clock (timedatectl set-ntp true); samples ahead of it by more than 10 minutes are refused";
            let last = Timestamp::from_s(newest).to_rfc3339();
            found.look(
                "clock",
                format!("it says {}, but the folder was last written at {last}", now.to_rfc3339()),
                next,
            );
        }
        _ => found.good("clock", now.to_rfc3339()),
    }
}

fn space(found: &mut Diagnoses, dir: &Path) {
    // A folder that is not there yet will be where its parent is.
    let place = dir.ancestors().find(|place| place.exists()).unwrap_or(Path::new("."));
    let stat = match rustix::fs::statvfs(place) {
        Ok(stat) => stat,
        Err(e) => return found.look("space", format!("{}: {e}", place.display()), ""),
    };
    let (free, total) =
        (stat.f_bavail.saturating_mul(stat.f_frsize), stat.f_blocks.saturating_mul(stat.f_frsize));
    let floor = (total / 50).clamp(256 << 20, 1 << 30);
    let says = format!("{} MiB free of {} MiB", free >> 20, total >> 20);
    let next = "make room, or bound organisations with max_disk_bytes and retention_days";
    if free < floor {
        found.broken("space", format!("{says}: below {} MiB writes are refused", floor >> 20), next);
    } else if free < floor.saturating_mul(2) {
        found.look("space", format!("{says}: below {} MiB writes are refused", floor >> 20), next);
    } else {
        found.good("space", says);
    }
}

fn port(found: &mut Diagnoses, settings: &Settings, is_running: bool) {
    let address = settings.listen;
    if is_running {
        let peer = if address.ip().is_unspecified() {
            SocketAddr::new(IpAddr::from([127, 0, 0, 1]), address.port())
        } else {
            address
        };
        return match healthz(peer) {
            Ok(()) => found.good("port", format!("{address} answers")),
            Err(why) => found.look(
                "port",
                format!("a server runs on this folder, but {address} does not answer as one: {why}"),
                "look at what a firewall or another program does there",
            ),
        };
    }
    match TcpListener::bind(address) {
        Ok(_) => found.good("port", format!("{address} is free")),
        Err(e) => {
            let next =
                "end the program that uses it (ss -ltnp shows which), or take another one with --listen";
            found.broken("port", format!("{address} cannot be listened on: {e}"), next);
        }
    }
}

fn healthz(peer: SocketAddr) -> Result<(), String> {
    let words = |e: io::Error| e.to_string();
    let mut stream = TcpStream::connect_timeout(&peer, PATIENCE).map_err(words)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(words)?;
    let request = format!("GET /healthz HTTP/1.1\r\nHost: {peer}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(words)?;
    let mut answer = Vec::new();
    stream.take(4_096).read_to_end(&mut answer).map_err(words)?;
    match answer.starts_with(b"HTTP/1.1 200") {
        true => Ok(()),
        false => Err("another program answers there".to_owned()),
    }
}

/// Where a browser must be to reach the public URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// This machine: `localhost`, `*.localhost`, 127.0.0.0/8, ::1.
    Machine,
    /// A network of its own: addresses that are not routed.
    Network,
    /// Anywhere.
    World,
}

impl Reach {
    fn of(host: &str) -> Reach {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(ip) if ip.is_loopback() => Reach::Machine,
            Ok(IpAddr::V4(ip)) if ip.is_private() || ip.is_link_local() => Reach::Network,
            Ok(IpAddr::V6(ip)) if ip.is_unique_local() || ip.is_unicast_link_local() => Reach::Network,
            Ok(_) => Reach::World,
            Err(_) if bare == "localhost" || bare.ends_with(".localhost") => Reach::Machine,
            Err(_) if bare.ends_with(".local") || bare.ends_with(".lan") || !bare.contains('.') => {
                Reach::Network
            }
            Err(_) => Reach::World,
        }
    }
}

/// Whether it is https, and the host.
fn taken_apart(settings: &Settings) -> (String, bool, String) {
    let url = settings.public_url.clone().unwrap_or_else(|| format!("http://{}", settings.listen));
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

fn public_url(found: &mut Diagnoses, settings: &Settings) {
    let (url, is_https, host) = taken_apart(settings);
    let reach = Reach::of(&host);
    if !is_https && reach != Reach::Machine {
        let next = "put TLS in front (or --tls-cert), and set --public-url https://…";
        found.look("url", format!("{url}: passwords and cookies cross the network readable"), next);
    } else if settings.public_url.is_none() && !settings.listen.ip().is_loopback() {
        let next = "set --public-url: links in mails begin with it, and its host name is the one that is answered to";
        found.look("url", format!("none is set; {url} is used"), next);
    } else {
        found.good("url", url.clone());
    }
    if settings.public_url.is_none() {
        found.good(
            "url",
            "if a proxy serves this server to other machines, set --public-url: without it, requests through a proxy that adds \
             no header count as requests of this machine, which read /metrics and make the first account without a token",
        );
    }
    // A name that leads nowhere would be in every mail.
    if reach == Reach::World
        && host.parse::<IpAddr>().is_err()
        && (host.as_str(), 443).to_socket_addrs().is_err()
    {
        found.look("url", format!("{host} has no address"), "make a DNS entry, or correct --public-url");
    }
    if url.starts_with("http://127.") {
        found.good(
            "url",
            "cookies of 127.0.0.1 are shared by all programs on all ports of this machine: http://metrics.localhost:PORT as \
             --public-url keeps them apart",
        );
    }
}

/// Which pages can show a chart of this server (browsers ask before a public page may reach a local machine).
fn embedding(found: &mut Diagnoses, settings: &Settings) {
    let (url, is_https, host) = taken_apart(settings);
    match (Reach::of(&host), is_https) {
        (Reach::Machine, _) => {
            found.good("embed", "pages on http://localhost, any port, in a browser on this machine: work");
            found.good(
                "embed",
                "pages of a public https site, in a browser on this machine: the browser asks for permission (local network \
                 access, Chrome 142 and later); an iframe needs allow=\"local-network-access\"",
            );
            found.good("embed", "pages of a public http site, and browsers elsewhere: do not work; use a tunnel or a public URL");
        }
        (Reach::Network, false) => {
            found.good("embed", "http pages inside of this network: work");
            found.look(
                "embed",
                format!("https pages: blocked as mixed content, since {url} is http"),
                "put TLS in front, and set --public-url https://…",
            );
        }
        (Reach::Network, true) => {
            found.good("embed", "pages inside of this network: work");
            found.good(
                "embed",
                "pages of a public https site: the browser asks for permission (local network access)",
            );
        }
        (Reach::World, false) => {
            found.look(
                "embed",
                "https pages: blocked as mixed content; http pages: work, tokens are readable on the way",
                "put TLS in front, and set --public-url https://…",
            );
        }
        (Reach::World, true) => {
            found.good("embed", "pages anywhere that the API key's and the token's origins allow: work");
        }
    }
}

fn mailer(found: &mut Diagnoses, settings: &Settings) {
    if let MailSetting::Console = settings.mail {
        return found
            .good("mail", "links are printed on standard output; promlet login-link prints one, too");
    }
    let made = mail::mailer(&settings.mail);
    if made.as_ref().is_ok_and(mail::sends_readable) {
        found.look("mail", mail::READABLE, mail::READABLE_NEXT);
    }
    let checked = match made {
        Ok(Mailer::Smtp(smtp)) => smtp.check(),
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    match checked {
        Ok(()) => found.good("mail", "the mail server answers"),
        Err(error) => found.broken(
            "mail",
            with_sources(&error),
            "correct PROMLET_SMTP_URL; meanwhile promlet login-link and promlet org invite print links",
        ),
    }
}

/// Linux tells a process its limits in a file; elsewhere nothing is said.
fn files(found: &mut Diagnoses) {
    let Ok(text) = fs::read_to_string("/proc/self/limits") else { return };
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
    // The server raises the soft limit, which stands first, to the hard one.
    let Some(hard) = line.and_then(|line| line.split_whitespace().nth(1)) else { return };
    match hard.parse::<u64>() {
        Ok(hard) if hard < FILES_MIN => found.look(
            "files",
            format!(
                "a process may open {hard} files here: 1,024 connections and the files of samples need more"
            ),
            format!("ulimit -n {FILES_MIN}, or LimitNOFILE={FILES_MIN} in the service"),
        ),
        _ => found.good("files", format!("a process may open {hard} files")),
    }
}

fn accounts(found: &mut Diagnoses, stats: &Value) {
    let count = |name: &str| stats[name].as_u64().unwrap_or_default();
    let says = format!(
        "{} accounts, {} organisations, {} API keys",
        count("users"),
        count("orgs"),
        count("api_keys")
    );
    if count("users") == 0 {
        let next = "open the set-up link that the server printed, or: promlet user create EMAIL";
        found.look("accounts", "none yet", next);
    } else if count("admins") == 0 {
        found.broken(
            "accounts",
            format!("{says}; nobody administers the server"),
            "promlet user admin EMAIL",
        );
    } else {
        found.good("accounts", says);
    }
    if count("orgs_being_removed") > 0 {
        found.good(
            "accounts",
            format!("{} deleted organisations are being removed", count("orgs_being_removed")),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_tells_from_where_it_is_reached() {
        use Reach::{Machine, Network, World};
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
            assert_eq!(Reach::of(host), reach, "{host}");
        }
    }
}
