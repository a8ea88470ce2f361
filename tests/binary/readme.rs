//! The commands of README.md, pasted into a shell in their order as a new user does: nothing is set that the text does
//! not set. Only addresses and folders are those of this test.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::harness::{EMAIL, PASSWORD, Server, Start, bootstrap};

const README: &str = include_str!("../../README.md");

/// Blocks that begin with these words are not run here, and why.
const NOT_RUN: [(&str, &str); 8] = [
    ("cargo run -- demo", "the_demo_prints_a_link_a_token_and_queries_that_answer_with_data_at_once"),
    ("cargo test", "this is it"),
    ("cargo run --release\n", "builds; every test here starts the server that it would build"),
    ("PROMLET_BOOTSTRAP_EMAIL", "builds; its variables start the server of these tests"),
    ("PROMLET_SMTP_URL", "settings and no commands; peers_mail.rs runs them"),
    ("PROMLET_OAUTH_GOOGLE", "settings and no commands; peers_oidc.rs runs them"),
    ("PROMLET_TLS_CERT", "needs a certificate; tls.rs has one"),
    ("PROMLET_PUBLIC_URL", "needs a proxy; peers_proxy.rs has two"),
];

/// The blocks of shell commands.
fn blocks() -> Vec<&'static str> {
    let after = README.split("```sh\n").skip(1);
    after.map(|text| text.split("```").next().expect("the block ends")).collect()
}

/// The block that holds these words.
fn block(words: &str) -> &'static str {
    let found = blocks().into_iter().find(|block| block.contains(words));
    found.unwrap_or_else(|| panic!("README.md shows no command with {words:?}"))
}

/// Answers every request with `body`; the address.
fn serve_text(body: &'static str) -> String {
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

/// A folder to paste in, with the programs that README names in front of `PATH`.
struct Desk {
    dir: tempfile::TempDir,
}

impl Desk {
    fn new() -> Desk {
        let desk = Desk { dir: tempfile::tempdir().expect("temp") };
        let bin = desk.dir.path().join("bin");
        std::fs::create_dir(&bin).expect("made");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_promlet"), bin.join("promlet")).expect("linked");
        if !Path::new("/usr/bin/jq").exists() {
            let jq = bin.join("jq");
            std::fs::write(&jq, "#!/bin/sh\nsed -n 's/.*\"secret\":\"\\([^\"]*\\)\".*/\\1/p'\n")
                .expect("made");
            std::fs::set_permissions(&jq, std::fs::Permissions::from_mode(0o755)).expect("made");
        }
        desk
    }

    /// Pastes into a shell of its own that stops at the first command that fails.
    fn paste(&self, text: &str) -> Output {
        let bin = self.dir.path().join("bin");
        let mut shell = Command::new("sh");
        shell.arg("-ec").arg(text).current_dir(self.dir.path()).env_clear();
        shell.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()));
        shell.output().expect("a shell")
    }
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

#[test]
fn every_block_of_commands_is_run_here_or_says_where() {
    let run = [
        "export KEY=",
        "expr=up",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "$ORG/import?",
        "import/jsonl",
        "import/csv",
        "promlet user list",
        "promlet backup",
    ];
    for block in blocks() {
        let elsewhere = NOT_RUN.iter().any(|(words, _)| block.starts_with(words));
        let here = run.iter().any(|words| block.contains(words));
        assert!(elsewhere != here, "no test runs, or two claim to run:\n{block}");
    }
}

#[test]
fn the_commands_that_send_and_ask_work_as_they_are_pasted() {
    let desk = Desk::new();
    let store = desk.dir.path().join("data/store");
    let server = Server::start(&Start { args: &["serve"], dir: &store, env: &bootstrap() });
    let node = serve_text("# TYPE node_load1 gauge\nnode_load1 0.5\nup 1\n");
    let now = promlet::clock::Clock::System.now();
    let exported = format!(
        "{{\"metric\":{{\"__name__\":\"moved\",\"job\":\"a\"}},\"values\":[1,2],\"timestamps\":[{},{}]}}\n",
        now.as_ms() - 60_000,
        now.as_ms() - 30_000
    );
    let exporter = serve_text(exported.leak());
    let here = |text: &str| {
        let address = server.url.trim_start_matches("http://");
        let text = text.replace("127.0.0.1:8095", address).replace("127.0.0.1:9100", &node);
        text.replace("127.0.0.1:8428", &exporter).replace("1795300000", &now.as_s().to_string())
    };
    // One shell, as somebody has it who follows the text.
    let mut pasted = String::new();
    for words in ["export KEY=", "OTEL_EXPORTER", "$ORG/import?", "import/jsonl", "import/csv", "expr=up"] {
        let block = here(block(words));
        pasted.push_str(&block);
        let output = desk.paste(&pasted);
        let said = said(&output);
        assert!(output.status.success(), "{block}:\n{said}\n{}", server.log());
        match words {
            "export KEY=" => assert!(said.contains("msk_"), "{said}"),
            "$ORG/import?" => assert!(said.contains("\"accepted\":2,\"errors\":[],\"rejected\":0"), "{said}"),
            "import/jsonl" | "import/csv" => {
                let stored = said.matches("\"accepted\":2,\"errors\":[],\"rejected\":0").count();
                assert!(stored >= 2, "{words}: {said}");
            }
            "expr=up" => assert!(said.contains("\"status\":\"success\""), "{said}"),
            _ => {}
        }
    }
    let cookie = server.sign_in();
    // The text of `/metrics` says no times; the command dates it a quarter of an hour back.
    for (expr, before_s) in [("moved", 0), ("temperature", 0), ("node_load1{job=\"node\"}", 840)] {
        let data = server.ask(&cookie, expr, &(now.as_s() - before_s).to_string());
        assert!(data["result"].as_array().is_some_and(|series| !series.is_empty()), "{expr}: {data}");
    }
    assert!(PASSWORD.len() > 8 && README.contains(EMAIL) && README.contains(PASSWORD));
}

/// Replaces what the text leaves to its reader.
fn filled(line: &str, key: &str) -> String {
    let line = line.replace("ak_…", key);
    let asks = line.starts_with("promlet org delete");
    if asks { line.replacen("shop", "shop --yes", 1) } else { line }
}

#[test]
fn the_commands_of_administration_work_as_they_are_pasted() {
    let desk = Desk::new();
    let store = desk.dir.path().join("data/store");
    let server = Server::start(&Start { args: &["serve"], dir: &store, env: &bootstrap() });
    std::fs::write(desk.dir.path().join("new-password.txt"), "another long enough password\n")
        .expect("written");
    let cookie = server.sign_in();
    let (key, _) = server.api_key(&cookie);
    // The server of a reader listens where the settings say by default; hashing is as cheap as in the other tests.
    let address = server.url.trim_start_matches("http://");
    let setting =
        format!("export PROMLET_DATA_DIR=data/store PROMLET_LISTEN={address} PROMLET_ARGON2=64,1,1\n");
    // A key is revoked before a token is minted with it: the reader has two.
    let (other, _) = server.api_key(&cookie);
    for line in block("promlet user list").lines() {
        let key = if line.starts_with("promlet key revoke") { &other } else { &key };
        let output = desk.paste(&format!("{setting}{}", filled(line, key)));
        let said = said(&output);
        // What looks for what is wrong here finds something that a test's folder has: mail on the console, for one.
        let looked = line.starts_with("promlet doctor") && output.status.code() == Some(1);
        assert!(output.status.success() || looked, "{line}:\n{said}");
        if line.contains("token inspect") {
            assert!(said.contains("http_*"), "{said}");
        }
    }
}

#[test]
fn the_commands_of_backup_and_repair_work_as_they_are_pasted() {
    let desk = Desk::new();
    let store = desk.dir.path().join("data/store");
    let server = Server::start(&Start { args: &["serve"], dir: &store, env: &bootstrap() });
    let (_, secret) = server.api_key(&server.sign_in());
    let backups = desk.dir.path().join("backups");
    std::fs::create_dir(&backups).expect("made");
    let bearer = format!("Authorization: Bearer {secret}");
    let sent = format!(
        "printf 'up 1\\n' | curl -sSf -H '{bearer}' --data-binary @- '{}/api/v1/orgs/acme/import?timestamp=now-3h'",
        server.url
    );
    let output = desk.paste(&sent);
    assert!(output.status.success(), "{}", said(&output));
    let lines: Vec<&str> = block("promlet backup").lines().collect();
    let paste = |line: &str| {
        let segments = store.join("segments/1");
        let mut names = std::fs::read_dir(&segments).into_iter().flatten().flatten();
        let segment = names.find_map(|entry| entry.file_name().into_string().ok()).unwrap_or_default();
        let line = line.replace("/backups", &backups.display().to_string());
        let line = line.replace("0000000005-L1.seg", &segment);
        let output = desk.paste(&line);
        assert!(output.status.success(), "{line}:\n{}", said(&output));
    };
    let works_while_running =
        |line: &&&str| line.starts_with("promlet seal") || line.starts_with("promlet backup");
    // The last line is for a running server as the first one is, and makes segments to back up.
    lines.iter().rev().filter(works_while_running).for_each(|line| paste(line));
    assert!(server.terminate().success());
    lines.iter().filter(|line| !works_while_running(line)).for_each(|line| paste(line));
}
