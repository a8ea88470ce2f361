//! The remains of a deleted organisation on disk, byte for byte (docs/storage.md, "What a deletion
//! leaves").

use std::path::{Path, PathBuf};
use std::time::Duration;

use promlet::clock::Clock;
use promlet::model::{Labels, Sample};
use serde_json::json;

use crate::harness::{ORG, Server, eventually, request};
use crate::upkeep::{files_below, promlet, seal, succeeded};

const WAIT_MAX: Duration = Duration::from_secs(60);
/// A label value and metric name.
const SAMPLES: &str = "quokka";
/// The name of a key, the name of the organisation, and an invited address.
const ACCOUNTS: [&str; 3] = ["wombat-key", "platypus inc", "numbat@example.com"];

/// Returns the files that contain a text, relative to the folder.
fn holding(dir: &Path, text: &str) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        let content = std::fs::read(path).unwrap_or_default();
        content.windows(text.len()).any(|some| some == text.as_bytes())
    };
    // `reserve` holds 16 MiB of zeros.
    let files = files_below(dir).into_iter().filter(|path| !path.ends_with("reserve"));
    files.filter(holds).map(|path| path.strip_prefix(dir).expect("inside").to_owned()).collect()
}

#[test]
fn a_deleted_organisation_leaves_no_sample_on_disk_and_of_its_accounts_only_what_is_documented() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::serve(dir.path());
    let cookie = server.sign_in();
    let path = |rest: &str| format!("/api/v1/orgs/{ORG}{rest}");
    let changed = |method: &str, rest: &str, body: serde_json::Value| {
        let headers = [("Cookie", cookie.as_str()), ("Content-Type", "application/json")];
        let url = format!("{}{}", server.url, path(rest));
        let answer = request(method, &url, &headers, Some(body.to_string().as_bytes()));
        assert!((200..300).contains(&answer.status), "{method} {rest}: {}", answer.body);
        answer
    };
    let [key, name, address] = ACCOUNTS;
    changed("PATCH", "", json!({ "name": name }));
    changed("POST", "/invites", json!({ "email": address, "role": "viewer" }));
    let made = changed("POST", "/api-keys", json!({ "name": key, "scopes": ["ingest", "embed"] })).json();
    let secret = made["secret"].as_str().expect("a secret");
    let base = Clock::System.now().plus_ms(-60_000);
    // Some samples are sealed, some are in a checkpoint or in the log only.
    for step in 0..60 {
        let labels = Labels::from_pairs([
            ("__name__".to_owned(), SAMPLES.to_owned()),
            ("of".to_owned(), format!("{SAMPLES} {step}")),
        ]);
        let written = server.write(secret, &[(labels, vec![Sample { at: base.plus_ms(step), value: 1.5 }])]);
        assert!((200..300).contains(&written.status), "{}", written.body);
        if step == 30 {
            seal(dir.path());
        }
    }
    let before = holding(dir.path(), SAMPLES);
    assert!(
        ["segments", "series", "wal"].iter().all(|part| before.iter().any(|path| path.starts_with(part))),
        "{before:?}"
    );
    assert!(ACCOUNTS.iter().all(|text| !holding(dir.path(), text).is_empty()));

    changed("DELETE", "", json!({ "confirm": ORG }));
    // Removal runs in the background, and the log of all organisations goes with the next seal.
    let failure = || format!("{:?}: {}", holding(dir.path(), SAMPLES), server.log());
    eventually(WAIT_MAX, failure, || {
        seal(dir.path());
        holding(dir.path(), SAMPLES).is_empty().then_some(())
    });
    assert!(server.terminate().success());
    for text in ACCOUNTS {
        let left = holding(dir.path(), text);
        let allowed = |path: &PathBuf| path == Path::new("control/db") || path.starts_with("journal");
        assert!(left.iter().all(allowed), "{text}: {left:?}");
    }
    let new = crate::harness::scratch::temporary_folder().expect("a folder");
    let new = new.path().join("new");
    succeeded(&promlet(&["repair", "--to"], &[&new, dir.path()]));
    let server = Server::serve(&new);
    server.sign_in();
    assert!(server.terminate().success());
    for text in ACCOUNTS.iter().chain([&SAMPLES]) {
        assert_eq!(
            holding(&new, text),
            Vec::<PathBuf>::new(),
            "{text}: a repaired folder does not contain it"
        );
    }
}
