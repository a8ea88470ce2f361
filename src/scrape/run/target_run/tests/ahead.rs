//! Samples whose own time is far ahead of their scrape, and what the store refuses.

use super::*;
use crate::scrape::run::edge::ScrapeRefusal;

const DAY_MS: i64 = 86_400_000;

#[test]
fn only_samples_far_ahead_are_left_out_of_a_scrape() {
    let mut driver = Driver::new(job());
    let (far, near) = (NOW.plus_ms(DAY_MS).as_ms(), NOW.plus_ms(500_000).as_ms());
    let text = format!("a 1\nb{{c=\"d\"}} 2 {far}\nb{{c=\"e\"}} 3 {near}\nb{{c=\"f\"}} 4 {far}\n");
    for refused in [2, 4] {
        let format = ScrapeFormat::Text(Format::Prometheus);
        let outcome = driver.finish(Ok(ScrapeBody { format, bytes: text.as_bytes() }));
        assert_eq!(driver.report(&outcome.batch, "up"), "1");
        assert_eq!(driver.report(&outcome.batch, "scrape_samples_scraped"), "4");
        let samples = driver.samples(&outcome.batch);
        let names: Vec<&str> = samples.iter().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(names, ["a{instance=h:1,job=j}", "b{c=e,instance=h:1,job=j}"]);
        let logged = driver.run.stored(Ok(ScrapeStored::default()));
        assert_eq!(logged.is_some(), refused == 2, "the reason is logged once");
        let status = driver.run.status();
        assert_eq!((status.health, status.refused), (ScrapeHealth::Up, refused));
        let shown = status.shown_error();
        let expected = format!(
            "2 samples of the scrape were not stored; the first: \
             {{__name__=\"b\", c=\"d\", instance=\"h:1\", job=\"j\"}}: the sample's time {far} is {} ms ahead of \
             the scrape, at most 600000 ms are allowed",
            far - driver.at.as_ms()
        );
        assert_eq!(shown, expected);
    }
    assert_eq!(driver.scrape("a 1\n").first().map(String::as_str), Some("a{instance=h:1,job=j} 1"));
    assert_eq!(driver.run.stored(Ok(ScrapeStored::default())), None);
    assert_eq!(driver.run.status().shown_error(), "");
}

#[test]
fn what_the_store_refuses_is_shown_beside_the_health_of_the_scrape() {
    let mut driver = Driver::new(job());
    driver.scrape("a 1\n");
    let reason = ScrapeRefusal { code: "label_too_long", text: "{a=\"b\"}: a value is too long".to_owned() };
    let refused = ScrapeStored { refused: 1, reason: Some(reason) };
    let expected = "1 sample of the scrape was not stored: {a=\"b\"}: a value is too long";
    assert_eq!(driver.run.stored(Ok(refused.clone())).as_deref(), Some(expected));
    assert_eq!(driver.run.status().shown_error(), expected);
    assert_eq!(driver.run.status().health, ScrapeHealth::Up);
    driver.fail();
    assert!(driver.run.stored(Err("the disk is full".to_owned())).is_some());
    let shown = driver.run.status().shown_error();
    assert_eq!(shown, "the target returned HTTP status 500; the scrape was not stored: the disk is full");
    driver.scrape("a 1\n");
    assert_eq!(driver.run.stored(Ok(refused)), None, "it was logged a moment ago");
    assert_eq!(driver.run.status().refused, 2);
}

#[test]
fn a_body_of_a_known_template_leaves_out_a_sample_far_ahead_as_well() {
    let mut driver = Driver::new(job());
    let keys = KeyedLabels::default();
    let scrapes = [(0, false), (0, false), (1_000, true), (DAY_MS, false), (2_000, true)];
    for (ahead_ms, is_repeated) in scrapes {
        let at = driver.run.schedule.next();
        let text = format!("a 1\nb 2 {}\n", at.plus_ms(ahead_ms).as_ms());
        let body = ScrapeBody { format: ScrapeFormat::Text(Format::Prometheus), bytes: text.as_bytes() };
        let facts = ScrapeFacts { at, ..ScrapeFacts::default() };
        assert_eq!(driver.run.repeat(facts, body).is_some(), is_repeated, "{ahead_ms}");
        if is_repeated {
            driver.run.repeated(facts);
            driver.at = driver.run.begin(at);
            continue;
        }
        let outcome = driver.finish(Ok(body));
        assert_eq!(driver.samples(&outcome.batch).len(), if ahead_ms == DAY_MS { 1 } else { 2 });
        if driver.run.wants_keys() {
            driver.run.set_keys(keys.of(&outcome.batch.batch()));
        }
    }
}
