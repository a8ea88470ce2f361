//! Mails that wait to be sent, and when each is tried: a schedule without thread or clock.
//!
//! A server that cannot be reached is left alone by all mails together, for 5 s, then 10, up to 5 minutes; a mail that it
//! does not want yet (4xx: greylisting, a full mailbox) is tried again alone, up to every 15 minutes. A link is tried for
//! as long as it is good, everything else for a day. What the server refuses for good is not tried again.

use std::collections::VecDeque;
use std::time::Duration;

use crate::model::Timestamp;

use super::Mail;

/// Mails that may wait; a server that takes none for that long loses the next ones, said in the log.
pub(super) const WAITING_MAX: usize = 256;
/// Of those, mails that people without an account cause; the rest of the queue is kept for accounts.
const WAITING_STRANGERS_MAX: usize = WAITING_MAX / 2;
/// Whatever is not sent within this time is not sent at all.
const AGE_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The queue is full: the mail is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many mails wait already")]
pub struct QueueFull;

/// How long to wait before the second attempt, and at most before a later one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    pub(super) first: Duration,
    /// Of one mail.
    pub(super) mail_max: Duration,
    /// Of the server.
    pub(super) server_max: Duration,
}

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses {
            first: Duration::from_secs(5),
            mail_max: Duration::from_secs(15 * 60),
            server_max: Duration::from_secs(5 * 60),
        }
    }
}

impl Pauses {
    /// Before the attempt that follows so many failed ones.
    fn after(self, failed: u32, most: Duration) -> Duration {
        let doubled =
            self.first.saturating_mul(1_u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(most)
    }
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// It is sent.
    Sent,
    /// The server does not want this mail yet.
    Later,
    /// The server never wants this mail, or it is none.
    Never,
    /// No server took part, or it wants none of us: the others would fare alike.
    Unreachable,
}

/// A time until which nothing happens, and how long that is at most, so that a clock that is set back stops nothing.
#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Timestamp,
    length: Duration,
}

impl Pause {
    fn of(length: Duration, now: Timestamp) -> Pause {
        Pause { until: now.plus(length), length }
    }

    /// What is left of it.
    fn left(self, now: Timestamp) -> Duration {
        let left = Duration::from_millis(u64::try_from(self.until.ms_since(now)).unwrap_or_default());
        if left > self.length { Duration::ZERO } else { left }
    }
}

/// One mail in the queue.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) mail: Mail,
    /// Attempts so far that were about this mail alone.
    pub(super) failed: u32,
    pause: Option<Pause>,
    tried: bool,
}

impl Waiting {
    /// Whether nobody would want it any more.
    fn is_over(&self, now: Timestamp) -> bool {
        let lives = match self.mail.expires_in {
            Duration::ZERO => AGE_MAX,
            link => link.min(AGE_MAX),
        };
        now >= self.mail.at.plus(lives)
    }
}

/// What is to be done now.
#[derive(Debug)]
pub(super) enum Next {
    /// Send it.
    Send(Waiting),
    /// Its time is over; it is out of the queue.
    GiveUp(Waiting),
    /// Nothing for this long, unless another mail comes.
    Wait(Duration),
    /// Nothing until another mail comes.
    Idle,
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    waiting: VecDeque<Waiting>,
    pauses: Pauses,
    /// How often in a row the server could not be reached, and until when it is left alone.
    unreachable: u32,
    pause: Option<Pause>,
}

impl Schedule {
    pub(super) fn new(pauses: Pauses) -> Schedule {
        Schedule { pauses, ..Schedule::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether the last attempt reached a server that takes mail from us.
    pub(super) const fn is_well(&self) -> bool {
        self.unreachable == 0
    }

    /// # Errors
    /// [`QueueFull`].
    pub(super) fn push(&mut self, mail: Mail) -> Result<(), QueueFull> {
        let most = if mail.kind.may_go_to_strangers() { WAITING_STRANGERS_MAX } else { WAITING_MAX };
        if self.waiting.len() >= most {
            return Err(QueueFull);
        }
        self.waiting.push_back(Waiting { mail, failed: 0, pause: None, tried: false });
        Ok(())
    }

    /// Takes what is due out of the queue, oldest first.
    pub(super) fn next(&mut self, now: Timestamp) -> Next {
        if let Some(at) = self.waiting.iter().position(|one| one.is_over(now))
            && let Some(over) = self.waiting.remove(at)
        {
            return Next::GiveUp(over);
        }
        let server = self.pause.map_or(Duration::ZERO, |pause| pause.left(now));
        let wait = |one: &Waiting| one.pause.map_or(Duration::ZERO, |pause| pause.left(now)).max(server);
        let Some((at, soonest)) =
            self.waiting.iter().map(wait).enumerate().min_by_key(|(at, wait)| (*wait, *at))
        else {
            return Next::Idle;
        };
        match self.waiting.get(at).filter(|_| soonest.is_zero()).is_some() {
            true => self.waiting.remove(at).map_or(Next::Idle, Next::Send),
            false => Next::Wait(soonest),
        }
    }

    /// Notes what came of an attempt; answers when the mail is tried again, if it is.
    pub(super) fn came(&mut self, mut one: Waiting, came: Came, now: Timestamp) -> Option<Duration> {
        one.tried = true;
        if came != Came::Unreachable {
            (self.unreachable, self.pause) = (0, None);
        }
        match came {
            Came::Sent | Came::Never => None,
            Came::Later => {
                one.failed = one.failed.saturating_add(1);
                let length = self.pauses.after(one.failed, self.pauses.mail_max);
                one.pause = Some(Pause::of(length, now));
                self.waiting.push_back(one);
                Some(length)
            }
            Came::Unreachable => {
                self.unreachable = self.unreachable.saturating_add(1);
                let length = self.pauses.after(self.unreachable, self.pauses.server_max);
                self.pause = Some(Pause::of(length, now));
                // It had its turn; its order is kept.
                self.waiting.push_front(one);
                Some(length)
            }
        }
    }

    /// At the end: only what was never tried is worth one attempt. Answers how many are let go.
    pub(super) fn keep_untried(&mut self) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|one| !one.tried);
        before - self.waiting.len()
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

    fn taken(next: Next) -> Waiting {
        match next {
            Next::Send(one) => one,
            other => panic!("{other:?}"),
        }
    }

    fn waits(next: &Next) -> u64 {
        match next {
            Next::Wait(left) => left.as_secs(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_server_that_is_away_is_asked_less_and_less_often_and_the_mail_arrives() {
        let mut schedule = Schedule::default();
        schedule.push(link("a")).expect("room");
        schedule.push(link("b")).expect("room");
        let mut now = 0;
        for pause in [5, 10, 20, 40, 80] {
            let one = taken(schedule.next(at(now)));
            assert_eq!(one.mail.to, "a", "the oldest stays the first");
            let again = schedule.came(one, Came::Unreachable, at(now));
            assert_eq!(again, Some(Duration::from_secs(pause)));
            assert!(!schedule.is_well());
            assert_eq!(waits(&schedule.next(at(now))), pause, "nobody else is tried meanwhile");
            now += pause;
        }
        for to in ["a", "b"] {
            let one = taken(schedule.next(at(now)));
            assert_eq!(one.mail.to, to);
            assert_eq!(schedule.came(one, Came::Sent, at(now)), None);
        }
        assert!(schedule.is_well() && matches!(schedule.next(at(now)), Next::Idle));
    }

    #[test]
    fn a_mail_that_is_not_wanted_yet_keeps_no_other_one_waiting() {
        let mut schedule = Schedule::default();
        schedule.push(link("a")).expect("room");
        schedule.push(link("b")).expect("room");
        let one = taken(schedule.next(T0));
        assert_eq!(schedule.came(one, Came::Later, T0), Some(Duration::from_secs(5)));
        assert!(schedule.is_well(), "the server is there");
        let other = taken(schedule.next(T0));
        assert_eq!(other.mail.to, "b");
        assert_eq!(
            schedule.came(other, Came::Never, T0),
            None,
            "what is refused for good is not tried again"
        );
        assert_eq!(waits(&schedule.next(at(1))), 4);
        let one = taken(schedule.next(at(5)));
        assert_eq!(schedule.came(one, Came::Later, at(5)), Some(Duration::from_secs(10)));
        assert_eq!(schedule.len(), 1);
    }

    #[test]
    fn a_link_is_tried_while_it_is_good_and_a_notice_for_a_day() {
        let mut schedule = Schedule::default();
        schedule.push(link("a")).expect("room");
        schedule.push(Mail::notice("b", MailKind::PasswordChanged, T0)).expect("room");
        let week = Duration::from_secs(7 * 86_400);
        schedule.push(Mail { kind: MailKind::Invite, expires_in: week, ..link("c") }).expect("room");
        let one = taken(schedule.next(T0));
        schedule.came(one, Came::Unreachable, T0);
        assert!(matches!(schedule.next(at(600)), Next::GiveUp(one) if one.mail.to == "a"));
        let one = taken(schedule.next(at(600)));
        assert_eq!(one.mail.to, "b");
        schedule.came(one, Came::Unreachable, at(600));
        for to in ["b", "c"] {
            assert!(matches!(schedule.next(at(86_400)), Next::GiveUp(one) if one.mail.to == to));
        }
        assert!(matches!(schedule.next(at(86_400)), Next::Idle));
    }

    #[test]
    fn pauses_end_however_long_it_takes_and_whatever_the_clock_does() {
        let mut schedule = Schedule::default();
        let now = T0;
        schedule.push(Mail::notice("a", MailKind::PasswordChanged, now)).expect("room");
        for _ in 0..40 {
            let one = match schedule.next(now.plus(Duration::from_secs(300))) {
                Next::Send(one) => one,
                other => panic!("{other:?}"),
            };
            let again = schedule.came(one, Came::Unreachable, now).expect("again");
            assert!(again <= Duration::from_secs(300), "{again:?}");
        }
        // Set back by an hour: what was to come in five minutes comes now and not in an hour and five minutes.
        assert!(matches!(schedule.next(now.plus_ms(-3_600_000)), Next::Send(_)));
    }

    #[test]
    fn the_queue_is_bounded_and_at_the_end_what_was_never_tried_is_left() {
        let mut schedule = Schedule::default();
        for n in 0..WAITING_MAX {
            schedule.push(link(&n.to_string())).expect("room");
        }
        assert_eq!(schedule.push(link("x")), Err(QueueFull));
        let one = taken(schedule.next(T0));
        schedule.came(one, Came::Later, T0);
        assert_eq!(schedule.keep_untried(), 1);
        assert_eq!(schedule.len(), WAITING_MAX - 1);
    }

    #[test]
    fn invitations_and_sign_ups_leave_half_of_the_queue_to_accounts() {
        let mut schedule = Schedule::default();
        let invitation = || Mail { kind: MailKind::Invite, ..link("x") };
        for _ in 0..WAITING_STRANGERS_MAX {
            schedule.push(invitation()).expect("room");
        }
        assert_eq!(schedule.push(invitation()), Err(QueueFull));
        assert_eq!(schedule.push(Mail { kind: MailKind::Signup, ..link("x") }), Err(QueueFull));
        for _ in WAITING_STRANGERS_MAX..WAITING_MAX {
            schedule.push(link("ada")).expect("room");
        }
        assert_eq!(schedule.push(link("ada")), Err(QueueFull));
    }
}
