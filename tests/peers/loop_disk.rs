//! An ext4 in a file, mounted through a loop device, for tests of real file system errors. Needs
//! root and loop devices.

use std::path::{Path, PathBuf};
use std::process::Command;

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} (this test needs root and loop devices): {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The file system; unmounted when dropped.
pub(crate) struct LoopDisk {
    pub(crate) mount: PathBuf,
    image: PathBuf,
}

impl LoopDisk {
    /// Creates and mounts the file system. It has no blocks reserved for root, because the tests
    /// run as root. It becomes read-only at its first error, as Debian's installer configures it.
    pub(crate) fn make(dir: &Path, bytes: u64) -> LoopDisk {
        let (image, mount) = (dir.join("image"), dir.join("mount"));
        std::fs::create_dir(&mount).expect("made");
        std::fs::File::create(&image).expect("made").set_len(bytes).expect("sparse");
        done(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image));
        let disk = LoopDisk { mount, image };
        disk.mount("loop,errors=remount-ro");
        disk
    }

    fn mount(&self, options: &str) {
        done(Command::new("mount").args(["-t", "ext4", "-o", options]).arg(&self.image).arg(&self.mount));
    }

    /// Repairs the file system with its own check, and mounts it again with these options.
    pub(crate) fn mount_again(&self, options: &str) {
        done(Command::new("umount").arg(&self.mount));
        let checked = Command::new("e2fsck").args(["-f", "-y"]).arg(&self.image).output().expect("runs");
        // 1: the check repaired something, which is expected after an error.
        assert!(matches!(checked.status.code(), Some(0 | 1)), "{checked:?}");
        self.mount(options);
    }

    /// Makes the kernel find an error in the file system and remount it read-only while files are
    /// open.
    pub(crate) fn break_down(&self) {
        let device = done(Command::new("findmnt").args(["-n", "-o", "SOURCE"]).arg(&self.mount));
        let device = device.trim().strip_prefix("/dev/").expect("a device").to_owned();
        assert!(device.starts_with("loop"), "{device}: never another file system than ours");
        let trigger = Path::new("/sys/fs/ext4").join(device).join("trigger_fs_error");
        std::fs::write(&trigger, "1\n").expect("the kernel takes it");
    }

    pub(crate) fn free(&self) -> u64 {
        let said = done(Command::new("stat").args(["-f", "-c", "%a %S"]).arg(&self.mount));
        let numbers: Vec<u64> = said.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        numbers[0] * numbers[1]
    }

    /// Fills the disk up to `left` free bytes. Other programs may allocate some of them first.
    pub(crate) fn fill(&self, left: u64) {
        let ballast = self.mount.join("ballast");
        let have = std::fs::metadata(&ballast).map_or(0, |found| found.len());
        let wanted = have + self.free().saturating_sub(left);
        let length = wanted.to_string();
        // A failed allocation has allocated a part of the length.
        let _ = Command::new("fallocate").args(["-l", &length]).arg(&ballast).output();
        if left == 0 {
            let mut file = std::fs::File::options().create(true).append(true).open(&ballast).expect("there");
            while std::io::Write::write_all(&mut file, &[7; 4_096]).is_ok() {}
        }
    }

    /// Frees `bytes` of the filled space.
    pub(crate) fn free_of_ballast(&self, bytes: u64) {
        let ballast = std::fs::File::options().write(true).open(self.mount.join("ballast")).expect("there");
        let length = ballast.metadata().expect("read").len();
        ballast.set_len(length.saturating_sub(bytes)).expect("shortened");
    }

    pub(crate) fn make_room(&self) {
        std::fs::remove_file(self.mount.join("ballast")).expect("it was there");
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // After a failure the server may still use it: unmount lazily, without a second panic.
        let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
    }
}
