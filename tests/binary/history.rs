//! `promlet import`, `verify-import` and `export`: on a stopped folder, on a running server, and
//! killed at random moments.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use promlet::clock::Clock;
use promlet::entropy::Entropy;

use crate::harness::{ORG, Server, request, scratch};

/// The number of kills of each command, and with `PROMLET_TESTS=thorough`. The variable asks for
/// another number.
const KILLS: usize = 4;
const KILLS_THOROUGH: usize = 20;
const KILLS_VARIABLE: &str = "PROMLET_TEST_HISTORY_KILLS";
/// The seed of the moments of the kills, and the variable that sets it. Thorough tests choose one
/// at random.
const SEED: u64 = 20_261_127;
const SEED_VARIABLE: &str = "PROMLET_TEST_HISTORY_SEED";
/// The series and the samples of each in the imported file.
const SERIES: usize = 20;
const SAMPLES: usize = 6_000;
/// The longest time before a kill in milliseconds.
const LONGEST_MS: u64 = 1_500;

/// The kills that a test makes.
struct Kills {
    count: usize,
    rng: Entropy,
}

impl Kills {
    fn new() -> Kills {
        let is_thorough = variable("PROMLET_TESTS").is_some_and(|value| value == "thorough");
        let requested = |name| variable(name).and_then(|text| text.parse::<u64>().ok());
        let chosen = if is_thorough { u64::from_le_bytes(Entropy::system().bytes()) } else { SEED };
        let seed = requested(SEED_VARIABLE).unwrap_or(chosen);
        let count = requested(KILLS_VARIABLE).and_then(|count| usize::try_from(count).ok());
        println!("{SEED_VARIABLE}={seed}");
        Kills {
            count: count.unwrap_or(if is_thorough { KILLS_THOROUGH } else { KILLS }),
            rng: Entropy::seeded(seed),
        }
    }

    /// Runs and kills a command several times, then runs it to its end. Returns its output.
    #[track_caller]
    fn run(&mut self, dir: &Path, args: &[&str]) -> String {
        let mut killed = 0;
        for _ in 0..self.count {
            let after_ms = u64::from(u16::from_le_bytes(self.rng.bytes())) % LONGEST_MS;
            killed += usize::from(!run_killed(dir, args, after_ms));
        }
        println!("{args:?} was killed in {killed} of {} runs", self.count);
        run(dir, args)
    }
}

#[expect(clippy::disallowed_methods, reason = "a longer run is requested from outside")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn promlet(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_promlet"));
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("PROMLET_ARGON2", "64,1,1")
        .env("PROMLET_DATA_DIR", dir.join("store"))
        .current_dir(dir)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn shown(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn run(dir: &Path, args: &[&str]) -> String {
    let output = promlet(dir, args).output().expect("it runs");
    assert!(output.status.success(), "{args:?}: {}", shown(&output));
    shown(&output)
}

/// Runs a command and kills it after some milliseconds. Returns whether it ended before that.
fn run_killed(dir: &Path, args: &[&str], after_ms: u64) -> bool {
    let mut child = promlet(dir, args).spawn().expect("it starts");
    // Nothing is sent, so this waits.
    let (_sender, silence) = channel::<()>();
    let _ = silence.recv_timeout(Duration::from_millis(after_ms));
    let has_ended = child.try_wait().expect("ours").is_some();
    let _ = child.kill();
    let output = child.wait_with_output().expect("reaped");
    assert!(!has_ended || output.status.success(), "{args:?}: {}", shown(&output));
    has_ended
}

/// Runs a command that fails with exit code 1. Returns what it prints.
#[track_caller]
fn fail(dir: &Path, args: &[&str]) -> String {
    let output = promlet(dir, args).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", shown(&output));
    shown(&output)
}

/// Writes OpenMetrics with [`SERIES`] series of [`SAMPLES`] samples.
fn write_samples(path: &Path) {
    let mut text = "# TYPE load gauge\n# HELP load The load.\n".to_owned();
    for series in 0..SERIES {
        for number in 0..SAMPLES {
            let value = series as f64 * 1e6 + number as f64 + 0.125;
            let time = 1_790_000_000 + number * 60;
            writeln!(text, "load{{host=\"web{series}\"}} {value} {time}").expect("a string");
        }
    }
    text.push_str("# EOF\n");
    std::fs::write(path, text).expect("written");
}

/// Creates a folder with a stopped store.
fn stopped() -> tempfile::TempDir {
    let dir = scratch::temporary_folder().expect("a folder");
    assert!(Server::serve(&dir.path().join("store")).terminate().success());
    dir
}

/// Returns the exported samples as sorted lines without the header.
fn exported_lines(dir: &Path) -> Vec<String> {
    run(dir, &["export", "csv", "all.csv", "--org", ORG]);
    let text = std::fs::read_to_string(dir.join("all.csv")).expect("an export");
    let mut lines: Vec<String> = text.lines().skip(1).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn imports_and_an_export_that_are_killed_at_random_moments_lose_and_double_no_sample() {
    let mut kills = Kills::new();
    let folder = stopped();
    let dir = folder.path();
    write_samples(&dir.join("samples.om"));
    kills.run(dir, &["import", "openmetrics", "samples.om", "--org", ORG]);
    let compared = run(dir, &["verify-import", "openmetrics", "samples.om", "--org", ORG]);
    assert!(compared.contains("0 parts differ"), "{compared}");
    let lines = exported_lines(dir);
    assert_eq!(lines.len(), SERIES * SAMPLES);
    assert!(lines.windows(2).all(|pair| pair[0] != pair[1]), "no sample is doubled");

    kills.run(dir, &["export", "prometheus-blocks", "blocks", "--org", ORG, "--block-hours", "6"]);
    let compared = run(dir, &["verify-import", "prometheus-blocks", "blocks", "--org", ORG]);
    assert!(compared.contains(&format!("compared {} samples", "120 000")), "{compared}");
    assert!(compared.contains("0 parts differ"), "{compared}");

    let other = stopped();
    let blocks = dir.join("blocks").display().to_string();
    kills.run(other.path(), &["import", "prometheus-blocks", &blocks, "--org", ORG]);
    assert_eq!(exported_lines(other.path()), lines);
    for dir in [dir, other.path()] {
        run(dir, &["check", "--deep", "store"]);
    }
}

#[test]
fn samples_are_imported_into_and_exported_from_a_running_server_by_its_url() {
    let dir = scratch::temporary_folder().expect("a folder");
    let dir = dir.path();
    let server = Server::serve(&dir.join("store"));
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    std::fs::write(dir.join("key"), secret).expect("written");
    write_samples(&dir.join("samples.om"));
    let url = format!("{}/api/v1/orgs/{ORG}/prometheus", server.url);
    let at = ["--url", &*url, "--token-file", "key"];
    let on = |args: &[&str]| run(dir, &[args, &at].concat());
    let preview = on(&["import", "openmetrics", "samples.om", "--dry-run", "--match", "load{host=\"web1\"}"]);
    assert!(preview.contains("1 series, 6 000 samples"), "{preview}");
    let imported = on(&["import", "openmetrics", "samples.om"]);
    assert!(imported.contains("imported 120 000 samples, 0 refused"), "{imported}");
    let compared = on(&["verify-import", "openmetrics", "samples.om"]);
    assert!(compared.contains("0 parts differ"), "{compared}");
    for format in ["jsonl", "csv", "openmetrics", "prometheus"] {
        on(&["export", format, "out.txt", "--match", "load{host=~\"web[12]\"}"]);
        let text = std::fs::read_to_string(dir.join("out.txt")).expect("an export");
        assert!(text.contains("web1") && text.contains("web2") && !text.contains("web3"), "{format}");
        let compared = on(&["verify-import", format, "out.txt"]);
        assert!(
            compared.contains("compared 12 000 samples") && compared.contains("0 parts differ"),
            "{compared}"
        );
    }
    // The remark on native histograms is about this export.
    let before = on(&["export", "jsonl", "out.txt"]);
    assert!(!before.contains("native histograms"), "{before}");
    let now_s = Clock::System.now().as_ms() / 1_000;
    let point = format!(
        r#"{{"timeUnixNano":"{now_s}000000000","count":"3","sum":4,"scale":0,"zeroCount":"0","positive":{{"offset":0,"bucketCounts":["1","2"]}}}}"#
    );
    let body = format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"latency","exponentialHistogram":{{"aggregationTemporality":2,"dataPoints":[{point}]}}}}]}}]}}]}}"#
    );
    let otlp = format!("{}/api/v1/orgs/{ORG}/otlp/v1/metrics", server.url);
    let authorization = format!("Bearer {}", std::fs::read_to_string(dir.join("key")).expect("the key"));
    let headers = [("Authorization", &*authorization), ("Content-Type", "application/json")];
    assert_eq!(request("POST", &otlp, &headers, Some(body.as_bytes())).status, 200);
    for (format, remarks) in [("jsonl", 1), ("csv", 1), ("openmetrics", 1), ("prometheus-blocks", 0)] {
        let out = format!("with-{format}");
        let printed = on(&["export", format, &out, "--from", "1790000000"]);
        assert_eq!(printed.matches("  1 native histograms were left out").count(), remarks, "{printed}");
        assert_eq!(printed.matches("native histograms").count(), remarks, "{printed}");
    }
    let other = on(&["export", "csv", "out.txt", "--match", "load"]);
    assert!(!other.contains("native histograms"), "{other}");
    on(&["export", "prometheus-blocks", "blocks", "--from", "0", "--to", "1790100000"]);
    let compared = on(&["verify-import", "prometheus-blocks", "blocks"]);
    assert!(compared.contains("0 parts differ"), "{compared}");
    // The folder is in use.
    let refused =
        promlet(dir, &["import", "openmetrics", "samples.om", "--org", ORG]).output().expect("it runs");
    assert!(!refused.status.success() && shown(&refused).contains("--url"), "{}", shown(&refused));
}

#[test]
fn blocks_of_two_folders_in_one_folder_have_the_samples_of_both() {
    let (one, other) = (stopped(), stopped());
    let out = scratch::temporary_folder().expect("a folder");
    let blocks = out.path().join("blocks").display().to_string();
    for (dir, job) in [(one.path(), "one"), (other.path(), "other")] {
        let text = format!("load{{job=\"{job}\"}} 1 1790000000\n# EOF\n");
        std::fs::write(dir.join("samples.om"), text).expect("written");
        run(dir, &["import", "openmetrics", "samples.om", "--org", ORG]);
        let exported = run(dir, &["export", "prometheus-blocks", &blocks, "--org", ORG]);
        assert!(exported.contains("1 blocks"), "{exported}");
    }
    for dir in [one.path(), other.path()] {
        run(dir, &["import", "prometheus-blocks", &blocks, "--org", ORG]);
        assert_eq!(exported_lines(dir).len(), 2);
    }
}

#[test]
fn an_import_that_leaves_something_out_ends_with_an_error_after_the_rest_is_stored() {
    let folder = stopped();
    let dir = folder.path();
    for (text, reason) in [
        ("a 1 1790000000\n# EOF\nb 1 1790000000\n", "line 3: the 1 lines after `# EOF` are not read"),
        ("a 1 1790000000\n", "without `# EOF`"),
        ("a 1 1790000000\na 1e400 1790000060\n# EOF\n", "\"1e400\" is out of range"),
    ] {
        std::fs::write(dir.join("samples.om"), text).expect("written");
        let imported = fail(dir, &["import", "openmetrics", "samples.om", "--org", ORG]);
        assert!(imported.contains("imported 1 samples") && imported.contains(reason), "{imported}");
    }
    let missing = ["import", "openmetrics", "samples.om", "--org", ORG, "--progress", "missing/p.json"];
    assert!(fail(dir, &missing).contains("progress file"));
}

#[test]
fn an_export_replaces_an_old_file_also_without_samples_and_refuses_a_wrong_destination_at_once() {
    let folder = stopped();
    let dir = folder.path();
    for (format, expected) in [
        ("openmetrics", "# EOF\n"),
        ("jsonl", ""),
        ("csv", "time:unix_ms,metric,value\n"),
        ("prometheus", ""),
    ] {
        std::fs::write(dir.join("out"), "old").expect("written");
        run(dir, &["export", format, "out", "--org", ORG]);
        assert_eq!(std::fs::read_to_string(dir.join("out")).expect("an export"), expected, "{format}");
    }
    let refused = fail(dir, &["export", "jsonl", "store", "--org", ORG]);
    assert!(refused.contains("store is a folder: name a file"), "{refused}");
    let refused = fail(dir, &["export", "prometheus-blocks", "-", "--org", ORG]);
    assert!(refused.contains("cannot go to standard output"), "{refused}");
    assert!(!dir.join("store.incomplete").exists() && !dir.join("-").exists());
}

#[test]
fn a_command_whose_standard_output_cannot_be_written_reports_it() {
    let folder = stopped();
    let dir = folder.path();
    std::fs::write(dir.join("samples.om"), "a 1 1790000000\n# EOF\n").expect("written");
    std::fs::write(dir.join("rules.yml"), "groups: []\n").expect("written");
    for args in [
        &["rules", "check", "rules.yml"][..],
        &["rules", "check", "missing.yml"],
        &["import", "openmetrics", "samples.om", "--org", ORG],
        &["seal"],
        &["backup", "backup"],
        &["check", "store"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = promlet(dir, args).stdout(writer).output().expect("it runs");
        let text = shown(&output);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{args:?}: {text}");
        assert!(text.contains("cannot write to standard output"), "{args:?}: {text}");
    }
}

#[test]
fn a_backup_into_another_backup_advises_no_removal() {
    let folder = stopped();
    let dir = folder.path();
    run(dir, &["backup", "backup"]);
    let refused = fail(dir, &["backup", "backup"]);
    assert!(refused.contains("is not empty") && !refused.contains("remove it"), "{refused}");
    run(dir, &["check", "--deep", "backup"]);
}
