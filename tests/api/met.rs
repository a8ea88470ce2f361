//! Checks that every documented response occurs. Every response that a test of this binary receives
//! is recorded, and one test compares the record with the OpenAPI document by route, status and
//! code.
//!
//! That test is the last one by name, so that the harness starts it last, and it waits for those
//! that still run. If they did not receive all responses, for example because not all tests were
//! selected, it runs this binary once more as a child process, whose environment names the file for
//! the record.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::process::Command;
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Duration;

use promlet::api::error::Code;
use serde_json::Value;

/// Environment variable of the child: the path of the record.
const RECORD_PATH: &str = "PROMLET_TEST_MET";

/// A documented response: method and path template, status, and the error code, if any.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DocumentedResponse {
    pub(crate) operation: String,
    pub(crate) status: u16,
    pub(crate) code: String,
}

impl std::fmt::Display for DocumentedResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} | {} | {}", self.operation, self.status, self.code)
    }
}

/// The recorded lines, and the file for them if this process is such a child.
struct ResponseRecord {
    file: Option<File>,
    written: BTreeSet<String>,
}

#[expect(clippy::disallowed_methods, reason = "what a test tells its own child")]
fn open_record() -> &'static Mutex<ResponseRecord> {
    static RECORD: OnceLock<Mutex<ResponseRecord>> = OnceLock::new();
    let open = |path| OpenOptions::new().append(true).create(true).open(path).expect("the parent's folder");
    RECORD.get_or_init(|| {
        let file = std::env::var_os(RECORD_PATH).map(open);
        Mutex::new(ResponseRecord { file, written: BTreeSet::new() })
    })
}

/// Records a response once.
pub(crate) fn record(method: &str, template: &str, status: u16, refused: Option<Code>) {
    let code = refused.map_or_else(String::new, |code| code.as_str().to_owned());
    let line = DocumentedResponse { operation: format!("{method} {template}"), status, code }.to_string();
    let mut responses = open_record().lock().expect("unpoisoned");
    let ResponseRecord { file, written } = &mut *responses;
    if !written.contains(&line) {
        if let Some(file) = file {
            writeln!(file, "{line}").expect("written");
        }
        written.insert(line);
    }
}

/// Returns whether another test runs in this process. The harness names the thread of a test after
/// its path; a test whose module has a longer name than the system stores is not found.
fn another_test_runs() -> bool {
    let own = std::fs::read_link("/proc/thread-self").expect("the thread of this test");
    let threads = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    threads.filter_map(Result::ok).any(|thread| {
        let is_own = Some(thread.file_name().as_os_str()) == own.file_name();
        let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        !is_own && name.contains("::")
    })
}

/// Returns the responses to the other tests of this process, once none of them runs.
fn of_this_process() -> BTreeSet<String> {
    let (responses, never) = (open_record(), Condvar::new());
    while another_test_runs() {
        let guard = responses.lock().expect("unpoisoned");
        drop(never.wait_timeout(guard, Duration::from_millis(20)).expect("unpoisoned"));
    }
    responses.lock().expect("unpoisoned").written.clone()
}

/// Returns the responses to all tests of this binary except `but`, the calling test: those of this
/// process if they suffice by `is_complete`, otherwise those of a child that runs all tests.
pub(crate) fn of_all_tests(but: &str, is_complete: impl Fn(&BTreeSet<String>) -> bool) -> BTreeSet<String> {
    let met = of_this_process();
    if is_complete(&met) {
        return met;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let record_path = folder.path().join("met");
    let tests = std::env::current_exe().expect("this binary");
    let run =
        Command::new(tests).args(["--skip", but]).env(RECORD_PATH, &record_path).output().expect("it starts");
    assert!(run.status.success(), "the other tests fail:\n{}", String::from_utf8_lossy(&run.stdout));
    let met = std::fs::read_to_string(&record_path).expect("the record");
    met.lines().map(str::to_owned).collect()
}

/// Returns all responses that the document lists.
pub(crate) fn documented(document: &Value) -> BTreeSet<DocumentedResponse> {
    let mut all = BTreeSet::new();
    for (template, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let operation_name = format!("{} {template}", method.to_ascii_uppercase());
            for (status, response) in operation["responses"].as_object().expect("responses") {
                let status: u16 = status.parse().expect("a status");
                let of = |code: &str| DocumentedResponse {
                    operation: operation_name.clone(),
                    status,
                    code: code.to_owned(),
                };
                match codes(response).as_slice() {
                    [] => drop(all.insert(of(""))),
                    codes => all.extend(codes.iter().map(|code| of(code))),
                }
            }
        }
    }
    all
}

/// Returns the error codes of a response; none for a success. The bodies of Prometheus and OTLP
/// have no member for the code, but their descriptions list the codes.
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

/// Responses that no test here receives: operation (`*`: all), error code, reason, and the test
/// elsewhere that receives it.
pub(crate) type Exemptions = &'static [(&'static str, &'static str, &'static str, &'static str)];

/// Returns the responses that are documented, but neither recorded nor exempt, and the exemptions
/// that are unnecessary or name an unknown test.
pub(crate) fn missing(
    documented: &BTreeSet<DocumentedResponse>,
    met: &BTreeSet<String>,
    exemptions: Exemptions,
) -> Vec<String> {
    let fits = |(operation, code, ..): &(&str, &str, &str, &str), answer: &DocumentedResponse| {
        *code == answer.code && (*operation == "*" || *operation == answer.operation)
    };
    let is_exempt = |answer: &DocumentedResponse| exemptions.iter().any(|exemption| fits(exemption, answer));
    let missing = documented.iter().filter(|answer| !met.contains(&answer.to_string()));
    let mut wrong: Vec<String> =
        missing.clone().filter(|answer| !is_exempt(answer)).map(DocumentedResponse::to_string).collect();
    for exemption @ (operation, code, why, test) in exemptions {
        if !missing.clone().any(|answer| fits(exemption, answer)) {
            wrong.push(format!("the exemption for {code} of {operation} ({why}) is unnecessary"));
        }
        if !sources().contains(&format!("fn {test}(")) {
            wrong.push(format!("the exemption for {code} of {operation} names an unknown test {test}"));
        }
    }
    wrong
}

/// The text of all files under `tests` and `src`.
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
