//! Embed tokens made by PyJWT and npm jose, in the four algorithms: valid ones are accepted, common
//! mistakes are refused with their documented code, and `introspect` returns the reason
//! (docs/specification.md C4, D7; F 27 to 29).
//!
//! The code that the guide shows for minting a token offline runs here unchanged, and so do the
//! programs that the Share dialog shows for Node, Python, PHP, Go and Rust.
//!
//! The packages are installed below `target/`; if one is unavailable, the test fails and reports
//! it.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{ORG, Server};
use packages::{debian_13, go, npm, php, pypi, run};
use serde_json::{Value as Json, json};

const JOSE: &str = "jose@6";
const PYJWT: &str = "PyJWT[crypto]>=2.10,<3";

/// Status, code and introspection reason of each refused token. Tokens whose names begin with
/// `good_` are accepted; any other token without a row fails the test.
const MISTAKES: &[(&str, u16, &str, &str)] = &[
    ("no_kid", 401, "token_invalid", "kid"),
    ("kid_is_a_name", 401, "token_invalid", "kid"),
    ("kid_is_a_path", 401, "token_invalid", "kid"),
    ("kid_unknown", 401, "token_invalid", "key"),
    ("critical", 401, "token_invalid", "header"),
    ("key_in_header", 401, "token_invalid", "header"),
    ("certificate_in_header", 401, "token_invalid", "header"),
    ("no_audience", 401, "token_invalid", "aud"),
    ("other_audience", 401, "token_invalid", "aud"),
    ("no_organisation", 401, "token_invalid", "claims"),
    ("other_organisation", 401, "token_invalid", "org"),
    ("no_expiry", 401, "token_invalid", "claims"),
    ("no_issued_at", 401, "token_invalid", "claims"),
    ("milliseconds", 401, "token_invalid", "ttl"),
    ("a_year", 401, "token_invalid", "ttl"),
    ("backwards", 401, "token_invalid", "ttl"),
    ("expired", 401, "token_expired", "exp"),
    ("not_yet", 401, "token_not_yet_valid", "nbf"),
    ("clock_ahead", 401, "token_invalid", "iat"),
    ("local_time_far_ahead", 401, "token_invalid", "iat"),
    ("issuer_is_a_name", 401, "token_invalid", "iss"),
    ("typo", 401, "token_invalid", "claims"),
    ("restriction_beside", 401, "token_invalid", "policy"),
    ("restriction_as_text", 401, "token_invalid", "claims"),
    ("restriction_is_a_list", 401, "token_invalid", "claims"),
    ("restriction_null", 401, "token_invalid", "claims"),
    ("matcher_is_a_selector", 401, "token_invalid", "policy"),
    ("matcher_is_a_dictionary", 401, "token_invalid", "claims"),
    ("matcher_with_or", 401, "token_invalid", "policy"),
    ("other_secret", 401, "token_invalid", "signature"),
    ("secret_without_prefix", 401, "token_invalid", "signature"),
    ("secret_as_base64", 401, "token_invalid", "signature"),
    ("HS384", 401, "token_invalid", "alg"),
    ("HS512", 401, "token_invalid", "alg"),
    ("PS256_for_RS256", 401, "token_invalid", "alg"),
    ("unsigned", 401, "token_invalid", "alg"),
    ("unsigned_without_kid", 401, "token_invalid", "kid"),
    ("foreign_", 401, "token_invalid", "signature"),
    ("kid_of_another_", 401, "token_invalid", "alg"),
    ("confused_", 401, "token_invalid", "alg"),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder with one of the two.
fn home(name: &str) -> PathBuf {
    match name {
        "jose" => npm("jose", JOSE),
        _ => pypi("jwt", PYJWT),
    }
}

/// One of the two, with its packages in sight.
fn peer(name: &str) -> Command {
    let home = home(name);
    let mut command = match name {
        "jose" => Command::new("node"),
        _ => Command::new("python3"),
    };
    command.env("PYTHONPATH", &home).current_dir(home);
    command
}

fn ask_peer(name: &str, step: &str, given: Option<&Json>) -> Json {
    let script = if name == "jose" { "tests/peers/tokens.mjs" } else { "tests/peers/tokens.py" };
    let mut command = peer(name);
    command.arg(root().join(script)).arg(step).arg(home(name)).args(given.map(Json::to_string));
    let said = run(&mut command, "see what it said");
    serde_json::from_str(&said).unwrap_or_else(|e| panic!("{name} {step}: {e}: {said}"))
}

struct Desk {
    server: Server,
    cookie: String,
}

impl Desk {
    fn open(folder: &Path) -> Desk {
        let server = Server::serve(folder);
        let cookie = server.sign_in();
        Desk { server, cookie }
    }

    fn key(&self, embed: &Json) -> Json {
        let body = json!({ "name": "page", "scopes": ["embed"], "embed": embed });
        let path = format!("/api/v1/orgs/{ORG}/api-keys");
        let made = self.server.post_json(&path, &[("Cookie", &self.cookie)], &body);
        assert_eq!(made.status, 201, "{embed}: {}", made.body);
        made.json()
    }

    /// Returns status and code of a query with this token; the code is empty on success.
    fn ask(&self, token: &str) -> (u16, String) {
        let bearer = format!("Bearer {token}");
        let path = format!("/api/v1/orgs/{ORG}/query/expr-instant?expr=1");
        let answer = self.server.get(&path, &[("Authorization", &bearer)]);
        let code = answer.json()["code"].as_str().unwrap_or_default().to_owned();
        (answer.status, code)
    }

    fn introspect(&self, token: &str) -> Json {
        let path = format!("/api/v1/orgs/{ORG}/embed/introspect");
        let answer = self.server.post_json(&path, &[("Cookie", &self.cookie)], &json!({ "token": token }));
        assert_eq!(answer.status, 200, "{}", answer.body);
        // A session may send sixty requests a second, and this loop is faster.
        std::thread::sleep(std::time::Duration::from_millis(20));
        answer.json()
    }
}

fn expected(name: &str) -> (u16, &'static str, &'static str) {
    if name.starts_with("good_") {
        return (200, "", "");
    }
    let row =
        MISTAKES.iter().find(|(known, ..)| *known == name || known.ends_with('_') && name.starts_with(known));
    let (_, status, code, reason) = row.unwrap_or_else(|| panic!("nothing is promised for {name}"));
    (*status, code, reason)
}

/// Makes keys, has the peer sign with them, asks with each token.
fn judge(name: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let desk = Desk::open(folder.path());
    let hs = desk.key(&json!({ "max_token_ttl_s": 3_600, "rate_limit_rps": 1_000 }));
    let mut given = json!({ "org": ORG, "hs": { "kid": hs["id"], "secret": hs["secret"] } });
    let public: BTreeMap<String, Json> =
        serde_json::from_value(ask_peer(name, "keys", None)).expect("an object of algorithms");
    assert_eq!(public.len(), 3);
    for (alg, forms) in &public {
        // Where the peer writes JWKs, those; a PEM must be as good.
        let uploaded = forms.get("jwk").unwrap_or(&forms["pem"]);
        let made = desk.key(&json!({ "alg": alg, "public_key": uploaded, "rate_limit_rps": 1_000 }));
        let stored = made["embed"]["public_key"].as_str().expect("a PEM");
        assert_eq!(
            stored.trim(),
            forms["pem"].as_str().expect("a PEM").trim(),
            "{alg}: one key in two forms"
        );
        given[alg] = json!({ "kid": made["id"], "pem": forms["pem"] });
    }
    let tokens: BTreeMap<String, String> =
        serde_json::from_value(ask_peer(name, "tokens", Some(&given))).expect("an object of tokens");
    assert!(tokens.len() > 40, "{}", tokens.len());
    let mut wrong = Vec::new();
    for (case, token) in &tokens {
        let (status, code, reason) = expected(case);
        let (answered, seen) = (desk.ask(token), desk.introspect(token));
        let why = seen["reason"].as_str().unwrap_or_default();
        if answered != (status, code.to_owned()) || why != reason || seen["valid"] != (status == 200) {
            wrong.push(format!("{case}: {answered:?} because of {why:?}, not {status} {code:?} {reason:?}"));
        }
        if status == 200 && !case.contains("whole") {
            assert_eq!(seen["effective"]["match"], json!(["customer=\"c42\""]), "{case}");
        }
    }
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

#[test]
fn tokens_of_npm_jose_are_taken_and_its_users_mistakes_are_told() {
    judge("jose");
}

#[test]
fn tokens_of_pyjwt_are_taken_and_its_users_mistakes_are_told() {
    judge("PyJWT");
}

/// The block of docs/guide/embed.md whose first line holds `words`.
fn shown(words: &str) -> String {
    let readme = std::fs::read_to_string(root().join("docs/guide/embed.md")).expect("the guide");
    let mut blocks = readme.split("```").skip(1).step_by(2);
    let block = blocks.find(|block| block.lines().nth(1).is_some_and(|line| line.contains(words)));
    let block =
        block.unwrap_or_else(|| panic!("docs/guide/embed.md has no block that begins with {words:?}"));
    block.split_once('\n').map(|(_, code)| code.to_owned()).unwrap_or_default()
}

#[test]
fn what_the_readme_shows_mints_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let desk = Desk::open(folder.path());
    let key = desk.key(&json!({}));
    let (kid, secret) = (key["id"].as_str().expect("an id"), key["secret"].as_str().expect("a secret"));
    for (name, words, ending, file) in [
        ("jose", "npm jose", "console.log(token)", "readme.mjs"),
        ("PyJWT", "PyJWT", "print(token)", "readme.py"),
    ] {
        let code = shown(words).replace("ak_…", kid);
        assert!(code.contains(kid), "{name}: the block names a key");
        let script = home(name).join(file);
        std::fs::write(&script, format!("{code}\n{ending}\n")).expect("written");
        let mut command = peer(name);
        let token = run(command.arg(&script).env("PROMLET_API_SECRET", secret), "the guide shows it");
        let seen = desk.introspect(token.trim());
        assert_eq!((&seen["valid"], &seen["reason"]), (&json!(true), &Json::Null), "{name}: {seen}");
        assert_eq!(seen["effective"]["match"], json!(["customer=\"c42\""]), "{name}");
        assert_eq!(desk.ask(token.trim()), (200, String::new()), "{name}");
    }
}

/// Writes a file and the folders that it is in.
fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, text).expect("written");
}

/// Returns a command that runs a program of the Share dialog, which is a file of its own or the
/// first part of one, and prints its token.
fn share_program(language: &str, program: &str, folder: &Path) -> Command {
    match language {
        "node" | "python" => {
            let (name, file, ending) = match language {
                "node" => ("jose", "share.mjs", "console.log(await embedToken())"),
                _ => ("PyJWT", "share.py", "print(embed_token())"),
            };
            let script = home(name).join(file);
            write(&script, &format!("{program}\n{ending}\n"));
            let mut command = peer(name);
            command.arg(&script);
            command
        }
        "php" => {
            write(&folder.join("share.php"), program);
            write(&folder.join("page.php"), "<?php require 'share.php'; echo embed_token();");
            let mut command = php();
            command.arg("page.php").current_dir(folder);
            command
        }
        "go" => {
            let library = debian_13("golang-jwt", &["golang-github-golang-jwt-jwt-v5-dev"]);
            write(&folder.join("src/share/embed/token.go"), program);
            let main = "package main\nimport (\n\"fmt\"\n\"share/embed\"\n)\nfunc main() {\n\
                        token, err := embed.Token()\nif err != nil { panic(err) }\nfmt.Println(token)\n}\n";
            write(&folder.join("main.go"), main);
            let mut command = go(&[&library.join("usr/share/gocode"), folder]);
            command.args(["run", "main.go"]).current_dir(folder);
            command
        }
        "rust" => rust_program(program),
        _ => panic!("no test runs {language}"),
    }
}

/// A package with the dependencies that the first lines of the program add, in the versions of
/// promlet. It stays below the target folder, so that they are compiled once.
fn rust_program(program: &str) -> Command {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("share-rust");
    write(&folder.join("Cargo.toml"), "[package]\nname = \"share\"\nedition = \"2024\"\n[workspace]\n");
    std::fs::copy(root().join("Cargo.lock"), folder.join("Cargo.lock")).expect("copied");
    write(&folder.join("src/share.rs"), program);
    let main = "mod share;\nfn main() {\n    println!(\"{}\", share::embed_token().unwrap());\n}\n";
    write(&folder.join("src/main.rs"), main);
    let cargo = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(&folder).env("CARGO_TARGET_DIR", folder.join("target"));
        // Without it, rustup would take the toolchain that the folder of a dependency names.
        cargo.env("RUSTC", Path::new(env!("CARGO")).with_file_name("rustc"));
        cargo
    };
    let commands: Vec<&str> = program.lines().map_while(|line| line.strip_prefix("// cargo ")).collect();
    assert!(!commands.is_empty(), "the program adds no package: {program}");
    for command in commands {
        run(cargo().args(command.split(' ')), "the program needs it");
    }
    let mut command = cargo();
    command.args(["run", "--quiet"]);
    command
}

#[test]
fn the_programs_of_the_share_dialog_mint_tokens() {
    let folder = tempfile::tempdir().expect("a folder");
    let desk = Desk::open(folder.path());
    let key = desk.key(&json!({ "origins": ["https://app.example.com", "https://other.example"] }));
    let (kid, secret) = (key["id"].as_str().expect("an id"), key["secret"].as_str().expect("a secret"));
    // The values would end a string literal, a comment or a script if they were copied as they are.
    let hostile = [
        "</script>'\\\"$x\\\\ ?> */ // `tick` %s {{x}} #{x} ]]>",
        "{$x} ${x} \u{2028}\u{a0}\u{202e}abc \u{1f600} é漢\tnext\\r\\nline",
        "\u{7}\u{7f}''' \\\"\\\"\\\" __proto__ &#60; <?= 1 ?> \\\\u0041 \\\\x41",
    ];
    let mut matchers = vec!["customer=\"c42\"".to_owned()];
    matchers.extend(hostile.map(|text| format!("path=\"{text}\"")));
    let ms = json!({
        "match": matchers,
        "max_range_s": 3_600,
        "min_step_s": 15,
        "origins": ["https://app.example.com"],
    });
    let given = json!({ "org": ORG, "kid": kid, "ttl": 600, "ms": ms });
    let mut node = Command::new("node");
    node.arg(root().join("tests/peers/share_programs.mjs")).arg(given.to_string());
    let printed = run(&mut node, "the Share dialog shows them");
    let programs: BTreeMap<String, String> = serde_json::from_str(&printed).expect("texts by language");
    assert_eq!(programs.len(), 5);
    for (language, program) in &programs {
        let mut command = share_program(language, program, &folder.path().join(language));
        let token = run(command.env("PROMLET_API_SECRET", secret), "the Share dialog shows it");
        let token = token.trim();
        let seen = desk.introspect(token);
        assert_eq!((&seen["valid"], &seen["reason"]), (&json!(true), &Json::Null), "{language}: {seen}");
        let claims = &seen["claims"];
        assert_eq!((&claims["ms"], &claims["org"], &claims["aud"]), (&ms, &json!(ORG), &json!("ms-embed")));
        let lifetime = claims["exp"].as_i64().zip(claims["iat"].as_i64()).map(|(exp, iat)| exp - iat);
        assert_eq!(lifetime, Some(600), "{language}: {claims}");
        let bearer = format!("Bearer {token}");
        let status = |path: &str, origin: &str| {
            let path = format!("/api/v1/orgs/{ORG}/query/{path}");
            desk.server.get(&path, &[("Authorization", &bearer), ("Origin", origin)]).status
        };
        assert_eq!(desk.ask(token), (200, String::new()), "{language}");
        let range = |hours: i64| format!("range?expr=1&start=0&end={}&step=60", hours * 3_600);
        assert_eq!(status(&range(1), "https://app.example.com"), 200, "{language}");
        assert_eq!(status(&range(1), "https://other.example"), 403, "{language}: another origin");
        assert_eq!(status(&range(2), "https://app.example.com"), 403, "{language}: a longer range");
    }
}
