//! Commands that run to their end, with their time and memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use promlet::clock::Stopwatch;

use crate::cpu_time::cpu_s;
use crate::harness::process_stats::status_bytes;

/// The longest time of a command.
const RUN_MAX: Duration = Duration::from_secs(900);
/// The interval in which its memory is read.
const INTERVAL: Duration = Duration::from_millis(5);

/// What a command took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    pub(crate) wall_s: f64,
    /// The CPU time of the command, and of a server that it used.
    pub(crate) cpu_s: f64,
    /// The greatest resident memory of the command.
    pub(crate) peak_bytes: u64,
}

/// A running command.
pub(crate) struct Started {
    child: Child,
    shown: String,
    log: PathBuf,
    watch: Stopwatch,
    peak_bytes: u64,
}

impl Started {
    pub(crate) fn new(command: &mut Command, dir: &Path) -> Started {
        let log = dir.join("command.log");
        let file = File::create(&log).expect("a log");
        let errors = file.try_clone().expect("a second handle");
        let shown = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let watch = Stopwatch::start();
        let child = command.spawn().unwrap_or_else(|error| panic!("{shown} does not start: {error}"));
        Started { child, shown, log, watch, peak_bytes: 0 }
    }

    /// Waits for its end, at most for `limit`. Returns whether it has ended.
    pub(crate) fn wait(&mut self, limit: Duration) -> bool {
        let waited = Stopwatch::start();
        let pid = self.child.id();
        // A process that has ended keeps its CPU time until it is waited for, but not its memory.
        while !has_ended(pid) {
            self.peak_bytes = self.peak_bytes.max(status_bytes(pid, "VmHWM").unwrap_or_default());
            if self.watch.elapsed() > RUN_MAX {
                let _ = self.child.kill();
                panic!("{} takes more than {RUN_MAX:?}", self.shown);
            }
            if waited.elapsed() >= limit {
                return false;
            }
            std::thread::sleep(INTERVAL);
        }
        true
    }

    /// Sends a signal to it, also if it has ended.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for its end, which must be a success. Returns its cost and its output.
    pub(crate) fn finish(mut self) -> (Cost, String) {
        self.wait(RUN_MAX);
        let wall_s = self.watch.elapsed().as_secs_f64();
        let cpu_s = cpu_s(self.child.id()).expect("a process that was not waited for");
        let status = self.child.wait().expect("our process");
        let said = fs::read_to_string(&self.log).expect("a log");
        assert!(status.success(), "{}: {status}\n{said}", self.shown);
        (Cost { wall_s, cpu_s, peak_bytes: self.peak_bytes }, said)
    }
}

/// Runs a command to its end, which must be a success. Returns its cost and its output.
pub(crate) fn run(command: &mut Command, dir: &Path) -> (Cost, String) {
    Started::new(command, dir).finish()
}

impl Drop for Started {
    fn drop(&mut self) {
        // It has ended already, unless this process panics.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns whether a child of this process has ended. It was not waited for.
fn has_ended(pid: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("our process");
    // The name of the program, in parentheses, may contain parentheses.
    text.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('Z'))
}
