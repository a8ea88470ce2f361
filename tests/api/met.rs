//! What is documented can happen: every answer that any test of this binary gets is written down, and one test compares
//! that with the OpenAPI document, route by route, status by status, code by code (issue 5, point 8).
//!
//! A test cannot know what the others met, nor when they are done. So [`of_all_tests`] runs this very binary once more as
//! a child that is told by the environment where to write down what it meets.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use promlet::api::error::Code;
use serde_json::Value;

/// Tells a child where to write.
const TOLD: &str = "PROMLET_TEST_MET";

/// A documented answer: method and path with its parameters, status, and the code of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Answer {
    pub(crate) operation: String,
    pub(crate) status: u16,
    pub(crate) code: String,
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} | {} | {}", self.operation, self.status, self.code)
    }
}

/// Where a child writes, and what it has written.
struct Book {
    file: File,
    written: BTreeSet<String>,
}

#[expect(clippy::disallowed_methods, reason = "what a test tells its own child")]
fn book() -> Option<&'static Mutex<Book>> {
    static BOOK: OnceLock<Option<Mutex<Book>>> = OnceLock::new();
    let open = || {
        let path = std::env::var_os(TOLD)?;
        let file = OpenOptions::new().append(true).create(true).open(path).expect("the parent's folder");
        Some(Mutex::new(Book { file, written: BTreeSet::new() }))
    };
    BOOK.get_or_init(open).as_ref()
}

/// Writes an answer down, once, where this process is such a child.
pub(crate) fn note(method: &str, template: &str, status: u16, refused: Option<Code>) {
    let Some(book) = book() else { return };
    let code = refused.map_or_else(String::new, |code| code.as_str().to_owned());
    let line = Answer { operation: format!("{method} {template}"), status, code }.to_string();
    let mut book = book.lock().expect("unpoisoned");
    if !book.written.contains(&line) {
        writeln!(book.file, "{line}").expect("room on the disk");
        book.written.insert(line);
    }
}

/// What all tests of this binary meet but `but`, which is the one that asks.
pub(crate) fn of_all_tests(but: &str) -> BTreeSet<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let told = folder.path().join("met");
    let tests = std::env::current_exe().expect("this binary");
    let run = Command::new(tests).args(["--skip", but]).env(TOLD, &told).output().expect("it starts");
    assert!(run.status.success(), "the other tests fail:\n{}", String::from_utf8_lossy(&run.stdout));
    let met = std::fs::read_to_string(&told).expect("what was met");
    met.lines().map(str::to_owned).collect()
}

/// Everything that the document says of its operations.
pub(crate) fn documented(document: &Value) -> BTreeSet<Answer> {
    let mut all = BTreeSet::new();
    for (template, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let operation_name = format!("{} {template}", method.to_ascii_uppercase());
            for (status, response) in operation["responses"].as_object().expect("responses") {
                let status: u16 = status.parse().expect("a status");
                let of =
                    |code: &str| Answer { operation: operation_name.clone(), status, code: code.to_owned() };
                match codes(response).as_slice() {
                    [] => drop(all.insert(of(""))),
                    codes => all.extend(codes.iter().map(|code| of(code))),
                }
            }
        }
    }
    all
}

/// The codes of a refusal; none for an answer that is none. Prometheus' own body and OTLP's have no member for them, but
/// every description names them.
pub(crate) fn codes(response: &Value) -> Vec<&str> {
    let parts = response["content"]["application/problem+json"]["schema"]["allOf"].as_array();
    let listed = parts.into_iter().flatten().find_map(|part| part["properties"]["code"]["enum"].as_array());
    if let Some(listed) = listed {
        return listed.iter().filter_map(Value::as_str).collect();
    }
    let words = response["description"].as_str().unwrap_or_default().split(", ");
    let words = words.map(|word| word.strip_prefix('`').and_then(|word| word.strip_suffix('`')));
    words.collect::<Option<_>>().unwrap_or_default()
}

/// What no test here gets: from which operation (`*`: all of them), which code, why, and the test that gets it where it
/// comes from.
pub(crate) type Excuses = &'static [(&'static str, &'static str, &'static str, &'static str)];

/// What is documented and neither met nor excused; and excuses that nothing needs, or whose test there is not.
pub(crate) fn unmet(documented: &BTreeSet<Answer>, met: &BTreeSet<String>, excuses: Excuses) -> Vec<String> {
    let fits = |(operation, code, ..): &(&str, &str, &str, &str), answer: &Answer| {
        *code == answer.code && (*operation == "*" || *operation == answer.operation)
    };
    let excused = |answer: &Answer| excuses.iter().any(|excuse| fits(excuse, answer));
    let missing = documented.iter().filter(|answer| !met.contains(&answer.to_string()));
    let mut wrong: Vec<String> =
        missing.clone().filter(|answer| !excused(answer)).map(Answer::to_string).collect();
    for excuse @ (operation, code, why, test) in excuses {
        if !missing.clone().any(|answer| fits(excuse, answer)) {
            wrong.push(format!("the excuse for {code} of {operation} ({why}) is not needed"));
        }
        if !sources().contains(&format!("fn {test}(")) {
            wrong.push(format!("the excuse for {code} of {operation} names a test {test} that there is not"));
        }
    }
    wrong
}

/// The text of everything that holds tests.
fn sources() -> &'static str {
    static ALL: OnceLock<String> = OnceLock::new();
    ALL.get_or_init(|| {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let (mut text, mut folders) = (String::new(), vec![root.join("tests"), root.join("src")]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => text.push_str(&std::fs::read_to_string(&path).unwrap_or_default()),
                }
            }
        }
        text
    })
}
