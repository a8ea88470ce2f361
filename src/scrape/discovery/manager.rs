//! All discoveries of a configuration, and the targets that they make.

use std::sync::Arc;

use super::files::FileReader;
use super::settings::DiscoveryConfig;
use super::state::{DiscoveryState, DiscoveryStatus, RefreshAnswer};
use crate::model::Timestamp;
use crate::scrape::config::{ScrapeConfig, ScrapeJob};
use crate::scrape::target::{JobTargets, TARGETS_MAX, job_targets};

/// The targets of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveredTargets {
    /// The targets of each job, in the order of the configuration.
    pub jobs: Vec<Arc<JobTargets>>,
}

/// The discoveries of one job, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDiscoveries {
    /// The name of the job.
    pub job: Arc<str>,
    /// Its discoveries.
    pub discoveries: Vec<DiscoveryStatus>,
}

/// Names a discovery of a manager. It stays valid after [`DiscoveryManager::reconfigure`], and then
/// may name a discovery that no longer exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DiscoveryId(u64);

#[derive(Debug)]
struct DiscoverySlot {
    id: DiscoveryId,
    state: DiscoveryState,
    files: FileReader,
}

#[derive(Debug)]
struct JobDiscovery {
    job: Arc<ScrapeJob>,
    slots: Vec<DiscoverySlot>,
    /// `None` if the groups changed since the targets were built.
    targets: Option<Arc<JobTargets>>,
}

/// The discoveries of a configuration. The caller makes the requests.
#[derive(Debug, Default)]
pub struct DiscoveryManager {
    jobs: Vec<JobDiscovery>,
    next_id: u64,
}

/// A refresh to start.
#[derive(Clone, Debug)]
pub struct DueRefresh {
    /// The discovery.
    pub id: DiscoveryId,
    /// The source to read.
    pub config: DiscoveryConfig,
}

impl DiscoveryManager {
    /// Takes over a configuration. Discoveries that are equal to one before keep their groups.
    pub fn reconfigure(&mut self, config: &ScrapeConfig, now: Timestamp) {
        let mut before: Vec<DiscoverySlot> =
            std::mem::take(&mut self.jobs).into_iter().flat_map(|job| job.slots).collect();
        for job in &config.jobs {
            let mut slots = Vec::with_capacity(job.discoveries.len());
            for discovery in &job.discoveries {
                let known = before.iter().position(|slot| slot.state.config() == discovery);
                slots.push(match known {
                    Some(place) => before.swap_remove(place),
                    None => {
                        self.next_id += 1;
                        DiscoverySlot {
                            id: DiscoveryId(self.next_id),
                            state: DiscoveryState::new(discovery.clone(), now),
                            files: FileReader::default(),
                        }
                    }
                });
            }
            self.jobs.push(JobDiscovery { job: Arc::clone(job), slots, targets: None });
        }
    }

    fn slots(&self) -> impl Iterator<Item = &DiscoverySlot> {
        self.jobs.iter().flat_map(|job| &job.slots)
    }

    /// Returns when the next refresh is due. `None` if there is none.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.slots().filter_map(|slot| slot.state.due()).min()
    }

    /// Returns whether a discovery has not answered for the first time yet.
    pub fn awaits_first_answer(&self) -> bool {
        self.slots().any(|slot| !slot.state.has_answered())
    }

    /// Refreshes the due discoveries of files, and returns the others, whose refreshes are to be
    /// started. Blocks while it reads files.
    pub fn refresh(&mut self, now: Timestamp) -> Vec<DueRefresh> {
        let mut to_start = Vec::new();
        for job in &mut self.jobs {
            for slot in &mut job.slots {
                if slot.state.due().is_none_or(|due| due > now) {
                    continue;
                }
                match slot.state.config() {
                    DiscoveryConfig::File(config) => {
                        let answer = slot.files.read(config);
                        if slot.state.answered(now, answer) {
                            job.targets = None;
                        }
                    }
                    other => {
                        to_start.push(DueRefresh { id: slot.id, config: other.clone() });
                        slot.state.started(now);
                    }
                }
            }
        }
        to_start
    }

    /// Applies the answer of a refresh. One of a discovery that no longer exists is ignored.
    pub fn answered(&mut self, id: DiscoveryId, now: Timestamp, answer: RefreshAnswer) {
        for job in &mut self.jobs {
            if let Some(slot) = job.slots.iter_mut().find(|slot| slot.id == id) {
                if slot.state.answered(now, answer) {
                    job.targets = None;
                }
                return;
            }
        }
    }

    /// Returns the targets if they changed since the last call.
    pub fn changed_targets(&mut self) -> Option<DiscoveredTargets> {
        if self.jobs.iter().all(|job| job.targets.is_some()) {
            return None;
        }
        let mut room = TARGETS_MAX;
        let mut targets = DiscoveredTargets::default();
        for job in &mut self.jobs {
            let JobDiscovery { job, slots, targets: kept } = job;
            let groups = slots.iter().flat_map(|slot| slot.state.groups());
            let of_job = kept.get_or_insert_with(|| Arc::new(job_targets(job, groups)));
            let of_job = limited(of_job, room);
            room = room.saturating_sub(of_job.active.len());
            targets.jobs.push(of_job);
        }
        Some(targets)
    }

    /// Returns the state of all discoveries.
    pub fn statuses(&self) -> Vec<JobDiscoveries> {
        let of_job = |job: &JobDiscovery| JobDiscoveries {
            job: Arc::clone(&job.job.name),
            discoveries: job.slots.iter().map(|slot| slot.state.status()).collect(),
        };
        self.jobs.iter().map(of_job).collect()
    }
}

/// Returns the targets with at most `count` active ones.
fn limited(targets: &Arc<JobTargets>, count: usize) -> Arc<JobTargets> {
    if targets.active.len() <= count {
        return Arc::clone(targets);
    }
    let mut limited = JobTargets::clone(targets);
    limited.limit_active(count);
    Arc::new(limited)
}

#[cfg(test)]
mod tests {
    use super::super::settings::TargetGroup;
    use super::super::state::SourceAnswer;
    use super::*;
    use crate::model::Labels;
    use crate::scrape::config::ScrapeFiles;

    fn config(text: &str) -> ScrapeConfig {
        ScrapeConfig::parse(text, &ScrapeFiles::Refused).expect("valid")
    }

    const DNS: &str = "scrape_configs:\n- job_name: a\n  static_configs: [{targets: [x]}]\n  \
                       dns_sd_configs: [{names: [web], type: A, port: 80}]\n";

    fn urls(targets: &DiscoveredTargets) -> Vec<&str> {
        targets.jobs.iter().flat_map(|job| &job.active).map(|target| target.url.as_str()).collect()
    }

    fn answer(target: &str) -> RefreshAnswer {
        let group = TargetGroup { targets: vec![target.to_owned()], labels: Labels::default() };
        Ok(vec![("web".to_owned(), SourceAnswer::Groups(vec![group]))])
    }

    #[test]
    fn answers_change_the_targets_of_their_job_and_equal_discoveries_keep_theirs() {
        let at = Timestamp::from_ms;
        let mut manager = DiscoveryManager::default();
        manager.reconfigure(&config(DNS), at(0));
        assert!(manager.awaits_first_answer());
        let due = manager.refresh(at(0));
        assert_eq!(due.len(), 1);
        assert!(manager.refresh(at(1)).is_empty(), "it is on its way");
        assert_eq!(urls(&manager.changed_targets().expect("new")), ["http://x/metrics"]);
        assert_eq!(manager.changed_targets(), None);
        manager.answered(due[0].id, at(2), answer("y"));
        let both = ["http://x/metrics", "http://y/metrics"];
        assert_eq!(urls(&manager.changed_targets().expect("changed")), both);
        assert!(!manager.awaits_first_answer());
        manager.answered(due[0].id, at(3), answer("y"));
        assert_eq!(manager.changed_targets(), None, "nothing changed");
        manager.answered(due[0].id, at(4), Err("no server".to_owned()));
        assert_eq!(manager.changed_targets(), None, "the last groups are kept");
        assert_eq!(manager.statuses()[0].discoveries[1].error.as_deref(), Some("no server"));

        manager.reconfigure(&config(&DNS.replace("job_name: a", "job_name: b")), at(5));
        assert_eq!(urls(&manager.changed_targets().expect("another job")), both);
        assert!(!manager.awaits_first_answer());
        manager.reconfigure(&config(&DNS.replace("port: 80", "port: 81")), at(6));
        assert_eq!(urls(&manager.changed_targets().expect("another discovery")), ["http://x/metrics"]);
        manager.answered(due[0].id, at(7), answer("late"));
        assert_eq!(manager.changed_targets(), None, "an answer of the discovery before");
    }
}
