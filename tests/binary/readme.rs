//! Pastes the commands of README.md and of the guide into one shell in their order, as a new user
//! does. Nothing is set that the text does not set, except addresses, folders, times and ids.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use promlet::clock::Clock;
use promlet::model::{Labels, Sample};
use serde_json::{Value, json};

use crate::harness::{EMAIL, ORG, PASSWORD, Server, Start, bootstrap, request};
use crate::https::fixture;

/// The beginnings of command blocks that are not run here, with the reasons.
const NOT_RUN: [(&str, &str); 5] = [
    ("cargo run -- demo", "builds; the_demo_prints_a_link_a_token_and_queries_that_return_data_at_once"),
    ("cargo test", "this is it"),
    ("cargo run --release\n", "builds; this test starts the server that it would build"),
    ("cargo run --example embed_page", "builds; peers_browser.rs opens that page"),
    ("promlet org move", "needs another engine; tests/binary/moving.rs moves to one and back"),
];
/// The beginnings of lines that are pasted in another form: the doctor warns that mail goes to the
/// console, and no person can confirm a deletion.
const PASTED_AS: [(&str, &str); 2] = [
    ("promlet doctor", "promlet doctor || [ $? -eq 1 ]"),
    ("promlet org delete shop", "promlet org delete shop --yes"),
];
/// The line that makes `promlet` a command, and the folder in it.
const PATH_LINE: &str = "export PATH=\"$PWD/target/release:$PATH\"";
const RELEASE: &str = "$PWD/target/release";
/// The sentence of a document after which commands are for a stopped server.
const STOPPED: &str = "are for a stopped server";
/// Variables with the prefix of promlet that belong to a reader's own program.
const OF_OTHERS: [&str; 1] = ["PROMLET_API_SECRET"];
/// How long one block may take.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// A fenced block.
struct CodeBlock {
    document: &'static str,
    language: String,
    text: String,
    for_stopped: bool,
}

impl CodeBlock {
    /// Returns whether the block only contains settings: assignments, perhaps before the command
    /// that starts a server.
    fn sets(&self) -> bool {
        self.language == "sh" && self.text.starts_with("PROMLET_")
    }

    fn is_run(&self) -> bool {
        self.language == "sh"
            && !self.sets()
            && !NOT_RUN.iter().any(|(words, _)| self.text.starts_with(words))
    }
}

/// Returns README.md and the pages of the guide in the order in which their commands build on each
/// other.
fn documents() -> Vec<(&'static str, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = std::fs::read_dir(root.join("docs/guide")).expect("the guide");
    let names = pages.map(|page| page.expect("readable").file_name().into_string().expect("UTF-8"));
    let mut paths: Vec<String> = names.map(|name| format!("docs/guide/{name}")).collect();
    paths.push("README.md".to_owned());
    let first = ["README", "ingest", "query", "embed", "sign-in", "administration"];
    let rank = |path: &str| match path.contains("backup") {
        true => usize::MAX,
        false => first.iter().position(|name| path.contains(name)).unwrap_or(first.len()),
    };
    paths.sort_by_key(|path| (rank(path), path.clone()));
    let read = |path: String| {
        let text = std::fs::read_to_string(root.join(&path)).expect("readable");
        (&*path.leak(), text)
    };
    paths.into_iter().map(read).collect()
}

fn blocks() -> Vec<CodeBlock> {
    let mut blocks = Vec::new();
    for (document, text) in documents() {
        let stopped = text.replace('\n', " ").find(STOPPED).unwrap_or(text.len());
        let mut at = 0;
        while let Some(fence) = text[at..].find("```").map(|found| at + found) {
            let inside = fence + 3;
            let end = inside + text[inside..].find("```").expect("the block ends");
            let (language, block) = text[inside..end].split_once('\n').expect("a line");
            let (language, text_of_block) = (language.to_owned(), block.to_owned());
            blocks.push(CodeBlock { document, language, text: text_of_block, for_stopped: inside > stopped });
            at = end + 3;
        }
    }
    blocks
}

/// Serves `body` on every request and returns the address.
fn serve_text(body: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = [0; 4_096];
            let read = stream.read(&mut request).expect("a request");
            assert!(read > 0 && read < request.len());
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).expect("read");
            stream.write_all(body.as_bytes()).expect("read");
        }
    });
    address
}

/// Replacements of programs that the documents use and that a machine may lack, as far as they are
/// used.
const STAND_INS: [(&str, &str); 2] = [
    (
        "jq",
        r#"case "$1" in
-r) sed -n "s/.*\"${2#.}\":\"\([^\"]*\)\".*/\1/p" ;;
-n) pem=$(printf '%s' "$4" | awk '{printf "%s\\n", $0}')
    filter=$(printf '%s' "$5" | sed 's/\([{,]\)\([a-z_]*\):/\1"\2":/g')
    printf '%s"%s"%s\n' "${filter%%\$pem*}" "$pem" "${filter#*\$pem}" ;;
*) exit 2 ;;
esac"#,
    ),
    (
        "openssl",
        r#"case "$1" in
genpkey) ;;
pkey) printf '%s\n' '-----BEGIN PUBLIC KEY-----' 'MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=' '-----END PUBLIC KEY-----' ;;
*) exit 2 ;;
esac"#,
    ),
];

/// A shell in its own folder, into which blocks are pasted one after another.
struct Shell {
    dir: tempfile::TempDir,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    pasted: usize,
}

/// The line that a shell prints after a block.
const END: &str = "-- end of the block --";

impl Shell {
    /// Opens a shell. `set` is the environment of this test: the address of the server and the cost
    /// of a password hash.
    fn open(dir: tempfile::TempDir, set: &[(&str, &str)]) -> Shell {
        let bin = dir.path().join("programs");
        std::fs::create_dir(&bin).expect("made");
        let program = |name: &str, text: &str| {
            let path = bin.join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("made");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("made");
        };
        // A status above 400 is a failure, also in the middle of a pipe.
        let failed = dir.path().join("failed");
        let path = "/usr/local/bin:/usr/bin:/bin";
        let note = format!(
            "PATH={path} curl --fail-with-body \"$@\" || {{ status=$?; echo \"$*\" >> '{}'; exit $status; }}",
            failed.display()
        );
        program("curl", &note);
        for (name, text) in STAND_INS {
            if !Path::new("/usr/bin").join(name).exists() {
                program(name, text);
            }
        }
        let mut command = Command::new("sh");
        command.arg("-e").current_dir(dir.path()).env_clear().envs(set.iter().copied());
        command.env("PATH", format!("{}:{path}", bin.display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().expect("a shell");
        let (printed, lines) = channel();
        let pipe = child.stdout.take().expect("piped");
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let _ = printed.send(line);
            }
        });
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(b"exec 2>&1\n").expect("it reads");
        Shell { dir, child, stdin, lines, pasted: 0 }
    }

    /// Pastes a block and returns its output. The shell ends at the first command that fails.
    fn paste(&mut self, text: &str) -> String {
        self.pasted += 1;
        let file = self.dir.path().join(format!("block-{}.sh", self.pasted));
        std::fs::write(&file, text).expect("written");
        let command = format!(". '{}' < /dev/null\nprintf '\\n%s\\n' '{END}'\n", file.display());
        let sent = self.stdin.write_all(command.as_bytes());
        let mut printed = String::new();
        loop {
            match self.lines.recv_timeout(WAIT_MAX) {
                Ok(line) if line == END => break,
                Ok(line) => printed.extend([&line, "\n"]),
                Err(error) => panic!("a command failed ({error}, {sent:?}):\n{text}\n{printed}"),
            }
        }
        let failed = std::fs::read_to_string(self.dir.path().join("failed")).unwrap_or_default();
        assert!(failed.is_empty(), "{text}\n{printed}\ncurl {failed}");
        printed
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the JSON documents in a text, one after another.
fn documents_of(printed: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut rest = printed;
    while let Some(at) = rest.find(['{', '[']) {
        let mut stream = serde_json::Deserializer::from_str(&rest[at..]).into_iter::<Value>();
        let value = stream.next().and_then(Result::ok);
        let after = at + value.as_ref().map_or(1, |_| stream.byte_offset());
        found.extend(value);
        rest = &rest[after..];
    }
    found
}

/// Checks the responses to a pasted block.
fn check(block: &CodeBlock, printed: &str) {
    let answers = documents_of(printed);
    let text = &block.text;
    if text.contains("/query") || text.contains("/metrics") && text.contains("$ORG") {
        assert!(!answers.is_empty(), "{text}\n{printed}");
        // The first step of a live query may be before the first sample.
        let early = if text.contains("/query/live") { answers.len() - 1 } else { 0 };
        for answer in answers.iter().skip(early) {
            let rows = [&answer["data"]["result"], &answer["data"]];
            let is_empty = rows.iter().find_map(|rows| Some(rows.as_array()?.is_empty()));
            // The list of running queries may be empty.
            let may = text.contains("$ORG/queries");
            assert!(may || is_empty != Some(true), "an empty result:\n{text}\n{printed}");
        }
    }
    for answer in answers.iter().filter(|answer| answer.get("rejected").is_some()) {
        assert!(answer["rejected"] == 0 && answer["accepted"].as_u64() > Some(0), "{text}\n{printed}");
    }
    if text.contains("export KEY=") {
        assert!(printed.contains("msk_"), "{text}\n{printed}");
    }
    if text.contains("http_*") {
        assert!(printed.contains("http_*"), "{text}\n{printed}");
    }
}

/// Sends a metric like a program that uses OpenTelemetry's variables from the pasted block.
fn send_otlp(shell: &mut Shell, at_ms: i64) {
    let printed =
        shell.paste("echo \"$OTEL_EXPORTER_OTLP_ENDPOINT\"\necho \"$OTEL_EXPORTER_OTLP_HEADERS\"\n");
    let mut lines = printed.lines();
    let url = format!("{}/v1/metrics", lines.next().expect("an endpoint"));
    let (name, value) = lines.next().and_then(|header| header.split_once('=')).expect("a header");
    let value = value.replace("%20", " ");
    let point = json!({ "timeUnixNano": format!("{at_ms}000000"), "asDouble": 1.0 });
    let metric = json!({ "name": "sent_by_otlp", "gauge": { "dataPoints": [point] } });
    let body = json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [metric] }] }] });
    let headers = [(name, &*value), ("Content-Type", "application/json")];
    let answer = request("POST", &url, &headers, Some(body.to_string().as_bytes()));
    assert!(answer.status == 200 && !answer.body.contains("rejected"), "{url}: {answer:?}");
}

/// Returns a segment of the first organisation that both the backup and the store have.
fn segment_in(dir: &Path) -> String {
    let names = |of: &str| -> BTreeSet<String> {
        let entries = std::fs::read_dir(dir.join(of).join("segments/1")).expect("segments");
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    };
    names("data/store").intersection(&names("backups/monday")).next().expect("a segment").clone()
}

#[test]
fn the_commands_of_readme_and_guide_work_as_they_are_pasted() {
    let blocks = blocks();
    let dir = crate::harness::scratch::temporary_folder().expect("temp");
    for (name, text) in [("new-password.txt", "another long enough password\n"), ("backups/.keep", "")] {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    }
    std::fs::remove_file(dir.path().join("backups/.keep")).expect("removed");
    let first = blocks.iter().find(|block| block.sets() && block.document == "README.md");
    let account = settings_of(first.expect("the first account"), &BTreeMap::new());
    let env: Vec<(&str, &str)> = account.iter().map(|(name, value)| (&**name, &**value)).collect();
    let server = Server::start(&Start { args: &["serve"], dir: &dir.path().join("data/store"), env: &env });
    let cookie = server.sign_in();
    let (other, secret) = server.api_key(&cookie);

    let now = Clock::System.now();
    let history = (1..=200).rev().map(|minute| Sample { at: now.plus_ms(-minute * 60_000), value: 0.5 });
    let node_load = Labels::from_pairs([("__name__", "node_load1"), ("job", "node")]);
    assert_eq!(server.write(&secret, &[(node_load, history.collect())]).status, 204);
    let node = serve_text("# TYPE node_load1 gauge\nnode_load1 0.5\n".to_owned());
    let times = [now.as_ms() - 60_000, now.as_ms() - 30_000];
    let exporter = serve_text(format!(
        "{}\n",
        json!({ "metric": { "__name__": "moved", "job": "a" }, "values": [1, 2], "timestamps": times })
    ));

    let address = server.url.trim_start_matches("http://").to_owned();
    let agent = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let agent = agent.to_string();
    let set = [("PROMLET_LISTEN", &*address), ("PROMLET_ARGON2", "64,1,1"), ("HOME", "/nowhere")];
    let mut shell = Shell::open(dir, &set);
    let programs = Path::new(env!("CARGO_BIN_EXE_promlet")).parent().expect("a folder").to_owned();
    let here = |text: &str, dir: &Path| {
        let lines = text.lines().map(|line| {
            let id = if line.contains("key revoke") { &*other } else { "ak_$(echo \"$KEY\" | cut -d_ -f2)" };
            let pasted = PASTED_AS
                .iter()
                .find_map(|(begin, with)| line.strip_prefix(begin).map(|rest| format!("{with}{rest}")));
            let line = pasted.as_deref().unwrap_or(line);
            let mut line = line.replace("ak_…", id);
            if line.contains("0000000005-L1.seg") {
                line = line.replace("0000000005-L1.seg", &segment_in(dir));
            }
            let places = [
                ("127.0.0.1:8095", &*address),
                ("127.0.0.1:8097", &agent),
                ("127.0.0.1:9100", &node),
                ("127.0.0.1:8428", &exporter),
                ("1795300000", &now.as_s().to_string()),
                (RELEASE, programs.to_str().expect("UTF-8")),
            ];
            let line = places.iter().fold(line, |line, (from, to)| line.replace(from, to));
            line.replace("/backups/", &format!("{}/backups/", dir.display())) + "\n"
        });
        lines.collect::<String>()
    };
    let (stopped, running): (Vec<&CodeBlock>, Vec<&CodeBlock>) =
        blocks.iter().filter(|block| block.is_run()).partition(|block| block.for_stopped);
    assert!(running.iter().any(|block| block.document == "README.md" && block.text.contains(PATH_LINE)));
    let mut run = |block: &CodeBlock| {
        let dir = shell.dir.path().to_owned();
        let printed = shell.paste(&here(&block.text, &dir));
        check(block, &printed);
        if block.text.contains("OTEL_EXPORTER_OTLP_ENDPOINT=") {
            send_otlp(&mut shell, now.as_ms() - 30_000);
        }
    };
    running.into_iter().for_each(&mut run);
    // The text of `/metrics` has no timestamps; the command dates it a quarter of an hour back.
    for (expr, before_s) in
        [("moved", 0), ("temperature", 0), ("sent_by_otlp", 0), ("node_load1{job=\"node\"}", 840)]
    {
        let data = server.ask(&cookie, expr, &(now.as_s() - before_s).to_string());
        assert!(data["result"].as_array().is_some_and(|series| !series.is_empty()), "{expr}: {data}");
    }
    assert!(server.terminate().success());
    assert!(!stopped.is_empty());
    stopped.into_iter().for_each(&mut run);
}

/// Returns the variables that a block sets, as a shell reads them, with the files it names replaced
/// by those of `files`.
fn settings_of(block: &CodeBlock, files: &BTreeMap<&str, PathBuf>) -> BTreeMap<String, String> {
    let mut text = block.text.replace("promlet serve", "env").replace("cargo run --release", "env");
    for (name, path) in files {
        text = text.replace(name, path.to_str().expect("UTF-8"));
    }
    if !text.contains(" env") {
        text = format!("set -a\n{text}\nenv");
    }
    let mut shell = Command::new("sh");
    shell.arg("-ec").arg(&text).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let output = shell.output().expect("a shell");
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    let pairs = printed.lines().filter_map(|line| line.split_once('='));
    let ours = pairs.filter(|(name, _)| name.starts_with("PROMLET_"));
    ours.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_server_starts_with_the_settings_of_every_block() {
    let files = BTreeMap::from([
        ("/etc/ssl/metrics.crt", fixture("one.crt")),
        ("/etc/ssl/metrics.key", fixture("one.key")),
        ("/etc/ssl/our-ca.pem", fixture("one.crt")),
    ]);
    let blocks: Vec<CodeBlock> = blocks().into_iter().filter(CodeBlock::sets).collect();
    for needed in
        ["PROMLET_SMTP_URL", "PROMLET_OAUTH_OIDC_ISSUER", "PROMLET_TLS_CERT", "PROMLET_TRUSTED_PROXIES"]
    {
        assert!(blocks.iter().any(|block| block.text.contains(needed)), "no block sets {needed}");
    }
    for block in blocks {
        let dir = crate::harness::scratch::temporary_folder().expect("temp");
        let set = settings_of(&block, &files);
        assert!(!set.is_empty(), "{}", block.text);
        let mut env: BTreeMap<&str, &str> = bootstrap().into_iter().collect();
        // A public address needs a mail server or this.
        env.insert("PROMLET_ALLOW_CONSOLE_MAIL", "1");
        env.extend(set.iter().map(|(name, value)| (&**name, &**value)));
        let env: Vec<(&str, &str)> = env.into_iter().collect();
        let server = Server::start_damaged(&Start { args: &["serve"], dir: dir.path(), env: &env });
        assert!(!server.log().contains("is not a setting"), "{}\n{}", block.text, server.log());
        assert!(server.terminate().success(), "{}", block.text);
    }
}

#[test]
fn every_block_is_of_a_known_kind_and_every_reason_is_needed() {
    let blocks = blocks();
    for (words, reason) in NOT_RUN {
        assert!(blocks.iter().any(|block| block.text.starts_with(words)), "{words}: {reason}");
    }
    for (words, _) in PASTED_AS {
        assert!(blocks.iter().any(|block| block.text.lines().any(|line| line.starts_with(words))), "{words}");
    }
    for CodeBlock { document, language, text, .. } in &blocks {
        let known = ["sh", "text", "yaml", "json", "ndjson", "html", "js", "python", "go", "nginx", "caddy"];
        assert!(known.contains(&&**language), "{document}: {language:?}\n{text}");
        if language == "json" {
            assert!(serde_json::from_str::<Value>(text).is_ok(), "{document}\n{text}");
        }
        if language == "ndjson" {
            let is_json = |line: &str| serde_json::from_str::<Value>(line).is_ok();
            assert!(text.lines().all(is_json), "{document}\n{text}");
        }
    }
    assert!(blocks.iter().any(|block| block.text.contains(EMAIL) && block.text.contains(PASSWORD)));
}

/// Returns the words of a text that begin with `prefix` and continue with characters of `is_part`.
fn words_of<'t>(text: &'t str, prefix: &str, is_part: fn(char) -> bool) -> BTreeSet<&'t str> {
    let starts = text.match_indices(prefix).filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        before.is_none_or(|before| !is_part(before) && before != '-')
    });
    let ends = starts.map(|(at, _)| {
        let rest = &text[at..];
        let end = rest[prefix.len()..].find(|c| !is_part(c)).map_or(rest.len(), |end| prefix.len() + end);
        &rest[..end]
    });
    ends.filter(|word| word.len() > prefix.len()).collect()
}

fn flags_of(text: &str) -> BTreeSet<&str> {
    let flags = words_of(text, "--", |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    flags.into_iter().filter(|flag| flag.as_bytes()[2].is_ascii_lowercase()).collect()
}

/// Returns the help of each command of promlet by the words of the command.
fn helps() -> BTreeMap<String, String> {
    let mut helps = BTreeMap::new();
    let mut left = vec![String::new()];
    while let Some(words) = left.pop() {
        let output = Command::new(env!("CARGO_BIN_EXE_promlet"))
            .args(words.split_whitespace())
            .arg("--help")
            .env_clear()
            .output()
            .expect("it runs");
        let help = String::from_utf8(output.stdout).expect("UTF-8");
        let commands = help.split("Commands:\n").nth(1).unwrap_or_default().lines();
        let listed = commands.take_while(|line| line.starts_with("  "));
        let names = listed.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
        left.extend(
            names.filter(|name| *name != "help").map(|name| format!("{words} {name}").trim().to_owned()),
        );
        helps.insert(words, help);
    }
    helps
}

#[test]
fn every_flag_and_variable_of_the_documents_exists() {
    let helps = helps();
    let all: BTreeSet<&str> = helps.values().flat_map(|help| flags_of(help)).collect();
    let variables = promlet::config::known_variables();
    for (document, text) in documents() {
        let names = words_of(&text, "PROMLET_", |c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        for name in names.into_iter().filter(|name| !OF_OTHERS.contains(name)) {
            assert!(variables.contains(name), "{document}: {name}");
        }
        let outside: String = text.split("```").step_by(2).collect();
        // The CSS variables of the elements are no flags.
        for flag in flags_of(&outside).into_iter().filter(|flag| !flag.starts_with("--metric-chart-")) {
            assert!(all.contains(flag), "{document}: {flag}");
        }
    }
    // Check each command in a block against its own flags.
    let mut commands = 0;
    for block in blocks().iter().filter(|block| block.language == "sh") {
        for line in block.text.lines().map(|line| line.split(" #").next().unwrap_or_default()) {
            for command in line.split('|').filter_map(|part| {
                let part = part.trim_start();
                part.strip_prefix("promlet ").or_else(|| Some(part.split_once(" promlet ")?.1))
            }) {
                let mut name = String::new();
                for word in command.split_whitespace() {
                    let longer = format!("{name} {word}").trim().to_owned();
                    match helps.contains_key(&longer) {
                        true => name = longer,
                        false => break,
                    }
                }
                let help = &helps[&name];
                assert!(!name.is_empty(), "{}: promlet {command}", block.document);
                let known = flags_of(help);
                for flag in flags_of(command) {
                    assert!(known.contains(flag), "{}: promlet {command}: {flag}", block.document);
                }
                commands += 1;
            }
        }
    }
    assert!(commands > 20, "{commands} commands of promlet");
}

#[test]
fn every_address_in_configurations_of_other_programs_has_a_route() {
    let dir = crate::harness::scratch::temporary_folder().expect("temp");
    let server = Server::serve(dir.path());
    let routes = server.get("/api/v1/openapi.json", &[]).json();
    let paths = routes["paths"].as_object().expect("paths");
    let fits = |template: &str, path: &str| {
        let (template, path) = (template.split('/'), path.split('/'));
        template.clone().count() == path.clone().count()
            && template.zip(path).all(|(known, part)| known.starts_with('{') || known == part)
    };
    let accepts = |method: &str, path: &str| {
        paths.iter().any(|(known, route)| fits(known, path) && route.get(method).is_some())
    };
    assert!(accepts("post", &format!("/api/v1/orgs/{ORG}/write")) && !accepts("get", "/no/such/path"));
    let mut configurations = 0;
    for CodeBlock { document, language, text, .. } in blocks() {
        let addresses = text.split("http://127.0.0.1:8095").skip(1);
        let paths = addresses.map(|rest| rest.split(|c: char| c.is_whitespace() || c == '"').next());
        let paths: Vec<&str> = paths.flatten().collect();
        match &*language {
            "yaml" => {
                configurations += 1;
                assert!(!paths.is_empty(), "{document}: no address\n{text}");
                assert!(paths.iter().all(|path| accepts("post", path)), "{document}: {paths:?}");
            }
            "html" => {
                for path in paths {
                    let reply = server.get(path, &[]);
                    // A token or link that the reader replaces is refused.
                    let is_refused = reply.status == 401 || reply.body.contains("promlet-refusal");
                    let holds = if path.contains('…') { is_refused } else { reply.status == 200 };
                    assert!(holds, "{document}: {path}: {} {}", reply.status, reply.body);
                }
            }
            _ => {}
        }
    }
    assert!(configurations > 1);
}
