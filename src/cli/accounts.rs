//! `promlet user`, `org`, `key`, `token`, `login-link`: asked of the running server, or of a stopped folder.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::process::{Command as Process, Stdio};

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;

use super::table::{Column, facts, table};
use crate::clock::Clock;
use crate::config::{self, AccountAsk, AccountCommand, Settings};
use crate::server::{AskError, Asking, Command, Hidden, OpenAccounts, Question};

/// Does it, and says what came of it.
pub(super) fn run(settings: &Settings, command: AccountCommand) -> anyhow::Result<()> {
    let AccountCommand { ask, json } = command;
    let view = View::of(&ask);
    let asked = translate(ask)?;
    let answer = perform(settings, asked)?;
    let text = if json { format!("{answer:#}\n") } else { view.text(&answer) };
    // Words about it go beside it: what is piped on is the answer alone.
    if !json {
        eprint!("{}", view.says);
    }
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
    if !json {
        eprint!("{}", view.then);
    }
    Ok(())
}

/// By the running server, or, where none runs, by this process.
pub(super) fn perform(settings: &Settings, command: Command) -> anyhow::Result<Value> {
    match Asking::connect(&settings.data_dir) {
        Ok(mut asking) => match asking.ask(&Question::Account { command }) {
            Err(AskError::Refused(words)) => Err(anyhow!(words)),
            answer => Ok(answer?),
        },
        Err(AskError::NotRunning { .. }) => {
            let open = OpenAccounts::open(settings, Clock::System).with_context(|| {
                format!(
                    "no server answers on {}, and the folder cannot be opened (--data-dir names another; a server that is \
                     just starting answers in a moment)",
                    settings.data_dir.display()
                )
            })?;
            let answer = open.perform(command).map_err(|words| anyhow!(words));
            open.close().context("the folder was not closed in order; what was done is done")?;
            answer
        }
        Err(error) => Err(error.into()),
    }
}

fn translate(ask: AccountAsk) -> anyhow::Result<Command> {
    Ok(match ask {
        AccountAsk::UserCreate { email, name, admin, no_password } => {
            let password = if no_password { None } else { Some(password(&email)?) };
            Command::UserCreate { email, name, password, admin }
        }
        AccountAsk::UserList { search } => Command::UserList { search },
        AccountAsk::UserDisable { email } => Command::UserChange { email, disabled: Some(true), admin: None },
        AccountAsk::UserEnable { email } => Command::UserChange { email, disabled: Some(false), admin: None },
        AccountAsk::UserAdmin { email, withdraw } => {
            Command::UserChange { email, disabled: None, admin: Some(!withdraw) }
        }
        AccountAsk::UserSetPassword { email } => {
            let password = password(&email)?;
            Command::UserSetPassword { email, password }
        }
        AccountAsk::UserResetTwofa { email } => Command::UserResetTwofa { email },
        AccountAsk::LoginLink { email } => Command::LoginLink { email },
        AccountAsk::OrgCreate { slug, name, owner } => Command::OrgCreate { slug, name, owner },
        AccountAsk::OrgList => Command::OrgList,
        AccountAsk::OrgMembers { slug } => Command::OrgMembers { slug },
        AccountAsk::OrgMember { slug, email, role } => Command::OrgMember { slug, email, role },
        AccountAsk::OrgInvite { slug, email, role } => Command::OrgInvite { slug, email, role },
        AccountAsk::OrgDelete { slug, yes } => {
            if !yes {
                confirm(&slug)?;
            }
            Command::OrgDelete { slug }
        }
        AccountAsk::KeyCreate { slug, name, scopes, expires_in, rates } => {
            let expires_in_s = expires_in.map(|after| after.as_secs());
            Command::KeyCreate { slug, name, scopes, expires_in_s, rates }
        }
        AccountAsk::KeyList { slug } => Command::KeyList { slug },
        AccountAsk::KeyRevoke { slug, id } => Command::KeyRevoke { slug, id },
        AccountAsk::TokenMint { slug, key, ttl, sub, ms } => {
            let ttl_s = ttl.map(|ttl| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX));
            let ms = ms.map(|text| serde_json::from_str(&text)).transpose();
            Command::TokenMint { slug, key, ttl_s, sub, ms: ms.context("--ms is not JSON")? }
        }
        AccountAsk::TokenInspect => Command::TokenInspect { token: Hidden(line("token", false)?) },
    })
}

/// A password, never from the command line, where every process of the machine could read it.
fn password(email: &str) -> anyhow::Result<Hidden> {
    if let Some(given) = config::password()? {
        return Ok(Hidden(given.reveal().to_owned()));
    }
    let first = line(&format!("new password for {email}"), true)?;
    if std::io::stdin().is_terminal() && line("again", true)? != first {
        bail!("the two are not the same; nothing was changed");
    }
    Ok(Hidden(first))
}

/// Bytes of a line of standard input; the longest token and the longest password fit.
const LINE_BYTES_MAX: u64 = 16 << 10;

/// One line of standard input; asked for where a person sits there.
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

/// The terminal shows nothing that is typed while this lives. Ctrl-C is then a letter like others, since whoever ended this
/// process by it would be left with a terminal that shows nothing.
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
        eprintln!("promlet: stty does not work here: what you type is shown");
    }
}

/// Whoever deletes an organisation types its name.
fn confirm(slug: &str) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() {
        bail!("deleting {slug} cannot be undone: say --yes");
    }
    let typed = line(&format!("everything in {slug} will be gone for good; type its name to go on"), false)?;
    if typed == slug { Ok(()) } else { Err(anyhow!("that is not {slug}; nothing was deleted")) }
}

/// How an answer is shown to people.
struct View {
    /// Before the rest.
    says: &'static str,
    columns: &'static [Column],
    /// After the rest.
    then: &'static str,
}

const USERS: &[Column] = &[
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
const ORGS: &[Column] = &[
    ("SLUG", "slug"),
    ("NAME", "name"),
    ("MEMBERS", "members"),
    ("KEYS", "api_keys"),
    ("SERIES", "usage.series"),
    ("BYTES", "usage.bytes"),
    ("CREATED", "created_at"),
    ("OWNERS", "owners"),
];
const MEMBERS: &[Column] = &[
    ("EMAIL", "email"),
    ("NAME", "name"),
    ("ROLE", "role"),
    ("JOINED", "joined_at"),
    ("LAST SEEN", "last_seen_at"),
];
const KEYS: &[Column] = &[
    ("ID", "id"),
    ("NAME", "name"),
    ("SCOPES", "scopes"),
    ("HINT", "hint"),
    ("CREATED", "created_at"),
    ("EXPIRES", "expires_at"),
    ("LAST USED", "last_used_at"),
    ("DISABLED", "disabled"),
];

impl View {
    fn of(ask: &AccountAsk) -> View {
        let (says, columns, then): (&str, &[Column], &str) = match ask {
            AccountAsk::UserCreate { .. } => ("made\n", USERS, ""),
            AccountAsk::UserList { .. } => ("", USERS, ""),
            AccountAsk::UserDisable { .. } => ("disabled; its sessions are over\n", USERS, ""),
            AccountAsk::UserEnable { .. } => ("enabled\n", USERS, ""),
            AccountAsk::UserAdmin { .. } => ("", USERS, ""),
            AccountAsk::UserSetPassword { .. } => ("password set; its sessions are over\n", USERS, ""),
            AccountAsk::UserResetTwofa { .. } => {
                ("", &[("Account", "email"), ("Second factor taken away", "had_second_factor")], "")
            }
            AccountAsk::LoginLink { .. } => {
                ("", &[("", "url")], "  (signs in once; whoever opens it is in)\n")
            }
            AccountAsk::OrgCreate { .. } => ("made\n", ORGS, ""),
            AccountAsk::OrgList => ("", ORGS, ""),
            AccountAsk::OrgMembers { .. } | AccountAsk::OrgMember { .. } => ("", MEMBERS, ""),
            AccountAsk::OrgInvite { .. } => {
                ("", &[("", "url")], "  (good for seven days, for this address, once)\n")
            }
            AccountAsk::OrgDelete { .. } => {
                ("deleted\n", &[("Organisation", "slug"), ("Its data is removed", "data_is_removed")], "")
            }
            AccountAsk::KeyCreate { .. } => (
                "",
                &[("Key", "id"), ("Scopes", "scopes"), ("Expires", "expires_at"), ("Secret", "secret")],
                "the secret is shown this once\n",
            ),
            AccountAsk::KeyList { .. } => ("", KEYS, ""),
            AccountAsk::KeyRevoke { .. } => ("revoked; its tokens are refused, too\n", &[("Key", "id")], ""),
            AccountAsk::TokenMint { .. } => ("", &[("", "token")], ""),
            AccountAsk::TokenInspect => (
                "",
                &[
                    ("Valid", "valid"),
                    ("Why not", "detail"),
                    ("Expires", "effective.expires_at"),
                    ("Header", "header"),
                    ("Claims", "claims"),
                ],
                "",
            ),
        };
        View { says, columns, then }
    }

    fn text(&self, answer: &Value) -> String {
        let is_row =
            |columns: &[Column]| columns.iter().all(|(title, _)| title.chars().all(|c| !c.is_lowercase()));
        let body = match answer["data"].as_array() {
            Some(rows) => table(rows, self.columns),
            None if self.columns.len() > 1 && is_row(self.columns) => {
                table(std::slice::from_ref(answer), self.columns)
            }
            None => facts(answer, self.columns),
        };
        // A link or token alone on its line, so that it can be copied and piped.
        let body = body.strip_prefix("  ").unwrap_or(&body);
        body.to_owned()
    }
}
