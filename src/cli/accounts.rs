//! `promlet user`, `org`, `key`, `token`, `login-link`, `connect`, `dashboard`: run by the running
//! server, or on a stopped folder.

use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::process::{Command as Process, Stdio};

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;

use super::output::{print, remark, remark_line};
use super::table::{TableColumn, facts, table};
use super::{connect, dashboards, moves};
use crate::clock::Clock;
use crate::config::{
    self, AccountCommand, KeyCommand, OrgCommand, SecretSetting, Settings, TokenCommand, UserCommand,
};
use crate::server::{AdminClient, AdminError, AdminRequest, OpenAccounts};

/// Runs the command and prints its result.
pub(super) fn run(settings: &Settings, mut command: AccountCommand, json: bool) -> anyhow::Result<()> {
    let view = ResultView::of(&command);
    if let AccountCommand::Dashboard(command) = command {
        let text = dashboards::run(settings, command, json)?;
        return print(text);
    }
    if let AccountCommand::Connect(command) = command {
        return connect::run(settings, command, json);
    }
    complete(settings, &mut command)?;
    let waits = match &command {
        AccountCommand::Org(OrgCommand::Move(command)) => moves::Wait::of(command),
        _ => None,
    };
    let mut answer = perform(settings, command)?;
    if let Some(wait) = waits {
        answer = wait.until_complete(settings, answer)?;
    }
    let text = if json { format!("{answer:#}\n") } else { view.text(&answer) };
    // Remarks go to standard error, so that standard output has the result only.
    if !json {
        remark(view.before);
    }
    print(text)?;
    if !json {
        remark(view.after);
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

/// Adds the parts of a command that are not arguments, and asks before a deletion.
fn complete(settings: &Settings, command: &mut AccountCommand) -> anyhow::Result<()> {
    match command {
        AccountCommand::User(UserCommand::Create { email, no_password: false, password, .. }) => {
            *password = Some(new_password(email)?);
        }
        AccountCommand::User(UserCommand::SetPassword { email, password }) => {
            *password = new_password(email)?;
        }
        AccountCommand::Org(OrgCommand::Delete { slug, yes: false }) => {
            confirm(slug, &format!("deleting {slug}"), &format!("everything in {slug} will be deleted"))?;
        }
        AccountCommand::Org(OrgCommand::Move(command)) => moves::complete(settings, command)?,
        AccountCommand::Token(TokenCommand::Mint { ms: Some(ms), .. }) => {
            let text = ms.as_str().unwrap_or_default();
            *ms = serde_json::from_str(text).context("--ms is not JSON")?;
        }
        AccountCommand::Token(TokenCommand::Inspect { token }) => {
            *token = SecretSetting::new(line("token", false)?);
        }
        _ => {}
    }
    Ok(())
}

/// Returns a new password. It never comes from the command line, which every process of the machine
/// can read.
fn new_password(email: &str) -> anyhow::Result<SecretSetting> {
    if let Some(given) = config::password()? {
        return Ok(given);
    }
    let first = line(&format!("new password for {email}"), true)?;
    if std::io::stdin().is_terminal() && line("again", true)? != first {
        bail!("the passwords differ; nothing was changed");
    }
    Ok(SecretSetting::new(first))
}

/// The greatest length of a line of standard input in bytes. The longest token and password fit.
const LINE_BYTES_MAX: u64 = 16 << 10;

/// Reads a line of standard input, with a prompt if that is a terminal.
fn line(what: &str, hidden: bool) -> anyhow::Result<String> {
    let asks = std::io::stdin().is_terminal();
    let _quiet = (asks && hidden).then(Quiet::new);
    if asks {
        remark(format_args!("{what}: "));
    }
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .take(LINE_BYTES_MAX)
        .read_line(&mut text)
        .context("cannot read standard input")?;
    if asks && hidden {
        remark_line("");
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

/// Hides typed characters until it is dropped. Ctrl-C is then an ordinary character, because ending
/// the process with it would leave the terminal hidden.
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
        remark_line("promlet: stty does not work here: your input is visible");
    }
}

/// Requires the name of the organisation to be typed before something is deleted.
pub(super) fn confirm(slug: &str, deletion: &str, warning: &str) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() {
        bail!("{deletion} is permanent: confirm with --yes");
    }
    let typed = line(&format!("{warning} permanently; type {slug} to continue"), false)?;
    if typed == slug { Ok(()) } else { Err(anyhow!("the text is not {slug}; nothing was deleted")) }
}

/// The presentation of a result for people.
pub(super) struct ResultView {
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
    fn of(command: &AccountCommand) -> ResultView {
        match command {
            AccountCommand::User(command) => ResultView::of_user_command(command),
            AccountCommand::LoginLink(_) => {
                ResultView::link("  (signs in once; anyone who opens it is signed in)\n")
            }
            AccountCommand::Org(command) => ResultView::of_org_command(command),
            AccountCommand::Key(command) => ResultView::of_key_command(command),
            AccountCommand::Token(command) => ResultView::of_token_command(command),
            // `connect` and `dashboards` render the responses themselves.
            AccountCommand::Connect(_) | AccountCommand::Dashboard(_) => ResultView::rows(&[]),
            // Only `promlet doctor` sends it, and renders the response itself.
            AccountCommand::Stats(_) => ResultView::rows(&[]),
        }
    }

    /// Rows or a single row, without remarks.
    pub(super) fn rows(columns: &'static [TableColumn]) -> ResultView {
        ResultView { before: "", columns, after: "" }
    }

    /// A link, and a remark on it.
    fn link(after: &'static str) -> ResultView {
        ResultView { before: "", columns: &[("", "url")], after }
    }

    fn of_user_command(command: &UserCommand) -> ResultView {
        let before = match command {
            UserCommand::Create { .. } => "created\n",
            UserCommand::Disable { .. } => "disabled; its sessions have ended\n",
            UserCommand::Enable { .. } => "enabled\n",
            UserCommand::SetPassword { .. } => "password set; its sessions have ended\n",
            UserCommand::List { .. } | UserCommand::Admin { .. } | UserCommand::Change { .. } => "",
            UserCommand::ResetTwofa { .. } => {
                return ResultView::rows(&[
                    ("Account", "email"),
                    ("Second factor removed", "had_second_factor"),
                ]);
            }
        };
        ResultView { before, ..ResultView::rows(USERS) }
    }

    fn of_org_command(command: &OrgCommand) -> ResultView {
        match command {
            OrgCommand::Create { .. } => ResultView { before: "created\n", ..ResultView::rows(ORGS) },
            OrgCommand::List => ResultView::rows(ORGS),
            OrgCommand::Members { .. } | OrgCommand::Member { .. } => ResultView::rows(MEMBERS),
            OrgCommand::Move(command) => moves::view(command),
            OrgCommand::Invite { .. } => {
                ResultView::link("  (valid for seven days, for this address, once)\n")
            }
            OrgCommand::Delete { .. } => ResultView {
                before: "deleted\n",
                ..ResultView::rows(&[("Organisation", "slug"), ("Its data is removed", "data_is_removed")])
            },
        }
    }

    fn of_key_command(command: &KeyCommand) -> ResultView {
        match command {
            KeyCommand::Create { .. } => ResultView {
                after: "the secret is shown only this once\n",
                ..ResultView::rows(&[
                    ("Key", "id"),
                    ("Scopes", "scopes"),
                    ("Expires", "expires_at"),
                    ("Secret", "secret"),
                ])
            },
            KeyCommand::List { .. } => ResultView::rows(KEYS),
            KeyCommand::Revoke { .. } => ResultView {
                before: "revoked; its tokens are refused as well\n",
                ..ResultView::rows(&[("Key", "id")])
            },
        }
    }

    fn of_token_command(command: &TokenCommand) -> ResultView {
        match command {
            TokenCommand::Mint { .. } => ResultView::rows(&[("", "token")]),
            TokenCommand::Inspect { .. } => ResultView::rows(&[
                ("Valid", "valid"),
                ("Reason", "detail"),
                ("Expires", "effective.expires_at"),
                ("Header", "header"),
                ("Claims", "claims"),
            ]),
        }
    }

    pub(super) fn text(&self, answer: &Value) -> String {
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
