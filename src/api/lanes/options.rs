//! The sizes of the lanes.

use std::time::Duration;

/// The size of a lane.
#[derive(Clone, Copy, Debug)]
pub struct LaneOptions {
    /// The number of threads, and so the most jobs that run at once.
    pub threads: usize,
    /// The most waiting jobs, inclusive.
    pub queue: usize,
    /// The time after which a waiting job is refused.
    pub wait: Duration,
    /// The most threads of one organisation, inclusive.
    pub threads_per_org: usize,
}

/// The sizes of all lanes.
#[derive(Clone, Copy, Debug)]
pub struct LanesOptions {
    /// [`Lane::Ingest`](super::Lane::Ingest).
    pub ingest: LaneOptions,
    /// [`Lane::Query`](super::Lane::Query).
    pub query: LaneOptions,
    /// The most query threads of one organisation while another one is active on that lane.
    pub query_threads_shared: usize,
    /// The most ingest threads of one organisation while another one is active on that lane.
    pub ingest_threads_shared: usize,
    /// The time for which an organisation counts as active after its last request.
    pub activity_window: Duration,
    /// The lane that encodes and compresses chunks of large results:
    /// [`Lanes::run_answer`](super::Lanes::run_answer).
    pub answer: LaneOptions,
    /// [`Lane::Password`](super::Lane::Password).
    pub password: LaneOptions,
    /// [`Lane::Account`](super::Lane::Account).
    pub account: LaneOptions,
}

impl LanesOptions {
    /// Returns the sizes of docs/specification.md C5 and D2 for a machine with `cores` cores.
    pub fn for_cores(cores: usize) -> LanesOptions {
        let lane = |threads: usize, queue, wait_ms| LaneOptions {
            threads,
            queue,
            wait: Duration::from_millis(wait_ms),
            threads_per_org: threads,
        };
        let queries = cores.saturating_mul(2).max(2);
        LanesOptions {
            // One of these waits for disk syncs while the others decode the next group.
            ingest: lane(cores.saturating_add(1).max(2), 64, 2_000),
            query: LaneOptions { threads_per_org: (queries / 2).max(1), ..lane(queries, 32, 1_000) },
            query_threads_shared: cores.saturating_sub(1).max(1),
            ingest_threads_shared: cores.max(1),
            activity_window: Duration::from_secs(1),
            // A connection has at most one chunk here, which takes about a millisecond. So one
            // thread works a full queue off in about a second.
            answer: LaneOptions { threads_per_org: cores.div_ceil(2), ..lane(cores.max(2), 1_024, 60_000) },
            password: lane(cores.clamp(1, 4), 32, 2_000),
            // These threads wait for disk syncs, which the committer groups: more threads make
            // larger groups.
            account: lane(8, 256, 10_000),
        }
    }

    /// Returns the sizes for the cores of this machine.
    pub fn for_this_machine() -> LanesOptions {
        LanesOptions::for_cores(std::thread::available_parallelism().map_or(2, usize::from))
    }
}
