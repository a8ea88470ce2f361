//! `promlet user`, `org`, `key`, `token`, `login-link`: run by the running server, or on a stopped
//! folder.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::process::{Command as Process, Stdio};

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;

use super::table::{TableColumn, facts, table};
use crate::clock::Clock;
use crate::config::{self, AccountAction, AccountInvocation, Settings};
use crate::server::{AccountCommand, AdminClient, AdminError, AdminRequest, Hidden, OpenAccounts};

/// Runs the command and prints its result.
pub(super) fn run(settings: &Settings, command: AccountInvocation) -> anyhow::Result<()> {
    let AccountInvocation { action, json } = command;
    let view = ResultView::of(&action);
    let command = translate(action)?;
    let answer = perform(settings, command)?;
    let text = if json { format!("{answer:#}\n") } else { view.text(&answer) };
    // Remarks go to standard error, so that standard output has the result only.
    if !json {
        eprint!("{}", view.before);
    }
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    if !json {
        eprint!("{}", view.after);
    }
    Ok(())
}

/// Runs the command on the running server, or in this process if none runs.
pub(super) fn perform(settings: &Settings, command: AccountCommand) -> anyhow::Result<Value> {
    match AdminClient::connect(&settings.data_dir) {
        Ok(mut client) => match client.request(&AdminRequest::Account { command }) {
            Err(AdminError::Refused(words)) => Err(anyhow!(words)),
            answer => Ok(answer?),
        },
        Err(AdminError::NotRunning { .. }) => {
            let open = OpenAccounts::open(settings, Clock::System).with_context(|| {
                format!(
                    "no server responds on {}, and the folder cannot be opened (choose another with --data-dir; a server that is \
                     just starting responds in a moment)",
                    settings.data_dir.display()
                )
            })?;
            let answer = open.perform(command).map_err(|words| anyhow!(words));
            open.close().context(
                "the folder was not closed cleanly; the command itself succeeded or failed as reported",
            )?;
            answer
        }
        Err(error) => Err(error.into()),
    }
}

fn translate(action: AccountAction) -> anyhow::Result<AccountCommand> {
    Ok(match action {
        AccountAction::UserCreate { email, name, admin, no_password } => {
            let password = if no_password { None } else { Some(password(&email)?) };
            AccountCommand::UserCreate { email, name, password, admin }
        }
        AccountAction::UserList { search } => AccountCommand::UserList { search },
        AccountAction::UserDisable { email } => {
            AccountCommand::UserChange { email, disabled: Some(true), admin: None }
        }
        AccountAction::UserEnable { email } => {
            AccountCommand::UserChange { email, disabled: Some(false), admin: None }
        }
        AccountAction::UserAdmin { email, withdraw } => {
            AccountCommand::UserChange { email, disabled: None, admin: Some(!withdraw) }
        }
        AccountAction::UserSetPassword { email } => {
            let password = password(&email)?;
            AccountCommand::UserSetPassword { email, password }
        }
        AccountAction::UserResetTwofa { email } => AccountCommand::UserResetTwofa { email },
        AccountAction::LoginLink { email } => AccountCommand::LoginLink { email },
        AccountAction::OrgCreate { slug, name, owner } => AccountCommand::OrgCreate { slug, name, owner },
        AccountAction::OrgList => AccountCommand::OrgList,
        AccountAction::OrgMembers { slug } => AccountCommand::OrgMembers { slug },
        AccountAction::OrgMember { slug, email, role } => AccountCommand::OrgMember { slug, email, role },
        AccountAction::OrgInvite { slug, email, role } => AccountCommand::OrgInvite { slug, email, role },
        AccountAction::OrgDelete { slug, yes } => {
            if !yes {
                confirm(&slug)?;
            }
            AccountCommand::OrgDelete { slug }
        }
        AccountAction::KeyCreate { slug, name, scopes, expires_in, rates } => {
            let expires_in_s = expires_in.map(|after| after.as_secs());
            AccountCommand::KeyCreate { slug, name, scopes, expires_in_s, rates }
        }
        AccountAction::KeyList { slug } => AccountCommand::KeyList { slug },
        AccountAction::KeyRevoke { slug, id } => AccountCommand::KeyRevoke { slug, id },
        AccountAction::TokenMint { slug, key, ttl, sub, ms } => {
            let ttl_s = ttl.map(|ttl| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX));
            let ms = ms.map(|text| serde_json::from_str(&text)).transpose();
            AccountCommand::TokenMint { slug, key, ttl_s, sub, ms: ms.context("--ms is not JSON")? }
        }
        AccountAction::TokenInspect => AccountCommand::TokenInspect { token: Hidden(line("token", false)?) },
    })
}

/// Returns a new password. It never comes from the command line, which every process of the machine
/// can read.
fn password(email: &str) -> anyhow::Result<Hidden> {
    if let Some(given) = config::password()? {
        return Ok(Hidden(given.reveal().to_owned()));
    }
    let first = line(&format!("new password for {email}"), true)?;
    if std::io::stdin().is_terminal() && line("again", true)? != first {
        bail!("the passwords differ; nothing was changed");
    }
    Ok(Hidden(first))
}

/// The greatest length of a line of standard input in bytes. The longest token and password fit.
const LINE_BYTES_MAX: u64 = 16 << 10;

/// Reads a line of standard input, with a prompt if that is a terminal.
fn line(what: &str, hidden: bool) -> anyhow::Result<String> {
    let asks = std::io::stdin().is_terminal();
    let _quiet = (asks && hidden).then(Quiet::new);
    if asks {
        eprint!("{what}: ");
    }
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .take(LINE_BYTES_MAX)
        .read_line(&mut text)
        .context("cannot read standard input")?;
    if asks && hidden {
        eprintln!();
    }
    let text = text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
    if text.contains('\u{3}') {
        bail!("interrupted; nothing was changed");
    }
    if text.is_empty() {
        bail!("no {what}: give it on standard input, one line");
    }
    Ok(text.to_owned())
}

/// Hides typed characters while it lives. Ctrl-C is then an ordinary character, because ending the
/// process with it would leave the terminal hidden.
struct Quiet;

impl Quiet {
    fn new() -> Quiet {
        terminal(&["-echo", "-isig"]);
        Quiet
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        terminal(&["echo", "isig"]);
    }
}

fn terminal(how: &[&str]) {
    let done = Process::new("stty").args(how).stdin(Stdio::inherit()).stderr(Stdio::null()).status();
    if !done.is_ok_and(|status| status.success()) {
        eprintln!("promlet: stty does not work here: your input is visible");
    }
}

/// Requires the name of the organisation to be typed before it is deleted.
fn confirm(slug: &str) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() {
        bail!("deleting {slug} is permanent: confirm with --yes");
    }
    let typed =
        line(&format!("everything in {slug} will be deleted permanently; type its name to continue"), false)?;
    if typed == slug { Ok(()) } else { Err(anyhow!("that is not {slug}; nothing was deleted")) }
}

/// The presentation of a result for people.
struct ResultView {
    /// The text before the result.
    before: &'static str,
    columns: &'static [TableColumn],
    /// The text after the result.
    after: &'static str,
}

const USERS: &[TableColumn] = &[
    ("EMAIL", "email"),
    ("NAME", "name"),
    ("ADMIN", "is_admin"),
    ("DISABLED", "disabled"),
    ("PASSWORD", "has_password"),
    ("2FA", "twofa_enabled"),
    ("SESSIONS", "sessions"),
    ("LAST SEEN", "last_seen_at"),
    ("ORGANISATIONS", "orgs"),
];
const ORGS: &[TableColumn] = &[
    ("SLUG", "slug"),
    ("NAME", "name"),
    ("MEMBERS", "members"),
    ("KEYS", "api_keys"),
    ("SERIES", "usage.series"),
    ("BYTES", "usage.bytes"),
    ("CREATED", "created_at"),
    ("OWNERS", "owners"),
];
const MEMBERS: &[TableColumn] = &[
    ("EMAIL", "email"),
    ("NAME", "name"),
    ("ROLE", "role"),
    ("JOINED", "joined_at"),
    ("LAST SEEN", "last_seen_at"),
];
const KEYS: &[TableColumn] = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("SCOPES", "scopes"),
    ("HINT", "hint"),
    ("CREATED", "created_at"),
    ("EXPIRES", "expires_at"),
    ("LAST USED", "last_used_at"),
    ("DISABLED", "disabled"),
];

impl ResultView {
    fn of(action: &AccountAction) -> ResultView {
        let (before, columns, after): (&str, &[TableColumn], &str) = match action {
            AccountAction::UserCreate { .. } => ("created\n", USERS, ""),
            AccountAction::UserList { .. } => ("", USERS, ""),
            AccountAction::UserDisable { .. } => ("disabled; its sessions have ended\n", USERS, ""),
            AccountAction::UserEnable { .. } => ("enabled\n", USERS, ""),
            AccountAction::UserAdmin { .. } => ("", USERS, ""),
            AccountAction::UserSetPassword { .. } => ("password set; its sessions have ended\n", USERS, ""),
            AccountAction::UserResetTwofa { .. } => {
                ("", &[("Account", "email"), ("Second factor removed", "had_second_factor")], "")
            }
            AccountAction::LoginLink { .. } => {
                ("", &[("", "url")], "  (signs in once; anyone who opens it is signed in)\n")
            }
            AccountAction::OrgCreate { .. } => ("created\n", ORGS, ""),
            AccountAction::OrgList => ("", ORGS, ""),
            AccountAction::OrgMembers { .. } | AccountAction::OrgMember { .. } => ("", MEMBERS, ""),
            AccountAction::OrgInvite { .. } => {
                ("", &[("", "url")], "  (valid for seven days, for this address, once)\n")
            }
            AccountAction::OrgDelete { .. } => {
                ("deleted\n", &[("Organisation", "slug"), ("Its data is removed", "data_is_removed")], "")
            }
            AccountAction::KeyCreate { .. } => (
                "",
                &[("Key", "id"), ("Scopes", "scopes"), ("Expires", "expires_at"), ("Secret", "secret")],
                "the secret is shown only this once\n",
            ),
            AccountAction::KeyList { .. } => ("", KEYS, ""),
            AccountAction::KeyRevoke { .. } => {
                ("revoked; its tokens are refused as well\n", &[("Key", "id")], "")
            }
            AccountAction::TokenMint { .. } => ("", &[("", "token")], ""),
            AccountAction::TokenInspect => (
                "",
                &[
                    ("Valid", "valid"),
                    ("Reason", "detail"),
                    ("Expires", "effective.expires_at"),
                    ("Header", "header"),
                    ("Claims", "claims"),
                ],
                "",
            ),
        };
        ResultView { before, columns, after }
    }

    fn text(&self, answer: &Value) -> String {
        let is_row = |columns: &[TableColumn]| {
            columns.iter().all(|(title, _)| title.chars().all(|c| !c.is_lowercase()))
        };
        let body = match answer["data"].as_array() {
            Some(rows) => table(rows, self.columns),
            None if self.columns.len() > 1 && is_row(self.columns) => {
                table(std::slice::from_ref(answer), self.columns)
            }
            None => facts(answer, self.columns),
        };
        // A link or token is alone on its line, so that it can be copied and piped.
        let body = body.strip_prefix("  ").unwrap_or(&body);
        body.to_owned()
    }
}
