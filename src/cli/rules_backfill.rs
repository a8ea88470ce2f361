//! `promlet rules backfill`: writes the series of recording rules for times before they existed, by
//! the running server or, if none runs, in the folder itself.
//!
//! Groups are backfilled one after another in the order of their files, so that a rule reads the
//! series of the groups before it. An interrupted backfill is repeated as a whole, which writes the
//! same samples.

use anyhow::{Context as _, anyhow, bail};

use super::output::print_line;
use super::progress::number;
use crate::clock::Clock;
use crate::config::{RulesBackfillCommand, Settings};
use crate::model::OrgId;
use crate::rules::{RuleFileOptions, RuleGroup, RuleSettings, group_text};
use crate::server::rules::read_rule_files;
use crate::server::{
    AdminClient, AdminError, AdminRequest, BackfillPart, BackfillRequest, OpenAccounts, OpenStore,
};

/// The process that writes.
enum Writer {
    Server(AdminClient),
    /// The stopped folder, and the organisation.
    Folder(Box<OpenStore>, OrgId),
}

/// Backfills all rules of the command.
pub(super) fn run(settings: &Settings, command: &RulesBackfillCommand) -> anyhow::Result<()> {
    let groups = groups(command)?;
    let mut writer = match AdminClient::connect(&settings.data_dir) {
        Ok(client) => Writer::Server(client),
        Err(AdminError::NotRunning { .. }) => open(settings, &groups)?,
        Err(error) => return Err(error.into()),
    };
    let outcome = groups.into_iter().try_for_each(|group| writer.backfill(group));
    let closed = writer.close();
    outcome.and(closed)
}

/// The backfill of a group.
struct GroupBackfill {
    name: String,
    rules: usize,
    /// The first request.
    request: BackfillRequest,
}

/// Returns the backfill of each group that has a wanted recording rule.
fn groups(command: &RulesBackfillCommand) -> anyhow::Result<Vec<GroupBackfill>> {
    let end = command.end.unwrap_or_else(|| Clock::System.now());
    let mut all = Vec::new();
    for path in &command.files {
        for file in read_rule_files(path, RuleFileOptions::default()).map_err(anyhow::Error::msg)? {
            for group in file.groups {
                let step_ms = match command.step {
                    Some(step) => i64::try_from(step.as_millis()).unwrap_or(i64::MAX),
                    None => group.interval_ms.unwrap_or(RuleSettings::default().interval_ms),
                };
                if step_ms < 1 {
                    bail!("--step must be at least 1ms");
                }
                // As for live evaluations, times are multiples of the step.
                let past = command.start.as_ms().rem_euclid(step_ms);
                let rest_ms = if past == 0 { 0 } else { step_ms - past };
                let start = command.start.plus_ms(rest_ms);
                if start > end {
                    bail!("no time between --start and --end is a multiple of {step_ms} ms");
                }
                let Some(group) = wanted(group, &command.rules) else { continue };
                let request = BackfillRequest {
                    org: command.org.clone(),
                    group: group_text(&group),
                    start_ms: start.as_ms(),
                    end_ms: end.as_ms(),
                    step_ms,
                    continues: false,
                };
                all.push(GroupBackfill { name: group.name, rules: group.rules.len(), request });
            }
        }
    }
    if all.is_empty() {
        bail!("the files have no such recording rule");
    }
    Ok(all)
}

/// Returns the group with its recording rules of these names, or of any name if there are no names.
/// None: it has no such rule.
fn wanted(mut group: RuleGroup, names: &[String]) -> Option<RuleGroup> {
    let is_named = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    group.rules.retain(|rule| rule.alerting().is_none() && is_named(rule.name()));
    (!group.rules.is_empty()).then_some(group)
}

fn open(settings: &Settings, groups: &[GroupBackfill]) -> anyhow::Result<Writer> {
    let unopened = || format!("no server runs on {}, and it cannot be opened", settings.data_dir.display());
    let accounts = OpenAccounts::open(settings, Clock::System).with_context(unopened)?;
    let mut org = Err("there is no recording rule".to_owned());
    for group in groups {
        org = accounts.admit_backfill(&group.request);
        if org.is_err() {
            break;
        }
    }
    accounts.close().context("the folder was not closed cleanly")?;
    let org = org.map_err(|words| anyhow!(words))?;
    let store = OpenStore::open(&settings.data_dir, Clock::System).with_context(unopened)?;
    Ok(Writer::Folder(Box::new(store), org))
}

impl Writer {
    /// Backfills a group and prints the number of written samples.
    fn backfill(&mut self, group: GroupBackfill) -> anyhow::Result<()> {
        let GroupBackfill { name, rules, mut request } = group;
        let (mut stored, mut refused) = (0, 0);
        loop {
            let part = self.write(&request).with_context(|| name.clone())?;
            (stored, refused) = (stored + part.stored, refused + part.refused);
            let Some(next_ms) = part.next_ms else { break };
            (request.start_ms, request.continues) = (next_ms, true);
        }
        let (stored, refused, s) = (number(stored), number(refused), if rules == 1 { "" } else { "s" });
        print_line(format_args!("{name}: {rules} rule{s}, {stored} samples, {refused} refused"))
    }

    fn write(&mut self, request: &BackfillRequest) -> anyhow::Result<BackfillPart> {
        match self {
            Writer::Server(client) => {
                match client.request(&AdminRequest::Backfill { request: request.clone() }) {
                    Err(AdminError::Refused(words)) => Err(anyhow!(words)),
                    part => Ok(part?),
                }
            }
            Writer::Folder(store, org) => store.backfill(*org, request).map_err(|words| anyhow!(words)),
        }
    }

    fn close(self) -> anyhow::Result<()> {
        match self {
            Writer::Server(_) => Ok(()),
            Writer::Folder(store, _) => {
                store.close().context("the folder was not closed cleanly; the next start checks everything")
            }
        }
    }
}
