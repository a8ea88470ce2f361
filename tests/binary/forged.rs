//! Records forged in the label values of a neighbour. After damage to the record around them, no
//! start, no query and no `--accept-loss` applies them (threat 52).

use std::path::Path;

use promlet::clock::Clock;
use promlet::model::{Labels, Sample, Timestamp};
use serde_json::json;

use crate::harness::{EMAIL, ORG, PASSWORD, Server, Start, bootstrap, remote_write, request};
use crate::upkeep::{check, copy_tree, expected, promlet, samples, succeeded, write};

/// The sequence numbers that the next record may have.
const SEQUENCE_NUMBERS: std::ops::Range<u64> = 1..60;

/// Returns a log record of version 1, whose checksum has no key, that drops an organisation:
/// length, CRC-32C, sequence number, organisation, kind 6, version 1, lag, body. Returns `None` if
/// it is not UTF-8, which a label value must be.
fn dropped(seq: u64, org: u32, body_bytes: usize) -> Option<String> {
    let body = vec![0; body_bytes];
    let mut record = u32::try_from(body.len()).expect("small").to_le_bytes().to_vec();
    let mut head = seq.to_le_bytes().to_vec();
    head.extend(org.to_le_bytes());
    head.extend([6, 1, 1, 0]);
    let checksum = crc32c::crc32c(&[&record[..], &head[..], &body[..]].concat());
    record.extend(checksum.to_le_bytes());
    record.extend([&head[..], &body[..]].concat());
    record.resize(record.len().next_multiple_of(8), 0);
    String::from_utf8(record).ok()
}

fn forgeries(org: u32) -> String {
    SEQUENCE_NUMBERS.filter_map(|seq| (1..200).find_map(|bytes| dropped(seq, org, bytes))).collect()
}

/// Returns the first log file, its bytes, and the aligned offset of the forgeries in it.
fn planted(dir: &Path, forgeries: &str) -> (std::path::PathBuf, Vec<u8>, usize) {
    let path = dir.join("wal/0000000001.wal");
    let bytes = std::fs::read(&path).expect("read");
    let mut found = bytes.windows(forgeries.len()).enumerate().filter(|(at, _)| at % 8 == 0);
    let at = found.find(|(_, window)| *window == forgeries.as_bytes()).expect("one padding aligns them").0;
    (path, bytes, at)
}

#[test]
fn a_record_forged_in_a_label_value_takes_nothing_from_another_organisation() {
    let live = crate::harness::scratch::temporary_folder().expect("made");
    let server = Server::serve(live.path());
    let cookie = server.sign_in();
    let (_, secret) = server.api_key(&cookie);
    let now = Clock::System.now();
    let base = Timestamp::from_s(now.as_s() - 3_000);
    (0..5).for_each(|step| assert!(write(&server, &secret, base, step)));

    let beta = json!({ "slug": "beta", "name": "Beta" });
    assert_eq!(server.post_json("/api/v1/orgs", &[("Cookie", &cookie)], &beta).status, 201);
    let key = json!({ "name": "forger", "scopes": ["ingest"] });
    let key = server.post_json("/api/v1/orgs/beta/api-keys", &[("Cookie", &cookie)], &key).json();
    let bearer = format!("Bearer {}", key["secret"].as_str().expect("a secret"));
    let forgeries = forgeries(1);
    assert!(forgeries.len() > 1_000, "most sequence numbers have a text");
    for padding in 0..8 {
        let value = format!("{}{forgeries}", "p".repeat(padding));
        let labels = Labels::from_pairs([("__name__", "forged"), ("note", &*value)]);
        let body = remote_write(&[(labels, vec![Sample { at: now, value: 1.0 }])]);
        let headers = [
            ("Authorization", &*bearer),
            ("Content-Type", "application/x-protobuf"),
            ("Content-Encoding", "snappy"),
        ];
        let url = format!("{}/api/v1/orgs/beta/write", server.url);
        let answer = request("POST", &url, &headers, Some(&body));
        assert!(matches!(answer.status, 200 | 204), "{}", answer.body);
    }
    assert!(write(&server, &secret, base, 5));
    let held = expected(0..6);
    assert_eq!(samples(&server, &cookie, base), held);
    server.kill();

    // Flips a bit at several distances before the forgeries, back into the header of their record.
    for distance in [8, 16, 24, 32, 40, 48] {
        let dir = crate::harness::scratch::temporary_folder().expect("made");
        copy_tree(live.path(), dir.path());
        let (path, mut bytes, at) = planted(dir.path(), &forgeries);
        bytes[at - distance] ^= 0x10;
        std::fs::write(&path, bytes).expect("written");
        let start = Start { args: &["serve"], dir: dir.path(), env: &bootstrap() };
        let server = Server::start_damaged(&start);
        assert_eq!(server.get("/readyz", &[]).status, 503, "{distance} bytes before");
        assert_eq!(samples(&server, &server.sign_in(), base), held, "{distance} bytes before");
        server.kill();
        let args = ["serve", "--accept-loss"];
        let server = Server::start(&Start { args: &args, dir: dir.path(), env: &bootstrap() });
        assert_eq!(samples(&server, &server.sign_in(), base), held, "{distance} bytes before, accepted");
        assert!(write(&server, &secret, base, 6), "{}", server.log());
        server.kill();
        let server = Server::serve(dir.path());
        assert_eq!(samples(&server, &server.sign_in(), base), expected(0..7), "{distance} bytes before");
    }
}

/// Returns a journal record of version 1, as text, that removes the row by which an account is
/// found by its address. It removes two rows, the second of which makes it UTF-8. Returns `None` if
/// there is none.
fn removal(seq: u64, email: &str) -> Option<String> {
    let address = [&[2][..], email.as_bytes(), &[0, 0]].concat();
    (0..10_000_u32).find_map(|number| {
        let mut body = vec![2, 0];
        for key in [&address[..], format!("~{number}").as_bytes()] {
            body.push(2);
            body.extend(u16::try_from(key.len()).expect("short").to_le_bytes());
            body.extend(key);
            body.extend([0, 0]);
        }
        let mut record = u32::try_from(body.len()).expect("small").to_le_bytes().to_vec();
        let mut head = seq.to_le_bytes().to_vec();
        // Organisation 0, type 16, version 1, and the flag that the change before it was durable.
        head.extend([0, 0, 0, 0, 16, 1, 1, 0]);
        let checksum = crc32c::crc32c(&[&record[..], &head[..], &body[..]].concat());
        record.extend(checksum.to_le_bytes());
        record.extend([&head[..], &body[..]].concat());
        record.resize(record.len().next_multiple_of(8), 0);
        String::from_utf8(record).ok()
    })
}

/// The offset of the records in a journal file of version 2.
const JOURNAL_RECORDS: usize = 4_128;

/// Returns the journal file that contains `text` at an aligned offset, its bytes, and the offset of
/// the record around the text.
fn around(dir: &Path, text: &str) -> (std::path::PathBuf, Vec<u8>, usize) {
    for entry in std::fs::read_dir(dir.join("journal")).expect("listed") {
        let path = entry.expect("an entry").path();
        let bytes = std::fs::read(&path).expect("read");
        let mut found = bytes.windows(text.len()).enumerate().filter(|(at, _)| at % 8 == 0);
        let Some((at, _)) = found.find(|(_, window)| *window == text.as_bytes()) else { continue };
        let mut start = JOURNAL_RECORDS;
        loop {
            let length = u32::from_le_bytes(bytes[start..start + 4].try_into().expect("four"));
            let next = start + (32 + length as usize).next_multiple_of(8);
            if (start..next).contains(&at) {
                return (path, bytes, start);
            }
            start = next;
        }
    }
    panic!("one padding aligns the forgeries")
}

#[test]
fn an_account_change_forged_in_the_policy_of_an_api_key_is_never_applied() {
    let live = crate::harness::scratch::temporary_folder().expect("made");
    let server = Server::serve(live.path());
    let cookie = server.sign_in();
    server.kill();
    let (report, _) = check(false, live.path());
    let rows = report["seen"].to_string();
    let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).find_map(|n| n.parse::<u64>().ok());
    let change = rows.split("after change ").nth(1).and_then(number).expect("the last change");
    let server = Server::serve(live.path());
    // Four globs of at most 1,024 bytes. The length prefix of three bytes and five more bytes keep
    // the alignment of the previous glob.
    let globs = (0..4).map(|part| {
        let numbers = change + 1 + part * 14..change + 15 + part * 14;
        numbers.filter_map(|seq| removal(seq, EMAIL)).collect::<String>()
    });
    let globs: Vec<String> = globs.collect();
    assert!(globs.iter().all(|glob| (500..1_012).contains(&glob.len())), "most numbers have a text");
    for padding in 0..8 {
        let padded = |(part, glob): (usize, &String)| match part {
            0 => format!("{}{glob}", "p".repeat(padding)),
            _ => format!("{}{glob}", "p".repeat(5)),
        };
        let metrics: Vec<String> = globs.iter().enumerate().map(padded).collect();
        let key = json!({
            "name": "forger", "scopes": ["embed"], "embed": { "policy": { "metrics": metrics } }
        });
        let made = server.post_json(&format!("/api/v1/orgs/{ORG}/api-keys"), &[("Cookie", &cookie)], &key);
        assert_eq!(made.status, 201, "{}", made.body);
    }
    // Further changes behind them.
    server.api_key(&cookie);
    server.kill();

    let logs_in = |dir: &Path, what: &str| {
        let server = Server::serve(dir);
        let body = json!({ "email": EMAIL, "password": PASSWORD });
        let answer = server.post_json("/api/v1/auth/login", &[], &body);
        assert_eq!(answer.status, 200, "{what}: {}", answer.body);
        server.kill();
    };
    for (at, without_database) in [0, 1, 4, 9, 20, 26, 40].iter().flat_map(|at| [(*at, false), (*at, true)]) {
        let what = format!("byte {at} of the record, without the database: {without_database}");
        let dir = crate::harness::scratch::temporary_folder().expect("made");
        copy_tree(live.path(), dir.path());
        let (path, mut bytes, start) = around(dir.path(), &globs[0]);
        bytes[start + at] ^= 0x10;
        std::fs::write(&path, bytes).expect("written");
        if without_database {
            std::fs::remove_dir_all(dir.path().join("control")).expect("removed");
        }
        let (report, code) = check(true, dir.path());
        assert_eq!(code, if without_database { 2 } else { 1 }, "{what}: {report:#}");
        if without_database {
            // A change is lost, so a start refuses the folder. The repaired folder has the account.
            let out = crate::harness::scratch::temporary_folder().expect("made");
            let saved = out.path().join("saved");
            succeeded(&promlet(&["repair", "--to"], &[&saved, dir.path()]));
            logs_in(&saved, &what);
        } else {
            logs_in(dir.path(), &what);
        }
    }
}
