//! A model of a disk that loses power: records the file operations below a folder, and enumerates
//! the states that a power cut could have left.
//!
//! The model is weaker than any file system in use. Bytes written to a file are durable after that
//! file's sync, a name after its directory's. Until then any subset of the changes may have reached
//! the disk, in any order, and a write also in part, sector by sector (512 B). This follows from
//! the guarantees of POSIX and from fault injection on ext4 and xfs (docs/storage.md).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::entropy::Entropy;
use crate::sync::IgnorePoison as _;

/// Number of bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// One recorded operation.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A new directory.
    CreateDir(PathBuf),
    /// A new, empty file under this name.
    Create(PathBuf),
    /// Bytes written to a file.
    Write {
        path: PathBuf,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// A changed length of a file.
    SetLen {
        path: PathBuf,
        bytes: u64,
    },
    /// A file's bytes and length are durable.
    Sync(PathBuf),
    /// The names in a directory are durable.
    SyncDir(PathBuf),
    Rename(PathBuf, PathBuf),
    /// A hard link; the second path is the new name.
    Link(PathBuf, PathBuf),
    /// The removal of a file, or of a directory with its contents.
    Remove(PathBuf),
    /// A promise made by the tested code; it holds from here on.
    Answered(usize),
}

type OpLog = Arc<Mutex<Vec<Op>>>;

static RUNNING: AtomicUsize = AtomicUsize::new(0);
static RECORDINGS: Mutex<Vec<(PathBuf, OpLog)>> = Mutex::new(Vec::new());

/// Records an operation for every recording of its path.
pub(super) fn record(op: impl FnOnce() -> Op) {
    if RUNNING.load(Ordering::SeqCst) == 0 {
        return;
    }
    let op = op();
    let path = match &op {
        Op::CreateDir(path)
        | Op::Create(path)
        | Op::Write { path, .. }
        | Op::SetLen { path, .. }
        | Op::Sync(path)
        | Op::SyncDir(path)
        | Op::Rename(path, _)
        | Op::Link(_, path)
        | Op::Remove(path) => path,
        Op::Answered(_) => return,
    };
    for (root, ops) in RECORDINGS.lock().ignore_poison().iter() {
        if path.starts_with(root) {
            ops.lock().ignore_poison().push(op.clone());
        }
    }
}

/// A guard that makes the n-th operation below a folder fail: once, several times in a row, or from
/// then on, until it is dropped.
pub(crate) struct Failing {
    fault: Arc<Fault>,
}

#[derive(Debug)]
struct Fault {
    root: PathBuf,
    left: AtomicIsize,
    /// Number of operations that fail from the n-th on.
    times: isize,
    /// A failing write leaves all its bytes in the file.
    leaves_bytes: bool,
    os_error: i32,
}

static FAULTS: Mutex<Vec<Arc<Fault>>> = Mutex::new(Vec::new());

impl Failing {
    /// Makes the operation after the next `left` ones fail with `os_error` (5 EIO, 28 ENOSPC), and
    /// with `lasting` all later ones as well.
    pub(crate) fn after(root: &Path, left: usize, os_error: i32, lasting: bool) -> Failing {
        let left = AtomicIsize::new(isize::try_from(left).expect("small"));
        let times = if lasting { isize::MAX } else { 1 };
        Failing::with(Fault { root: root.to_owned(), left, times, leaves_bytes: false, os_error })
    }

    /// Makes the next `times` operations fail with `os_error`; a failing write leaves all its bytes
    /// in the file.
    pub(crate) fn leaving_bytes(root: &Path, times: usize, os_error: i32) -> Failing {
        let times = isize::try_from(times).expect("small");
        let left = AtomicIsize::new(0);
        Failing::with(Fault { root: root.to_owned(), left, times, leaves_bytes: true, os_error })
    }

    fn with(fault: Fault) -> Failing {
        let fault = Arc::new(fault);
        FAULTS.lock().expect("unpoisoned").push(Arc::clone(&fault));
        RUNNING.fetch_add(1, Ordering::SeqCst);
        Failing { fault }
    }

    /// Returns whether the fault has occurred.
    pub(crate) fn was_met(&self) -> bool {
        self.fault.left.load(Ordering::SeqCst) < 0
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
        let mut faults = FAULTS.lock().ignore_poison();
        faults.retain(|fault| !Arc::ptr_eq(fault, &self.fault));
    }
}

/// Returns the injected error of an operation on this path, if any.
pub(super) fn fault(path: &Path) -> std::io::Result<()> {
    fault_of_write(path, || Ok(()))
}

/// Returns the injected error of a write to this path, if any. Runs `write` first if the fault
/// leaves bytes in the file.
pub(super) fn fault_of_write(
    path: &Path,
    write: impl FnOnce() -> std::io::Result<()>,
) -> std::io::Result<()> {
    if RUNNING.load(Ordering::SeqCst) == 0 {
        return Ok(());
    }
    for fault in FAULTS.lock().ignore_poison().iter() {
        if path.starts_with(&fault.root) {
            let left = fault.left.fetch_sub(1, Ordering::SeqCst);
            if left <= 0 && -left < fault.times {
                if fault.leaves_bytes {
                    write()?;
                }
                return Err(std::io::Error::from_raw_os_error(fault.os_error));
            }
        }
    }
    Ok(())
}

/// Records the operations below a folder until it is finished.
pub(crate) struct Recording {
    root: PathBuf,
    ops: OpLog,
    start: Disk,
}

impl Recording {
    /// Starts recording. The existing files count as durable.
    pub(crate) fn start(root: &Path) -> Recording {
        let (ops, start) = (OpLog::default(), Disk::read(root));
        RECORDINGS.lock().expect("unpoisoned").push((root.to_owned(), Arc::clone(&ops)));
        RUNNING.fetch_add(1, Ordering::SeqCst);
        Recording { root: root.to_owned(), ops, start }
    }

    /// Records a promise.
    pub(crate) fn answered(&self, number: usize) {
        self.ops.lock().expect("unpoisoned").push(Op::Answered(number));
    }

    /// Ends the recording.
    pub(crate) fn finish(self) -> Trace {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
        RECORDINGS.lock().expect("unpoisoned").retain(|(_, ops)| !Arc::ptr_eq(ops, &self.ops));
        let ops = std::mem::take(&mut *self.ops.lock().expect("unpoisoned"));
        Trace { root: self.root, start: self.start, ops }
    }
}

/// The recorded operations.
pub(crate) struct Trace {
    root: PathBuf,
    start: Disk,
    pub(crate) ops: Vec<Op>,
}

/// A state left by a cut, and the promises made before it.
pub(crate) struct Cut {
    pub(crate) answered: BTreeSet<usize>,
    /// Number of operations before the cut.
    pub(crate) at: usize,
    files: Vec<(PathBuf, Option<Vec<u8>>)>,
}

impl Cut {
    /// Writes the files into an empty folder.
    pub(crate) fn put(&self, to: &Path) {
        for (path, content) in &self.files {
            let path = to.join(path);
            match content {
                None => fs::create_dir_all(&path).expect("made"),
                Some(content) => fs::write(&path, content).expect("written"),
            }
        }
    }
}

impl Trace {
    /// Returns the indices of the syncs, each with the name of the file or directory relative to
    /// the folder.
    pub(crate) fn syncs(&self) -> Vec<(usize, String)> {
        let sync = |(number, op): (usize, &Op)| match op {
            Op::Sync(path) | Op::SyncDir(path) => {
                let below = path.strip_prefix(&self.root).unwrap_or(path);
                Some((number, below.display().to_string()))
            }
            _ => None,
        };
        self.ops.iter().enumerate().filter_map(sync).collect()
    }

    /// Passes states that a cut can leave to `judge`, at most `each` of them after each operation:
    /// all states if there are no more, otherwise nothing unsynced, everything unsynced, and random
    /// ones. `without` lists the indices of syncs to leave out.
    ///
    /// Stops when `judge` returns something, and returns that.
    pub(crate) fn cuts<T>(
        &self,
        each: usize,
        without: &[usize],
        mut judge: impl FnMut(&Cut) -> Option<T>,
    ) -> Option<T> {
        let mut rng = Entropy::seeded(1);
        let mut disk = self.start.clone();
        let mut answered = BTreeSet::new();
        let mut before = None;
        for (number, op) in self.ops.iter().enumerate() {
            if !without.contains(&number) {
                disk.apply(&self.root, op);
            }
            if let Op::Answered(promise) = op {
                answered.insert(*promise);
            }
            // If only promises follow, the cut after them is the stricter one and suffices.
            if matches!(self.ops.get(number + 1), Some(Op::Answered(_))) {
                continue;
            }
            for chosen in disk.choices(each, &mut rng) {
                let files = disk.files(&chosen);
                let state = (answered.clone(), files);
                if before.as_ref() == Some(&state) {
                    continue;
                }
                let cut = Cut { answered: state.0.clone(), at: number + 1, files: state.1.clone() };
                before = Some(state);
                if let Some(verdict) = judge(&cut) {
                    return Some(verdict);
                }
            }
        }
        None
    }
}

/// Files and directories, with durable and pending changes.
#[derive(Clone, Debug, Default)]
struct Disk {
    /// The first one is the root.
    nodes: Vec<DiskNode>,
}

#[derive(Clone, Debug)]
enum DiskNode {
    File { durable: Vec<u8>, pending: Vec<FileChange> },
    Dir { durable: BTreeMap<String, usize>, pending: Vec<NameChange> },
}

#[derive(Clone, Debug)]
enum FileChange {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Clone, Debug)]
enum NameChange {
    Link(String, usize),
    Unlink(String),
    /// A rename within one directory, which is atomic.
    Rename(String, String),
}

/// The part of a pending change that has reached the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReachedDisk {
    No,
    Whole,
    /// The sectors of a write selected by the bits of this number.
    Some(u64),
}

fn new_dir() -> DiskNode {
    DiskNode::Dir { durable: BTreeMap::new(), pending: Vec::new() }
}

fn change(content: &mut Vec<u8>, change: &FileChange, reached: ReachedDisk) {
    match (change, reached) {
        (_, ReachedDisk::No) => {}
        (FileChange::SetLen(bytes), _) => set_len(content, *bytes),
        (FileChange::Write { offset, bytes }, ReachedDisk::Whole) => put(content, *offset, bytes),
        (FileChange::Write { offset, bytes }, ReachedDisk::Some(bits)) => {
            let mut at = *offset;
            let end = offset + bytes.len();
            while at < end {
                let next = ((at / SECTOR + 1) * SECTOR).min(end);
                if bits >> (at / SECTOR % 64) & 1 == 1 {
                    put(content, at, &bytes[at - offset..next - offset]);
                }
                at = next;
            }
        }
    }
}

/// Truncates or extends the content of a file. `resize` would append zeros one by one in builds
/// without optimisation.
fn set_len(content: &mut Vec<u8>, bytes: usize) {
    content.truncate(bytes);
    content.extend_from_slice(&vec![0; bytes - content.len()]);
}

fn put(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        set_len(content, end);
    }
    content[offset..end].copy_from_slice(bytes);
}

fn name(names: &mut BTreeMap<String, usize>, naming: &NameChange) {
    match naming {
        NameChange::Link(name, node) => drop(names.insert(name.clone(), *node)),
        NameChange::Unlink(name) => drop(names.remove(name)),
        NameChange::Rename(from, to) => {
            if let Some(node) = names.remove(from) {
                names.insert(to.clone(), node);
            }
        }
    }
}

impl Disk {
    fn read(root: &Path) -> Disk {
        let mut disk = Disk { nodes: vec![new_dir()] };
        disk.read_dir(root, 0);
        disk
    }

    fn read_dir(&mut self, path: &Path, node: usize) {
        for entry in fs::read_dir(path).expect("listed") {
            let entry = entry.expect("entry").path();
            let child = self.nodes.len();
            if entry.is_dir() {
                self.nodes.push(new_dir());
                self.read_dir(&entry, child);
            } else if entry.is_file() {
                let durable = fs::read(&entry).expect("read");
                self.nodes.push(DiskNode::File { durable, pending: Vec::new() });
            } else {
                continue;
            }
            if let DiskNode::Dir { durable, .. } = &mut self.nodes[node] {
                durable.insert(entry.file_name().expect("named").to_string_lossy().into_owned(), child);
            }
        }
    }

    /// Returns the names in a directory as processes see them.
    fn seen(&self, dir: usize) -> BTreeMap<String, usize> {
        let DiskNode::Dir { durable, pending } = &self.nodes[dir] else { return BTreeMap::new() };
        let mut names = durable.clone();
        pending.iter().for_each(|naming| name(&mut names, naming));
        names
    }

    /// Returns the node of a path; `None` if it is unknown, such as below a directory that another
    /// program fills.
    fn node(&self, root: &Path, path: &Path) -> Option<usize> {
        let mut node = 0;
        for part in path.strip_prefix(root).ok()?.components() {
            node = *self.seen(node).get(&*part.as_os_str().to_string_lossy())?;
        }
        Some(node)
    }

    fn parent(&self, root: &Path, path: &Path) -> Option<(usize, String)> {
        let parent = self.node(root, path.parent()?)?;
        Some((parent, path.file_name()?.to_string_lossy().into_owned()))
    }

    fn link(&mut self, root: &Path, path: &Path, node: DiskNode) {
        let Some((parent, name)) = self.parent(root, path) else { return };
        let number = self.nodes.len();
        self.nodes.push(node);
        self.names(parent, NameChange::Link(name, number));
    }

    fn names(&mut self, dir: usize, naming: NameChange) {
        if let DiskNode::Dir { pending, .. } = &mut self.nodes[dir] {
            pending.push(naming);
        }
    }

    fn changes(&mut self, root: &Path, path: &Path, change: FileChange) {
        let Some(node) = self.node(root, path) else { return };
        if let DiskNode::File { pending, .. } = &mut self.nodes[node] {
            pending.push(change);
        }
    }

    fn apply(&mut self, root: &Path, op: &Op) {
        match op {
            Op::CreateDir(path) => self.link(root, path, new_dir()),
            Op::Create(path) => match self.node(root, path) {
                Some(_) => self.changes(root, path, FileChange::SetLen(0)),
                None => self.link(root, path, DiskNode::File { durable: Vec::new(), pending: Vec::new() }),
            },
            Op::Write { path, offset, bytes } => {
                let offset = usize::try_from(*offset).expect("small");
                self.changes(root, path, FileChange::Write { offset, bytes: bytes.clone() });
            }
            Op::SetLen { path, bytes } => {
                self.changes(root, path, FileChange::SetLen(usize::try_from(*bytes).expect("small")));
            }
            Op::Sync(path) => {
                let Some(node) = self.node(root, path) else { return };
                if let DiskNode::File { durable, pending } = &mut self.nodes[node] {
                    std::mem::take(pending).iter().for_each(|c| change(durable, c, ReachedDisk::Whole));
                }
            }
            Op::SyncDir(path) => {
                let Some(node) = self.node(root, path) else { return };
                if let DiskNode::Dir { durable, pending } = &mut self.nodes[node] {
                    std::mem::take(pending).iter().for_each(|naming| name(durable, naming));
                }
            }
            Op::Rename(from, to) => {
                let (Some((a, from)), Some((b, to))) = (self.parent(root, from), self.parent(root, to))
                else {
                    return;
                };
                if a == b {
                    self.names(a, NameChange::Rename(from, to));
                } else if let Some(node) = self.seen(a).get(&from).copied() {
                    self.names(b, NameChange::Link(to, node));
                    self.names(a, NameChange::Unlink(from));
                }
            }
            Op::Link(from, to) => {
                if let (Some(node), Some((parent, name))) = (self.node(root, from), self.parent(root, to)) {
                    self.names(parent, NameChange::Link(name, node));
                }
            }
            Op::Remove(path) => {
                if let Some((parent, name)) = self.parent(root, path) {
                    self.names(parent, NameChange::Unlink(name));
                }
            }
            Op::Answered(_) => {}
        }
    }

    fn pending(&self) -> usize {
        let of = |node: &DiskNode| match node {
            DiskNode::File { pending, .. } => pending.len(),
            DiskNode::Dir { pending, .. } => pending.len(),
        };
        self.nodes.iter().map(of).sum()
    }

    /// Draws which of the pending changes reached the disk.
    fn choices(&self, each: usize, rng: &mut Entropy) -> Vec<Vec<ReachedDisk>> {
        let pending = self.pending();
        let whole = |bit: bool| if bit { ReachedDisk::Whole } else { ReachedDisk::No };
        let (none, all) = (vec![ReachedDisk::No; pending], vec![ReachedDisk::Whole; pending]);
        if pending == 0 {
            return vec![all];
        }
        let mut chosen = vec![none, all];
        let by_chance = each.saturating_sub(2);
        if pending < 16 && 1 << pending <= each {
            chosen = (0..1usize << pending)
                .map(|bits| (0..pending).map(|at| whole(bits >> at & 1 == 1)).collect())
                .collect();
        }
        for _ in 0..by_chance {
            let one = |_| {
                let bits = u64::from_le_bytes(rng.bytes());
                match bits % 4 {
                    0 => ReachedDisk::No,
                    1 => ReachedDisk::Whole,
                    _ => ReachedDisk::Some(bits.rotate_right(8)),
                }
            };
            chosen.push((0..pending).map(one).collect());
        }
        chosen
    }

    /// Returns directories (without content) and files, parents first.
    fn files(&self, chosen: &[ReachedDisk]) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut left = chosen.iter().copied();
        let mut names: BTreeMap<usize, BTreeMap<String, usize>> = BTreeMap::new();
        let mut contents: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for (number, node) in self.nodes.iter().enumerate() {
            match node {
                DiskNode::File { durable, pending } => {
                    let mut content = durable.clone();
                    for c in pending {
                        change(&mut content, c, left.next().unwrap_or(ReachedDisk::No));
                    }
                    contents.insert(number, content);
                }
                DiskNode::Dir { durable, pending } => {
                    let mut here = durable.clone();
                    for naming in pending {
                        if left.next().is_some_and(|reached| reached != ReachedDisk::No) {
                            name(&mut here, naming);
                        }
                    }
                    names.insert(number, here);
                }
            }
        }
        let mut files = Vec::new();
        let mut open = vec![(PathBuf::new(), 0)];
        while let Some((path, node)) = open.pop() {
            for (name, child) in names.get(&node).into_iter().flatten() {
                let path = path.join(name);
                match contents.get(child) {
                    Some(content) => files.push((path, Some(content.clone()))),
                    None => {
                        files.push((path.clone(), None));
                        open.push((path, *child));
                    }
                }
            }
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::ops;

    /// Writes `bytes` as `name`, with or without the syncs of file and directory.
    fn write(dir: &Path, name: &str, bytes: &[u8], synced: bool, named: bool) {
        let path = dir.join(name);
        let file = ops::create(&path).expect("made");
        ops::write_at(&file, &path, bytes, 0).expect("written");
        if synced {
            ops::sync_all(&file, &path).expect("synced");
        }
        if named {
            ops::sync_dir(dir).expect("synced");
        }
    }

    /// Returns whether some cut after the promise loses the file or a part of it.
    fn may_lose(synced: bool, named: bool) -> bool {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        let recording = Recording::start(dir.path());
        write(dir.path(), "a", &[7; 2_000], synced, named);
        recording.answered(1);
        let trace = recording.finish();
        let lost = |cut: &Cut| {
            let to = crate::kv::scratch::temporary_folder().expect("made");
            cut.put(to.path());
            let whole = fs::read(to.path().join("a")).is_ok_and(|found| found == [7; 2_000]);
            (cut.answered.contains(&1) && !whole).then_some(())
        };
        trace.cuts(64, &[], lost).is_some()
    }

    #[test]
    fn a_file_is_durable_only_once_it_and_its_directory_are_synced() {
        assert!(!may_lose(true, true));
        assert!(may_lose(true, false) && may_lose(false, true) && may_lose(false, false));
    }

    #[test]
    fn a_write_may_reach_the_disk_partially_and_a_rename_only_completely() {
        let dir = crate::kv::scratch::temporary_folder().expect("made");
        write(dir.path(), "a", &[1; 2_000], true, true);
        let recording = Recording::start(dir.path());
        let path = dir.path().join("a");
        let file = ops::open(&path).expect("open");
        ops::write_at(&file, &path, &[2; 2_000], 0).expect("written");
        ops::rename(&path, &dir.path().join("b")).expect("renamed");
        let trace = recording.finish();
        let mut torn = false;
        let mut names = BTreeSet::new();
        let seen = trace.cuts::<()>(64, &[], |cut| {
            let files: Vec<_> = cut.files.iter().collect();
            assert_eq!(files.len(), 1);
            names.insert(files[0].0.clone());
            let content = files[0].1.as_ref().expect("a file");
            torn |= content.contains(&1) && content.contains(&2);
            assert!(content[512..1_024].iter().all(|b| *b == content[512]), "sectors are whole");
            None
        });
        assert!(seen.is_none() && torn && names.len() == 2);
    }
}
