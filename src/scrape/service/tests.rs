//! Tests of the configurations of organisations: the targets that run, their status, and the stored
//! state.

use std::time::Duration;

use super::*;
use crate::clock::Clock;
use crate::model::{ByteBudget, EgressRules, Timestamp, WriteBatch};
use crate::outbound::Egress;
use crate::scrape::config::ScrapeFiles;
use crate::scrape::run::{ScrapeDone, ScrapeLiveSeries, ScrapeSink, ScrapeStored, ScrapeWork};

const ORG: OrgId = OrgId(1);

/// A sink and a memory that record the requested and the remembered label sets.
#[derive(Default)]
struct Recorder {
    before: Vec<Labels>,
    asked: Mutex<Vec<Labels>>,
    remembered: Mutex<Vec<Labels>>,
}

impl ScrapeSink for Recorder {
    fn spawn(&self, _: OrgId, work: ScrapeWork, _: Duration) -> bool {
        std::thread::spawn(work);
        true
    }

    fn commit(&self, _: OrgId, _: &WriteBatch<'_>, _: Timestamp, done: ScrapeDone) {
        done(Ok(ScrapeStored::default()));
    }

    fn live_series(&self, _: OrgId, labels: &Labels, _: Timestamp) -> Vec<ScrapeLiveSeries> {
        self.asked.lock().ignore_poison().push(labels.clone());
        Vec::new()
    }
}

impl ScrapeMemory for Recorder {
    fn load(&self, _: OrgId) -> Vec<Labels> {
        self.before.clone()
    }

    fn store(&self, _: OrgId, targets: &[Labels]) {
        *self.remembered.lock().ignore_poison() = targets.to_vec();
    }
}

struct Stage {
    recorder: Arc<Recorder>,
    scrapers: Arc<Scrapers>,
    _runtime: tokio::runtime::Runtime,
}

fn stage(recorder: Recorder) -> Stage {
    let recorder = Arc::new(recorder);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let of_file = ScrapeDeps {
        sink: Arc::clone(&recorder) as _,
        egress: Egress::new(EgressRules::default(), &[]),
        runtime: runtime.handle().clone(),
        clock: Clock::System,
        settings: Arc::default(),
        bodies: ByteBudget::new(1_000_000),
    };
    let memory = Some(Arc::clone(&recorder) as _);
    let scrapers = Scrapers::new(ScrapersDeps { of_api: of_file.clone(), of_file, memory, resolver: None });
    Stage { recorder, scrapers, _runtime: runtime }
}

impl Stage {
    fn configure(&self, source: ScrapeSource, version: u32, targets: &str) {
        let text = format!(
            "scrape_configs:\n- job_name: a{version}\n  scrape_interval: 1h\n  static_configs: [{{targets: [{targets}]}}]\n"
        );
        let config = ScrapeConfig::parse(&text, &ScrapeFiles::Refused).expect("valid");
        self.scrapers
            .configure((ORG, source), Arc::new(config), version, Entropy::seeded(1))
            .expect("a thread");
    }

    /// Waits until the shown targets are these.
    #[track_caller]
    fn wait_for(&self, expected: &[&str]) {
        let shown = || -> Vec<String> {
            let reports = self.scrapers.view(ORG).reports;
            let mut urls: Vec<_> = reports.iter().map(|report| report.target.url.clone()).collect();
            urls.sort_unstable();
            urls
        };
        for _ in 0..6_000 {
            if shown() == expected {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{:?} instead of {expected:?}", shown());
    }
}

fn labels(job: &str, instance: &str) -> Labels {
    Labels::from_pairs([("job", job), ("instance", instance)])
}

#[test]
fn the_targets_of_both_configurations_run_and_end_with_theirs() {
    let stage = stage(Recorder::default());
    stage.configure(ScrapeSource::File, 1, "x");
    stage.configure(ScrapeSource::Api, 2, "y");
    stage.wait_for(&["http://x/metrics", "http://y/metrics"]);
    assert_eq!(stage.scrapers.configured(), [(ORG, ScrapeSource::File, 1), (ORG, ScrapeSource::Api, 2)]);
    assert_eq!(stage.scrapers.view(ORG).pools.len(), 2);
    assert_eq!(stage.scrapers.totals()[0].1.unknown, 2);
    stage.configure(ScrapeSource::File, 3, "x, z");
    stage.wait_for(&["http://x/metrics", "http://y/metrics", "http://z/metrics"]);
    stage.scrapers.remove(ORG, ScrapeSource::File);
    stage.wait_for(&["http://y/metrics"]);
    stage.scrapers.forget(ORG);
    assert!(stage.scrapers.configured().is_empty() && stage.scrapers.totals().is_empty());
}

#[test]
fn targets_before_the_start_end_once_all_configurations_are_known() {
    let before = vec![labels("a1", "x"), labels("a2", "y"), labels("a1", "gone")];
    let stage = stage(Recorder { before, ..Recorder::default() });
    stage.configure(ScrapeSource::File, 1, "x");
    stage.wait_for(&["http://x/metrics"]);
    stage.configure(ScrapeSource::Api, 2, "y");
    stage.wait_for(&["http://x/metrics", "http://y/metrics"]);
    assert!(stage.recorder.asked.lock().ignore_poison().is_empty(), "a configuration may be missing");
    stage.scrapers.all_configured();
    for _ in 0..6_000 {
        if !stage.recorder.asked.lock().ignore_poison().is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(*stage.recorder.asked.lock().ignore_poison(), [labels("a1", "gone")]);
    assert_eq!(*stage.recorder.remembered.lock().ignore_poison(), [labels("a1", "x"), labels("a2", "y")]);
}
