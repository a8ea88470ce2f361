//! Tests of the data folder: lock, identity, and markers with checksums.

use super::*;

const NOW: Timestamp = Timestamp::from_ms(1_700_000_000_000);

fn open(path: &Path) -> Result<DataFolder, FolderError> {
    DataFolder::open(path, NOW, &mut Entropy::seeded(7))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o777
}

#[test]
fn a_new_folder_gets_its_identity_once_and_private_modes() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let path = temp.path().join("a/b/store");
    let folder = open(&path).expect("new");
    assert_eq!((folder.last_stop(), folder.created()), (LastStop::New, NOW));
    folder.mark_initialised(NOW).expect("marked");
    let id = folder.store_id();
    for name in ["LOCK", "STORE", "INITIALISED"] {
        assert_eq!(mode(&path.join(name)), 0o600, "{name}");
    }
    for dir in ["a", "a/b", "a/b/store"] {
        assert_eq!(mode(&temp.path().join(dir)), 0o700, "{dir}");
    }
    let text = fs::read_to_string(path.join("STORE")).expect("text");
    let (body, crc) = text.rsplit_once("crc ").expect("with a checksum");
    assert_eq!(body, format!("promlet store\nlayout 1\nid {id}\ncreated 2023-11-14T22:13:20Z\n"));
    assert_eq!(crc, format!("{:08x}\n", crc32c::crc32c(body.as_bytes())));
    drop(folder);
    let again = DataFolder::open(&path, NOW.plus_ms(1), &mut Entropy::seeded(8)).expect("again");
    assert_eq!((again.store_id(), again.created()), (id, NOW));
    assert_eq!(fs::read_to_string(path.join("STORE")).expect("text"), text);
}

#[test]
fn a_second_process_gets_the_pid_and_start_time_of_the_first() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let first = open(temp.path()).expect("first");
    match open(temp.path()) {
        Err(FolderError::InUse { holder, .. }) => {
            assert_eq!(holder, format!("pid {}, started 2023-11-14T22:13:20Z", std::process::id()));
        }
        other => panic!("{other:?}"),
    }
    drop(first);
    open(temp.path()).expect("free again");
}

#[test]
fn a_copy_of_the_descriptor_does_not_hold_the_lock_of_a_dropped_folder() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let first = super::take_lock(temp.path(), NOW).expect("first");
    // A process has such a copy between `fork` and `exec`.
    let _copy = first.0.try_clone().expect("a copy");
    drop(first);
    open(temp.path()).expect("free again");
}

#[test]
fn the_last_stop_is_clean_only_directly_after_a_clean_stop() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    open(temp.path()).expect("new").close_clean(NOW).expect("clean");
    let folder = open(temp.path()).expect("second");
    assert_eq!(folder.last_stop(), LastStop::Clean);
    assert!(!temp.path().join("CLEAN").exists());
    drop(folder);
    let folder = open(temp.path()).expect("third");
    assert_eq!(folder.last_stop(), LastStop::Unclean);
    folder.close_clean(NOW).expect("clean");
    let text = fs::read_to_string(temp.path().join("CLEAN")).expect("text").replace("2023", "2024");
    fs::write(temp.path().join("CLEAN"), text).expect("written");
    assert_eq!(open(temp.path()).expect("fourth").last_stop(), LastStop::Unclean);
}

#[test]
fn unclean_stops_are_counted_once_each_and_a_damaged_count_restarts() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let counted = |folder: &DataFolder| {
        let count = folder.unclean_stops().expect("read");
        folder.begin_serving(NOW).expect("counted");
        assert_eq!(folder.unclean_stops().expect("read again"), count, "once");
        count
    };
    let folder = open(temp.path()).expect("new");
    assert_eq!(counted(&folder), 0);
    drop(folder);
    // A process that does not serve is not counted.
    drop(open(temp.path()).expect("second"));
    let folder = open(temp.path()).expect("third");
    assert_eq!(counted(&folder), 1);
    let text = fs::read_to_string(temp.path().join("UNCLEAN")).expect("text");
    let body = format!("promlet unclean stops\nid {}\nat 2023-11-14T22:13:20Z\ncount 1\n", folder.store_id());
    assert_eq!(text, format!("{body}crc {:08x}\n", crc32c::crc32c(body.as_bytes())));
    folder.close_clean(NOW).expect("clean");
    let folder = open(temp.path()).expect("fourth");
    assert_eq!(counted(&folder), 1, "the last stop was clean");
    drop(folder);
    let folder = open(temp.path()).expect("fifth");
    assert_eq!(counted(&folder), 2);
    drop(folder);
    fs::write(temp.path().join("UNCLEAN"), text.replace("count 1", "count 7")).expect("written");
    assert_eq!(counted(&open(temp.path()).expect("sixth")), 1);
}

/// Only unclean stops of a server are counted; a folder may lack `CLEAN` for other reasons.
#[test]
fn restored_folders_and_refused_starts_are_not_counted() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let counted = |folder: &DataFolder| {
        let count = folder.unclean_stops().expect("read");
        folder.begin_serving(NOW).expect("counted");
        count
    };
    // The folder after a restore: a store without other markers.
    drop(open(temp.path()).expect("new"));
    let folder = open(temp.path()).expect("second");
    assert_eq!((folder.last_stop(), counted(&folder)), (LastStop::Unclean, 0));
    assert!(temp.path().join("RUNNING").exists());
    folder.close_clean(NOW).expect("clean");
    assert!(!temp.path().join("RUNNING").exists());
    // A refused start has removed CLEAN and served no request.
    drop(open(temp.path()).expect("refused"));
    let folder = open(temp.path()).expect("fourth");
    assert_eq!((folder.last_stop(), counted(&folder)), (LastStop::Unclean, 0));
    drop(folder);
    // A tool that opens the folder of a killed server and closes it cleanly does not change the
    // count.
    open(temp.path()).expect("a tool").close_clean(NOW).expect("clean");
    let folder = open(temp.path()).expect("sixth");
    assert_eq!((folder.last_stop(), counted(&folder)), (LastStop::Clean, 1));
    drop(folder);
    fs::write(temp.path().join("RUNNING"), "damaged").expect("written");
    assert_eq!(counted(&open(temp.path()).expect("seventh")), 2);
}

#[test]
fn a_foreign_folder_and_a_newer_layout_stay_unchanged() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let names = || files::names(temp.path()).expect("listed");
    fs::write(temp.path().join("photo.jpg"), "x").expect("written");
    assert!(matches!(open(temp.path()), Err(FolderError::Foreign { found, .. }) if found == "photo.jpg"));
    assert_eq!(names(), ["photo.jpg"]);
    fs::remove_file(temp.path().join("photo.jpg")).expect("removed");
    let newer = "promlet store\nlayout 2\nsomething new\n";
    fs::write(temp.path().join("STORE"), newer).expect("written");
    assert!(matches!(open(temp.path()), Err(FolderError::Newer { found: 2, .. })));
    assert_eq!(
        (names(), fs::read_to_string(temp.path().join("STORE")).expect("text")),
        (vec!["STORE".to_owned()], newer.to_owned())
    );
    fs::remove_file(temp.path().join("STORE")).expect("removed");
    // The files that a crash during the very first start leaves do not make a folder foreign.
    for name in ["LOCK", "STORE.new"] {
        fs::write(temp.path().join(name), "").expect("written");
    }
    fs::create_dir(temp.path().join("lost+found")).expect("made");
    assert_eq!(open(temp.path()).expect("opened").last_stop(), LastStop::New);
}

#[test]
fn any_changed_byte_of_the_identity_is_detected() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    drop(open(temp.path()).expect("new"));
    let path = temp.path().join("STORE");
    let whole = fs::read(&path).expect("read");
    for at in 0..whole.len() {
        let mut bad = whole.clone();
        bad[at] ^= 1;
        fs::write(&path, &bad).expect("written");
        let refused = open(temp.path());
        assert!(
            matches!(refused, Err(FolderError::Damaged { .. } | FolderError::Newer { .. })),
            "byte {at}: {refused:?}"
        );
        fs::write(&path, &whole[..at]).expect("written");
        assert!(matches!(open(temp.path()), Err(FolderError::Damaged { .. })), "cut at {at}");
    }
    fs::write(&path, vec![b'x'; 10_000]).expect("written");
    assert!(matches!(open(temp.path()), Err(FolderError::Damaged { .. })));
}

#[test]
fn the_master_key_is_created_once_private_and_never_replaced() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = open(&temp.path().join("store")).expect("new");
    let mut rng = Entropy::seeded(9);
    let key = folder.master_key(&MasterKeySource::Folder, &mut rng).expect("made");
    assert_eq!(folder.master_key(&MasterKeySource::Folder, &mut rng).expect("read"), key);
    assert_eq!(format!("{key:?}"), "MasterKey(***)");
    let path = folder.path().join("master.key");
    assert_eq!((mode(&path), fs::metadata(&path).expect("there").len()), (0o600, 65));
    let hex = fs::read_to_string(&path).expect("text");
    let by_value = folder.master_key(&MasterKeySource::Value(hex.to_uppercase()), &mut rng);
    assert_eq!(by_value.expect("given"), key);
    let base64 = MasterKeySource::Value(data_encoding::BASE64.encode(&key.0));
    assert_eq!(folder.master_key(&base64, &mut rng).expect("as the variable has it"), key);
    let elsewhere = MasterKeySource::File(path.clone());
    assert_eq!(folder.master_key(&elsewhere, &mut rng).expect("read"), key);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("opened");
    assert!(matches!(
        folder.master_key(&elsewhere, &mut rng),
        Err(FolderError::MasterKeyOpen { mode: 0o644, .. })
    ));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("closed");
    fs::write(&path, "short").expect("written");
    let shape = |result| matches!(result, Err(FolderError::MasterKeyShape { .. }));
    assert!(shape(folder.master_key(&MasterKeySource::Folder, &mut rng)));
    assert!(shape(folder.master_key(&MasterKeySource::Value("ab".repeat(31)), &mut rng)));
    fs::remove_file(&path).expect("removed");
    let missing = |result| matches!(result, Err(FolderError::MasterKeyMissing { .. }));
    assert!(missing(folder.master_key(&elsewhere, &mut rng)), "a named file is never made");
    folder.mark_initialised(NOW).expect("marked");
    assert!(missing(folder.master_key(&MasterKeySource::Folder, &mut rng)), "this store has users");
    assert!(!path.exists());
}

#[test]
fn quarantine_keeps_every_file_moved_there() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let folder = open(&temp.path().join("store")).expect("new");
    let mut kept = Vec::new();
    for n in 0..3 {
        let bad = folder.path().join("bad");
        fs::write(&bad, n.to_string()).expect("written");
        kept.push(folder.quarantine(&bad, NOW).expect("moved"));
        assert!(!bad.exists());
    }
    let texts: Vec<_> = kept.iter().map(|path| fs::read_to_string(path).expect("there")).collect();
    assert_eq!(texts, ["0", "1", "2"]);
    assert!(matches!(folder.quarantine(Path::new("/nowhere"), NOW), Err(FileError { action: "rename", .. })));
}

#[test]
fn an_agent_and_a_server_refuse_the_folder_of_each_other_and_leave_it_unchanged() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    let (of_agent, of_server) = (temp.path().join("agent"), temp.path().join("server"));
    let open_agent = |path: &Path| DataFolder::open_agent(path, NOW, &mut Entropy::seeded(7));
    open_agent(&of_agent).expect("new").close_clean(NOW).expect("closed");
    assert!(matches!(open(&of_agent), Err(FolderError::OfAgent { .. })));
    assert!(of_agent.join("CLEAN").exists(), "a refusal leaves the marker of the clean stop");
    assert_eq!(open_agent(&of_agent).expect("its own").last_stop(), LastStop::Clean);

    open(&of_server).expect("new").close_clean(NOW).expect("closed");
    fs::create_dir(of_server.join("wal")).expect("made");
    assert!(matches!(open_agent(&of_server), Err(FolderError::OfServer { .. })));
    assert!(of_server.join("CLEAN").exists() && !of_server.join("AGENT").exists());
    assert_eq!(open(&of_server).expect("its own").last_stop(), LastStop::Clean);
}

#[test]
fn an_agent_whose_first_start_was_interrupted_takes_its_folder_again() {
    let temp = crate::kv::scratch::temporary_folder().expect("temp");
    // The process ended between the identity and the marker.
    drop(open(temp.path()).expect("new"));
    drop(DataFolder::open_agent(temp.path(), NOW, &mut Entropy::seeded(8)).expect("taken"));
    assert!(matches!(open(temp.path()), Err(FolderError::OfAgent { .. })));
    fs::write(temp.path().join("AGENT"), b"damaged").expect("written");
    assert!(matches!(open(temp.path()), Err(FolderError::OfAgent { .. })), "the file's existence decides");
}
