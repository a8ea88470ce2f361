//! Sessions over months, and clocks that jump, in the built binary under Debian's libfaketime
//! (docs/specification.md D1). The steps of the walk are those of the store's own walk
//! (`src/tsdb/tests/adversary.rs`).
//!
//! libfaketime is unpacked below `target/`; if it is unavailable, the test fails and reports it.
//! Only the wall clock moves: timeouts use the monotonic clock.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "clock_walk/binary.rs"]
mod clock_walk;
#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::path::PathBuf;

use harness::{Server, Start, bootstrap};
use serde_json::json;

/// The library that changes the wall clock of a process.
fn faketime() -> PathBuf {
    let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
    let folder = packages::debian("faketime", &["libfaketime"]).join("usr/lib").join(machine);
    let library = folder.join("faketime/libfaketimeMT.so.1");
    assert!(library.is_file(), "{} is not there", library.display());
    library
}

/// A server whose wall clock is moved by a file.
struct Lent {
    dir: tempfile::TempDir,
    library: PathBuf,
}

impl Lent {
    fn new() -> Lent {
        let lent = Lent { dir: tempfile::tempdir().expect("a folder"), library: faketime() };
        lent.stand_at("+0");
        lent
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("ahead")
    }

    /// Sets how far the clock is ahead from now on: `+29d`, `+30.5d`.
    fn stand_at(&self, ahead: &str) {
        // Written to another file and renamed, so that no reader finds half of it.
        let new = self.dir.path().join("ahead.new");
        std::fs::write(&new, format!("{ahead}\n")).expect("written");
        std::fs::rename(&new, self.file()).expect("renamed");
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn serve(&self) -> Server {
        self.serve_with(&["serve"])
    }

    fn serve_with(&self, args: &[&str]) -> Server {
        let (library, file) = (self.library.to_string_lossy(), self.file());
        let file = file.to_string_lossy();
        let clock = [
            ("LD_PRELOAD", &*library),
            ("FAKETIME_TIMESTAMP_FILE", &*file),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ];
        let env: Vec<_> = bootstrap().into_iter().chain(clock).collect();
        Server::start(&Start { args, dir: &self.store(), env: &env })
    }
}

fn me(server: &Server, cookie: &str) -> u16 {
    server.get("/api/v1/auth/me", &[("Cookie", cookie)]).status
}

#[test]
fn a_session_slides_for_months_and_ends_after_thirty_idle_days() {
    let lent = Lent::new();
    let server = lent.serve();
    let cookie = server.sign_in();
    for day in ["+29d", "+58d", "+87d"] {
        lent.stand_at(day);
        assert_eq!(me(&server, &cookie), 200, "{day}");
    }
    lent.stand_at("+118d");
    assert_eq!(me(&server, &cookie), 401, "31 idle days");
    server.kill();
    let server = lent.serve();
    assert_eq!(me(&server, &cookie), 401, "no guard brings it back");
    let fresh = server.sign_in();
    let out = server.post_json("/api/v1/auth/logout", &[("Cookie", &fresh)], &json!({}));
    assert_eq!((out.status, me(&server, &fresh)), (204, 401));
}

#[test]
fn a_crash_right_after_the_answer_of_day_29_does_not_shorten_a_session() {
    let lent = Lent::new();
    let server = lent.serve();
    let cookie = server.sign_in();
    lent.stand_at("+29.99d");
    assert_eq!(me(&server, &cookie), 200);
    server.kill();
    lent.stand_at("+59.98d");
    let server = lent.serve();
    assert_eq!(me(&server, &cookie), 200, "30 days from the last answer are not over");
    lent.stand_at("+90.5d");
    assert_eq!(me(&server, &cookie), 401);
}
