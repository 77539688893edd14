//! Packed records added up: a row of measures for each hour and each distinct set of what they are counted under.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::{HashMap, HashSet};

use crate::msgpack::Cursor;
use crate::records::{Block, Fields, Table};

/// How an array and a map begin in msgpack; the number of items follows in two bytes.
const ARRAY: u8 = 0xdc;
const MAP: u8 = 0xde;
/// Rows that are kept until somebody takes them.
pub const MOST_ROWS: usize = 4096;
/// Digits before the point beyond which an amount is not added up here.
const MOST_DIGITS: usize = 8;
const LONGEST_AMOUNT: usize = 36;

/// Fields by their places in the record, and what bounds them.
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject), pyo3(from_item_all))]
pub struct Plan {
    pub start: usize,
    pub end: usize,
    pub shadow: usize,
    /// What a row is counted under; of the tags only these.
    pub dimensions: Vec<usize>,
    pub tags: (usize, HashSet<Vec<u8>>),
    /// Input and output, and the edges of sizes of the first that are counted apart.
    pub sized: (usize, usize, Vec<u64>),
    /// Counts, each with the most that one record may have.
    pub counts: Vec<(usize, u64)>,
    /// Amounts of money, the digits behind the point, and the most that all of one record may be.
    pub amounts: (Vec<usize>, usize, i128),
    /// Of times: an hour, and one unit of how long a record took, whose edges follow.
    pub hour: u64,
    pub unit: u64,
    pub edges: Vec<u64>,
}

/// A row: its hour, what it is counted under, and the measures: records, counts, amounts, time taken, records by edge.
pub struct Row {
    pub hour: u64,
    pub values: Vec<u8>,
    pub measures: Vec<i128>,
}

/// When an entry came: the hour in which records without a believable start count, and the end of what is believed.
#[derive(Clone, Copy)]
pub struct Arrival {
    pub hour: u64,
    pub before: u64,
}

pub struct Sums {
    plan: Plan,
    places: HashMap<Vec<u8>, usize>,
    rows: Vec<Row>,
    first: HashMap<u64, u64>,
}

impl Sums {
    pub fn new(plan: Plan) -> Self {
        Sums { plan, places: HashMap::new(), rows: Vec::new(), first: HashMap::new() }
    }

    /// Adds the records from `begin` until before the place that is returned: the end, or one not to be added here.
    ///
    /// `number` is the number of the record at `begin`.
    pub fn add(
        &mut self,
        table: &Table,
        block: Block,
        begin: usize,
        end: usize,
        number: u64,
        came: Arrival,
    ) -> usize {
        let (mut key, mut added, mut fields) = (Vec::new(), Vec::new(), Fields::default());
        for (place, number) in (begin..end).zip(number..) {
            let Some(record) = block.record(place) else { return place };
            if table.read::<false>(&mut Cursor::new(record), &mut fields).is_none() {
                return place;
            }
            if fields.is_set(self.plan.shadow) {
                continue;
            }
            let hour = self.plan.hour_of(&fields, came);
            if self.plan.measures(&fields, &mut added).is_none()
                || self.row(hour, &fields, &mut key, &added).is_none()
            {
                return place;
            }
            let first = self.first.entry(hour).or_insert(number);
            *first = number.min(*first);
        }
        end
    }

    /// What was added up, and the lowest number in each hour; it begins anew.
    pub fn take(&mut self) -> (Vec<Row>, HashMap<u64, u64>) {
        self.places.clear();
        (std::mem::take(&mut self.rows), std::mem::take(&mut self.first))
    }

    pub fn is_full(&self) -> bool {
        self.rows.len() >= MOST_ROWS
    }

    /// Adds measures to the row of a record; None if there is no room, or if one of them becomes too large.
    fn row(&mut self, hour: u64, fields: &Fields, key: &mut Vec<u8>, added: &[i128]) -> Option<()> {
        self.plan.key(hour, fields, added, key);
        let Some(place) = self.places.get(key.as_slice()) else {
            if self.is_full() {
                return None;
            }
            let values = self.plan.values(fields)?;
            self.places.insert(key.clone(), self.rows.len());
            self.rows.push(Row { hour, values, measures: added.to_vec() });
            return Some(());
        };
        let row = self.rows.get_mut(*place)?;
        let pairs = || row.measures.iter().zip(added);
        if pairs().any(|(sum, more)| sum.checked_add(*more).is_none()) {
            return None;
        }
        for (sum, more) in row.measures.iter_mut().zip(added) {
            *sum = sum.saturating_add(*more);
        }
        Some(())
    }
}

impl Plan {
    fn hour_of(&self, fields: &Fields, came: Arrival) -> u64 {
        match fields.number(self.start) {
            Some(start) if 0 < start && start < came.before => {
                start.checked_div(self.hour).unwrap_or(came.hour)
            }
            _ => came.hour,
        }
    }

    /// What tells rows apart, as bytes: values as they are packed, and whether a record adds any count or amount.
    fn key(&self, hour: u64, fields: &Fields, added: &[i128], key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&hour.to_ne_bytes());
        let (input, output, edges) = &self.sized;
        let beyond = fields.number(*input).map(|input| edges.partition_point(|edge| *edge < input));
        key.extend_from_slice(&beyond.unwrap_or(usize::MAX).to_ne_bytes());
        key.push(u8::from(fields.number(*output).is_some()));
        let used = self.counts.len().saturating_add(self.amounts.0.len());
        key.push(u8::from(added.iter().skip(1).take(used).any(|one| *one != 0)));
        for place in &self.dimensions {
            key.extend_from_slice(fields.get(*place).raw);
        }
        self.chosen(fields).for_each(|raw| key.extend_from_slice(raw));
    }

    /// What a record is counted under, as a packed array: the dimensions, input, output, and a map of the tags.
    fn values(&self, fields: &Fields) -> Option<Vec<u8>> {
        let (input, output, _) = &self.sized;
        let places = || self.dimensions.iter().chain([input, output]);
        let mut values = vec![ARRAY];
        values.extend(u16::try_from(places().count().checked_add(1)?).ok()?.to_be_bytes());
        places().for_each(|place| values.extend_from_slice(fields.get(*place).raw));
        values.push(MAP);
        values.extend(u16::try_from(self.chosen(fields).count()).ok()?.to_be_bytes());
        self.chosen(fields).for_each(|raw| values.extend_from_slice(raw));
        Some(values)
    }

    /// The tags under which records are counted, as they are packed.
    fn chosen<'a>(&'a self, fields: &Fields<'a>) -> impl Iterator<Item = &'a [u8]> {
        let tags = fields.pairs(self.tags.0).filter(|(name, _, _)| self.tags.1.contains(*name));
        tags.map(|(_, _, raw)| raw)
    }

    /// What a record adds to its row; None if a value is not to be added here.
    fn measures(&self, fields: &Fields, added: &mut Vec<i128>) -> Option<()> {
        added.clear();
        added.push(1);
        for (place, most) in &self.counts {
            let count = fields.number(*place).unwrap_or(0);
            if count > *most {
                return None;
            }
            added.push(i128::from(count));
        }
        let (places, decimals, most) = &self.amounts;
        let mut all: i128 = 0;
        for place in places {
            let amount = fields.text(*place).map_or(Some(0), |text| amount(text, *decimals))?;
            all = all.checked_add(amount)?;
            added.push(amount);
        }
        if all > *most {
            return None;
        }
        let (start, end) = (fields.number(self.start), fields.number(self.end));
        let took = end.zip(start).and_then(|(end, start)| end.checked_sub(start)?.checked_div(self.unit));
        added.push(i128::from(took.unwrap_or(0)));
        let within = took.map(|took| self.edges.partition_point(|edge| *edge < took));
        added.extend((0..=self.edges.len()).map(|place| i128::from(Some(place) == within)));
        Some(())
    }
}

/// Plain decimal text in units of the last of so many digits behind the point; what lies behind these is cut off.
pub fn amount(text: &[u8], decimals: usize) -> Option<i128> {
    if text.len() > LONGEST_AMOUNT {
        return None;
    }
    let mut parts = text.splitn(2, |one| *one == b'.');
    let (whole, fraction) = (parts.next()?, parts.next().unwrap_or(b"0"));
    if whole.is_empty() || fraction.is_empty() || whole.len() > MOST_DIGITS {
        return None;
    }
    let kept = whole.len().saturating_add(decimals);
    let mut units: i128 = 0;
    for (place, digit) in whole.iter().chain(fraction).enumerate() {
        if !digit.is_ascii_digit() {
            return None;
        }
        if place < kept {
            units = units.checked_mul(10)?.checked_add(i128::from(digit.checked_sub(b'0')?))?;
        }
    }
    let missing = kept.saturating_sub(whole.len().saturating_add(fraction.len()));
    units.checked_mul(10i128.checked_pow(u32::try_from(missing).ok()?)?)
}
