//! Tests of the SMTP client against servers that misbehave.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};

use super::*;
use crate::clock::{Clock, Stopwatch};
use crate::model::Timestamp;
use crate::outbound::schedule::RetryDelays;
use crate::outbound::{MailKind, MailQueue, Mailer, Outbox};

fn mail() -> Mail {
    Mail {
        to: "ada@example.org".into(),
        kind: MailKind::MagicLink,
        url: "https://metrics.example.org/api/v1/auth/magic-link/verify?token=mgl_x".into(),
        expires_in: Duration::from_secs(600),
        at: Timestamp::from_s(1_800_000_000),
    }
}

/// The library reads the first `tls=` parameter and accepts the scheme in any case.
#[test]
fn urls_that_may_send_mail_unencrypted_are_recognised() {
    let readable = [
        "smtp://mail.example.org",
        "smtp://u:p@mail.example.org:25",
        "smtp://u:p@mail.example.org:587?tls=opportunistic",
        "SMTP://u:p@mail.example.org:587?tls=opportunistic",
        "smtp://u:p@mail.example.org:587?tls=opportunistic&tls=required",
        "smtp://mail.example.org/?tls=opportunistic&x=tls=required",
        "smtp://u:tls=required@mail.example.org",
        "smtp://localhost.example.org",
        "smtp://127.mail.example.org",
        "smtp://192.0.2.1:1025",
    ];
    let fine = [
        "smtps://mail.example.org",
        "smtp://u:p@mail.example.org:587?tls=required",
        "smtp://u:p@mail.example.org:587?t%6cs=required&tls=opportunistic",
        "smtp://127.0.0.1:1025",
        "smtp://127.9.9.9?tls=opportunistic",
        "smtp://[::1]:1025",
        "smtp://LocalHost:1025",
    ];
    for (urls, expected) in [(&readable[..], true), (&fine[..], false)] {
        for url in urls {
            let mailer = SmtpMailer::new(url, "a@b.c", None);
            assert_eq!(mailer.expect(url).sends_readable(), expected, "{url}");
        }
    }
}

/// Acts as a mail server for one mail, and returns the received lines.
fn serve_one(stream: TcpStream) -> String {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut writer = stream;
    let mut received = String::new();
    let mut in_data = false;
    writer.write_all(b"220 test ESMTP\r\n").expect("greeted");
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).expect("a line") == 0 {
            return received;
        }
        received.push_str(&line);
        let answer: &[u8] = match (in_data, line.trim_end()) {
            (true, ".") => {
                in_data = false;
                b"250 taken\r\n"
            }
            (true, _) => continue,
            (false, "DATA") => {
                in_data = true;
                b"354 go on\r\n"
            }
            (false, "QUIT") => b"221 bye\r\n",
            (false, _) => b"250 ok\r\n",
        };
        writer.write_all(answer).expect("answered");
    }
}

#[test]
fn a_mail_reaches_the_server_with_its_link_date_and_addresses() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let port = listener.local_addr().expect("bound").port();
    let server = std::thread::spawn(move || serve_one(listener.accept().expect("a client").0));
    let mailer = SmtpMailer::new(&format!("smtp://127.0.0.1:{port}"), "promlet <promlet@example.org>", None)
        .expect("valid");
    let queue = MailQueue::start(Mailer::Smtp(mailer.into()), Clock::manual(mail().at)).expect("a thread");
    queue.send(mail()).expect("room");
    queue.close();
    let received = server.join().expect("served");
    // Quoted-printable encodes the equals sign as =3D and may break lines with a trailing
    // equals sign.
    let plain = received.replace("=\r\n", "").replace("=3D", "=");
    for expected in [
        "MAIL FROM:<promlet@example.org>",
        "RCPT TO:<ada@example.org>",
        "Subject: Your sign-in link",
        "Date: Fri, 15 Jan 2027 08:00:00 +0000",
        "https://metrics.example.org/api/v1/auth/magic-link/verify?token=mgl_x",
        "10 minutes",
    ] {
        assert!(plain.contains(expected), "{expected:?} in {plain}");
    }
}

#[test]
fn invalid_urls_addresses_and_certificates_are_refused_at_the_start() {
    assert!(matches!(SmtpMailer::new("ftp://x", "a@b.c", None), Err(SmtpError::Url(_))));
    assert!(matches!(SmtpMailer::new("smtp://127.0.0.1:1", "nobody", None), Err(SmtpError::Address(_))));
    let mailer = SmtpMailer::new("smtps://user:secret@127.0.0.1:1", "a@b.c", None).expect("valid");
    assert!(!format!("{mailer:?}").contains("secret"));
    let file = tempfile::NamedTempFile::new().expect("a file");
    let no_certificates = SmtpMailer::new("smtps://mail.example.org", "a@b.c", Some(file.path()));
    assert!(matches!(no_certificates, Err(SmtpError::Certificates { .. })));
    assert!(matches!(
        mailer.message(&Mail { to: "x\r\nRCPT TO:<y@z>".into(), ..mail() }),
        Err(SmtpError::Address(_))
    ));
    assert!(matches!(mailer.send(&mail()), Err(SmtpError::Refused(_))));
}

/// The server shuts down, hangs up, defers the mail, and finally accepts it.
#[test]
fn a_mail_is_tried_again_until_it_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let port = listener.local_addr().expect("bound").port();
    let server = std::thread::spawn(move || {
        for greeting in [&b"421 going down\r\n"[..], b"", b"450 later\r\n"] {
            let mut stream = listener.accept().expect("a client").0;
            stream.write_all(greeting).expect("greeted");
        }
        serve_one(listener.accept().expect("a client").0)
    });
    let mailer = SmtpMailer::new(&format!("smtp://127.0.0.1:{port}"), "promlet@example.org", None);
    let mailer = Mailer::Smtp(mailer.expect("valid").into());
    let soon = Duration::from_millis(1);
    let delays = RetryDelays { first: soon, mail_max: soon, server_max: soon };
    let queue = MailQueue::with(mailer, Clock::System, delays).expect("a thread");
    assert_eq!(queue.health(), Ok(()));
    queue.send(Mail { at: Clock::System.now(), ..mail() }).expect("room");
    assert!(server.join().expect("served").contains("RCPT TO:<ada@example.org>"));
    // The reply to the last line of the mail may still be on its way.
    let started = Stopwatch::start();
    while queue.health().is_err() {
        assert!(started.elapsed() < Duration::from_secs(60), "it never became healthy again");
        std::thread::yield_now();
    }
    queue.close();
}

#[test]
fn a_stop_does_not_wait_for_an_unreachable_server_and_health_reports_it() {
    let mailer = SmtpMailer::new("smtp://127.0.0.1:1", "promlet@example.org", None).expect("valid");
    let mailer = Mailer::Smtp(mailer.into());
    let queue = MailQueue::start(mailer, Clock::manual(mail().at)).expect("a thread");
    for _ in 0..10 {
        queue.send(mail()).expect("room");
    }
    let started = Stopwatch::start();
    let reported = loop {
        match queue.health() {
            Err(reported) => break reported,
            Ok(()) => {
                assert!(started.elapsed() < Duration::from_secs(60), "the failure was never reported")
            }
        }
        std::thread::yield_now();
    };
    assert_eq!(reported, "mail cannot be sent at the moment, 10 waiting; see the log");
    queue.close();
}

#[test]
fn a_reply_is_classified_by_its_code() {
    let outcome_of = |reply: &'static [u8]| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        let port = listener.local_addr().expect("bound").port();
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().expect("a client").0;
            stream.write_all(reply).expect("greeted");
        });
        let mailer = SmtpMailer::new(&format!("smtp://127.0.0.1:{port}"), "a@b.c", None).expect("valid");
        let refused = mailer.send(&mail()).expect_err("refused");
        server.join().expect("served");
        refused.outcome()
    };
    assert_eq!(outcome_of(b"421 busy\r\n"), SendOutcome::Unreachable);
    assert_eq!(outcome_of(b"450 not now\r\n"), SendOutcome::Later);
    assert_eq!(outcome_of(b"535 who are you\r\n"), SendOutcome::Unreachable);
    assert_eq!(outcome_of(b"550 nobody\r\n"), SendOutcome::Never);
    assert_eq!(outcome_of(b"what\r\n"), SendOutcome::Unreachable);
}

#[test]
fn own_certificates_keep_the_encryption_that_the_url_requests() {
    for (url, protection) in [
        ("smtps://mail.example.org", Protection::Wrapped),
        ("SMTPS://mail.example.org", Protection::Wrapped),
        ("smtp://mail.example.org?tls=required", Protection::Required),
        ("smtp://mail.example.org/?tls=required&name=x", Protection::Required),
        ("smtp://ada:tls=none@mail.example.org:587?tls=required", Protection::Required),
        ("smtp://mail.example.org?tls=opportunistic", Protection::Opportunistic),
        ("smtp://mail.example.org", Protection::None),
    ] {
        assert_eq!(requested_protection(&Url::parse(url).expect("a URL")), protection, "{url}");
    }
}

#[test]
fn a_memory_mailer_stores_a_mail_at_once() {
    let outbox = Outbox::default();
    let queue = MailQueue::start(Mailer::Memory(outbox.clone()), Clock::System).expect("no thread needed");
    queue.send(mail()).expect("room");
    assert_eq!(outbox.mails(), [mail()]);
}
