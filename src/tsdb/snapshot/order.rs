//! Found series in the order of their labels, by the codes of names and values: each distinct text is compared once for all
//! series that have it, and no label set is made.

use super::find::Hit;
use crate::tsdb::series::columns::Column;
use crate::tsdb::series::table::{Dictionary, Family, Table};

/// Puts hits in the order of their labels. Those of one family are neighbours, as [`super::Snapshot::find`] has them.
pub(super) fn by_labels<'t>(table: &Table, hits: Vec<Hit<'t>>) -> Vec<Hit<'t>> {
    let mut parts: Vec<Part<'t>> = Vec::new();
    for (place, hit) in hits.iter().enumerate() {
        match parts.last_mut().filter(|part| std::ptr::eq(part.family, hit.family)) {
            Some(part) => part.to = place + 1,
            None => parts.push(Part { family: hit.family, from: place, to: place + 1 }),
        }
    }
    // Where all have the same first label and each family one value of it, mostly the metric's name, that decides first.
    let first = |part: &Part<'_>| {
        let (name, column) = part.family.names.first().zip(part.family.columns.first())?;
        Some((*name, column.same()?))
    };
    let mut order: Vec<u32> = Vec::with_capacity(hits.len());
    let name = parts.first().and_then(first).map(|(name, _)| name);
    let told_apart = name.filter(|name| parts.iter().all(|part| first(part).is_some_and(|it| it.0 == *name)));
    if let Some(values) = told_apart.and_then(|name| table.values(name)) {
        let value = |part: &Part<'_>| first(part).map_or(0, |(_, value)| value);
        parts.sort_by(|a, b| {
            let (a, b) = (value(a), value(b));
            if a == b { std::cmp::Ordering::Equal } else { values.text(a).cmp(&values.text(b)) }
        });
        for alike in parts.chunk_by(|a, b| value(a) == value(b)) {
            sort_parts(table, &hits, alike, &mut order);
        }
    } else {
        sort_parts(table, &hits, &parts, &mut order);
    }
    let mut hits: Vec<Option<Hit<'t>>> = hits.into_iter().map(Some).collect();
    order.iter().filter_map(|place| hits.get_mut(*place as usize)?.take()).collect()
}

/// The hits of one family: `from..to`.
struct Part<'t> {
    family: &'t Family,
    from: usize,
    to: usize,
}

/// A place among the hits; there are no more than series, whose ids are 32 bits.
fn place(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

/// Appends the places of the hits of some families, in order.
fn sort_parts(table: &Table, hits: &[Hit<'_>], parts: &[Part<'_>], order: &mut Vec<u32>) {
    let done = matches!(parts, [part] if sort_family(table, hits, part, order));
    if !done {
        sort_families(table, hits, parts, order);
    }
}

/// One family: its series differ in values alone, and what tells them apart is packed into one number. False where that is
/// too long, and nothing was done.
fn sort_family(table: &Table, hits: &[Hit<'_>], part: &Part<'_>, order: &mut Vec<u32>) -> bool {
    let own = hits.get(part.from..part.to).unwrap_or_default();
    let mut keys: Vec<(u128, u32)> = (part.from..part.to).map(|at| (0, place(at))).collect();
    let mut bits = 0;
    let mut codes = Vec::new();
    for (name, column) in part.family.names.iter().zip(&part.family.columns) {
        let (Column::Each(of_row), Some(values)) = (column, table.values(*name)) else { continue };
        codes.clear();
        codes.extend(own.iter().map(|hit| of_row.get(hit.row).unwrap_or_default()));
        let distinct = ranks(values, &mut codes);
        let width = usize::BITS - distinct.saturating_sub(1).leading_zeros();
        bits += width;
        if bits > u128::BITS {
            return false;
        }
        for ((key, _), rank) in keys.iter_mut().zip(&codes) {
            *key = *key << width | u128::from(*rank);
        }
    }
    keys.sort_unstable();
    order.extend(keys.iter().map(|(_, place)| *place));
    true
}

/// Any families: label sets are compared pair by pair, name before value, a proper prefix first.
fn sort_families(table: &Table, hits: &[Hit<'_>], parts: &[Part<'_>], order: &mut Vec<u32>) {
    let mut names: Vec<u32> = parts.iter().flat_map(|part| part.family.names.iter().copied()).collect();
    names.sort_unstable();
    names.dedup();
    names.sort_by_key(|name| table.names.text(*name));
    let width: usize = parts.iter().map(|part| (part.to - part.from) * part.family.names.len()).sum();
    // The pairs of one hit after the other, each a number that compares as name and value do.
    let mut pairs: Vec<u64> = vec![0; width];
    let mut starts: Vec<(usize, usize, u32)> = Vec::new();
    let mut next = 0;
    for part in parts {
        for at in part.from..part.to {
            starts.push((next, next + part.family.names.len(), place(at)));
            next += part.family.names.len();
        }
    }
    let (mut codes, mut slots) = (Vec::new(), Vec::new());
    for (rank, name) in (0u64..).zip(&names) {
        let Some(values) = table.values(*name) else { continue };
        (codes.clear(), slots.clear());
        let mut first = 0;
        for part in parts {
            let labels = part.family.names.len();
            if let Some(at) = part.family.names.iter().position(|have| have == name)
                && let Some(column) = part.family.columns.get(at)
            {
                for (number, hit) in hits.get(part.from..part.to).unwrap_or_default().iter().enumerate() {
                    codes.push(column.code(hit.row).unwrap_or_default());
                    slots.push(first + number * labels + at);
                }
            }
            first += (part.to - part.from) * labels;
        }
        ranks(values, &mut codes);
        for (slot, code) in slots.iter().zip(&codes) {
            if let Some(pair) = pairs.get_mut(*slot) {
                *pair = rank << 32 | u64::from(*code);
            }
        }
    }
    starts.sort_unstable_by_key(|(from, to, _)| pairs.get(*from..*to));
    order.extend(starts.iter().map(|(_, _, place)| *place));
}

/// Replaces each code by the place of its text among those of all the codes; answers how many different ones there are.
fn ranks(values: &Dictionary, codes: &mut [u32]) -> usize {
    const UNSEEN: u32 = u32::MAX;
    // A table of all codes is the fastest where there are not many more of them than series.
    if values.len() / 8 > codes.len() {
        let mut distinct = codes.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let mut by_text: Vec<(u32, u32)> = (0..).zip(&distinct).map(|(at, code)| (at, *code)).collect();
        by_text.sort_unstable_by_key(|(_, code)| values.text(*code));
        let mut rank_of = vec![0; distinct.len()];
        for (rank, (at, _)) in (0..).zip(&by_text) {
            if let Some(slot) = rank_of.get_mut(*at as usize) {
                *slot = rank;
            }
        }
        for code in codes {
            let at = distinct.binary_search(code).unwrap_or_default();
            *code = rank_of.get(at).copied().unwrap_or_default();
        }
        return distinct.len();
    }
    let mut rank_of = vec![UNSEEN; values.len()];
    let mut distinct = Vec::new();
    for code in codes.iter() {
        if let Some(slot) = rank_of.get_mut(*code as usize).filter(|slot| **slot == UNSEEN) {
            *slot = 0;
            distinct.push(*code);
        }
    }
    if distinct.len() > 1 {
        distinct.sort_unstable_by_key(|code| values.text(*code));
    }
    for (rank, code) in (0..).zip(&distinct) {
        if let Some(slot) = rank_of.get_mut(*code as usize) {
            *slot = rank;
        }
    }
    for code in codes {
        *code = rank_of.get(*code as usize).copied().unwrap_or_default();
    }
    distinct.len()
}
