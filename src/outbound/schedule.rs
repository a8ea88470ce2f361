//! The schedule of queued mails and their attempts, without a thread or a clock.
//!
//! If the server cannot be reached, no mail is tried for 5 s, then 10 s, and so on up to 5 minutes.
//! A mail that the server does not accept yet (4xx: greylisting, a full mailbox) is delayed for up
//! to 15 minutes, without delaying others. A link is tried while it is valid, but at most for a
//! day; every other mail is tried for a day. A mail that the server refuses permanently is not
//! tried again.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::Timestamp;

use super::Mail;

/// The maximal number of queued mails. Further mails are dropped and logged.
pub(super) const QUEUED_MAX: usize = 256;
/// The maximal number of queued mails that requests without an account cause. The rest of the queue
/// is reserved for accounts.
const QUEUED_STRANGERS_MAX: usize = QUEUED_MAX / 2;
/// The maximal age of a mail; an older one is dropped.
const AGE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The queue is full and the mail was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many mails are already waiting")]
pub struct QueueFull;

/// The delay before the second attempt, and the upper bounds of later delays.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryDelays {
    pub(super) first: Duration,
    /// The upper bound for one mail.
    pub(super) mail_max: Duration,
    /// The upper bound for the server.
    pub(super) server_max: Duration,
}

impl Default for RetryDelays {
    fn default() -> RetryDelays {
        RetryDelays {
            first: Duration::from_secs(5),
            mail_max: Duration::from_secs(15 * 60),
            server_max: Duration::from_secs(5 * 60),
        }
    }
}

impl RetryDelays {
    /// Returns the delay after `failed` failed attempts, which doubles each time up to `most`.
    fn after(self, failed: u32, most: Duration) -> Duration {
        let doubled =
            self.first.saturating_mul(1_u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(most)
    }
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendOutcome {
    /// The mail was sent.
    Sent,
    /// The server does not accept this mail yet.
    Later,
    /// The server will never accept this mail, or the mail is invalid.
    Never,
    /// No server was reached, or it accepts no mail from us, so other mails would fail too.
    Unreachable,
}

/// A delay until a time. It is never longer than its length, so setting the clock back does not
/// prolong it.
#[derive(Clone, Copy, Debug)]
struct Delay {
    until: Timestamp,
    length: Duration,
}

impl Delay {
    fn of(length: Duration, now: Timestamp) -> Delay {
        Delay { until: now.plus(length), length }
    }

    /// Returns the remaining delay.
    fn left(self, now: Timestamp) -> Duration {
        let left = Duration::from_millis(u64::try_from(self.until.ms_since(now)).unwrap_or_default());
        if left > self.length { Duration::ZERO } else { left }
    }
}

/// One mail in the queue.
#[derive(Debug)]
pub(super) struct QueuedMail {
    pub(super) mail: Mail,
    /// The number of failed attempts that concerned this mail alone.
    pub(super) failed: u32,
    delay: Option<Delay>,
    tried: bool,
}

impl QueuedMail {
    /// Returns whether the mail has expired.
    fn has_expired(&self, now: Timestamp) -> bool {
        let lives = match self.mail.expires_in {
            Duration::ZERO => AGE_MAX,
            link => link.min(AGE_MAX),
        };
        now >= self.mail.at.plus(lives)
    }
}

/// The next action of the queue's thread.
#[derive(Debug)]
pub(super) enum NextAction {
    /// Sends the mail.
    Send(QueuedMail),
    /// Drops the mail, which has expired and is out of the queue.
    Drop(QueuedMail),
    /// Waits this long, or until a mail arrives.
    Wait(Duration),
    /// Waits until a mail arrives.
    Idle,
}

/// The queued mails and the state of the server.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    queued: VecDeque<QueuedMail>,
    delays: RetryDelays,
    /// The number of consecutive attempts that did not reach the server.
    unreachable: u32,
    /// The delay during which no mail is tried.
    delay: Option<Delay>,
}

impl Schedule {
    pub(super) fn new(delays: RetryDelays) -> Schedule {
        Schedule { delays, ..Schedule::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.queued.len()
    }

    /// Returns whether the last attempt reached a server that accepts our mail.
    pub(super) const fn is_healthy(&self) -> bool {
        self.unreachable == 0
    }

    /// Queues a mail.
    ///
    /// # Errors
    /// [`QueueFull`], if the share of the queue is used up.
    pub(super) fn push(&mut self, mail: Mail) -> Result<(), QueueFull> {
        let most = if mail.kind.may_go_to_strangers() { QUEUED_STRANGERS_MAX } else { QUEUED_MAX };
        if self.queued.len() >= most {
            return Err(QueueFull);
        }
        self.queued.push_back(QueuedMail { mail, failed: 0, delay: None, tried: false });
        Ok(())
    }

    /// Removes the next due mail from the queue, oldest first, or returns how long to wait.
    pub(super) fn next(&mut self, now: Timestamp) -> NextAction {
        if let Some(at) = self.queued.iter().position(|one| one.has_expired(now))
            && let Some(over) = self.queued.remove(at)
        {
            return NextAction::Drop(over);
        }
        let server = self.delay.map_or(Duration::ZERO, |delay| delay.left(now));
        let wait = |one: &QueuedMail| one.delay.map_or(Duration::ZERO, |delay| delay.left(now)).max(server);
        let Some((at, soonest)) =
            self.queued.iter().map(wait).enumerate().min_by_key(|(at, wait)| (*wait, *at))
        else {
            return NextAction::Idle;
        };
        match self.queued.get(at).filter(|_| soonest.is_zero()).is_some() {
            true => self.queued.remove(at).map_or(NextAction::Idle, NextAction::Send),
            false => NextAction::Wait(soonest),
        }
    }

    /// Records the outcome of an attempt. Returns the delay before the next one, if there is one.
    pub(super) fn record(
        &mut self,
        mut one: QueuedMail,
        outcome: SendOutcome,
        now: Timestamp,
    ) -> Option<Duration> {
        one.tried = true;
        if outcome != SendOutcome::Unreachable {
            (self.unreachable, self.delay) = (0, None);
        }
        match outcome {
            SendOutcome::Sent | SendOutcome::Never => None,
            SendOutcome::Later => {
                one.failed = one.failed.saturating_add(1);
                let length = self.delays.after(one.failed, self.delays.mail_max);
                one.delay = Some(Delay::of(length, now));
                self.queued.push_back(one);
                Some(length)
            }
            SendOutcome::Unreachable => {
                self.unreachable = self.unreachable.saturating_add(1);
                let length = self.delays.after(self.unreachable, self.delays.server_max);
                self.delay = Some(Delay::of(length, now));
                // The mail stays first in the queue.
                self.queued.push_front(one);
                Some(length)
            }
        }
    }

    /// Drops all mails that were tried, because a stop gives only untried mails an attempt. Returns
    /// their number.
    pub(super) fn drop_tried(&mut self) -> usize {
        let before = self.queued.len();
        self.queued.retain(|one| !one.tried);
        before - self.queued.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbound::MailKind;

    const T0: Timestamp = Timestamp::from_s(1_800_000_000);

    fn at(s: u64) -> Timestamp {
        T0.plus(Duration::from_secs(s))
    }

    fn link(to: &str) -> Mail {
        let url = "http://localhost/x".to_owned();
        Mail { to: to.into(), kind: MailKind::MagicLink, url, expires_in: Duration::from_secs(600), at: T0 }
    }

    fn taken(next: NextAction) -> QueuedMail {
        match next {
            NextAction::Send(one) => one,
            other => panic!("{other:?}"),
        }
    }

    fn waits(next: &NextAction) -> u64 {
        match next {
            NextAction::Wait(left) => left.as_secs(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn attempts_back_off_while_the_server_is_unreachable_and_the_mail_arrives() {
        let mut schedule = Schedule::default();
        schedule.push(link("a")).expect("room");
        schedule.push(link("b")).expect("room");
        let mut now = 0;
        for delay in [5, 10, 20, 40, 80] {
            let one = taken(schedule.next(at(now)));
            assert_eq!(one.mail.to, "a", "the oldest mail stays first");
            let retry_in = schedule.record(one, SendOutcome::Unreachable, at(now));
            assert_eq!(retry_in, Some(Duration::from_secs(delay)));
            assert!(!schedule.is_healthy());
            assert_eq!(waits(&schedule.next(at(now))), delay, "no other mail is tried meanwhile");
            now += delay;
        }
        for to in ["a", "b"] {
            let one = taken(schedule.next(at(now)));
            assert_eq!(one.mail.to, to);
            assert_eq!(schedule.record(one, SendOutcome::Sent, at(now)), None);
        }
        assert!(schedule.is_healthy() && matches!(schedule.next(at(now)), NextAction::Idle));
    }

    #[test]
    fn a_mail_that_is_refused_for_now_does_not_delay_others() {
        let mut schedule = Schedule::default();
        schedule.push(link("a")).expect("room");
        schedule.push(link("b")).expect("room");
        let one = taken(schedule.next(T0));
        assert_eq!(schedule.record(one, SendOutcome::Later, T0), Some(Duration::from_secs(5)));
        assert!(schedule.is_healthy(), "the server was reached");
        let other = taken(schedule.next(T0));
        assert_eq!(other.mail.to, "b");
        assert_eq!(
            schedule.record(other, SendOutcome::Never, T0),
            None,
            "a permanent refusal is not tried again"
        );
        assert_eq!(waits(&schedule.next(at(1))), 4);
        let one = taken(schedule.next(at(5)));
        assert_eq!(schedule.record(one, SendOutcome::Later, at(5)), Some(Duration::from_secs(10)));
        assert_eq!(schedule.len(), 1);
    }

    #[test]
    fn a_link_is_tried_while_it_is_valid_and_a_notice_for_a_day() {
        let mut schedule = Schedule::default();
        schedule.push(link("a")).expect("room");
        schedule.push(Mail::notice("b", MailKind::PasswordChanged, T0)).expect("room");
        let week = Duration::from_secs(7 * 86_400);
        schedule.push(Mail { kind: MailKind::Invite, expires_in: week, ..link("c") }).expect("room");
        let one = taken(schedule.next(T0));
        schedule.record(one, SendOutcome::Unreachable, T0);
        assert!(matches!(schedule.next(at(600)), NextAction::Drop(one) if one.mail.to == "a"));
        let one = taken(schedule.next(at(600)));
        assert_eq!(one.mail.to, "b");
        schedule.record(one, SendOutcome::Unreachable, at(600));
        for to in ["b", "c"] {
            assert!(matches!(schedule.next(at(86_400)), NextAction::Drop(one) if one.mail.to == to));
        }
        assert!(matches!(schedule.next(at(86_400)), NextAction::Idle));
    }

    #[test]
    fn delays_are_bounded_and_end_when_the_clock_is_set_back() {
        let mut schedule = Schedule::default();
        let now = T0;
        schedule.push(Mail::notice("a", MailKind::PasswordChanged, now)).expect("room");
        for _ in 0..40 {
            let one = match schedule.next(now.plus(Duration::from_secs(300))) {
                NextAction::Send(one) => one,
                other => panic!("{other:?}"),
            };
            let retry_in = schedule.record(one, SendOutcome::Unreachable, now).expect("tried again");
            assert!(retry_in <= Duration::from_secs(300), "{retry_in:?}");
        }
        // The clock is set back by an hour. The mail is due at once, not in an hour and five
        // minutes.
        assert!(matches!(schedule.next(now.plus_ms(-3_600_000)), NextAction::Send(_)));
    }

    #[test]
    fn the_queue_is_bounded_and_a_stop_keeps_only_untried_mails() {
        let mut schedule = Schedule::default();
        for n in 0..QUEUED_MAX {
            schedule.push(link(&n.to_string())).expect("room");
        }
        assert_eq!(schedule.push(link("x")), Err(QueueFull));
        let one = taken(schedule.next(T0));
        schedule.record(one, SendOutcome::Later, T0);
        assert_eq!(schedule.drop_tried(), 1);
        assert_eq!(schedule.len(), QUEUED_MAX - 1);
    }

    #[test]
    fn invitations_and_sign_ups_leave_half_of_the_queue_to_accounts() {
        let mut schedule = Schedule::default();
        let invitation = || Mail { kind: MailKind::Invite, ..link("x") };
        for _ in 0..QUEUED_STRANGERS_MAX {
            schedule.push(invitation()).expect("room");
        }
        assert_eq!(schedule.push(invitation()), Err(QueueFull));
        assert_eq!(schedule.push(Mail { kind: MailKind::Signup, ..link("x") }), Err(QueueFull));
        for _ in QUEUED_STRANGERS_MAX..QUEUED_MAX {
            schedule.push(link("ada")).expect("room");
        }
        assert_eq!(schedule.push(link("ada")), Err(QueueFull));
    }
}
