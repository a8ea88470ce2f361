//! Stores of promlet, and the commands that copy into and out of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{ORG, Server, Start, bootstrap};
use crate::process::{Cost, run};

/// The folder of a stopped server with an empty organisation.
pub(crate) struct Store {
    pub(crate) folder: PathBuf,
    dir: PathBuf,
}

/// A running server, and a key of its organisation.
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) secret: String,
}

impl Store {
    pub(crate) fn new(dir: &Path) -> Store {
        let folder = dir.join("store");
        if folder.exists() {
            fs::remove_dir_all(&folder).expect("our folder");
        }
        let store = Store { folder, dir: dir.to_owned() };
        assert!(store.serve().server.terminate().success());
        store
    }

    /// Runs a command of promlet on the organisation.
    pub(crate) fn run(&self, args: &[&str]) -> (Cost, String) {
        let mut command = program(&self.dir, args);
        run(command.env("PROMLET_DATA_DIR", &self.folder).args(["--org", ORG]), &self.dir)
    }

    /// Starts a server on the folder.
    pub(crate) fn serve(&self) -> Running {
        let mut env = bootstrap().to_vec();
        env.push(("PROMLET_RATE_CABINET_RPS", "10000"));
        let server = Server::start(&Start { args: &["serve"], dir: &self.folder, env: &env });
        let secret = server.api_key(&server.sign_in()).1;
        Running { server, secret }
    }
}

impl Running {
    /// Returns the command that imports blocks into the running server.
    pub(crate) fn import(&self, blocks: &Path, dir: &Path) -> Command {
        let key = dir.join("key");
        fs::write(&key, &self.secret).expect("written");
        let url = format!("{}/api/v1/orgs/{ORG}/prometheus", self.server.url);
        let mut command = program(dir, &["import", "prometheus-blocks"]);
        command.arg(blocks).args(["--url", &url, "--token-file"]).arg(&key);
        command
    }
}

/// Returns promlet with arguments, without the environment of this process.
fn program(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_promlet"));
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("PROMLET_ARGON2", "64,1,1")
        .current_dir(dir)
        .args(args);
    command
}

/// Asserts that an import has stored a number of samples and refused none.
pub(crate) fn assert_imported(said: &str, samples: u64) {
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let counts = said.lines().find_map(|line| line.strip_prefix("imported ")?.split_once(" samples, "));
    let (stored, refused) = counts.unwrap_or_else(|| panic!("no counts: {said}"));
    assert_eq!((digits(stored), digits(refused)), (samples.to_string(), "0".to_owned()), "{said}");
}
