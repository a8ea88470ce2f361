//! A disk that loses power: what was done to the files below a folder, and every state that a cut could have left.
//!
//! The model is weaker than any file system in use. Bytes written to a file are durable after that file's sync, a name
//! after its directory's; until then any subset of the changes may have reached the disk, in any order, a write also in
//! part, sector by sector (512 B). Taken from what POSIX promises, and from what RELIABILITY's injectors showed ext4 and
//! xfs to do.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::entropy::Entropy;
use crate::sync::IgnorePoison as _;

/// Bytes that a disk writes whole or not at all.
const SECTOR: usize = 512;

/// One change, in the order in which it was done.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// A new directory.
    CreateDir(PathBuf),
    /// A new, empty file under this name.
    Create(PathBuf),
    /// Bytes of a file.
    Write {
        path: PathBuf,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// A file's length.
    SetLen {
        path: PathBuf,
        bytes: u64,
    },
    /// A file's bytes and length are durable.
    Sync(PathBuf),
    /// The names in a directory are durable.
    SyncDir(PathBuf),
    Rename(PathBuf, PathBuf),
    /// A second name, the latter, for a file.
    Link(PathBuf, PathBuf),
    /// A file, or a directory with all in it.
    Remove(PathBuf),
    /// The test was answered: from here on this is promised.
    Answered(usize),
}

type Ops = Arc<Mutex<Vec<Op>>>;

static RUNNING: AtomicUsize = AtomicUsize::new(0);
static RECORDINGS: Mutex<Vec<(PathBuf, Ops)>> = Mutex::new(Vec::new());

/// Writes an operation down for whoever records its place.
pub(super) fn note(op: impl FnOnce() -> Op) {
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

/// The n-th operation below a folder fails: once, some times in a row, or from then on, until this is dropped.
pub(crate) struct Failing {
    fault: Arc<Fault>,
}

#[derive(Debug)]
struct Fault {
    root: PathBuf,
    left: AtomicIsize,
    /// How many operations fail from the n-th on.
    times: isize,
    /// A write that fails leaves all its bytes in the file.
    leaves_bytes: bool,
    os_error: i32,
}

static FAULTS: Mutex<Vec<Arc<Fault>>> = Mutex::new(Vec::new());

impl Failing {
    /// After `left` operations the next one answers `os_error` (5 EIO, 28 ENOSPC), and if `lasting` so do all others.
    pub(crate) fn after(root: &Path, left: usize, os_error: i32, lasting: bool) -> Failing {
        let left = AtomicIsize::new(isize::try_from(left).expect("small"));
        let times = if lasting { isize::MAX } else { 1 };
        Failing::with(Fault { root: root.to_owned(), left, times, leaves_bytes: false, os_error })
    }

    /// The next `times` operations answer `os_error`; a write among them leaves all its bytes in the file.
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

    /// Whether it was met.
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

/// What an operation on this path meets.
pub(super) fn fault(path: &Path) -> std::io::Result<()> {
    fault_of_write(path, || Ok(()))
}

/// What a write to this path meets, that of `write` where the fault is to leave bytes in the file.
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

/// Records what is done below a folder until it is finished.
pub(crate) struct Recording {
    root: PathBuf,
    ops: Ops,
    start: Disk,
}

impl Recording {
    /// Begins; what lies there counts as durable.
    pub(crate) fn start(root: &Path) -> Recording {
        let (ops, start) = (Ops::default(), Disk::read(root));
        RECORDINGS.lock().expect("unpoisoned").push((root.to_owned(), Arc::clone(&ops)));
        RUNNING.fetch_add(1, Ordering::SeqCst);
        Recording { root: root.to_owned(), ops, start }
    }

    /// Notes that a promise was made.
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

/// What was done.
pub(crate) struct Trace {
    root: PathBuf,
    start: Disk,
    pub(crate) ops: Vec<Op>,
}

/// What a cut left, and what had been promised by then.
pub(crate) struct Cut {
    pub(crate) answered: BTreeSet<usize>,
    /// After so many operations.
    pub(crate) at: usize,
    files: Vec<(PathBuf, Option<Vec<u8>>)>,
}

impl Cut {
    /// Puts the files into an empty folder.
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
    /// The places of the syncs, each with the file's or directory's name below the folder.
    pub(crate) fn syncs(&self) -> Vec<(usize, String)> {
        let place = |(number, op): (usize, &Op)| match op {
            Op::Sync(path) | Op::SyncDir(path) => {
                let below = path.strip_prefix(&self.root).unwrap_or(path);
                Some((number, below.display().to_string()))
            }
            _ => None,
        };
        self.ops.iter().enumerate().filter_map(place).collect()
    }

    /// Hands out states that a cut can leave, `each` at most after each operation: with fewer possible ones all of
    /// them, else nothing unsynced, everything unsynced, and as many others by chance. `without` lists syncs that are left out.
    ///
    /// Stops when `judge` answers something.
    pub(crate) fn cuts<T>(
        &self,
        each: usize,
        seed: u64,
        without: &[usize],
        mut judge: impl FnMut(&Cut) -> Option<T>,
    ) -> Option<T> {
        let mut rng = Entropy::seeded(seed);
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
            // Nothing but promises since the last cut: the harder of the two is enough, which is the later one.
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

/// Files and names, durable and not.
#[derive(Clone, Debug, Default)]
struct Disk {
    /// The first one is the root.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
enum Node {
    File { durable: Vec<u8>, pending: Vec<Change> },
    Dir { durable: BTreeMap<String, usize>, pending: Vec<Naming> },
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Clone, Debug)]
enum Naming {
    Link(String, usize),
    Unlink(String),
    /// Within one directory, which is atomic.
    Rename(String, String),
}

/// How much of each pending change has reached the disk, in order of nodes and changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    No,
    Whole,
    /// Some sectors of a write, by the bits of this number.
    Some(u64),
}

fn new_dir() -> Node {
    Node::Dir { durable: BTreeMap::new(), pending: Vec::new() }
}

fn change(content: &mut Vec<u8>, change: &Change, reached: Reached) {
    match (change, reached) {
        (_, Reached::No) => {}
        (Change::SetLen(bytes), _) => content.resize(*bytes, 0),
        (Change::Write { offset, bytes }, Reached::Whole) => put(content, *offset, bytes),
        (Change::Write { offset, bytes }, Reached::Some(bits)) => {
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

fn put(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}

fn name(names: &mut BTreeMap<String, usize>, naming: &Naming) {
    match naming {
        Naming::Link(name, node) => drop(names.insert(name.clone(), *node)),
        Naming::Unlink(name) => drop(names.remove(name)),
        Naming::Rename(from, to) => {
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
                self.nodes.push(Node::File { durable, pending: Vec::new() });
            } else {
                continue;
            }
            if let Node::Dir { durable, .. } = &mut self.nodes[node] {
                durable.insert(entry.file_name().expect("named").to_string_lossy().into_owned(), child);
            }
        }
    }

    /// The names in a directory as a process sees them.
    fn seen(&self, dir: usize) -> BTreeMap<String, usize> {
        let Node::Dir { durable, pending } = &self.nodes[dir] else { return BTreeMap::new() };
        let mut names = durable.clone();
        pending.iter().for_each(|naming| name(&mut names, naming));
        names
    }

    /// The node of a path; none where it is not known, as below a directory that another program fills.
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

    fn link(&mut self, root: &Path, path: &Path, node: Node) {
        let Some((parent, name)) = self.parent(root, path) else { return };
        let number = self.nodes.len();
        self.nodes.push(node);
        self.names(parent, Naming::Link(name, number));
    }

    fn names(&mut self, dir: usize, naming: Naming) {
        if let Node::Dir { pending, .. } = &mut self.nodes[dir] {
            pending.push(naming);
        }
    }

    fn changes(&mut self, root: &Path, path: &Path, change: Change) {
        let Some(node) = self.node(root, path) else { return };
        if let Node::File { pending, .. } = &mut self.nodes[node] {
            pending.push(change);
        }
    }

    fn apply(&mut self, root: &Path, op: &Op) {
        match op {
            Op::CreateDir(path) => self.link(root, path, new_dir()),
            Op::Create(path) => match self.node(root, path) {
                Some(_) => self.changes(root, path, Change::SetLen(0)),
                None => self.link(root, path, Node::File { durable: Vec::new(), pending: Vec::new() }),
            },
            Op::Write { path, offset, bytes } => {
                let offset = usize::try_from(*offset).expect("small");
                self.changes(root, path, Change::Write { offset, bytes: bytes.clone() });
            }
            Op::SetLen { path, bytes } => {
                self.changes(root, path, Change::SetLen(usize::try_from(*bytes).expect("small")));
            }
            Op::Sync(path) => {
                let Some(node) = self.node(root, path) else { return };
                if let Node::File { durable, pending } = &mut self.nodes[node] {
                    std::mem::take(pending).iter().for_each(|c| change(durable, c, Reached::Whole));
                }
            }
            Op::SyncDir(path) => {
                let Some(node) = self.node(root, path) else { return };
                if let Node::Dir { durable, pending } = &mut self.nodes[node] {
                    std::mem::take(pending).iter().for_each(|naming| name(durable, naming));
                }
            }
            Op::Rename(from, to) => {
                let (Some((a, from)), Some((b, to))) = (self.parent(root, from), self.parent(root, to))
                else {
                    return;
                };
                if a == b {
                    self.names(a, Naming::Rename(from, to));
                } else if let Some(node) = self.seen(a).get(&from).copied() {
                    self.names(b, Naming::Link(to, node));
                    self.names(a, Naming::Unlink(from));
                }
            }
            Op::Link(from, to) => {
                if let (Some(node), Some((parent, name))) = (self.node(root, from), self.parent(root, to)) {
                    self.names(parent, Naming::Link(name, node));
                }
            }
            Op::Remove(path) => {
                if let Some((parent, name)) = self.parent(root, path) {
                    self.names(parent, Naming::Unlink(name));
                }
            }
            Op::Answered(_) => {}
        }
    }

    fn pending(&self) -> usize {
        let of = |node: &Node| match node {
            Node::File { pending, .. } => pending.len(),
            Node::Dir { pending, .. } => pending.len(),
        };
        self.nodes.iter().map(of).sum()
    }

    /// Which of the pending changes reached the disk.
    fn choices(&self, each: usize, rng: &mut Entropy) -> Vec<Vec<Reached>> {
        let pending = self.pending();
        let whole = |bit: bool| if bit { Reached::Whole } else { Reached::No };
        let (none, all) = (vec![Reached::No; pending], vec![Reached::Whole; pending]);
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
                    0 => Reached::No,
                    1 => Reached::Whole,
                    _ => Reached::Some(bits.rotate_right(8)),
                }
            };
            chosen.push((0..pending).map(one).collect());
        }
        chosen
    }

    /// Directories (without content) and files, parents first.
    fn files(&self, chosen: &[Reached]) -> Vec<(PathBuf, Option<Vec<u8>>)> {
        let mut left = chosen.iter().copied();
        let mut names: BTreeMap<usize, BTreeMap<String, usize>> = BTreeMap::new();
        let mut contents: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for (number, node) in self.nodes.iter().enumerate() {
            match node {
                Node::File { durable, pending } => {
                    let mut content = durable.clone();
                    for c in pending {
                        change(&mut content, c, left.next().unwrap_or(Reached::No));
                    }
                    contents.insert(number, content);
                }
                Node::Dir { durable, pending } => {
                    let mut here = durable.clone();
                    for naming in pending {
                        if left.next().is_some_and(|reached| reached != Reached::No) {
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

    /// Writes `bytes` as `name`; some of the steps left out.
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

    /// Whether some cut after the answer loses the file or a part of it.
    fn may_lose(synced: bool, named: bool) -> bool {
        let dir = tempfile::tempdir().expect("made");
        let recording = Recording::start(dir.path());
        write(dir.path(), "a", &[7; 2_000], synced, named);
        recording.answered(1);
        let trace = recording.finish();
        let lost = |cut: &Cut| {
            let to = tempfile::tempdir().expect("made");
            cut.put(to.path());
            let whole = fs::read(to.path().join("a")).is_ok_and(|found| found == [7; 2_000]);
            (cut.answered.contains(&1) && !whole).then_some(())
        };
        trace.cuts(64, 1, &[], lost).is_some()
    }

    #[test]
    fn a_file_is_safe_when_it_and_its_name_are_synced_and_not_before() {
        assert!(!may_lose(true, true));
        assert!(may_lose(true, false) && may_lose(false, true) && may_lose(false, false));
    }

    #[test]
    fn a_write_may_reach_the_disk_in_part_and_a_rename_only_whole() {
        let dir = tempfile::tempdir().expect("made");
        write(dir.path(), "a", &[1; 2_000], true, true);
        let recording = Recording::start(dir.path());
        let path = dir.path().join("a");
        let file = ops::open(&path).expect("open");
        ops::write_at(&file, &path, &[2; 2_000], 0).expect("written");
        ops::rename(&path, &dir.path().join("b")).expect("renamed");
        let trace = recording.finish();
        let mut torn = false;
        let mut names = BTreeSet::new();
        let seen = trace.cuts::<()>(64, 1, &[], |cut| {
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
