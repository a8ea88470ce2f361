//! Reads `time_intervals`.

use super::reader::{Problems, Section};
use super::route::NamedIntervals;
use crate::notify::interval::{CalendarRange, CalendarUnit, MuteInterval, parse_minute};
use crate::notify::limits::TIME_INTERVALS_MAX;
use crate::notify::zone::AlertZone;

const INTERVAL_FIELDS: [&str; 6] = ["times", "weekdays", "days_of_month", "months", "years", "location"];

pub(super) fn read_time_intervals(root: &Section<'_>, problems: &mut Problems) -> NamedIntervals {
    let mut named = NamedIntervals::new();
    for element in root.list("time_intervals", TIME_INTERVALS_MAX, problems) {
        let Some(section) = element.section(&["name", "time_intervals"], problems) else { continue };
        let Some(name) = section.required("name", problems) else { continue };
        let intervals: Vec<MuteInterval> = section
            .list("time_intervals", TIME_INTERVALS_MAX, problems)
            .iter()
            .filter_map(|element| {
                Some(read_interval(&element.section(&INTERVAL_FIELDS, problems)?, problems))
            })
            .collect();
        if named.insert(name.to_owned(), intervals.into()).is_some() {
            problems.add(&section.at("name"), format!("time interval {name:?} is given twice"));
        }
    }
    named
}

fn read_interval(section: &Section<'_>, problems: &mut Problems) -> MuteInterval {
    let mut interval = MuteInterval {
        minutes: read_times(section, problems),
        weekdays: read_ranges(section, "weekdays", CalendarUnit::Weekday, problems),
        month_days: read_ranges(section, "days_of_month", CalendarUnit::MonthDay, problems),
        months: read_ranges(section, "months", CalendarUnit::Month, problems),
        years: read_ranges(section, "years", CalendarUnit::Year, problems),
        zone: AlertZone::default(),
    };
    if let Some(location) = section.text("location", problems) {
        match AlertZone::parse(location) {
            Ok(zone) => interval.zone = zone,
            Err(why) => problems.add(&section.at("location"), why),
        }
    }
    interval
}

fn read_times(section: &Section<'_>, problems: &mut Problems) -> Vec<CalendarRange> {
    let mut ranges = Vec::new();
    for element in section.list("times", TIME_INTERVALS_MAX, problems) {
        let Some(times) = element.section(&["start_time", "end_time"], problems) else { continue };
        let mut minute = |name| {
            let text = times.required(name, problems)?;
            parse_minute(text).map_err(|why| problems.add(&times.at(name), why)).ok()
        };
        let (Some(first), Some(last)) = (minute("start_time"), minute("end_time")) else { continue };
        if first >= last {
            problems.add(&times.at("end_time"), "must be after start_time; use two ranges across midnight");
        }
        ranges.push(CalendarRange { first, last });
    }
    ranges
}

fn read_ranges(
    section: &Section<'_>,
    field: &str,
    unit: CalendarUnit,
    problems: &mut Problems,
) -> Vec<CalendarRange> {
    let mut ranges = Vec::new();
    for (path, text) in section.texts(field, TIME_INTERVALS_MAX, problems) {
        match unit.parse(text) {
            Ok(range) => ranges.push(range),
            Err(why) => problems.add(&path, why),
        }
    }
    ranges
}
