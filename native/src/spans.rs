//! Packed records as spans. What stands where, and under which name, is told by who uses this.
#![forbid(unsafe_code)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::HashMap;

use crate::msgpack::{Cursor, Value};
use crate::records::{Block, Fields, Table};
use crate::wire::{varint, Attribute};

/// Combinations that are remembered; one more, and it begins anew.
const MOST_COMBINATIONS: usize = 4096;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Fields by their places in the record, and the bytes that stand before their values.
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject), pyo3(from_item_all))]
pub struct Layout {
    pub span: Vec<u8>,
    pub trace_id: (usize, Vec<u8>),
    pub span_id: (usize, Vec<u8>),
    pub start: (usize, Vec<u8>),
    pub end: (usize, Vec<u8>),
    /// Attributes of a record that has no time, a start alone, an end alone.
    pub times: (Vec<u8>, Vec<u8>, Vec<u8>),
    pub shadow: usize,
    /// What is encoded together: `Encoder::learn` is told how.
    pub combination: Vec<usize>,
    pub id: (usize, Attribute),
    pub response_id: (usize, Attribute),
    /// What the response id has behind its prefix, in characters, at least.
    pub long_enough: usize,
    /// In the order of the wire; whether it is a number.
    pub attributes: Vec<(usize, bool, Attribute)>,
    pub tags: (usize, Attribute),
    /// Person of the hash of an id from which ids that a record lacks are cut.
    pub stand_in: Vec<u8>,
}

/// Some spans, how many they are, how many records were left out, and the first place that was not done.
pub struct Spans {
    pub encoded: Vec<u8>,
    pub count: usize,
    pub shadows: usize,
    pub next: usize,
}

pub struct Encoder {
    layout: Layout,
    combinations: HashMap<Vec<u8>, Vec<u8>>,
}

impl Encoder {
    pub fn new(layout: Layout) -> Self {
        Encoder { layout, combinations: HashMap::new() }
    }

    /// Remembers what the combination of the record at a place is encoded as.
    pub fn learn(&mut self, table: &Table, block: Block, place: usize, encoded: &[u8]) -> Option<()> {
        let mut fields = Fields::default();
        table.read::<false>(&mut Cursor::new(block.record(place)?), &mut fields)?;
        if self.combinations.len() >= MOST_COMBINATIONS {
            self.combinations.clear();
        }
        let mut key = Vec::new();
        self.combination(&fields, &mut key);
        self.combinations.insert(key, encoded.to_vec());
        Some(())
    }

    /// The spans of the records from `begin` until before `end`, or before the first that is not to be done here.
    pub fn encode(&self, table: &Table, block: Block, begin: usize, end: usize, at: u64) -> Spans {
        let mut made = Spans {
            encoded: Vec::with_capacity(end.saturating_sub(begin).min(4096).saturating_mul(1024)),
            count: 0,
            shadows: 0,
            next: begin,
        };
        let (mut span, mut key, mut fields) = (Vec::new(), Vec::new(), Fields::default());
        for place in begin..end {
            let Some(record) = block.record(place) else { break };
            if table.read::<false>(&mut Cursor::new(record), &mut fields).is_none() {
                break;
            }
            if fields.is_set(self.layout.shadow) {
                made.shadows = made.shadows.saturating_add(1);
            } else {
                span.clear();
                if self.span(&fields, at, &mut key, &mut span).is_none() {
                    break;
                }
                made.encoded.extend_from_slice(&self.layout.span);
                varint(&mut made.encoded, span.len() as u64);
                made.encoded.extend_from_slice(&span);
                made.count = made.count.saturating_add(1);
            }
            made.next = place.saturating_add(1);
        }
        made
    }

    fn span(&self, fields: &Fields, at: u64, key: &mut Vec<u8>, out: &mut Vec<u8>) -> Option<()> {
        let layout = &self.layout;
        self.ids(fields, out)?;
        let (start, end) = (fields.number(layout.start.0), fields.number(layout.end.0));
        let (first, last) = (start.or(end).unwrap_or(at), end.or(start).unwrap_or(at));
        out.extend_from_slice(&layout.start.1);
        out.extend_from_slice(&first.to_le_bytes());
        out.extend_from_slice(&layout.end.1);
        out.extend_from_slice(&last.to_le_bytes());
        self.combination(fields, key);
        out.extend_from_slice(self.combinations.get(key)?);
        let Value::Bytes(id) = fields.get(layout.id.0).value else { return None };
        layout.id.1.text(out, b"", &hex(id));
        out.extend_from_slice(match (start, end) {
            (None, None) => &layout.times.0,
            (Some(_), None) => &layout.times.1,
            (None, Some(_)) => &layout.times.2,
            (Some(_), Some(_)) => b"",
        });
        if let Some(text) = fields.text(layout.response_id.0) {
            if !has_prefix(text, layout.long_enough) {
                return None;
            }
            layout.response_id.1.text(out, b"", text);
        }
        for (place, is_number, attribute) in &layout.attributes {
            match fields.get(*place).value {
                Value::Nil => {}
                Value::Text(text) if !is_number => attribute.text(out, b"", text),
                Value::Number(number) if *is_number => attribute.number(out, number),
                _ => return None,
            }
        }
        for (name, value, _) in fields.pairs(layout.tags.0) {
            layout.tags.1.text(out, name, value);
        }
        Some(())
    }

    /// Appends trace and span id; None if one of them is there and has not the form of such ids.
    fn ids(&self, fields: &Fields, out: &mut Vec<u8>) -> Option<()> {
        let layout = &self.layout;
        let (trace, span) = (fields.get(layout.trace_id.0).value, fields.get(layout.span_id.0).value);
        let cut = match (trace, span, fields.get(layout.id.0).value) {
            (Value::Text(_), Value::Text(_), _) => [0; 24],
            (_, _, Value::Bytes(id)) => self.stand_ins(id)?,
            _ => return None,
        };
        let mut wanted =
            [(trace, &layout.trace_id.1, cut.get(..16)?), (span, &layout.span_id.1, cut.get(16..)?)];
        for (value, mark, stand_in) in &mut wanted {
            out.extend_from_slice(mark);
            match value {
                Value::Text(text) => unhex(text, stand_in.len(), out)?,
                _ => out.extend_from_slice(stand_in),
            }
        }
        Some(())
    }

    fn stand_ins(&self, id: &[u8]) -> Option<[u8; 24]> {
        let mut hash = blake2b_simd::Params::new();
        hash.hash_length(24).personal(&self.layout.stand_in);
        hash.hash(id).as_bytes().try_into().ok()
    }

    fn combination(&self, fields: &Fields, key: &mut Vec<u8>) {
        key.clear();
        for place in &self.layout.combination {
            key.extend_from_slice(fields.get(*place).raw);
        }
    }
}

/// Whether a sign that ends prefixes stands before the last characters, which are told by their number.
fn has_prefix(text: &[u8], last: usize) -> bool {
    let before = text.len().checked_sub(last).and_then(|end| text.get(..end));
    text.is_ascii() && before.is_some_and(|before| before.iter().any(|one| matches!(one, b'-' | b'_')))
}

pub fn hex(bytes: &[u8]) -> Vec<u8> {
    let digit = |half: u8| DIGITS.get(usize::from(half)).copied().unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Appends so many bytes that stand as lower-case digits; None for another form or number, and for zeros alone.
fn unhex(text: &[u8], count: usize, out: &mut Vec<u8>) -> Option<()> {
    if text.len() != count.checked_mul(2)? {
        return None;
    }
    let mut any: u8 = 0;
    for pair in text.chunks_exact(2) {
        let [high, low] = pair else { return None };
        let byte = half(*high)? << 4 | half(*low)?;
        any |= byte;
        out.push(byte);
    }
    (any != 0).then_some(())
}

fn half(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => digit.checked_sub(b'0'),
        b'a'..=b'f' => digit.checked_sub(b'a' - 10),
        _ => None,
    }
}
