//! Stops writes of samples after the third panic of background tasks within an hour, because the
//! state of the process is then uncertain. Reads and account changes continue, and `/readyz`
//! reports it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use crate::api::health::Check;
use crate::api::own_metrics::Counters;
use crate::tasks::{Panics, Verdict};
use crate::tsdb::Tsdb;

/// Counts the panics of background tasks.
pub(super) struct PanicMonitor {
    panics: Arc<Panics>,
    why: Arc<OnceLock<String>>,
}

impl PanicMonitor {
    /// Starts to count panics. Holds the store weakly, so that the server can close it.
    pub(super) fn watch(tsdb: &Arc<Tsdb>, counters: &Arc<Counters>) -> PanicMonitor {
        let why: Arc<OnceLock<String>> = Arc::default();
        let (tsdb, counters, reason) = (Arc::downgrade(tsdb), Arc::clone(counters), Arc::clone(&why));
        let panics = Panics::new(move |task, verdict| {
            counters.task_panics.fetch_add(1, Ordering::Relaxed);
            if verdict == Verdict::Continue {
                return;
            }
            let why = reason.get_or_init(|| {
                format!("background tasks panicked three times within an hour, {task} the last")
            });
            tracing::error!(task, "no more samples are accepted: {why}; restart, and report the log");
            if let Some(tsdb) = tsdb.upgrade() {
                tsdb.stop_writes(why);
            }
        });
        PanicMonitor { panics: Arc::new(panics), why }
    }

    pub(super) fn panics(&self) -> Arc<Panics> {
        Arc::clone(&self.panics)
    }

    /// Returns the check for `/readyz`.
    pub(super) fn check(&self) -> Check {
        let why = Arc::clone(&self.why);
        Arc::new(move || why.get().map_or(Ok(()), |why| Err(why.clone())))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::time::Duration;

    use crate::clock::{Clock, Stopwatch};
    use crate::config;
    use crate::model::{Access, BatchBuilder, Labels, OrgId, Sample, TimeRange, Timestamp};
    use crate::server::Server;
    use crate::tsdb::{AppendError, Writes};

    const ORG: OrgId = OrgId(7);

    fn get(server: &Server, path: &str) -> String {
        let mut stream = TcpStream::connect(server.listener.address).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    }

    fn append(server: &Server, at: Timestamp) -> Result<u64, AppendError> {
        let mut batch = BatchBuilder::default();
        batch.series(&Labels::from_pairs([("__name__", "m")]), [Sample { at, value: 1.5 }]);
        server.tsdb.append(ORG, &batch.batch(), at).map(|report| report.stored)
    }

    fn stored(server: &Server) -> usize {
        let snapshot = server.tsdb.snapshot(&Access::whole(ORG));
        let mut out = crate::tsdb::SampleColumns::default();
        for series in snapshot.select(&[], TimeRange::ALL) {
            snapshot.read(series.id, TimeRange::ALL, &mut out);
        }
        out.times.len()
    }

    #[test]
    fn after_the_third_panic_of_background_tasks_within_an_hour_reads_continue_and_writes_stop() {
        let dir = tempfile::tempdir().expect("made");
        let path = dir.path().join("store").display().to_string();
        let settings =
            config::tests::parse(&["--listen", "127.0.0.1:0", "--data-dir", &path]).expect("valid");
        let now = Timestamp::from_s(1_795_000_000);
        let mut server = Server::open(settings, Clock::manual(now), None).expect("opens");
        server.listen().expect("listens");
        assert_eq!(append(&server, now), Ok(1));
        let period = Duration::from_secs(3_600);
        for name in ["broken-1", "broken-2"] {
            server.start_task(name, period, |_| panic!("on purpose")).expect("a thread");
        }
        let eventually = |server: &Server, words: &str| {
            let begun = Stopwatch::start();
            while !get(server, "/metrics").contains(words) {
                assert!(begun.elapsed() < Duration::from_secs(60), "{words}: {}", get(server, "/readyz"));
            }
        };
        eventually(&server, "promlet_task_panics_total 2");
        assert!(get(&server, "/readyz").starts_with("HTTP/1.1 200 "), "two panics are only counted");
        assert_eq!(append(&server, now.plus_ms(1)), Ok(1));
        server.start_task("broken-3", period, |_| panic!("on purpose")).expect("a thread");
        eventually(&server, "promlet_store_writable 0");
        let refused = append(&server, now.plus_ms(2));
        assert!(matches!(&refused, Err(AppendError::Fenced(why)) if why.contains("broken-3")), "{refused:?}");
        assert!(matches!(server.tsdb.health().writes, Writes::Stopped(_)));
        let ready = get(&server, "/readyz");
        assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
        assert!(
            ready.contains("panicked three times within an hour") && ready.contains("broken-3"),
            "{ready}"
        );
        assert_eq!(stored(&server), 2, "reads continue");
        assert!(get(&server, "/healthz").starts_with("HTTP/1.1 200 "));
    }
}
